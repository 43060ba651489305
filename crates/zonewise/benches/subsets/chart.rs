//! The chart: which part of the bytes a node still receives, by the number of zones.

use std::fmt::Write;

use crate::{Row, ZONES};

const SIZE: (f64, f64) = (720.0, 400.0);
/// Left, top, right, bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (64.0, 48.0, 480.0, 340.0);

struct Series {
    name: &'static str,
    colour: &'static str,
    dashes: &'static str,
    values: Vec<f64>,
}

/// The chart as an SVG document.
pub(crate) fn svg(measured: &[Row], computed: &[Row]) -> String {
    let of = |rows: &[Row], pick: fn(&Row) -> f64| rows.iter().map(pick).collect::<Vec<f64>>();
    let series = [
        Series {
            name: "ideal: one part per zone",
            colour: "#6e7781",
            dashes: "6 4",
            values: of(measured, |row| 1.0 / row.zones as f64),
        },
        Series {
            name: "start, measured",
            colour: "#0969da",
            dashes: "",
            values: of(measured, |row| row.start().bytes),
        },
        Series {
            name: "changes, measured",
            colour: "#1a7f37",
            dashes: "",
            values: of(measured, |row| row.changes().bytes),
        },
        Series {
            name: "start, 10,000 Services",
            colour: "#bc4c00",
            dashes: "2 3",
            values: of(computed, |row| row.start().bytes),
        },
        Series {
            name: "changes, 10,000 Services",
            colour: "#8250df",
            dashes: "2 3",
            values: of(computed, |row| row.changes().bytes),
        },
    ];
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" \
         font-family=\"system-ui,sans-serif\" font-size=\"13\" fill=\"#1f2328\">\n\
         <title>Bytes of EndpointSlices that a node receives with subsets, as a part of those without</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{2}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">Bytes of EndpointSlices that a node receives, without subsets = 1</text>\n",
        SIZE.0, SIZE.1, PLOT.0
    );
    axes(&mut out);
    for (number, one) in series.iter().enumerate() {
        line(&mut out, one, number);
    }
    out.push_str("</svg>\n");
    out
}

/// Every number of zones has the same distance from the next.
fn x(position: usize) -> f64 {
    PLOT.0 + (PLOT.2 - PLOT.0) * position as f64 / (ZONES.len() - 1) as f64
}

fn y(value: f64) -> f64 {
    PLOT.3 - (PLOT.3 - PLOT.1) * value.min(1.0)
}

fn axes(out: &mut String) {
    for step in 0..=5 {
        let (value, left, right) = (f64::from(step) / 5.0, PLOT.0, PLOT.2);
        let height = y(value);
        let _ = writeln!(
            out,
            "<path d=\"M{left} {height:.1}H{right}\" stroke=\"#d1d9e0\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>",
            left - 8.0,
            height + 4.0
        );
    }
    for (position, zones) in ZONES.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{zones}</text>",
            x(position),
            PLOT.3 + 20.0
        );
    }
    let middle = f64::midpoint(PLOT.0, PLOT.2);
    let _ = writeln!(
        out,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">zones</text>",
        PLOT.3 + 44.0
    );
}

fn line(out: &mut String, series: &Series, number: usize) {
    let Series { name, colour, dashes, values } = series;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(position, value)| format!("{:.1},{:.1}", x(position), y(*value)))
        .collect();
    let style = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"");
    let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" "));
    let (left, height) = (PLOT.2 + 24.0, PLOT.1 + 24.0 * number as f64 + 8.0);
    let _ = writeln!(
        out,
        "<path d=\"M{left} {height}h28\" {style}/><text x=\"{}\" y=\"{}\">{name}</text>",
        left + 36.0,
        height + 4.0
    );
}
