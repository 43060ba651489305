//! The result of a run: one line per act while it runs, a table and a JSON document at its end.

use serde_json::{Value, json};
use zonewise_common::document::Document;
use zonewise_explain::screens::{clean, counted, signed_percent, table as columns};
use zonewise_topology::words::{fine_percent, grouped, percent};

use crate::view::{ActResult, Expectation, Kernel, Summary};
use crate::words::seconds;

/// The whole run as a table.
pub fn table(summary: &Summary) -> String {
    let parts = [
        clean(&summary.scenario),
        kernel(summary).to_owned(),
        acts(summary),
        failures(summary),
        basis(summary).to_owned(),
        chance(summary).to_owned(),
        totals(summary),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}\n{}\n", parts.join("\n\n"), verdict(summary))
}

/// The whole run as a JSON document.
pub fn json(summary: &Summary) -> Value {
    let mut document = json!(Document::new("LabSummary", summary));
    document["held"] = summary.held().into();
    for (act, result) in summary.acts.iter().enumerate() {
        document["acts"][act]["held"] = result.held().into();
    }
    document
}

/// One line for an act that has ended.
pub fn act_line(result: &ActResult) -> String {
    let mut parts = vec![format!("{} in zone", fine_percent(result.in_zone))];
    parts.extend(overload(result).map(|over| format!("busiest endpoint {over}")));
    parts.push(format!("{} connections", grouped(result.connections)));
    parts.push(format!("{} failed", grouped(result.failed)));
    parts.extend(result.settled.map(|settled| format!("settled in {}", seconds(settled))));
    parts.extend(failed(result).map(sentence));
    let (title, service) = (clean(&result.title), clean(&result.service));
    let service = if service.is_empty() { service } else { format!(" ({service})") };
    format!("{} {title}{service}: {}", mark(result.held()), parts.join(", "))
}

/// `+68 % ± 84 %`: how much more than its fair share the busiest endpoint got, and how much of that chance allows.
fn overload(result: &ActResult) -> Option<String> {
    let overload = signed_percent(result.overload?);
    Some(match percent(result.load_tolerance()) {
        none if none == percent(0.0) => overload,
        tolerance => format!("{overload} ± {tolerance}"),
    })
}

fn mark(held: bool) -> &'static str {
    if held { "✓" } else { "✗" }
}

fn failed(act: &ActResult) -> impl Iterator<Item = &Expectation> {
    act.expectations.iter().filter(|expectation| !expectation.held)
}

fn sentence(expectation: &Expectation) -> String {
    clean(&expectation.sentence())
}

fn acts(summary: &Summary) -> String {
    let header = [
        "HELD",
        "ACT",
        "SERVICE",
        "REASON",
        "IN ZONE",
        "BUSIEST",
        "CONNECTIONS",
        "FAILED",
        "SETTLED",
    ];
    let row = |act: &ActResult| {
        vec![
            mark(act.held()).to_owned(),
            act.title.clone(),
            act.service.clone(),
            act.reason.clone(),
            fine_percent(act.in_zone),
            overload(act).unwrap_or_else(|| "-".into()),
            grouped(act.connections),
            grouped(act.failed),
            act.settled.map_or_else(|| "-".into(), seconds),
        ]
    };
    columns(&header, 4, summary.acts.iter().map(row).collect())
}

fn failures(summary: &Summary) -> String {
    let of_act = |act: &ActResult| {
        let title = clean(&act.title);
        failed(act).map(|one| format!("✗ {title}: {}", sentence(one))).collect::<Vec<_>>()
    };
    summary.acts.iter().flat_map(of_act).collect::<Vec<_>>().join("\n")
}

/// The label of a run that was simulated.
fn kernel(summary: &Summary) -> &'static str {
    match summary.kernel {
        Kernel::Real => "",
        Kernel::Memory => {
            "SIMULATED on a kernel in memory: decisions and rules are real; packets are walked through the rules, and take no time"
        }
    }
}

/// What the figures were compared with, if not with those of the scenario.
fn basis(summary: &Summary) -> &'static str {
    if summary.resized {
        "the scenario was written for another size: shares and loads are compared with what `zonewise route --matrix` computes"
    } else {
        ""
    }
}

/// The meaning of ±.
fn chance(summary: &Summary) -> &'static str {
    match summary.acts.iter().filter_map(overload).any(|overload| overload.contains('±')) {
        true => {
            "± is how far chance may move the load of the busiest endpoint: longer acts, smaller chance"
        }
        false => "",
    }
}

fn totals(summary: &Summary) -> String {
    let size = summary.cluster;
    let mut parts = vec![
        [
            counted(size.zones, "zone"),
            counted(size.nodes, "node"),
            counted(size.services, "Service"),
            counted(size.endpoints, "endpoint"),
        ]
        .join(", "),
        format!("first traffic after {}", seconds(summary.first_traffic)),
        format!("{} connections, {} failed", grouped(summary.connections), grouped(summary.failed)),
    ];
    parts.extend(summary.programming.map(|programming| {
        let (mean, count) = (seconds(programming.mean), grouped(programming.count));
        format!("a proxy writes a change in {mean} on average ({count} times)")
    }));
    parts.push(format!("{} MiB of memory at most", grouped(summary.peak_memory >> 20)));
    parts.join("; ")
}

fn verdict(summary: &Summary) -> String {
    let failed = summary.acts.iter().flat_map(failed).count();
    let missing = summary.planned.saturating_sub(summary.played);
    let lists = [(failed, "expectation", "hold"), (missing, "act", "run")];
    let lists = lists.into_iter().filter(|(count, ..)| *count > 0);
    let parts =
        lists.map(|(count, thing, verb)| format!("{} did not {verb}", counted(count, thing)));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "all expectations held".into() } else { parts.join(", ") }
}
