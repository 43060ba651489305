//! Nodes, Namespaces, Leases, Events, ConfigMaps: what is special about each.

use serde_json::{Value, json};

use super::{config_map, each, event, lease, new_event, node};
use crate::requests::{
    Group, Step, delete, get, group, json_patch, merge_patch, post, put, strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("nodes", nodes()),
        group("nodes-status", node_status()),
        group("namespaces", namespaces()),
        group("leases", leases()),
        group("events", events()),
        group("events-new", new_events()),
        group("configmaps", config_maps()),
        group("metadata", metadata()),
    ]
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    match field.split_once('/') {
        Some((outer, inner)) => object[outer][inner] = value,
        None => object[field] = value,
    }
    object
}

fn nodes() -> Vec<Step> {
    let spec = |name: &str, spec: Value| with(node(&format!("{{ns}}-{name}")), "spec", spec);
    let mut steps = each(
        "nodes",
        vec![
            ("plain", spec("plain", json!({}))),
            (
                "with a range",
                spec("range", json!({"podCIDR": "10.7.0.0/24", "podCIDRs": ["10.7.0.0/24"]})),
            ),
            ("with two ranges", spec("two", json!({"podCIDRs": ["10.8.0.0/24", "fd07::/64"]}))),
            ("with a wrong range", spec("wrong", json!({"podCIDR": "10.7.0.0/99"}))),
            (
                "with a taint",
                spec(
                    "taint",
                    json!({"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
                ),
            ),
            (
                "with a wrong taint",
                spec("bad-taint", json!({"taints": [{"key": "a b", "effect": "Never"}]})),
            ),
            (
                "with a provider",
                spec("provider", json!({"providerID": "lab://1", "unschedulable": true})),
            ),
            (
                "with a status",
                with(node("{ns}-status"), "status", json!({"capacity": {"cpu": "4"}})),
            ),
            ("of a wrong name", node("Upper_Case")),
            ("of a name with a slash", node("a/b")),
        ],
    );
    steps.extend([
        merge_patch("cordoned", "nodes/{ns}-plain", json!({"spec": {"unschedulable": true}})),
        merge_patch("uncordoned", "nodes/{ns}-plain", json!({"spec": {"unschedulable": null}})),
        merge_patch(
            "given a range",
            "nodes/{ns}-plain",
            json!({"spec": {"podCIDR": "10.9.0.0/24"}}),
        ),
        merge_patch(
            "given another range",
            "nodes/{ns}-plain",
            json!({"spec": {"podCIDR": "10.10.0.0/24"}}),
        ),
        merge_patch(
            "given another provider",
            "nodes/{ns}-provider",
            json!({"spec": {"providerID": "lab://2"}}),
        ),
        strategic(
            "tainted",
            "nodes/{ns}-taint",
            json!({"spec": {"taints": [{"key": "z", "effect": "NoExecute"}]}}),
        ),
        get(
            "unschedulable ones",
            "nodes?fieldSelector=spec.unschedulable%3Dtrue&labelSelector=group%3D{ns}",
        ),
    ]);
    steps
}

fn node_status() -> Vec<Step> {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Up",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    });
    let status = json!({
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "3500m", "memory": "1.5Gi"},
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "one"}],
        "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Lab", "kernelVersion": "6.1",
            "containerRuntimeVersion": "lab://1",
            "architecture": "amd64", "bootID": "b", "kubeProxyVersion": "v1.36.4",
            "machineID": "m", "operatingSystem": "linux", "systemUUID": "s"},
    });
    let one = "nodes/{ns}-one";
    vec![
        post("made", "nodes", node("{ns}-one")),
        put("status", &format!("{one}/status"), with(node("{ns}-one"), "status", status)),
        get("status read", &format!("{one}/status")),
        put("the main resource keeps the status", one, node("{ns}-one")),
        merge_patch(
            "a label through /status",
            &format!("{one}/status"),
            json!({"metadata": {"labels": {"x": "y"}}}),
        ),
        strategic(
            "a condition more",
            &format!("{one}/status"),
            json!({"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}]}}),
        ),
        strategic(
            "a condition changed",
            &format!("{one}/status"),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False",
                "reason": "Down"}]}}),
        ),
        merge_patch(
            "cordon through /status",
            &format!("{one}/status"),
            json!({"spec": {"unschedulable": true}}),
        ),
        merge_patch(
            "a wrong quantity",
            &format!("{one}/status?dryRun=All"),
            json!({"status": {"capacity": {"cpu": "four"}}}),
        ),
        json_patch(
            "an address removed",
            &format!("{one}/status"),
            json!([{"op": "remove", "path": "/status/addresses/1"}]),
        ),
        delete("deleted", one),
    ]
}

