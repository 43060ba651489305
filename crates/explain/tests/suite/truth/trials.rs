//! Advice is followed and losses happen: the objects are changed here, and the program is asked again.

use serde_json::{Value, json};
use zonewise_explain::Depth;

use super::documents::{Cluster, is_on};
use super::draw::{Dice, ready_pod};
use super::fields::Report;
use super::figures::{By, PROXIES, World, matrix};
use super::here::Here;
use super::verdicts::built_in;

/// The verdict about a cluster.
fn verdict(cluster: &Cluster) -> Value {
    cluster.plan(Depth::Arithmetic).0["explanation"].take()
}

fn named<'a>(cluster: &'a mut Cluster, kind: &str, name: &Value) -> &'a mut Value {
    let mut objects = cluster.objects.iter_mut();
    objects.find(|one| one["kind"] == kind && one["metadata"]["name"] == *name).unwrap()
}

/// Makes a change that was advised.
fn make(change: &Value, cluster: &mut Cluster) {
    let text = |key: &str| change[key].as_str().unwrap().to_owned();
    let service = json!("web");
    match change["kind"].as_str().unwrap() {
        "add-endpoints" => add_endpoints(cluster, &text("zone"), change["count"].as_u64().unwrap()),
        "remove-pod" => cluster.objects.retain(|one| {
            one["kind"] != "Pod" || one["metadata"]["name"] != change["pod"]
        }),
        "label-node" => {
            let labels = &mut named(cluster, "Node", &change["node"])["metadata"]["labels"];
            labels["topology.kubernetes.io/zone"] = text("zone").into();
        }
        "report-cpu" => {
            let known = World::of(cluster).nodes.into_iter().map(|node| node.milli);
            let usual = known.filter(|milli| *milli > 0).min().unwrap_or(4000);
            named(cluster, "Node", &change["node"])["status"]["allocatable"] =
                json!({"cpu": format!("{usual}m")});
        }
        "add-node" => cluster.objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("added-{}", text("zone")), "labels": {"topology.kubernetes.io/zone": text("zone")}},
            "status": {"allocatable": {"cpu": format!("{}m", change["cpu"].as_f64().unwrap() * 1000.0)},
                "conditions": [{"type": "Ready", "status": "True"}]},
        })),
        "annotate" => {
            named(cluster, "Service", &service)["metadata"]["annotations"][text("key")] =
                text("value").into();
        }
        "remove-annotation" => {
            let annotations = &mut named(cluster, "Service", &service)["metadata"]["annotations"];
            annotations.as_object_mut().unwrap().remove(&text("key"));
        }
        "set-traffic-distribution" => {
            named(cluster, "Service", &service)["spec"]["trafficDistribution"] =
                text("value").into();
        }
        "turn-on-gate" => cluster.gates_off.retain(|gate| *gate != text("gate")),
        "count-nodes" => cluster.count_nodes = true,
        other => panic!("unknown change {other}"),
    }
}

/// Adds Pods in a zone, or in a region. The first fitting node gets them all.
fn add_endpoints(cluster: &mut Cluster, place: &str, count: u64) {
    let world = World::of(cluster);
    let mut nodes: Vec<_> = world.nodes.iter().filter(|node| !node.control).collect();
    nodes.sort_by(|a, b| (!a.ready, &a.name).cmp(&(!b.ready, &b.name)));
    let at = |zone: bool| {
        nodes.iter().find(|node| {
            let here = if zone { &node.zone } else { &node.region };
            here.as_deref() == Some(place)
        })
    };
    // Without the step that adds a node there, no Pod can run there.
    let Some(node) = at(true).or_else(|| at(false)) else { return };
    let node = node.name.clone();
    let dual = world.families().len() == 2;
    let first = cluster.objects.len();
    for number in first..first + count as usize {
        let mut ips = vec![json!({"ip": format!("10.7.{}.{}", number / 250, number % 250 + 1)})];
        if dual {
            ips.push(json!({"ip": format!("fd00:7::{number:x}")}));
        }
        cluster.objects.push(ready_pod(&format!("q{number}"), &node, &ips));
    }
}

