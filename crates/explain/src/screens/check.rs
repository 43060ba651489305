//! The screen of `zonewise check`: a line per check, and below it how to fix what did not pass.

use std::fmt::Write;

use super::{BAD, BOLD, DIM, GOOD, WARN, Width, clean, counted, fit, paint};
use crate::check::{Check, CheckState, Checks};

/// The checks part by part, and how many there are of each kind.
pub fn checks(checks: &Checks, width: Width) -> String {
    let mut out = String::new();
    let names = checks.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for part in checks.checks.chunk_by(|one, other| one.part == other.part) {
        let _ = writeln!(out, "{}", paint(BOLD, part[0].part.name()));
        part.iter().for_each(|check| out.push_str(&line(check, names, width)));
    }
    let _ = writeln!(out, "\n{}", summary(checks));
    out
}

fn line(check: &Check, names: usize, width: Width) -> String {
    let (style, symbol) = match check.state {
        CheckState::Passed => (GOOD, '✓'),
        CheckState::Unknown => (DIM, '?'),
        CheckState::Warning => (WARN, '!'),
        CheckState::Failed => (BAD, '✗'),
    };
    let name = format!("{:names$}", check.name);
    let mut out = fit(&format!("{symbol} {name}  {}", clean(&check.finding)), width);
    out = out.replacen(symbol, &paint(style, &symbol.to_string()), 1) + "\n";
    if let Some(fix) = &check.fix {
        out.push_str(&fit(&format!("    fix: {}", clean(fix)), width));
        out.push('\n');
    }
    for command in &check.commands {
        let _ = writeln!(out, "      {}", clean(command));
    }
    out
}

fn summary(checks: &Checks) -> String {
    let of =
        |state, word: &str| Some((checks.count(state), word.to_owned())).filter(|one| one.0 > 0);
    let warnings = checks.count(CheckState::Warning);
    let counts = [
        of(CheckState::Failed, "failed"),
        (warnings > 0)
            .then(|| (warnings, if warnings == 1 { "warning" } else { "warnings" }.to_owned())),
        of(CheckState::Unknown, "unknown"),
        of(CheckState::Passed, "passed"),
    ];
    let counts: Vec<String> =
        counts.into_iter().flatten().map(|(count, word)| format!("{count} {word}")).collect();
    format!("{}: {}", counted(checks.checks.len(), "check"), counts.join(", "))
}
