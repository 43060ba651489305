//! What is wrong with an expression, and where.

use std::fmt::Write as _;

use thiserror::Error;

use super::Kind;

/// Why an expression was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExpressionError {
    /// The heuristic's name cannot be used.
    #[error("heuristic `{name}`: {why}")]
    Name {
        /// The name given, made printable.
        name: String,
        /// What would have been right.
        why: &'static str,
    },
    /// Nothing to evaluate, or two things.
    #[error("heuristic `{name}`: set exactly one of endpointZones and zoneShares")]
    NotOne {
        /// The heuristic.
        name: String,
    },
    /// The name is already taken by another definition.
    #[error("heuristic `{name}` is defined twice")]
    Twice {
        /// The heuristic.
        name: String,
    },
    /// The text of the expression.
    #[error("heuristic `{name}`, {kind}, line {line}, column {column}: {message}\n{excerpt}")]
    Text {
        /// The heuristic.
        name: String,
        /// Which of its expressions.
        kind: Kind,
        /// Line within the expression, from 1.
        line: usize,
        /// Column within that line in characters, from 1.
        column: usize,
        /// What is wrong, and what would be right.
        message: String,
        /// The line, and a caret under the column.
        excerpt: String,
    },
}

/// Something wrong at a byte of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) offset: usize,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }

    /// The same for people: with line, column and the line itself.
    pub(super) fn in_text(self, name: &str, kind: Kind, text: &str) -> ExpressionError {
        let place = Place::of(text, self.offset);
        ExpressionError::Text {
            name: name.to_owned(),
            kind,
            line: place.line,
            column: place.column,
            message: printable(&self.message),
            excerpt: place.excerpt(),
        }
    }
}

struct Place<'a> {
    line: usize,
    column: usize,
    content: &'a str,
}

/// Characters shown on either side of the caret.
const AROUND: usize = 60;

impl<'a> Place<'a> {
    fn of(text: &'a str, offset: usize) -> Self {
        let mut begin = 0;
        let mut place = Self { line: 1, column: 1, content: "" };
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let end = begin + line.len();
            if offset < end || end == text.len() {
                let before = line.char_indices().take_while(|(at, _)| begin + at < offset).count();
                let content = line.trim_end_matches(['\n', '\r']);
                let column = before.min(content.chars().count()) + 1;
                place = Self { line: index + 1, column, content };
                break;
            }
            begin = end;
        }
        place
    }

    /// The part of the line around the column. A long line must not fill the screen.
    fn excerpt(&self) -> String {
        let first = self.column.saturating_sub(AROUND + 1);
        let shown: String = self
            .content
            .chars()
            .skip(first)
            .take(2 * AROUND)
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .collect();
        format!("  | {shown}\n  | {:>width$}", "^", width = self.column - first)
    }
}

/// Text from files must not reach a terminal as it is.
pub(super) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(clean, "{}", letter.escape_default());
        } else {
            clean.push(letter);
        }
    }
    clean
}
