//! A progress bar with rate and time left, on terminals only.

use indicatif::{ProgressBar, ProgressStyle};
use zonewise_simulator::evaluate::Progress;

/// Shows how far a run is.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// For a known or unknown number of rows.
    pub(crate) fn new(rows: Option<u64>) -> Self {
        let template = match rows {
            Some(_) => "{bar:40} {human_pos}/{human_len} inputs, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} inputs, {per_sec}, {msg} of the file read",
        };
        let bar = rows.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Takes a report.
    pub(crate) fn advance(&self, progress: Progress) {
        self.0.inc(progress.rows);
        if let Some(read) = progress.read {
            self.0.set_message(format!("{:.0} %", read.min(1.0) * 100.0));
        }
    }

    /// Leaves no trace.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
