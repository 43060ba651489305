//! More clients of session affinity than a map has room for.

use zonewise_proxy::testing::CLIENTS;

use crate::common::clients::{count, fill, maps, sticky};
use crate::common::two_nodes::{TwoNodeCluster, by_range, cluster_ip, full};

/// Clients of one Service fill its map: further clients are served without affinity, and those of other Services with
/// it. When the proxy looks at the map it makes room.
#[test]
fn clients_of_one_service_fill_no_other_map() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.tables.kernel.without_owner();
    cluster.offer(&full("flooded", 1, sticky()));
    cluster.tables.sync();
    let namespace = cluster.n1.namespace.clone();
    let [flooded] = <[String; 1]>::try_from(maps(&namespace)).unwrap();
    fill(&namespace, &flooded, CLIENTS, cluster_ip(1, false).ip(), cluster.here.address(false));
    cluster.offer(&full("calm", 2, sticky()));
    cluster.tables.sync();
    assert_eq!(maps(&namespace).len(), 2);
    let caller = cluster.caller.namespace.clone();
    let without = cluster.answers(&caller, cluster_ip(1, false), 24).text();
    assert_eq!(without, "here there", "there is no room for this client");
    let with = cluster.answers(&caller, cluster_ip(2, false), 24).text();
    assert!(["here", "there"].contains(&&*with), "{with}");
    cluster.tables.kernel.look_at_all_clients();
    cluster.tables.forget_clients();
    let left = count(&namespace, &flooded);
    assert!((CLIENTS as usize / 2..CLIENTS as usize / 10 * 9).contains(&left), "{left}");
    let with = cluster.answers(&caller, cluster_ip(1, false), 24).text();
    assert!(["here", "there"].contains(&&*with), "there is room now: {with}");
}
