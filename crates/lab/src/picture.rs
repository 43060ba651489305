//! A terminal as a picture: SVG that every viewer shows with its columns in line.
//!
//! ```text
//!  cells of a row ─► backgrounds: one <rect> per colour
//!                 └► runs of one style, broken at gaps: one <text> each, with its length in pixels
//! ```

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;
use zonewise_common::xml::escape;

/// Size of a cell, in pixels. Lines touch each other, so that frames are closed.
const CELL: (f64, f64) = (8.4, 16.0);
const FONT_SIZE: u32 = 14;
/// From the top of a cell to the line that letters stand on.
const BASELINE: f64 = 12.5;
const FONTS: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',\
                     'Liberation Mono',monospace";
/// Around a terminal's cells.
const PADDING: f64 = 12.0;
/// Between two terminals.
const GAP: f64 = 16.0;
/// Height of a caption's bar.
const BAR: f64 = 28.0;
/// Terminals that are wider together stand below each other.
const BESIDE: u16 = 170;

const GROUND: &str = "#12161d";
const EDGE: &str = "#3d444d";
const TITLE: &str = "#1f2630";
const TEXT: &str = "#d5dbe3";

/// A terminal as an SVG document.
pub fn svg(buffer: &Buffer) -> String {
    let (width, height) = size(buffer, false);
    document(width, height, &terminal(buffer, None, 0.0, 0.0))
}

/// Several terminals with captions, beside each other if that is not too wide.
pub fn side_by_side(pictures: &[(String, &Buffer)]) -> String {
    let columns: u16 = pictures.iter().fold(0, |all, (_, one)| all.saturating_add(one.area.width));
    let beside = columns <= BESIDE;
    let (mut width, mut height): (f64, f64) = (0.0, 0.0);
    let mut body = String::new();
    for (caption, buffer) in pictures {
        let (wide, high) = size(buffer, true);
        if beside {
            let x = if width > 0.0 { width + GAP } else { 0.0 };
            body.push_str(&terminal(buffer, Some(caption), x, 0.0));
            (width, height) = (x + wide, height.max(high));
        } else {
            let y = if height > 0.0 { height + GAP } else { 0.0 };
            body.push_str(&terminal(buffer, Some(caption), 0.0, y));
            (width, height) = (width.max(wide), y + high);
        }
    }
    document(width, height, &body)
}

fn size(buffer: &Buffer, captioned: bool) -> (f64, f64) {
    let bar = if captioned { BAR } else { 0.0 };
    let (columns, rows) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    (columns * CELL.0 + 2.0 * PADDING, rows * CELL.1 + 2.0 * PADDING + bar)
}

fn document(width: f64, height: f64, body: &str) -> String {
    // The frame's line is half outside of its rectangle.
    let (width, height) = (width.ceil() + 2.0, height.ceil() + 2.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"-1 -1 {width} {height}\" role=\"img\">\n\
         <g font-family=\"{FONTS}\" font-size=\"{FONT_SIZE}\" fill=\"{TEXT}\">\n{body}</g>\n</svg>\n"
    )
}

fn terminal(buffer: &Buffer, caption: Option<&str>, x: f64, y: f64) -> String {
    let (width, height) = size(buffer, caption.is_some());
    let mut out = format!(
        "<g transform=\"translate({x:.1} {y:.1})\">\n\
         <rect width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\" fill=\"{GROUND}\" stroke=\"{EDGE}\"/>\n"
    );
    let mut top = PADDING;
    if let Some(caption) = caption {
        top += BAR;
        out.push_str(&title(caption, width));
    }
    out.push_str(&format!("<g transform=\"translate({PADDING:.1} {top:.1})\">\n"));
    for row in 0..buffer.area.height {
        let cells = row_of(buffer, row);
        out.push_str(&backgrounds(&cells, row));
        out.push_str(&runs(&cells, row));
    }
    out.push_str("</g>\n</g>\n");
    out
}

fn title(caption: &str, width: f64) -> String {
    let middle = width / 2.0;
    let line = BAR - 9.0;
    let caption = escape(caption);
    format!(
        "<path d=\"M0 {BAR}V8a8 8 0 0 1 8-8H{right:.1}a8 8 0 0 1 8 8V{BAR}z\" fill=\"{TITLE}\"/>\n\
         <text x=\"{middle:.1}\" y=\"{line}\" text-anchor=\"middle\" font-weight=\"bold\">{caption}</text>\n",
        right = width - 8.0
    )
}

