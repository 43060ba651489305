//! The screen of `zonewise explain` for all Services.

use std::collections::BTreeSet;

use zonewise_common::keys::DOMAIN;

use super::table::{fitted, is_within};
use super::{
    BOLD, WARN, Width, clean, counted, environment, fit, maybe_percent, paint, percent,
    signed_percent, wrapped,
};
use crate::environment::{Decider, Environment};
use crate::explanation::Note;
use crate::improvements::is_overloaded;
use crate::overview::{Cost, ServiceOverview};
use crate::verdict::State;

/// Marks a Service with annotations or fields that are ignored.
const IGNORED: &str = "!";
/// Marks a Service whose routing overloads endpoints, or that lacks them in a zone.
const POOR: &str = "~";
/// The title of the largest part that could stay in its zone without overload.
const BEST: &str = "BEST SAFE";

/// The table, what is noticeable, and the sum of all costs.
pub fn overview(lines: &[ServiceOverview], here: &Environment, width: Width) -> String {
    let mut columns = columns(lines, here, width);
    let mut table = table(lines, &columns, width);
    // What can be saved says the same in money.
    if lines.iter().any(|line| line.cost.is_some()) && !is_within(&table, width) {
        columns.retain(|column| column.title != BEST);
        table = self::table(lines, &columns, width);
    }
    let mut text = format!("{}\n{table}\n", fit(&first_lines(lines, here), width));
    for line in lines {
        line.ignored.iter().for_each(|note| text.push_str(&ignored(&line.service, note)));
    }
    lines.iter().filter(|line| line.is_poor()).take(SHOWN).for_each(|line| {
        text.push_str(&poor(line));
    });
    if lines.iter().any(|line| line.cost.is_some()) {
        text.push_str(&fit(&format!("\n{}\n", paint(BOLD, &sum(lines))), width));
    }
    text
}

fn table(lines: &[ServiceOverview], columns: &[Column<'_>], width: Width) -> String {
    let header: Vec<&str> = columns.iter().map(|column| column.title.as_str()).collect();
    let row = |line: &ServiceOverview| columns.iter().map(|column| (column.cell)(line)).collect();
    let texts = columns.iter().filter(|column| column.is_text).count();
    fitted(&header, texts, lines.iter().map(row).collect(), width)
}

/// The number of poorly routed Services that have a line below the table. All have a mark in it.
const SHOWN: usize = 5;

/// A column of the table.
struct Column<'a> {
    title: String,
    /// Whether it is text, which may be shortened. Columns of text come first.
    is_text: bool,
    cell: Box<dyn Fn(&ServiceOverview) -> String + 'a>,
}

fn column<'a>(
    title: &str,
    is_text: bool,
    cell: impl Fn(&ServiceOverview) -> String + 'a,
) -> Column<'a> {
    Column { title: title.into(), is_text, cell: Box::new(cell) }
}

/// The columns. What is usually shown fits into 80 columns: with prices, what was asked for makes room for them.
fn columns<'a>(lines: &'a [ServiceOverview], here: &Environment, width: Width) -> Vec<Column<'a>> {
    let (wide, priced) = (width == Width::Wide, lines.iter().any(|line| line.cost.is_some()));
    let mut columns = vec![column("SERVICE", true, |line| line.service.clone())];
    if lines.iter().any(|line| !marks(line).is_empty()) {
        columns.insert(0, column("", true, marks));
    }
    if wide || !priced {
        columns.push(column("ASKED", true, |line| asked(&line.asked)));
    }
    if wide {
        columns.push(column("MODE", true, modes));
    }
    columns.push(column("ACTIVE", true, |line| active(line.state).into()));
    columns.push(column(reason_title(here), true, reason));
    if wide {
        columns.push(column("ENDPOINTS", false, |line| line.endpoints.to_string()));
    }
    columns.push(column("IN ZONE", false, |line| maybe_percent(line.in_zone)));
    if wide {
        columns.push(column("CROSSES", false, |line| maybe_percent(line.cross_zone)));
        columns.extend(heuristics(lines));
    }
    columns.push(column(BEST, false, |line| maybe_percent(line.best)));
    columns.push(column("OVERLOAD", false, |line| {
        line.max_overload.map_or_else(|| "-".into(), signed_percent)
    }));
    if priced {
        columns.push(column("COST", false, |line| money(line, |cost| cost.now)));
        columns.push(column("CAN SAVE", false, |line| money(line, Cost::saving)));
    }
    columns
}

