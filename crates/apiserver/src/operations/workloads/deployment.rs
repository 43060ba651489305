//! Which ReplicaSets a Deployment creates, scales and deletes, and its status. Pure.
//!
//! ```text
//!  template new ─► one more ReplicaSet, named after the hash of the template
//!  RollingUpdate ─► the new one grows up to replicas + maxSurge in all; old ones shrink as long as
//!                   replicas − maxUnavailable Pods are available
//!  Recreate ─► old ones to 0; when their Pods are gone, the new one to its full size
//! ```

use serde_json::{Value, json};
use zonewise_common::fnv::fnv64;

use super::{controller_reference, count};
use crate::objects::json::{list, text};

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";

/// What is to be done for a Deployment.
#[derive(Debug, PartialEq)]
pub(super) struct DeploymentPlan {
    /// A ReplicaSet to create.
    pub(super) create: Option<Value>,
    /// ReplicaSets with new sizes and annotations.
    pub(super) update: Vec<Value>,
    /// Names of ReplicaSets to delete.
    pub(super) delete: Vec<String>,
    /// The Deployment with its new status and revision.
    pub(super) deployment: Value,
}

/// What is to be done for a Deployment that controls these ReplicaSets.
pub(super) fn plan(deployment: &Value, sets: &[&Value], now: &str) -> DeploymentPlan {
    let current = sets.iter().copied().find(|set| has_template(set, deployment));
    let old: Vec<&Value> = sets
        .iter()
        .copied()
        .filter(|set| !current.is_some_and(|current| std::ptr::eq(*set, current)))
        .collect();
    let sizes = sizes(deployment, current, &old);
    let revision = revision_of(current, &old);
    let paused = deployment["spec"]["paused"] == true;
    let create =
        (current.is_none() && !paused).then(|| new_set(deployment, sets, sizes.current, &revision));
    let update = current.map(|set| resized(deployment, set, sizes.current, Some(&revision)));
    let shrunk =
        old.iter().zip(&sizes.old).map(|(set, size)| resized(deployment, set, *size, None));
    DeploymentPlan {
        update: update.into_iter().chain(shrunk).collect(),
        delete: forgotten(deployment, &old),
        deployment: with_status(
            deployment,
            current,
            sets,
            create.is_none().then_some(&revision),
            now,
        ),
        create,
    }
}

/// How many Pods each ReplicaSet is to have.
struct Sizes {
    current: i64,
    old: Vec<i64>,
}

fn sizes(deployment: &Value, current: Option<&Value>, old: &[&Value]) -> Sizes {
    let wanted = count(deployment, "/spec/replicas");
    let size = |set: &Value| count(set, "/spec/replicas");
    let now = current.map_or(0, size);
    let sizes: Vec<i64> = old.iter().map(|set| size(set)).collect();
    if sizes.iter().sum::<i64>() == 0 {
        let gone = old.iter().all(|set| count(set, "/status/replicas") == 0);
        let waits = text(deployment, "/spec/strategy/type") == "Recreate" && !gone;
        return Sizes { current: if waits { now } else { wanted }, old: sizes };
    }
    if deployment["spec"]["paused"] == true {
        return Sizes { current: now, old: sizes };
    }
    if text(deployment, "/spec/strategy/type") == "Recreate" {
        return Sizes { current: now, old: vec![0; sizes.len()] };
    }
    roll(deployment, wanted, current, now, old, sizes)
}

/// One step of a rolling update.
fn roll(
    deployment: &Value,
    wanted: i64,
    current: Option<&Value>,
    now: i64,
    old: &[&Value],
    mut sizes: Vec<i64>,
) -> Sizes {
    let (surge, unavailable) = limits(deployment, wanted);
    let total = now + sizes.iter().sum::<i64>();
    let grown = (now + (wanted + surge - total).max(0)).min(wanted);
    let available = |set: &Value| count(set, "/status/availableReplicas");
    let least = wanted - unavailable;
    let new_available = current.map_or(0, available);
    // First those that do not serve, then as many as may go.
    let mut may_go = (total - least - (now - new_available)).max(0);
    for (size, set) in sizes.iter_mut().zip(old) {
        let idle = (*size - available(set)).clamp(0, may_go);
        *size -= idle;
        may_go -= idle;
    }
    let serving = new_available + old.iter().map(|set| available(set)).sum::<i64>();
    let mut may_go = (serving - least).clamp(0, may_go);
    for size in &mut sizes {
        let fewer = (*size).min(may_go);
        *size -= fewer;
        may_go -= fewer;
    }
    Sizes { current: grown, old: sizes }
}

