//! What is served, in the forms in which clients ask for it. Pure.

use serde_json::{Value, json};

use crate::objects::kind::{KINDS, Kind};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// A part of an object with a path of its own.
struct Door {
    name: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

fn doors(kind: &Kind) -> Vec<Door> {
    let mut doors = Vec::new();
    if kind.kind == "Pod" {
        doors.push(Door { name: "binding", kind: "Binding", verbs: &["create"] });
    }
    if kind.has_status {
        doors.push(Door { name: "status", kind: kind.kind, verbs: &STATUS_VERBS });
    }
    doors
}

/// Namespaces are not deleted by the dozen.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    let all = VERBS.into_iter();
    all.filter(|verb| kind.kind != "Namespace" || *verb != "deletecollection").collect()
}

/// What `kubectl get all` means.
fn in_all(kind: &Kind) -> bool {
    matches!(kind.kind, "Pod" | "Service")
}

/// Groups and versions, the core first.
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
    let groups: Vec<Value> = names.filter_map(described).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(name: &str) -> Option<Value> {
    let mut group = described(name)?;
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

fn described(name: &str) -> Option<Value> {
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

/// `/api/v1` and `/apis/GROUP/VERSION`; the core's group is empty.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    let first = kinds_of(group, version).next()?;
    let resources: Vec<Value> = kinds_of(group, version).flat_map(listed).collect();
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": first.api_version(), "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn listed(kind: &'static Kind) -> Vec<Value> {
    let mut own = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": verbs(kind),
    });
    decorate(kind, &mut own);
    let parts = doors(kind).into_iter().map(|door| {
        json!({
            "name": format!("{}/{}", kind.plural, door.name), "singularName": "",
            "namespaced": kind.namespaced, "kind": door.kind, "verbs": door.verbs,
        })
    });
    [own].into_iter().chain(parts).collect()
}

fn decorate(kind: &Kind, resource: &mut Value) {
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
            let resources: Vec<Value> = kinds_of(group, version).map(discovered).collect();
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

/// Group and version of a kind are left empty, as the reference does: they are those of the list.
fn discovered(kind: &'static Kind) -> Value {
    let of = |kind: &str| json!({"group": "", "version": "", "kind": kind});
    let mut resource = json!({
        "resource": kind.plural, "responseKind": of(kind.kind), "verbs": verbs(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
    });
    decorate(kind, &mut resource);
    let doors = doors(kind);
    if !doors.is_empty() {
        resource["subresources"] = doors
            .iter()
            .map(|door| {
                json!({"subresource": door.name, "responseKind": of(door.kind), "verbs": door.verbs})
            })
            .collect();
    }
    resource
}

/// `/version`.
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
    fn a_group_as_the_reference_describes_it() {
        let version = json!({"groupVersion": "discovery.k8s.io/v1", "version": "v1"});
        assert_eq!(
            group("discovery.k8s.io"),
            Some(json!({
                "kind": "APIGroup", "apiVersion": "v1", "name": "discovery.k8s.io",
                "versions": [version], "preferredVersion": version,
            }))
        );
        assert_eq!(group(""), None);
        assert_eq!(group("apps"), None);
        assert_eq!(groups()["groups"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn resources_as_the_reference_lists_them() {
        assert_eq!(
            resources("coordination.k8s.io", "v1"),
            Some(json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "coordination.k8s.io/v1",
                "resources": [{"name": "leases", "singularName": "lease", "namespaced": true,
                    "kind": "Lease", "verbs": VERBS}],
            }))
        );
        assert_eq!(resources("apps", "v1"), None);
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
    fn everything_in_one_document() {
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
        let wanted =
            ["events.k8s.io", "networking.k8s.io", "coordination.k8s.io", "discovery.k8s.io"];
        assert_eq!(names, wanted);
    }
}
