//! `docs/reasons.md`.

use std::fmt::Write as _;

use super::{Code, TABLE};

/// The whole page: one line for each code.
pub fn page() -> String {
    let mut page = String::from(
        "# Reasons\n\nWhy a Service is routed the way it is. The codes are stable: events, conditions, metrics and\n\
         documents carry them.\n\n| code | outcome | what happened | what to do |\n|---|---|---|---|\n",
    );
    for entry in &TABLE {
        let outcome = serde_json::to_string(&entry.outcome).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| <a id=\"{}\"></a>`{}` | {} | {} | {} |",
            anchor(entry.code),
            entry.code,
            outcome.trim_matches('"'),
            entry.sentence,
            entry.remedy
        );
    }
    page
}

/// The place of a code on the page.
pub(super) fn anchor(code: Code) -> String {
    code.to_string().to_lowercase()
}
