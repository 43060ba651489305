//! The verdict, which comes first: what is active here and now, why, and what it needs.

use serde_json::{Value, json};
use zonewise_explain::Depth;

use super::claims::Facts;
use super::documents::{Cluster, is_on};
use super::fields::Report;
use super::figures::{By, Matrix, PROXIES, World, matrix, rounded};
use super::here::Now;
use super::screens::{percent, text};

/// What is active with the stored slices and the proxies that run, and the word for it.
pub(crate) fn active(world: &World<'_>, now: &Now) -> (&'static str, &'static str) {
    let unknown = ("unknown", "unknown");
    match (world.kind(), now) {
        ("headless" | "externalName", _) => ("notApplicable", "not applicable"),
        ("localPolicy", _) => ("local", "local"),
        (_, Now::Known(_)) if world.is_local() => ("local", "local"),
        (_, Now::Nowhere | Now::NoSender | Now::Unknown(_)) => unknown,
        (_, Now::Known(traffic)) => {
            let near = traffic.rows.values().filter(|row| row.is_near()).count();
            let fully = traffic.rows.values().filter(|row| row.is_near_everywhere()).count();
            match traffic.rows.len() {
                all if fully == all => ("active", "active"),
                _ if near > 0 => ("partlyActive", "partly active"),
                _ => ("notActive", "not active"),
            }
        }
    }
}

/// Figures have six digits: one that is half a percent may be rounded up or down.
fn has_figure(sentence: &str, part: f64, words: &str) -> bool {
    let rounded = [-1e-6, 1e-6].map(|digit| percent(&json!(part + digit)));
    rounded.iter().any(|figure| sentence.contains(&format!("{figure} {words}")))
}

/// How much of the traffic stays, or is dropped.
fn says_traffic(sentence: &str, traffic: &Matrix) -> bool {
    match traffic.in_zone {
        Some(part) => has_figure(sentence, part, "of the traffic stays in its zone"),
        None => has_figure(sentence, traffic.dropped, "of the traffic is dropped"),
    }
}

/// Whether a verdict says what is true of the traffic.
fn is_true(sentence: &str, world: &World<'_>, now: &Now) -> bool {
    let local = world.is_local();
    match now {
        _ if world.kind() == "headless" => sentence.contains("clients get every address by DNS"),
        _ if world.kind() == "externalName" => sentence.contains("an alias in DNS"),
        Now::Nowhere => sentence.contains("no EndpointSlice"),
        Now::NoSender => sentence.contains("no node that counts has a zone label"),
        Now::Unknown(all) => depends(sentence, all),
        Now::Known(traffic) if local && traffic.dropping.is_empty() => {
            sentence.contains("every node that counts has an endpoint, and none is dropped")
        }
        Now::Known(traffic) if local => names_dropping(sentence, traffic),
        Now::Known(traffic) if traffic.overload.is_empty() => {
            sentence.contains("there is no endpoint, so connections fail")
        }
        Now::Known(traffic) => {
            let far = traffic.rows.iter().filter(|(_, row)| !row.is_near_everywhere());
            let far: Vec<&str> = far.map(|(zone, _)| zone.as_str()).take(5).collect();
            let words = match active(world, now).0 {
                "partlyActive" => format!("not for all nodes of {};", far.join(", ")),
                "active" => traffic.modes().into_iter().collect::<Vec<_>>().join(", "),
                _ => "every node uses all endpoints".into(),
            };
            says_traffic(sentence, traffic) && sentence.contains(&words)
        }
    }
}

/// With each kind of proxy, the figures that it gives.
fn depends(sentence: &str, all: &[Matrix]) -> bool {
    let Some((_, list)) = sentence.split_once("which is not known: with ") else { return false };
    let clauses: Vec<&str> = list.split("; with ").collect();
    all.iter().zip(&PROXIES).all(|(traffic, proxy)| {
        let modes: Vec<String> = traffic.modes().into_iter().collect();
        clauses.iter().any(|clause| {
            let named = clause.split(" or ").any(|name| {
                name.strip_prefix(proxy.name)
                    .is_some_and(|rest| rest.is_empty() || !rest.starts_with(" without"))
            });
            named
                && says_traffic(clause, traffic)
                && clause.ends_with(&format!("({})", modes.join(", ")))
        })
    })
}

/// The nodes that drop traffic are named, at most five of them.
fn names_dropping(sentence: &str, traffic: &Matrix) -> bool {
    let count = traffic.dropping.len();
    let nodes = if count == 1 { "1 node".into() } else { format!("{count} nodes") };
    let Some((first, names)) = sentence.split_once(" without an endpoint: ") else { return false };
    let (names, more) = names.split_once(" and ").unwrap_or((names, ""));
    let names: Vec<&str> = names.split(", ").collect();
    let more_is_true =
        if count > 5 { more == format!("{} more", count - 5) } else { more.is_empty() };
    has_figure(first, traffic.dropped, "of it is dropped")
        && first.ends_with(&format!("that of {nodes}"))
        && names.len() == count.min(5)
        && names.iter().all(|name| traffic.dropping.contains(*name))
        && more_is_true
}

