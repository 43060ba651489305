//! The screen of `zonewise explain` for one Service.

use zonewise_topology::capacity::{Basis, LeftOut, WhyLeftOut};
use zonewise_topology::explanation::ZoneRow;
use zonewise_topology::reason::{Code, NOTHING_TO_DO};

use std::collections::BTreeSet;

use super::table::{fitted, indented, narrower, table};
use super::{
    BOLD, DIM, GOOD, WARN, Width, clean, counted, fit, maybe_percent, paint, percent,
    signed_percent,
};
use crate::environment::{Decider, Environment, ProxyKind};
use crate::explanation::{Explanation, Note, ProxyOutcome, Settling};
use crate::margin::{Loss, Margin};
use crate::service_kind::ServiceKind;
use crate::suggestions::Suggestion;

/// The whole screen: what is active and why, what to do, then the details.
pub fn explanation(explanation: &Explanation, here: &Environment, width: Width) -> String {
    let routed = explanation.service_kind == ServiceKind::Routed;
    let mut parts = vec![answer(explanation, here)];
    if routed {
        parts.push(changes(explanation, here));
        parts.push(improvements(explanation));
    }
    parts.push(details(explanation));
    if routed {
        parts.push(capacity(explanation, width));
        parts.extend(
            explanation
                .demand
                .as_ref()
                .map(|demand| section("Measured demand", &super::demand::demand(demand, width))),
        );
        parts.push(traffic(explanation, width));
        parts.push(consumers(&explanation.consumers, here, width));
        parts.extend(explanation.margin.as_ref().map(|losses| margin(losses, here)));
    }
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    fit(&parts.join("\n"), width)
}

/// How far the body of a section is indented.
pub(super) const INDENT: usize = 2;

fn section(title: &str, body: &str) -> String {
    format!("{}\n{}\n", paint(BOLD, title), indented(body))
}

/// What is active and why, what runs, and keys without effect.
fn answer(explanation: &Explanation, here: &Environment) -> String {
    let mut lines = Vec::new();
    let verdict = explanation.verdict.as_ref();
    lines.extend(verdict.map(|one| super::environment::verdict(&explanation.service, one)));
    lines.push(super::environment(here, Width::Usual));
    lines.extend(explanation.notes.iter().flat_map(ignored));
    lines.join("\n") + "\n"
}

fn details(explanation: &Explanation) -> String {
    let numbers = &explanation.numbers;
    let mut lines = vec![
        format!("asked      {} ({})", clean(&numbers.asked.value), numbers.asked.source),
        format!("heuristic  {}", clean(&numbers.heuristic)),
    ];
    if explanation.service_kind == ServiceKind::Routed {
        lines.push(format!("decision   {} ({})", numbers.reason, explanation.docs));
        if numbers.remedy != NOTHING_TO_DO {
            lines.push(format!("           {}", paint(DIM, numbers.remedy)));
        }
        let other =
            |family: &&crate::explanation::FamilyReason| family.family != explanation.family;
        lines.extend(
            explanation
                .families
                .iter()
                .filter(other)
                .map(|family| format!("in {}    {}", family.family, family.reason)),
        );
        lines.extend(explanation.settling.iter().map(settling));
    }
    lines.push(format!("pods       {}", pods(explanation)));
    lines.push(format!("slices     {}", slices(explanation)));
    let title = format!("Service {} ({})", explanation.service, explanation.family);
    section(&clean(&title), &lines.join("\n"))
}

/// A key without effect, and the commands that correct it.
fn ignored(note: &Note) -> Vec<String> {
    let (key, value) = (clean(&note.source), clean(&note.value));
    let word = match note.reason {
        Code::ZoneBeingEmptied => "emptying",
        Code::ZoneFailing => "spilling",
        Code::UseWeighted | Code::UseLimited | Code::UseHeld => "weighted",
        code if is_about_use(code) => "unweighted",
        _ => "ignored",
    };
    let word = paint(WARN, word);
    let line = format!("{word}: {key} = {value}: {} ({})", clean(&note.sentence), note.reason);
    let commands = note.commands.iter().map(|command| format!("    {}", clean(command)));
    std::iter::once(line).chain(commands).collect()
}

/// Whether it says why endpoints do not count by the CPU that they use.
fn is_about_use(code: Code) -> bool {
    matches!(
        code,
        Code::UseNotCollected
            | Code::UseNotMeasured
            | Code::UseTooOld
            | Code::UseImplausible
            | Code::UseTooSmall
            | Code::UseOfOneZone
            | Code::PodMetricsMissing
            | Code::PodMetricsForbidden
            | Code::PodMetricsUnavailable
            | Code::PodMetricsTooLarge
            | Code::PodMetricsNonsense
    )
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

/// The columns that show the arithmetic of `auto`, which the usual width leaves out.
const OF_AUTO: [&str; 3] = ["EXPECTED", "MIN", "MAX"];

fn capacity(explanation: &Explanation, width: Width) -> String {
    let numbers = &explanation.numbers;
    let group = if explanation.grouped_by == "region" { "REGION" } else { "ZONE" };
    let mut header = vec![group, "NODES", "CORES", "SHARE", "ENDPOINTS"];
    let is_weighted = numbers.zones.iter().any(|zone| zone.requested_cpu.is_some());
    if is_weighted {
        header.push("REQUESTED");
    }
    if width == Width::Wide {
        header.extend(OF_AUTO);
    }
    header.extend(["ASSIGNED", "OVERLOAD"]);
    let row = |zone: &ZoneRow| {
        let mut cells = vec![
            zone.zone.to_string(),
            zone.nodes.to_string(),
            cores(zone.cpu),
            percent(zone.share),
            zone.endpoints.to_string(),
        ];
        cells.extend(zone.requested_cpu.map(cores));
        if width == Width::Wide {
            // 0: there are too few endpoints to give every zone its minimum.
            let max = if zone.max == 0 { "–".into() } else { zone.max.to_string() };
            cells.extend([format!("{:.2}", zone.expected), zone.min.to_string(), max]);
        }
        cells.push(zone.assigned.map_or_else(|| "-".into(), |count| count.to_string()));
        cells.push(zone.overload.map_or_else(|| "-".into(), signed_percent));
        cells
    };
    let rows = numbers.zones.iter().map(row).collect();
    let mut body = fitted(&header, 1, rows, narrower(width, INDENT));
    if is_weighted {
        body.push_str("\nendpoints count for the cores that their Pods request");
    }
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
        Basis::Measured => "Capacity, by measured demand",
    };
    section(basis, &body)
}

