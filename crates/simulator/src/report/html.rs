//! The summary as one self-contained page: tables, distributions, and the worst inputs as pictures.
//! No script, no font, no request to anywhere.

use std::fmt::Write as _;
use std::io::{self, Write};

use zonewise_common::xml::escape;
use zonewise_topology::words::{grouped, grouped_count};

use super::percent_of;
use crate::dataset::Cell;
use crate::summary::{BINS, HeuristicSummary, Summary, WorstRow};

const STYLE: &str = include_str!("html.css");

/// Writes the page.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = build(&mut page, summary);
    out.write_all(page.as_bytes())
}

fn build(page: &mut String, summary: &Summary) -> std::fmt::Result {
    let dataset = escape(&summary.dataset);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>zonewise simulation of {dataset}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Simulation of {dataset}</h1>\n<p>{}, {}: {}.{}</p>\n",
        grouped_count(summary.rows, "input"),
        grouped_count(summary.zones.len() as u64, "zone"),
        escape(&summary.zones.join(", ")),
        left_out(summary),
    )?;
    overview(page, summary)?;
    for heuristic in &summary.heuristics {
        section(page, summary, heuristic)?;
    }
    problems(page, summary)?;
    page.push_str("</body>\n</html>\n");
    Ok(())
}

fn left_out(summary: &Summary) -> String {
    match summary.left_out {
        0 => String::new(),
        rows => format!(" {} left out because they could not be read.", grouped_count(rows, "row")),
    }
}

