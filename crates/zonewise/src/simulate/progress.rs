//! A progress bar with rate and time left, on terminals only.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};
use zonewise_simulator::evaluate::Progress;

/// What there is to do.
pub(super) enum Work {
    /// So many inputs.
    Inputs(u64),
    /// So many heuristics.
    Heuristics(u64),
    /// A file, whose number of rows is not known yet.
    File,
}

/// Thousandths of a file.
const WHOLE_FILE: u64 = 1000;

/// Shows how far a run is.
pub(super) struct Bar {
    bar: ProgressBar,
    file: bool,
    inputs: AtomicU64,
}

impl Bar {
    /// An empty bar.
    pub(super) fn new(work: &Work) -> Self {
        let (length, template) = match work {
            Work::Inputs(inputs) => {
                (*inputs, "{bar:40} {human_pos}/{human_len} inputs, {per_sec}, {eta} left")
            }
            Work::Heuristics(count) => (*count, "{bar:40} {pos}/{len} heuristics, {eta} left"),
            Work::File => (WHOLE_FILE, "{bar:40} {percent} % of the file, {msg}, {eta} left"),
        };
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, file: matches!(work, Work::File), inputs: AtomicU64::new(0) }
    }

    /// Takes a report.
    pub(super) fn advance(&self, progress: Progress) {
        if !self.file {
            return self.bar.inc(progress.rows);
        }
        let inputs = self.inputs.fetch_add(progress.rows, Ordering::Relaxed) + progress.rows;
        let rate = inputs as f64 / self.bar.elapsed().as_secs_f64().max(0.001);
        let (inputs, rate) = (HumanCount(inputs), HumanCount(rate as u64));
        self.bar.set_message(format!("{inputs} inputs, {rate}/s"));
        if let Some(read) = progress.read {
            self.bar.set_position((read * WHOLE_FILE as f64) as u64);
        }
    }

    /// Leaves no trace.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
