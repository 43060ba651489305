//! One Service, told from the question to the remedy.

use zonewise_topology::capacity::{Basis, LeftOut, WhyLeftOut};
use zonewise_topology::explanation::ZoneRow;
use zonewise_topology::reason::NOTHING_TO_DO;

use super::table::{indented, table};
use super::{
    BOLD, DIM, GOOD, WARN, clean, counted, maybe_percent, outcome, paint, percent, signed_percent,
};
use crate::explanation::{Consumer, Explanation};
use crate::margin::Margin;
use crate::ways::Way;

/// The whole screen.
pub fn explanation(explanation: &Explanation) -> String {
    let parts = [
        question(explanation),
        capacity(explanation),
        traffic(explanation),
        consumers(&explanation.consumers),
        changes(&explanation.changes),
        explanation.margin.as_ref().map(margin).unwrap_or_default(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn section(title: &str, body: &str) -> String {
    format!("{}\n{}\n", paint(BOLD, title), indented(body))
}

fn question(explanation: &Explanation) -> String {
    let numbers = &explanation.numbers;
    let (style, word) = outcome(numbers.outcome);
    let mut lines = vec![
        format!("asked      {} ({})", clean(&numbers.asked.value), numbers.asked.source),
        format!("heuristic  {}", clean(&numbers.heuristic)),
        format!("outcome    {}: {}", paint(style, word), numbers.reason),
        format!("           {}", numbers.sentence),
    ];
    if numbers.remedy != NOTHING_TO_DO {
        lines.push(format!("           {}", paint(DIM, numbers.remedy)));
    }
    lines.push(format!("           {}", paint(DIM, &explanation.docs)));
    let other = |family: &&crate::explanation::FamilyReason| family.family != explanation.family;
    lines.extend(explanation.families.iter().filter(other).map(|family| {
        format!("in {}    {}: {}", family.family, outcome(family.outcome).1, family.reason)
    }));
    lines.extend(explanation.notes.iter().map(|note| {
        let value = clean(&note.value);
        format!(
            "{}   {} = {value}: {} ({})",
            paint(WARN, "not used"),
            note.source,
            note.sentence,
            note.reason
        )
    }));
    lines.push(format!("pods       {}", pods(explanation)));
    lines.push(format!("slices     {}", slices(explanation)));
    let title = format!("Service {} ({})", explanation.service, explanation.family);
    section(&clean(&title), &lines.join("\n"))
}

fn pods(explanation: &Explanation) -> String {
    let pods = explanation.pods;
    let unknown = match pods.on_unknown_nodes {
        0 => String::new(),
        some => format!(", {some} on nodes that are not known"),
    };
    format!("{} selected, {} ready{unknown}", pods.selected, pods.ready)
}

fn slices(explanation: &Explanation) -> String {
    let slices = explanation.slices;
    let others = match slices.of_others {
        0 => String::new(),
        some => format!(" ({some} written by others)"),
    };
    let writes = match (slices.creates, slices.updates, slices.deletes) {
        (0, 0, 0) => "as the controller would write them".into(),
        (creates, updates, deletes) => {
            format!("the controller would create {creates}, update {updates}, delete {deletes}")
        }
    };
    format!("{} stored{others}; {writes}", slices.stored)
}

fn capacity(explanation: &Explanation) -> String {
    let numbers = &explanation.numbers;
    let place = if explanation.grouped_by == "region" { "REGION" } else { "ZONE" };
    let header = [
        place,
        "NODES",
        "CORES",
        "SHARE",
        "ENDPOINTS",
        "EXPECTED",
        "MIN",
        "MAX",
        "ASSIGNED",
        "OVERLOAD",
    ];
    let row = |zone: &ZoneRow| {
        vec![
            zone.zone.to_string(),
            zone.nodes.to_string(),
            format!("{}", (zone.cpu * 100.0).round() / 100.0),
            percent(zone.share),
            zone.endpoints.to_string(),
            format!("{:.2}", zone.expected),
            zone.min.to_string(),
            zone.max.to_string(),
            zone.assigned.to_string(),
            zone.overload.map_or_else(|| "-".into(), signed_percent),
        ]
    };
    let mut body = table(&header, 1, numbers.zones.iter().map(row).collect());
    let left_out = left_out(&numbers.nodes_left_out);
    if !left_out.is_empty() {
        body.push_str(&format!("\nnot counted: {left_out}"));
    }
    let basis = match numbers.capacity_by {
        Basis::Cpu => "Capacity, by allocatable CPU",
        Basis::Nodes => "Capacity, by number of nodes",
    };
    section(basis, &body)
}

/// Nodes named before they are counted.
const NAMED: usize = 5;

fn left_out(nodes: &[LeftOut]) -> String {
    let why = |why: WhyLeftOut| match why {
        WhyLeftOut::NotReady => "not ready",
        WhyLeftOut::ControlPlane => "control plane",
        WhyLeftOut::NoZone => "no zone label",
        WhyLeftOut::NoCpu => "no allocatable CPU",
    };
    let named =
        nodes.iter().take(NAMED).map(|left| format!("{} ({})", clean(&left.node), why(left.why)));
    let mut named: Vec<String> = named.collect();
    if nodes.len() > NAMED {
        named.push(format!("{} more", nodes.len() - NAMED));
    }
    named.join(", ")
}

fn traffic(explanation: &Explanation) -> String {
    let in_zone = explanation.numbers.in_zone;
    let mut lines = vec![format!(
        "now {}, with this outcome {}, best possible {}",
        maybe_percent(in_zone.now),
        maybe_percent(in_zone.planned),
        percent(in_zone.best)
    )];
    if !explanation.in_zone_by_heuristic.is_empty() {
        let header = ["HEURISTIC", "REASON", "IN ZONE", "LARGEST OVERLOAD"];
        let rows = explanation.in_zone_by_heuristic.iter().map(|score| {
            vec![
                score.heuristic.clone(),
                score.reason.to_string(),
                maybe_percent(score.in_zone),
                score.max_overload.map_or_else(|| "-".into(), signed_percent),
            ]
        });
        lines.push(table(&header, 2, rows.collect()));
    }
    section(&format!("Traffic that stays in its {}", explanation.grouped_by), &lines.join("\n"))
}

fn consumers(consumers: &[Consumer]) -> String {
    if consumers.is_empty() {
        return String::new();
    }
    let rows = consumers.iter().flat_map(|consumer| {
        consumer.from.iter().map(|zone| {
            vec![
                consumer.consumer.to_owned(),
                consumer.family.clone(),
                zone.zone.to_string(),
                zone.mode.clone(),
                zone.reason.to_string(),
                percent(zone.in_zone),
            ]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut lines = Vec::new();
    if !rows.is_empty() {
        lines.push(table(&["CONSUMER", "FAMILY", "FROM", "MODE", "REASON", "IN ZONE"], 5, rows));
    }
    let mut remarks: Vec<String> =
        consumers.iter().map(|one| format!("{}: {}", one.consumer, one.remark)).collect();
    remarks.dedup();
    lines.extend(remarks.iter().map(|remark| paint(DIM, remark)));
    section("What consumers will do", &lines.join("\n"))
}

fn changes(ways: &[Way]) -> String {
    if ways.is_empty() {
        return String::new();
    }
    let lines = ways.iter().enumerate().map(|(index, way)| {
        let steps = way.sentences.join("\n     and ");
        format!("{}. {steps}\n     {}", index + 1, paint(GOOD, &format!("gives {}", way.then)))
    });
    section("What would turn it on, any of", &lines.collect::<Vec<_>>().join("\n"))
}

fn margin(margin: &Margin) -> String {
    let mut lines: Vec<String> = margin
        .endpoints
        .iter()
        .map(|loss| {
            let then = loss.then.map_or_else(String::new, |then| format!(", then {then}"));
            let lost = counted(loss.survives, "endpoint");
            let least =
                if loss.then.is_none() && loss.survives < loss.has { "at least " } else { "" };
            let zone = clean(&loss.zone);
            format!("{zone}: survives the loss of {least}{lost} of {}{then}", loss.has)
        })
        .collect();
    lines.push(match margin.critical_nodes.as_slice() {
        [] => "survives the loss of any one node".into(),
        nodes => {
            let named =
                nodes.iter().map(|node| format!("{} (then {})", clean(&node.node), node.then));
            let more = match margin.critical_nodes_in_all - nodes.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("does not survive the loss of {}{more}", named.collect::<Vec<_>>().join(", "))
        }
    });
    lines.extend(margin.zones.iter().map(|zone| {
        let word = if zone.survives { "survives" } else { "does not survive" };
        format!("{word} the loss of zone {}: {}", clean(&zone.zone), zone.then)
    }));
    section("What keeps it on", &lines.join("\n"))
}