fn namespaces() -> Vec<Step> {
    let space = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"group": "{ns}"}},
        })
    };
    vec![
        post("made", "namespaces", space("{ns}-a")),
        post("made again", "namespaces", space("{ns}-a")),
        post("of a wrong name", "namespaces", space("Not_A_Name")),
        post("of a name with a dot", "namespaces", space("a.b")),
        post("of a long name", "namespaces", space(&"a".repeat(64))),
        get("read", "namespaces/{ns}-a"),
        get("status", "namespaces/{ns}-a/status"),
        get("listed", "namespaces?labelSelector=group%3D{ns}"),
        get(
            "by phase",
            "namespaces?labelSelector=group%3D{ns}&fieldSelector=status.phase%3DActive",
        ),
        get(
            "by another phase",
            "namespaces?labelSelector=group%3D{ns}&fieldSelector=status.phase%3DTerminating",
        ),
        merge_patch("labelled", "namespaces/{ns}-a", json!({"metadata": {"labels": {"a": "b"}}})),
        post(
            "into no namespace",
            "/api/v1/namespaces/{ns}-none/configmaps",
            config_map("a", json!({})),
        ),
        get("from no namespace", "/api/v1/namespaces/{ns}-none/configmaps"),
        get("one from no namespace", "/api/v1/namespaces/{ns}-none/configmaps/a"),
        post(
            "into a namespace that the object does not name",
            "configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "other"}}),
        ),
        post(
            "what keeps it",
            "/api/v1/namespaces/{ns}-a/configmaps",
            with(
                config_map("held", json!({})),
                "metadata/finalizers",
                json!(["zonewise.dev/hold"]),
            ),
        ),
        delete("deletion begins", "namespaces/{ns}-a"),
        post(
            "into a namespace that ends",
            "/api/v1/namespaces/{ns}-a/configmaps",
            config_map("a", json!({})),
        ),
        delete("default stays", "namespaces/default"),
        delete("kube-system stays", "namespaces/kube-system"),
        delete("no collection", "namespaces"),
        get("default", "namespaces/default"),
    ]
}

fn leases() -> Vec<Step> {
    let full = json!({
        "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 1,
        "acquireTime": "2025-01-01T00:00:00.000000Z", "renewTime": "2025-01-01T00:00:01.500000Z",
    });
    let mut steps = each(
        "leases",
        vec![
            ("full", lease("full", full)),
            ("empty", lease("empty", json!({}))),
            ("for no time", lease("zero", json!({"leaseDurationSeconds": 0}))),
            (
                "negative",
                lease("negative", json!({"leaseDurationSeconds": -1, "leaseTransitions": -1})),
            ),
        ],
    );
    steps.extend([
        merge_patch(
            "taken over",
            "leases/full",
            json!({"spec": {"holderIdentity": "you", "leaseTransitions": 2}}),
        ),
        get("all", "leases"),
        merge_patch(
            "given up",
            "leases/full",
            json!({"spec": {"holderIdentity": null, "renewTime": null}}),
        ),
    ]);
    steps
}

