//! The terminal's screen, drawn from a [`View`] and nothing else.
//!
//! ```text
//!  header     title, act, clock, figures of the whole cluster
//!  act      │ matrix       what to look at, and where connections go
//!  Services                asked, got, why
//!  history  │ endpoints    in-zone share over time, load of each endpoint
//!  ended                   acts that ended, with what was measured
//!  footer     trouble, keys, kubectl
//! ```
//!
//! On a small terminal the lower panels go first.

mod act;
mod areas;
mod ended;
mod endpoints;
mod footer;
mod header;
mod help;
mod history;
mod matrix;
mod pen;
mod services;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use crate::view::View;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    paint(frame.buffer_mut(), view);
}

/// The same, without a terminal.
pub fn paint(buffer: &mut Buffer, view: &View) {
    let areas = areas::areas(buffer.area, view);
    header::draw(buffer, areas.header, view);
    act::draw(buffer, areas.act, view);
    matrix::draw(buffer, areas.matrix, view);
    services::draw(buffer, areas.services, view);
    history::draw(buffer, areas.history, view);
    endpoints::draw(buffer, areas.endpoints, view);
    ended::draw(buffer, areas.ended, view);
    footer::draw(buffer, areas.footer, view);
    if view.help {
        help::draw(buffer, view);
    }
}

/// Takes the colours away; bold, dim and reversed stay.
pub fn monochrome(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.set_fg(Color::Reset).set_bg(Color::Reset);
    }
}