/// What of zonewise must run for zone routing to be on after some steps: its proxy, if kube-proxy keeps
/// no traffic near; its controller, if a step sets it up, or if with the built-in one zone routing is off or
/// kube-proxy keeps no traffic near.
fn needs(changed: &Cluster, steps: &[Value]) -> Vec<&'static str> {
    let family = verdict(changed)["family"].clone();
    let near_with_kube_proxy = |cluster: &Cluster| {
        let settled = cluster.settled();
        let traffic = matrix(&World::of(&settled), family.as_str().unwrap(), PROXIES[1], By::Zones);
        traffic.rows.values().any(|row| row.is_near())
    };
    let proxy = !near_with_kube_proxy(changed);
    let built_in = built_in(changed);
    let suffices = is_on(&verdict(&built_in)) && near_with_kube_proxy(&built_in);
    let sets_up = |step: &Value| step["kind"] == "turn-on-gate" || step["kind"] == "count-nodes";
    let own = !changed.upstream && steps.iter().any(sets_up);
    let controller = proxy || own || !suffices;
    let needed = [(controller, "controller"), (proxy, "proxy")];
    needed.into_iter().filter(|(needed, _)| *needed).map(|(_, part)| part).collect()
}

/// Every suggestion turns zone routing on, with the reason that it promises, and has no step too many.
pub(crate) fn advice(report: &mut Report, cluster: &Cluster, explanation: &Value) {
    let suggestions = explanation["changes"].as_array().unwrap();
    let here = Here::of(cluster);
    // Without zonewise's controller, there can be advice that works without it.
    let can_have = !is_on(explanation) || !here.has_controller();
    let can_have = can_have && explanation["serviceKind"] == "routed";
    report.holds("explain.changes[]", suggestions.is_empty() || can_have, "it is on");
    for suggestion in suggestions {
        let steps = suggestion["steps"].as_array().unwrap();
        let works_without = suggestion["needs"] == json!([]);
        let cluster = match works_without && !here.has_controller() {
            true => &built_in(cluster),
            false => cluster,
        };
        let after = |left_out: Option<usize>| {
            let mut changed = cluster.clone();
            for (index, step) in steps.iter().enumerate() {
                if Some(index) != left_out {
                    make(step, &mut changed);
                }
            }
            verdict(&changed)
        };
        let then = after(None);
        report.holds("explain.changes[]", is_on(&then), suggestion);
        let mut changed = cluster.clone();
        steps.iter().for_each(|step| make(step, &mut changed));
        let needs = needs(&changed, steps);
        report.whole("explain.changes[].needs", &suggestion["needs"], json!(needs));
        report.equal("explain.changes[].then", &suggestion["then"], then["reason"].clone());
        for index in (0..steps.len()).filter(|_| steps.len() > 1) {
            let needless = format!("{suggestion} without step {index}");
            report.holds("explain.changes[].steps", !is_on(&after(Some(index))), needless);
        }
        report.covers("explain.changes[].steps");
        let sentences = suggestion["sentences"].as_array().unwrap();
        report.holds("explain.changes[].sentences", sentences.len() == steps.len(), suggestion);
        for (step, sentence) in steps.iter().zip(sentences) {
            let right = says(cluster, step, sentence.as_str().unwrap());
            report.holds("explain.changes[].sentences[]", right, suggestion);
        }
    }
}

/// Every improvement gives the figures that it promises, which are better.
pub(crate) fn improvements(report: &mut Report, cluster: &Cluster, explanation: &Value) {
    let improvements = explanation["improvements"].as_array().unwrap();
    let all_on = improvements.is_empty() || is_on(explanation);
    report.holds("explain.improvements[]", all_on, "it is off");
    for improvement in improvements {
        let steps = improvement["steps"].as_array().unwrap();
        let mut changed = cluster.clone();
        steps.iter().for_each(|step| make(step, &mut changed));
        let then = verdict(&changed);
        let settled = changed.settled();
        let family = then["family"].as_str().unwrap();
        let traffic = matrix(&World::of(&settled), family, PROXIES[0], By::Zones);
        let most = traffic.overload.values().copied().fold(-1.0, f64::max);
        report.equal("explain.improvements[].then", &improvement["then"], then["reason"].clone());
        let (in_zone, path) = (traffic.in_zone.unwrap(), "explain.improvements[]");
        report.equal(&format!("{path}.inZone"), &improvement["inZone"], in_zone);
        report.equal(&format!("{path}.maxOverload"), &improvement["maxOverload"], most);
        let before = explanation["inZone"]["planned"].as_f64().unwrap();
        let zones = explanation["zones"].as_array().unwrap().iter();
        let loads = zones.filter_map(|zone| zone["overload"].as_f64());
        let better = in_zone > before + 1e-9 || most < loads.fold(-1.0, f64::max) - 1e-9;
        report.holds(path, better, improvement);
        for (step, sentence) in steps.iter().zip(improvement["sentences"].as_array().unwrap()) {
            let right = says(cluster, step, sentence.as_str().unwrap());
            report.holds("explain.improvements[].sentences[]", right, improvement);
        }
        report.covers("explain.improvements[].steps");
    }
}

