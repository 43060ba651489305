//! `docs/reasons.md`.

use std::fmt::Write as _;

use super::TABLE;

/// The whole page: one line for each code.
pub fn page() -> String {
    let mut page = String::from(
        "# Reasons\n\nWhy a Service is routed the way it is. The codes are stable: events, conditions, metrics and\n\
         documents carry them. `zonewise reasons` prints this page, `zonewise reasons CODE` one line of it. *Setting* means\n\
         that an annotation or field has no effect.\n\n| code | outcome | what happened | what to do |\n|---|---|---|---|\n",
    );
    for entry in &TABLE {
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| <a id=\"{}\"></a>`{}` | {} | {} | {} |",
            entry.code.to_string().to_lowercase(),
            entry.code,
            entry.outcome.word(),
            entry.sentence,
            entry.remedy
        );
    }
    page
}
