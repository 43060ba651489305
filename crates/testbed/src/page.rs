//! Parts of pages that tests keep equal to what the code says.

use std::fs;
use std::path::Path;

/// Whether the section of a page below a heading is this text. With UPDATE_DOCS in the environment it is written there
/// instead.
///
/// # Errors
/// What is wrong with the page, and what to do.
pub fn keep_section(page: &Path, heading: &str, text: &str) -> Result<(), String> {
    let error = |why: &dyn std::fmt::Display| format!("{}: {why}", page.display());
    let old = fs::read_to_string(page).map_err(|why| error(&why))?;
    let start = format!("\n{heading}\n\n");
    let (before, rest) =
        old.split_once(&start).ok_or_else(|| error(&format!("no heading {heading}")))?;
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    let new = format!("{before}{start}{text}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(page, new).map_err(|why| error(&why));
    }
    if old == new {
        Ok(())
    } else {
        Err(error(&"out of date: the test that failed renews it with UPDATE_DOCS=1"))
    }
}
