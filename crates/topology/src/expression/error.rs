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
    /// This build has no interpreter for expressions.
    #[error(
        "heuristic `{name}`: this build cannot run expressions; use a build with the cargo feature \
         `expressions` (it is on by default), or remove the heuristic from the configuration"
    )]
    NotBuiltIn {
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
