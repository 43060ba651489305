//! The load of each endpoint of the selected Service, relative to its fair share: lines with names where
//! they fit, columns where they do not.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use zonewise_explain::screens::counted;

use super::pen::{
    BOLD, DIM, PLAIN, bar, clean, column, fit, of_load, padded, panel, put, put_right,
};
use crate::view::{Endpoint, View};

/// Bars reach to twice the fair share, and further only if an endpoint gets more.
const SCALE: f64 = 2.0;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let ready = view.endpoints.iter().filter(|endpoint| endpoint.ready).count();
    let figure = Span::styled(format!("{ready} ready"), DIM);
    let inner = panel(buffer, area, "load, 1.0 is fair", &figure);
    if inner.height < 2 || inner.width < 8 {
        return;
    }
    let zones = by_zone(&view.endpoints);
    let most = view.endpoints.iter().map(|one| one.load).fold(SCALE, f64::max);
    let scale = if most.is_finite() { most } else { SCALE };
    if view.endpoints.is_empty() {
        put(buffer, inner, 0, Line::styled("no endpoints", DIM));
    } else if view.endpoints.len() <= usize::from(inner.height) && inner.width >= 24 {
        lines(buffer, inner, &zones, scale);
    } else {
        columns(buffer, inner, &zones, scale);
    }
}

/// Endpoints zone by zone, in the order in which zones are first named.
fn by_zone(endpoints: &[Endpoint]) -> Vec<(&str, Vec<&Endpoint>)> {
    let mut zones: Vec<(&str, Vec<&Endpoint>)> = Vec::new();
    for endpoint in endpoints {
        match zones.iter_mut().find(|(zone, _)| *zone == endpoint.zone) {
            Some((_, members)) => members.push(endpoint),
            None => zones.push((&endpoint.zone, vec![endpoint])),
        }
    }
    zones
}

fn style(endpoint: &Endpoint) -> Style {
    if endpoint.ready { of_load(endpoint.load) } else { DIM }
}

fn lines(buffer: &mut Buffer, inner: Rect, zones: &[(&str, Vec<&Endpoint>)], scale: f64) {
    let width = |text: &str| Span::raw(clean(text)).width();
    let longest = zones.iter().map(|(zone, _)| width(zone)).max().unwrap_or(0).min(8);
    let all = || zones.iter().flat_map(|(_, members)| members);
    let names = all().map(|one| width(&one.name)).max().unwrap_or(0);
    let names = names.min(usize::from(inner.width) / 3);
    let cells = usize::from(inner.width).saturating_sub(longest + names + 2 + 5);
    let cells = u16::try_from(cells).unwrap_or(0);
    let mut row = 0;
    for (zone, members) in zones {
        for (index, endpoint) in members.iter().enumerate() {
            let zone = if index == 0 { fit(&clean(zone), longest) } else { String::new() };
            let name = tail(&clean(&endpoint.name), names);
            let named = if endpoint.ready { PLAIN } else { DIM };
            let mut line = vec![
                Span::styled(padded(&zone, longest + 1), BOLD),
                Span::styled(padded(&name, names + 1), named),
            ];
            line.extend(bar_to_fair(endpoint, cells, scale));
            line.push(Span::styled(figure(endpoint), style(endpoint)));
            put(buffer, inner, row, Line::from(line));
            row += 1;
        }
    }
}

fn figure(endpoint: &Endpoint) -> String {
    if endpoint.ready { format!("{:>5.2}", endpoint.load) } else { " gone".into() }
}

/// A bar with a mark where it would end if it were fair.
fn bar_to_fair(endpoint: &Endpoint, cells: u16, scale: f64) -> Vec<Span<'static>> {
    let fair = (f64::from(cells) / scale).round() as usize;
    let bar: Vec<char> = bar(endpoint.load / scale, cells).chars().collect();
    let mark = |(index, symbol): (usize, char)| {
        if index == fair && symbol == ' ' {
            Span::styled("│", DIM)
        } else {
            Span::styled(symbol.to_string(), style(endpoint))
        }
    };
    bar.into_iter().enumerate().map(mark).collect()
}

fn columns(buffer: &mut Buffer, inner: Rect, zones: &[(&str, Vec<&Endpoint>)], scale: f64) {
    let plot = Rect { height: inner.height - 1, ..inner };
    let fair = plot.bottom() - 1 - ((f64::from(plot.height) / scale) as u16).min(plot.height - 1);
    put(
        buffer,
        Rect { y: fair, height: 1, ..plot },
        0,
        Line::styled("╌".repeat(usize::from(plot.width)), DIM),
    );
    let room = usize::from(inner.width).saturating_sub(zones.len() - 1);
    let (zones, hidden) = busiest(zones, room);
    let count: usize = zones.iter().map(|(_, members)| members.len()).sum();
    let step = u16::try_from((room / count.max(1)).clamp(1, 5)).unwrap_or(1);
    let mut x = inner.x;
    for (zone, members) in &zones {
        let wide = u16::try_from(members.len()).unwrap_or(u16::MAX).saturating_mul(step);
        let wide = wide.min(inner.right() - x);
        group(buffer, Rect { x, width: wide, ..plot }, members, step, scale);
        let label = Rect { x, y: plot.bottom(), width: wide, height: 1 };
        put(buffer, label, 0, Line::styled(fit(&clean(zone), usize::from(wide)), BOLD));
        x = x.saturating_add(wide).saturating_add(1).min(inner.right());
    }
    if hidden > 0 {
        let more = format!(" and {} ", counted(hidden, "quieter endpoint"));
        put_right(buffer, inner, 0, Line::styled(more, DIM));
    }
}

/// The busiest endpoints of every zone, if not all have room, and how many are left out.
fn busiest<'a>(
    zones: &[(&'a str, Vec<&'a Endpoint>)],
    room: usize,
) -> (Vec<(&'a str, Vec<&'a Endpoint>)>, usize) {
    let count = |zones: &[(&str, Vec<&Endpoint>)]| -> usize {
        zones.iter().map(|(_, members)| members.len()).sum()
    };
    let mut shown = zones.to_vec();
    if count(zones) > room {
        let most = (room / zones.len().max(1)).max(1);
        for (_, members) in shown.iter_mut().filter(|(_, members)| members.len() > most) {
            members.sort_by(|one, other| other.load.total_cmp(&one.load));
            members.truncate(most);
        }
    }
    let hidden = count(zones) - count(&shown);
    (shown, hidden)
}

fn group(buffer: &mut Buffer, area: Rect, members: &[&Endpoint], step: u16, scale: f64) {
    let thick = step.saturating_sub(1).max(1);
    let places = (area.left()..area.right()).step_by(usize::from(step));
    for (left, endpoint) in places.zip(members) {
        for x in (left..left + thick).filter(|&x| x < area.right()) {
            column(buffer, area, x, endpoint.load / scale, style(endpoint));
            if !endpoint.ready {
                buffer[(x, area.bottom() - 1)].set_symbol("×").set_style(DIM);
            }
        }
    }
}

/// The end of a name: that is where Pods of one Service differ.
fn tail(name: &str, width: usize) -> String {
    let turned: String = name.chars().rev().collect();
    fit(&turned, width).chars().rev().collect()
}
