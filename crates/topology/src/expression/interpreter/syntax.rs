//! From text to a syntax tree, within bounds that are checked before any recursion starts.

use cel::common::ast::{Expr, IdedExpr, SourceInfo};
use cel::{Env, ParseErrors};

use super::problem::Problem;

/// The longest text.
pub(super) const MAX_BYTES: usize = 4096;
/// The most tokens. Each can make the tree one level deeper (`1+1+1…`), and walking the
/// tree takes stack for each level: this much fits into half a MiB.
const MAX_WORDS: usize = 500;
/// The deepest nesting of brackets and conditions. The parser uses far more stack for these.
const MAX_DEPTH: u16 = 24;

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) root: IdedExpr,
    info: SourceInfo,
}

impl Syntax {
    /// Reads an expression.
    pub(super) fn parse(env: &Env, text: &str) -> Result<Self, Problem> {
        check_size(text)?;
        match env.parser().max_recursion_depth(MAX_DEPTH).parse_with_source_info(text) {
            Ok((root, info)) => Ok(Self { root, info }),
            Err(errors) => Err(first_problem(text, &errors)),
        }
    }

    /// The byte offset of a part of the expression, where a reader would point.
    pub(super) fn offset(&self, node: &IdedExpr) -> usize {
        let text = self.info.source.as_str();
        let at = self.info.offset_for(node.id).map_or(0, |(start, _)| start as usize);
        let Some((before, after)) = text.split_at_checked(at) else {
            return 0;
        };
        match &node.expr {
            // The parser notes the dot, the reader means the field.
            Expr::Select(_) if after.starts_with('.') => at + 1,
            // The parser notes the bracket, the reader means the function.
            Expr::Call(_) | Expr::Comprehension(_) if after.starts_with('(') => before
                .trim_end_matches(|letter: char| letter.is_alphanumeric() || letter == '_')
                .len(),
            _ => at,
        }
    }

    /// Where the expression begins.
    pub(super) fn start(&self) -> usize {
        let text = self.info.source.as_str();
        text.len() - text.trim_start().len()
    }
}

fn check_size(text: &str) -> Result<(), Problem> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes of text; at most {MAX_BYTES} are allowed", text.len());
        return Err(Problem::at(MAX_BYTES, message));
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut words, mut in_word) = (0, false);
    for (at, letter) in text.char_indices().filter(|(_, letter)| !letter.is_whitespace()) {
        let goes_on = in_word && is_word(letter) && !text[..at].ends_with(char::is_whitespace);
        in_word = is_word(letter);
        words += usize::from(!goes_on);
        if words > MAX_WORDS {
            let message = format!("more than {MAX_WORDS} tokens");
            return Err(Problem::at(at, message));
        }
    }
    Ok(())
}

const FROM_GRAMMAR: &str = "Syntax error: ";

/// Problems of grammar first: the others follow from them.
fn first_problem(text: &str, errors: &ParseErrors) -> Problem {
    let mut found = errors.errors.iter();
    let grammar = found.clone().find(|error| error.msg.starts_with(FROM_GRAMMAR));
    let Some(error) = grammar.or_else(|| found.next()) else {
        return Problem::at(0, "cannot be read");
    };
    let (line, column) = error.pos;
    Problem::at(offset_of(text, line, column), plain(&error.msg))
}

/// The byte at a line and a column, both counted from 1.
fn offset_of(text: &str, line: isize, column: isize) -> usize {
    let (line, column) = (line.max(1) as usize - 1, column.max(1) as usize - 1);
    let begin: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let content = &text[begin..];
    begin + content.char_indices().nth(column).map_or(content.len(), |(at, _)| at)
}

/// The parser's message without the names of grammar rules.
fn plain(message: &str) -> String {
    let message = message.strip_prefix(FROM_GRAMMAR).unwrap_or(message);
    if message.contains("Recursion limit") {
        return format!("nested more than {MAX_DEPTH} deep");
    }
    let unexpected = ["mismatched input ", "extraneous input ", "no viable alternative at input "];
    if let Some(rest) = unexpected.iter().find_map(|begin| message.strip_prefix(begin)) {
        let found = rest.split(" expecting ").next().unwrap_or(rest);
        return match found {
            "'<EOF>'" => String::from("the expression ends too early"),
            _ => format!("unexpected {found}"),
        };
    }
    match message.strip_prefix("token recognition error at: ") {
        Some(found) => format!("cannot read {found}"),
        None => message.replace("'<EOF>'", "the end"),
    }
}
