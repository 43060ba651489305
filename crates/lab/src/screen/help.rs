//! The help, over everything else: the keys, and what can be done from another terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use super::pen::{BOLD, HINT, clean, panel, put, wrap};
use crate::rights::Place;
use crate::view::View;

const KEYS: [(&str, &str); 5] = [
    ("?", "this help; again: back"),
    ("q", "ends the lab and leaves nothing behind"),
    ("↑ ↓", "another Service: its matrix, its share over time, its endpoints"),
    ("space", "waits before the next act; again: goes on"),
    ("n", "next act now"),
];

const FIGURES: [&str; 3] = [
    "IN ZONE: the part of the connections that stayed in the zone of their client.",
    "OVERLOAD: what the busiest endpoint gets above its fair share; a bar at 1.0 is fair.",
    "REASON: why the Service is routed so; `zonewise explain SERVICE` says more.",
];

pub(super) fn draw(buffer: &mut Buffer, view: &View) {
    let lines = lines(view, usize::from(buffer.area.width.saturating_sub(2)));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(buffer.area.height);
    let area = Rect { height, ..buffer.area };
    Clear.render(area, buffer);
    let inner = panel(buffer, area, "help", &Span::raw("? back"));
    for (row, line) in (0..inner.height).zip(lines) {
        put(buffer, inner, row, line);
    }
}

fn lines(view: &View, width: usize) -> Vec<Line<'static>> {
    let key = |(key, meaning): (&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{key:<8}"), BOLD), Span::raw(meaning)])
    };
    let head = |text: &'static str| [Line::raw(""), Line::styled(text, BOLD)];
    let mut lines: Vec<Line<'static>> = KEYS.into_iter().map(key).collect();
    lines.extend(head("Figures"));
    lines.extend(FIGURES.iter().flat_map(|text| wrap(text, width)).map(Line::raw));
    lines.extend(head("From another terminal"));
    let kubectl = clean(&view.kubectl);
    let exec = match view.place {
        Place::Machine => "sudo zonewise lab exec a -- curl -s http://mine",
        Place::UserNamespace => "zonewise lab exec a -- curl -s http://mine",
        Place::Memory => "",
    };
    let commands = [
        format!("{kubectl} annotate service web service.kubernetes.io/topology-mode=Auto"),
        format!("{kubectl} create deployment mine --image=any --port=8080 --replicas=6"),
        format!("{kubectl} expose deployment mine --port=80"),
        format!("{kubectl} scale deployment mine --replicas=3"),
        exec.to_owned(),
    ];
    let commands = commands
        .iter()
        .filter(|command| !command.is_empty())
        .flat_map(|command| wrap(command, width));
    lines.extend(commands.map(|line| Line::styled(line, HINT)));
    lines
}
