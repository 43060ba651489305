//! The last error, the keys, and how to reach the cluster with kubectl.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::pen::{BAD, BOLD, DIM, HINT, clean, fit, put, put_right};
use crate::view::View;

const KEYS: [(&str, &str); 5] =
    [("q", "quit"), ("↑↓", "Service"), ("space", "pause"), ("n", "next act"), ("?", "help")];

/// Lines that it takes.
pub(super) fn height(area: Rect, view: &View) -> u16 {
    if area.height < 4 {
        return 0;
    }
    let trouble = u16::from(view.trouble.is_some());
    let own_line = area.height >= 20 && !fits_beside(area.width, view);
    1 + trouble + u16::from(own_line)
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let mut row = 0;
    if let Some(trouble) = &view.trouble {
        let text = fit(&format!("! {}", clean(trouble)), usize::from(area.width));
        put(buffer, area, row, Line::styled(text, BAD));
        row += 1;
    }
    put(buffer, area, row, keys(view));
    if fits_beside(area.width, view) {
        put_right(buffer, area, row, kubectl(view));
    } else {
        put(buffer, area, row + 1, kubectl(view));
    }
}

fn fits_beside(width: u16, view: &View) -> bool {
    keys(view).width() + kubectl(view).width() + 3 <= usize::from(width)
}

fn kubectl(view: &View) -> Line<'static> {
    Line::styled(clean(&view.kubectl), HINT)
}

fn keys(view: &View) -> Line<'static> {
    // After the last act there is nothing to pause and nothing to go on to.
    let over = view.act.is_none() && !view.ended.is_empty();
    let useful = KEYS.iter().filter(|(key, _)| !(over && ["space", "n"].contains(key)));
    let spans = useful.flat_map(|&(key, meaning)| {
        let meaning = if key == "space" && view.paused { "go on" } else { meaning };
        [Span::styled(key, BOLD), Span::styled(format!(" {meaning}   "), DIM)]
    });
    Line::from(spans.collect::<Vec<_>>())
}
