//! A cluster with a Service, for the page of a cluster.

use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Lent, Process, User, content_type_flag, manifests};

use crate::nodes::plain_cluster;

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/observer/rbac.yaml");

/// A cluster of three zones, with our controller and a Service that asks for nothing.
pub(super) async fn cluster() -> (Lent, Process) {
    let cluster = plain_cluster().await;
    let mut objects = manifests(ROLES).unwrap();
    objects.push(namespace("shop"));
    for zone in ["a", "b", "c"] {
        objects.push(node(zone, zone, "4"));
    }
    for (number, zone) in ["a", "b", "c", "a", "b", "c"].iter().enumerate() {
        objects.push(pod(
            "shop",
            &format!("web-{number}"),
            "web",
            zone,
            &format!("10.244.0.{}", number + 1),
        ));
    }
    objects.push(service("shop", "web", "web"));
    cluster.create(&objects).await.unwrap();
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let arguments = [
        "controller",
        "--leader-elect=false",
        "--health-address=127.0.0.1:0",
        "--metrics-address=127.0.0.1:0",
    ];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
    arguments.extend(content_type_flag());
    let log = cluster.log("zonewise-controller");
    let controller = Process::spawn(PROGRAM.as_ref(), &arguments, &[], &log).unwrap();
    (cluster, controller)
}
