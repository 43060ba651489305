//! The row of a Pod. The status follows `printPod` of kube-apiserver
//! (pkg/printers/internalversion/printers.go).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use crate::objects::json::{list, text, text_or};

/// What the statuses of the containers add up to.
#[derive(Default)]
struct Summary<'a> {
    status: String,
    ready: usize,
    restarts: u64,
    last_restart: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn count(&mut self, container: &'a Value) {
        self.restarts += container.get("restartCount").and_then(Value::as_u64).unwrap_or(0);
        let last = Some(text(container, "/lastState/terminated/finishedAt"));
        self.last_restart = self.last_restart.max(last.filter(|time| !time.is_empty()));
    }
}

/// A sidecar: an init container that keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// The cells before and after the age.
pub(super) fn cells(pod: &Value, now: Timestamp) -> (Vec<String>, Vec<String>) {
    let summary = summarize(pod);
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|one| is_sidecar(one)).count();
    let all = list(pod, "/spec/containers").len() + sidecars;
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts > 0 => {
            format!("{} ({} ago)", summary.restarts, since(Some(&json!(last)), now))
        }
        _ => summary.restarts.to_string(),
    };
    let address = match list(pod, "/status/podIPs") {
        [first, ..] => text(first, "/ip"),
        [] => text(pod, "/status/podIP"),
    };
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let wide = vec![
        or_none(address),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        readiness_gates(pod),
    ];
    (vec![format!("{}/{all}", summary.ready), summary.status, restarts], wide)
}

fn holds(pod: &Value, condition: &str) -> bool {
    let mut all = list(pod, "/status/conditions").iter();
    all.any(|one| one["type"] == condition && one["status"] == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates.iter().filter(|gate| holds(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn summarize(pod: &Value) -> Summary<'_> {
    let phase = text(pod, "/status/phase");
    let gated = list(pod, "/status/conditions")
        .iter()
        .any(|one| one["type"] == "PodScheduled" && one["reason"] == "SchedulingGated");
    let mut summary =
        Summary { status: text_or(pod, "/status/reason", phase).into(), ..Summary::default() };
    if gated {
        summary.status = "SchedulingGated".into();
    }
    let initializing = count_init_containers(pod, &mut summary);
    if !initializing || holds(pod, "Initialized") {
        if !initializing {
            summary.restarts = 0;
            summary.last_restart = None;
            count_sidecars(pod, &mut summary);
        }
        count_containers(pod, &mut summary);
    }
    let terminating =
        pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if terminating && text(pod, "/status/reason") == "NodeLost" {
        summary.status = "Unknown".into();
    } else if terminating && !matches!(phase, "Succeeded" | "Failed") {
        summary.status = "Terminating".into();
    }
    summary
}

/// Once initialization is complete, of the init containers only the restarts of sidecars count.
fn count_sidecars<'a>(pod: &'a Value, summary: &mut Summary<'a>) {
    for status in list(pod, "/status/initContainerStatuses") {
        if init_container(pod, status).is_some_and(is_sidecar) {
            summary.count(status);
        }
    }
}

fn init_container<'a>(pod: &'a Value, status: &Value) -> Option<&'a Value> {
    list(pod, "/spec/initContainers").iter().find(|one| one["name"] == status["name"])
}

/// Counts the init containers; returns whether the Pod is still initializing.
fn count_init_containers<'a>(pod: &'a Value, summary: &mut Summary<'a>) -> bool {
    let all = list(pod, "/spec/initContainers").len();
    for (at, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        summary.count(status);
        let ended = status.pointer("/state/terminated");
        if ended.is_some_and(|ended| ended["exitCode"] == 0) {
            continue;
        }
        if init_container(pod, status).is_some_and(is_sidecar) && status["started"] == true {
            summary.ready += usize::from(status["ready"] == true);
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        summary.status = match ended {
            Some(ended) => format!("Init:{}", end_reason(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                format!("Init:{waiting}")
            }
            None => format!("Init:{at}/{all}"),
        };
        return true;
    }
    false
}

fn end_reason(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    match terminated.get("signal").and_then(Value::as_i64) {
        _ if !reason.is_empty() => reason.into(),
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn count_containers<'a>(pod: &'a Value, summary: &mut Summary<'a>) {
    let mut running = false;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        summary.count(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            summary.status = waiting.into();
        } else if let Some(ended) = status.pointer("/state/terminated") {
            summary.status = end_reason(ended);
        } else if status["ready"] == true && status.pointer("/state/running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.status == "Completed" && running {
        summary.status = if holds(pod, "Ready") { "Running" } else { "NotReady" }.into();
    }
}

/// The condition of a row that marks a Pod as ended.
pub(super) fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
