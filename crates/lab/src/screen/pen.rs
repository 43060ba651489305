//! Styles, text that fits, and bars: what all panels draw with.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Widget};
pub(super) use zonewise_explain::screens::clean;

pub(super) const PLAIN: Style = Style::new();
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const HINT: Style = Style::new().fg(Color::Cyan);

/// A title that would be cut to less than this is left out.
const SHORTEST_TITLE: usize = 12;
/// Eighths of a cell, from the bottom.
const UP: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Eighths of a cell, from the left.
const RIGHT: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// The style of an in-zone share.
pub(super) fn of_share(share: f64) -> Style {
    match share {
        share if share >= 0.8 => GOOD,
        share if share >= 0.5 => WARN,
        _ => BAD,
    }
}

/// The style of an endpoint with this load.
pub(super) fn of_load(load: f64) -> Style {
    match load {
        load if load > 1.5 => BAD,
        load if load > 1.2 => WARN,
        _ => GOOD,
    }
}

/// The style of a number of failures.
pub(super) fn of_failed(failed: u64) -> Style {
    if failed == 0 { GOOD } else { BAD }
}

/// A mark for what held and what did not.
pub(super) fn mark(held: bool) -> Span<'static> {
    if held { Span::styled("✓", GOOD) } else { Span::styled("✗", BAD) }
}

/// A frame with a title on the left and a figure on the right; what is inside is returned.
pub(super) fn panel(buffer: &mut Buffer, area: Rect, title: &str, figure: &Span<'_>) -> Rect {
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(DIM);
    let inner = block.inner(area);
    let room = usize::from(area.width.saturating_sub(4));
    // A figure says more than the end of a long title.
    let taken = figure.width() + 3;
    let fits = figure.width() > 0 && room >= taken + SHORTEST_TITLE;
    let room = if fits { room - taken } else { room };
    let title = format!(" {} ", fit(&clean(title), room.saturating_sub(2)));
    // The title must not be as dim as the frame it stands in.
    let on_frame = |style: Style| style.remove_modifier(Modifier::DIM);
    let mut block = block.title_top(Line::styled(title, on_frame(BOLD)));
    if fits {
        let text = format!(" {} ", figure.content);
        block = block.title_top(Line::styled(text, on_frame(figure.style)).right_aligned());
    }
    block.render(area, buffer);
    inner
}

/// A line at a row of an area, as far as it fits.
pub(super) fn put<'a>(buffer: &mut Buffer, area: Rect, row: u16, line: impl Into<Line<'a>>) {
    if row < area.height && area.width > 0 {
        buffer.set_line(area.x, area.y + row, &line.into(), area.width);
    }
}

/// The same, at the right.
pub(super) fn put_right<'a>(buffer: &mut Buffer, area: Rect, row: u16, line: impl Into<Line<'a>>) {
    let line = line.into();
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX).min(area.width);
    let place = Rect { x: area.right() - width, width, ..area };
    put(buffer, place, row, line);
}

/// Text on the left, spans on the right: the first of them go when there is no room.
pub(super) fn spread(
    buffer: &mut Buffer,
    area: Rect,
    row: u16,
    left: Line<'_>,
    right: &[Span<'_>],
) {
    let width = usize::from(area.width);
    let left_least = left.width().min(width / 2);
    let first = (0..right.len()).find(|&first| spaced(&right[first..]) + left_least <= width);
    let kept = first.map_or(&[][..], |first| &right[first..]);
    let taken = u16::try_from(spaced(kept)).unwrap_or(area.width).min(area.width);
    put(buffer, Rect { width: area.width - taken, ..area }, row, left);
    let spans: Vec<Span<'_>> =
        kept.iter().flat_map(|span| [Span::raw("  "), span.clone()]).collect();
    put_right(buffer, area, row, Line::from(spans));
}

/// The width of spans with two blanks before each.
fn spaced(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.width() + 2).sum()
}

/// One cell of a table's row.
pub(super) struct Cell {
    pub(super) text: Span<'static>,
    pub(super) width: u16,
    pub(super) right: bool,
}

/// A row of a table, with a blank between cells.
pub(super) fn row(cells: Vec<Cell>) -> Line<'static> {
    let mut line = Line::default();
    for (index, cell) in cells.into_iter().enumerate() {
        let width = usize::from(cell.width);
        let text = fit(&cell.text.content, width);
        let text = if cell.right { padded_left(&text, width) } else { padded(&text, width) };
        if index > 0 {
            line.push_span(" ");
        }
        line.push_span(Span::styled(text, cell.text.style));
    }
    line
}

/// Text with blanks up to a width.
pub(super) fn padded(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(Span::raw(text).width());
    format!("{text}{}", " ".repeat(blanks))
}

fn padded_left(text: &str, width: usize) -> String {
    padded("", width.saturating_sub(Span::raw(text).width())) + text
}

/// Text that is cut where there is no more room, and says so.
pub(super) fn fit(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 1;
    for char in text.chars() {
        taken += Span::raw(char.encode_utf8(&mut [0; 4]) as &str).width();
        if taken > width {
            break;
        }
        out.push(char);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Text in lines of at most this width, broken between words.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if Span::raw(&*line).width() + 1 + Span::raw(word).width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, width)),
        }
    }
    lines
}

/// A number that can be drawn: from 0 to 1.
pub(super) fn unit(part: f64) -> f64 {
    if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
}

/// What part of a cell is filled, in eighths, when `part` of `cells` is.
fn eighths(part: f64, cells: u16, cell: u16) -> usize {
    let filled = (unit(part) * f64::from(cells) * 8.0).round() as usize;
    filled.saturating_sub(usize::from(cell) * 8).min(8)
}

/// A bar from the left, this many cells wide.
pub(super) fn bar(part: f64, cells: u16) -> String {
    (0..cells).map(|cell| RIGHT[eighths(part, cells, cell)]).collect()
}

/// A bar from the bottom of an area, one cell wide.
pub(super) fn column(buffer: &mut Buffer, area: Rect, x: u16, part: f64, style: Style) {
    for cell in 0..area.height {
        let symbol = UP[eighths(part, area.height, cell)];
        if symbol != " " {
            let place = &mut buffer[(x, area.bottom() - 1 - cell)];
            // Styles add up: a bar on a dim line would be dim.
            place.reset();
            place.set_symbol(symbol).set_style(style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_broken() {
        assert_eq!(fit("zone", 4), "zone");
        assert_eq!(fit("zones", 4), "zon…");
        assert_eq!(fit("地図地図", 5), "地図…");
        assert_eq!(fit("zones", 0), "");
        assert_eq!(wrap("the diagonal is green", 12), ["the diagonal", "is green"]);
        assert_eq!(wrap("a withoutanyblank", 6), ["a", "witho…"]);
    }

    #[test]
    fn bars_are_eighths_of_cells() {
        assert_eq!(bar(0.0, 3), "   ");
        assert_eq!(bar(0.5, 3), "█▌ ");
        assert_eq!(bar(7.0, 3), "███");
        assert_eq!(bar(f64::NAN, 3), "   ");
    }
}
