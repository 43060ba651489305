//! Connections between zones: a row per zone of the clients, a column per zone of the endpoints.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use zonewise_topology::words::grouped;

use super::pen::{BOLD, DIM, GOOD, PLAIN, WARN, clean, fit, of_share, panel, put};
use crate::measure::Matrix;
use crate::view::View;
use crate::words::percent_or_bound;

/// `>99 %` and a blank.
const NARROWEST: u16 = 6;
/// Zone names are cut after this.
const LONGEST_NAME: u16 = 14;

/// The geometry of the grid.
struct Grid {
    label: u16,
    width: u16,
    height: u16,
    shown: usize,
    counts: Counts,
}

/// How the number of connections is placed: the same for all cells.
#[derive(Clone, Copy)]
enum Counts {
    Beside,
    Below,
    Hidden,
}

/// One cell's figures.
struct Share {
    part: f64,
    count: u64,
    home: bool,
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let service = view.services.get(view.selected);
    let name = service.map_or("no Service", |service| &service.name);
    let figure = match service.and_then(|service| service.in_zone) {
        Some(share) => {
            Span::styled(format!("{} in zone", percent_or_bound(share)), of_share(share))
        }
        None => Span::styled("no connections", DIM),
    };
    let inner = panel(buffer, area, &format!("{name}: zone to zone"), &figure);
    let grid = grid(inner, &view.matrix);
    for (to, zone) in view.matrix.zones.iter().enumerate().take(grid.shown) {
        let cell = apart(grid.cell(inner, 0, to));
        centred(buffer, cell, 0, &format!("to {}", clean(zone)), head(view, zone));
    }
    for from in 0..view.matrix.zones.len() {
        row(buffer, inner, &grid, view, from);
    }
}

fn grid(inner: Rect, matrix: &Matrix) -> Grid {
    let zones = &matrix.zones;
    let longest = zones.iter().map(|zone| Span::raw(clean(zone)).width()).max().unwrap_or(0);
    let name = u16::try_from(longest).unwrap_or(u16::MAX).min(LONGEST_NAME);
    let label = (name + 6).min(inner.width / 2);
    let room = inner.width - label;
    let count = u16::try_from(zones.len().max(1)).unwrap_or(u16::MAX);
    let width = (room / count).max(NARROWEST.min(room)).min(24);
    let shown = usize::from(room.checked_div(width).unwrap_or(0)).min(zones.len());
    let height = (inner.height.saturating_sub(1) / count).clamp(1, 3);
    let counts = counts(matrix, width, height);
    Grid { label, width, height, shown, counts }
}

fn counts(matrix: &Matrix, width: u16, height: u16) -> Counts {
    let most = matrix.connections.iter().flatten().max().copied().unwrap_or(0);
    match (grouped(most).len(), usize::from(width)) {
        (digits, width) if height >= 2 && digits + 2 <= width => Counts::Below,
        (digits, width) if digits + ">99 %".len() + 4 <= width => Counts::Beside,
        _ => Counts::Hidden,
    }
}

impl Grid {
    /// The place of a cell; row 0 is the head. It has no height where the screen ends.
    fn cell(&self, inner: Rect, top: u16, column: usize) -> Rect {
        let x = inner.x + self.label + self.width * u16::try_from(column).unwrap_or(0);
        let wanted = if top == 0 { 1 } else { self.height };
        let height = wanted.min(inner.height.saturating_sub(top));
        Rect { x, y: inner.y + top.min(inner.height), width: self.width, height }
    }
}

fn row(buffer: &mut Buffer, inner: Rect, grid: &Grid, view: &View, from: usize) {
    let Some(top) = u16::try_from(from).ok().and_then(|from| from.checked_mul(grid.height)) else {
        return;
    };
    let top = top.saturating_add(1);
    if top >= inner.height {
        return;
    }
    let zone = &view.matrix.zones[from];
    let middle = top + (grid.height - 1) / 2;
    let label = fit(&format!("from {}", clean(zone)), usize::from(grid.label.saturating_sub(1)));
    put(buffer, inner, middle.min(inner.height - 1), Line::styled(label, head(view, zone)));
    let asked = view.matrix.connections.get(from).map(Vec::as_slice).unwrap_or_default();
    let all: u64 = asked.iter().fold(0, |all, count| all.saturating_add(*count));
    for to in 0..grid.shown {
        let place = grid.cell(inner, top, to);
        let count = asked.get(to).copied().unwrap_or(0);
        if all > 0 {
            let part = count as f64 / all as f64;
            share(buffer, place, grid.counts, &Share { part, count, home: from == to });
        } else if to == 0 || !is_dead(view, zone) {
            let nothing = if is_dead(view, zone) { "no nodes" } else { "-" };
            centred(buffer, apart(place), (grid.height - 1) / 2, nothing, DIM);
        }
    }
}

fn share(buffer: &mut Buffer, place: Rect, counts: Counts, share: &Share) {
    let style = heat(share);
    let filled = apart(place);
    buffer.set_style(filled, style);
    let (part, count) = (percent_or_bound(share.part), grouped(share.count));
    let middle = place.height.saturating_sub(1) / 2;
    match counts {
        Counts::Beside => centred(buffer, filled, middle, &format!("{part}  {count}"), style),
        Counts::Below => {
            centred(buffer, filled, middle, &part, style);
            centred(buffer, filled, middle + 1, &count, style);
        }
        Counts::Hidden => centred(buffer, filled, middle, &part, style),
    }
}

fn heat(share: &Share) -> Style {
    let on = |colour: Color| Style::new().fg(Color::Black).bg(colour);
    match (share.home, share.part) {
        (true, part) if part >= 0.5 => on(Color::Green).add_modifier(Modifier::BOLD),
        (true, part) if part > 0.0 => GOOD,
        (_, part) if part >= 0.4 => on(Color::Red).add_modifier(Modifier::BOLD),
        (_, part) if part >= 0.2 => on(Color::Yellow),
        (_, part) if part >= 0.02 => WARN,
        (_, part) if part > 0.0 => PLAIN,
        _ => DIM,
    }
}

/// A cell without the blank that keeps it apart from the next.
fn apart(cell: Rect) -> Rect {
    Rect { width: cell.width.saturating_sub(1), ..cell }
}

fn centred(buffer: &mut Buffer, place: Rect, row: u16, text: &str, style: Style) {
    let text = fit(text, usize::from(place.width));
    let left = usize::from(place.width).saturating_sub(Span::raw(&text).width()) / 2;
    let left = u16::try_from(left).unwrap_or(0);
    let place = Rect { x: place.x + left, width: place.width - left, ..place };
    put(buffer, place, row, Line::styled(text, style));
}

/// A zone without ready nodes: nothing in it can connect or be reached.
fn is_dead(view: &View, name: &str) -> bool {
    view.zones.iter().any(|zone| zone.name == name && zone.ready == 0)
}

fn head(view: &View, zone: &str) -> Style {
    if is_dead(view, zone) { DIM } else { BOLD }
}
