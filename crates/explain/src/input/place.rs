//! Where an object stands, and what can be wrong with a whole file.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The document in it, from 1. Empty documents do not count.
    pub document: usize,
    /// The item of its list, from 1.
    pub item: Option<usize>,
    /// The line of the file, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        write!(f, ", line {}", self.line)
    }
}

impl Place {
    /// The same object, at a line of its text counted from 1.
    pub(super) fn at_line(&self, line: usize) -> Self {
        Self { line: self.line + line.saturating_sub(1), ..self.clone() }
    }
}

/// Why the rest of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The operating system refused.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: Arc<str>,
        /// What the system said.
        source: io::Error,
    },
    /// Neither JSON nor YAML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        message: String,
    },
    /// The file ends too early.
    #[error("{place}: the file ends inside this object; it was cut off, so write it again")]
    Truncated {
        /// Where the unfinished object begins.
        place: Place,
    },
    /// Not text that can be read.
    #[error("{place}: {message}")]
    NotText {
        /// Where.
        place: Place,
        /// What it is instead, and what to do.
        message: &'static str,
    },
    /// One object that no API server would store.
    #[error(
        "{place}: this object is larger than {limit} bytes; an API server stores 1.5 MB at most"
    )]
    TooLarge {
        /// Where it begins.
        place: Place,
        /// The most that is read.
        limit: usize,
    },
}
