//! Tables as `kubectl` prints them: no lines, two spaces between columns.

use comfy_table::{CellAlignment, Table};

use super::{Width, clean};

/// The space between columns.
const GAP: usize = 2;

/// A table. The columns from index `numbers` on are right-aligned.
pub fn table(header: &[&str], numbers: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.iter().map(|name| clean(name)));
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP as u16));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// A screen with so many columns fewer.
pub(super) fn narrower(width: Width, by: usize) -> Width {
    match width {
        Width::Columns(columns) => Width::Columns(columns.saturating_sub(by)),
        Width::Usual | Width::Wide => width,
    }
}

/// Whether a table fits on a screen.
pub(super) fn is_within(table: &str, width: Width) -> bool {
    match width {
        Width::Columns(columns) => table.lines().all(|line| line.chars().count() <= columns),
        Width::Usual | Width::Wide => true,
    }
}

/// The same for a screen of a certain width: text in the columns before index `numbers`, and lists of hints, are
/// shortened as far as needed, where they are longest.
pub(super) fn fitted(
    header: &[&str],
    numbers: usize,
    mut rows: Vec<Vec<String>>,
    width: Width,
) -> String {
    let Width::Columns(columns) = width else { return table(header, numbers, rows) };
    let length = |cell: &String| clean(cell).chars().count();
    let of_column = |index: usize| rows.iter().map(|row| length(&row[index])).max().unwrap_or(0);
    let least: Vec<usize> = header.iter().map(|name| name.chars().count()).collect();
    let mut widths: Vec<usize> =
        least.iter().enumerate().map(|(index, name)| of_column(index).max(*name)).collect();
    let all: usize = widths.iter().sum::<usize>() + GAP * header.len().saturating_sub(1);
    let is_text = |index: &usize| *index < numbers || header[*index] == HINTS;
    for _ in columns..all {
        let longest = |can: &dyn Fn(usize) -> bool| {
            let texts = (0..header.len()).filter(is_text);
            let longer = texts.filter(|index| widths[*index] > least[*index]);
            longer.filter(|index| can(*index)).max_by_key(|index| widths[*index])
        };
        // Names are copied and codes are looked up, so they are shortened last.
        let others = longest(&|index| {
            !["SERVICE", "REASON"].contains(&header[index]) && widths[index] > READABLE
        });
        let Some(index) = others.or_else(|| longest(&|_| true)) else { break };
        widths[index] -= 1;
    }
    for row in &mut rows {
        for (index, cell) in row.iter_mut().enumerate().filter(|(index, _)| is_text(index)) {
            *cell = shortened(cell, widths[index]);
        }
    }
    table(header, numbers, rows)
}

/// The title of lists of hints. They are as long as there are zones, and aligned as figures.
pub(super) const HINTS: &str = "HINTS";

/// What is shorter than this is hard to recognise.
const READABLE: usize = 8;

/// The text, or its beginning and an ellipsis.
fn shortened(text: &str, width: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= width {
        return text;
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// The text with every line indented.
pub(super) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_text_is_shortened_until_the_table_fits() {
        let rows = || vec![vec!["shop/a-very-long-name".into(), "short".into(), "12 %".into()]];
        let shown = |width| fitted(&["SERVICE", "ASKED", "IN ZONE"], 2, rows(), width);
        assert_eq!(shown(Width::Usual), table(&["SERVICE", "ASKED", "IN ZONE"], 2, rows()));
        assert_eq!(shown(Width::Columns(80)), shown(Width::Usual));
        assert_eq!(
            shown(Width::Columns(28)),
            "SERVICE       ASKED  IN ZONE\nshop/a-very…  short     12 %"
        );
        let rows = || vec![vec!["PreferSameNode".into(), "TooFewForBalance".into()]];
        assert_eq!(
            fitted(&["ASKED", "REASON"], 2, rows(), Width::Columns(26)),
            "ASKED     REASON\nPreferS…  TooFewForBalance"
        );
        // Titles and figures are never shortened.
        assert_eq!(shown(Width::Columns(1)), "SERVICE  ASKED  IN ZONE\nshop/a…  short     12 %");
    }
}
