//! Zones that are emptied under load: a lab on a real API server, with real kernels and real connections, and nodes whose
//! connections fail.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_common::clock;
use zonewise_common::time::timestamp;
use zonewise_controller::config::{Config, DemandConfig, Source};
use zonewise_controller::evacuation::{self, EvacuationSpec, EvacuationStatus, Phase};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::{Lent, User, eventually};

use crate::demand::{apply_demand_roles, config, run_controller, token_file};
use crate::lab::run::{PROGRAM, text};
use crate::nodes::connections::Connections;
use crate::nodes::{
    self, TestNodes, cluster_ip, define_evacuations, plain_cluster, pod_object, service_object,
    stored,
};

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

/// Connections of an act to a zone's endpoints, by the zone that they come from.
fn to_zone(act: &Value, zone: usize) -> u64 {
    let rows = act["matrix"]["connections"].as_array();
    let rows = rows.unwrap_or_else(|| panic!("{:#}", act["matrix"]));
    rows.iter().map(|row| row[zone].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_a_zone_is_emptied_and_restored_without_a_failed_connection() {
    let cluster = plain_cluster().await;
    define_evacuations(&cluster).await;
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
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
    nodes: TestNodes,
    connections: Vec<Connections>,
    shutdown: Shutdown,
    controller: std::thread::JoinHandle<()>,
    /// Dropped last, when nothing uses it any more.
    cluster: Lent,
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