/// The verdict of a Service whose slices the controller does not write.
pub(crate) fn unmanaged(
    report: &mut Report,
    path: &str,
    said: &Value,
    world: &World<'_>,
    now: &Now,
) {
    let (state, word) = active(world, now);
    report.equal(&format!("{path}.state"), &said["state"], state);
    let sentence = text(&said["sentence"]);
    let right = sentence.starts_with(&format!("{word}: ")) && is_true(&sentence, world, now);
    report.holds(&format!("{path}.sentence"), right, format!("{sentence} ({state})"));
    let why = match world.kind() {
        "headless" => "it has no cluster IP",
        "externalName" => "its type is ExternalName",
        "localPolicy" => "internalTrafficPolicy is Local",
        "withoutSelector" => "it has no selector",
        _ => "",
    };
    report.holds(&format!("{path}.why"), text(&said["why"]).contains(why), said);
    if world.kind() != "routed" {
        report.whole(&format!("{path}.needs"), &said["needs"], json!([]));
        report.whole(&format!("{path}.missing"), &said["missing"], json!([]));
    }
}

/// The verdict of a Service whose slices the controller writes.
pub(crate) fn check(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let said = &explanation["verdict"];
    report.equal("explain.serviceKind", &explanation["serviceKind"], facts.world.kind());
    unmanaged(report, "explain.verdict", said, &facts.world, &facts.now(By::Zones));
    if !facts.is_routed() {
        return;
    }
    let needs = needs(facts, explanation);
    // What other writers overrule has no effect, whatever runs.
    let overruled = facts.foreign;
    if !overruled {
        report.whole("explain.verdict.needs", &said["needs"], json!(needs));
        let has = |part: &&str| match *part {
            "controller" => facts.here.has_controller(),
            _ => facts.here.has_proxy(),
        };
        let missing: Vec<&str> = needs.iter().copied().filter(|part| !has(part)).collect();
        report.whole("explain.verdict.missing", &said["missing"], json!(missing));
        why(report, facts, explanation, &needs);
    }
    let names_reason = text(&said["why"]).contains(explanation["reason"].as_str().unwrap());
    report.holds("explain.verdict.why", names_reason, said);
}

/// The cluster with the built-in controller in place of zonewise's.
pub(crate) fn built_in(cluster: &Cluster) -> Cluster {
    Cluster { upstream: true, count_nodes: false, gates_off: Vec::new(), ..cluster.clone() }
}

fn decision(cluster: &Cluster) -> Value {
    cluster.plan(Depth::Arithmetic).0["explanation"].take()
}

/// What of zonewise must run: its proxy, if kube-proxy does something else with what is written; its
/// controller, if the built-in one leaves zone routing off.
fn needs(facts: &Facts<'_>, explanation: &Value) -> Vec<&'static str> {
    if !is_on(explanation) {
        return Vec::new();
    }
    let with = |proxy: usize| matrix(&facts.planned, &facts.family, PROXIES[proxy], By::Zones);
    let (own, kube) = (with(0), with(1));
    let same = own
        .rows
        .values()
        .zip(kube.rows.values())
        .all(|(own, kube)| own.mode() == kube.mode() && rounded(&own.to) == rounded(&kube.to));
    let controller = !same || !is_on(&decision(&built_in(facts.world.cluster)));
    let needed = [(controller, "controller"), (!same, "proxy")];
    needed.into_iter().filter(|(needed, _)| *needed).map(|(_, part)| part).collect()
}

/// A decision is told as the reason only where whoever decides so runs.
fn why(report: &mut Report, facts: &Facts<'_>, explanation: &Value, needs: &[&str]) {
    let (said, here) = (text(&explanation["verdict"]["why"]), &facts.here);
    let runs = |state: &str| ["running", "assumed"].contains(&state);
    let plain = format!("{}: ", text(&explanation["reason"]));
    if here.tells_built_in {
        let would = said.starts_with("if the built-in controller runs here (");
        let right = if runs(here.built_in) { said.starts_with(&plain) } else { would };
        return report.holds("explain.verdict.why", right, &said);
    }
    let agrees = || decision(&built_in(facts.world.cluster))["reason"] == explanation["reason"];
    let decided = here.has_controller() || runs(here.built_in) && agrees();
    let applied = !needs.contains(&"proxy") || here.has_proxy();
    if decided && applied {
        return report.holds("explain.verdict.why", said.starts_with(&plain), &said);
    }
    let nodes = here.proxies.values().filter(|proxy| **proxy == Some(0)).count();
    let all = here.proxies.len();
    let planned = matrix(&facts.planned, &facts.family, PROXIES[0], By::Zones).in_zone;
    let right = said.starts_with("if zonewise ran here (")
        && (decided || said.contains("its controller: "))
        && (applied || said.contains(&format!("its proxy: on {nodes} of {all} nodes")))
        && planned
            .is_none_or(|part| has_figure(&said, part, "of the traffic would stay in its zone"));
    report.holds("explain.verdict.why", right, &said);
}
