//! Which panel gets which part of the screen. The matrix, the act and the Services come first; what is left
//! goes to the others.

use ratatui::layout::{Constraint, Layout, Rect};

use super::{ended, footer};
use crate::view::View;

/// Below this width a row holds one panel.
const NARROW: u16 = 50;
/// From this height of the body on, acts that ended have a row of their own.
const TALL: u16 = 30;
/// A panel with a head and one row.
const SMALLEST: u16 = 4;

/// The areas of the panels. A panel that does not fit has an empty area.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Areas {
    pub(super) header: Rect,
    pub(super) act: Rect,
    pub(super) matrix: Rect,
    pub(super) services: Rect,
    pub(super) history: Rect,
    pub(super) endpoints: Rect,
    pub(super) ended: Rect,
    pub(super) footer: Rect,
}

/// Heights of the rows between header and footer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rows {
    top: u16,
    services: u16,
    bottom: u16,
    ended: u16,
}

pub(super) fn areas(area: Rect, view: &View) -> Areas {
    let header = if area.height >= 12 { 2 } else { area.height.min(1) };
    let footer = footer::height(area, view).min(area.height - header);
    let rows = rows(area.height - header - footer, view);
    let heights = [header, rows.top, rows.services, rows.bottom, rows.ended, footer];
    let [header, top, services, bottom, ended, footer] =
        area.layout(&Layout::vertical(heights.map(Constraint::Length)));
    let mut areas = Areas { header, services, ended, footer, ..Areas::default() };
    (areas.act, areas.matrix) = split_top(top, view);
    split_bottom(&mut areas, bottom, view);
    areas
}

fn rows(body: u16, view: &View) -> Rows {
    let zones = few(view.zones.len());
    let services = few(view.services.len());
    let top = (zones + 3).clamp(7, 10);
    if body < top + SMALLEST {
        return Rows { top: body, ..Rows::default() };
    }
    if body < top + SMALLEST + 6 {
        return Rows { top, services: body - top, ..Rows::default() };
    }
    if body < TALL {
        let services = (services + 3).clamp(SMALLEST, body - top - 6);
        return Rows { top, services, bottom: body - top - services, ended: 0 };
    }
    // Cells of the matrix are two lines high, and more where there is more room.
    let top = (zones * (body / 20).clamp(2, 3) + 3).clamp(9, body / 3);
    let ended = (ended::rows(view) + 3).clamp(SMALLEST, (body / 4).min(16));
    let rest = body - top - ended;
    let services = (services + 3).clamp(SMALLEST, rest - (rest / 3).max(8));
    Rows { top, services, bottom: rest - services, ended }
}

fn split_top(top: Rect, view: &View) -> (Rect, Rect) {
    if top.width < NARROW {
        return (Rect::default(), top);
    }
    let wanted = 12 + few(view.zones.len()) * 12;
    let matrix = wanted.max(36).min(top.width / 2);
    let [act, matrix] =
        top.layout(&Layout::horizontal([Constraint::Min(0), Constraint::Length(matrix)]));
    (act, matrix)
}

fn split_bottom(areas: &mut Areas, bottom: Rect, view: &View) {
    if bottom.width < NARROW {
        areas.endpoints = bottom;
        return;
    }
    let third = areas.ended.is_empty() && !view.ended.is_empty();
    let parts = if third { [3, 3, 4] } else { [1, 1, 0] };
    let [history, endpoints, ended] =
        bottom.layout(&Layout::horizontal(parts.map(Constraint::Fill)));
    (areas.history, areas.endpoints) = (history, endpoints);
    if third {
        areas.ended = ended;
    }
}

/// A number of things on a screen.
fn few(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX).min(1000)
}
