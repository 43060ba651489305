//! Services that ask for more elements than they may have: what they lose, and that nobody else loses anything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_proxy::config::Budget;
use zonewise_proxy::testing::{Extent, NodeSettings, Options};
use zonewise_routing::NodeLocation;

use crate::common::objects::{Endpoint, annotated, ports, service, slice};
use crate::common::pages::{ask, of_service};
use crate::common::weighted::{SHARES, elements, load_balancer, members, shares};
use crate::common::{Tables, ip, usual_node};
use crate::kernel::{member, object, with_shares};

fn tables(namespace: &Namespace, budget: Budget) -> Tables {
    let node = NodeSettings { budget, ..usual_node([Some(ip("192.168.0.1")), None]) };
    Tables::new(namespace, NodeLocation::new("n1", Some("a"), None), Options::default(), node)
}

/// Endpoints of three zones with uneven shares.
fn weighted(name: &str, first: u32, counts: [u32; 3]) -> Value {
    let zone = move |n| {
        if n < counts[0] {
            "a"
        } else if n < counts[0] + counts[1] {
            "b"
        } else {
            "c"
        }
    };
    let all = members(first, counts.iter().sum(), zone);
    annotated(slice(name, &format!("{name}-1"), &all), SHARES, &shares(counts, [0.4, 0.35, 0.25]))
}

fn granted(tables: &Tables, namespace: &str, name: &str) -> Option<(bool, bool)> {
    let grant = tables.kernel.desired().grant(&(namespace.into(), name.into()))?;
    Some((grant.weights, grant.extent == Extent::All))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 10, ..ProptestConfig::default() })]

    /// What a Service is said to cost is what its elements are.
    #[test]
    fn a_bill_is_the_number_of_elements(
        kind in 0..6_u8,
        endpoints in prop::collection::vec((1..9_u8, 0..5_u8), 0..8),
        weights in any::<bool>(),
        all in any::<bool>(),
    ) {
        let namespace = Namespace::new("bill").unwrap();
        let mut tables = tables(&namespace, Budget::default());
        // Kind 4 claims an address of the other Service, which has it.
        if all && kind != 4 {
            crate::kernel::all_of_a_service(&mut tables);
        }
        let members: Vec<Endpoint> = endpoints.into_iter().map(member).collect();
        let plain = slice("s1", "s1-1", &members);
        tables.service(&object(1, kind)).slice(&if weights { with_shares(plain) } else { plain }).sync();
        let mut counted = 0;
        tables.kernel.desired().each(|_| counted += 1);
        prop_assert_eq!(tables.kernel.desired().elements(), counted);
    }
}

/// Weights go first: the same endpoints, each with the same chance. With fewer ports they come back.
#[test]
fn a_service_over_its_budget_loses_its_weights_first() {
    let namespace = Namespace::new("weights").unwrap();
    let mut tables = tables(&namespace, Budget { service: 2_000, ..Budget::default() });
    let many = |count: u16| load_balancer("web", "10.96.0.10", "198.51.100.1", 1..count + 1);
    let names: Vec<String> = (1..=20).map(|n| format!("p{n}")).collect();
    let offered: Vec<(&str, u16, &str)> = names.iter().map(|name| (&**name, 8080, "TCP")).collect();
    tables.service(&many(20)).slice(&ports(weighted("web", 0, [8, 6, 6]), &offered));
    tables.service(&service("other", &["10.96.0.11"])).slice(&weighted("other", 500, [2, 1, 1]));
    tables.sync().assert_repaired();
    assert_eq!(granted(&tables, "ns", "web"), Some((false, true)));
    assert_eq!(granted(&tables, "ns", "other"), None, "others are untouched");
    let count = elements(&namespace);
    assert!((20 * 3 * 21..=2_000 + 100).contains(&count), "{count}");
    let [metrics, page] = ask(&tables.published, &namespace);
    let line = |service: &str| of_service(&page, service);
    assert!(
        metrics.contains("zonewise_proxy_over_budget_services{lost=\"weights\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("zonewise_proxy_over_budget_services{lost=\"addresses\"} 0\n"),
        "{metrics}"
    );
    let over = line("ns/web");
    assert_eq!(over["reason"], "WeightsOverBudget");
    assert!(over["sentence"].as_str().unwrap().ends_with("elements, at most 2000)"), "{over}");
    assert_eq!((&over["mode"], &over["weights"]), (&json!("shares"), &Value::Null));
    assert_eq!(over["cluster"].as_array().unwrap().len(), 20);
    assert_eq!(line("ns/other")["reason"], "SharesApplied");
    assert!(line("ns/other")["weights"].is_array());
    tables.service(&many(3)).sync().assert_repaired();
    assert_eq!(granted(&tables, "ns", "web"), None);
}

/// Where all together ask for more than the node has, namespaces share it: who asks for little loses nothing.
#[test]
fn a_namespace_that_fills_the_node_takes_nothing_from_others() {
    let namespace = Namespace::new("shared").unwrap();
    let mut tables = tables(&namespace, Budget { service: 2_000, node: 3_000 });
    let within = |mut object: Value, of: &str| {
        object["metadata"]["namespace"] = json!(of);
        object
    };
    let add = |tables: &mut Tables, of: &str, number: u8, counts| {
        let name = format!("s{number}");
        let object = within(service(&name, &[&format!("10.96.1.{number}")]), of);
        tables
            .service(&object)
            .slice(&within(weighted(&name, u32::from(number) * 256, counts), of));
    };
    add(&mut tables, "small", 1, [3, 2, 1]);
    add(&mut tables, "small", 2, [4, 4, 4]);
    for number in 10..30 {
        add(&mut tables, "large", number, [40, 30, 30]);
        tables.sync();
        let desired = tables.kernel.desired();
        assert!(desired.elements() <= 3_000, "{}", desired.elements());
    }
    tables.assert_repaired();
    for name in ["s1", "s2"] {
        assert_eq!(granted(&tables, "small", name), None);
    }
    assert_eq!(granted(&tables, "large", "s10"), Some((false, false)));
    assert!(elements(&namespace) <= 3_000 + 22, "ClusterIPs of Services without endpoints stay");
    for number in 12..30 {
        tables.delete_service("large", &format!("s{number}"));
    }
    tables.sync().assert_repaired();
    assert_eq!(granted(&tables, "large", "s10"), None, "what others give up comes back");
}
