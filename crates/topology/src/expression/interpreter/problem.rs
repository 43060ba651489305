//! A problem in the text of an expression, shown with its line and a caret.

use crate::expression::Kind;
use crate::expression::error::{ExpressionError, printable};

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

    /// As an error with line, column and the line itself.
    pub(super) fn in_text(self, name: &str, kind: Kind, text: &str) -> ExpressionError {
        let position = Position::of(text, self.offset);
        ExpressionError::Text {
            name: name.to_owned(),
            kind,
            line: position.line,
            column: position.column,
            message: printable(&self.message),
            excerpt: position.excerpt(),
        }
    }
}

/// Where in the text a problem is.
struct Position<'a> {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
    /// The line without its end.
    content: &'a str,
}

/// Characters shown on either side of the caret.
const AROUND: usize = 60;

impl<'a> Position<'a> {
    fn of(text: &'a str, offset: usize) -> Self {
        let mut begin = 0;
        let mut position = Self { line: 1, column: 1, content: "" };
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let end = begin + line.len();
            if offset < end || end == text.len() {
                let before = line.char_indices().take_while(|(at, _)| begin + at < offset).count();
                let content = line.trim_end_matches(['\n', '\r']);
                let column = before.min(content.chars().count()) + 1;
                position = Self { line: index + 1, column, content };
                break;
            }
            begin = end;
        }
        position
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
