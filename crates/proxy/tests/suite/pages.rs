//! `/metrics` and `/routes` answer whatever the sync loop does with the kernel's tables.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::sync::Arc;

use crate::common::objects::{endpoint, service, slice, with};
use crate::common::pages::{ask, routes};
use crate::common::{Tables, ip, usual_node};
use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_proxy::testing::{KernelHandle, Options, Published};
use zonewise_routing::NodeLocation;

/// The kernel's lock is held, as it is while tables of any size are read or written: the pages answer with what
/// the last sync has left.
#[test]
fn pages_do_not_wait_for_the_kernels_lock() {
    let namespace = Namespace::new("pages").unwrap();
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let mut tables = Tables::new(&namespace, location, Options::default(), node);
    let published = Arc::clone(&tables.published);
    let taken = json!({"externalIPs": ["198.51.100.1"]});
    tables
        .service(&with(service("a", &["10.96.0.1"]), taken.clone()))
        .service(&with(service("b", &["10.96.0.2"]), taken))
        .slice(&slice("a", "a-1", &[endpoint(ip("10.244.0.1"), "n1", "a")]))
        .sync();
    tables.service(&service("c", &["10.96.0.3"])).delete_service("ns", "a").sync();
    let handle = KernelHandle::default();
    handle.set(tables.kernel);
    let [metrics, page] = handle.with(|_| ask(&published, &namespace)).unwrap();
    let named: Vec<Value> =
        routes(&page).as_array().unwrap().iter().map(|line| line["service"].clone()).collect();
    assert_eq!(named, ["ns/b", "ns/c"]);
    assert!(metrics.contains("zonewise_proxy_contested_frontends 0"), "{metrics}");
    assert!(metrics.contains("zonewise_proxy_service_ports{mode=\"any\""), "{metrics}");
    assert!(metrics.contains("zonewise_proxy_batches_total"), "{metrics}");
}

/// What a Service asks for and does not get is shown for the Service that lost it, when the other one comes and
/// when it goes.
#[test]
fn pages_follow_what_others_take() {
    let namespace = Namespace::new("taken").unwrap();
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let mut tables = Tables::new(&namespace, location, Options::default(), node);
    let published = Arc::clone(&tables.published);
    let taken = json!({"externalIPs": ["198.51.100.1"]});
    let refused = |published: &Arc<Published>| {
        let [metrics, page] = ask(published, &namespace);
        let count = metrics.lines().find(|line| line.starts_with("zonewise_proxy_contested"));
        let lines = routes(&page);
        let refused = lines.as_array().unwrap().iter().filter(|line| line["refused"].is_array());
        let names: Vec<String> = refused.map(|line| line["service"].to_string()).collect();
        (count.unwrap().rsplit(' ').next().unwrap().to_owned(), names)
    };
    tables.service(&with(service("b", &["10.96.0.2"]), taken.clone())).sync();
    assert_eq!(refused(&published), ("0".into(), vec![]));
    tables.service(&with(service("a", &["10.96.0.1"]), taken)).sync();
    assert_eq!(refused(&published), ("1".into(), vec!["\"ns/b\"".into()]));
    tables.delete_service("ns", "a").sync();
    assert_eq!(refused(&published), ("0".into(), vec![]));
}

/// Endpoints that are left out because of their address are counted on the page, with the reason, and the others are
/// used.
#[test]
fn special_addresses_are_on_the_page_of_routes() {
    let namespace = Namespace::new("special").unwrap();
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let mut tables = Tables::new(&namespace, location, Options::default(), node);
    let published = Arc::clone(&tables.published);
    let good = endpoint(ip("10.244.0.1"), "n1", "a");
    let special = endpoint(ip("169.254.169.254"), "n1", "a");
    let line = || {
        let [_, page] = ask(&published, &namespace);
        routes(&page)[0].clone()
    };
    tables.service(&service("a", &["10.96.0.1"]));
    tables.slice(&slice("a", "a-1", &[good.clone(), special])).sync();
    let told = line();
    assert_eq!(told["leftOut"]["reason"], "SpecialAddresses");
    assert!(told["leftOut"]["sentence"].as_str().unwrap().ends_with("(1 endpoint)"), "{told}");
    assert_eq!(told["cluster"], json!(["10.244.0.1:8080"]));
    tables.slice(&slice("a", "a-1", &[good])).sync();
    assert_eq!(line()["leftOut"], Value::Null);
}
