//! The share that stayed in its zone, over time: the newest at the right.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::pen::{DIM, column, of_share, panel, put, put_right};
use crate::view::View;
use crate::words::percent_or_bound;

/// `100 ┤`.
const AXIS: u16 = 5;
/// Values per second.
const PER_SECOND: usize = 2;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, view: &View) {
    let latest = view.history.iter().rev().find_map(|share| *share);
    let figure = latest.map_or_else(
        || Span::raw(""),
        |share| Span::styled(percent_or_bound(share), of_share(share)),
    );
    let inner = panel(buffer, area, "% in zone", &figure);
    if inner.height < 2 || inner.width <= AXIS {
        return;
    }
    // The last line is for times, where there is one to spare.
    let times = u16::from(inner.height >= 4);
    let plot = Rect {
        x: inner.x + AXIS,
        width: inner.width - AXIS,
        height: inner.height - times,
        ..inner
    };
    axis(buffer, Rect { height: plot.height, ..inner });
    bars(buffer, plot, &view.history);
    if times == 1 {
        let oldest = format!("-{} s", usize::from(plot.width) / PER_SECOND);
        let line = Rect { y: plot.bottom(), height: 1, ..plot };
        put(buffer, line, 0, Line::styled(oldest, DIM));
        put_right(buffer, line, 0, Line::styled("now", DIM));
    }
}

fn axis(buffer: &mut Buffer, area: Rect) {
    for row in 0..area.height {
        let label = match row {
            0 => "100 ┤",
            row if row == area.height - 1 => "  0 ┤",
            row if row == area.height / 2 && area.height >= 5 => " 50 ┤",
            _ => "    │",
        };
        put(buffer, area, row, Line::styled(label, DIM));
    }
}

fn bars(buffer: &mut Buffer, plot: Rect, history: &[Option<f64>]) {
    for (x, share) in (plot.left()..plot.right()).rev().zip(history.iter().rev()) {
        match share {
            Some(share) => column(buffer, plot, x, *share, of_share(*share)),
            None => {
                buffer[(x, plot.bottom() - 1)].set_symbol("·").set_style(DIM);
            }
        }
    }
}
