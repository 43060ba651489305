//! Pods: defaults, status, graceful deletion, binding.

use serde_json::{Value, json};

use super::{each, node, pod};
use crate::requests::{
    Group, Step, delete, delete_with, get, group, json_patch, merge_patch, post, put, strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("pods", forms()),
        group("pods-changes", changes()),
        group("pods-status", status()),
        group("pods-end", end()),
        group("pods-binding", binding()),
    ]
}

fn with(name: &str, spec: Value) -> Value {
    let mut made = pod(name);
    json_merge(&mut made["spec"], spec);
    made
}

fn json_merge(to: &mut Value, from: Value) {
    if let Value::Object(fields) = from {
        for (key, value) in fields {
            to[key] = value;
        }
    }
}

fn container(container: Value) -> Value {
    let mut made = json!({"name": "main", "image": "example.com/web:1"});
    json_merge(&mut made, container);
    json!({"containers": [made]})
}

fn forms() -> Vec<Step> {
    let mut steps = each(
        "pods",
        vec![
            ("plain", pod("plain")),
            ("on a node", with("placed", json!({"nodeName": "{ns}-a1"}))),
            ("on a node of a wrong name", with("misplaced", json!({"nodeName": "a b"}))),
            (
                "with ports",
                with(
                    "ports",
                    container(json!({"ports": [{"containerPort": 80, "name": "http"},
                            {"containerPort": 53, "protocol": "UDP"}]})),
                ),
            ),
            (
                "with wrong ports",
                with(
                    "wrong-ports",
                    container(json!({"ports": [{"containerPort": 0, "name": "Not ok"}]})),
                ),
            ),
            (
                "with resources",
                with(
                    "resources",
                    container(json!({"resources": {"requests": {"cpu": "100m"},
                            "limits": {"cpu": "1", "memory": "1Gi"}}})),
                ),
            ),
            (
                "with limits alone",
                with(
                    "limits",
                    container(json!({"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}})),
                ),
            ),
            (
                "with a probe",
                with("probe", container(json!({"readinessProbe": {"httpGet": {"port": 80}}}))),
            ),
            (
                "with an environment",
                with(
                    "environment",
                    container(json!({"env": [
                        {"name": "A", "value": "b"},
                        {"name": "NODE",
                            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    ]})),
                ),
            ),
            ("latest image", with("latest", container(json!({"image": "example.com/web"})))),
            (
                "with a volume",
                with(
                    "volume",
                    json!({"volumes": [{"name": "tmp", "emptyDir": {}},
                        {"name": "map", "configMap": {"name": "m"}}]}),
                ),
            ),
            (
                "with an init container",
                with(
                    "init",
                    json!({"initContainers": [{"name": "first", "image": "example.com/init:1"}]}),
                ),
            ),
            (
                "with a readiness gate",
                with("gate", json!({"readinessGates": [{"conditionType": "zonewise.dev/ready"}]})),
            ),
            (
                "on the host's network",
                with(
                    "host",
                    json!({"hostNetwork": true, "containers": [{"name": "main", "image": "a:1",
                        "ports": [{"containerPort": 80}]}]}),
                ),
            ),
            (
                "with tolerations",
                with("tolerant", json!({"tolerations": [{"operator": "Exists"}]})),
            ),
            ("with a host name", with("hostname", json!({"hostname": "one", "subdomain": "web"}))),
            (
                "never again",
                with(
                    "never",
                    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 5}),
                ),
            ),
            ("no containers", with("empty", json!({"containers": []}))),
            (
                "a container without a name",
                with("nameless", json!({"containers": [{"image": "a"}]})),
            ),
            (
                "a container without an image",
                with("imageless", json!({"containers": [{"name": "a"}]})),
            ),
            ("an unknown restart policy", with("restart", json!({"restartPolicy": "Sometimes"}))),
            ("with a status", {
                let mut made = pod("status");
                made["status"] = json!({"phase": "Running", "podIP": "10.1.2.3"});
                made
            }),
        ],
    );
    steps.extend([
        get("on that node", "pods?fieldSelector=spec.nodeName%3D{ns}-a1"),
        get("pending", "pods?fieldSelector=status.phase%3DPending,metadata.name%3Dplain"),
        get("running", "pods?fieldSelector=status.phase!%3DPending"),
    ]);
    steps
}

fn changes() -> Vec<Step> {
    let one = "pods/one";
    vec![
        post("made", "pods", pod("one")),
        merge_patch("labelled", one, json!({"metadata": {"labels": {"a": "b"}}})),
        strategic(
            "another image",
            one,
            json!({"spec": {"containers": [{"name": "main", "image": "example.com/web:2"}]}}),
        ),
        strategic(
            "another container",
            one,
            json!({"spec": {"containers": [{"name": "more", "image": "example.com/more:1"}]}}),
        ),
        merge_patch("another node", one, json!({"spec": {"nodeName": "b1"}})),
        merge_patch("another grace", one, json!({"spec": {"terminationGracePeriodSeconds": 5}})),
        merge_patch(
            "a toleration more",
            one,
            json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        ),
        merge_patch("a deadline", one, json!({"spec": {"activeDeadlineSeconds": 60}})),
        put("replaced", one, pod("one")),
        get("read", one),
    ]
}

fn status() -> Vec<Step> {
    let one = "pods/one/status";
    let ready = |status: &str| {
        json!({
            "type": "Ready", "status": status, "lastTransitionTime": "2025-01-01T00:00:00Z",
        })
    };
    let mut placed = pod("one");
    placed["spec"]["nodeName"] = "a1".into();
    let mut running = pod("one");
    running["status"] = json!({
        "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
        "hostIP": "10.0.0.1",
        "conditions": [ready("True"), {"type": "ContainersReady", "status": "True"}],
        "startTime": "2025-01-01T00:00:00Z",
    });
    vec![
        post("made", "pods", placed),
        put("running", one, running),
        strategic("not ready", one, json!({"status": {"conditions": [ready("False")]}})),
        strategic("ready again", one, json!({"status": {"conditions": [ready("True")]}})),
        merge_patch(
            "another address",
            one,
            json!({"status": {"podIP": "10.1.2.4",
                "podIPs": [{"ip": "10.1.2.4"}, {"ip": "fd00::4"}]}}),
        ),
        merge_patch("addresses that differ", one, json!({"status": {"podIP": "10.1.2.5"}})),
        merge_patch(
            "no address at all",
            one,
            json!({"status": {"podIP": "nowhere", "podIPs": [{"ip": "nowhere"}]}}),
        ),
        merge_patch("an unknown phase", one, json!({"status": {"phase": "Dreaming"}})),
        merge_patch("an image through the status door", one, json!({"spec": {"hostname": "x"}})),
        merge_patch(
            "a label through the status door",
            one,
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
        merge_patch(
            "a status through the main door",
            "pods/one",
            json!({"status": {"phase": "Failed"}}),
        ),
        json_patch("no conditions", one, json!([{"op": "remove", "path": "/status/conditions"}])),
        get("read", one),
        get("running ones", "pods?fieldSelector=status.phase%3DRunning,status.podIP%3D10.1.2.4"),
    ]
}

fn end() -> Vec<Step> {
    let placed = |name: &str| with(name, json!({"nodeName": "a1"}));
    let mut held = placed("held");
    held["metadata"]["finalizers"] = json!(["zonewise.dev/wait"]);
    let mut unplaced = pod("unplaced-held");
    unplaced["metadata"]["finalizers"] = json!(["zonewise.dev/wait"]);
    vec![
        post("not placed", "pods", pod("unplaced")),
        delete("it goes at once", "pods/unplaced"),
        get("gone", "pods/unplaced"),
        post("placed", "pods", placed("placed")),
        delete("it is asked", "pods/placed"),
        get("terminating", "pods/placed"),
        delete("it is asked again", "pods/placed"),
        delete_with("sooner", "pods/placed", json!({"gracePeriodSeconds": 3})),
        delete_with("later is not possible", "pods/placed", json!({"gracePeriodSeconds": 300})),
        merge_patch(
            "it can be labelled",
            "pods/placed",
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
        delete_with("at once", "pods/placed", json!({"gracePeriodSeconds": 0})),
        get("gone as well", "pods/placed"),
        post(
            "with a long grace",
            "pods",
            with("long", json!({"nodeName": "a1", "terminationGracePeriodSeconds": 600})),
        ),
        delete("its own grace", "pods/long"),
        delete("by the query", "pods/long?gracePeriodSeconds=0"),
        post(
            "with no grace",
            "pods",
            with("short", json!({"nodeName": "a1", "terminationGracePeriodSeconds": 0})),
        ),
        delete("no grace", "pods/short"),
        get("what a grace of zero leaves", "pods/short"),
        post("held", "pods", held),
        delete_with("held, at once", "pods/held", json!({"gracePeriodSeconds": 0})),
        get("held, still there", "pods/held"),
        merge_patch(
            "a finalizer more",
            "pods/held",
            json!({"metadata": {"finalizers": ["zonewise.dev/wait", "zonewise.dev/more"]}}),
        ),
        merge_patch("let go", "pods/held", json!({"metadata": {"finalizers": null}})),
        get("held, gone", "pods/held"),
        post("not placed, held", "pods", unplaced),
        delete("not placed, held, asked", "pods/unplaced-held"),
        merge_patch(
            "not placed, let go",
            "pods/unplaced-held",
            json!({"metadata": {"finalizers": null}}),
        ),
        get("not placed, gone", "pods/unplaced-held"),
        post("done", "pods", placed("done")),
        merge_patch("it has ended", "pods/done/status", json!({"status": {"phase": "Succeeded"}})),
        delete("it needs no grace", "pods/done"),
        get("done and gone", "pods/done"),
        post("a negative grace", "pods", with("negative", json!({"nodeName": "a1"}))),
        delete_with(
            "a negative grace, deleted",
            "pods/negative",
            json!({"gracePeriodSeconds": -5}),
        ),
    ]
}

fn binding() -> Vec<Step> {
    let bind = |pod: &str, node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        })
    };
    vec![
        post("node", "nodes", node("{ns}-a1")),
        post("made", "pods", pod("one")),
        post("bound", "pods/one/binding", bind("one", "{ns}-a1")),
        get("read", "pods/one"),
        post("bound again", "pods/one/binding", bind("one", "{ns}-a1")),
        post("bound nowhere", "pods/one/binding", bind("one", "")),
        post("no pod", "pods/none/binding", bind("none", "{ns}-a1")),
        get("cannot be read", "pods/one/binding"),
        delete("asked", "pods/one"),
        get("still there", "pods/one"),
        delete_with("deleted", "pods/one", json!({"gracePeriodSeconds": 0})),
    ]
}