/// `maxSurge` and `maxUnavailable` as numbers of Pods. At least one of them is not 0.
fn limits(deployment: &Value, wanted: i64) -> (i64, i64) {
    let limit = |key: &str, round_up: bool| {
        let value = &deployment["spec"]["strategy"]["rollingUpdate"][key];
        let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
        match (value.as_i64(), percent) {
            (Some(number), _) => number,
            (_, Some(percent)) if round_up => (wanted * percent + 99) / 100,
            (_, Some(percent)) => wanted * percent / 100,
            _ => 0,
        }
    };
    match (limit("maxSurge", true), limit("maxUnavailable", false)) {
        (0, 0) => (0, 1),
        limits => limits,
    }
}

/// Whether a ReplicaSet is of the Deployment's template, apart from the label with its hash.
fn has_template(set: &Value, deployment: &Value) -> bool {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template == deployment["spec"]["template"]
}

fn revision(set: &Value) -> u64 {
    set["metadata"]["annotations"][REVISION]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// The revision of the current ReplicaSet: higher than those of all others.
fn revision_of(current: Option<&Value>, old: &[&Value]) -> String {
    let highest = old.iter().map(|set| revision(set)).max().unwrap_or(0);
    let now = current.map_or(0, revision);
    if now > highest { now.to_string() } else { (highest + 1).to_string() }
}

fn new_set(deployment: &Value, sets: &[&Value], size: i64, revision: &str) -> Value {
    let template = &deployment["spec"]["template"];
    let hash = free_hash(deployment, sets);
    let mut template = template.clone();
    template["metadata"]["labels"][HASH] = hash.as_str().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.as_str().into();
    let mut spec = json!({"replicas": size, "selector": selector, "template": template});
    if count(deployment, "/spec/minReadySeconds") > 0 {
        spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"].clone();
    }
    let set = json!({
        "metadata": {
            "name": format!("{}-{hash}", text(deployment, "/metadata/name")),
            "labels": template["metadata"]["labels"], "annotations": {},
            "ownerReferences": controller_reference(deployment),
        },
        "spec": spec,
    });
    resized(deployment, &set, size, Some(revision))
}

/// The hash of a template; another one if a ReplicaSet of another template has it already.
fn free_hash(deployment: &Value, sets: &[&Value]) -> String {
    let template = deployment["spec"]["template"].to_string();
    let name = text(deployment, "/metadata/name");
    let hash = |attempt: usize| {
        // The characters of generated names: no vowels, so that no words come out.
        let letters = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rest = fnv64(format!("{attempt}{template}").as_bytes());
        let letter = |_| {
            let letter = letters[(rest % letters.len() as u64) as usize];
            rest /= letters.len() as u64;
            char::from(letter)
        };
        (0..10).map(letter).collect::<String>()
    };
    let taken = |hash: &String| {
        let name = format!("{name}-{hash}");
        sets.iter().any(|set| text(set, "/metadata/name") == name)
    };
    (0..).map(hash).find(|hash| !taken(hash)).unwrap_or_default()
}

fn resized(deployment: &Value, set: &Value, size: i64, revision: Option<&str>) -> Value {
    let mut set = set.clone();
    set["spec"]["replicas"] = size.into();
    let wanted = count(deployment, "/spec/replicas");
    let (surge, _) = limits(deployment, wanted);
    let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
    let most = if recreate { wanted } else { wanted + surge };
    set["metadata"]["annotations"][DESIRED] = wanted.to_string().into();
    set["metadata"]["annotations"][MOST] = most.to_string().into();
    if let Some(revision) = revision {
        set["metadata"]["annotations"][REVISION] = revision.into();
    }
    set
}

/// Old ReplicaSets without Pods beyond the history that is kept, the oldest revisions first.
fn forgotten(deployment: &Value, old: &[&Value]) -> Vec<String> {
    let kept = usize::try_from(count(deployment, "/spec/revisionHistoryLimit")).unwrap_or(0);
    let is_empty =
        |set: &&&Value| count(set, "/spec/replicas") == 0 && count(set, "/status/replicas") == 0;
    let mut empty: Vec<&Value> = old.iter().filter(is_empty).copied().collect();
    empty.sort_by_key(|set| revision(set));
    let surplus = empty.len().saturating_sub(kept);
    empty[..surplus].iter().map(|set| text(set, "/metadata/name").to_owned()).collect()
}

fn with_status(
    deployment: &Value,
    current: Option<&Value>,
    sets: &[&Value],
    revision: Option<&String>,
    now: &str,
) -> Value {
    let sum = |key: &str| sets.iter().map(|set| count(set, &format!("/status/{key}"))).sum::<i64>();
    let (all, available) = (sum("replicas"), sum("availableReplicas"));
    let updated = current.map_or(0, |set| count(set, "/status/replicas"));
    let mut status = json!({"observedGeneration": deployment["metadata"]["generation"]});
    for (key, number) in [
        ("replicas", all),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (all - available).max(0)),
    ] {
        if number > 0 {
            status[key] = number.into();
        }
    }
    let wanted = count(deployment, "/spec/replicas");
    let enough = available >= wanted - limits(deployment, wanted).1;
    let complete = updated == wanted && all == wanted && available >= wanted;
    let known = list(deployment, "/status/conditions");
    status["conditions"] = [available_condition(enough), progressing_condition(complete)]
        .map(|condition| condition.to_json(known, now))
        .into();
    let mut deployment = deployment.clone();
    deployment["status"] = status;
    if let Some(revision) = revision.filter(|_| current.is_some()) {
        if !deployment["metadata"]["annotations"].is_object() {
            deployment["metadata"]["annotations"] = json!({});
        }
        deployment["metadata"]["annotations"][REVISION] = revision.as_str().into();
    }
    deployment
}

