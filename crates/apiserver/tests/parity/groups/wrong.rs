//! Invalid requests.

use serde_json::{Value, json};

use super::{config_map, lease, node, pod, service, slice};
use crate::requests::{Group, Step, delete, get, group, merge_patch, other, post, put};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("types", types()),
        group("wrong-bodies", bodies()),
        group("wrong-paths", paths()),
        group("wrong-methods", methods()),
    ]
}

fn bodies() -> Vec<Step> {
    let raw =
        |name: &str, body: &str| other("POST", name, "configmaps").raw("application/json", body);
    let deep = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"deep"}},"x":{}{}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    vec![
        raw("no body", ""),
        raw("half a body", r#"{"apiVersion":"v1","kind":"Con"#),
        raw("no JSON", "hello"),
        raw("a number", "7"),
        raw("a list", "[]"),
        raw("null", "null"),
        raw("an empty object", "{}"),
        raw(
            "more than an object",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}} x"#,
        ),
        raw("no kind", r#"{"apiVersion":"v1","metadata":{"name":"nokind"}}"#),
        raw("no version", r#"{"kind":"ConfigMap","metadata":{"name":"noversion"}}"#),
        raw("neither", r#"{"metadata":{"name":"neither"}}"#),
        raw("another version", r#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}"#),
        raw(
            "another group",
            r#"{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"a"}}"#,
        ),
        raw("another kind", r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}"#),
        raw("a list of objects", r#"{"apiVersion":"v1","kind":"ConfigMapList","items":[]}"#),
        raw("metadata that is null", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":null}"#),
        raw(
            "wrong letters",
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\u{0}b\"}}",
        ),
        raw("deep", &deep),
        other("POST", "no UTF-8", "configmaps")
            .raw("application/json", vec![b'{', b'"', 0xff, 0xfe, b'"', b'}']),
        other("POST", "text", "configmaps").raw("text/plain", "hello"),
        other("POST", "a form", "configmaps").raw("application/x-www-form-urlencoded", "a=b"),
        other("POST", "a nonsense type", "configmaps").raw("nonsense", "{}"),
        other("POST", "with a charset", "configmaps?dryRun=All")
            .raw("application/json; charset=utf-8", config_map("charset", json!({})).to_string()),
        other("POST", "huge", "configmaps")
            .raw("application/json", format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20))),
        put("a pod as a configmap", "configmaps/one", pod("one")),
        put(
            "without a name",
            "configmaps/one",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
        ),
        merge_patch("a patch of nothing", "configmaps/none", json!({})),
        get("nothing was made", "configmaps"),
    ]
}

fn paths() -> Vec<Step> {
    let mut steps: Vec<Step> = [
        "/api/v1/namespaces/{ns}/pots",
        "/api/v1/namespaces/{ns}/pots/one",
        "/api/v1/namespaces/{ns}/configmaps/one/status",
        "/api/v1/namespaces/{ns}/configmaps/one/two/three",
        "/api/v1/namespaces/{ns}/configmaps/",
        "/api/v1/namespaces/{ns}/services/one/nothing",
        "/api/v1/namespaces/{ns}/nodes",
        "/api/v1/namespaces/{ns}/configmaps/a%2Fb",
        "/api/v1/namespaces/{ns}/configmaps/..%2F..%2Fnodes",
        "/api/v1/namespaces/{ns}/configmaps/%00",
        "/api/v1/namespaces/{ns}/configmaps/%FF%FE",
        "/api/v1/namespaces/{ns}/configmaps/a%20b",
        "/api/v1/namespaces/{ns}/configmaps/%7B%7D%22%27%3Cscript%3E",
        "/api/v1/namespaces/{ns}/configmaps/%E2%98%83",
        "/api/v1/namespaces/{ns}/configmaps/UPPER",
        "/api/v1/namespaces/{ns}/configmaps/one?unknown=1",
        "/api/v1/namespaces/a%2Fb/configmaps",
        "/api/v1/namespaces/%2e%2e/configmaps",
        "/api/v1/nodes/none",
        "/api/v1/pods/one",
        "/api/v2/pods",
        "/apis/discovery.k8s.io/v1/pods",
        "/apis/discovery.k8s.io/v1beta1/endpointslices",
        "/apis/none.example.com/v1/things",
        "/api/v1/watch/nothing",
        "/",
    ]
    .into_iter()
    .map(|path| get(path, path))
    .collect();
    steps.push(post(
        "a long name in the path",
        &format!("configmaps/{}", "a".repeat(300)),
        json!({}),
    ));
    steps.push(get("a long name read", &format!("configmaps/{}", "a".repeat(3000))));
    steps
}

fn methods() -> Vec<Step> {
    vec![
        post("post to an object", "configmaps/one", config_map("one", json!({}))),
        put("put to a list", "configmaps", config_map("one", json!({}))),
        merge_patch("patch of a list", "configmaps", json!({})),
        other("OPTIONS", "options", "configmaps"),
        other("TRACE", "trace", "configmaps"),
        other("BREW", "brew", "configmaps"),
        other("HEAD", "head", "configmaps"),
        post("post to all namespaces", "/api/v1/configmaps", config_map("one", json!({}))),
        delete("delete in all namespaces", "/api/v1/configmaps?labelSelector=none%3Dnone"),
        post("post to a status", "services/one/status", json!({})),
        delete("delete of a status", "services/one/status"),
        put("put to the version", "/version", json!({})),
        post("post to the health", "/healthz", json!({})),
    ]
}

/// Values of wrong types, and unknown fields.
fn types() -> Vec<Step> {
    let map = |name: &str, body: Value| post(name, "configmaps?dryRun=All", body);
    let labels = |labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels},
        })
    };
    let svc = |name: &str, spec: Value| post(name, "services?dryRun=All", service("a", spec));
    let held = |name: &str, spec: Value| post(name, "leases?dryRun=All", lease("a", spec));
    let cut = |name: &str, endpoints: Value| {
        post(name, "endpointslices?dryRun=All", slice("a", endpoints))
    };
    let with = |name: &str, metadata: Value| {
        map(name, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    };
    let changed = |name: &str, mut object: Value, at: &str, value: Value| {
        let plural = if object["kind"] == "Pod" { "pods" } else { "endpointslices" };
        *object.pointer_mut(at).unwrap() = value;
        post(name, &format!("{plural}?dryRun=All"), object)
    };
    let unknown =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "color": "red"});
    let twice = concat!(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"#,
        r#""data":{"a":"1","a":"2"}}"#
    );
    let raw = |name: &str, path: &str, body: &str| {
        other("POST", name, path).raw("application/json", body)
    };
    vec![
        map("a number as a value", config_map("a", json!({"a": 1}))),
        map("a null as a value", config_map("a", json!({"a": null}))),
        map("data is a list", config_map("a", json!(["a"]))),
        map(
            "not base64",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                "binaryData": {"b": "%%"}}),
        ),
        map("a label that is a number", labels(json!({"a": 1}))),
        map("labels that are a list", labels(json!(["a"]))),
        map(
            "a name that is a number",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 7}}),
        ),
        map(
            "metadata that is a list",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": []}),
        ),
        map(
            "a kind that is a number",
            json!({"apiVersion": "v1", "kind": 7, "metadata": {"name": "a"}}),
        ),
        map(
            "a wrong time",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "creationTimestamp": "once"}}),
        ),
        map("an unknown field", unknown.clone()),
        post(
            "an unknown field, strictly",
            "configmaps?dryRun=All&fieldValidation=Strict",
            unknown.clone(),
        ),
        post("an unknown field, ignored", "configmaps?dryRun=All&fieldValidation=Ignore", unknown),
        raw("a field twice", "configmaps?dryRun=All", twice),
        raw("a field twice, strictly", "configmaps?dryRun=All&fieldValidation=Strict", twice),
        svc("a port as text", json!({"ports": [{"port": "80"}]})),
        svc("ports that are no list", json!({"ports": {"port": 80}})),
        svc("a selector that is no map", json!({"ports": [{"port": 80}], "selector": "a=b"})),
        svc("an unknown field of a Service", json!({"ports": [{"port": 80}], "color": "red"})),
        held("a time without a fraction", json!({"renewTime": "2025-01-01T00:00:00Z"})),
        held("no time", json!({"renewTime": "yesterday"})),
        held("a number as a holder", json!({"holderIdentity": 7})),
        held("a duration as text", json!({"leaseDurationSeconds": "15"})),
        held("no time of acquisition", json!({"acquireTime": "yesterday"})),
        with("annotations of numbers", json!({"annotations": {"a": 1}})),
        with("finalizers as text", json!({"finalizers": "a"})),
        with("owners that are a map", json!({"ownerReferences": {}})),
        with("a generateName that is a number", json!({"generateName": 7})),
        with("a namespace that is a number", json!({"namespace": 7})),
        with("a version that is a number", json!({"resourceVersion": 7})),
        with("a uid that is a number", json!({"uid": 7})),
        svc("a spec that is a list", json!([])),
        svc("a type that is a number", json!({"ports": [{"port": 80}], "type": 7})),
        svc("a name of a port that is a number", json!({"ports": [{"port": 80, "name": 7}]})),
        svc("a node port as text", json!({"ports": [{"port": 80, "nodePort": "30020"}]})),
        svc("external IPs as text", json!({"ports": [{"port": 80}], "externalIPs": "192.0.2.1"})),
        svc(
            "publishing as text",
            json!({"ports": [{"port": 80}], "publishNotReadyAddresses": "true"}),
        ),
        svc(
            "a distribution that is true",
            json!({"ports": [{"port": 80}], "trafficDistribution": true}),
        ),
        cut("addresses as text", json!([{"addresses": "10.1.2.3"}])),
        cut(
            "a serving that is a number",
            json!([{"addresses": ["10.1.2.3"], "conditions": {"serving": 1}}]),
        ),
        cut(
            "a terminating that is a text",
            json!([{"addresses": ["10.1.2.3"], "conditions": {"terminating": "no"}}]),
        ),
        cut("a zone that is a number", json!([{"addresses": ["10.1.2.3"], "zone": 1}])),
        cut("a node that is a number", json!([{"addresses": ["10.1.2.3"], "nodeName": 1}])),
        changed(
            "an address type that is a number",
            slice("a", json!([])),
            "/addressType",
            json!(4),
        ),
        changed("ports of a slice that are a map", slice("a", json!([])), "/ports", json!({})),
        changed("a port of a slice as text", slice("a", json!([])), "/ports/0/port", json!("80")),
        changed("a spec of a Pod that is a list", pod("a"), "/spec", json!([])),
        changed("containers that are a map", pod("a"), "/spec/containers", json!({})),
        post("a node of a Pod that is a number", "pods?dryRun=All", {
            let mut pod = pod("a");
            pod["spec"]["nodeName"] = json!(1);
            pod
        }),
        post("IPs of a Pod as text", "pods?dryRun=All", {
            let mut pod = pod("a");
            pod["status"] = json!({"podIPs": "10.1.2.3"});
            pod
        }),
        post("ranges of a node as text", "nodes?dryRun=All", {
            let mut node = node("a");
            node["spec"] = json!({"podCIDRs": "10.1.2.0/24"});
            node
        }),
        cut("endpoints that are a map", json!({})),
        cut(
            "a ready that is a text",
            json!([{"addresses": ["10.1.2.3"], "conditions": {"ready": "true"}}]),
        ),
    ]
}
