//! Which Pods a ReplicaSet creates and deletes, and its status. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{controller_reference, count};
use crate::objects::json::{list, text};
use crate::operations::metadata;

/// What is to be done for a ReplicaSet.
#[derive(Debug, PartialEq)]
pub(super) struct ReplicaSetPlan {
    /// How many Pods to create.
    pub(super) create: usize,
    /// Names of Pods to delete.
    pub(super) delete: Vec<String>,
    /// The ReplicaSet with its new status.
    pub(super) replica_set: Value,
}

/// What is to be done for a ReplicaSet that controls these Pods.
pub(super) fn plan(set: &Value, pods: &[&Value], now: Timestamp) -> ReplicaSetPlan {
    let active: Vec<&Value> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    let wanted = usize::try_from(count(set, "/spec/replicas")).unwrap_or(0);
    ReplicaSetPlan {
        create: wanted.saturating_sub(active.len()),
        delete: surplus(&active, active.len().saturating_sub(wanted)),
        replica_set: with_status(set, &active, now),
    }
}

/// A new Pod of a ReplicaSet.
pub(super) fn pod(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    let mut metadata = json!({
        "generateName": format!("{}-", text(set, "/metadata/name")),
        "ownerReferences": controller_reference(set),
    });
    for key in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][key].is_null() {
            metadata[key] = template["metadata"][key].clone();
        }
    }
    json!({"metadata": metadata, "spec": template["spec"]})
}

fn is_active(pod: &Value) -> bool {
    !metadata::is_terminating(pod) && !["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some_and(|condition| condition["status"] == "True")
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    list(pod, "/status/conditions").iter().find(|condition| condition["type"] == "Ready")
}

/// A Pod is available when it has been ready for so many seconds.
fn is_available(pod: &Value, seconds: i64, now: Timestamp) -> bool {
    if !is_ready(pod) || seconds <= 0 {
        return is_ready(pod);
    }
    let since = ready_condition(pod).map_or("", |condition| text(condition, "/lastTransitionTime"));
    let since = since.parse::<Timestamp>();
    since.is_ok_and(|since| now.duration_since(since) >= SignedDuration::from_secs(seconds))
}

/// The Pods that go first: without a node, not ready, on a node with many of them, young.
fn surplus(pods: &[&Value], number: usize) -> Vec<String> {
    let node = |pod: &Value| text(pod, "/spec/nodeName").to_owned();
    let mut left: Vec<&Value> = pods.to_vec();
    let mut gone = Vec::new();
    for _ in 0..number {
        let rank = |pod: &&Value| {
            let beside = left.iter().filter(|other| node(other) == node(pod)).count();
            (
                node(pod).is_empty(),
                !is_ready(pod),
                beside,
                text(pod, "/metadata/creationTimestamp").to_owned(),
                text(pod, "/metadata/name").to_owned(),
            )
        };
        let Some(first) = left.iter().copied().max_by_key(rank) else { break };
        gone.push(text(first, "/metadata/name").to_owned());
        left.retain(|pod| !std::ptr::eq(*pod, first));
    }
    gone
}

fn with_status(set: &Value, pods: &[&Value], now: Timestamp) -> Value {
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let labelled = |pod: &Value| {
        let mut wanted = labels.as_object().into_iter().flatten();
        wanted.all(|(key, value)| pod["metadata"]["labels"][key] == *value)
    };
    let least = count(set, "/spec/minReadySeconds");
    let counted = |fits: &dyn Fn(&Value) -> bool| pods.iter().filter(|pod| fits(pod)).count();
    let mut set = set.clone();
    let mut status = json!({"replicas": pods.len()});
    for (key, number) in [
        ("fullyLabeledReplicas", counted(&labelled)),
        ("readyReplicas", counted(&is_ready)),
        ("availableReplicas", counted(&|pod| is_available(pod, least, now))),
    ] {
        if number > 0 {
            status[key] = number.into();
        }
    }
    status["observedGeneration"] = set["metadata"]["generation"].clone();
    set["status"] = status;
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web-1", "uid": "u", "generation": 2},
            "spec": {"replicas": replicas, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": []},
            }},
        })
    }

    fn pod_on(name: &str, node: &str, ready: &str, since: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "labels": {"app": "web"}, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": since},
            ]},
        })
    }

    const LONG_AGO: &str = "2026-01-01T00:00:00Z";

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    #[test]
    fn missing_pods_are_created() {
        let (running, mut ended) =
            (pod_on("a", "n", "True", LONG_AGO), pod_on("b", "n", "True", LONG_AGO));
        ended["status"]["phase"] = "Failed".into();
        let plan = plan(&set(3), &[&running, &ended], now());
        assert_eq!((plan.create, plan.delete), (2, vec![]));
        assert_eq!(
            plan.replica_set["status"],
            json!({
                "replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "observedGeneration": 2,
            })
        );
        let made = pod(&set(3));
        assert_eq!(made["metadata"]["generateName"], "web-1-");
        assert_eq!(made["metadata"]["ownerReferences"][0]["controller"], true);
    }

    #[test]
    fn those_that_serve_least_are_deleted_first() {
        let pods = [
            pod_on("alone", "n1", "True", LONG_AGO),
            pod_on("beside-1", "n2", "True", LONG_AGO),
            pod_on("beside-2", "n2", "True", LONG_AGO),
            pod_on("unready", "n1", "False", LONG_AGO),
            pod_on("unbound", "", "False", LONG_AGO),
        ];
        let pods: Vec<&Value> = pods.iter().collect();
        let deleted = |left: i64| plan(&set(left), &pods, now()).delete;
        assert_eq!(deleted(2), ["unbound", "unready", "beside-2"]);
        assert_eq!(deleted(0).len(), 5);
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let pods = [
            pod_on("old", "n", "True", LONG_AGO),
            pod_on("young", "n", "True", "2026-01-01T00:00:55Z"),
        ];
        let pods: Vec<&Value> = pods.iter().collect();
        let mut set = set(2);
        set["spec"]["minReadySeconds"] = 10.into();
        let status = &plan(&set, &pods, now()).replica_set["status"];
        assert_eq!(
            (&status["readyReplicas"], &status["availableReplicas"]),
            (&json!(2), &json!(1))
        );
    }
}
