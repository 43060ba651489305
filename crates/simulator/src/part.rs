//! Results of one shard, to be merged with the others.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::evaluate::Shard;
use crate::summary::Summary;

const KIND: &str = "SimulationPart";
const VERSION: u32 = 1;

/// What one shard of a run found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    kind: String,
    version: u32,
    /// Which shard, counted from 0.
    pub shard: u64,
    /// Of how many.
    pub of: u64,
    /// What it found.
    pub summary: Summary,
}

/// Why parts do not fit together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum MergeError {
    #[error("nothing to merge: name the files that `simulate --shard` wrote")]
    Nothing,
    #[error("{file}: not a partial result of `simulate --shard`: {why}")]
    Unreadable { file: String, why: String },
    #[error(
        "{file}: made with a different {what} than {first}; run all shards with the same arguments"
    )]
    Differs { file: String, first: String, what: &'static str },
    #[error("{file}: shard {shard} of {of} is there already, in {first}")]
    Twice { file: String, first: String, shard: u64, of: u64 },
    #[error("incomplete: of {of} shards these are missing: {missing}")]
    Missing { of: u64, missing: String },
}

impl Part {
    /// Wraps a shard's result.
    pub fn new(shard: Shard, summary: Summary) -> Self {
        let kind = KIND.to_owned();
        Self { kind, version: VERSION, shard: shard.index, of: shard.count, summary }
    }

    /// As text.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a part from text.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, MergeError> {
        let unreadable = |why: String| MergeError::Unreadable { file: file.to_owned(), why };
        let part: Self =
            serde_json::from_slice(text).map_err(|error| unreadable(error.to_string()))?;
        if part.kind != KIND || part.version != VERSION {
            let why = format!(
                "expected {KIND} version {VERSION}, found {} version {}",
                part.kind.escape_debug(),
                part.version
            );
            return Err(unreadable(why));
        }
        if !part.summary.is_consistent() || part.shard >= part.of {
            return Err(unreadable(String::from("its tables do not have the expected shape")));
        }
        Ok(part)
    }
}

/// Puts the parts of one run together: the result equals the run in one piece.
pub fn merge(parts: Vec<(String, Part)>) -> Result<Summary, MergeError> {
    let mut parts = parts;
    parts.sort_by_key(|(_, part)| part.shard);
    let Some((first_file, first)) = parts.first() else {
        return Err(MergeError::Nothing);
    };
    for (file, part) in &parts {
        if let Some(what) = difference(first, part) {
            return Err(MergeError::Differs {
                file: file.clone(),
                first: first_file.clone(),
                what,
            });
        }
    }
    for pair in parts.windows(2) {
        if pair[0].1.shard == pair[1].1.shard {
            let (file, first) = (pair[1].0.clone(), pair[0].0.clone());
            return Err(MergeError::Twice {
                file,
                first,
                shard: pair[1].1.shard,
                of: pair[1].1.of,
            });
        }
    }
    let of = first.of;
    if (parts.len() as u64) < of {
        return Err(MergeError::Missing { of, missing: missing(&parts, of) });
    }
    let mut parts = parts.into_iter().map(|(_, part)| part.summary);
    let mut whole = parts.next().ok_or(MergeError::Nothing)?;
    parts.for_each(|part| whole.merge(part));
    Ok(whole)
}

fn difference(a: &Part, b: &Part) -> Option<&'static str> {
    let labels = |part: &Part| -> Vec<String> {
        part.summary.heuristics.iter().map(|line| line.heuristic.clone()).collect()
    };
    if a.of != b.of {
        Some("number of shards")
    } else if a.summary.dataset != b.summary.dataset || a.summary.zones != b.summary.zones {
        Some("data set")
    } else if labels(a) != labels(b) {
        Some("set of heuristics")
    } else {
        None
    }
}

fn missing(parts: &[(String, Part)], of: u64) -> String {
    const MOST_SHOWN: usize = 20;
    let absent = (0..of).filter(|shard| !parts.iter().any(|(_, part)| part.shard == *shard));
    absent.take(MOST_SHOWN).map(|shard| shard.to_string()).collect::<Vec<_>>().join(", ")
}
