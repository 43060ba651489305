//! The screen of `zonewise reasons`.

use zonewise_topology::reason::Entry;

use super::{BOLD, outcome, paint, wrapped};

/// What each reason means, and what to do about it.
pub fn reasons(entries: &[&Entry]) -> String {
    entries.iter().map(|entry| reason(entry)).collect::<Vec<_>>().join("\n")
}

fn reason(entry: &Entry) -> String {
    let (style, word) = outcome(entry.outcome);
    format!(
        "{} ({})\n  what happened  {}\n  what to do     {}\n",
        paint(BOLD, &entry.code.to_string()),
        paint(style, word),
        wrapped(entry.sentence, INDENT),
        wrapped(entry.remedy, INDENT)
    )
}

/// The column in which sentences begin.
const INDENT: usize = 17;
