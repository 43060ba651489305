//! Parts of pages that tests keep equal to what the code says.

use std::fs;
use std::path::Path;

/// Whether the section of a page below a heading is this text. With UPDATE_DOCS in the environment it is written there
/// instead.
///
/// # Errors
/// What is wrong with the page, and what to do.
pub fn keep_section(page: &Path, heading: &str, text: &str) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", page.display());
    let old = fs::read_to_string(page).map_err(|error| told(&error))?;
    let start = format!("\n{heading}\n\n");
    let (before, rest) =
        old.split_once(&start).ok_or_else(|| told(&format!("no heading {heading}")))?;
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    let new = format!("{before}{start}{text}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(page, new).map_err(|error| told(&error));
    }
    if old == new { Ok(()) } else { Err(told(&"out of date: run make docs")) }
}
