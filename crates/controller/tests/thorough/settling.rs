//! B20 on a real API server: after Pods have come up one by one, after a rollout and after a change of
//! nodes, every Service is routed as well as one that was made a moment ago, and `Auto` no worse than by
//! the reference, which runs beside ours on an API server of its own.
//!
//! The figures are computed by `zonewise_testbed::traffic` from the stored slices and nodes.

use std::collections::BTreeMap;

use crate::common::{Running, addresses, apply_roles, slices};
use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::traffic::{Figures, TopologyKey, figures};
use zonewise_testbed::{Cluster, eventually};

const MODE: &str = "service.kubernetes.io/topology-mode";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
/// What the Services request: name, key and value.
const REQUESTS: [(&str, &str, &str); 13] = [
    ("auto", MODE, "Auto"),
    ("preferred-auto", PREFERENCE, "zonewise.dev/auto"),
    ("subsets", SUBSETTING, "Auto"),
    ("region", SUBSETTING, "Region"),
    ("require", SUBSETTING, "Require"),
    ("require-zone", PREFERENCE, "zonewise.dev/require-zone"),
    ("local-subset", PREFERENCE, "zonewise.dev/local-subset"),
    ("local", PREFERENCE, "zonewise.dev/local"),
    ("local-shared", PREFERENCE, "zonewise.dev/local-shared"),
    ("local-weighted", PREFERENCE, "zonewise.dev/local-weighted"),
    ("local-opt", PREFERENCE, "zonewise.dev/local-opt"),
    ("shared-global", PREFERENCE, "zonewise.dev/shared-global"),
    ("balanced", PREFERENCE, "zonewise.dev/balanced"),
];
/// The smallest gain that a quiet Service is written for, with room for rounding.
const NOTICEABLE: f64 = 0.02 + 1e-9;
const ROUNDING: f64 = 1e-9;

/// Two API servers with the same nodes and Pods: one with our controller, one with the reference.
struct Pair {
    ours: Cluster,
    reference: Cluster,
    nodes: BTreeMap<String, Value>,
    /// The Pods, in the order in which they came.
    pods: Vec<Value>,
    pods_made: usize,
    /// How often every Service was compared with a new one.
    settlings: u64,
    /// How often a node was changed.
    node_changes: u64,
}

/// A node of a zone: zones a and b are one region, c is another.
fn node_of(zone: &str, cores: &str) -> Value {
    let mut one = node(zone, zone, cores);
    let region = if zone == "c" { "s" } else { "r" };
    one["metadata"]["labels"]["topology.kubernetes.io/region"] = json!(region);
    one
}

fn requesting(name: &str, key: &str, value: &str) -> Value {
    let mut one = service("test", name, "web");
    one["metadata"]["annotations"] = json!({ key: value });
    one
}

impl Pair {
    async fn start() -> Self {
        let (reference, ours) = tokio::join!(Cluster::start(), Cluster::start());
        let (reference, ours) = (reference.unwrap(), ours.unwrap());
        apply_roles(&ours).await;
        let zones = ["a", "b", "c"];
        let nodes: BTreeMap<String, Value> =
            zones.iter().map(|zone| ((*zone).into(), node_of(zone, "4"))).collect();
        let made: Vec<Value> = nodes.values().cloned().collect();
        for cluster in [&reference, &ours] {
            cluster.create(&[namespace("test")]).await.unwrap();
            cluster.create(&made).await.unwrap();
        }
        let services: Vec<Value> =
            REQUESTS.iter().map(|(name, key, value)| requesting(name, key, value)).collect();
        ours.create(&services).await.unwrap();
        reference.create(&services[..1]).await.unwrap();
        Self {
            ours,
            reference,
            nodes,
            pods: Vec::new(),
            pods_made: 0,
            settlings: 0,
            node_changes: 0,
        }
    }

    async fn add_pod(&mut self, zone: &str) {
        self.pods_made += 1;
        let (name, ip) =
            (format!("web-{:03}", self.pods_made), format!("10.3.0.{}", self.pods_made));
        let one = pod("test", &name, "web", zone, &ip);
        for cluster in [&self.ours, &self.reference] {
            cluster.create(std::slice::from_ref(&one)).await.unwrap();
        }
        self.pods.push(one);
        self.followed().await;
    }

    /// Removes the oldest Pod of a zone.
    async fn remove_pod(&mut self, zone: &str) {
        let oldest = self.pods.iter().position(|pod| pod["spec"]["nodeName"] == zone).unwrap();
        let one = self.pods.remove(oldest);
        for cluster in [&self.ours, &self.reference] {
            cluster.delete(std::slice::from_ref(&one)).await.unwrap();
        }
        self.followed().await;
    }

