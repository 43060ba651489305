//! What a running controller does when Pods, nodes and annotations change, read back from the API server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zonewise_testbed::objects::set_ready;
use zonewise_testbed::{Change, Watch, eventually};

use super::{
    CLUSTER_WIDE, Keys, Live, MODE, PREFERENCE, SHARES, SUBSETTING, asking, conditions, endpoints,
    equal_zones, node_of, numbered, shown, zoneless, zones,
};
use crate::common::{Running, addresses, hints, turn};

const SERVICE: &str = "web";
const AUTO: Keys = &[(MODE, "Auto")];
const SUBSETS: Keys = &[(SUBSETTING, "Auto")];
/// Every switch from one approach to another, once.
const APPROACHES: [&str; 13] = [
    "Random", "Auto", "Random", "Require", "Random", "Region", "Auto", "Require", "Auto", "Region",
    "Require", "Region", "Random",
];
/// Nothing but changes causes writes.
const NO_SETTLING: &str = "settling: { quietPeriod: 0s }\n";
/// A Service that has been quiet for a second is decided afresh.
const SETTLING: &str = "settling: { quietPeriod: 1s }\n";

/// A namespace with Pods and a Service.
async fn shop(live: &mut Live, pods: &[(&str, usize)], keys: Keys) -> String {
    let space = live.space(pods).await;
    live.objects.create(&[asking(&space, SERVICE, keys)]).await.unwrap();
    space
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a14_a15_b8_b19_slices_follow_pods_and_annotations() {
    let _turn = turn().await;
    let mut live = Live::start().await;
    live.set_nodes(equal_zones()).await;
    let required = shop(&mut live, &[("a", 2)], &[(SUBSETTING, "Require")]).await;
    let switched = shop(&mut live, &[("a", 12), ("b", 12), ("c", 12)], &[]).await;
    let hinted = shop(&mut live, &[("a", 3), ("b", 3), ("c", 3)], AUTO).await;
    let running = Running::start(&live.cluster, SETTLING).await;
    zones_keep_their_slices(&live, &required).await;
    approaches_are_switched(&live, &switched).await;
    pods_come_and_go(&live, &hinted).await;
    running.stop().await.unwrap();
    let writes = a_rolling_update(&mut live).await;
    println!("A15: {writes} slices written while 12 Pods were replaced one by one");
    assert!((24..=36).contains(&writes), "{writes} slices written for 24 changes");
    bytes_are_those_of_the_page(&mut live).await;
}

/// A13: a zone without endpoints keeps an empty slice, whatever comes and goes.
async fn zones_keep_their_slices(live: &Live, space: &str) {
    let service = (space, SERVICE);
    live.reaches("A13", service, "for-zone=a: a*2 | for-zone=b: | for-zone=c:").await;
    let pod = |node: &str, number| numbered(space, node, number);
    live.objects.create(&[pod("b", 1)]).await.unwrap();
    live.objects.delete(&[pod("a", 2)]).await.unwrap();
    live.reaches("A13", service, "for-zone=a: a*1 | for-zone=b: b*1 | for-zone=c:").await;
    live.objects.delete(&[pod("b", 1)]).await.unwrap();
    live.reaches("A13", service, "for-zone=a: a*1 | for-zone=b: | for-zone=c:").await;
}

/// A14: from any approach to any other.
async fn approaches_are_switched(live: &Live, space: &str) {
    for approach in APPROACHES {
        let mut service = asking(space, SERVICE, &[]);
        service["metadata"]["annotations"] = json!({ SUBSETTING: approach });
        live.objects.update(&[service]).await.unwrap();
        let expected = match approach {
            "Random" => "a*12 b*12 c*12",
            "Region" => "for-region=r: a*12 b*12 | for-region=s: c*12",
            _ => "for-zone=a: a*12 | for-zone=b: b*12 | for-zone=c: c*12",
        };
        let what = format!("A14: switched to {approach}");
        live.reaches(&what, (space, SERVICE), expected).await;
        // `Auto` and `Require` divide alike: the condition tells which of them is in force.
        let told = match approach {
            "Random" => CLUSTER_WIDE,
            "Require" => super::REQUIRED,
            _ => super::DIVIDED,
        };
        eventually(async || {
            let found = conditions(&live.service(space, SERVICE).await);
            if found == told { Ok(()) } else { Err(format!("{what}: {found}, not {told}")) }
        })
        .await;
    }
}

/// B8: additions and removals that need a redistribution.
async fn pods_come_and_go(live: &Live, space: &str) {
    let service = (space, SERVICE);
    live.reaches("B8: at first", service, "a>a*3 b>b*3 c>c*3").await;
    let more: Vec<Value> = (4..=9).map(|number| numbered(space, "a", number)).collect();
    live.objects.create(&more).await.unwrap();
    live.reaches("B8: six more in zone a", service, "a>a*5 a>b*2 a>c*2 b>b*3 c>c*3").await;
    let all_of_b: Vec<Value> = (1..=3).map(|number| numbered(space, "b", number)).collect();
    live.objects.delete(&all_of_b).await.unwrap();
    live.reaches("B8: none in zone b", service, "a>a*4 a>b*4 a>c*1 c>c*3").await;
}

/// A15: every Pod is replaced, the new one before the old one. Each of the 24 changes concerns one endpoint, so
/// 24 writes are the least; the document allows for some that move others. Returns the number of writes.
async fn a_rolling_update(live: &mut Live) -> usize {
    let space = shop(live, &[("a", 4), ("b", 4), ("c", 4)], SUBSETS).await;
    let service = (&*space, SERVICE);
    let running = Running::start(&live.cluster, NO_SETTLING).await;
    let divided = "for-zone=a: a*4 | for-zone=b: b*4 | for-zone=c: c*4";
    live.reaches("A15: before", service, divided).await;
    let begin = newest(&live.slices(&space, SERVICE).await);
    let mut watch = live.objects.watch::<Value>("EndpointSlice", Some(&space)).await.unwrap();
    for (number, node) in (1..=4).flat_map(|number| ["a", "b", "c"].map(|node| (number, node))) {
        let (old, new) = (numbered(&space, node, number), numbered(&space, node, number + 4));
        live.objects.create(&[new]).await.unwrap();
        followed(live, &space, 13).await;
        live.objects.delete(&[old]).await.unwrap();
        followed(live, &space, 12).await;
    }
    live.reaches("A15: after", service, divided).await;
    let slices = live.slices(&space, SERVICE).await;
    let new: BTreeSet<String> = ["a", "b", "c"]
        .iter()
        .flat_map(|node| (5..=8).map(move |number| format!("{node}-{number}")))
        .collect();
    assert_eq!(names(&slices), new, "only new Pods are left");
    let (writes, undivided) = writes_until(&mut watch, begin, newest(&slices)).await;
    assert_eq!(undivided, 0, "subsets stay in force");
    running.stop().await.unwrap();
    writes
}

/// Waits until the slices have so many endpoints.
async fn followed(live: &Live, space: &str, count: usize) {
    eventually(async || {
        let found = addresses(&live.slices(space, SERVICE).await).len();
        if found == count { Ok(()) } else { Err(format!("{found} of {count} endpoints")) }
    })
    .await;
}

/// The names of the Pods behind endpoints.
fn names(slices: &[Value]) -> BTreeSet<String> {
    let all = slices.iter().flat_map(endpoints);
    all.map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The version of an object; the API server counts all writes of the cluster.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn newest(slices: &[Value]) -> u64 {
    slices.iter().map(version).max().unwrap()
}

/// How many writes of slices a watch shows after one version and up to another, and how many of them are of
/// slices that are not for a zone.
async fn writes_until(watch: &mut Watch<Value>, begin: u64, end: u64) -> (usize, usize) {
    let (mut writes, mut undivided) = (0, 0);
    loop {
        let change = watch.next().await.unwrap().unwrap();
        let (Change::Added(slice) | Change::Modified(slice) | Change::Deleted(slice)) = change;
        if version(&slice) > begin {
            writes += 1;
            undivided += usize::from(!super::subset(&slice).starts_with("for-zone="));
        }
        if version(&slice) == end {
            return (writes, undivided);
        }
    }
}

/// B19: the bytes that hints, shares and conditions add to what the API server sends, as docs/benchmarks.md has
/// them.
async fn bytes_are_those_of_the_page(live: &mut Live) {
    const PODS: &[(&str, usize)] = &[("a", 67), ("b", 17), ("c", 16)];
    live.set_nodes(zones(&[("a", "4"), ("b", "5"), ("c", "6")])).await;
    let space = live.space(PODS).await;
    let balanced: Keys = &[(PREFERENCE, "zonewise.dev/balanced")];
    let services = [("plain", &[][..]), ("hints", AUTO), ("shares", balanced)];
    let services = services.map(|(name, keys)| asking(&space, name, keys));
    live.objects.create(&services).await.unwrap();
    let running = Running::start(&live.cluster, "").await;
    let mut found = Vec::new();
    for name in ["plain", "hints", "shares"] {
        let (slice, service) = eventually(async || {
            let slices = live.slices(&space, name).await;
            let service = live.service(&space, name).await;
            let whole = addresses(&slices).len() == 100;
            let told = name == "plain" || conditions(&service).starts_with("Accepted; ");
            let whole = (whole && told).then(|| (slices[0].clone(), service));
            whole.ok_or_else(|| format!("{name}: {} slices", slices.len()))
        })
        .await;
        found.push((slice, service));
    }
    let [(plain, silent), (hinted, told), (shared, _)] = &found[..] else { panic!("{found:?}") };
    let bytes = |value: &Value| value.to_string().len();
    let added = bytes(&hinted["endpoints"]) - bytes(&plain["endpoints"]);
    assert_eq!(added, 100 * figure("hints, per endpoint"), "hints");
    let shares = shared["metadata"]["annotations"][SHARES].as_str().unwrap();
    assert_eq!(shares.len(), figure("zone shares, per slice"), "shares");
    let conditions = bytes(&told["status"]) - bytes(&silent["status"]);
    let published = figure("conditions, per Service that asks for topology");
    assert!(conditions.abs_diff(published) <= published / 5, "{conditions} bytes of conditions");
    running.stop().await.unwrap();
}

/// The first number of a row's second cell.
fn figure(row: &str) -> usize {
    let page = include_str!("../../../../../docs/benchmarks.md");
    let (_, cell) = page.split_once(&format!("| {row} | ")).unwrap();
    let digits = cell.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a29_b4_b5_b8_node_changes_write_slices_only_where_a_threshold_is_crossed() {
    let _turn = turn().await;
    let mut live = Live::start().await;
    live.set_nodes(zones(&[("a", "6"), ("b", "6"), ("c", "6")])).await;
    let tight = shop(&mut live, &[("a", 2), ("b", 3), ("c", 2)], AUTO).await;
    let space = shop(&mut live, &[("a", 6), ("b", 6), ("c", 6)], AUTO).await;
    let service = (&*space, SERVICE);
    let running = Running::start(&live.cluster, NO_SETTLING).await;
    live.reaches("B4: at first", service, "a>a*6 b>b*6 c>c*6").await;
    live.reaches("B4: at first", (&tight, SERVICE), "a>a*2 b>b*3 c>c*2").await;
    let written = newest(&live.slices(&space, SERVICE).await);

    // 9 of 21 cores: 7.7 expected in zone a and 6 there, 29 %: too much for new hints, not for those that are
    // there. The other Service has 2 where 3 are expected, 50 %.
    update_node(&live, node_of("a", "a", "9")).await;
    let tight = (&*tight, SERVICE);
    live.reaches("B4: 50 %", tight, "a>a*2 b>a*1 b>b*2 c>c*2").await;
    live.objects.create(&[asking(&space, "new", AUTO)]).await.unwrap();
    let now = [("a", 7.71), ("b", 5.14), ("c", 5.14)];
    balanced(&live, "B4: a new Service", (&space, "new"), &now).await;
    let slices = live.slices(&space, SERVICE).await;
    assert_eq!(shown(&slices).unwrap(), "a>a*6 b>b*6 c>c*6", "B4: kept below 30 %");
    assert_eq!(newest(&slices), written, "B5: nothing is written");

    // 10 of 22 cores: 8.2 expected in zone a and 6 there, 36 %.
    update_node(&live, node_of("a", "a", "10")).await;
    let three = [("a", 8.18), ("b", 4.91), ("c", 4.91)];
    balanced(&live, "B4: redistributed from 30 % on", service, &three).await;

    // Zone c loses its node, and it comes back.
    let mut lost = node_of("c", "c", "6");
    set_ready(&mut lost, false);
    update_node(&live, lost).await;
    let two = [("a", 11.25), ("b", 6.75)];
    balanced(&live, "B8: a zone without nodes", service, &two).await;
    update_node(&live, node_of("c", "c", "6")).await;
    balanced(&live, "B5: the zone is back", service, &three).await;

    // A node without a zone makes hints impossible, and they come back by themselves.
    update_node(&live, zoneless(node_of("b", "b", "6"))).await;
    live.reaches("B5: not feasible", service, "?*6 a*6 c*6").await;
    update_node(&live, node_of("b", "b", "6")).await;
    balanced(&live, "B5: feasible again", service, &three).await;
    running.stop().await.unwrap();
    families_and_ports(&mut live).await;
}

/// Waits until all 18 endpoints are hinted to exactly these zones, and every zone has less than 20 % overload with
/// the endpoints that it is expected to need.
async fn balanced(live: &Live, what: &str, (space, name): (&str, &str), zones: &[(&str, f64)]) {
    eventually(async || {
        let found = hints(&live.slices(space, name).await);
        let all: usize = found.values().sum();
        let is_good = |(zone, needed): &(&str, f64)| {
            found.get(*zone).is_some_and(|&count| *needed < 1.2 * count as f64)
        };
        let good = all == 18 && found.len() == zones.len() && zones.iter().all(is_good);
        good.then_some(()).ok_or_else(|| format!("{what}: {found:?}, expected {zones:?}"))
    })
    .await;
}

/// Changes a node.
async fn update_node(live: &Live, node: Value) {
    live.objects.update(&[node]).await.unwrap();
}

/// A29: Pods with two addresses and, under the same name, two ports: every address is in one slice of its family
/// and port, also while approaches change.
async fn families_and_ports(live: &mut Live) {
    live.set_nodes(equal_zones()).await;
    let space = live.space(&[]).await;
    let pods: Vec<Value> = (1..=24)
        .map(|number| {
            let mut pod = numbered(&space, ["a", "b", "c"][number % 3], number);
            let ip = pod["status"]["podIP"].clone();
            pod["status"]["podIPs"] =
                json!([{ "ip": ip }, { "ip": format!("fd00:10::{number:x}") }]);
            if number > 12 {
                pod["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9090);
            }
            pod
        })
        .collect();
    let both = |approach: &str| {
        let mut service = asking(&space, SERVICE, &[("spec.ipFamilyPolicy", "RequireDualStack")]);
        service["spec"]["ports"][0]["targetPort"] = json!("http");
        service["metadata"]["annotations"] = json!({ SUBSETTING: approach });
        service
    };
    live.objects.create(&pods).await.unwrap();
    live.objects.create(&[both("Random")]).await.unwrap();
    let running = Running::start(&live.cluster, "").await;
    for (approach, slices) in [("Random", 4), ("Auto", 12), ("Random", 4)] {
        live.objects.update(&[both(approach)]).await.unwrap();
        eventually(async || {
            let found = live.slices(&space, SERVICE).await;
            // An address twice is an error.
            shown(&found)?;
            let sizes: Vec<usize> = found.iter().map(|slice| endpoints(slice).count()).collect();
            // 24 Pods with two addresses each, evenly divided.
            let expected = vec![48 / slices; slices];
            let kinds: BTreeSet<String> = found.iter().map(kind).collect();
            let good = sizes == expected && kinds.len() == slices;
            good.then_some(()).ok_or_else(|| format!("{approach}: {sizes:?} {kinds:?}"))
        })
        .await;
    }
    running.stop().await.unwrap();
}

/// What distinguishes slices: family, ports, and whom they are for.
fn kind(slice: &Value) -> String {
    format!("{} {} {}", slice["addressType"], slice["ports"][0]["port"], super::subset(slice))
}
