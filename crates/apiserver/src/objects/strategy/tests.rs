use super::*;
use crate::objects::kind::KINDS;

fn kind(plural: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.plural == plural).unwrap()
}

fn service(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "x", "namespace": "default"}});
    service["spec"] = spec;
    service
}

fn made(plural: &str, mut object: Value) -> Value {
    prepare(kind(plural), ResourcePart::Main, None, &mut object).unwrap();
    object
}

fn refusal(plural: &str, stored: Option<&Value>, mut object: Value) -> String {
    let error = prepare(kind(plural), ResourcePart::Main, stored, &mut object).unwrap_err();
    assert_eq!((error.code, error.reason), (422, "Invalid"));
    let message = error.message;
    message.split_once(" is invalid: ").map(|(_, rest)| rest.to_owned()).unwrap()
}

#[test]
fn services_get_defaults() {
    assert_eq!(
        made("services", service(json!({"ports": [{"port": 80}], "selector": null}))),
        json!({
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"type": "ClusterIP", "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
            "status": {"loadBalancer": {}},
        })
    );
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": "web"}],
        "sessionAffinity": "ClientIP", "clusterIP": "10.96.0.9"});
    assert_eq!(
        made("services", service(spec))["spec"],
        json!({
            "type": "LoadBalancer", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true,
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": "web"}],
        })
    );
    let name = json!({"type": "ExternalName", "externalName": "a.example.com"});
    assert_eq!(
        made("services", service(name.clone()))["spec"],
        json!({"type": "ExternalName", "externalName": "a.example.com", "sessionAffinity": "None"})
    );
}

#[test]
fn refused_services_get_the_messages_of_kubernetes() {
    let range = "must be between 1 and 65535, inclusive";
    for (spec, message) in [
        (json!({}), "spec.ports: Required value".to_owned()),
        (
            json!({"ports": [{"port": 0}]}),
            format!(
                "[spec.ports[0].port: Invalid value: 0: {range}, spec.ports[0].targetPort: \
                     Invalid value: 0: {range}]"
            ),
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]".into(),
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}),
            "spec.ports[1].name: Duplicate value: \"a\"".into(),
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}),
            "spec.ports[1]: Duplicate value: \
             {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\
             \"Port\":80,\"TargetPort\":0,\"NodePort\":0}"
                .into(),
        ),
        (
            json!({"ports": [{"port": 80, "protocol": "X"}]}),
            "spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \
             \"TCP\", \"UDP\""
                .into(),
        ),
        (
            json!({"ports": [{"port": 80}], "trafficDistribution": "foo"}),
            "spec.trafficDistribution: Unsupported value: \"foo\": supported values: \
             \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\""
                .into(),
        ),
        (
            json!({"ports": [{"port": 80}], "type": "Foo"}),
            "spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \
             \"ExternalName\", \"LoadBalancer\", \"NodePort\""
                .into(),
        ),
    ] {
        assert_eq!(refusal("services", None, service(spec.clone())), message, "{spec}");
    }
}

#[test]
fn refused_addresses_and_policies_get_the_messages_of_kubernetes() {
    for (spec, message) in [
        (
            json!({"ports": [{"port": 80}], "clusterIPs": ["10.96.3.3", "fd00::1"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.3.3\",\"fd00::1\"]: must be empty when \
             `clusterIP` is not specified",
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "foo"}),
            "spec.clusterIPs[0]: Invalid value: \"foo\": must be a valid IP address, (e.g. \
             10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "None", "type": "NodePort"}),
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort \
             services",
        ),
        (
            json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for \
             externally-accessible services",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30080}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"ports": [{"port": 80}], "ipFamilies": ["IPv4", "IPv4"]}),
            "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
        ),
        (
            json!({"ports": [{"port": 80}], "externalIPs": ["127.0.0.1"]}),
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range \
             (127.0.0.0/8, ::1/128)",
        ),
    ] {
        assert_eq!(refusal("services", None, service(spec.clone())), message, "{spec}");
    }
}

fn stored_service() -> Value {
    json!({
        "metadata": {"name": "x"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "allocateLoadBalancerNodePorts": true,
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}},
    })
}

