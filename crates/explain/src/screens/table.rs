//! Tables as `kubectl` prints them: no lines, two spaces between columns.

use comfy_table::{CellAlignment, Table};

use super::clean;

/// A table. The columns from index `numbers` on are right-aligned.
pub fn table(header: &[&str], numbers: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.iter().map(|name| clean(name)));
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// The text with every line indented.
pub(super) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
