//! `zonewise evacuate` and `zonewise restore` as people run them, and zones that are emptied under load: a lab on a real
//! API server, with real kernels and real connections, and nodes whose connections fail.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_common::clock;
use zonewise_common::time::timestamp;
use zonewise_controller::config::{Config, DemandConfig, Source};
use zonewise_controller::evacuation::{self, EvacuationSpec, EvacuationStatus, Phase};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::{Cluster, User, eventually, manifests};

use crate::demand::{apply_demand_roles, config, run_controller, token_file};
use crate::nodes::connections::Connections;
use crate::nodes::{self, TestNodes, cluster_ip, pod_object, service_object, stored};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Three Services with different routing. The lab compares an endpoint with its fair share among all Pods, those that
/// are taken out of use included; the limit of an evacuation is 160 % of that, where routing is even before.
const UNDER_LOAD: &str = "
title: A zone is emptied
cluster: {zones: [{name: a, nodes: 2}, {name: b, nodes: 2}, {name: c, nodes: 2}]}
services:
  - {name: near, endpoints: {a: 4, b: 4, c: 4}, connections: 150, trafficDistribution: PreferClose}
  - name: balanced
    endpoints: {a: 4, b: 4, c: 4}
    connections: 150
    annotations: {zonewise.dev/routing-preference: zonewise.dev/balanced}
  - {name: plain, endpoints: {a: 2, b: 2, c: 2}, connections: 100}
acts:
  - title: In use
    measure: 3s
    expect: {service: near, inZone: {atLeast: 100%}}
  - title: Empty
    do: [{evacuate: {zone: a, step: 4s}}]
    measure: 5s
    expect: {service: near, inZone: {atLeast: 60%, atMost: 68%}, overload: {atMost: 60%}}
    beside:
      - {service: balanced, overload: {atMost: 60%}}
      - {service: plain, overload: {atMost: 60%}}
  - title: In use again
    do: [{giveBack: {zone: a}}]
    measure: 3s
    expect: {service: near, inZone: {atLeast: 100%}}
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A real API server that knows ZoneEvacuations.
async fn cluster() -> (Cluster, PathBuf) {
    let cluster = Cluster::start().await.unwrap();
    define_evacuations(&cluster).await;
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    (cluster, kubeconfig)
}