/// Whether a sentence says what a step does: a command has the same effect, other words name everything.
fn says(cluster: &Cluster, step: &Value, sentence: &str) -> bool {
    if sentence.starts_with("kubectl ") {
        let (mut by_step, mut by_command) = (cluster.clone(), cluster.clone());
        make(step, &mut by_step);
        run(sentence, &mut by_command);
        return by_step.objects == by_command.objects;
    }
    let named = |(key, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        key == "kind" || sentence.contains(text.strip_suffix(".0").unwrap_or(&text))
    };
    step.as_object().unwrap().iter().all(named)
}

/// The words of a command; what is between single quotes is one word.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        for (index, word) in part.split(' ').enumerate() {
            if index > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(word);
        }
    }
    words.retain(|word| !word.is_empty() && word != "--overwrite");
    words
}

/// Does what kubectl does with a command.
fn run(command: &str, cluster: &mut Cluster) {
    if let Some(gate) = command.strip_prefix("start the controller with --feature-gates ") {
        return cluster.gates_off.retain(|off| Some(*off) != gate.strip_suffix("=true"));
    }
    let words = words(command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["kubectl", "-n", "shop", verb, "service", "web", rest @ ..] = &words[..] else {
        panic!("unknown command {command}");
    };
    let service = named(cluster, "Service", &json!("web"));
    match (*verb, rest) {
        ("annotate", [change]) => match change.split_once('=') {
            Some((key, value)) => service["metadata"]["annotations"][key] = value.into(),
            None => {
                let key = change.strip_suffix('-').unwrap();
                service["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
            }
        },
        ("patch", ["-p", patch]) => {
            let patch: Value = serde_json::from_str(patch).unwrap();
            let value = &patch["spec"]["trafficDistribution"];
            service["spec"]["trafficDistribution"] = value.clone();
        }
        _ => panic!("unknown command {command}"),
    }
}

/// After the commands for a key that is ignored, nothing is ignored for that reason any more.
pub(crate) fn ignored(report: &mut Report, cluster: &Cluster, explanation: &Value) {
    for note in explanation["notes"].as_array().unwrap() {
        let mut changed = cluster.clone();
        let commands = note["commands"].as_array().unwrap();
        commands.iter().for_each(|command| run(command.as_str().unwrap(), &mut changed));
        report.checks("explain.notes[].commands[]");
        let then = verdict(&changed);
        let same = |other: &Value| {
            ["source", "value", "reason"].iter().all(|key| other[*key] == note[*key])
        };
        let still = then["notes"].as_array().unwrap().iter().any(same);
        report.holds("explain.notes[].commands[]", commands.is_empty() || !still, note);
    }
}

/// The most choices of lost endpoints that are tried.
const CHOICES: usize = 60;

/// All choices of `count` of the names, or some at random if there are too many.
fn choices<'a>(dice: &mut Dice, names: &[&'a str], count: usize) -> (Vec<Vec<&'a str>>, bool) {
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    for (index, name) in names.iter().enumerate() {
        let rest = names.len() - index - 1;
        let with = |chosen: &Vec<&'a str>| [&chosen[..], &[*name]].concat();
        let more: Vec<Vec<&str>> =
            all.iter().filter(|chosen| chosen.len() < count).map(with).collect();
        all.retain(|chosen| chosen.len() + rest >= count);
        all.extend(more);
        if all.len() > 5000 {
            break;
        }
    }
    all.retain(|chosen| chosen.len() == count);
    let complete = all.len() <= CHOICES;
    while all.len() > CHOICES {
        all.swap_remove(dice.below(all.len()));
    }
    (all, complete)
}

fn without_pods(cluster: &Cluster, gone: &[&str]) -> Value {
    verdict(&cluster.without(|one| {
        one["kind"] == "Pod" && gone.iter().any(|name| one["metadata"]["name"] == **name)
    }))
}

