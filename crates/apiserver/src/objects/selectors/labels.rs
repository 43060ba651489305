//! Label selectors such as `zone in (a, b), !canary, tier != web`: cut into tokens, then parsed
//! into requirements. Messages are those of apimachinery (pkg/labels/selector.go).

use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::Value;

use crate::objects::syntax;

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Requirement {
    pub(super) fn matches(&self, labels: Option<&Value>) -> bool {
        let value = labels.and_then(|all| all.get(&self.key)).and_then(Value::as_str);
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
            Operator::In(some) => value.is_some_and(|value| some.iter().any(|one| one == value)),
            Operator::NotIn(some) => value.is_none_or(|value| some.iter().all(|one| one != value)),
            Operator::Greater(than) => number().is_some_and(|number| number > *than),
            Operator::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Symbol(&'static str),
    Name(String),
}

impl Token {
    fn text(token: Option<&Self>) -> &str {
        match token {
            Some(Self::Symbol(symbol)) => symbol,
            Some(Self::Name(name)) => name,
            None => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

fn tokens(mut text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| text.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            text = &text[symbol.len()..];
            continue;
        }
        let end = text
            .find(|one: char| one.is_whitespace() || "=!,()><".contains(one))
            .unwrap_or(text.len());
        tokens.push(Token::Name(text[..end].to_owned()));
        text = &text[end..];
    }
}

/// The requirements of a selector, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    match parser.tokens.peek() {
        None => return Ok(requirements),
        Some(Token::Name(_) | Token::Symbol("!")) => {}
        other => {
            let found = Token::text(other);
            return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
        }
    }
    loop {
        let one =
            parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
        requirements.push(one);
        match parser.tokens.next() {
            None => return Ok(requirements),
            Some(Token::Symbol(",")) => {}
            other => {
                let found = Token::text(other.as_ref());
                return Err(format!("found '{found}', expected: ',' or 'end of string'"));
            }
        }
        if !matches!(parser.tokens.peek(), Some(Token::Name(_) | Token::Symbol("!"))) {
            let found = Token::text(parser.tokens.peek());
            return Err(format!("found '{found}', expected: identifier after ','"));
        }
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
}

impl Parser {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let missing = self.tokens.next_if_eq(&Token::Symbol("!")).is_some();
        let key = self.name("', expected: identifier")?;
        if let Some(why) = syntax::qualified(&key).first() {
            return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        let operator = if missing {
            Operator::Missing
        } else if matches!(self.tokens.peek(), None | Some(Token::Symbol(","))) {
            Operator::Exists
        } else {
            self.operator(&key)?
        };
        Ok(Requirement { key, operator })
    }

    fn name(&mut self, expected: &str) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Name(name)) => Ok(name),
            other => Err(format!("found '{}{expected}", Token::text(other.as_ref()))),
        }
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        let token = self.tokens.next();
        let operator = match Token::text(token.as_ref()) {
            "in" => Operator::In(self.values()?),
            "notin" => Operator::NotIn(self.values()?),
            "=" | "==" => Operator::In(vec![self.value()?]),
            "!=" => Operator::NotIn(vec![self.value()?]),
            ">" => return self.number().map(Operator::Greater),
            "<" => return self.number().map(Operator::Less),
            found => {
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            for (at, value) in values.iter().enumerate() {
                if let Some(why) = syntax::label_value(value).first() {
                    return Err(format!("values[{at}][{key}]: Invalid value: {value:?}: {why}"));
                }
            }
        }
        Ok(operator)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.tokens.peek(), None | Some(Token::Symbol(","))) {
            return Ok(String::new());
        }
        self.name("', expected: identifier")
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be \
                 an integer"
            )
        })
    }

    /// `(a, b)`. Nothing between two commas, or between a bracket and a comma, is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.tokens.next() {
            Some(Token::Symbol("(")) => {}
            other => return Err(format!("found '{}' expected: '('", Token::text(other.as_ref()))),
        }
        let mut values = Vec::new();
        loop {
            match self.tokens.peek() {
                Some(Token::Name(name)) => {
                    values.push(name.clone());
                    self.tokens.next();
                }
                Some(Token::Symbol("," | ")")) => values.push(String::new()),
                other => {
                    let found = Token::text(other);
                    return Err(format!("found '{found}', expected: ',', ')' or identifier"));
                }
            }
            match self.tokens.next() {
                Some(Token::Symbol(",")) => {}
                Some(Token::Symbol(")")) => break,
                other => {
                    let found = Token::text(other.as_ref());
                    return Err(format!("found '{found}', expected: ',' or ')'"));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