fn overview(page: &mut String, summary: &Summary) -> std::fmt::Result {
    page.push_str(
        "<h2>Scores</h2>\n<p>Average scores (0–100): 45 % in-zone traffic, 40 % overload, 15 % slices. \
         The mark on each bar is the optimum: the best that any router could score on the same inputs.</p>\n\
         <table>\n<thead><tr><th>heuristic</th><th>score</th><th></th><th>in-zone</th><th>overload</th>\
         <th>slices</th><th>gap to the optimum</th><th>worst score</th><th>largest overload</th>\
         <th>fell back</th><th>invalid</th><th>failed</th></tr></thead>\n<tbody>\n",
    );
    for heuristic in &summary.heuristics {
        overview_row(page, heuristic)?;
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn overview_row(page: &mut String, heuristic: &HeuristicSummary) -> std::fmt::Result {
    let name = escape(&heuristic.heuristic);
    let valid = heuristic.valid;
    let all = valid + heuristic.invalid + heuristic.failed;
    write!(page, "<tr><td><a href=\"#{name}\">{name}</a></td>")?;
    if valid == 0 {
        page.push_str("<td colspan=\"8\">no input has a score</td>");
    } else {
        let score = heuristic.score.mean(valid);
        write!(page, "<td>{score:.2}</td><td>")?;
        score_bar(page, score, heuristic.limit.mean(valid))?;
        page.push_str("</td>");
        for column in
            [&heuristic.in_zone, &heuristic.deviation, &heuristic.slice, &heuristic.distance]
        {
            write!(page, "<td>{:.2}</td>", column.mean(valid))?;
        }
        write!(
            page,
            "<td>{:.2}</td><td>{:.2} %</td>",
            heuristic.score.min.to_f64(),
            heuristic.max_deviation.max.to_f64()
        )?;
    }
    writeln!(
        page,
        "<td>{}</td><td>{}</td><td>{}</td></tr>",
        percent_of(heuristic.fallbacks(), all),
        grouped(heuristic.invalid),
        grouped(heuristic.failed)
    )
}

fn score_bar(page: &mut String, score: f64, limit: f64) -> std::fmt::Result {
    let (score, limit) = (score.clamp(0.0, 100.0), limit.clamp(0.0, 100.0));
    write!(
        page,
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{score:.2} of at most {limit:.2}\"><rect class=\"track\" width=\"100\" height=\"8\"/>\
         <rect class=\"fill\" width=\"{score:.2}\" height=\"8\"/>\
         <rect class=\"mark\" x=\"{:.2}\" width=\"0.8\" height=\"8\"/></svg>",
        (limit - 0.4).max(0.0)
    )
}

fn section(page: &mut String, summary: &Summary, heuristic: &HeuristicSummary) -> std::fmt::Result {
    let name = escape(&heuristic.heuristic);
    writeln!(page, "<section id=\"{name}\">\n<h2>{name}</h2>")?;
    if heuristic.valid > 0 {
        histogram(page, heuristic)?;
    }
    reasons(page, heuristic)?;
    if !heuristic.worst.is_empty() {
        page.push_str(
            "<h3>Worst inputs</h3>\n<p>For each zone: its part of the traffic (left bar) and of the \
             endpoints (right bar), with nodes and endpoints below.</p>\n<div class=\"worst\">\n",
        );
        for row in &heuristic.worst {
            picture(page, &summary.zones, row)?;
        }
        page.push_str("</div>\n");
    }
    page.push_str("</section>\n");
    Ok(())
}

fn reasons(page: &mut String, heuristic: &HeuristicSummary) -> std::fmt::Result {
    let all = heuristic.valid + heuristic.invalid + heuristic.failed;
    page.push_str("<table class=\"reasons\"><tbody>\n");
    for (code, rows) in heuristic.reasons() {
        writeln!(
            page,
            "<tr><td>{code}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            grouped(rows),
            percent_of(rows, all),
            escape(code.entry().sentence)
        )?;
    }
    page.push_str("</tbody></table>\n");
    Ok(())
}

/// Inputs per whole point of score.
fn histogram(page: &mut String, heuristic: &HeuristicSummary) -> std::fmt::Result {
    const HEIGHT: f64 = 90.0;
    let highest = heuristic.histogram.iter().max().copied().unwrap_or(0).max(1);
    write!(
        page,
        "<svg class=\"histogram\" viewBox=\"-10 -6 {} {}\" role=\"img\" \
         aria-label=\"distribution of the scores of {}\">",
        4 * BINS + 20,
        HEIGHT + 22.0,
        escape(&heuristic.heuristic)
    )?;
    for (bin, &rows) in heuristic.histogram.iter().enumerate().filter(|(_, rows)| **rows > 0) {
        let height = (rows as f64 / highest as f64 * HEIGHT).max(0.6);
        let score =
            if bin == 0 { String::from("score below 0") } else { format!("score {}", bin - 1) };
        write!(
            page,
            "<rect class=\"fill\" x=\"{}\" y=\"{:.2}\" width=\"3.4\" height=\"{height:.2}\">\
             <title>{score}: {}</title></rect>",
            bin * 4,
            HEIGHT - height,
            grouped_count(rows, "input")
        )?;
    }
    for score in (0..=100).step_by(20) {
        write!(page, "<text x=\"{}\" y=\"{}\">{score}</text>", (score + 1) * 4 + 2, HEIGHT + 13.0)?;
    }
    page.push_str("</svg>\n");
    Ok(())
}

/// One input: traffic and endpoints per zone.
fn picture(page: &mut String, zones: &[String], row: &WorstRow) -> std::fmt::Result {
    const HEIGHT: f64 = 70.0;
    /// Beyond this, bars would be thinner than a line.
    const MOST_ZONES: usize = 16;
    let nodes: u64 = row.cells.iter().map(|cell| cell.nodes).sum();
    let endpoints: u64 = row.cells.iter().map(|cell| cell.endpoints).sum();
    let part = |count: u64, all: u64| {
        if all == 0 { 0.0 } else { count as f64 / all as f64 }
    };
    let bars = |cell: &Cell| [part(cell.nodes, nodes), part(cell.endpoints, endpoints)];
    let highest = row.cells.iter().flat_map(bars).fold(f64::MIN_POSITIVE, f64::max);
    let shown = row.cells.len().min(MOST_ZONES);
    write!(page, "<figure><svg viewBox=\"0 0 {} {}\" role=\"img\">", shown * 64, HEIGHT + 30.0)?;
    for (index, (cell, zone)) in row.cells.iter().zip(zones).take(shown).enumerate() {
        let left = index * 64;
        for (bar, (value, class)) in bars(cell).into_iter().zip(["traffic", "fill"]).enumerate() {
            let height = value / highest * HEIGHT;
            write!(
                page,
                "<rect class=\"{class}\" x=\"{}\" y=\"{:.2}\" width=\"18\" height=\"{height:.2}\"/>",
                left + 12 + bar * 22,
                HEIGHT - height
            )?;
        }
        write!(
            page,
            "<text x=\"{0}\" y=\"{1}\">{2}</text><text x=\"{0}\" y=\"{3}\">{4} / {5}</text>",
            left + 32,
            HEIGHT + 12.0,
            escape(&shorten(zone)),
            HEIGHT + 25.0,
            cell.nodes,
            cell.endpoints
        )?;
    }
    let more = match row.cells.len() - shown {
        0 => String::new(),
        more => format!(" ({} not shown)", grouped_count(more as u64, "zone")),
    };
    writeln!(
        page,
        "</svg><figcaption>{}: score {}{more}<br>{}</figcaption></figure>",
        escape(&row.name),
        row.score,
        escape(&row.reason)
    )
}

fn shorten(name: &str) -> String {
    const LONGEST: usize = 10;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn problems(page: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.problems.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>Problems</h2>\n<ul>\n");
    for problem in &summary.problems {
        writeln!(page, "<li>{}</li>", escape(&problem.to_string()))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}
