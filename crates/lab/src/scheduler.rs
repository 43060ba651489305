//! On which node a Pod runs. Pure.
//!
//! Pods that are alike are spread over the zones, then over the nodes of a zone. Nodes that are cordoned, and those
//! without the labels that the Pod asks for, take none.

use std::collections::BTreeMap;

use serde_json::Value;

/// A Pod as far as its place depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its node.
    pub(crate) node: String,
    /// What it is alike with.
    pub(crate) group: String,
}

/// A node that may take Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) name: String,
    /// Its zone.
    pub(crate) zone: String,
}

/// Pods with the same group are alike: those of a Deployment, whatever revision they are of.
pub(crate) fn group(namespace: &str, labels: &BTreeMap<String, String>) -> String {
    let labels = labels.iter().filter(|(key, _)| *key != "pod-template-hash");
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    format!("{namespace}/{}", labels.join(","))
}

/// Whether a Node takes a Pod with this node selector.
pub(crate) fn takes(node: &Value, selector: &BTreeMap<String, String>) -> bool {
    let labels = &node["metadata"]["labels"];
    node["spec"]["unschedulable"] != true
        && selector.iter().all(|(key, value)| labels[key.as_str()] == **value)
}

/// The node for one more Pod of a group.
pub(crate) fn place<'c>(
    candidates: &'c [Candidate],
    pods: &[Placed],
    group: &str,
) -> Option<&'c str> {
    let zone_of = |node: &str| {
        let found = candidates.iter().find(|candidate| candidate.name == node);
        found.map(|candidate| candidate.zone.as_str())
    };
    let alike = || pods.iter().filter(|pod| pod.group == group);
    let rank = |candidate: &&Candidate| {
        (
            alike().filter(|pod| zone_of(&pod.node) == Some(&candidate.zone)).count(),
            alike().filter(|pod| pod.node == candidate.name).count(),
            pods.iter().filter(|pod| pod.node == candidate.name).count(),
        )
    };
    candidates.iter().min_by_key(rank).map(|candidate| candidate.name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn candidates() -> Vec<Candidate> {
        let candidate = |name: &str| Candidate { name: name.into(), zone: name[..1].into() };
        ["a-1", "a-2", "b-1", "b-2", "c-1"].map(candidate).into()
    }

    #[test]
    fn pods_that_are_alike_are_spread_over_zones_and_then_over_nodes() {
        let candidates = candidates();
        let mut pods = vec![Placed { node: "b-1".into(), group: "other".into() }];
        let mut nodes = Vec::new();
        for _ in 0..7 {
            let node = place(&candidates, &pods, "mine").unwrap().to_owned();
            pods.push(Placed { node: node.clone(), group: "mine".into() });
            nodes.push(node);
        }
        assert_eq!(nodes, ["a-1", "b-2", "c-1", "a-2", "b-1", "c-1", "a-1"]);
        assert_eq!(place(&[], &pods, "mine"), None);
    }

    #[test]
    fn revisions_of_a_deployment_are_alike() {
        let of = |hash: &str| {
            let labels = [("app", "web"), ("pod-template-hash", hash)];
            group("shop", &labels.map(|(key, value)| (key.into(), value.into())).into())
        };
        assert_eq!(of("1"), of("2"));
        assert_eq!(of("1"), "shop/app=web");
    }

    #[test]
    fn cordoned_and_other_nodes_take_no_pod() {
        let selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let node = |zone: &str, cordoned: bool| json!({"metadata": {"labels": {"zone": zone}}, "spec": {"unschedulable": cordoned}});
        assert!(takes(&node("a", false), &selector));
        assert!(!takes(&node("a", true), &selector));
        assert!(!takes(&node("b", false), &selector));
        assert!(takes(&json!({}), &BTreeMap::new()));
    }
}
