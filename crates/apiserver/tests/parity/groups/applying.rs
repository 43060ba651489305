//! Server-side apply: managers of fields, conflicts, and fields that are no longer applied.

use serde_json::{Value, json};

use super::{config_map, service};
use crate::requests::{
    Group, Step, apply, delete, get, group, merge_patch, other, post, put, strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("apply", maps()),
        group("apply-lists", lists()),
        group("apply-status", status()),
        group("apply-mixed", mixed()),
        group("apply-kinds", kinds()),
        group("apply-wrong", wrong()),
    ]
}

fn by(path: &str, manager: &str) -> String {
    format!("{path}?fieldManager={manager}")
}

fn forced(path: &str, manager: &str) -> String {
    format!("{path}?fieldManager={manager}&force=true")
}

fn maps() -> Vec<Step> {
    let one = "configmaps/one";
    let data = |data: Value| config_map("one", data);
    vec![
        apply("created", &by(one, "a"), data(json!({"x": "1", "y": "2"}))),
        apply("the same", &by(one, "a"), data(json!({"x": "1", "y": "2"}))),
        apply("changed", &by(one, "a"), data(json!({"x": "2", "y": "2"}))),
        apply("one less", &by(one, "a"), data(json!({"x": "2"}))),
        apply("shared", &by(one, "b"), data(json!({"x": "2", "z": "3"}))),
        apply("conflict", &by(one, "b"), data(json!({"x": "9", "z": "3"}))),
        apply("a conflict with another", &by(one, "c"), data(json!({"z": "8"}))),
        apply("forced", &forced(one, "b"), data(json!({"x": "9", "z": "3"}))),
        apply("the first wants it back", &by(one, "a"), data(json!({"x": "2"}))),
        apply("the first gives it up", &by(one, "a"), data(json!({}))),
        apply("the second gives one up", &by(one, "b"), data(json!({"z": "3"}))),
        apply("shared again", &by(one, "a"), data(json!({"z": "3"}))),
        apply("one of two lets go", &by(one, "b"), data(json!({}))),
        get("it stays", one),
        apply(
            "labels",
            &by(one, "l"),
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "one", "labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        ),
        apply(
            "labels gone",
            &by(one, "l"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}),
        ),
        apply("dry", &format!("{}&dryRun=All", by(one, "d")), data(json!({"dry": "1"}))),
        get("read", one),
        delete("deleted", one),
        apply("created again", &by(one, "a"), data(json!({"x": "1"}))),
    ]
}

fn lists() -> Vec<Step> {
    let one = "services/one";
    let ports = |ports: Value| service("one", json!({"selector": {"app": "web"}, "ports": ports}));
    vec![
        apply(
            "created",
            &by(one, "a"),
            ports(json!([{"port": 80, "name": "http", "protocol": "TCP"}])),
        ),
        apply(
            "a port of another",
            &by(one, "b"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
                "spec": {"ports": [{"port": 443, "name": "https", "protocol": "TCP"}]}}),
        ),
        apply(
            "a target by the first",
            &by(one, "a"),
            ports(json!([{"port": 80, "name": "http", "protocol": "TCP", "targetPort": 8080}])),
        ),
        apply(
            "a conflict in a port",
            &by(one, "b"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
                "spec": {"ports": [{"port": 443, "name": "https", "protocol": "TCP"},
                    {"port": 80, "protocol": "TCP", "targetPort": 9090}]}}),
        ),
        apply(
            "the second removes its port",
            &by(one, "b"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}}),
        ),
        apply(
            "a conflict in the selector",
            &by(one, "b"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
                "spec": {"selector": {"app": "other"}}}),
        ),
        apply(
            "a port without a protocol",
            &by(one, "a"),
            ports(json!([{"port": 80, "name": "http"}])),
        ),
        apply(
            "the same port twice",
            &by(one, "a"),
            ports(json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])),
        ),
        apply(
            "finalizers of one",
            &by(one, "f"),
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "one", "finalizers": ["zonewise.dev/f"]}}),
        ),
        apply(
            "finalizers of another",
            &by(one, "g"),
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "one", "finalizers": ["zonewise.dev/g"]}}),
        ),
        apply(
            "one lets go",
            &by(one, "f"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}}),
        ),
        apply(
            "the other too",
            &by(one, "g"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}}),
        ),
        get("read", one),
    ]
}

fn status() -> Vec<Step> {
    let one = "services/one/status";
    let condition = |kind: &str, status: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
            "status": {"conditions": [{"type": kind, "status": status, "reason": "R",
                "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"}]},
        })
    };
    vec![
        apply("nothing there", &by(one, "a"), condition("zonewise.dev/A", "True")),
        post("made", "services", service("one", json!({"ports": [{"port": 80}]}))),
        apply("a condition", &by(one, "a"), condition("zonewise.dev/A", "True")),
        apply("another's condition", &by(one, "b"), condition("zonewise.dev/B", "True")),
        apply("a conflict", &by(one, "b"), condition("zonewise.dev/A", "False")),
        apply("forced", &forced(one, "b"), condition("zonewise.dev/A", "False")),
        apply(
            "gone",
            &by(one, "b"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}}),
        ),
        get("read", one),
    ]
}

