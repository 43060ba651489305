use super::*;

fn kind(plural: &str) -> &'static Kind {
    crate::objects::kind::KINDS.iter().find(|kind| kind.plural == plural).unwrap()
}

fn cells_of(plural: &str, mut object: Value) -> Value {
    object["metadata"]["creationTimestamp"] = "2026-11-16T05:00:00Z".into();
    let now = "2026-11-16T05:05:00Z".parse().unwrap();
    table(kind(plural), &[&object], json!({}), Include::None, false, now)["rows"][0]["cells"]
        .clone()
}

fn pod(status: Value, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c"}, {"name": "d"}]);
    pod["status"] = status;
    pod
}

#[test]
fn pods() {
    let run = json!({"running": {}});
    let ok = json!({"name": "c", "ready": true, "state": run});
    let again = json!({"name": "d", "ready": true, "restartCount": 3, "state": run,
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-16T05:01:00Z"}}});
    let creating = json!({"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}});
    let exit = json!({"name": "c", "state": {"terminated": {"exitCode": 3}}});
    let done =
        json!({"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let inits = json!({"initContainers": [{"name": "i"}, {"name": "j"}]});
    let aside = json!({"initContainers": [{"name": "i", "restartPolicy": "Always"}]});
    let running = json!({"name": "i", "state": run});
    let beside =
        json!({"name": "i", "started": true, "ready": true, "restartCount": 2, "state": run});
    let gate = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    for (status, spec, wanted) in [
        (json!({"phase": "Pending"}), json!({}), ["0/2", "Pending", "0"]),
        (
            json!({"phase": "Running", "containerStatuses": [ok, again]}),
            json!({}),
            ["2/2", "Running", "3 (4m ago)"],
        ),
        (
            json!({"phase": "Pending", "containerStatuses": [creating]}),
            json!({}),
            ["0/2", "ContainerCreating", "0"],
        ),
        (
            json!({"phase": "Running", "containerStatuses": [exit, ok]}),
            json!({}),
            ["1/2", "ExitCode:3", "0"],
        ),
        (
            json!({"phase": "Running", "containerStatuses": [done, ok]}),
            json!({}),
            ["1/2", "NotReady", "0"],
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), json!({}), ["0/2", "Evicted", "0"]),
        (
            json!({"phase": "Pending", "initContainerStatuses": [running]}),
            inits,
            ["0/2", "Init:0/2", "0"],
        ),
        (
            json!({"phase": "Running", "initContainerStatuses": [beside],
                "containerStatuses": [ok]}),
            aside,
            ["2/3", "Running", "2"],
        ),
        (
            json!({"phase": "Pending", "conditions": gate}),
            json!({}),
            ["0/2", "SchedulingGated", "0"],
        ),
    ] {
        let cells = cells_of("pods", pod(status, &spec));
        let [ready, what, restarts] = wanted;
        let none = "<none>";
        assert_eq!(cells, json!(["p", ready, what, restarts, "5m", none, none, none, none]));
    }
}

#[test]
fn ended_pods() {
    let mut leaving = pod(
        json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "x", "status": "True"}]}),
        &json!({"nodeName": "n", "readinessGates": [{"conditionType": "x"},
            {"conditionType": "y"}]}),
    );
    leaving["metadata"]["deletionTimestamp"] = "2026-11-16T05:05:00Z".into();
    assert_eq!(
        cells_of("pods", leaving),
        json!(["p", "0/2", "Terminating", "0", "5m", "10.0.0.1", "n", "<none>", "1/2"])
    );
    let now = "2026-11-16T05:05:00Z".parse().unwrap();
    let done = pod(json!({"phase": "Succeeded"}), &json!({}));
    let table = table(kind("pods"), &[&done], json!({}), Include::Metadata, false, now);
    assert_eq!(
        table["rows"][0]["conditions"],
        json!([{"type": "Completed", "status": "True", "reason": "Succeeded",
            "message": "The pod has completed successfully."}])
    );
    assert_eq!(
        table["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "p"}})
    );
}

#[test]
fn services() {
    for (spec, status, wanted) in [
        (
            json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"a": "b", "c": "d"}}),
            json!({}),
            json!(["s", "ClusterIP", "10.96.0.1", "<none>", "80/TCP", "5m", "a=b,c=d"]),
        ),
        (
            json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1",
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}),
            json!({}),
            json!(["s", "LoadBalancer", "10.96.0.1", "<pending>", "80:30080/TCP", "5m", "<none>"]),
        ),
        (
            json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["1.2.3.4"]}),
            json!({"loadBalancer": {"ingress": [{"hostname": "lb"}]}}),
            json!(["s", "LoadBalancer", "10.96.0.1", "lb,1.2.3.4", "<none>", "5m", "<none>"]),
        ),
        (
            json!({"type": "ExternalName", "externalName": "a.b"}),
            json!({}),
            json!(["s", "ExternalName", "<none>", "a.b", "<none>", "5m", "<none>"]),
        ),
    ] {
        let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": status});
        assert_eq!(cells_of("services", object), wanted);
    }
}

