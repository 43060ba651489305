//! A shop on a real API server, for those who only look.
#![allow(dead_code, reason = "every test target uses its part of this")]

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Cluster, Lent, User, manifests};

use crate::nodes::plain_cluster;
use crate::observe::run::{Ran, program};

const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/observer/rbac.yaml");

/// Questions about the shop.
pub(crate) const COMMANDS: [&[&str]; 6] = [
    &["plan", "-o", "json"],
    &["plan", "-n", "shop", "-o", "json"],
    &["explain", "shop/web", "-o", "json", "--as-if", "controller,proxy"],
    &["explain", "web", "-n", "other", "-o", "json", "--as-if", "controller,proxy"],
    &["explain", "-o", "json", "--as-if", "controller,proxy"],
    &["route", "--node", "a", "-o", "json"],
];

/// Three zones, a Service in two namespaces.
pub(crate) async fn shop() -> Lent {
    let cluster = plain_cluster().await;
    let mut objects = manifests(ROLES).unwrap();
    objects.extend([namespace("shop"), namespace("other")]);
    for zone in ["a", "b", "c"] {
        objects.push(node(zone, zone, "4"));
    }
    for space in ["shop", "other"] {
        for (number, zone) in ["a", "b", "c", "a", "b", "c"].iter().enumerate() {
            let ip = format!("10.244.{}.{}", u8::from(space == "other"), number + 1);
            objects.push(pod(space, &format!("web-{number}"), "web", zone, &ip));
        }
        let mut service = service(space, "web", "web");
        service["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
        objects.push(service);
    }
    cluster.create(&objects).await.unwrap();
    cluster
}

pub(crate) fn live(cluster: &Cluster, arguments: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    program(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap().into()
}

pub(crate) fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// A document without the fields that objects do not show: what runs, and whether slices only lack.
pub(crate) fn objects_only(mut document: Value) -> Value {
    without(&mut document, &["environment", "verdict", "state"]);
    document
}

/// Removes fields wherever they are.
fn without(document: &mut Value, fields: &[&str]) {
    match document {
        Value::Object(object) => {
            object.retain(|key, _| !fields.contains(&key.as_str()));
            object.values_mut().for_each(|value| without(value, fields));
        }
        Value::Array(array) => array.iter_mut().for_each(|value| without(value, fields)),
        _ => {}
    }
}
