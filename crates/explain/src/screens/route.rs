//! The screens of `zonewise route`.

use super::table::{fitted, is_within, table};
use super::{BOLD, WARN, Width, clean, fit, maybe_percent, paint, percent, signed_percent};
use crate::matrix::Matrix;
use crate::route::{RefusedFrontend, RouteLine};
use zonewise_topology::reason::Code;

/// The largest number of endpoints that are shown per line; the others are counted.
const SHOWN: usize = 4;

/// The table of routes. On a screen, each line shows as many endpoints as fit.
pub fn routes(lines: &[RouteLine], width: Width) -> String {
    let rows = |most: usize| lines.iter().map(|line| row(line, most)).collect::<Vec<_>>();
    let text = match width {
        Width::Wide => table(&HEADER, HEADER.len(), rows(usize::MAX)),
        Width::Usual => table(&HEADER, HEADER.len(), rows(SHOWN)),
        Width::Columns(columns) => {
            let fits = |text: &String| text.lines().all(|line| line.chars().count() <= columns);
            let mut tables = (1..=SHOWN).rev().map(|most| table(&HEADER, HEADER.len(), rows(most)));
            tables.find(fits).unwrap_or_else(|| fitted(&HEADER, HEADER.len(), rows(1), width))
        }
    };
    let refused = lines.iter().flat_map(|line| {
        let told = |refused: &RefusedFrontend| {
            let RefusedFrontend { at, reason, why } = refused;
            format!(
                "{}: {} does not get {at}: {why} ({reason})\n",
                paint(WARN, "refused"),
                line.service
            )
        };
        line.refused.iter().map(told)
    });
    let left_out = lines.iter().filter(|line| line.notes.contains(&Code::SpecialAddresses));
    let left_out = left_out.map(|line| {
        let code = Code::SpecialAddresses;
        format!(
            "{}: {}, port {:?}: {} ({code})\n",
            paint(WARN, "left out"),
            line.service,
            line.port,
            code.entry().sentence
        )
    });
    let told: String = refused.chain(left_out).collect();
    text + "\n" + &fit(&told, width)
}

const HEADER: [&str; 6] = ["SERVICE", "PORT", "FAMILY", "MODE", "REASON", "ENDPOINTS"];

fn row(line: &RouteLine, most: usize) -> Vec<String> {
    vec![
        line.service.clone(),
        port(&line.port, &line.protocol),
        line.family.clone(),
        line.mode.clone(),
        line.reason.to_string(),
        endpoints(line, most),
    ]
}

fn port(name: &str, protocol: &str) -> String {
    if name.is_empty() { protocol.into() } else { format!("{name}/{protocol}") }
}

fn endpoints(line: &RouteLine, most: usize) -> String {
    let list = |targets: &Option<Vec<String>>, weights: Option<&[u32]>| {
        let Some(targets) = targets else { return String::new() };
        let all: f64 =
            weights.iter().flat_map(|weights| weights.iter()).map(|one| f64::from(*one)).sum();
        let text = |(index, target): (usize, &String)| match weights {
            Some(weights) => format!("{target} ({})", percent(f64::from(weights[index]) / all)),
            None => target.clone(),
        };
        let shown: Vec<String> = targets.iter().enumerate().take(most).map(text).collect();
        let rest = targets.len().saturating_sub(most);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        shown.join(" ") + &rest
    };
    let cluster = list(&line.cluster, line.weights.as_deref());
    let local = list(&line.local, None);
    match (cluster.is_empty(), local.is_empty()) {
        (false, true) => cluster,
        (true, false) => format!("this node: {local}"),
        (false, false) => format!("{cluster}; this node: {local}"),
        (true, true) => "none".into(),
    }
}

/// A matrix, and the load of each endpoint.
pub fn matrix(matrix: &Matrix, width: Width) -> String {
    let title =
        format!("{} {} {}", matrix.service, port(&matrix.port, &matrix.protocol), matrix.family);
    let zones = columns(matrix);
    let endpoints = matrix.endpoints.iter().map(|load| {
        vec![load.endpoint.clone(), zone_name(&load.zone), signed_percent(load.overload)]
    });
    format!(
        "{}\n{}\n\nstays in its zone: {}\n{}\n{}\n",
        fit(&paint(BOLD, &clean(&title)), width),
        rows(matrix, &zones, width),
        maybe_percent(matrix.in_zone),
        fit(&dropped(matrix), width),
        fitted(&["ENDPOINT", "ZONE", "OVERLOAD"], 2, endpoints.collect(), width)
    )
}

/// The rows of a matrix. If there are more zones than fit beside each other, the table is repeated for the others.
fn rows(matrix: &Matrix, zones: &[String], width: Width) -> String {
    let whole = part_of_rows(matrix, zones, true, width);
    if is_within(&whole, width) {
        return whole;
    }
    let (mut parts, mut rest, mut is_first) = (Vec::new(), zones, true);
    while !rest.is_empty() {
        let fits = |count: &usize| {
            is_within(&part_of_rows(matrix, &rest[..*count], is_first, width), width)
        };
        let count = (1..=rest.len()).rev().find(fits).unwrap_or(1);
        parts.push(part_of_rows(matrix, &rest[..count], is_first, width));
        (rest, is_first) = (&rest[count..], false);
    }
    parts.join("\n\n")
}

/// The columns of some zones; with those about the row itself, or its name alone.
fn part_of_rows(matrix: &Matrix, zones: &[String], is_first: bool, width: Width) -> String {
    let named: Vec<String> = zones.iter().map(|zone| format!("TO {}", zone_name(zone))).collect();
    let drops = matrix.dropped > 0.0 && is_first;
    let mut header = vec!["FROM"];
    if is_first {
        header.extend(["TRAFFIC", "MODE", "REASON"]);
    }
    let texts = header.len();
    header.extend(named.iter().map(String::as_str));
    header.extend(drops.then_some("DROPPED"));
    let rows = matrix.from.iter().map(|row| {
        let mut cells = vec![clean(&row.zone)];
        if is_first {
            cells.extend([percent(row.share), row.mode.clone(), row.reason.to_string()]);
        }
        let part =
            |zone: &String| row.to.get(zone).map_or_else(|| "-".into(), |part| percent(*part));
        cells.extend(zones.iter().map(part));
        cells.extend(drops.then(|| percent(row.dropped)));
        cells
    });
    fitted(&header, texts, rows.collect(), width)
}

/// The number of nodes that are named; the others are counted.
const NAMED: usize = 5;

/// Who drops traffic; empty if nobody does.
fn dropped(matrix: &Matrix) -> String {
    if matrix.dropped == 0.0 {
        return String::new();
    }
    let nodes = &matrix.dropping_nodes;
    let more = match nodes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<String> = nodes.iter().take(NAMED).map(|node| clean(node)).collect();
    let who = if named.is_empty() {
        "there is no endpoint that these nodes may use".into()
    } else {
        format!("there is no endpoint on {}{more}", named.join(", "))
    };
    format!("dropped: {}, because {who}\n", percent(matrix.dropped))
}

fn zone_name(zone: &str) -> String {
    if zone.is_empty() { "no zone".into() } else { zone.into() }
}

/// The zones that send traffic or have endpoints.
fn columns(matrix: &Matrix) -> Vec<String> {
    let senders = matrix.from.iter().map(|row| row.zone.clone());
    let mut zones: Vec<String> =
        senders.chain(matrix.endpoints.iter().map(|load| load.zone.clone())).collect();
    zones.sort();
    zones.dedup();
    zones
}