#[test]
fn an_update_keeps_allocated_addresses_and_ports() {
    let stored = stored_service();
    let mut sent = service(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [{"port": 80}]}));
    prepare(kind("services"), ResourcePart::Main, Some(&stored), &mut sent).unwrap();
    assert_eq!(sent["spec"], stored["spec"]);
    assert_eq!(sent["status"], stored["status"]);
}

#[test]
fn a_change_of_type_drops_fields_of_the_old_type() {
    let stored = stored_service();
    let mut sent = stored.clone();
    sent["spec"]["type"] = "ClusterIP".into();
    prepare(kind("services"), ResourcePart::Main, Some(&stored), &mut sent).unwrap();
    assert_eq!(
        sent["spec"],
        json!({"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    assert_eq!(sent["status"], json!({"loadBalancer": {}}));
    let mut named = stored.clone();
    named["spec"]["type"] = "ExternalName".into();
    named["spec"]["externalName"] = "a.b".into();
    prepare(kind("services"), ResourcePart::Main, Some(&stored), &mut named).unwrap();
    assert_eq!(
        named["spec"],
        json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
}

#[test]
fn allocated_addresses_may_not_change() {
    let stored = stored_service();
    for (key, value, message) in [
        (
            "clusterIP",
            json!("10.96.7.7"),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.7.7\"]: may not change once set",
        ),
        (
            "healthCheckNodePort",
            json!(31111),
            "spec.healthCheckNodePort: Forbidden: field is immutable",
        ),
    ] {
        let mut sent = stored.clone();
        sent["spec"][key] = value;
        assert_eq!(refusal("services", Some(&stored), sent), message);
    }
}

#[test]
fn the_status_subresource_writes_status_and_labels() {
    let stored = stored_service();
    let mut sent = stored.clone();
    sent["spec"]["sessionAffinity"] = "ClientIP".into();
    sent["metadata"]["labels"] = json!({"a": "b"});
    sent["status"] = json!({"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}]}});
    prepare(kind("services"), ResourcePart::Status, Some(&stored), &mut sent).unwrap();
    let mut wanted = stored.clone();
    wanted["metadata"]["labels"] = json!({"a": "b"});
    wanted["status"] = json!({"loadBalancer": {"ingress": [{"ip": "5.6.7.8", "ipMode": "VIP"}]}});
    assert_eq!(sent, wanted);
}

#[test]
fn only_load_balancers_have_ingress_addresses() {
    let mut stored = stored_service();
    stored["spec"]["type"] = "ClusterIP".into();
    let mut sent = stored.clone();
    sent["status"] = json!({"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}]}});
    let error =
        prepare(kind("services"), ResourcePart::Status, Some(&stored), &mut sent).unwrap_err();
    assert_eq!(
        error.message,
        "Service \"x\" is invalid: status.loadBalancer.ingress: Forbidden: may only be used when \
         `spec.type` is 'LoadBalancer'"
    );
}

#[test]
fn metadata_is_checked() {
    let sent = |metadata: Value| {
        let mut object = json!({"metadata": {"name": "x"}, "data": {"a": "b"}});
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        object
    };
    let name = "name is neither a standard finalizer name nor is it fully qualified";
    for (metadata, message) in [
        (json!({"annotations": {"a": "x".repeat(262_144)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes".to_owned()),
        (json!({"finalizers": ["foo"]}),
            format!("metadata.finalizers[0]: Invalid value: \"foo\": {name}")),
        (json!({"labels": {"a": "x".repeat(64)}}),
            format!(
                "metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes",
                "x".repeat(64)
            )),
        (json!({"ownerReferences": [{}]}),
            "[metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty, \
             metadata.ownerReferences.kind: Invalid value: \"\": must not be empty, \
             metadata.ownerReferences.name: Invalid value: \"\": must not be empty, \
             metadata.ownerReferences.uid: Invalid value: \"\": must not be empty]".to_owned()),
        (json!({"name": ""}),
            "metadata.name: Required value: name or generateName is required".to_owned()),
    ] {
        assert_eq!(refusal("configmaps", None, sent(metadata)), message);
    }
}

#[test]
fn slices() {
    let slice = |of: &str, endpoints: Value, ports: Value| {
        json!({
            "metadata": {"name": "e"}, "addressType": of, "endpoints": endpoints, "ports": ports,
        })
    };
    assert_eq!(
        made(
            "endpointslices",
            slice("IPv4", json!([{"addresses": ["10.0.0.1"]}]), json!([{"port": 80}]))
        ),
        json!({"metadata": {"name": "e"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}],
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}]})
    );
    assert_eq!(
        made("endpointslices", slice("IPv4", json!([]), json!([]))),
        slice("IPv4", Value::Null, Value::Null)
    );
    let many: Vec<Value> = (0..1001).map(|_| json!({"addresses": ["10.0.0.1"]})).collect();
    let zones: Vec<Value> = (0..9).map(|at| json!({"name": format!("z{at}")})).collect();
    for (of, endpoints, message) in [
        ("", json!([]), "addressType: Required value"),
        (
            "X",
            json!([]),
            "addressType: Unsupported value: \"X\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
        ),
        (
            "IPv4",
            json!([{}]),
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        ),
        (
            "IPv4",
            json!([{"addresses": ["fd00::1"]}]),
            "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
        ),
        (
            "IPv4",
            json!([{"addresses": ["127.0.0.1"]}]),
            "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback \
             range (127.0.0.0/8, ::1/128)",
        ),
        ("IPv4", json!(many), "endpoints: Too many: 1001: must have at most 1000 items"),
        (
            "IPv4",
            json!([{"addresses": ["10.0.0.1"], "hints": {"forZones": zones}}]),
            "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items",
        ),
    ] {
        assert_eq!(refusal("endpointslices", None, slice(of, endpoints, json!([]))), message);
    }
    let stored = slice("IPv4", Value::Null, Value::Null);
    assert_eq!(
        refusal("endpointslices", Some(&stored), slice("IPv6", json!([]), json!([]))),
        "addressType: Invalid value: \"IPv6\": field is immutable"
    );
}

fn pod() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a"}]},
        "status": {"phase": "Running"}})
}

#[test]
fn pods_get_defaults() {
    let toleration = |key: &str| {
        json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
        })
    };
    assert_eq!(
        made("pods", pod()),
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "image": "a", "resources": {},
                    "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File"}],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst", "securityContext": {},
                "schedulerName": "default-scheduler", "enableServiceLinks": true, "priority": 0,
                "preemptionPolicy": "PreemptLowerPriority",
                "tolerations": [toleration("node.kubernetes.io/not-ready"),
                    toleration("node.kubernetes.io/unreachable")],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        })
    );
}

