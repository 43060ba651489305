//! Which endpoints each node uses, and the matrices of zones that follow from it.

use serde_json::{Value, json};

use super::claims::{Facts, rows};
use super::documents::Cluster;
use super::fields::Report;
use super::figures::{By, Matrix, Node, World, anywhere, mixed_matrix, on_node, usable};
use super::screens::{percent, plain, row, signed, table, text};

fn endpoint(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:8080") } else { format!("{address}:8080") }
}

/// What a node does, from the point of view of both traffic policies.
struct Truth {
    mode: &'static str,
    reason: &'static str,
    /// Endpoints for the policy Cluster, with their parts, and for the policy Local.
    cluster: Option<Vec<(String, f64)>>,
    local: Option<Vec<String>>,
    all: Option<Vec<String>>,
    has_any: bool,
}

fn truth_of(facts: &Facts<'_>, family: &str, node: &Node) -> Truth {
    let world = &facts.world;
    let (has_usable, has_some) = usable(world, family);
    let uses_cluster = !world.is_local() || world.has_node_port();
    let uses_local = world.is_local() || world.is_local_outside();
    let far = anywhere(world, family, node, facts.here.shown(node));
    let near = on_node(world, family, node);
    let names = |to: &[(String, f64)]| -> Vec<String> {
        let mut names: Vec<String> = to.iter().map(|(one, _)| endpoint(one)).collect();
        names.sort();
        names
    };
    let local = Some(names(&near.to)).filter(|list| uses_local && !list.is_empty());
    if !has_some {
        let (mode, reason) = ("any", "NoEndpoints");
        return Truth { mode, reason, cluster: None, local: None, all: None, has_any: false };
    }
    if !uses_cluster {
        let mode = if near.reason == "OnlyTerminating" { "terminating" } else { "local" };
        let all = local.clone();
        return Truth { mode, reason: near.reason, cluster: None, local, all, has_any: has_usable };
    }
    let mut all = names(&far.to);
    // Where all ready endpoints are used, those on this node are among them, unless they are used
    // because none of them is ready.
    all.extend(local.iter().flatten().cloned());
    all.sort();
    all.dedup();
    let has_any = if uses_local { has_usable } else { !far.to.is_empty() };
    let cluster = far.to.into_iter().map(|(one, part)| (endpoint(&one), part)).collect();
    Truth {
        mode: far.mode,
        reason: far.reason,
        cluster: Some(cluster),
        local,
        all: Some(all),
        has_any,
    }
}

/// The list of a document, sorted; `null` and an empty list are the same.
fn sorted(list: &Value) -> Vec<String> {
    let mut list: Vec<String> = list.as_array().into_iter().flatten().map(text).collect();
    list.sort();
    list
}

pub(crate) fn routes(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster) {
    for node in &facts.world.nodes {
        let (lines, screen) = cluster.routes(&node.name);
        report.document("route", &lines);
        let lines = lines.as_array().unwrap();
        let families = facts.world.routed_families();
        report.holds("route[]", lines.len() == families.len(), lines.len());
        for (said, family) in lines.iter().zip(&families) {
            let truth = truth_of(facts, family, node);
            report.equal("route[].service", &said["service"], "shop/web");
            report.equal("route[].port", &said["port"], "http");
            report.equal("route[].protocol", &said["protocol"], "TCP");
            report.equal("route[].family", &said["family"], family.as_str());
            report.equal("route[].mode", &said["mode"], truth.mode);
            report.equal("route[].reason", &said["reason"], truth.reason);
            report.equal("route[].hasAnyEndpoints", &said["hasAnyEndpoints"], truth.has_any);
            let to = truth.cluster.unwrap_or_default();
            let mut names: Vec<&String> = to.iter().map(|(one, _)| one).collect();
            names.sort();
            report.whole("route[].cluster", &json!(sorted(&said["cluster"])), json!(names));
            let local = truth.local.unwrap_or_default();
            report.whole("route[].local", &json!(sorted(&said["local"])), json!(local));
            let all = truth.all.unwrap_or_default();
            report.whole("route[].allReachable", &json!(sorted(&said["allReachable"])), json!(all));
            weights(report, said, &to);
        }
        if !lines.is_empty() {
            routes_screen(report, lines, &plain(&screen));
        }
    }
}

