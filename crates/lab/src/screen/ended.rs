//! Acts that ended, the newest last: as a table, or in short where there is little room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use zonewise_explain::screens::signed_percent;
use zonewise_topology::words::grouped;

use super::pen::{BAD, Cell, DIM, clean, fit, mark, of_failed, of_load, of_share, panel, put, row};
use crate::view::{ActResult, View};
use crate::words::{maybe_percent, seconds};

/// Below this width, each act is one short line.
const NARROW: u16 = 76;
/// Widths of the table's columns, but for the title, which takes what is left.
const WIDTHS: [u16; 7] = [1, 10, 22, 7, 7, 6, 7];

/// Rows that a table of all acts takes in the end.
pub(super) fn rows(view: &View) -> u16 {
    let acts = view.act.as_ref().map_or(0, |act| act.of).max(view.ended.len());
    let failures = view.ended.iter().flat_map(failures).count();
    u16::try_from(acts.saturating_add(failures)).unwrap_or(u16::MAX).min(100)
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let held = view.ended.iter().filter(|act| act.held()).count();
    let figure = match view.ended.len() {
        0 => Span::raw(""),
        all => Span::raw(format!("{held} of {all} held")),
    };
    let inner = panel(buffer, area, "ended acts", &figure);
    if inner.width >= NARROW {
        table(buffer, inner, view);
    } else {
        short(buffer, inner, view);
    }
}

/// Expectations of an act that did not hold.
pub(super) fn failures(act: &ActResult) -> impl Iterator<Item = String> {
    let failed = act.expectations.iter().filter(|expectation| !expectation.held);
    failed.map(|expectation| clean(&expectation.sentence()))
}

fn table(buffer: &mut Buffer, inner: Rect, view: &View) {
    let heads = ["", "ACT", "SERVICE", "REASON", "IN ZONE", "BUSIEST", "FAILED", "SETTLED"];
    let heads = heads.map(|head| Span::styled(head, DIM));
    put(buffer, inner, 0, line(heads, inner.width));
    let told = |act| {
        let failures = failures(act).map(|failure| Line::styled(format!("  {failure}"), BAD));
        [line(figures(act), inner.width)].into_iter().chain(failures)
    };
    let lines: Vec<Line<'_>> = view.ended.iter().flat_map(told).collect();
    let skipped = lines.len().saturating_sub(usize::from(inner.height.saturating_sub(1)));
    for (row, line) in (1..).zip(lines.into_iter().skip(skipped)) {
        put(buffer, inner, row, line);
    }
}

fn line(cells: [Span<'static>; 8], width: u16) -> Line<'static> {
    let others: u16 = WIDTHS.iter().map(|width| width + 1).sum();
    let title = width.saturating_sub(others);
    let [mark, rest @ ..] = WIDTHS;
    let widths = [mark, title].into_iter().chain(rest);
    let cells = cells.into_iter().zip(widths).enumerate();
    row(cells.map(|(index, (text, width))| Cell { text, width, right: index >= 4 }).collect())
}

fn figures(act: &ActResult) -> [Span<'static>; 8] {
    let overload = match act.overload {
        Some(overload) => Span::styled(signed_percent(overload), of_load(overload + 1.0)),
        None => Span::styled("-", DIM),
    };
    [
        mark(act.held()),
        Span::raw(clean(&act.title)),
        Span::raw(clean(&act.service)),
        Span::raw(clean(&act.reason)),
        in_zone(act),
        overload,
        Span::styled(grouped(act.failed), of_failed(act.failed)),
        Span::raw(act.settled.map_or_else(|| "-".into(), seconds)),
    ]
}

fn in_zone(act: &ActResult) -> Span<'static> {
    Span::styled(maybe_percent(act.in_zone), act.in_zone.map_or(DIM, of_share))
}

fn short(buffer: &mut Buffer, inner: Rect, view: &View) {
    let line = |act| short_line(act, usize::from(inner.width));
    let lines: Vec<Line<'_>> = view.ended.iter().map(line).collect();
    let skipped = lines.len().saturating_sub(usize::from(inner.height));
    for (row, line) in (0..).zip(lines.into_iter().skip(skipped)) {
        put(buffer, inner, row, line);
    }
}

fn short_line(act: &ActResult, width: usize) -> Line<'static> {
    let share = in_zone(act);
    let share = Span::styled(format!(" {:>5} ", share.content), share.style);
    let title = fit(&clean(&act.title), width.saturating_sub(8));
    Line::from(vec![mark(act.held()), share, Span::raw(title)])
}
