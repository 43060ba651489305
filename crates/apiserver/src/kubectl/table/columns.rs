//! The columns of each kind.

use serde_json::{Value, json};

use crate::objects::kind::Kind;

/// Name, description, and whether the column is shown with `-o wide` alone.
struct Column(&'static str, &'static str, bool);

const NAME: Column = Column("Name", "The name of the object.", false);
const AGE: Column = Column("Age", "How long ago the object was created.", false);

const PODS: [Column; 9] = [
    NAME,
    Column("Ready", "Containers that are ready, of all.", false),
    Column("Status", "What the containers of the pod are doing.", false),
    Column("Restarts", "How often containers were restarted, and when last.", false),
    AGE,
    Column("IP", "The address of the pod.", true),
    Column("Node", "The node that runs the pod.", true),
    Column("Nominated Node", "The node where other pods are removed to make room.", true),
    Column("Readiness Gates", "Further conditions that hold, of all.", true),
];
const SERVICES: [Column; 7] = [
    NAME,
    Column("Type", "How the service is exposed.", false),
    Column("Cluster-IP", "The address of the service inside the cluster.", false),
    Column("External-IP", "Addresses of the service outside the cluster.", false),
    Column("Port(s)", "Ports, node ports and protocols.", false),
    AGE,
    Column("Selector", "Labels of the pods behind the service.", true),
];
const NODES: [Column; 10] = [
    NAME,
    Column("Status", "Whether the node is ready and takes pods.", false),
    Column("Roles", "The roles of the node.", false),
    AGE,
    Column("Version", "The version of the kubelet.", false),
    Column("Internal-IP", "The address of the node inside the cluster.", true),
    Column("External-IP", "The address of the node outside the cluster.", true),
    Column("OS-Image", "The operating system.", true),
    Column("Kernel-Version", "The kernel.", true),
    Column("Container-Runtime", "What runs the containers.", true),
];
const SLICES: [Column; 5] = [
    NAME,
    Column("AddressType", "The type of all addresses of the slice.", false),
    Column("Ports", "The ports of each endpoint.", false),
    Column("Endpoints", "The first addresses.", false),
    AGE,
];
const EVENTS: [Column; 10] = [
    Column("Last Seen", "How long ago it last happened.", false),
    Column("Type", "Normal or Warning.", false),
    Column("Reason", "Why, in one word.", false),
    Column("Object", "What the event is about.", false),
    Column("Subobject", "Which part of the object.", true),
    Column("Source", "Who reported the event.", true),
    Column("Message", "What happened.", false),
    Column("First Seen", "How long ago it first happened.", true),
    Column("Count", "How often it happened.", true),
    Column("Name", "The name of the object.", true),
];
const DEPLOYMENTS: [Column; 8] = [
    NAME,
    Column("Ready", "Pods that are ready, of those that are wanted.", false),
    Column("Up-to-date", "Pods of the current template.", false),
    Column("Available", "Pods that have been ready for long enough.", false),
    AGE,
    Column("Containers", "Names of the containers.", true),
    Column("Images", "Images of the containers.", true),
    Column("Selector", "Labels of the pods.", true),
];
const REPLICA_SETS: [Column; 8] = [
    NAME,
    Column("Desired", "Pods that are wanted.", false),
    Column("Current", "Pods that exist.", false),
    Column("Ready", "Pods that are ready.", false),
    AGE,
    Column("Containers", "Names of the containers.", true),
    Column("Images", "Images of the containers.", true),
    Column("Selector", "Labels of the pods.", true),
];
const LEASES: [Column; 3] = [NAME, Column("Holder", "Who holds the lease.", false), AGE];
const NAMESPACES: [Column; 3] = [NAME, Column("Status", "Active or Terminating.", false), AGE];
const MAPS: [Column; 3] = [NAME, Column("Data", "The number of keys.", false), AGE];
const RANGES: [Column; 3] = [NAME, Column("CIDRs", "Networks of cluster addresses.", false), AGE];
const OTHERS: [Column; 2] = [NAME, AGE];

fn columns(kind: &Kind) -> &'static [Column] {
    match kind.kind {
        "Pod" => &PODS,
        "Service" => &SERVICES,
        "Node" => &NODES,
        "EndpointSlice" => &SLICES,
        "Event" => &EVENTS,
        "Deployment" => &DEPLOYMENTS,
        "ReplicaSet" => &REPLICA_SETS,
        "Lease" => &LEASES,
        "Namespace" => &NAMESPACES,
        "ConfigMap" => &MAPS,
        "ServiceCIDR" => &RANGES,
        _ => &OTHERS,
    }
}

/// The type of the cells of a column. kube-apiserver calls most numbers strings.
fn cell_type(kind: &Kind, column: &str) -> &'static str {
    match (kind.kind, column) {
        ("ReplicaSet", "Desired" | "Current" | "Ready") => "integer",
        _ => "string",
    }
}

pub(super) fn definitions(kind: &Kind) -> Value {
    let one = |Column(name, description, wide): &Column| {
        json!({
            "name": name, "type": cell_type(kind, name), "format": if *name == "Name" { "name" } else { "" },
            "description": description, "priority": i32::from(*wide),
        })
    };
    columns(kind).iter().map(one).collect()
}
