//! Defaults of Pods.

use serde_json::{Map, Value, json};

use super::CONTAINERS;
use crate::objects::json::{default, items, list, map};

pub(in crate::objects::strategy) fn defaults(stored: Option<&Value>, pod: &mut Value) {
    template_defaults(pod);
    default(map(pod, "spec"), "enableServiceLinks", true);
    admission_defaults(stored, pod);
    status_defaults(stored, pod);
}

/// What Pods and templates of Pods have in common.
pub(in crate::objects::strategy) fn template_defaults(pod: &mut Value) {
    let host = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
    for pointer in CONTAINERS {
        items(pod, pointer)
            .filter_map(Value::as_object_mut)
            .for_each(|container| container_defaults(container, host));
    }
    items(pod, "/spec/volumes").filter_map(Value::as_object_mut).for_each(volume_defaults);
    let spec = map(pod, "spec");
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        default(spec, key, value);
    }
    let account = ["serviceAccountName", "serviceAccount"].iter().find_map(|key| spec.get(*key));
    if let Some(account) = account.cloned() {
        spec.insert("serviceAccountName".into(), account.clone());
        spec.insert("serviceAccount".into(), account);
    }
}

/// What the admission plugins Priority and DefaultTolerationSeconds of kube-apiserver add.
fn admission_defaults(stored: Option<&Value>, pod: &mut Value) {
    let spec = map(pod, "spec");
    for (key, value) in
        [("priority", json!(0)), ("preemptionPolicy", json!("PreemptLowerPriority"))]
    {
        let kept = stored.and_then(|stored| stored["spec"].get(key)).cloned();
        default(spec, key, kept.unwrap_or(value));
    }
    default(spec, "tolerations", json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration = json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
        });
        if let Some(all) = spec.get_mut("tolerations").and_then(Value::as_array_mut)
            && !all.iter().any(|one| one["key"] == key || one.get("key").is_none())
        {
            all.push(toleration);
        }
    }
}

fn container_defaults(container: &mut Map<String, Value>, host: bool) {
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    default(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
        && let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned()
    {
        default(resources, "requests", json!({}));
        if let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
            limits.into_iter().for_each(|(key, value)| default(requests, &key, value));
        }
    }
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        default(port, "protocol", "TCP");
        if let Some(number) = port.get("containerPort").cloned().filter(|_| host) {
            default(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            probe_defaults(probe);
        }
    }
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten() {
        if let Some(field) =
            variable.pointer_mut("/valueFrom/fieldRef").and_then(Value::as_object_mut)
        {
            default(field, "apiVersion", "v1");
        }
    }
}

/// Whether the image has the tag `latest`, or neither a tag nor a digest.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains('@') {
        return false;
    }
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn probe_defaults(probe: &mut Map<String, Value>) {
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        default(probe, key, value);
    }
    if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
        default(get, "path", "/");
        default(get, "scheme", "HTTP");
    }
}

fn volume_defaults(volume: &mut Map<String, Value>) {
    if volume.len() < 2 {
        volume.insert("emptyDir".into(), json!({}));
    }
    for kind in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(kind).and_then(Value::as_object_mut) {
            default(source, "defaultMode", 420);
        }
    }
    if let Some(source) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        default(source, "type", "");
    }
}

fn status_defaults(stored: Option<&Value>, pod: &mut Value) {
    let class = qos_class(pod);
    let kept = stored.and_then(|stored| stored.pointer("/status/qosClass")).cloned();
    let status = map(pod, "status");
    status.insert("qosClass".into(), kept.unwrap_or_else(|| class.into()));
    if stored.is_none() {
        default(status, "phase", "Pending");
    }
    let first = status.get("podIPs").and_then(|all| all.pointer("/0/ip")).cloned();
    match (status.get("podIP").cloned(), first) {
        (Some(one), None) => {
            status.insert("podIPs".into(), json!([{"ip": one}]));
        }
        (None, Some(first)) => {
            status.insert("podIP".into(), first);
        }
        _ => {}
    }
}

fn qos_class(pod: &Value) -> &'static str {
    let containers = || CONTAINERS.iter().flat_map(|pointer| list(pod, pointer));
    let has = |one: &Value, what: &str| {
        one.pointer(what).and_then(Value::as_object).is_some_and(|map| !map.is_empty())
    };
    if !containers().any(|one| has(one, "/resources/requests") || has(one, "/resources/limits")) {
        return "BestEffort";
    }
    let fixed = |one: &Value| {
        ["cpu", "memory"].iter().all(|what| {
            let limit = one.pointer(&format!("/resources/limits/{what}"));
            limit.is_some() && limit == one.pointer(&format!("/resources/requests/{what}"))
        })
    };
    if containers().all(fixed) { "Guaranteed" } else { "Burstable" }
}
