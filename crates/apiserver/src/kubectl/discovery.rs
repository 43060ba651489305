//! Discovery: which groups, versions and resources are served, as documents for clients. No I/O.

use serde_json::{Value, json};

use crate::objects::kind::{KINDS, Kind};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Group and version of the Scale that Deployments and ReplicaSets have.
const SCALE: (&str, &str) = ("autoscaling", "v1");
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// A subresource as discovery lists it.
struct SubresourceInfo {
    name: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Kind) -> Vec<SubresourceInfo> {
    let mut all = Vec::new();
    if kind.kind == "Pod" {
        all.push(SubresourceInfo { name: "binding", kind: "Binding", verbs: &["create"] });
    }
    if kind.has_scale {
        all.push(SubresourceInfo { name: "scale", kind: "Scale", verbs: &STATUS_VERBS });
    }
    if kind.has_status {
        all.push(SubresourceInfo { name: "status", kind: kind.kind, verbs: &STATUS_VERBS });
    }
    all
}

/// The verbs of a resource. Namespaces have no `deletecollection`.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    let all = VERBS.into_iter();
    all.filter(|verb| kind.kind != "Namespace" || *verb != "deletecollection").collect()
}

/// Whether `kubectl get all` shows this kind.
fn in_all(kind: &Kind) -> bool {
    matches!(kind.kind, "Pod" | "Service" | "Deployment" | "ReplicaSet")
}

/// Groups and versions, the core group first.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = KINDS.iter().map(|kind| (kind.group, kind.version)).collect();
    all.dedup();
    all
}

fn kinds_of(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.group == group && kind.version == version)
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    let address = json!({"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"});
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]})
}

/// `/apis`.
pub(crate) fn groups() -> Value {
    let names = group_versions().into_iter().map(|(group, _)| group);
    let groups: Vec<Value> = names.filter_map(group_document).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(name: &str) -> Option<Value> {
    let mut group = group_document(name)?;
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

fn group_document(name: &str) -> Option<Value> {
    let versions: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| !group.is_empty() && *group == name)
        .map(|(group, version)| {
            json!({"groupVersion": format!("{group}/{version}"), "version": version})
        })
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// `/api/v1` and `/apis/GROUP/VERSION`; the core group is empty.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    let first = kinds_of(group, version).next()?;
    let resources: Vec<Value> = kinds_of(group, version).flat_map(with_subresources).collect();
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": first.api_version(), "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn with_subresources(kind: &'static Kind) -> Vec<Value> {
    let mut own = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": verbs(kind),
    });
    add_names_and_categories(kind, &mut own);
    let parts = subresources(kind).into_iter().map(|subresource| {
        let mut part = json!({
            "name": format!("{}/{}", kind.plural, subresource.name), "singularName": "",
            "namespaced": kind.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
        });
        if subresource.kind == "Scale" {
            part["group"] = SCALE.0.into();
            part["version"] = SCALE.1.into();
        }
        part
    });
    [own].into_iter().chain(parts).collect()
}

fn add_names_and_categories(kind: &Kind, resource: &mut Value) {
    if !kind.short.is_empty() {
        resource["shortNames"] = json!(kind.short);
    }
    if in_all(kind) {
        resource["categories"] = json!(["all"]);
    }
}

/// `/api` or `/apis` as one document (`apidiscovery.k8s.io/v2`, `APIGroupDiscoveryList`).
pub(crate) fn aggregated(core: bool) -> Value {
    let items: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, version)| {
            let resources: Vec<Value> = kinds_of(group, version).map(aggregated_resource).collect();
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            let version =
                json!({"version": version, "resources": resources, "freshness": "Current"});
            json!({"metadata": metadata, "versions": [version]})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    })
}

/// One resource of aggregated discovery. Group and version of its kind are empty, as in
/// kube-apiserver: they are those of the enclosing list.
fn aggregated_resource(kind: &'static Kind) -> Value {
    let of = |kind: &str| json!({"group": "", "version": "", "kind": kind});
    let mut resource = json!({
        "resource": kind.plural, "responseKind": of(kind.kind), "verbs": verbs(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
    });
    add_names_and_categories(kind, &mut resource);
    let subresources = subresources(kind);
    if !subresources.is_empty() {
        resource["subresources"] = subresources
            .iter()
            .map(|SubresourceInfo { name, kind, verbs }| {
                let mut kind = of(kind);
                if kind["kind"] == "Scale" {
                    kind["group"] = SCALE.0.into();
                    kind["version"] = SCALE.1.into();
                }
                json!({"subresource": name, "responseKind": kind, "verbs": verbs})
            })
            .collect();
    }
    resource
}

/// `/version`: the version of Kubernetes whose answers are given, with a suffix.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.4+zonewise", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_described_as_in_kubernetes() {
        let version = json!({"groupVersion": "discovery.k8s.io/v1", "version": "v1"});
        assert_eq!(
            group("discovery.k8s.io"),
            Some(json!({
                "kind": "APIGroup", "apiVersion": "v1", "name": "discovery.k8s.io",
                "versions": [version], "preferredVersion": version,
            }))
        );
        assert_eq!(group(""), None);
        assert_eq!(group("batch"), None);
        assert_eq!(groups()["groups"].as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn resources_are_listed_as_in_kubernetes() {
        assert_eq!(
            resources("coordination.k8s.io", "v1"),
            Some(json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "coordination.k8s.io/v1",
                "resources": [{"name": "leases", "singularName": "lease", "namespaced": true,
                    "kind": "Lease", "verbs": VERBS}],
            }))
        );
        assert_eq!(resources("batch", "v1"), None);
        let core = resources("", "v1").unwrap();
        let find = |name: &str| {
            let all = core["resources"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).cloned()
        };
        assert_eq!(core.get("apiVersion"), None);
        assert_eq!(
            find("pods"),
            Some(json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "verbs": VERBS, "shortNames": ["po"], "categories": ["all"]}))
        );
        assert_eq!(
            find("pods/binding"),
            Some(json!({"name": "pods/binding", "singularName": "", "namespaced": true,
                "kind": "Binding", "verbs": ["create"]}))
        );
        assert_eq!(
            find("namespaces"),
            Some(json!({"name": "namespaces", "singularName": "namespace", "namespaced": false,
                "kind": "Namespace", "shortNames": ["ns"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}))
        );
    }

    #[test]
    fn aggregated_discovery_is_one_document() {
        let core = aggregated(true);
        assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
        let nodes = json!({
            "resource": "nodes", "responseKind": {"group": "", "version": "", "kind": "Node"},
            "scope": "Cluster", "singularResource": "node", "verbs": VERBS, "shortNames": ["no"],
            "subresources": [{"subresource": "status", "verbs": STATUS_VERBS,
                "responseKind": {"group": "", "version": "", "kind": "Node"}}],
        });
        let listed = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        assert!(listed.contains(&nodes), "{core}");
        let names: Vec<Value> = aggregated(false)["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].clone())
            .collect();
        let wanted = [
            "apps",
            "events.k8s.io",
            "networking.k8s.io",
            "coordination.k8s.io",
            "discovery.k8s.io",
        ];
        assert_eq!(names, wanted);
    }
}
