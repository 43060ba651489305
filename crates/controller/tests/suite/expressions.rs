//! Heuristics of one's own in the running controller: slices, conditions, events, errors, and a file that
//! changes.

use std::path::Path;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, service};
use zonewise_testbed::{Cluster, eventually};

use crate::common::{Running, cluster, condition, hints, slices, turn, zonal_pods};

/// Every endpoint serves its own zone.
const OWN_ZONE: &str = "  - name: example.com/mine\n    endpointZones: '[endpoint.zone]'\n";
/// The same name, with shares instead of hints.
const SHARES: &str =
    "  - name: example.com/mine\n    zoneShares: 'zones.map(z, z.name == zone.name ? 3 : 1)'\n";
/// Right for every cluster whose zones have other names.
const FAILS: &str = "  - name: example.com/fails\n    endpointZones: \"endpoint.zone == 'a' ? ['nowhere'] : [endpoint.zone]\"\n";
/// Not in the first configuration.
const LATER: &str = "  - name: example.com/later\n    endpointZones: '[endpoint.zone]'\n";
const WRONG: &str = "  - name: example.com/mine\n    endpointZones: '[endpoint.zome]'\n";

fn write(file: &Path, heuristics: &[&str]) {
    let head =
        "apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\nheuristics:\n";
    std::fs::write(file, format!("{head}{}", heuristics.concat())).unwrap();
}

/// What a Service has in its slices, and the reasons of its conditions.
async fn state(cluster: &Cluster, name: &str) -> (&'static str, String, String) {
    let slices = slices(cluster, "shop", name).await;
    let shares = slices
        .iter()
        .all(|slice| slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].is_string());
    let written = match (shares, hints(&slices).is_empty()) {
        (true, _) => "shares",
        (false, false) => "hints",
        (false, true) => "nothing",
    };
    let text = |found: Option<(String, String)>| {
        found.map_or(String::new(), |(status, reason)| format!("{status} {reason}"))
    };
    let accepted = condition(cluster, "shop", name, "Accepted").await;
    let programmed = condition(cluster, "shop", name, "Programmed").await;
    (written, text(accepted), text(programmed))
}

/// Waits until the three Services are as expected: what is written, `Accepted` and `Programmed`.
async fn reaches(cluster: &Cluster, expected: [(&str, &str, &str); 3]) {
    eventually(|| async {
        for (name, expected) in ["mine", "fails", "later"].into_iter().zip(expected) {
            let (written, accepted, programmed) = state(cluster, name).await;
            if (written, &*accepted, &*programmed) != expected {
                return Err(format!(
                    "{name}: {written}, {accepted}, {programmed} instead of {expected:?}"
                ));
            }
        }
        Ok(())
    })
    .await;
}

/// The events of a Service: type, reason and message.
async fn events(cluster: &Cluster, name: &str) -> Vec<(String, String, String)> {
    let all = cluster.list("Event", Some("shop")).await.unwrap();
    let about = all.iter().filter(|event| {
        event["involvedObject"]["name"] == name
            && event["reportingComponent"] == "endpoint-slice-controller"
    });
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    about
        .map(|event| (text(event, "type"), text(event, "reason"), text(event, "message")))
        .collect()
}

async fn reloads(running: &Running, result: &str, expected: f64) {
    eventually(|| async {
        let counts = running.metric("zonewise_config_reloads_total").await;
        let found = counts.get(&format!("result=\"{result}\"")).copied().unwrap_or(0.0);
        if found == expected { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_heuristics_of_a_file_that_changes() {
    let _turn = turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 3)).await.unwrap();
    let asking = ["mine", "fails", "later"].map(|name| {
        let mut asking = service("shop", name, "web");
        let value = format!("example.com/{name}");
        asking["metadata"]["annotations"] = json!({ "zonewise.dev/routing-preference": value });
        asking
    });
    cluster.create(&asking).await.unwrap();
    let file = cluster.directory().join("controller.yaml");
    write(&file, &[OWN_ZONE, FAILS]);
    let running = Running::start_with_file(&cluster, &file).await;
    let (accepted, applied) = ("True Accepted", "True ExpressionApplied");
    let fails = ("nothing", accepted, "False ExpressionFailed");
    let unknown = ("nothing", "False PreferenceUnknown", "True ClusterWide");
    reaches(&cluster, [("hints", accepted, applied), fails, unknown]).await;
    eventually(|| async {
        let (mine, fails) = (events(&cluster, "mine").await, events(&cluster, "fails").await);
        match (mine.as_slice(), fails.as_slice()) {
            ([(normal, applied, _)], [(warning, failed, message)])
                if (&**normal, &**applied) == ("Normal", "ExpressionApplied")
                    && (&**warning, &**failed) == ("Warning", "ExpressionFailed")
                    && message.contains("a zone that does not exist") =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    // One expression changes, one comes, one goes: the Services that use them follow.
    write(&file, &[SHARES, LATER]);
    reaches(&cluster, [("shares", accepted, applied), unknown, ("hints", accepted, applied)]).await;
    reloads(&running, "success", 1.0).await;
    // A file that cannot be used changes nothing.
    write(&file, &[WRONG]);
    reloads(&running, "error", 1.0).await;
    reaches(&cluster, [("shares", accepted, applied), unknown, ("hints", accepted, applied)]).await;
    write(&file, &[OWN_ZONE, FAILS]);
    reaches(&cluster, [("hints", accepted, applied), fails, unknown]).await;
    running.stop().await.unwrap();
}
