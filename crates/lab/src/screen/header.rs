//! Title, act, clock and the figures of the whole cluster.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use zonewise_topology::words::grouped;

use super::pen::{BAD, BOLD, DIM, HINT, WARN, clean, of_failed, of_share, spread};
use crate::view::{Kernel, View};
use crate::words::{percent_or_bound, seconds};

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    if area.height > 1 {
        spread(buffer, area, 0, title(view), &state(view));
    }
    spread(buffer, area, area.height.saturating_sub(1), act(view), &figures(view));
}

fn title(view: &View) -> Line<'static> {
    let name = Span::styled(" zonewise lab ", BOLD.add_modifier(Modifier::REVERSED));
    let title = Span::styled(format!(" {}", clean(&view.title)), BOLD);
    let simulated = (view.place.kernel() == Kernel::Memory)
        .then(|| Span::styled(" simulated kernel ", WARN.add_modifier(Modifier::REVERSED)));
    Line::from_iter([name].into_iter().chain(simulated).chain([title]))
}

fn state(view: &View) -> Vec<Span<'static>> {
    let programming = view.programming.map(|programming| {
        Span::styled(format!("rules written in {}", seconds(programming.mean)), DIM)
    });
    let paused = view.paused.then(|| Span::styled("PAUSED", WARN.add_modifier(Modifier::BOLD)));
    let clock = view.clock.as_secs();
    let clock = Span::raw(format!("{:02}:{:02}", clock / 60, clock % 60));
    let page = view.page.as_deref().map(|page| Span::styled(clean(page), HINT));
    page.into_iter().chain(programming).chain(paused).chain([clock]).collect()
}

fn act(view: &View) -> Line<'static> {
    let text = match &view.act {
        Some(act) => format!("act {} of {}: {}", act.number, act.of, clean(&act.title)),
        None if view.ended.is_empty() => "the cluster comes up".into(),
        None => match view.ended.iter().filter(|act| !act.held()).count() {
            0 => "all acts have ended, as expected".into(),
            failed => {
                let text = format!("all acts have ended, {failed} not as expected");
                return Line::styled(text, BAD);
            }
        },
    };
    Line::raw(text)
}

fn figures(view: &View) -> Vec<Span<'static>> {
    let in_zone = in_zone(view)
        .map(|share| Span::styled(format!("{} in zone", percent_or_bound(share)), of_share(share)));
    let rate = Span::raw(format!("{} conn/s", grouped(view.rate.round() as u64)));
    let failed = format!("{} failed", grouped(view.failed));
    let failed = Span::styled(failed, of_failed(view.failed));
    [rate].into_iter().chain(in_zone).chain([failed]).collect()
}

/// The share of all Services together, each by its connections.
fn in_zone(view: &View) -> Option<f64> {
    let known = view.services.iter().filter_map(|service| Some((service.in_zone?, service.rate)));
    let (home, all) =
        known.fold((0.0, 0.0), |(home, all), (share, rate)| (home + share * rate, all + rate));
    (all > 0.0).then(|| home / all)
}
