//! `zonewise evacuate` and `zonewise restore` as people run them, on a real API server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use zonewise_testbed::{Lent, User};

use crate::nodes::{define_evacuations, plain_cluster};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A real API server that knows ZoneEvacuations.
async fn cluster() -> (Lent, PathBuf) {
    let cluster = plain_cluster().await;
    define_evacuations(&cluster).await;
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    (cluster, kubeconfig)
}

fn run(arguments: &[&str], kubeconfig: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
    command.output().unwrap()
}

async fn run_async(arguments: &'static [&'static str], kubeconfig: &Path) -> (i32, String, String) {
    let kubeconfig = kubeconfig.to_owned();
    let ran = tokio::task::spawn_blocking(move || run(arguments, &kubeconfig)).await.unwrap();
    (ran.status.code().unwrap(), text(&ran.stdout), text(&ran.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_says_what_it_would_mean_and_what_stands_in_the_way() {
    use zonewise_testbed::objects::{node, pod, service};
    let (cluster, kubeconfig) = cluster().await;
    let nodes = ["a", "b", "c"].map(|zone| node(zone, zone, "4"));
    cluster.create(&nodes).await.unwrap();
    cluster
        .create(&[service("default", "web", "web"), service("default", "db", "db")])
        .await
        .unwrap();
    let web = (0..6).map(|n| {
        pod(
            "default",
            &format!("web-{n}"),
            "web",
            ["a", "b", "c"][n % 3],
            &format!("10.4.0.{}", n + 1),
        )
    });
    let db = pod("default", "db-0", "db", "a", "10.4.1.1");
    cluster.create(&web.chain([db]).collect::<Vec<_>>()).await.unwrap();

    let (code, out, err) = run_async(&["evacuate", "a"], &kubeconfig).await;
    let expected = "\
Emptying zone a
SERVICE      NOTE                                                         ENDPOINTS IN ZONE  ELSEWHERE  BUSIEST ENDPOINT
default/web                                                                     2          4             150 %
default/db   stays: no ready endpoint outside the zone serves the same ports        1          0             100 %

The other zones can take it: 2 endpoints of 2 Services would be taken out of use, and no endpoint elsewhere would get more than 160 % of its present load.
Nothing was changed; add --yes to do it.
";
    let spaces = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((code, spaces(&out)), (0, spaces(expected)), "{out}{err}");
    assert_eq!(cluster.list("ZoneEvacuation", None).await.unwrap(), Vec::<Value>::new());

    let (code, out, err) =
        run_async(&["evacuate", "a", "--limit", "149", "--yes", "-o", "json"], &kubeconfig).await;
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("run more endpoints in other zones"), "{err}");
    assert_eq!(cluster.list("ZoneEvacuation", None).await.unwrap(), Vec::<Value>::new());

    let rows: [(&'static [&'static str], i32, &str); 4] = [
        (&["evacuate", "d"], 1, "no node is in zone `d`; there are: a, b, c"),
        (&["evacuate", "a", "--for", "1m"], 2, "there and back takes 5m0s at least"),
        (&["evacuate", "a", "--step", "1500ms"], 2, "--step has to be whole seconds"),
        (&["restore", "a"], 1, "zone a is not being emptied"),
    ];
    for (arguments, code, message) in rows {
        let (ended, _, err) = run_async(arguments, &kubeconfig).await;
        assert_eq!((ended, err.contains(message)), (code, true), "{arguments:?}: {err}");
    }

    // Nobody carries it out here: the object is written, and that is said.
    let (code, out, err) =
        run_async(&["evacuate", "a", "--yes", "--no-wait", "-o", "json"], &kubeconfig).await;
    assert_eq!(code, 0, "{err}");
    let written: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&written["name"], &written["spec"]["zone"]), (&json!("a"), &json!("a")));
    assert_eq!(cluster.list("ZoneEvacuation", None).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_know_evacuations_is_named_as_the_cause() {
    use zonewise_testbed::objects::node;
    let cluster = plain_cluster().await;
    cluster.create(&[node("a", "a", "4"), node("b", "b", "4")]).await.unwrap();
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let (code, _, err) = run_async(&["evacuate", "a", "--yes"], &kubeconfig).await;
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains("the CustomResourceDefinition of ZoneEvacuations is not installed"),
        "{err}"
    );
    assert!(err.contains("deploy/controller/crd.yaml"), "{err}");
}

#[test]
fn plan_and_explain_know_that_a_zone_is_being_emptied() {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let object = "{apiVersion: zonewise.dev/v1alpha1, kind: ZoneEvacuation, metadata: {name: eu-a}, \
        spec: {zone: eu-a, deadline: '2026-05-01T12:00:00Z'}, status: {phase: Empty, percent: 0}}";
    file.write_all(object.as_bytes()).unwrap();
    let answer = |arguments: &[&str]| -> Value {
        let mut command = Command::new(PROGRAM);
        command.current_dir(ROOT).args(arguments).args(["-o", "json", "-f", "examples/shop"]);
        command.args(["-f", "examples/shop-slices.yaml", "-f"]).arg(file.path());
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    let explanation = answer(&["explain", "shop/web"]);
    let notes = explanation["notes"].as_array().unwrap();
    let note = notes.iter().find(|note| note["reason"] == "ZoneBeingEmptied");
    let note = note.unwrap_or_else(|| panic!("{notes:#?}"));
    assert_eq!(
        (&note["source"], &note["value"], &note["commands"]),
        (
            &json!("zone eu-a"),
            &json!("0 % of its endpoints are in use"),
            &json!(["zonewise restore eu-a"])
        )
    );
    let plan = answer(&["plan", "--service", "shop/web"]);
    let updates = plan["services"][0]["updates"].as_array().unwrap().iter();
    let endpoints = updates.flat_map(|slice| slice["endpoints"].as_array().unwrap());
    let of_zone: Vec<&Value> = endpoints.filter(|one| one["zone"] == "eu-a").collect();
    let aside = json!({ "ready": false, "serving": true, "terminating": true });
    assert!(
        !of_zone.is_empty() && of_zone.iter().all(|one| one["conditions"] == aside),
        "{plan:#}"
    );
}
