//! Progress on terminals.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for bytes that are read from files.
pub(crate) fn reading(total: u64, shown: bool) -> ProgressBar {
    let bar = if shown { ProgressBar::new(total) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} read, {eta} left")
    {
        bar.set_style(style);
    }
    bar
}