fn events() -> Vec<Step> {
    let mut steps = each(
        "events",
        vec![
            ("full", event("full")),
            (
                "about another namespace",
                with(event("far"), "involvedObject/namespace", "other".into()),
            ),
            ("about nothing", with(event("nothing"), "involvedObject", json!({}))),
            (
                "with a time only",
                json!({
                    "apiVersion": "v1", "kind": "Event", "metadata": {"name": "time"},
                    "eventTime": "2025-01-01T00:00:00.000000Z",
                    "involvedObject": {"namespace": "{ns}"},
                    "reportingComponent": "zonewise.dev/suite", "reportingInstance": "a",
                    "action": "Look", "reason": "Seen", "type": "Normal",
                }),
            ),
            (
                "a time and no controller",
                with(event("who"), "eventTime", "2025-01-01T00:00:00.000000Z".into()),
            ),
            ("of a wrong type", with(event("type"), "type", "Strange".into())),
        ],
    );
    steps.extend([
        get("in the other group", "newevents/full"),
        get("all, in the other group", "newevents"),
        get("by reason", "events?fieldSelector=reason%3DSeen,type%3DNormal"),
        get(
            "by object",
            "events?fieldSelector=involvedObject.name%3Dweb,involvedObject.kind%3DService",
        ),
        get("by another object", "events?fieldSelector=involvedObject.name%3Dother"),
        merge_patch(
            "counted",
            "events/full",
            json!({"count": 4, "lastTimestamp": "2025-01-03T00:00:00Z"}),
        ),
        merge_patch("counted in the other group", "newevents/full", json!({"deprecatedCount": 5})),
        get("counted, read", "events/full"),
        delete("deleted in the other group", "newevents/full"),
        get("gone", "events/full"),
    ]);
    steps
}

fn new_events() -> Vec<Step> {
    let mut steps = each(
        "newevents",
        vec![
            ("full", new_event("full")),
            (
                "a series",
                with(
                    new_event("series"),
                    "series",
                    json!({"count": 2, "lastObservedTime": "2025-01-01T00:00:01.000000Z"}),
                ),
            ),
            (
                "a series of one",
                with(
                    new_event("one"),
                    "series",
                    json!({"count": 1, "lastObservedTime": "2025-01-01T00:00:01.000000Z"}),
                ),
            ),
            ("no time", with(new_event("no-time"), "eventTime", Value::Null)),
            ("no controller", with(new_event("no-controller"), "reportingController", "".into())),
            ("no instance", with(new_event("no-instance"), "reportingInstance", "".into())),
            ("no action", with(new_event("no-action"), "action", "".into())),
            ("no reason", with(new_event("no-reason"), "reason", "".into())),
            ("a wrong type", with(new_event("type"), "type", "Strange".into())),
            ("a long note", with(new_event("note"), "note", "x".repeat(1025).into())),
            ("old fields", with(new_event("old"), "deprecatedCount", 3.into())),
        ],
    );
    steps.extend([
        get("in the core group", "events/full"),
        get("by object", "newevents?fieldSelector=regarding.name%3Dweb"),
        get("by reason", "newevents?fieldSelector=reason%3DSeen"),
        merge_patch(
            "a series begins",
            "newevents/full",
            json!({"series": {"count": 2, "lastObservedTime": "2025-01-01T00:00:02.000000Z"}}),
        ),
        merge_patch("another note", "newevents/full", json!({"note": "another"})),
    ]);
    steps
}

fn config_maps() -> Vec<Step> {
    let mut steps = each(
        "configmaps",
        vec![
            ("empty", config_map("empty", json!({}))),
            (
                "no data",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}}),
            ),
            (
                "binary",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "binary"},
                    "binaryData": {"b": "AAEC"}}),
            ),
            ("a wrong key", config_map("key", json!({"a b": "1"}))),
            ("two dots as key", config_map("dots", json!({"..": "1"}))),
            ("a long key", config_map("long", json!({"k".repeat(254): "1"}))),
            (
                "the same key twice",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice"},
                    "data": {"a": "1"}, "binaryData": {"a": "AAEC"}}),
            ),
            (
                "immutable",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fixed"},
                    "data": {"a": "1"}, "immutable": true}),
            ),
            ("too much", config_map("much", json!({"a": "x".repeat(1_048_577)}))),
        ],
    );
    steps.extend([
        merge_patch("immutable changed", "configmaps/fixed", json!({"data": {"a": "2"}})),
        merge_patch("immutable no more", "configmaps/fixed", json!({"immutable": false})),
        merge_patch(
            "immutable labelled",
            "configmaps/fixed",
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
        get("all", "configmaps"),
    ]);
    steps
}