#[test]
fn nodes() {
    let node = json!({
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "",
            "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": ""}},
    });
    assert_eq!(
        cells_of("nodes", node),
        json!([
            "n",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "5m",
            "v1.36.4",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ])
    );
    let bare = cells_of("nodes", json!({"metadata": {"name": "n"}}));
    assert_eq!(bare[1], "Unknown");
}

#[test]
fn endpoint_slices() {
    let endpoints: Vec<Value> = [vec!["10.0.0.1", "10.0.0.9"], vec!["10.0.0.2"], vec!["10.0.0.3"]]
        .iter()
        .map(|addresses| json!({"addresses": addresses}))
        .collect();
    let ports = json!([{"port": 80}, {"name": "x"}, {"name": ""}]);
    let slice = json!({"metadata": {"name": "e"}, "addressType": "IPv4", "ports": ports,
        "endpoints": endpoints});
    assert_eq!(
        cells_of("endpointslices", slice),
        json!(["e", "IPv4", "80,x,", "10.0.0.1,10.0.0.9,10.0.0.2 + 1 more...", "5m"])
    );
    let empty = json!({"metadata": {"name": "e"}, "addressType": "IPv6", "endpoints": null});
    assert_eq!(cells_of("endpointslices", empty), json!(["e", "IPv6", "<unset>", "<unset>", "5m"]));
}

#[test]
fn events() {
    let old = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "R", "message": " m ", "type": "Normal",
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-11-16T04:25:00Z", "lastTimestamp": "2026-11-16T05:03:00Z",
        "count": 3});
    assert_eq!(
        cells_of("events", old),
        json!(["2m", "Normal", "R", "pod/p", "", "c, h", "m", "40m", 3, "e"])
    );
    let new = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"},
        "eventTime": "2026-11-16T04:25:00.000000Z", "reportingController": "a/b",
        "reportingInstance": "i", "deprecatedFirstTimestamp": null,
        "series": {"count": 5, "lastObservedTime": "2026-11-16T04:45:00.000000Z"}});
    assert_eq!(
        cells_of("events", new),
        json!(["20m", "", "", "pod/p", "", "a/b, i", "", "40m", 5, "e"])
    );
    let bare = cells_of("events", json!({"metadata": {"name": "e"}}));
    assert_eq!(bare, json!(["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "e"]));
}

#[test]
fn other_kinds() {
    for (plural, object, wanted) in [
        ("leases", json!({"spec": {"holderIdentity": "me"}}), json!(["x", "me", "5m"])),
        ("namespaces", json!({"status": {"phase": "Active"}}), json!(["x", "Active", "5m"])),
        ("configmaps", json!({"data": {"a": "b"}, "binaryData": {"c": ""}}), json!(["x", 2, "5m"])),
        (
            "servicecidrs",
            json!({"spec": {"cidrs": ["10.96.0.0/16", "fd00::/108"]}}),
            json!(["x", "10.96.0.0/16,fd00::/108", "5m"]),
        ),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "x"});
        assert_eq!(cells_of(plural, object), wanted);
    }
}

#[test]
fn every_row_has_a_cell_for_every_column() {
    for kind in &crate::objects::kind::KINDS {
        let object = json!({"metadata": {"name": "x"}});
        let list = json!({"resourceVersion": "7"});
        let table =
            table(kind, &[&object], list.clone(), Include::Object, true, Timestamp::UNIX_EPOCH);
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns, "{}", kind.kind);
        assert_eq!(table["rows"][0]["object"], object);
        assert_eq!(table["metadata"], list);
    }
}
