//! The screen of `zonewise explain` for one Service.

use zonewise_topology::capacity::{Basis, LeftOut, WhyLeftOut};
use zonewise_topology::explanation::ZoneRow;
use zonewise_topology::reason::NOTHING_TO_DO;

use super::table::{indented, table};
use super::{
    BOLD, DIM, GOOD, WARN, clean, counted, maybe_percent, outcome, paint, percent, signed_percent,
};
use crate::explanation::{Explanation, Note, ProxyOutcome, Settling};
use crate::margin::{Loss, Margin};
use crate::suggestions::Suggestion;

/// The whole screen.
pub fn explanation(explanation: &Explanation) -> String {
    let parts = [
        outcome_section(explanation),
        capacity(explanation),
        traffic(explanation),
        consumers(&explanation.consumers),
        changes(&explanation.changes),
        improvements(explanation),
        explanation.margin.as_ref().map(margin).unwrap_or_default(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn section(title: &str, body: &str) -> String {
    format!("{}\n{}\n", paint(BOLD, title), indented(body))
}

fn outcome_section(explanation: &Explanation) -> String {
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
    lines.extend(explanation.notes.iter().flat_map(ignored));
    lines.extend(explanation.settling.iter().map(settling));
    lines.push(format!("pods       {}", pods(explanation)));
    lines.push(format!("slices     {}", slices(explanation)));
    let title = format!("Service {} ({})", explanation.service, explanation.family);
    section(&clean(&title), &lines.join("\n"))
}

/// A key without effect, and the commands that correct it.
fn ignored(note: &Note) -> Vec<String> {
    let (key, value) = (clean(&note.source), clean(&note.value));
    let word = paint(WARN, "ignored");
    let line = format!("{word}    {key} = {value}: {} ({})", clean(&note.sentence), note.reason);
    let commands = note.commands.iter().map(|command| format!("           {}", clean(command)));
    std::iter::once(line).chain(commands).collect()
}

fn settling(settling: &Settling) -> String {
    let (now, fresh) = (settling.improvement.now, settling.improvement.fresh);
    let when = match &settling.after {
        Some(period) => {
            format!("the controller takes it when the Service has been quiet for {period}")
        }
        None => "the controller does not take it, because its settling is off".into(),
    };
    format!(
        "{}   a fresh decision keeps {} of the traffic in its zone (now {})\n           \
         and loads no endpoint by more than {} (now {});\n           {when}",
        paint(WARN, "settling"),
        percent(fresh.in_zone),
        percent(now.in_zone),
        signed_percent(fresh.max_overload),
        signed_percent(now.max_overload)
    )
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
    let group = if explanation.grouped_by == "region" { "REGION" } else { "ZONE" };
    let header = [
        group,
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
            // 0: there are too few endpoints to give every zone its minimum.
            if zone.max == 0 { "–".into() } else { zone.max.to_string() },
            zone.assigned.map_or_else(|| "-".into(), |count| count.to_string()),
            zone.overload.map_or_else(|| "-".into(), signed_percent),
        ]
    };
    let mut body = table(&header, 1, numbers.zones.iter().map(row).collect());
    let left_out = left_out(&numbers.nodes_left_out);
    if !left_out.is_empty() {
        body.push_str(&format!("\nnot counted: {left_out}"));
    }
    if !numbers.nodes_without_cpu.is_empty() {
        let nodes = names(numbers.nodes_without_cpu.iter().map(|node| clean(node)));
        body.push_str(&format!("\nnodes are counted, because CPU is not known of: {nodes}"));
    }
    let basis = match numbers.capacity_by {
        Basis::Cpu => "Capacity, by allocatable CPU",
        Basis::Nodes => "Capacity, by number of nodes",
    };
    section(basis, &body)
}

/// The number of nodes that are named; the others are counted.
const NAMED: usize = 5;

fn left_out(nodes: &[LeftOut]) -> String {
    let why = |why: WhyLeftOut| match why {
        WhyLeftOut::NotReady => "not ready",
        WhyLeftOut::ControlPlane => "control plane",
        WhyLeftOut::NoZone => "no zone label",
    };
    names(nodes.iter().map(|left| format!("{} ({})", clean(&left.node), why(left.why))))
}

/// The first few names, and the number of the others.
fn names(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let mut named: Vec<String> = all.take(NAMED).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

fn traffic(explanation: &Explanation) -> String {
    let in_zone = explanation.numbers.in_zone;
    let mut lines = vec![format!(
        "now {}, with this outcome {}, best possible without overload {}",
        maybe_percent(in_zone.now),
        maybe_percent(in_zone.planned),
        maybe_percent(in_zone.best)
    )];
    if !explanation.in_zone_by_heuristic.is_empty() {
        let header = ["HEURISTIC", "REASON", "IN ZONE (MODEL)", "OVERLOAD (MODEL)"];
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

fn consumers(consumers: &[ProxyOutcome]) -> String {
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
        lines.push(table(&["PROXY", "FAMILY", "FROM", "MODE", "REASON", "IN ZONE"], 5, rows));
    }
    let mut remarks: Vec<String> =
        consumers.iter().map(|one| format!("{}: {}", one.consumer, one.remark)).collect();
    remarks.dedup();
    lines.extend(remarks.iter().map(|remark| paint(DIM, remark)));
    section("What proxies will do", &lines.join("\n"))
}

fn changes(suggestions: &[Suggestion]) -> String {
    if suggestions.is_empty() {
        return String::new();
    }
    let lines = suggestions.iter().enumerate().map(|(index, suggestion)| {
        let steps = suggestion.sentences.join("\n     and ");
        format!(
            "{}. {steps}\n     {}",
            index + 1,
            paint(GOOD, &format!("gives {}", suggestion.then))
        )
    });
    section(
        "What would turn zone routing on (any one of these)",
        &lines.collect::<Vec<_>>().join("\n"),
    )
}

fn improvements(explanation: &Explanation) -> String {
    if explanation.improvements.is_empty() {
        return String::new();
    }
    let figures = |in_zone: Option<f64>, most: Option<f64>| {
        let most = most.map_or_else(|| "-".into(), signed_percent);
        format!("{} stays in its zone, overload at most {most}", maybe_percent(in_zone))
    };
    let zones = explanation.numbers.zones.iter().filter_map(|zone| zone.overload);
    let planned = explanation.numbers.in_zone.planned;
    let mut lines = vec![format!("as planned: {}", figures(planned, zones.max_by(f64::total_cmp)))];
    lines.extend(explanation.improvements.iter().enumerate().map(|(index, improvement)| {
        let after = figures(Some(improvement.in_zone), Some(improvement.max_overload));
        let gives = format!("gives {}: {after}", improvement.then);
        let steps = improvement.sentences.join("\n     and ");
        format!("{}. {steps}\n     {}", index + 1, paint(GOOD, &gives))
    }));
    section("What would make it better (any one of these)", &lines.join("\n"))
}

fn margin(margin: &Margin) -> String {
    let mut lines: Vec<String> = margin.endpoints.iter().map(endpoint_loss).collect();
    lines.push(match margin.critical_nodes.as_slice() {
        [] => "stays on after losing any one node".into(),
        nodes => {
            let named =
                nodes.iter().map(|node| format!("{} (then {})", clean(&node.node), node.then));
            let more = match margin.critical_nodes_in_all - nodes.len() {
                0 => String::new(),
                more => format!(" or one of {more} more"),
            };
            format!("turns off after losing {}{more}", named.collect::<Vec<_>>().join(" or "))
        }
    });
    lines.extend(margin.zones.iter().map(|zone| {
        let name = clean(&zone.zone);
        match zone.then {
            Some(then) => format!("turns off after losing zone {name}: {then}"),
            None => format!("stays on after losing zone {name}"),
        }
    }));
    section("When zone routing stays on", &lines.join("\n"))
}

fn endpoint_loss(loss: &Loss) -> String {
    let zone = clean(&loss.zone);
    let all = counted(loss.has, "endpoint");
    match loss.then {
        Some(then) => {
            format!("{zone}: stays on after losing {} of {all}, then {then}", loss.survives)
        }
        None if loss.survives < loss.has => {
            format!("{zone}: stays on after losing at least {} of {all}", loss.survives)
        }
        None if loss.has == 0 => format!("{zone}: has no endpoint to lose"),
        None => format!("{zone}: stays on after losing all of its {all}"),
    }
}