/// One column for each heuristic.
fn heuristics(lines: &[ServiceOverview]) -> Vec<Column<'_>> {
    let all: BTreeSet<&str> =
        lines.iter().flat_map(|line| line.by_heuristic.keys()).map(|name| &**name).collect();
    let of = |name: &'_ str| {
        let (title, name) = (format!("{} (MODEL)", name.to_uppercase()), name.to_owned());
        column(&title, false, move |line| maybe_percent(line.by_heuristic.get(&name).copied()))
    };
    all.into_iter().map(of).collect()
}

/// The marks of a Service.
fn marks(line: &ServiceOverview) -> String {
    let marks = [(IGNORED, !line.ignored.is_empty()), (POOR, line.is_poor())];
    marks.into_iter().filter(|(_, has)| *has).map(|(mark, _)| mark).collect()
}

/// What is active here and now, in how many Services, and what runs.
fn first_lines(lines: &[ServiceOverview], here: &Environment) -> String {
    let count = |state: State| lines.iter().filter(|line| line.state == state).count();
    let all = counted(lines.len(), "Service");
    let mut parts = vec![format!("zone routing is active for {} of {all}", count(State::Active))];
    for (state, word) in [(State::PartlyActive, "partly active"), (State::Unknown, "unknown")] {
        let some = Some(count(state)).filter(|count| *count > 0);
        parts.extend(some.map(|count| format!("{word} for {count}")));
    }
    format!("{}\n{}", paint(BOLD, &parts.join(", ")), environment(here, Width::Usual))
}

/// What is active, in one word.
fn active(state: State) -> &'static str {
    match state {
        State::Active => "yes",
        State::PartlyActive => "partly",
        State::NotActive => "no",
        State::Local => "local",
        State::NotApplicable => "-",
        State::Unknown => "unknown",
    }
}

/// What a controller decides is the reason only where it runs.
fn reason_title(here: &Environment) -> &'static str {
    match here.decider {
        _ if here.has_decider() => "REASON",
        Decider::Zonewise => "IF ZONEWISE RAN",
        Decider::BuiltIn => "IF BUILT-IN RAN",
    }
}

/// The reason, or what the Service is if there is none.
fn reason(line: &ServiceOverview) -> String {
    let what = || line.service_kind.remark().unwrap_or("-").into();
    line.reason.map_or_else(what, |code| code.to_string())
}

/// What is asked for, without the domain of our own heuristics.
fn asked(asked: &str) -> String {
    if asked.is_empty() {
        return "-".into();
    }
    asked.strip_prefix(DOMAIN).unwrap_or(asked).into()
}

fn modes(line: &ServiceOverview) -> String {
    if line.modes.is_empty() { "-".into() } else { line.modes.join(",") }
}

fn money(line: &ServiceOverview, of: fn(&Cost) -> f64) -> String {
    line.cost.as_ref().map_or_else(|| "-".into(), |cost| format!("{:.2}", of(cost)))
}

/// The line below the table about a key that is ignored.
fn ignored(service: &str, note: &Note) -> String {
    let (key, value) = (clean(&note.source), clean(&note.value));
    let text = format!("{}: {key} = {value}: {}", clean(service), clean(&note.sentence));
    format!("{} {}\n", paint(WARN, IGNORED), wrapped(&text, 2))
}

/// The line below the table about a Service that is routed by zones, but poorly.
fn poor(line: &ServiceOverview) -> String {
    let service = clean(&line.service);
    let mut what = Vec::new();
    if let Some(most) = line.max_overload.filter(|most| is_overloaded(*most)) {
        what.push(format!("one endpoint gets {} more than its share", percent(most)));
    }
    if !line.zones_without_endpoints.is_empty() {
        what.push(format!("no endpoint in {}", clean(&line.zones_without_endpoints.join(", "))));
    }
    // The command stays on one line: the spaces in it do not break.
    let text =
        format!("{service}: {}; see `zonewise\u{a0}explain\u{a0}{service}`", what.join(", "));
    format!("{} {}\n", paint(WARN, POOR), wrapped(&text, 2).replace('\u{a0}', " "))
}

fn sum(lines: &[ServiceOverview]) -> String {
    let costs = || lines.iter().filter_map(|line| line.cost.as_ref());
    let (now, best): (f64, f64) =
        (costs().map(|cost| cost.now).sum(), costs().map(|cost| cost.best).sum());
    format!(
        "per month: {now:.2} for traffic that crosses zones, {best:.2} at best, {:.2} can be saved",
        now - best
    )
}
