//! Hints, shares and zones, with real connections counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use crate::common::objects::{annotated, endpoint, slice};
use crate::common::two_nodes::{TwoNodeCluster, both_protocols, by_range, cluster_ip, full};
use serde_json::json;
use zonewise_netns::traffic::probe_tcp_many;
use zonewise_nft::Socket;
use zonewise_proxy::testing::by_zone;

const TRIES: usize = 200;

fn cluster() -> TwoNodeCluster {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.tables.service(&full("svc", 1, json!({})));
    cluster
}

fn counted(cluster: &TwoNodeCluster) -> (usize, usize) {
    let counts = probe_tcp_many(
        &cluster.caller.namespace,
        cluster_ip(1, false),
        TRIES,
        crate::common::PROBE_TIMEOUT,
    );
    let of = |name| counts.get(name).copied().unwrap_or(0);
    assert_eq!(of("here") + of("there"), TRIES, "{counts:?}");
    (of("here"), of("there"))
}

/// D3: node hints before zone hints; D1: every ready endpoint hinted, one for this zone.
#[test]
fn d1_d3_hints_decide_where_connections_go() {
    let mut cluster = cluster();
    let (here, there) = (cluster.here.address(false), cluster.there.address(false));
    let here = || endpoint(here, "n1", "a");
    let there = || endpoint(there, "n2", "b");
    let rows = [
        ("own zone", [here().hinted(&["a"]), there().hinted(&["b"])], (true, false)),
        ("hinted away", [here().hinted(&["b"]), there().hinted(&["a"])], (false, true)),
        (
            "node before zone",
            [here().hinted(&["b"]).for_nodes(&["n2"]), there().hinted(&["a"]).for_nodes(&["n1"])],
            (false, true),
        ),
        ("one without", [here().hinted(&["a"]), there()], (true, true)),
        ("another zone", [here().hinted(&["c"]), there().hinted(&["c"])], (true, true)),
    ];
    for (name, members, expected) in rows {
        cluster.tables.slice(&both_protocols(slice("svc", "svc-1", &members))).sync();
        let (here, there) = counted(&cluster);
        assert_eq!((here > 0, there > 0), expected, "{name}");
    }
}

/// Shares become slots: three quarters here, one quarter there.
#[test]
fn shares_are_kept_by_the_kernel() {
    let mut cluster = cluster();
    let members = [
        endpoint(cluster.here.address(false), "n1", "a"),
        endpoint(cluster.there.address(false), "n2", "b"),
    ];
    let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.75,"b":0.25},"b":{"a":0.25,"b":0.75}}}"#;
    let object = annotated(slice("svc", "svc-1", &members), "zonewise.dev/zone-shares", shares);
    cluster.tables.slice(&both_protocols(object)).sync().assert_repaired();
    let (here, _) = counted(&cluster);
    // Six standard deviations around 150 of 200.
    assert!((113..=187).contains(&here), "{here} of {TRIES}");
}

/// Equal endpoints are chosen equally often.
#[test]
fn equal_endpoints_get_equal_parts() {
    let mut cluster = cluster();
    let members = [
        endpoint(cluster.here.address(false), "n1", "a"),
        endpoint(cluster.there.address(false), "n2", "b"),
    ];
    cluster.tables.slice(&both_protocols(slice("svc", "svc-1", &members))).sync();
    let (here, _) = counted(&cluster);
    assert!((58..=142).contains(&here), "{here} of {TRIES}");
}

/// The kernel counts connections by the zone they went to.
#[test]
fn connections_are_counted_by_zone() {
    let mut cluster = cluster();
    let members = [
        endpoint(cluster.here.address(false), "n1", "a"),
        endpoint(cluster.there.address(false), "n2", "b"),
    ];
    cluster.tables.slice(&both_protocols(slice("svc", "svc-1", &members))).sync();
    let (here, there) = counted(&cluster);
    let counted = cluster.n1.namespace.enter(|| by_zone(&mut Socket::open().unwrap())).unwrap();
    let expected = [("zone-a".to_owned(), here as u64), ("zone-b".to_owned(), there as u64)];
    assert_eq!(counted, expected.into());
}
