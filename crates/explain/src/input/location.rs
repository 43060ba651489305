//! Where an object is in a file, and what can be wrong with a whole file.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The position of an object in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: Arc<str>,
    /// The number of the document in it, from 1. Empty documents do not count.
    pub document: usize,
    /// The number of the item in its list, from 1.
    pub item: Option<usize>,
    /// The line of the file, from 1.
    pub line: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        write!(f, ", line {}", self.line)
    }
}

impl SourceLocation {
    /// A line inside the object; its first line is 1.
    pub(super) fn at_line(&self, line: usize) -> Self {
        Self { line: self.line + line.saturating_sub(1), ..self.clone() }
    }
}

/// Why the rest of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The operating system reported an error.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: Arc<str>,
        /// The error.
        source: io::Error,
    },
    /// Neither JSON nor YAML.
    #[error("{location}: {message}")]
    Syntax {
        /// Where.
        location: SourceLocation,
        /// What is wrong.
        message: String,
    },
    /// The file ends inside an object.
    #[error("{location}: the file ends inside this object; it was cut off, so write it again")]
    Truncated {
        /// Where the unfinished object begins.
        location: SourceLocation,
    },
    /// Binary, compressed or not UTF-8.
    #[error("{location}: {message}")]
    NotText {
        /// Where.
        location: SourceLocation,
        /// What it is instead, and what to do.
        message: &'static str,
    },
    /// An object that is too large for any API server.
    #[error(
        "{location}: this object is larger than {limit} bytes; an API server stores 1.5 MB at most"
    )]
    TooLarge {
        /// Where it begins.
        location: SourceLocation,
        /// The largest size that is read, in bytes.
        limit: usize,
    },
}
