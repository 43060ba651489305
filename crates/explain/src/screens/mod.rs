//! What commands print for people: tables, diffs and sentences, as text.
//!
//! Colours are ANSI codes. The stream that they are written to removes them where they are not
//! wanted.

mod check;
mod demand;
mod diff;
mod environment;
mod evacuation;
mod explanation;
mod fit;
mod overview;
mod plan;
mod reasons;
mod route;
mod table;
mod top;
mod yaml;

pub use check::checks;
pub use demand::demand_line;
pub use diff::diff;
pub use environment::{environment, planned_by, planned_for_guard, unmanaged};
pub use evacuation::evacuation;
pub use explanation::explanation;
pub use fit::fit;
pub use overview::overview;
pub use plan::{Totals, plan_row, totals};
pub use reasons::reasons;
pub use route::{matrix, routes};
pub use table::table;
pub use top::{time, top};
pub use yaml::{List, yaml};
pub use zonewise_topology::words::counted;

use anstyle::{AnsiColor, Style};
use zonewise_topology::reason::Outcome;
use zonewise_topology::words::percent;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The most important columns.
    Usual,
    /// The same on a screen with so many columns: what is too long is shortened.
    Columns(usize),
    /// All columns and endpoints.
    Wide,
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Escapes control characters, which could move the cursor or change colours: names in a cluster can
/// be chosen by anyone.
pub fn clean(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn outcome(outcome: Outcome) -> (Style, &'static str) {
    let style = match outcome {
        Outcome::InForce => GOOD,
        Outcome::Fallback | Outcome::Setting => WARN,
        Outcome::Failed => BAD,
    };
    (style, outcome.word())
}

fn maybe_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), percent)
}

/// The width of terminals that every line of a screen should fit into.
const COLUMNS: usize = 80;

/// The text with line breaks between words, for a place that begins in column `indent`. Further lines are
/// indented as much.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), indent);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > indent && column + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

/// `+12 %` or `-3 %`.
pub fn signed_percent(part: f64) -> String {
    let rounded = (part * 100.0).round();
    if rounded == 0.0 { "0 %".into() } else { format!("{rounded:+.0} %") }
}