/// A cell as it is painted.
struct Painted<'a> {
    symbol: &'a str,
    column: u16,
    width: u16,
    ink: Ink,
    ground: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Ink {
    colour: Option<&'static str>,
    bold: bool,
    dim: bool,
}

fn row_of(buffer: &Buffer, row: u16) -> Vec<Painted<'_>> {
    let mut cells = Vec::with_capacity(usize::from(buffer.area.width));
    let mut column = 0;
    while column < buffer.area.width {
        let cell = &buffer[(buffer.area.x + column, buffer.area.y + row)];
        let painted = painted(cell, column);
        // A wide symbol hides the cells behind it.
        column += painted.width;
        cells.push(painted);
    }
    cells
}

fn painted(cell: &Cell, column: u16) -> Painted<'_> {
    let width = u16::try_from(Span::raw(cell.symbol()).width()).unwrap_or(1).max(1);
    let (mut colour, mut ground) = (hex(cell.fg), hex(cell.bg));
    if cell.modifier.contains(Modifier::REVERSED) {
        (colour, ground) = (Some(ground.unwrap_or(GROUND)), Some(colour.unwrap_or(TEXT)));
    }
    let bold = cell.modifier.contains(Modifier::BOLD);
    let dim = cell.modifier.contains(Modifier::DIM);
    Painted { symbol: cell.symbol(), column, width, ink: Ink { colour, bold, dim }, ground }
}

fn backgrounds(cells: &[Painted<'_>], row: u16) -> String {
    let rects = cells.chunk_by(|one, next| one.ground == next.ground).filter_map(|chunk| {
        let ground = chunk[0].ground?;
        let x = f64::from(chunk[0].column) * CELL.0;
        let wide = f64::from(width(chunk)) * CELL.0;
        let (y, high) = (f64::from(row) * CELL.1, CELL.1);
        Some(format!(
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"{high}\" fill=\"{ground}\" \
             shape-rendering=\"crispEdges\"/>\n"
        ))
    });
    rects.collect()
}

fn width(cells: &[Painted<'_>]) -> u16 {
    cells.iter().map(|cell| cell.width).sum()
}

fn runs(cells: &[Painted<'_>], row: u16) -> String {
    let styled = cells.chunk_by(|one, next| one.ink == next.ink);
    // Blanks are never drawn: what stands behind them gets a place of its own.
    let blank = |cell: &Painted<'_>| cell.symbol.trim().is_empty();
    styled.flat_map(|chunk| chunk.split(blank)).map(|run| text(run, row)).collect()
}

fn text(run: &[Painted<'_>], row: u16) -> String {
    let Some(first) = run.first() else {
        return String::new();
    };
    let x = f64::from(first.column) * CELL.0;
    let y = f64::from(row) * CELL.1 + BASELINE;
    let length = f64::from(width(run)) * CELL.0;
    let mut style = String::new();
    if let Some(colour) = first.ink.colour {
        style.push_str(&format!(" fill=\"{colour}\""));
    }
    if first.ink.bold {
        style.push_str(" font-weight=\"bold\"");
    }
    if first.ink.dim {
        style.push_str(" fill-opacity=\"0.55\"");
    }
    let symbols: String = run.iter().map(|cell| escape(cell.symbol)).collect();
    format!(
        "<text x=\"{x:.1}\" y=\"{y}\" textLength=\"{length:.1}\" \
         lengthAdjust=\"spacingAndGlyphs\"{style}>{symbols}</text>\n"
    )
}

/// The sixteen colours of a terminal, on a dark ground. The terminal's own and those that a screen of
/// ours never has are `None`.
fn hex(colour: Color) -> Option<&'static str> {
    Some(match colour {
        Color::Black => "#12161d",
        Color::Red => "#f4706b",
        Color::Green => "#4cc26a",
        Color::Yellow => "#e0b341",
        Color::Blue => "#5aa2f7",
        Color::Magenta => "#c38bf0",
        Color::Cyan => "#4fc3d0",
        Color::Gray => "#c3cad3",
        Color::DarkGray => "#7d8692",
        Color::LightRed => "#ff9a94",
        Color::LightGreen => "#7ee08f",
        Color::LightYellow => "#f3d072",
        Color::LightBlue => "#8fc2ff",
        Color::LightMagenta => "#dbb4ff",
        Color::LightCyan => "#8be3ec",
        Color::White => "#f2f5f8",
        Color::Reset | Color::Rgb(..) | Color::Indexed(_) => return None,
    })
}
