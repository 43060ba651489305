//! Endpoints that count for the CPU that their Pods request: zone shares follow it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{Choice, EndpointWeight};
use zonewise_topology::reason::{Code, Reason};
use zonewise_topology::zone_shares::ZoneShares;

use crate::common::{TestCluster, code};

const MODE: &str = "service.kubernetes.io/topology-mode";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const WEIGHT: &str = "zonewise.dev/endpoint-weight";

/// Three zones of the same size with four Pods each, and `balanced` with weights.
fn cluster() -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(PREFERENCE, "zonewise.dev/balanced").annotate(WEIGHT, "cpu-request");
    cluster.pods("a", 4).pods("b", 4).pods("c", 4);
    cluster
}

/// Lets all Pods of a zone request so much CPU.
fn request(cluster: &mut TestCluster, zone: &str, cpu: &Value) {
    let node = format!("node-{zone}");
    for pod in cluster.pods.values_mut().filter(|pod| pod["spec"]["nodeName"] == *node) {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    }
}

fn shares(cluster: &TestCluster) -> BTreeMap<String, BTreeMap<String, u32>> {
    ZoneShares::decode(&cluster.shares().unwrap()).unwrap().from
}

/// Parts in millionths of what zones a, b and c send to a, b and c.
fn parts(cluster: &TestCluster) -> [[u32; 3]; 3] {
    let shares = shares(cluster);
    let part = |from: &str, to: &str| shares[from].get(to).copied().unwrap_or(0);
    ["a", "b", "c"].map(|from| ["a", "b", "c"].map(|to| part(from, to)))
}

const EVEN: [[u32; 3]; 3] = [[1_000_000, 0, 0], [0, 1_000_000, 0], [0, 0, 1_000_000]];
/// Half of what endpoints can take is in zone a, a quarter in b, a quarter in c: b and c keep three quarters.
const HALF_IN_A: [[u32; 3]; 3] = [[1_000_000, 0, 0], [250_000, 750_000, 0], [250_000, 0, 750_000]];

#[test]
fn zone_shares_follow_the_cpu_that_pods_request() {
    let mut cluster = cluster();
    cluster.sync();
    assert_eq!(parts(&cluster), EVEN, "no Pod has a request");
    request(&mut cluster, "a", &json!("2"));
    request(&mut cluster, "b", &json!("1000m"));
    request(&mut cluster, "c", &json!(1));
    let plan = cluster.sync();
    assert_eq!(parts(&cluster), HALF_IN_A);
    let in_zone = 1.0 / 3.0 + 2.0 * 0.25;
    let Reason::SharesBalanced { in_zone: said, .. } = plan.reason() else { panic!("{plan:?}") };
    assert!((said - in_zone).abs() < 1e-9, "{said}");
    assert_eq!(cluster.sync().writes(), 0, "a second look changes nothing");
    // Counts are counts: proxies compare them with the ready endpoints that they see.
    let counts = ZoneShares::decode(&cluster.shares().unwrap()).unwrap().endpoints;
    assert_eq!(counts, BTreeMap::from(["a", "b", "c"].map(|zone| (zone.to_owned(), 4))));
}

#[test]
fn a_pod_that_is_resized_moves_shares_once_that_matters() {
    let mut cluster = cluster();
    for zone in ["a", "b", "c"] {
        request(&mut cluster, zone, &json!("1"));
    }
    cluster.sync();
    request(&mut cluster, "a", &json!("1050m"));
    assert_eq!(cluster.sync().writes(), 0, "5 % are not worth writing every slice");
    request(&mut cluster, "a", &json!("2"));
    assert!(cluster.sync().writes() > 0);
    assert_eq!(parts(&cluster), HALF_IN_A);
}