#[test]
fn few_fields_of_pods_may_change() {
    let stored = made("pods", pod());
    let mut image = stored.clone();
    image["spec"]["containers"][0]["image"] = "b".into();
    image["spec"].as_object_mut().unwrap().remove("tolerations");
    prepare(kind("pods"), ResourcePart::Main, Some(&stored), &mut image).unwrap();
    let mut moved = stored.clone();
    moved["spec"]["nodeName"] = "n".into();
    assert!(
        refusal("pods", Some(&stored), moved)
            .starts_with("spec: Forbidden: pod updates may not change")
    );
    let mut more = stored.clone();
    more["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "a"}));
    assert_eq!(
        refusal("pods", Some(&stored), more),
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    );
    let mut status = stored.clone();
    status["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
    status["spec"]["nodeName"] = "n".into();
    prepare(kind("pods"), ResourcePart::Status, Some(&stored), &mut status).unwrap();
    let mut wanted = stored.clone();
    wanted["status"] = json!({"phase": "Running", "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "BestEffort"});
    assert_eq!(status, wanted);
}

#[test]
fn refused_pods_get_the_messages_of_kubernetes() {
    let with = |key: &str, value: Value| {
        let mut pod = pod();
        pod["spec"][key] = value;
        pod
    };
    for (sent, message) in [
        (with("containers", json!([])), "spec.containers: Required value"),
        (
            with(
                "containers",
                json!([{"name": "c", "image": "a", "env": [{"name": ""}, {"name": "a=b"}]}]),
            ),
            "[spec.containers[0].env[0].name: Required value, spec.containers[0].env[1].name: \
             Invalid value: \"a=b\": a valid environment variable name must consist only of \
             printable ASCII characters other than '=']",
        ),
        (
            with("tolerations", json!([{"key": "a", "operator": "Exists", "value": "v"}])),
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when \
             `operator` is 'Exists'",
        ),
        (
            with("restartPolicy", json!("X")),
            "spec.restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \
             \"OnFailure\", \"Never\"",
        ),
    ] {
        assert_eq!(refusal("pods", None, sent), message);
    }
}

#[test]
fn nodes() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [{"type": "Ready", "status": "True",
            "lastHeartbeatTime": null}]}});
    let made = made("nodes", node);
    assert_eq!(
        made,
        json!({"metadata": {"name": "n"},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null,
                "lastTransitionTime": null}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "",
                "osImage": "", "systemUUID": "",
            },
        }})
    );
    let mut moved = made.clone();
    moved["spec"] = json!({"podCIDR": "10.0.1.0/24"});
    assert_eq!(
        refusal("nodes", Some(&made), moved),
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
    );
    let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a"}]}});
    assert_eq!(refusal("nodes", None, tainted), "metadata.taints[0].effect: Required value");
}