/// A condition as it holds now.
struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: &'static str,
}

fn available_condition(enough: bool) -> Condition {
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Condition { kind: "Available", holds: enough, reason, message }
}

fn progressing_condition(complete: bool) -> Condition {
    let (reason, message) = if complete {
        ("NewReplicaSetAvailable", "The new ReplicaSet has successfully progressed.")
    } else {
        ("ReplicaSetUpdated", "The new ReplicaSet is progressing.")
    };
    Condition { kind: "Progressing", holds: true, reason, message }
}

impl Condition {
    /// The condition for the status; its times stay as long as the known one is the same.
    fn to_json(&self, known: &[Value], now: &str) -> Value {
        let Self { kind, holds, reason, message } = *self;
        let status = if holds { "True" } else { "False" };
        let before = known.iter().find(|condition| condition["type"] == kind);
        let kept = |field: &str, same: bool| {
            let before = before.filter(|_| same).and_then(|condition| condition[field].as_str());
            before.unwrap_or(now).to_owned()
        };
        let same_status = before.is_some_and(|condition| condition["status"] == status);
        let same = same_status && before.is_some_and(|condition| condition["reason"] == reason);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": kept("lastUpdateTime", same),
            "lastTransitionTime": kept("lastTransitionTime", same_status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn deployment(replicas: i64, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "uid": "u", "generation": 1},
            "spec": {
                "replicas": replicas, "revisionHistoryLimit": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {
                    "maxSurge": "25%", "maxUnavailable": "25%",
                }},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": image}]},
                },
            },
        })
    }

    fn settled(set: &Value) -> Value {
        let mut set = set.clone();
        let size = set["spec"]["replicas"].clone();
        set["status"] = json!({"replicas": size, "readyReplicas": size, "availableReplicas": size});
        set
    }

    fn sizes_of(sets: &[Value]) -> Vec<i64> {
        sets.iter().map(|set| count(set, "/spec/replicas")).collect()
    }

    #[test]
    fn a_new_template_makes_a_replica_set_that_is_found_again() {
        let deployment = deployment(3, "one");
        let set = plan(&deployment, &[], NOW).create.unwrap();
        assert_eq!(set["spec"]["replicas"], 3);
        assert_eq!(set["metadata"]["annotations"][REVISION], "1");
        let hash = set["metadata"]["labels"][HASH].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"][HASH], hash);
        let again = plan(&deployment, &[&settled(&set)], NOW);
        assert_eq!((again.create, again.delete), (None, vec![]));
        assert_eq!(again.deployment["metadata"]["annotations"][REVISION], "1");
        let status = &again.deployment["status"];
        assert_eq!(
            (&status["availableReplicas"], &status["updatedReplicas"]),
            (&json!(3), &json!(3))
        );
        assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
    }

    /// At no time are there more Pods than allowed, or fewer available than asked for.
    #[test]
    fn a_rolling_update_keeps_its_limits() {
        for replicas in 1..9 {
            let first = plan(&deployment(replicas, "one"), &[], NOW).create.unwrap();
            let mut sets = vec![settled(&first)];
            let new = deployment(replicas, "two");
            let (surge, unavailable) = limits(&new, replicas);
            let mut steps = Vec::new();
            while steps.last() != Some(&vec![0, replicas]) {
                assert!(steps.len() < 50, "it comes to an end: {steps:?}");
                let step = plan(&new, &sets.iter().collect::<Vec<_>>(), NOW);
                for set in step.update {
                    let name = set["metadata"]["name"].clone();
                    *sets.iter_mut().find(|one| one["metadata"]["name"] == name).unwrap() = set;
                }
                sets.extend(step.create);
                let sizes = sizes_of(&sets);
                let (all, available): (i64, i64) = (
                    sizes.iter().sum(),
                    sets.iter()
                        .zip(&sizes)
                        .map(|(set, size)| count(set, "/status/availableReplicas").min(*size))
                        .sum(),
                );
                assert!(all <= replicas + surge, "{replicas}: {sizes:?}");
                assert!(available >= replicas - unavailable, "{replicas}: {sizes:?}");
                steps.push(sizes);
                sets = sets.iter().map(settled).collect();
            }
        }
    }

    #[test]
    fn recreate_waits_until_the_old_pods_are_gone() {
        let recreate = |image: &str| {
            let mut deployment = deployment(2, image);
            deployment["spec"]["strategy"] = json!({"type": "Recreate"});
            deployment
        };
        let first = settled(&plan(&recreate("one"), &[], NOW).create.unwrap());
        let step = plan(&recreate("two"), &[&first], NOW);
        assert_eq!(sizes_of(&step.update), [0]);
        let mut ending = step.update[0].clone();
        let current = step.create.unwrap();
        assert_eq!(current["spec"]["replicas"], 0);
        assert_eq!(sizes_of(&plan(&recreate("two"), &[&current, &ending], NOW).update), [0, 0]);
        ending["status"]["replicas"] = 0.into();
        assert_eq!(sizes_of(&plan(&recreate("two"), &[&current, &ending], NOW).update), [2, 0]);
    }

    #[test]
    fn old_revisions_are_forgotten_and_a_former_template_is_the_newest_again() {
        let make = |image: &str, revision: &str, size: i64| {
            let mut set = plan(&deployment(size, image), &[], NOW).create.unwrap();
            set["metadata"]["annotations"][REVISION] = revision.into();
            settled(&set)
        };
        let sets = [make("one", "1", 0), make("two", "2", 0), make("three", "3", 2)];
        let sets: Vec<&Value> = sets.iter().collect();
        let forgotten = plan(&deployment(2, "three"), &sets, NOW).delete;
        assert_eq!(forgotten, [text(sets[0], "/metadata/name")]);
        let undone = plan(&deployment(2, "two"), &sets, NOW);
        assert_eq!(undone.update[0]["metadata"]["annotations"][REVISION], "4");
        assert_eq!(undone.create, None);
    }

    #[test]
    fn a_paused_deployment_scales_and_starts_nothing_new() {
        let first = settled(&plan(&deployment(2, "one"), &[], NOW).create.unwrap());
        let mut paused = deployment(5, "one");
        paused["spec"]["paused"] = true.into();
        assert_eq!(sizes_of(&plan(&paused, &[&first], NOW).update), [5]);
        paused["spec"]["template"]["spec"]["containers"][0]["image"] = "two".into();
        let plan = plan(&paused, &[&first], NOW);
        assert_eq!((plan.create, sizes_of(&plan.update)), (None, vec![2]));
    }
}