#[test]
fn a_pod_without_a_request_counts_as_the_median_of_the_others() {
    let mut cluster = cluster();
    request(&mut cluster, "a", &json!("2"));
    request(&mut cluster, "b", &json!("1"));
    request(&mut cluster, "c", &json!("1"));
    let forgotten = cluster.pods.values_mut().find(|pod| pod["spec"]["nodeName"] == "node-b");
    forgotten.unwrap()["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
    cluster.sync();
    assert_eq!(parts(&cluster), HALF_IN_A);
}

#[test]
fn what_a_pod_requests_while_it_runs_is_read_from_its_spec() {
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let container = |text: &str| json!({"name": "c", "resources": cpu(text)});
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": cpu("100m")});
    let rows: [(&str, Value, Option<u32>); 9] = [
        ("nothing", json!({"containers": [{"name": "c"}]}), None),
        ("zero", json!({"containers": [container("0")]}), None),
        ("containers", json!({"containers": [container("1.5"), container("250m")]}), Some(1750)),
        (
            "a sidecar runs as long as the Pod",
            json!({"containers": [container("1")], "initContainers": [sidecar]}),
            Some(1100),
        ),
        (
            "other init containers end",
            json!({"containers": [container("1")], "initContainers": [container("8")]}),
            Some(1000),
        ),
        (
            "the Pod as a whole",
            json!({"containers": [container("1")], "resources": cpu("3")}),
            Some(3000),
        ),
        ("absurd", json!({"containers": [container("9P")]}), Some(u32::MAX)),
        ("more than a number holds", json!({"containers": [container("9E")]}), None),
        ("not a quantity", json!({"containers": [container("many")]}), None),
    ];
    for (name, spec, expected) in rows {
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "uid": "p"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(pod.cpu_request_milli.map(u32::from), expected, "{name}");
    }
}

#[test]
fn the_annotation_counts_where_zone_shares_are_written_and_is_noted_elsewhere() {
    type Faults<'a> = &'a [(Code, Option<&'a str>)];
    use EndpointWeight::{CpuRequest, CpuUse, Equal};
    let rows: [(&str, &str, EndpointWeight, Faults<'_>); 9] = [
        ("zonewise.dev/balanced", "cpu-request", CpuRequest, &[]),
        ("zonewise.dev/balanced", "cpu-use", CpuUse, &[]),
        ("zonewise.dev/balanced", "equal", Equal, &[]),
        ("zonewise.dev/balanced", "", Equal, &[]),
        (
            "zonewise.dev/balanced",
            "cpu-requests",
            Equal,
            &[(Code::EndpointWeightUnknown, Some("cpu-request"))],
        ),
        (
            "zonewise.dev/balanced",
            "cpu-usage",
            Equal,
            &[(Code::EndpointWeightUnknown, Some("cpu-use"))],
        ),
        ("zonewise.dev/balanced", "memory", Equal, &[(Code::EndpointWeightUnknown, None)]),
        ("zonewise.dev/auto", "cpu-request", Equal, &[(Code::EndpointWeightUnused, None)]),
        ("zonewise.dev/auto", "cpu-use", Equal, &[(Code::EndpointWeightUnused, None)]),
    ];
    for (preference, value, weighted, notes) in rows {
        let mut cluster = cluster();
        cluster.annotate(PREFERENCE, preference).annotate(WEIGHT, value);
        let requested = cluster.requested_routing();
        let noted = requested.notes.iter().map(|note| (note.reason.code(), note.meant.as_deref()));
        assert_eq!(noted.collect::<Vec<_>>(), notes, "{preference} {value}");
        let is_weighted = matches!(requested.choice, Choice::WeightedShares(_));
        assert_eq!(is_weighted, weighted == CpuRequest, "{preference} {value}");
        assert_eq!(requested.endpoint_weight, weighted, "{preference} {value}");
    }
    let mut upstream = cluster();
    upstream.settings.upstream = true;
    let requested = upstream.requested_routing();
    assert!(requested.notes.is_empty() && matches!(requested.choice, Choice::ClusterWide));
}

#[test]
fn hints_are_as_they_would_be_without_weights() {
    let mut cluster = cluster();
    cluster.annotate(MODE, "Auto");
    request(&mut cluster, "a", &json!("8"));
    assert_eq!(code(&cluster.sync()), Code::HintsAssigned);
    assert_eq!(cluster.hints(), ["a", "b", "c"].map(|zone| (zone.to_owned(), 4)).into());
}

#[test]
fn whether_other_zones_can_take_a_zone_is_computed_with_weights() {
    let mut cluster = cluster();
    request(&mut cluster, "a", &json!("2"));
    request(&mut cluster, "b", &json!("1"));
    request(&mut cluster, "c", &json!("1"));
    cluster.sync();
    // Zone a has half of what endpoints can take, so without it each of the others gets twice as much.
    let growth = |zone: &str| cluster.prospect(zone).unwrap().growth();
    assert!((growth("a") - 2.0).abs() < 1e-9, "{}", growth("a"));
    assert!((growth("c") - 4.0 / 3.0).abs() < 1e-9, "{}", growth("c"));
}

/// What the endpoints of each zone get for each core that they request, beside the mean.
fn loads(cluster: &TestCluster, cores: &[u32; 3]) -> [f64; 3] {
    let parts = parts(cluster);
    let together = f64::from(cores.iter().sum::<u32>());
    [0, 1, 2].map(|to| {
        let got: f64 = parts.iter().map(|from| f64::from(from[to]) / 1e6 / 3.0).sum();
        got * together / f64::from(cores[to])
    })
}

proptest! {
    #[test]
    fn no_endpoint_gets_more_for_its_cpu_than_the_others(
        requests in [1u32..2000, 1u32..2000, 1u32..2000],
        pods in [1usize..6, 1usize..6, 1usize..6],
    ) {
        let mut cluster = TestCluster::three_zones();
        cluster.annotate(PREFERENCE, "zonewise.dev/balanced").annotate(WEIGHT, "cpu-request");
        let mut cores = [0; 3];
        for (index, zone) in ["a", "b", "c"].into_iter().enumerate() {
            cluster.pods(zone, pods[index]);
            request(&mut cluster, zone, &json!(format!("{}m", requests[index])));
            cores[index] = requests[index] * pods[index] as u32;
        }
        cluster.sync();
        // Shares have six decimals: what they round is noticed where the others have a thousand times as much.
        let least = f64::from(*cores.iter().min().unwrap()) / f64::from(cores.iter().sum::<u32>());
        for load in loads(&cluster, &cores) {
            prop_assert!(load <= 1.0 + 1e-5 / least, "{load} {requests:?} {pods:?}");
        }
    }
}
