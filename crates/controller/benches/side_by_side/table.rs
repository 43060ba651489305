//! Measures of the programs side by side, as a Markdown table.

use zonewise_testbed::table;

use crate::subject::Subject;

/// One line of the table for one program.
pub(crate) struct Measure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

pub(crate) fn render(columns: &[(Subject, Vec<Measure>)]) -> String {
    let mut lines = vec![header(columns)];
    let rows = columns.first().map_or(0, |(_, measures)| measures.len());
    lines.extend((0..rows).filter_map(|row| line(columns, row)));
    table::markdown(&lines)
}

fn header(columns: &[(Subject, Vec<Measure>)]) -> Vec<String> {
    let mut cells = vec!["measure".to_owned()];
    cells.extend(columns.iter().map(|(subject, _)| subject.to_string()));
    if columns.len() == 2 {
        cells.push("ours / reference".to_owned());
    }
    cells
}

fn line(columns: &[(Subject, Vec<Measure>)], row: usize) -> Option<Vec<String>> {
    let measures: Vec<&Measure> =
        columns.iter().map(|(_, measures)| measures.get(row)).collect::<Option<_>>()?;
    let mut cells = vec![measures.first()?.name.clone()];
    cells.extend(measures.iter().map(|measure| show(measure)));
    if let [reference, ours] = measures[..] {
        cells.push(ratio(ours.value, reference.value));
    }
    Some(cells)
}

fn show(measure: &Measure) -> String {
    let Measure { value, unit, .. } = measure;
    match *unit {
        "" => format!("{value:.0}"),
        unit => format!("{value:.2} {unit}"),
    }
}

fn ratio(ours: f64, reference: f64) -> String {
    if reference == 0.0 { "–".to_owned() } else { format!("{:.2}", ours / reference) }
}
