//! A Service that asks for twenty million elements.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zonewise_netns::traffic::probe_tcp;

use crate::common::objects::{ports, service, slice, with};
use crate::common::pages::{ask, of_service};
use crate::common::two_nodes::{TwoNodeCluster, by_range, cluster_ip, full, probe_until};
use crate::common::weighted::{elements, members};
use crate::common::{LONG, ip};

/// 1,000 external IPs × 100 ports × 200 Pods would be twenty million elements, from one small object.
#[test]
fn a_service_of_twenty_million_elements_stays_within_its_budget() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.offer(&full("web", 1, json!({})));
    cluster.tables.sync();
    let addresses: Vec<String> =
        (0..1_000_u32).map(|n| format!("203.0.{}.{}", n / 250, 1 + n % 250)).collect();
    let all: Vec<Value> =
        (1..=100).map(|n| json!({"name": format!("p{n}"), "port": n, "protocol": "TCP"})).collect();
    let huge = |replicas: u32| {
        let names: Vec<String> = (1..=100).map(|n| format!("p{n}")).collect();
        let offered: Vec<(&str, u16, &str)> =
            names.iter().map(|name| (&**name, 8080, "TCP")).collect();
        ports(slice("huge", "huge-1", &members(0, replicas, |_| "a")), &offered)
    };
    let object =
        with(service("huge", &["10.96.0.99"]), json!({"externalIPs": addresses, "ports": all}));
    let from = cluster.caller.namespace.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let neighbours = scope.spawn(|| probe_until(&from, cluster_ip(1, false), &done));
        cluster.tables.service(&object).slice(&huge(200));
        cluster.tables.sync();
        let grant = *cluster.tables.kernel.desired().grant(&("ns".into(), "huge".into())).unwrap();
        assert!(grant.asked > 20_000_000 && grant.elements <= 1 << 16, "{grant:?}");
        let count = elements(&cluster.n1.namespace);
        assert!((60_000..=(1 << 16) + 200).contains(&count), "{count}");
        let [metrics, page] = ask(&cluster.tables.published, &cluster.n1.namespace);
        assert!(metrics.contains("zonewise_proxy_over_budget_services{lost=\"addresses\"} 1\n"));
        let line = of_service(&page, "ns/huge");
        assert_eq!(line["overBudget"]["reason"], "AddressesOverBudget");
        assert!(line["overBudget"]["addresses"].as_u64().unwrap() > 900, "{line}");
        // Its ClusterIP comes first.
        let owned = cluster.tables.kernel.desired().owned(&("ns".into(), "huge".into()));
        let cluster_ip_ports = owned.iter().filter(|at| at.address == Some(ip("10.96.0.99")));
        assert_eq!(cluster_ip_ports.count(), 100);
        // It changes, and other Services are updated in between.
        for replicas in [199, 3] {
            cluster.tables.slice(&huge(replicas)).sync();
            cluster.offer(&full("next", 2, json!({})));
            cluster.tables.sync();
            assert!(probe_tcp(&from, cluster_ip(2, false), LONG).name().is_some());
        }
        cluster.tables.delete_service("ns", "huge").sync();
        cluster.tables.kernel.remove_unused().unwrap();
        done.store(true, Ordering::Relaxed);
        let counts = neighbours.join().unwrap();
        let answered = ["here", "there"].map(|name| counts.get(name).copied().unwrap_or(0));
        assert_eq!(counts.values().sum::<usize>(), answered.iter().sum::<usize>(), "{counts:?}");
    });
    cluster.tables.assert_repaired();
}
