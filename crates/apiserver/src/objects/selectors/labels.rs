//! `zone in (a, b), !canary, tier != web`: words, then requirements.

use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::Value;

use crate::objects::syntax;

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Requirement {
    pub(super) fn holds(&self, labels: Option<&Value>) -> bool {
        let value = labels.and_then(|all| all.get(&self.key)).and_then(Value::as_str);
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(some) => value.is_some_and(|value| some.iter().any(|one| one == value)),
            Test::NotIn(some) => value.is_none_or(|value| some.iter().all(|one| one != value)),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Sign(&'static str),
    Name(String),
}

impl Word {
    fn text(word: Option<&Self>) -> &str {
        match word {
            Some(Self::Sign(sign)) => sign,
            Some(Self::Name(name)) => name,
            None => "",
        }
    }
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

fn words(mut text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return words;
        }
        if let Some(sign) = SIGNS.into_iter().find(|sign| text.starts_with(sign)) {
            words.push(Word::Sign(sign));
            text = &text[sign.len()..];
            continue;
        }
        let end = text
            .find(|one: char| one.is_whitespace() || "=!,()><".contains(one))
            .unwrap_or(text.len());
        words.push(Word::Name(text[..end].to_owned()));
        text = &text[end..];
    }
}

/// The requirements of a selector, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { words: words(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    match parser.words.peek() {
        None => return Ok(requirements),
        Some(Word::Name(_) | Word::Sign("!")) => {}
        other => {
            let found = Word::text(other);
            return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
        }
    }
    loop {
        let one =
            parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
        requirements.push(one);
        match parser.words.next() {
            None => return Ok(requirements),
            Some(Word::Sign(",")) => {}
            other => {
                let found = Word::text(other.as_ref());
                return Err(format!("found '{found}', expected: ',' or 'end of string'"));
            }
        }
        if !matches!(parser.words.peek(), Some(Word::Name(_) | Word::Sign("!"))) {
            let found = Word::text(parser.words.peek());
            return Err(format!("found '{found}', expected: identifier after ','"));
        }
    }
}

struct Parser {
    words: Peekable<IntoIter<Word>>,
}

impl Parser {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let missing = self.words.next_if_eq(&Word::Sign("!")).is_some();
        let key = self.name("', expected: identifier")?;
        if let Some(why) = syntax::qualified(&key).first() {
            return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        let test = if missing {
            Test::Missing
        } else if matches!(self.words.peek(), None | Some(Word::Sign(","))) {
            Test::Exists
        } else {
            self.test(&key)?
        };
        Ok(Requirement { key, test })
    }

    fn name(&mut self, expected: &str) -> Result<String, String> {
        match self.words.next() {
            Some(Word::Name(name)) => Ok(name),
            other => Err(format!("found '{}{expected}", Word::text(other.as_ref()))),
        }
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.words.next();
        let test = match Word::text(operator.as_ref()) {
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            "=" | "==" => Test::In(vec![self.value()?]),
            "!=" => Test::NotIn(vec![self.value()?]),
            ">" => return self.number().map(Test::Greater),
            "<" => return self.number().map(Test::Less),
            found => {
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        if let Test::In(values) | Test::NotIn(values) = &test {
            for (at, value) in values.iter().enumerate() {
                if let Some(why) = syntax::label_value(value).first() {
                    return Err(format!("values[{at}][{key}]: Invalid value: {value:?}: {why}"));
                }
            }
        }
        Ok(test)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.words.peek(), None | Some(Word::Sign(","))) {
            return Ok(String::new());
        }
        self.name("', expected: identifier")
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// `(a, b)`; nothing between two commas, or between a bracket and a comma, is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.words.next() {
            Some(Word::Sign("(")) => {}
            other => return Err(format!("found '{}' expected: '('", Word::text(other.as_ref()))),
        }
        let mut values = Vec::new();
        loop {
            match self.words.peek() {
                Some(Word::Name(name)) => {
                    values.push(name.clone());
                    self.words.next();
                }
                Some(Word::Sign("," | ")")) => values.push(String::new()),
                other => {
                    let found = Word::text(other);
                    return Err(format!("found '{found}', expected: ',', ')' or identifier"));
                }
            }
            match self.words.next() {
                Some(Word::Sign(",")) => {}
                Some(Word::Sign(")")) => break,
                other => {
                    let found = Word::text(other.as_ref());
                    return Err(format!("found '{found}', expected: ',' or ')'"));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