fn cores(cpu: f64) -> String {
    ((cpu * 100.0).round() / 100.0).to_string()
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

fn traffic(explanation: &Explanation, width: Width) -> String {
    let in_zone = explanation.numbers.in_zone;
    let mut lines = vec![format!(
        "now {}, once the decision is carried out {}, at best without overload {}",
        maybe_percent(in_zone.now),
        maybe_percent(in_zone.planned),
        maybe_percent(in_zone.best)
    )];
    if width == Width::Wide && !explanation.in_zone_by_heuristic.is_empty() {
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

fn consumers(consumers: &[ProxyOutcome], here: &Environment, width: Width) -> String {
    let shown = |one: &&ProxyOutcome| width == Width::Wide || is_of_interest(one.consumer, here);
    let consumers: Vec<&ProxyOutcome> = consumers.iter().filter(shown).collect();
    if consumers.is_empty() {
        return String::new();
    }
    let families: BTreeSet<&str> = consumers.iter().map(|one| one.family.as_str()).collect();
    let several = families.len() > 1;
    let mut header = vec!["PROXY", "FROM", "MODE", "REASON", "IN ZONE"];
    if several {
        header.insert(1, "FAMILY");
    }
    let rows = consumers.iter().flat_map(|consumer| {
        consumer.from.iter().map(|zone| {
            let mut cells = vec![
                consumer.consumer.to_owned(),
                zone.zone.to_string(),
                zone.mode.clone(),
                zone.reason.to_string(),
                percent(zone.in_zone),
            ];
            if several {
                cells.insert(1, consumer.family.clone());
            }
            cells
        })
    });
    let (texts, width) = (header.len() - 1, narrower(width, INDENT));
    let mut lines = vec![fitted(&header, texts, rows.collect(), width)];
    let mut remarks: Vec<String> =
        consumers.iter().map(|one| format!("{}: {}", one.consumer, one.remark)).collect();
    remarks.dedup();
    lines.extend(remarks.iter().map(|remark| paint(DIM, remark)));
    section("What proxies do once the decision is carried out", &lines.join("\n"))
}

/// Whether a proxy runs here, is zonewise's, or may run because it is not known what does.
fn is_of_interest(proxy: &str, here: &Environment) -> bool {
    let runs = here.proxies.iter().any(|group| group.proxy == proxy);
    let known = here.proxies.iter().any(|group| ProxyKind::named(group.proxy).is_some());
    runs || !known || proxy == ProxyKind::Zonewise.name()
}

fn changes(explanation: &Explanation, here: &Environment) -> String {
    let change = |suggestion: &Suggestion| {
        let steps = suggestion.sentences.join("\n     and ");
        (steps, format!("gives {}{}", suggestion.then, needs(suggestion, here)))
    };
    let changes = explanation.changes.iter().map(change).chain(install(explanation));
    let line = |(index, (steps, gives)): (usize, (String, String))| {
        format!("{}. {steps}\n     {}", index + 1, paint(GOOD, &gives))
    };
    let lines: Vec<String> = changes.enumerate().map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    section("Fix: any one of these turns zone routing on", &lines.join("\n"))
}

/// Running what the decision needs and what does not run here, with what that gives.
fn install(explanation: &Explanation) -> Option<(String, String)> {
    let verdict = explanation.verdict.as_ref().filter(|verdict| !verdict.missing.is_empty())?;
    let names: Vec<&str> = verdict.missing.iter().map(|component| component.name()).collect();
    let pages: Vec<String> = names.iter().map(|name| format!("docs/{name}.md")).collect();
    let steps = format!("run zonewise's {} ({})", names.join(" and "), pages.join(", "));
    Some((steps, format!("gives {}", explanation.numbers.reason)))
}

/// What a suggestion needs, where zonewise does not run.
fn needs(suggestion: &Suggestion, here: &Environment) -> String {
    let names: Vec<&str> = suggestion.needs.iter().map(|component| component.name()).collect();
    match names.as_slice() {
        _ if here.has_controller() => String::new(),
        [] => "; works without zonewise".into(),
        names => format!("; needs zonewise's {}", names.join(" and ")),
    }
}

fn improvements(explanation: &Explanation) -> String {
    // They compare with the decision, which must have effect for that.
    let has_effect = explanation.verdict.as_ref().is_some_and(|one| one.missing.is_empty());
    if explanation.improvements.is_empty() || !has_effect {
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

/// Which losses leave zone routing on, by the rules of the controller whose decisions are shown.
fn margin(margin: &Margin, here: &Environment) -> String {
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
    let title = match here.decider {
        _ if here.has_decider() => "When zone routing stays on",
        Decider::Zonewise => "When zone routing would stay on if zonewise ran here",
        Decider::BuiltIn => "When zone routing would stay on if the built-in controller ran here",
    };
    section(title, &lines.join("\n"))
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
