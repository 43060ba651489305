//! Why a Service is routed the way it is.
//!
//! [`Code`] is the short, stable name that events, conditions, metrics and documents carry;
//! [`TABLE`] says for each what it means and what to do. [`Reason`] is a code with the arithmetic
//! that led to it.
//!
//! ```text
//!  table   every reason: code, figures, outcome, sentence, remedy     one list
//!  define  ─► Code, TABLE, Reason                                     by macro
//!  page    ─► docs/reasons.md
//! ```

mod define;
mod fault;
mod page;
mod table;

use std::fmt;

use serde::Serialize;

pub use self::fault::Fault;
pub use self::page::page;
pub use self::table::{Code, Reason, TABLE};

/// The remedy of reasons that ask for nothing.
pub const NOTHING_TO_DO: &str = "nothing to do";

/// What a reason means for routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The heuristic's allocation is in force.
    InForce,
    /// Every zone uses every endpoint instead.
    Fallback,
    /// There is no allocation.
    Failed,
    /// A setting was not usable; its default is in force.
    Setting,
}

impl Outcome {
    /// The word that screens and pages have for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::InForce => "active",
            Self::Fallback => "not active",
            Self::Failed => "failed",
            Self::Setting => "setting",
        }
    }
}

/// One line of [`TABLE`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What it means for routing.
    pub outcome: Outcome,
    /// What happened, as a sentence.
    pub sentence: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Code {
    /// Its entry in the table.
    pub fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// The command that explains it.
    pub fn docs(self) -> String {
        format!("zonewise reasons {self}")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Reason {
    /// What it means for routing.
    pub fn outcome(&self) -> Outcome {
        self.code().entry().outcome
    }
}

impl fmt::Display for Reason {
    /// The sentence of the table, and the figures behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().entry().sentence)?;
        match self.figures() {
            Some(figures) => write!(f, " ({figures})"),
            None => Ok(()),
        }
    }
}