#[test]
fn config_maps_leases_namespaces_and_service_cidrs() {
    assert_eq!(
        made("namespaces", json!({"metadata": {"name": "foo"}, "status": {"phase": "X"}})),
        json!({"metadata": {"name": "foo", "labels": {"kubernetes.io/metadata.name": "foo"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    );
    let with =
        |key: &str, value: Value| json!({"metadata": {"name": "x", "namespace": "d"}, key: value});
    for (plural, object, message) in [
        (
            "leases",
            with("spec", json!({"leaseDurationSeconds": 0})),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "configmaps",
            with("data", json!({"..": "x"})),
            "data[..]: Invalid value: \"..\": must not be '..'",
        ),
        (
            "servicecidrs",
            with("spec", json!({"cidrs": ["10.97.0.1/16"]})),
            "spec.cidrs[0]: Invalid value: \"10.97.0.1/16\": must not have bits set beyond the \
             prefix length",
        ),
        (
            "servicecidrs",
            with("spec", json!({})),
            "spec.cidrs: Required value: at least one CIDR required",
        ),
        (
            "events",
            with("involvedObject", json!({"namespace": "foo"})),
            "involvedObject.namespace: Invalid value: \"foo\": does not match event.namespace",
        ),
    ] {
        assert_eq!(refusal(plural, None, object), message);
    }
    let fixed = json!({"metadata": {"name": "c"}, "data": {"a": "b"}, "immutable": true});
    let mut changed = fixed.clone();
    changed["data"] = json!({"a": "c"});
    assert_eq!(
        refusal("configmaps", Some(&fixed), changed),
        "data: Forbidden: field is immutable when `immutable` is set"
    );
}

#[test]
fn events_v1_require_all_fields() {
    let new = Kind::find("events.k8s.io", "v1", "events").unwrap();
    let mut bare = json!({"metadata": {"name": "x"}});
    let error = prepare(new, ResourcePart::Main, None, &mut bare).unwrap_err();
    assert_eq!(
        error.message,
        "Event \"x\" is invalid: [eventTime: Required value, type: Invalid value: \"\": has \
         invalid value: ]"
    );
    let mut full = json!({"metadata": {"name": "x"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "a/b", "reportingInstance": "i", "action": "A", "reason": "R",
        "type": "Normal", "regarding": {"kind": "Pod", "name": "p"}});
    prepare(new, ResourcePart::Main, None, &mut full).unwrap();
}
