//! The plan of a Service: the slices that would be written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_explain::Depth;

use super::documents::{Cluster, is_on};
use super::fields::Report;
use super::figures::{Node, World};
use super::screens::text;

pub(crate) fn check(
    report: &mut Report,
    cluster: &Cluster,
    settled: &Cluster,
    explanation: &Value,
) {
    let (full, row) = cluster.plan(Depth::Full);
    let (brief, _) = cluster.plan(Depth::Arithmetic);
    report.document("plan", &full);
    let mut same = full["explanation"].clone();
    if let Some(cost) = explanation.get("cost") {
        same["cost"] = cost.clone();
    }
    report.holds("plan.explanation", same == *explanation, "explain says something else");
    for (key, said) in brief["explanation"].as_object().unwrap() {
        if ["reason", "outcome", "endpoints", "asked", "family"].contains(&key.as_str()) {
            report.equal(&format!("plan.explanation.{key}"), said, explanation[key].clone());
        }
    }
    report.equal("plan.service", &full["service"], "shop/web");
    let count = |key: &str| full[key].as_array().unwrap().len();
    for key in ["creates", "updates", "deletes"] {
        report.equal(&format!("explain.slices.{key}"), &explanation["slices"][key], count(key));
    }
    let own =
        |one: &&Value| one["kind"] == "EndpointSlice" && one["metadata"]["name"] != "web-other";
    let after = settled.objects.iter().filter(own).count();
    let mut stored: Vec<String> =
        cluster.objects.iter().filter(own).map(|one| text(&one["metadata"]["name"])).collect();
    let mut named: Vec<String> = Vec::new();
    for key in ["deletes", "unchanged"] {
        named.extend(full[key].as_array().unwrap().iter().map(text));
        report.checks(&format!("plan.{key}[]"));
    }
    let updates = full["updates"].as_array().unwrap().iter();
    named.extend(updates.map(|slice| text(&slice["metadata"]["name"])));
    stored.sort();
    named.sort();
    report.holds("plan.unchanged[]", named == stored, format!("{named:?} {stored:?}"));
    slices(report, settled);
    let writes = match ["creates", "updates", "deletes"].map(count) {
        [0, 0, 0] => "none".to_owned(),
        [creates, updates, deletes] => format!("+{creates} ~{updates} -{deletes}"),
    };
    let mut hints: BTreeMap<String, usize> = BTreeMap::new();
    for slice in settled.objects.iter().filter(own) {
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let zones = endpoint["hints"]["forZones"].as_array().into_iter().flatten();
            zones.for_each(|zone| *hints.entry(text(&zone["name"])).or_default() += 1);
        }
    }
    let hints: Vec<String> = hints.iter().map(|(zone, count)| format!("{zone}:{count}")).collect();
    let hints = if hints.is_empty() { "-".to_owned() } else { hints.join(" ") };
    let why = format!("{row:?} {writes} {hints}");
    let cells = [&text(&explanation["endpoints"]), &after.to_string()];
    let decided = match World::of(cluster).kind() {
        "headless" => row[1] == "(headless)" && row[2] == "-",
        "localPolicy" => row[1] == "(policy Local)" && row[2] == "-",
        _ => {
            let word = if is_on(explanation) { "active" } else { "not active" };
            explanation["reason"] == *row[1] && row[2] == word
        }
    };
    let right = row[0] == "shop/web"
        && decided
        && [&row[3], &row[4]] == cells
        && row[5].starts_with(&writes)
        && row[6] == hints;
    report.holds("plan row", right, why);
}

/// The planned slices hold every Pod that counts once, as it is.
fn slices(report: &mut Report, settled: &Cluster) {
    let world = World::of(settled);
    let own =
        |one: &&Value| one["kind"] == "EndpointSlice" && one["metadata"]["name"] != "web-other";
    let mut names: Vec<&Value> = Vec::new();
    let mut listed: BTreeMap<String, Value> = BTreeMap::new();
    for slice in settled.objects.iter().filter(own) {
        let (meta, labels) = (&slice["metadata"], &slice["metadata"]["labels"]);
        let right = meta["namespace"] == "shop"
            && labels["kubernetes.io/service-name"] == "web"
            && labels["endpointslice.kubernetes.io/managed-by"]
                == "endpointslice-controller.k8s.io"
            && meta["ownerReferences"][0]["uid"] == "svc-uid"
            && !names.contains(&&meta["name"])
            && (slice["endpoints"].as_array().unwrap().is_empty()
                || slice["ports"] == json!([{"name": "http", "protocol": "TCP", "port": 8080}]));
        report.holds("plan slices", right, slice);
        names.push(&meta["name"]);
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let mut endpoint = endpoint.clone();
            endpoint.as_object_mut().unwrap().remove("hints");
            let address = text(&endpoint["addresses"][0]);
            let right = address.contains(':') == (slice["addressType"] == "IPv6");
            let once = listed.insert(address, endpoint).is_none();
            report.holds("plan slices", once && right, slice);
        }
    }
    let mut truth: BTreeMap<String, Value> = BTreeMap::new();
    for pod in world.pods() {
        let Some(node) = world.node(&pod["spec"]["nodeName"]) else { continue };
        let ips = pod["status"]["podIPs"].as_array().unwrap().iter().map(|ip| text(&ip["ip"]));
        let wanted = |ip: &String| {
            let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
            world.families().iter().any(|one| one == family)
        };
        for ip in ips.filter(wanted) {
            truth.insert(ip.clone(), endpoint_of(pod, node, &ip));
        }
    }
    report.holds("plan slices", listed == truth, format!("{listed:#?}\n{truth:#?}"));
    for path in ["plan.creates", "plan.updates"] {
        report.covers(path);
    }
}

/// The endpoint of a Pod, without hints.
fn endpoint_of(pod: &Value, node: &Node, ip: &str) -> Value {
    let terminating = !pod["metadata"]["deletionTimestamp"].is_null();
    let serving = pod["status"]["conditions"][0]["status"] == "True";
    let mut endpoint = json!({
        "addresses": [ip],
        "conditions": {
            "ready": serving && !terminating, "serving": serving, "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod", "namespace": "shop", "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
        "nodeName": node.name,
    });
    if let Some(zone) = &node.zone {
        endpoint["zone"] = (**zone).into();
    }
    endpoint
}
