//! What one word says about a Pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use crate::objects::json::{list, text, text_or};

/// Containers, as far as they are told.
#[derive(Default)]
struct Told<'a> {
    status: String,
    ready: usize,
    restarts: u64,
    last_restart: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn count(&mut self, container: &'a Value) {
        self.restarts += container.get("restartCount").and_then(Value::as_u64).unwrap_or(0);
        let last = Some(text(container, "/lastState/terminated/finishedAt"));
        self.last_restart = self.last_restart.max(last.filter(|time| !time.is_empty()));
    }
}

/// An init container that stays, beside the others.
fn stays(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// The cells before and after the age.
pub(super) fn cells(pod: &Value, now: Timestamp) -> (Vec<String>, Vec<String>) {
    let told = tell(pod);
    let aside = list(pod, "/spec/initContainers").iter().filter(|one| stays(one)).count();
    let all = list(pod, "/spec/containers").len() + aside;
    let restarts = match told.last_restart {
        Some(last) if told.restarts > 0 => {
            format!("{} ({} ago)", told.restarts, since(Some(&json!(last)), now))
        }
        _ => told.restarts.to_string(),
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
        gates(pod),
    ];
    (vec![format!("{}/{all}", told.ready), told.status, restarts], wide)
}

fn holds(pod: &Value, condition: &str) -> bool {
    let mut all = list(pod, "/status/conditions").iter();
    all.any(|one| one["type"] == condition && one["status"] == "True")
}

fn gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates.iter().filter(|gate| holds(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn tell(pod: &Value) -> Told<'_> {
    let phase = text(pod, "/status/phase");
    let gated = list(pod, "/status/conditions")
        .iter()
        .any(|one| one["type"] == "PodScheduled" && one["reason"] == "SchedulingGated");
    let mut told = Told { status: text_or(pod, "/status/reason", phase).into(), ..Told::default() };
    if gated {
        told.status = "SchedulingGated".into();
    }
    let initializing = initial(pod, &mut told);
    if !initializing || holds(pod, "Initialized") {
        if !initializing {
            told.restarts = 0;
            told.last_restart = None;
            recount_aside(pod, &mut told);
        }
        regular(pod, &mut told);
    }
    let leaving = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if leaving && text(pod, "/status/reason") == "NodeLost" {
        told.status = "Unknown".into();
    } else if leaving && !matches!(phase, "Succeeded" | "Failed") {
        told.status = "Terminating".into();
    }
    told
}

/// Restarts of containers that only prepared are forgotten once they are done.
fn recount_aside<'a>(pod: &'a Value, told: &mut Told<'a>) {
    for status in list(pod, "/status/initContainerStatuses") {
        if of(pod, status).is_some_and(stays) {
            told.count(status);
        }
    }
}

fn of<'a>(pod: &'a Value, status: &Value) -> Option<&'a Value> {
    list(pod, "/spec/initContainers").iter().find(|one| one["name"] == status["name"])
}

/// Whether the Pod is still being prepared.
fn initial<'a>(pod: &'a Value, told: &mut Told<'a>) -> bool {
    let all = list(pod, "/spec/initContainers").len();
    for (at, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        told.count(status);
        let ended = status.pointer("/state/terminated");
        if ended.is_some_and(|ended| ended["exitCode"] == 0) {
            continue;
        }
        if of(pod, status).is_some_and(stays) && status["started"] == true {
            told.ready += usize::from(status["ready"] == true);
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        told.status = match ended {
            Some(ended) => format!("Init:{}", end(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                format!("Init:{waiting}")
            }
            None => format!("Init:{at}/{all}"),
        };
        return true;
    }
    false
}

fn end(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    match terminated.get("signal").and_then(Value::as_i64) {
        _ if !reason.is_empty() => reason.into(),
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn regular<'a>(pod: &'a Value, told: &mut Told<'a>) {
    let mut running = false;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        told.count(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            told.status = waiting.into();
        } else if let Some(ended) = status.pointer("/state/terminated") {
            told.status = end(ended);
        } else if status["ready"] == true && status.pointer("/state/running").is_some() {
            running = true;
            told.ready += 1;
        }
    }
    if told.status == "Completed" && running {
        told.status = if holds(pod, "Ready") { "Running" } else { "NotReady" }.into();
    }
}

/// A note on the row of a Pod that has ended.
pub(super) fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