fn mixed() -> Vec<Step> {
    let one = "configmaps/one";
    vec![
        post(
            "made by a post",
            &by("configmaps", "poster"),
            config_map("one", json!({"a": "1", "b": "2"})),
        ),
        apply(
            "applied over it",
            &by(one, "applier"),
            config_map("one", json!({"a": "1", "c": "3"})),
        ),
        apply("a conflict with a post", &by(one, "applier"), config_map("one", json!({"b": "9"}))),
        put(
            "a put takes what it changes",
            &by(one, "putter"),
            config_map("one", json!({"a": "7", "b": "2", "c": "3"})),
        ),
        apply("a conflict with a put", &by(one, "applier"), config_map("one", json!({"a": "1"}))),
        apply("forced", &forced(one, "applier"), config_map("one", json!({"a": "1"}))),
        merge_patch("a patch takes it", &by(one, "patcher"), json!({"data": {"a": "5"}})),
        merge_patch("a patch that changes nothing", &by(one, "idler"), json!({"data": {"a": "5"}})),
        merge_patch("a patch removes it", &by(one, "patcher"), json!({"data": {"a": null}})),
        strategic("a label", &by(one, "labeller"), json!({"metadata": {"labels": {"x": "y"}}})),
        put("a put that removes much", &by(one, "putter"), config_map("one", json!({"z": "1"}))),
        merge_patch(
            "managers forgotten",
            &by(one, "cleaner"),
            json!({"metadata": {"managedFields": [{}]}}),
        ),
        merge_patch("and counted again", &by(one, "patcher"), json!({"data": {"new": "1"}})),
        apply(
            "applied at last",
            &by(one, "applier"),
            config_map("one", json!({"new": "1", "last": "2"})),
        ),
    ]
}

fn kinds() -> Vec<Step> {
    let slice = |endpoints: Value| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "one"}, "addressType": "IPv4",
            "endpoints": endpoints, "ports": [{"name": "http", "port": 80}],
        })
    };
    let node = |labels: Value, taints: Value| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}-one", "labels": labels},
            "spec": {"taints": taints},
        })
    };
    let pod = |image: &str, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
            "spec": {"containers": [{"name": "main", "image": image, "ports": ports,
                "env": [{"name": "A", "value": "1"}]}]},
        })
    };
    let lease = |holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "one"},
            "spec": {"holderIdentity": holder},
        })
    };
    let ready = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}-one"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}},
    });
    vec![
        apply(
            "slice",
            &by("endpointslices/one", "a"),
            slice(json!([{"addresses": ["10.1.2.3"], "zone": "a"}])),
        ),
        apply(
            "slice changed",
            &by("endpointslices/one", "a"),
            slice(json!([{"addresses": ["10.1.2.4"]}])),
        ),
        apply(
            "slice of another",
            &by("endpointslices/one", "b"),
            slice(json!([{"addresses": ["10.1.2.5"]}])),
        ),
        apply(
            "node",
            &by("nodes/{ns}-one", "a"),
            node(json!({"zone": "a"}), json!([{"key": "k", "effect": "NoSchedule"}])),
        ),
        apply(
            "node of another",
            &by("nodes/{ns}-one", "b"),
            node(json!({"zone": "b"}), json!([{"key": "k", "effect": "NoExecute"}])),
        ),
        apply("node status", &by("nodes/{ns}-one/status", "kubelet"), ready),
        apply(
            "pod",
            &by("pods/one", "a"),
            pod("a:1", json!([{"containerPort": 80, "protocol": "TCP"}])),
        ),
        apply(
            "pod of another image",
            &by("pods/one", "b"),
            pod("a:2", json!([{"containerPort": 80, "protocol": "TCP"}])),
        ),
        apply(
            "pod of another image, forced",
            &forced("pods/one", "b"),
            pod("a:2", json!([{"containerPort": 80, "protocol": "TCP"}])),
        ),
        apply("lease", &by("leases/one", "a"), lease("me")),
        apply("lease of another", &by("leases/one", "b"), lease("you")),
        apply(
            "namespace",
            &by("namespaces/{ns}-more", "a"),
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "{ns}-more", "labels": {"x": "y"}}}),
        ),
        delete("node gone", "nodes/{ns}-one"),
    ]
}

fn wrong() -> Vec<Step> {
    let one = "configmaps/one";
    let body = config_map("one", json!({"a": "1"}));
    let with = |field: &str, value: Value| {
        let mut made = config_map("one", json!({"a": "1"}));
        made["metadata"][field] = value;
        made
    };
    vec![
        apply("no manager", one, body.clone()),
        apply("an empty manager", "configmaps/one?fieldManager=", body.clone()),
        apply("another name", &by(one, "a"), config_map("two", json!({}))),
        apply(
            "no name",
            &by(one, "a"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}),
        ),
        apply("another kind", &by(one, "a"), service("one", json!({}))),
        apply("no kind", &by(one, "a"), json!({"metadata": {"name": "one"}})),
        apply(
            "managed fields",
            &by(one, "a"),
            with("managedFields", json!([{"manager": "a", "operation": "Apply"}])),
        ),
        apply(
            "a uid where none is",
            &by(one, "a"),
            with("uid", "11111111-1111-1111-1111-111111111111".into()),
        ),
        apply("a version where none is", &by(one, "a"), with("resourceVersion", "1".into())),
        apply(
            "an unknown field",
            &format!("{}&dryRun=All", by(one, "a")),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"},
                "color": "red"}),
        ),
        apply(
            "a wrong type",
            &format!("{}&dryRun=All", by(one, "a")),
            config_map("one", json!({"a": 1})),
        ),
        apply(
            "something invalid",
            &by("services/one", "a"),
            service("one", json!({"ports": [{"port": 0, "protocol": "TCP"}]})),
        ),
        other("PATCH", "no YAML", &by(one, "a")).raw("application/apply-patch+yaml", "a: [b"),
        other("PATCH", "nothing", &by(one, "a")).raw("application/apply-patch+yaml", ""),
        other("PATCH", "YAML", &by(one, "a")).raw(
            "application/apply-patch+yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: '1'\n",
        ),
        apply("an old version", &by(one, "a"), with("resourceVersion", "1".into())),
        get("read", one),
    ]
}
