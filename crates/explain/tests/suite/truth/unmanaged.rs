//! Services whose slices the controller does not write.

use serde_json::{Value, json};
use zonewise_explain::screens::Width;

use super::claims::Facts;
use super::documents::Cluster;
use super::fields::Report;
use super::figures::{By, World, ready_in_slices};
use super::here::{self, Here};
use super::screens::{plain, text};
use super::verdicts;
use super::{overview, routes};

/// Checks all documents and screens about such a Service.
pub(crate) fn check(report: &mut Report, cluster: &Cluster) {
    let world = World::of(cluster);
    let family = world.families()[0].clone();
    let facts = Facts {
        planned: World::of(cluster),
        world,
        family,
        by: By::Zones,
        foreign: false,
        here: Here::of(cluster),
    };
    here::check(report, cluster, &facts.here);
    let (said, screen) = cluster.unmanaged(Width::Wide);
    explanation(report, &facts, &said, &plain(&screen));
    overview(report, &facts, cluster);
    routes::routes(report, &facts, cluster);
    routes::matrices(report, &facts, cluster);
}

fn explanation(report: &mut Report, facts: &Facts<'_>, said: &Value, screen: &str) {
    report.document("unmanaged", said);
    report.equal("unmanaged.service", &said["service"], "shop/web");
    report.equal("unmanaged.serviceKind", &said["serviceKind"], facts.world.kind());
    let now = facts.now(By::Zones);
    verdicts::unmanaged(report, "unmanaged.verdict", &said["verdict"], &facts.world, &now);
    let objects = facts.world.cluster.objects.iter();
    let slices = objects.filter(|one| one["kind"] == "EndpointSlice");
    let mut names: Vec<String> = slices.map(|one| text(&one["metadata"]["name"])).collect();
    names.sort();
    report.whole("unmanaged.slices", &said["slices"], json!(names));
    let listed = if names.is_empty() { "none".into() } else { names.join(", ") };
    report.holds(
        "unmanaged screen",
        screen.contains(&format!("slices of others: {listed}")),
        screen,
    );
    let first = format!("shop/web: {}", text(&said["verdict"]["sentence"]));
    let lines = [first, format!("why: {}", text(&said["verdict"]["why"]))];
    for line in lines {
        report.holds("unmanaged screen", screen.contains(&line), screen);
    }
    match now.matrix() {
        Some(truth) => {
            let (world, traffic) = (&facts.world, &said["traffic"]);
            routes::one_matrix(report, "unmanaged.traffic", traffic, world, &facts.family, truth);
            routes::matrix_screen(report, &said["traffic"], screen);
        }
        None => report.equal("unmanaged.traffic", &said["traffic"], Value::Null),
    }
}

fn overview(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster) {
    let (said, screen) = cluster.overview();
    report.document("overview", &said);
    report.equal("overview.service", &said["service"], "shop/web");
    report.equal("overview.serviceKind", &said["serviceKind"], facts.world.kind());
    let ready = ready_in_slices(&facts.world, &facts.family);
    report.equal("overview.endpoints", &said["endpoints"], ready);
    for key in ["reason", "outcome", "best"] {
        report.equal(&format!("overview.{key}"), &said[key], Value::Null);
    }
    for key in ["asked", "source"] {
        report.equal(&format!("overview.{key}"), &said[key], "");
    }
    report.holds("overview.cost", said.get("cost").is_none(), &said);
    overview::traffic_now(report, &said, &facts.world, &facts.now(By::Zones));
    overview::overview_screen(report, &said, &plain(&screen), &facts.here);
}