fn routes_screen(report: &mut Report, lines: &[Value], screen: &str) {
    for (shown, said) in table(screen, &["SERVICE", "PORT"]).iter().zip(lines) {
        let truth = [
            ("SERVICE", text(&said["service"])),
            ("FAMILY", text(&said["family"])),
            ("MODE", text(&said["mode"])),
            ("REASON", text(&said["reason"])),
        ];
        row(report, "route screen", shown, &truth);
        let both = ["cluster", "local"].map(|key| said[key].as_array().into_iter().flatten());
        for endpoint in both.into_iter().flatten() {
            let listed = shown["ENDPOINTS"].contains(&text(endpoint));
            report.holds("route screen", listed, screen);
        }
    }
}

fn weights(report: &mut Report, said: &Value, to: &[(String, f64)]) {
    let Some(weights) = said.get("weights").and_then(Value::as_array) else { return };
    let listed = said["cluster"].as_array().unwrap();
    for (endpoint, weight) in listed.iter().zip(weights) {
        let (_, part) = to.iter().find(|(one, _)| *endpoint == **one).unwrap();
        let close = (weight.as_f64().unwrap() - part * 1e6).abs() < 2.0;
        report.holds("route[].weights[]", close, format!("{endpoint} {weight} {part}"));
    }
}

pub(crate) fn matrices(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster) {
    let (documents, screens) = cluster.matrices();
    report.document("matrix", &documents);
    let documents = documents.as_array().unwrap();
    let families = facts.world.routed_families();
    let sends = !facts.world.counted(By::Zones).is_empty();
    let expected = if sends { families.len() } else { 0 };
    report.holds("matrix[]", documents.len() == expected, documents.len());
    for ((said, family), screen) in documents.iter().zip(families).zip(&screens) {
        let proxy_of = |node: &Node| facts.here.shown(node);
        let truth = mixed_matrix(&facts.world, &family, &proxy_of, By::Zones);
        one_matrix(report, "matrix[]", said, &facts.world, &family, &truth);
        matrix_screen(report, said, &plain(screen));
    }
}

/// One matrix of a document.
pub(crate) fn one_matrix(
    report: &mut Report,
    path: &str,
    said: &Value,
    world: &World<'_>,
    family: &str,
    truth: &Matrix,
) {
    report.equal(&format!("{path}.service"), &said["service"], "shop/web");
    report.equal(&format!("{path}.port"), &said["port"], "http");
    report.equal(&format!("{path}.protocol"), &said["protocol"], "TCP");
    report.equal(&format!("{path}.family"), &said["family"], family);
    report.equal(&format!("{path}.inZone"), &said["inZone"], json!(truth.in_zone));
    rows(report, &format!("{path}.from[]"), &said["from"], truth);
    for row in said["from"].as_array().unwrap() {
        let of = &truth.rows[row["zone"].as_str().unwrap()];
        report.equal(&format!("{path}.from[].share"), &row["share"], of.share);
        let to = row["to"].as_object().unwrap();
        report.holds(&format!("{path}.from[].to"), to.len() == of.to.len(), row);
        for (zone, part) in to {
            report.equal(&format!("{path}.from[].to.*"), part, of.to[zone]);
        }
        report.equal(&format!("{path}.from[].dropped"), &row["dropped"], of.dropped);
        ways(report, path, row.get("ways").unwrap_or(&Value::Null), &of.parts());
    }
    report.equal(&format!("{path}.dropped"), &said["dropped"], truth.dropped);
    // Nodes are named where those of one zone can differ.
    let by_node =
        |one: &Value| one["kind"] == "EndpointSlice" && one.to_string().contains("forNodes");
    let differ = world.is_local() || world.cluster.objects.iter().any(by_node);
    let dropping: Vec<&String> = truth.dropping.iter().filter(|_| differ).collect();
    let listed = said.get("droppingNodes").map(sorted).unwrap_or_default();
    report.whole(&format!("{path}.droppingNodes"), &json!(listed), json!(dropping));
    let loads = said["endpoints"].as_array().unwrap();
    report.holds(&format!("{path}.endpoints[]"), loads.len() == truth.overload.len(), loads.len());
    for load in loads {
        let name = load["endpoint"].as_str().unwrap();
        let address = name.strip_suffix(":8080").unwrap().trim_matches(['[', ']']);
        let overload = truth.overload[address];
        report.checks(&format!("{path}.endpoints[].endpoint"));
        report.equal(&format!("{path}.endpoints[].overload"), &load["overload"], overload);
        let zone = &*truth.homes[address];
        report.equal(&format!("{path}.endpoints[].zone"), &load["zone"], zone);
    }
}

