//! The screen of `zonewise top`.

use zonewise_topology::words::percent;

use super::table::fitted;
use super::{BOLD, WARN, Width, clean, fit, maybe_percent, paint, table};
use crate::top::{Basis, Top, TopService};

/// How many Services are shown, unless all are wanted.
const SHOWN: usize = 20;

/// What flows in all, the Services, and the zones.
pub fn top(top: &Top, width: Width) -> String {
    let shown = if width == Width::Wide { top.services.len() } else { SHOWN };
    let mut text = format!("{}\n\n", fit(&first_line(top), width));
    text.push_str(&services(top, shown, width));
    text.push('\n');
    if let Some(more) = top.services.len().checked_sub(shown).filter(|more| *more > 0) {
        text.push_str(&format!("{more} more with less: -o wide shows them\n"));
    }
    text.push_str(&format!("\n{}\n", zones(top)));
    for warning in &top.warnings {
        text.push_str(&fit(&format!("{}\n", paint(WARN, &clean(warning))), width));
    }
    text
}

fn first_line(top: &Top) -> String {
    let amount = |figure: f64| per_second(top.basis, figure);
    let part = if top.total > 0.0 { top.crossing / top.total } else { 0.0 };
    let cost = top.cost_per_month.map_or_else(String::new, |cost| {
        format!("; {cost:.2} per month, projected from these {}", time(top.seconds))
    });
    let all = format!(
        "{} in all, {} ({}) cross zones, {} of it need not{cost}",
        amount(top.total),
        amount(top.crossing),
        percent(part),
        amount(top.can_save)
    );
    format!("{} ({}, over {})", paint(BOLD, &all), clean(&top.source), time(top.seconds))
}

/// Such as `10 s`, `5 min` or `24 h`.
pub fn time(seconds: f64) -> String {
    match seconds.round() {
        seconds if seconds >= 7200.0 && seconds % 3600.0 == 0.0 => {
            format!("{} h", seconds / 3600.0)
        }
        seconds if seconds >= 120.0 && seconds % 60.0 == 0.0 => format!("{} min", seconds / 60.0),
        seconds => format!("{seconds} s"),
    }
}

/// Such as `1.2 MB/s` or `31 conn/s`.
fn per_second(basis: Basis, amount: f64) -> String {
    match basis {
        Basis::Bytes => format!("{}/s", bytes(amount)),
        Basis::Connections => format!("{} conn/s", number(amount)),
    }
}

fn bytes(amount: f64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let unit = units.into_iter().find(|(_, size)| amount >= *size);
    unit.map_or_else(
        || format!("{amount:.0} B"),
        |(name, size)| format!("{:.1} {name}", amount / size),
    )
}

/// Small numbers have digits after the point.
fn number(amount: f64) -> String {
    if amount > 0.0 && amount < 10.0 { format!("{amount:.1}") } else { format!("{amount:.0}") }
}

fn services(top: &Top, shown: usize, width: Width) -> String {
    let priced = top.cost_per_month.is_some();
    let mut header =
        vec!["SERVICE", "MOST FROM", "TO", "TOTAL", "CROSSES", "IN ZONE", "BEST SAFE", "CAN SAVE"];
    header.push("CONN/S");
    if priced {
        header.push("COST/MONTH");
    }
    let row = |service: &TopService| {
        let amount = |figure: f64| per_second(top.basis, figure);
        let (from, to) = service.largest_crossing.clone().unwrap_or_default();
        let mut cells = vec![service.service.to_string(), from.into(), to.into()];
        cells.extend([service.total, service.crossing].map(amount));
        cells.extend([service.in_zone, service.best].map(maybe_percent));
        cells.extend([amount(service.can_save), number(service.connections)]);
        cells.extend(service.cost_per_month.map(|cost| format!("{cost:.2}")));
        cells
    };
    fitted(&header, 3, top.services.iter().take(shown).map(row).collect(), width)
}

/// From the zones of the lines to the zones of the columns.
fn zones(top: &Top) -> String {
    let name = |zone: &str| if zone.is_empty() { "no zone".to_owned() } else { zone.to_owned() };
    let names: Vec<String> = top.zones.iter().map(|zone| name(zone)).collect();
    let header: Vec<&str> =
        std::iter::once("FROM / TO").chain(names.iter().map(String::as_str)).collect();
    let line = |(zone, figures): (&String, &Vec<f64>)| {
        let figures = figures.iter().map(|figure| per_second(top.basis, *figure));
        std::iter::once(zone.clone()).chain(figures).collect()
    };
    table(&header, 1, names.iter().zip(&top.matrix).map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_that_fit() {
        let rows = [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1500.0, "1.5 kB"),
            (2.5e6, "2.5 MB"),
            (7e10, "70.0 GB"),
        ];
        for (amount, expected) in rows {
            assert_eq!(bytes(amount), expected);
        }
        for (amount, expected) in [(0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (31.4, "31")] {
            assert_eq!(number(amount), expected);
        }
        for (seconds, expected) in
            [(10.0, "10 s"), (90.0, "90 s"), (300.0, "5 min"), (86400.0, "24 h")]
        {
            assert_eq!(time(seconds), expected);
        }
    }
}