async fn define_evacuations(cluster: &Cluster) {
    let definition = manifests(format!("{ROOT}/deploy/controller/crd.yaml")).unwrap();
    cluster.create(&definition).await.unwrap();
    eventually(|| async {
        let answer = cluster.list("ZoneEvacuation", None).await;
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
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

/// Connections of an act to a zone's endpoints, by the zone that they come from.
fn to_zone(act: &Value, zone: usize) -> u64 {
    let rows = act["matrix"]["connections"].as_array();
    let rows = rows.unwrap_or_else(|| panic!("{:#}", act["matrix"]));
    rows.iter().map(|row| row[zone].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_a_zone_is_emptied_and_restored_without_a_failed_connection() {
    let (_cluster, kubeconfig) = cluster().await;
    let mut scenario = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    scenario.write_all(UNDER_LOAD.as_bytes()).unwrap();
    let (file, api) = (scenario.path().to_owned(), kubeconfig.clone());
    let lab = move || {
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "-o", "json", "--scenario"]).arg(file).arg("--api").arg(api);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let ran = tokio::task::spawn_blocking(lab).await.unwrap();
    let summary: Value = serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&ran.stdout), text(&ran.stderr)));
    assert!(ran.status.success(), "{summary:#} {}", text(&ran.stderr));
    assert_eq!((&summary["held"], &summary["failed"]), (&json!(true), &json!(0)), "{summary:#}");
    let acts = summary["acts"].as_array().unwrap();
    let of = |title: &'static str| acts.iter().filter(move |act| act["title"] == title);
    assert!(of("In use").chain(of("In use again")).all(|act| to_zone(act, 0) > 0), "{summary:#}");
    // One for each of the three Services.
    let to_empty: Vec<u64> = of("Empty").map(|act| to_zone(act, 0)).collect();
    assert_eq!(to_empty, [0, 0, 0], "no new connection uses the zone: {summary:#}");
}

/// Three nodes in three zones whose proxies count, each with two Pods that serve and one that calls, and a controller that
/// asks the proxies every few seconds. The Service's demand is not measured: its failed connections are watched for the
/// sake of the evacuation alone.
struct Watched {
    cluster: Cluster,
    nodes: TestNodes,
    connections: Vec<Connections>,
    shutdown: Shutdown,
    controller: std::thread::JoinHandle<()>,
}

impl Watched {
    async fn new() -> Self {
        const ZONES: [(&str, &str); 3] = [("n1", "a"), ("n2", "b"), ("n3", "c")];
        let cluster = nodes::cluster().await;
        define_evacuations(&cluster).await;
        apply_demand_roles(&cluster).await;
        let mut nodes = TestNodes::new();
        let mut objects = Vec::new();
        for (node, zone) in ZONES {
            objects.push(nodes.add(&cluster, node, zone));
            for n in [1, 2] {
                let pod = nodes.add_server(node, &format!("{zone}{n}"));
                objects.push(pod_object(&pod, "web"));
            }
        }
        let callers = ZONES.map(|(node, _)| nodes.add_pod(node, &format!("ask-{node}")));
        objects.push(service_object("web", "web", &json!({})));
        cluster.create(&objects).await.unwrap();
        for (node, _) in ZONES {
            let flags = ["--count=services", "--demand-address=0.0.0.0:10274"];
            nodes.start_proxy(&cluster, node, &flags);
        }
        let token_file = token_file(&cluster).await;
        let demand =
            DemandConfig { source: Source::Proxies, token_file, ..DemandConfig::default() };
        let config = config(demand);
        let demand = DemandConfig { period: Duration::from_secs(3), ..config.demand };
        let (config, shutdown) = (Config { demand, ..config }, Shutdown::manual());
        let controller = run_controller(&cluster, &nodes, config, shutdown.clone());
        let to = cluster_ip(&stored(&cluster, "web").await, false);
        eventually(|| async {
            let pages = ZONES.map(|(node, _)| nodes.page(node, 10249, "/routes"));
            let uses_endpoints = |page: &Option<String>| {
                page.iter().any(|page| page.contains("\"reason\":\"NoHints\""))
            };
            if pages.iter().all(uses_endpoints) { Ok(()) } else { Err(format!("{pages:?}")) }
        })
        .await;
        // Each caller at the same pace, whether its connections are accepted or not.
        let calls = callers.map(|caller| Connections::start(vec![(caller.namespace, to)]));
        Self { cluster, nodes, connections: calls.into(), shutdown, controller }
    }

    async fn status(&self) -> EvacuationStatus {
        let client = self.cluster.admin().unwrap();
        let stored = evacuation::stored(&client, "a").await.unwrap();
        stored.map(|stored| stored.status).unwrap_or_default()
    }

    /// Waits until the evacuation has a status like that.
    async fn until(&self, is_so: fn(&EvacuationStatus) -> bool) -> EvacuationStatus {
        eventually(|| async {
            let status = self.status().await;
            if is_so(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Nothing listens any more in the Pods of zones b and c. Nobody tells that they are not ready.
    fn stop_the_others(&mut self) {
        /// Two Pods of zone a, over two families.
        const OF_ZONE_A: usize = 4;
        self.nodes.servers.truncate(OF_ZONE_A);
    }

    fn end(self) {
        self.connections.into_iter().for_each(Connections::end);
        self.shutdown.trigger();
        self.controller.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_goes_back_when_ready_endpoints_elsewhere_refuse_connections() {
    let mut watched = Watched::new().await;
    for connections in &watched.connections {
        connections.more(100).await;
    }
    let spec = EvacuationSpec {
        zone: "a".into(),
        deadline: timestamp(clock::now().as_second() + 3600).into(),
        step_seconds: Some(2),
        ..EvacuationSpec::default()
    };
    evacuation::ask(&watched.cluster.admin().unwrap(), &spec).await.unwrap();
    let empty = watched.until(|status| status.phase == Phase::Empty).await;
    assert!(empty.failed_before.is_empty(), "nothing has failed before: {empty:?}");
    watched.stop_the_others();
    let back = watched.until(|status| status.phase.is_over()).await;
    assert_eq!((back.phase, back.percent), (Phase::GoneBack, 100), "{back:?}");
    assert_eq!(&*back.reason, "EvacuationConnectionsFailing");
    assert!(back.message.contains("default/web: "), "{back:?}");
    assert!(back.message.contains(" % of the connections to endpoints outside the zone fail ("));
    // Its endpoints are in use again: they answer.
    eventually(|| async {
        let slices = watched.cluster.list("EndpointSlice", Some("default")).await.unwrap();
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().unwrap());
        let of_zone = endpoints.filter(|endpoint| endpoint["zone"] == "a");
        let ready: Vec<_> = of_zone.map(|endpoint| &endpoint["conditions"]["ready"]).collect();
        let all = ready.len() == 4 && ready.iter().all(|ready| **ready == json!(true));
        if all { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await;
    let counts = watched.nodes.page("n2", 10249, "/metrics").unwrap();
    let failed = |zone: &str| {
        let labels =
            format!("namespace=\"default\",service=\"web\",from_zone=\"b\",to_zone=\"{zone}\"");
        let name = format!("zonewise_service_failed_connections_total{{{labels}}} ");
        let count = counts.lines().find_map(|line| line.strip_prefix(&name));
        count.unwrap_or_else(|| panic!("{name}: {counts}")).parse::<f64>().unwrap()
    };
    assert_eq!(failed("a"), 0.0, "those of the zone have always answered");
    assert!(failed("b") > 0.0 && failed("c") > 0.0);
    watched.end();
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
    let cluster = Cluster::start().await.unwrap();
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