    async fn set_cores(&mut self, zone: &str, cores: &str) {
        let changed = node_of(zone, cores);
        for cluster in [&self.ours, &self.reference] {
            cluster.update(std::slice::from_ref(&changed)).await.unwrap();
        }
        self.nodes.insert(zone.into(), changed);
        self.node_changes += 1;
    }

    /// Waits until the slices of all Services have the Pods that there are.
    async fn followed(&self) {
        let mut expected: Vec<&str> =
            self.pods.iter().map(|pod| pod["status"]["podIP"].as_str().unwrap()).collect();
        expected.sort_unstable();
        let has_all = |cluster, name| {
            let expected = &expected;
            async move {
                let found = addresses(&slices(cluster, "test", name).await);
                if found == *expected { Ok(()) } else { Err(format!("{name}: {found:?}")) }
            }
        };
        for (name, ..) in REQUESTS {
            eventually(|| has_all(&self.ours, name)).await;
        }
        eventually(|| has_all(&self.reference, "auto")).await;
    }

    async fn figures(&self, cluster: &Cluster, name: &str) -> Option<Figures> {
        let nodes: Vec<Value> = self.nodes.values().cloned().collect();
        let key = if name.starts_with("region") { TopologyKey::Region } else { TopologyKey::Zone };
        figures(&nodes, &slices(cluster, "test", name).await, key)
    }

    /// Waits until every Service is as good as one that was made just now.
    async fn settled(&mut self) {
        self.settlings += 1;
        let fresh = |name: &str| format!("{name}-fresh-{}", self.settlings);
        let made: Vec<Value> = REQUESTS
            .iter()
            .map(|(name, key, value)| requesting(&fresh(name), key, value))
            .collect();
        self.ours.create(&made).await.unwrap();
        for (name, ..) in REQUESTS {
            eventually(|| async {
                let made = slices(&self.ours, "test", &fresh(name)).await;
                if addresses(&made).len() != self.pods.len() {
                    return Err(format!("{} is not written yet", fresh(name)));
                }
                let now = self.figures(&self.ours, name).await.unwrap();
                let best = self.figures(&self.ours, &fresh(name)).await.unwrap();
                let good = now.in_zone >= best.in_zone - NOTICEABLE
                    && now.max_overload <= best.max_overload + NOTICEABLE;
                if good { Ok(()) } else { Err(format!("{name}: {now:?}, fresh {best:?}")) }
            })
            .await;
        }
        self.ours.delete(&made).await.unwrap();
    }

    /// Besides the reference's writes, the slice of `auto` may be written once for each settling, and once for
    /// each change of nodes: hints that become possible are given at once, which the reference does not notice.
    async fn auto_is_written_no_more_often(&self) {
        let writes = async |cluster| -> u64 {
            let found = slices(cluster, "test", "auto").await;
            assert_eq!(found.len(), 1, "{found:?}");
            // The API server counts them.
            found[0]["metadata"]["generation"].as_u64().unwrap()
        };
        let (ours, reference) = (writes(&self.ours).await, writes(&self.reference).await);
        let allowed = reference + self.settlings + self.node_changes;
        assert!(ours <= allowed, "{ours} writes, the reference {reference}, allowed {allowed}");
    }

    async fn auto_is_no_worse_than_by_the_reference(&self) {
        let now = self.figures(&self.ours, "auto").await.unwrap();
        let then = self.figures(&self.reference, "auto").await.unwrap();
        let worse = now.in_zone < then.in_zone - ROUNDING
            && now.max_overload >= then.max_overload - ROUNDING;
        assert!(!worse, "{now:?}, by the reference {then:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_a_quiet_service_is_as_good_as_a_new_one_and_no_worse_than_by_the_reference() {
    let _turn = crate::common::turn().await;
    let mut pair = Pair::start().await;
    let manager = pair.reference.controller_manager(&[]).unwrap();
    let running = Running::start(&pair.ours, "settling: { quietPeriod: 1s }").await;

    for zone in "cbabcccabababca".chars() {
        pair.add_pod(&zone.to_string()).await;
    }
    pair.settled().await;
    pair.auto_is_no_worse_than_by_the_reference().await;
    let auto = pair.figures(&pair.ours, "auto").await.unwrap();
    let at_home = auto.in_zone > 1.0 - ROUNDING && auto.max_overload < ROUNDING;
    assert!(at_home, "every zone has its own five: {auto:?}");

    // A rollout that leaves 4, 5 and 6 Pods.
    for (new, old) in "cbcabc".chars().zip("abcabc".chars()) {
        pair.add_pod(&new.to_string()).await;
        pair.remove_pod(&old.to_string()).await;
    }
    pair.settled().await;
    pair.auto_is_no_worse_than_by_the_reference().await;

    pair.set_cores("a", "6").await;
    pair.settled().await;
    pair.auto_is_no_worse_than_by_the_reference().await;
    pair.auto_is_written_no_more_often().await;
    running.stop().await.unwrap();
    manager.stop().await.unwrap();
}