/// What is said to survive survives, and what is said to turn it off does.
pub(crate) fn losses(report: &mut Report, cluster: &Cluster, explanation: &Value) {
    let margin = &explanation["margin"];
    let on = is_on(explanation) && explanation["serviceKind"] == "routed";
    report.holds("explain.margin", margin.is_null() != on, margin);
    if margin.is_null() {
        return;
    }
    let settled = cluster.settled();
    let dice = &mut Dice::new(report.seed ^ 0x5eed);
    let world = World::of(&settled);
    let zone_of =
        |pod: &Value| world.node(&pod["spec"]["nodeName"]).and_then(|node| node.zone.clone());
    let places: Vec<String> = world.places(By::Zones).into_keys().collect();
    for key in ["endpoints", "zones"] {
        let rows = margin[key].as_array().unwrap();
        let zones: Vec<&Value> = rows.iter().map(|row| &row["zone"]).collect();
        report.whole(&format!("explain.margin.{key}[].zone"), &json!(zones), json!(places));
    }
    for loss in margin["endpoints"].as_array().unwrap() {
        let here = |pod: &&&Value| {
            World::is_ready(pod) && zone_of(pod).as_deref() == loss["zone"].as_str()
        };
        let pods = world.pods();
        let names: Vec<&str> =
            pods.iter().filter(here).map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
        report.equal("explain.margin.endpoints[].has", &loss["has"], names.len());
        let survives = loss["survives"].as_u64().unwrap() as usize;
        for count in 1..=survives {
            for gone in choices(dice, &names, count).0 {
                let then = without_pods(&settled, &gone);
                let why = format!("{loss}, but not {gone:?}: {}", then["reason"]);
                report.holds("explain.margin.endpoints[].survives", is_on(&then), why);
            }
        }
        if loss["then"].is_null() {
            report.holds("explain.margin.endpoints[].then", survives == names.len(), loss);
            continue;
        }
        let (all, complete) = choices(dice, &names, survives + 1);
        let off = |gone: &Vec<&str>| Some(without_pods(&settled, gone)).filter(|then| !is_on(then));
        let found: Vec<Value> = all.iter().filter_map(off).collect();
        let promised = |then: &Value| then["reason"] == loss["then"];
        let truth = found.iter().any(promised) || !complete;
        report.holds("explain.margin.endpoints[].then", truth, loss);
    }
    lost_nodes(report, &settled, &world, margin);
    for zone in margin["zones"].as_array().unwrap() {
        let gone: Vec<&str> = world
            .nodes
            .iter()
            .filter(|node| node.zone.as_deref() == zone["zone"].as_str())
            .map(|node| &*node.name)
            .collect();
        let then = verdict(&without_nodes(&settled, &gone));
        report.equal("explain.margin.zones[].survives", &zone["survives"], is_on(&then));
        let reason = if is_on(&then) { Value::Null } else { then["reason"].clone() };
        report.equal("explain.margin.zones[].then", &zone["then"], reason);
    }
}

fn without_nodes(cluster: &Cluster, gone: &[&str]) -> Cluster {
    cluster.without(|one| {
        let is_gone = |name: &Value| gone.iter().any(|gone| *name == **gone);
        (one["kind"] == "Node" && is_gone(&one["metadata"]["name"]))
            || (one["kind"] == "Pod" && is_gone(&one["spec"]["nodeName"]))
    })
}

/// The critical nodes are those without which zone routing is off.
fn lost_nodes(report: &mut Report, settled: &Cluster, world: &World<'_>, margin: &Value) {
    let critical = margin["criticalNodes"].as_array().unwrap();
    let mut in_all = 0;
    for node in &world.nodes {
        let then = verdict(&without_nodes(settled, &[&node.name]));
        let named = critical.iter().find(|one| one["node"] == *node.name);
        in_all += usize::from(!is_on(&then));
        match named {
            Some(named) => {
                report.checks("explain.margin.criticalNodes[].node");
                report.holds("explain.margin.criticalNodes[]", !is_on(&then), named);
                report.equal(
                    "explain.margin.criticalNodes[].then",
                    &named["then"],
                    then["reason"].clone(),
                );
            }
            None if critical.len() < 10 => {
                let why = format!("{} is not named: {}", node.name, then["reason"]);
                report.holds("explain.margin.criticalNodes[]", is_on(&then), why);
            }
            None => {}
        }
    }
    report.equal("explain.margin.criticalNodesInAll", &margin["criticalNodesInAll"], in_all);
}
