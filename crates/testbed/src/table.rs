//! Markdown tables with aligned columns, which are readable as plain text.

use std::fmt::Write;

/// A table of lines of cells. The first line is the header; the first column is aligned left, the others right.
#[must_use]
pub fn markdown(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if number == 0 {
            text.push_str(&rule(&widths));
        }
    }
    text
}

fn rule(widths: &[usize]) -> String {
    let cells = widths.iter().enumerate().map(|(column, width)| match column {
        0 => format!("|{}", "-".repeat(width + 2)),
        _ => format!("|{}:", "-".repeat(width + 1)),
    });
    cells.collect::<String>() + "|\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["what", "ours"], ["CPU", "1.5 s"]].map(|line| line.map(str::to_owned).into());
        let expected = "| what |  ours |\n|------|------:|\n| CPU  | 1.5 s |\n";
        assert_eq!(markdown(&lines), expected);
    }
}
