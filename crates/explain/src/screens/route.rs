//! The screens of `zonewise route`.

use super::table::{fitted, table};
use super::{BOLD, WARN, Width, clean, maybe_percent, paint, percent, signed_percent};
use crate::matrix::Matrix;
use crate::route::{RefusedFrontend, RouteLine};

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
    let refused: String = refused.collect();
    text + "\n" + &refused
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
pub fn matrix(matrix: &Matrix) -> String {
    let title =
        format!("{} {} {}", matrix.service, port(&matrix.port, &matrix.protocol), matrix.family);
    let zones = columns(matrix);
    let mut header = vec!["FROM", "TRAFFIC", "MODE", "REASON"];
    let named: Vec<String> = zones.iter().map(|zone| format!("TO {}", zone_name(zone))).collect();
    header.extend(named.iter().map(String::as_str));
    let drops = matrix.dropped > 0.0;
    if drops {
        header.push("DROPPED");
    }
    let rows = matrix.from.iter().map(|row| {
        let mut cells =
            vec![clean(&row.zone), percent(row.share), row.mode.clone(), row.reason.to_string()];
        cells.extend(
            zones
                .iter()
                .map(|zone| row.to.get(zone).map_or_else(|| "-".into(), |part| percent(*part))),
        );
        cells.extend(drops.then(|| percent(row.dropped)));
        cells
    });
    let endpoints = matrix.endpoints.iter().map(|load| {
        vec![load.endpoint.clone(), zone_name(&load.zone), signed_percent(load.overload)]
    });
    format!(
        "{}\n{}\n\nstays in its zone: {}\n{}\n{}\n",
        paint(BOLD, &clean(&title)),
        table(&header, 4, rows.collect()),
        maybe_percent(matrix.in_zone),
        dropped(matrix),
        table(&["ENDPOINT", "ZONE", "OVERLOAD"], 2, endpoints.collect())
    )
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
