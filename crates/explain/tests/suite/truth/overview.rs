//! The overview of all Services: its rows and its screen.

use serde_json::{Value, json};

use super::claims::{Facts, check_cost};
use super::documents::Cluster;
use super::fields::Report;
use super::figures::{By, Matrix, World};
use super::here::{Here, Now};
use super::screens::{MARKS, percent, plain, row, signed, table, text};
use super::verdicts;

pub(crate) fn check(
    report: &mut Report,
    facts: &Facts<'_>,
    cluster: &Cluster,
    explanation: &Value,
) {
    let (said, screen) = cluster.overview();
    report.document("overview", &said);
    for key in ["service", "endpoints", "serviceKind"] {
        report.equal(&format!("overview.{key}"), &said[key], explanation[key].clone());
    }
    for key in ["reason", "outcome"] {
        let decided = if facts.is_routed() { explanation[key].clone() } else { Value::Null };
        report.equal(&format!("overview.{key}"), &said[key], decided);
    }
    report.equal("overview.asked", &said["asked"], explanation["asked"]["value"].clone());
    report.equal("overview.source", &said["source"], explanation["asked"]["source"].clone());
    traffic_now(report, &said, &facts.world, &facts.now(By::Zones));
    let best = facts.world.best(&facts.family, By::Zones).filter(|_| facts.is_routed());
    report.equal("overview.best", &said["best"], json!(best));
    check_cost(report, "overview.cost", said.get("cost"), facts);
    let places = facts.world.places(By::Zones).into_keys();
    let bare = facts.by == By::Zones && !facts.endpoints().is_empty();
    let bare: Vec<String> = places.filter(|name| bare && facts.endpoints_at(name) == 0).collect();
    report.whole("overview.zonesWithoutEndpoints", &said["zonesWithoutEndpoints"], json!(bare));
    report.whole("overview.ignored", &said["ignored"], own_notes(explanation));
    for score in explanation["inZoneByHeuristic"].as_array().unwrap() {
        let name = score["heuristic"].as_str().unwrap();
        if let Some(said) = said["byHeuristic"].get(name) {
            report.equal("overview.byHeuristic.*", said, score["inZone"].clone());
        }
    }
    overview_screen(report, &said, &plain(&screen), &facts.here);
}

/// What the overview says of the traffic of a Service.
pub(crate) fn traffic_now(report: &mut Report, said: &Value, world: &World<'_>, now: &Now) {
    report.equal("overview.state", &said["state"], verdicts::active(world, now).0);
    let in_zone = now.in_zone();
    report.equal("overview.inZone", &said["inZone"], json!(in_zone));
    report.equal("overview.crossZone", &said["crossZone"], json!(in_zone.map(|part| 1.0 - part)));
    let matrix = now.matrix();
    let most = matrix.and_then(Matrix::most);
    report.equal("overview.maxOverload", &said["maxOverload"], json!(most));
    let dropped = matrix.map(|matrix| matrix.dropped);
    report.equal("overview.dropped", &said["dropped"], json!(dropped));
    let modes = matrix.map(Matrix::modes).unwrap_or_default();
    report.whole("overview.modes", &said["modes"], json!(modes));
}

/// What is ignored of the Service itself.
fn own_notes(explanation: &Value) -> Value {
    let notes = explanation["notes"].as_array().unwrap().iter();
    notes.filter(|note| note["source"] != "slices of other writers").cloned().collect()
}

pub(crate) fn overview_screen(report: &mut Report, said: &Value, screen: &str, here: &Here) {
    let shown = table(screen, &["SERVICE"]);
    let modes: Vec<String> = said["modes"].as_array().unwrap().iter().map(text).collect();
    let modes = if modes.is_empty() { "-".to_owned() } else { modes.join(",") };
    let ignored = said["ignored"].as_array().unwrap();
    let asked = text(&said["asked"]);
    let asked_cell = match asked.strip_prefix("zonewise.dev/").unwrap_or(&asked) {
        "" => "-".to_owned(),
        asked => asked.to_owned(),
    };
    let money = |of: &dyn Fn(&Value) -> f64| {
        said.get("cost").map_or_else(|| "-".to_owned(), |cost| format!("{:.2}", of(cost)))
    };
    let paid = |cost: &Value, key: &str| cost[key].as_f64().unwrap();
    let running = |state: &str| ["running", "assumed"].contains(&state);
    let reason_title = match here.tells_built_in {
        true if running(here.built_in) => "REASON",
        true => "IF BUILT-IN RAN",
        false if running(here.controller) => "REASON",
        false => "IF ZONEWISE RAN",
    };
    report.holds("overview screen", shown[0].contains_key(reason_title), screen);
    let reason = match said["serviceKind"].as_str().unwrap() {
        "headless" => "(headless)".into(),
        "externalName" => "(ExternalName)".into(),
        "withoutSelector" => "(no selector)".into(),
        "localPolicy" => "(policy Local)".into(),
        _ => text(&said["reason"]),
    };
    let (active, counted) = match said["state"].as_str().unwrap() {
        "active" => ("yes", "is active for 1 of 1 Service"),
        "partlyActive" => ("partly", "is active for 0 of 1 Service, partly active for 1"),
        "notActive" => ("no", "is active for 0 of 1 Service"),
        "local" => ("local", "is active for 0 of 1 Service"),
        "notApplicable" => ("-", "is active for 0 of 1 Service"),
        _ => ("unknown", "is active for 0 of 1 Service, unknown for 1"),
    };
    let first = screen.lines().next().unwrap();
    report.holds("overview screen", first.ends_with(counted), screen);
    let model = |name: &str| percent(said["byHeuristic"].get(name).unwrap_or(&Value::Null));
    let truth = [
        ("SERVICE", text(&said["service"])),
        ("ASKED", asked_cell),
        ("MODE", modes),
        ("ACTIVE", active.to_owned()),
        (reason_title, reason),
        ("ENDPOINTS", text(&said["endpoints"])),
        ("IN ZONE", percent(&said["inZone"])),
        ("CROSSES", percent(&said["crossZone"])),
        ("AUTO (MODEL)", model("auto")),
        ("SAME-ZONE (MODEL)", model("same-zone")),
        ("BALANCED (MODEL)", model("balanced")),
        ("BEST SAFE", percent(&said["best"])),
        ("OVERLOAD", signed(&said["maxOverload"])),
        ("COST", money(&|cost| paid(cost, "now"))),
        ("CAN SAVE", money(&|cost| paid(cost, "now") - paid(cost, "best"))),
    ];
    let marks = shown[0].get(MARKS).map_or("", String::as_str);
    report.holds("overview screen", marks.contains('!') != ignored.is_empty(), screen);
    report.holds("overview screen", marks.contains('~') == is_poor(said), screen);
    row(report, "overview screen", &shown[0], &truth);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for note in ignored {
        let shown = words(screen).contains(&words(&text(&note["sentence"])));
        report.holds("overview screen", shown, screen);
    }
}

/// Whether traffic is kept near, but an endpoint gets far more than its share, or a zone has none.
fn is_poor(said: &Value) -> bool {
    let near = ["same-node", "same-zone", "shares"];
    let on =
        said["modes"].as_array().unwrap().iter().any(|mode| near.iter().any(|one| mode == one));
    let overloaded = said["maxOverload"].as_f64().is_some_and(|most| most > 0.200_001);
    on && (overloaded || said["zonesWithoutEndpoints"] != json!([]))
}
