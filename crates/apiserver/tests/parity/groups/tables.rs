//! Tables of every kind.

use serde_json::{Value, json};

use super::{config_map, event, labelled, lease, new_event, node, pod, service, slice, web};
use crate::requests::{Group, Step, get, group, merge_patch, post, put};

pub(crate) fn groups() -> Vec<Group> {
    let maps = vec![post("two", "configmaps", config_map("two", json!({"a": "1", "b": "2"})))];
    let mut old = event("old");
    old["firstTimestamp"] = Value::Null;
    old["lastTimestamp"] = Value::Null;
    vec![
        shown("table-configmaps", "configmaps", maps),
        shown("table-services", "services", services()),
        shown("table-slices", "endpointslices", slices()),
        shown(
            "table-leases",
            "leases",
            vec![
                post("held", "leases", lease("held", json!({"holderIdentity": "me"}))),
                post("free", "leases", lease("free", json!({}))),
            ],
        ),
        shown(
            "table-events",
            "events",
            vec![post("old", "events", old), post("new", "newevents", new_event("new"))],
        ),
        shown("table-new-events", "newevents", vec![post("new", "newevents", new_event("new"))]),
        shown("table-pods", "pods", pods()),
        shown("table-nodes", "nodes", nodes()),
        shown(
            "table-namespaces",
            "namespaces",
            vec![post(
                "more",
                "namespaces",
                labelled(
                    json!({"apiVersion": "v1", "kind": "Namespace",
                        "metadata": {"name": "{ns}-more"}}),
                    json!({"group": "{ns}"}),
                ),
            )],
        ),
        shown("table-cidrs", "servicecidrs", Vec::new()),
    ]
}

/// All ways to ask for a table of the objects that the steps create.
fn shown(name: &'static str, plural: &str, mut steps: Vec<Step>) -> Group {
    let path = if matches!(plural, "nodes" | "namespaces") {
        format!("{plural}?labelSelector=group%3D{{ns}}&")
    } else {
        format!("{plural}?")
    };
    steps.extend([
        get("table", &path).table(),
        get("table with nothing of the objects", &format!("{path}includeObject=None")).table(),
        get("table with all of the objects", &format!("{path}includeObject=Object")).table(),
        get("table with something else", &format!("{path}includeObject=Half")).table(),
        get("table of none", &format!("{path}fieldSelector=metadata.name%3Dnone")).table(),
        get("table of nothing", &format!("{plural}/none")).table(),
        get("an unknown form", &path)
            .header("accept", "application/json;as=Chart;v=v1;g=meta.k8s.io"),
    ]);
    group(name, steps)
}

fn services() -> Vec<Step> {
    let two = json!([{"port": 80, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}]);
    vec![
        post("plain", "services", web("plain")),
        post(
            "node port",
            "services",
            service(
                "nodeport",
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30011}]}),
            ),
        ),
        post(
            "two ports",
            "services",
            service("two", json!({"ports": two, "externalIPs": ["192.0.2.7"]})),
        ),
        post(
            "headless",
            "services",
            service("headless", json!({"clusterIP": "None", "selector": {"b": "1", "a": "2"}})),
        ),
        post(
            "external",
            "services",
            service("external", json!({"type": "ExternalName", "externalName": "a.example.com"})),
        ),
        post(
            "balancer",
            "services",
            service(
                "balancer",
                json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30012}]}),
            ),
        ),
        post(
            "balanced",
            "services",
            service(
                "balanced",
                json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30013}]}),
            ),
        ),
        merge_patch(
            "balanced, ingress",
            "services/balanced/status",
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"},
                {"hostname": "lb.example.com"}]}}}),
        ),
        get("one as a table", "services/plain").table(),
    ]
}

fn slices() -> Vec<Step> {
    let many: Vec<Value> = (1..6).map(|n| json!({"addresses": [format!("10.1.2.{n}")]})).collect();
    let mut bare = slice("bare", json!([]));
    bare["ports"] = json!([]);
    let mut nameless = slice("nameless", json!([{"addresses": ["10.1.2.3"]}]));
    nameless["ports"] = json!([{"port": null}, {"port": 80, "name": "a"}]);
    vec![
        post(
            "one",
            "endpointslices",
            slice("one", json!([{"addresses": ["10.1.2.3", "10.1.2.4"]}])),
        ),
        post("many", "endpointslices", slice("many", many.into())),
        post("bare", "endpointslices", bare),
        post("nameless", "endpointslices", nameless),
        get("one as a table", "endpointslices/one").table(),
    ]
}

fn pods() -> Vec<Step> {
    let on = |name: &str| {
        let mut made = pod(name);
        made["spec"]["nodeName"] = "a1".into();
        made["spec"]["readinessGates"] = json!([{"conditionType": "zonewise.dev/ready"}]);
        made
    };
    let with = |name: &str, status: Value| {
        let mut made = on(name);
        made["status"] = status;
        put(&format!("{name} status"), &format!("pods/{name}/status"), made)
    };
    let container = |ready: bool, restarts: u32, state: Value| {
        json!([{
            "name": "main", "image": "a", "imageID": "", "ready": ready, "restartCount": restarts,
            "state": state,
        }])
    };
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    vec![
        post("pending", "pods", pod("pending")),
        post("running", "pods", on("running")),
        with(
            "running",
            json!({
                "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
                "conditions": [{"type": "Ready", "status": "True"},
                    {"type": "zonewise.dev/ready", "status": "True"}],
                "containerStatuses": container(true, 2, json!({"running": {}})),
            }),
        ),
        post("crashing", "pods", on("crashing")),
        with(
            "crashing",
            json!({"phase": "Running", "containerStatuses": container(false, 7, waiting)}),
        ),
        post("failed", "pods", on("failed")),
        with("failed", json!({"phase": "Failed", "reason": "Evicted"})),
        post("done", "pods", on("done")),
        with(
            "done",
            json!({"phase": "Succeeded", "containerStatuses": container(false, 0,
                json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))}),
        ),
        post("ending", "pods", on("ending")),
        crate::requests::delete("ending asked", "pods/ending"),
        get("one as a table", "pods/running").table(),
    ]
}

fn nodes() -> Vec<Step> {
    let named = |name: &str, labels: Value| {
        let mut made = node(&format!("{{ns}}-{name}"));
        made["metadata"]["labels"] = labels;
        made["metadata"]["labels"]["group"] = "{ns}".into();
        made
    };
    let ready = json!({
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": "192.0.2.1"}],
        "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Lab", "kernelVersion": "6.1",
            "containerRuntimeVersion": "lab://1",
            "architecture": "", "bootID": "", "kubeProxyVersion": "", "machineID": "",
            "operatingSystem": "", "systemUUID": ""},
    });
    vec![
        post("unknown", "nodes", named("unknown", json!({}))),
        post(
            "ready",
            "nodes",
            named(
                "ready",
                json!({"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "lab"}),
            ),
        ),
        merge_patch("ready status", "nodes/{ns}-ready/status", json!({"status": ready})),
        merge_patch("cordoned", "nodes/{ns}-ready", json!({"spec": {"unschedulable": true}})),
        post("down", "nodes", named("down", json!({}))),
        merge_patch(
            "down status",
            "nodes/{ns}-down/status",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        ),
    ]
}
