//! All Services: what each asked for, what it got, and why.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use zonewise_explain::screens::signed_percent;
use zonewise_topology::words::grouped;

use super::pen::{BOLD, Cell, DIM, PLAIN, clean, of_failed, of_load, of_share, panel, put, row};
use crate::view::{ServiceView, View};
use crate::words::maybe_percent;

/// A column.
struct Column {
    head: &'static str,
    width: u16,
    /// Columns with higher numbers go first when there is no room.
    rank: u8,
    of: fn(&ServiceView) -> Span<'static>,
}

const COLUMNS: [Column; 9] = [
    Column { head: "SERVICE", width: 10, rank: 0, of: |one| Span::raw(clean(&one.name)) },
    Column { head: "ASKED", width: 18, rank: 8, of: |one| Span::raw(clean(&one.asked)) },
    Column { head: "MODE", width: 9, rank: 6, of: |one| Span::raw(clean(&one.mode)) },
    Column { head: "REASON", width: 22, rank: 4, of: |one| Span::raw(clean(&one.reason)) },
    Column { head: "ENDPOINTS", width: 9, rank: 7, of: |one| Span::raw(one.endpoints.to_string()) },
    Column { head: "IN ZONE", width: 7, rank: 1, of: in_zone },
    Column { head: "OVERLOAD", width: 8, rank: 2, of: overload },
    Column { head: "CONN/S", width: 6, rank: 5, of: |one| Span::raw(format!("{:.0}", one.rate)) },
    Column { head: "FAILED", width: 6, rank: 3, of: failed },
];
/// The column of what Services ask for.
const ASKED: usize = 1;
/// Columns from here on are numbers.
const NUMBERS: usize = 4;

fn in_zone(service: &ServiceView) -> Span<'static> {
    let style = service.in_zone.map_or(DIM, of_share);
    Span::styled(maybe_percent(service.in_zone), style)
}

fn overload(service: &ServiceView) -> Span<'static> {
    match service.overload {
        Some(overload) => Span::styled(signed_percent(overload), of_load(overload + 1.0)),
        None => Span::styled("-", DIM),
    }
}

fn failed(service: &ServiceView) -> Span<'static> {
    Span::styled(grouped(service.failed), of_failed(service.failed))
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let rows = usize::from(area.height.saturating_sub(3));
    let all = view.services.len();
    let selected = view.selected.min(all.saturating_sub(1));
    let place = if all > rows { format!("{} of {all}", selected + 1) } else { String::new() };
    let inner = panel(buffer, area, "Services", &Span::raw(place));
    let columns = columns(inner.width);
    let asked = view.services.iter().map(|service| Span::raw(clean(&service.asked)).width());
    let asked = asked.max().and_then(|width| u16::try_from(width).ok()).unwrap_or(0);
    let widths = widths(&columns, inner.width, asked);
    let heads = |column: &Column| Span::styled(column.head, DIM);
    put(buffer, inner, 0, line(&widths, heads));
    // The selected one stays in the middle while others go by.
    let first = selected.saturating_sub(rows / 2).min(all.saturating_sub(rows));
    let shown = view.services.iter().enumerate().skip(first).take(rows);
    for (row, (index, service)) in (1..).zip(shown) {
        let name = if index == selected { BOLD.add_modifier(Modifier::REVERSED) } else { PLAIN };
        let text = |column: &Column| match column.rank {
            0 => (column.of)(service).style(name),
            _ => (column.of)(service),
        };
        put(buffer, inner, row, line(&widths, text));
    }
}

fn line(columns: &[(usize, u16)], text: impl Fn(&Column) -> Span<'static>) -> Line<'static> {
    let cell = |&(index, width): &(usize, u16)| Cell {
        text: text(&COLUMNS[index]),
        width,
        right: index >= NUMBERS,
    };
    row(columns.iter().map(cell).collect())
}

/// Columns with their widths. What is left over goes to what Services ask for, as much as the longest takes, and then
/// to the name.
fn widths(columns: &[usize], width: u16, asked: u16) -> Vec<(usize, u16)> {
    let taken: u16 = columns.iter().map(|&column| COLUMNS[column].width + 1).sum();
    let spare = (width + 1).saturating_sub(taken);
    let more = match columns.contains(&ASKED) {
        true => asked.saturating_sub(COLUMNS[ASKED].width).min(spare),
        false => 0,
    };
    let wide = |&index: &usize| match index {
        0 => (index, COLUMNS[index].width + spare - more),
        ASKED => (index, COLUMNS[index].width + more),
        _ => (index, COLUMNS[index].width),
    };
    columns.iter().map(wide).collect()
}

/// The columns that fit, in their order.
fn columns(width: u16) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..COLUMNS.len()).collect();
    by_rank.sort_by_key(|&column| COLUMNS[column].rank);
    let mut taken = 0;
    let fits = |column: &usize| {
        taken += COLUMNS[*column].width + 1;
        taken <= width + 1
    };
    let mut columns: Vec<usize> = by_rank.into_iter().take_while(fits).collect();
    columns.sort_unstable();
    columns
}
