//! What people see: tables, diffs and sentences. Pure text; colours are codes that the terminal's
//! side takes out where they are not wanted.

mod diff;
mod explanation;
mod overview;
mod plan;
mod route;
mod table;
mod yaml;

pub use diff::diff;
pub use explanation::explanation;
pub use overview::overview;
pub use plan::{Totals, plan_row, totals};
pub use route::{matrix, routes};
pub use table::table;
pub use yaml::{List, yaml};
pub use zonewise_topology::words::counted;

use anstyle::{AnsiColor, Style};
use zonewise_topology::reason::Outcome;

/// How much fits on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// What matters most.
    Usual,
    /// Everything.
    Wide,
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Text from the cluster, safe to show: control characters could move the cursor or colour.
pub fn clean(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn outcome(outcome: Outcome) -> (Style, &'static str) {
    match outcome {
        Outcome::InForce => (GOOD, "in force"),
        Outcome::Fallback => (WARN, "fallback"),
        Outcome::Failed => (BAD, "failed"),
        Outcome::Setting => (WARN, "setting"),
    }
}

fn percent(part: f64) -> String {
    // Adding nothing makes a zero of minus zero.
    format!("{:.0} %", (part * 100.0).round() + 0.0)
}

fn maybe_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), percent)
}

/// `+12 %` or `-3 %`.
pub fn signed_percent(part: f64) -> String {
    let rounded = (part * 100.0).round();
    if rounded == 0.0 { "0 %".into() } else { format!("{rounded:+.0} %") }
}
