//! The current act: what to look at, its steps, and its progress.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use zonewise_explain::screens::counted;

use super::ended;
use super::pen::{BAD, BOLD, DIM, GOOD, HINT, WARN, bar, clean, panel, put, unit, wrap};
use crate::view::{ActView, Phase, View};
use crate::words::percent_or_bound;

/// A spinner while the proxies are not up to date: four steps a second.
const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠋"];

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    match &view.act {
        Some(act) => on_stage(buffer, area, view, act),
        None if view.ended.is_empty() => before(buffer, area, view),
        None => after(buffer, area, view),
    }
}

fn on_stage(buffer: &mut Buffer, area: Rect, view: &View, act: &ActView) {
    let title = format!("act {} of {}", act.number, act.of);
    let phase = match act.phase {
        Phase::Settling => Span::styled("settling", WARN),
        Phase::Measuring { .. } => Span::styled("measuring", GOOD),
    };
    let inner = panel(buffer, area, &title, &phase);
    let room = inner.height.saturating_sub(1);
    let lines = lines_of(act, usize::from(inner.width), usize::from(room));
    for (row, line) in (0..room).zip(lines) {
        put(buffer, inner, row, line);
    }
    put(buffer, inner, room, gauge(act.phase, inner.width, view));
}

/// What to look at and what is done, in at most this many lines.
fn lines_of(act: &ActView, width: usize, most: usize) -> Vec<Line<'static>> {
    let look = wrap(&clean(&act.look), width).into_iter().map(Line::raw);
    let mut lines: Vec<Line<'static>> = look.collect();
    let steps: Vec<Line<'static>> =
        act.steps.iter().flat_map(|step| step_lines(step, width)).collect();
    if lines.len() + steps.len() < most && !steps.is_empty() {
        lines.push(Line::raw(""));
    }
    lines.extend(steps);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = Line::styled("…", DIM);
        }
    }
    lines
}

fn step_lines(step: &str, width: usize) -> Vec<Line<'static>> {
    let lines = wrap(&clean(step), width.saturating_sub(2)).into_iter().enumerate();
    let line = |(index, text): (usize, String)| {
        let before = if index == 0 { "▸ " } else { "  " };
        Line::styled(format!("{before}{text}"), HINT)
    };
    lines.map(line).collect()
}

fn gauge(phase: Phase, width: u16, view: &View) -> Line<'static> {
    match phase {
        Phase::Settling => {
            let turn = (view.clock.as_millis() / 250) as usize % SPINNER.len();
            Line::styled(format!("{} the proxies follow", SPINNER[turn]), WARN)
        }
        Phase::Measuring { done } => {
            let done = unit(done);
            let cells = width.saturating_sub(16);
            Line::from(vec![
                Span::raw("measuring "),
                Span::styled(bar(done, cells), GOOD),
                Span::raw(format!(" {:>5}", percent_or_bound(done))),
            ])
        }
    }
}

fn before(buffer: &mut Buffer, area: Rect, view: &View) {
    let inner = panel(buffer, area, "before the first act", &Span::raw(""));
    let ready: usize = view.zones.iter().map(|zone| zone.ready).sum();
    let nodes: usize = view.zones.iter().map(|zone| zone.nodes).sum();
    let endpoints: usize = view.services.iter().map(|service| service.endpoints).sum();
    let lines = [
        Line::styled("The cluster comes up.", BOLD),
        Line::raw(counted(view.zones.len(), "zone")),
        Line::raw(format!("{ready} of {} ready", counted(nodes, "node"))),
        Line::raw(counted(view.services.len(), "Service")),
        Line::raw(format!("{} ready", counted(endpoints, "endpoint"))),
    ];
    for (row, line) in (0..).zip(lines) {
        put(buffer, inner, row, line);
    }
}

fn after(buffer: &mut Buffer, area: Rect, view: &View) {
    let inner = panel(buffer, area, "after the last act", &Span::raw(""));
    let held = view.ended.iter().filter(|act| act.held()).count();
    let verdict = format!("{held} of {} held.", counted(view.ended.len(), "act"));
    let failures = view.ended.iter().flat_map(|act| {
        let line = |failure| format!("{}: {failure}", clean(&act.title));
        ended::failures(act).map(line)
    });
    let width = usize::from(inner.width);
    let failures = failures.flat_map(|failure| wrap(&failure, width));
    let failures = failures.map(|line| Line::styled(line, BAD));
    let lines = [Line::styled(verdict, BOLD)].into_iter().chain(failures);
    for (row, line) in (0..).zip(lines) {
        put(buffer, inner, row, line);
    }
}