fn ways(report: &mut Report, path: &str, said: &Value, truth: &[(&str, &str, f64)]) {
    let (path, said) =
        (format!("{path}.from[].ways"), said.as_array().map_or(&[][..], |said| said));
    report.holds(&path, said.len() == truth.len(), json!(said));
    for (mode, reason, part) in truth {
        let way = said.iter().find(|way| way["mode"] == *mode && way["reason"] == *reason);
        let way = way.unwrap_or(&Value::Null);
        report.equal(&format!("{path}[].mode"), &way["mode"], *mode);
        report.equal(&format!("{path}[].reason"), &way["reason"], *reason);
        report.equal(&format!("{path}[].part"), &way["part"], *part);
    }
}

pub(crate) fn matrix_screen(report: &mut Report, said: &Value, screen: &str) {
    let rows = said["from"].as_array().unwrap();
    for (shown, said) in table(screen, &["FROM", "TRAFFIC"]).iter().zip(rows) {
        let mut truth = vec![
            ("FROM".to_owned(), text(&said["zone"])),
            ("TRAFFIC".to_owned(), percent(&said["share"])),
            ("MODE".to_owned(), text(&said["mode"])),
            ("REASON".to_owned(), text(&said["reason"])),
        ];
        if shown.contains_key("DROPPED") {
            truth.push(("DROPPED".to_owned(), percent(&said["dropped"])));
        }
        for (zone, part) in said["to"].as_object().unwrap() {
            let zone = if zone.is_empty() { "no zone" } else { zone };
            let column = format!("TO {zone}");
            report.holds("matrix screen", shown.contains_key(&column), screen);
            truth.push((column, percent(part)));
        }
        let truth: Vec<(&str, String)> =
            truth.iter().map(|(column, cell)| (&**column, cell.clone())).collect();
        row(report, "matrix screen", shown, &truth);
    }
    let loads = said["endpoints"].as_array().unwrap();
    for (shown, load) in table(screen, &["ENDPOINT", "ZONE"]).iter().zip(loads) {
        let truth =
            [("ENDPOINT", text(&load["endpoint"])), ("OVERLOAD", signed(&load["overload"]))];
        row(report, "matrix screen", shown, &truth);
    }
    let stays = format!("stays in its zone: {}", percent(&said["inZone"]));
    report.holds("matrix screen", screen.contains(&stays), screen);
    let drops = said["dropped"].as_f64().unwrap() > 0.0;
    let dropped = format!("dropped: {}, because", percent(&said["dropped"]));
    report.holds("matrix screen", screen.contains(&dropped) == drops, screen);
    let dropping = said["droppingNodes"].as_array().into_iter().flatten().take(5);
    for node in dropping.map(text) {
        report.holds("matrix screen", screen.contains(&node), screen);
    }
}