/// What all kinds share.
fn metadata() -> Vec<Step> {
    let made = |field: &str, value: Value| {
        with(config_map("one", json!({})), &format!("metadata/{field}"), value)
    };
    let named = |name: &str| made("name", name.into());
    let owner = |owner: Value| made("ownerReferences", json!([owner]));
    let mut steps = each(
        "configmaps?dryRun=All",
        vec![
            ("a wrong label key", made("labels", json!({"a b": "c"}))),
            ("a wrong label value", made("labels", json!({"a": "b c"}))),
            ("a long label value", made("labels", json!({"a": "b".repeat(64)}))),
            ("a label with a prefix", made("labels", json!({"zonewise.dev/a": "B_c-1"}))),
            ("a label with a wrong prefix", made("labels", json!({"Zonewise/a": "b"}))),
            ("a wrong annotation key", made("annotations", json!({"a b": "c"}))),
            ("an annotation key in capitals", made("annotations", json!({"Zonewise.dev/A": "c"}))),
            ("too many annotations", made("annotations", json!({"a": "x".repeat(262_200)}))),
            ("a name in capitals", named("One")),
            ("a long name", named(&"a".repeat(254))),
            ("an empty name", named("")),
            ("a name with a dot", named("a.b")),
            ("a name with two dots", named("a..b")),
            ("a name that ends in a dash", named("a-")),
            ("a name with an underscore", named("a_b")),
            ("a finalizer", made("finalizers", json!(["zonewise.dev/wait"]))),
            ("a finalizer without a domain", made("finalizers", json!(["wait"]))),
            ("a wrong finalizer", made("finalizers", json!(["a b/c"]))),
            (
                "an owner",
                owner(json!({"apiVersion": "v1", "kind": "Service", "name": "a",
                        "uid": "11111111-1111-1111-1111-111111111111"})),
            ),
            (
                "an owner without a uid",
                owner(json!({"apiVersion": "v1", "kind": "Service", "name": "a"})),
            ),
            (
                "an owner without a name",
                owner(json!({"apiVersion": "v1", "kind": "Service", "uid": "1"})),
            ),
            (
                "an owner that is an event",
                owner(json!({"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"})),
            ),
            (
                "two that control",
                made(
                    "ownerReferences",
                    json!([
                        {"apiVersion": "v1", "kind": "Service", "name": "a", "uid": "1",
                            "controller": true},
                        {"apiVersion": "v1", "kind": "Service", "name": "b", "uid": "2",
                            "controller": true},
                    ]),
                ),
            ),
            ("a version", made("resourceVersion", "5".into())),
            ("a uid", made("uid", "11111111-1111-1111-1111-111111111111".into())),
            ("a time", made("creationTimestamp", "2020-01-01T00:00:00Z".into())),
            ("a generation", made("generation", 7.into())),
            ("a deletion", made("deletionTimestamp", "2020-01-01T00:00:00Z".into())),
            ("a self link", made("selfLink", "/a".into())),
            ("managed fields", made("managedFields", json!([]))),
            (
                "wrong managed fields",
                made("managedFields", json!([{"manager": "x", "operation": "Guess"}])),
            ),
        ],
    );
    steps.extend([
        post("made", "configmaps", named("one")),
        merge_patch("another name", "configmaps/one", json!({"metadata": {"name": "two"}})),
        merge_patch(
            "another namespace",
            "configmaps/one",
            json!({"metadata": {"namespace": "two"}}),
        ),
        merge_patch(
            "another uid",
            "configmaps/one",
            json!({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}),
        ),
        merge_patch(
            "another time",
            "configmaps/one",
            json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}),
        ),
        merge_patch(
            "another version",
            "configmaps/one",
            json!({"metadata": {"resourceVersion": "1"}}),
        ),
        merge_patch("another kind", "configmaps/one?dryRun=All", json!({"kind": "Secret"})),
        merge_patch(
            "another deletion",
            "configmaps/one",
            json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}),
        ),
        merge_patch(
            "no managed fields",
            "configmaps/one",
            json!({"metadata": {"managedFields": [{}]}}),
        ),
        get("read", "configmaps/one"),
    ]);
    steps
}
