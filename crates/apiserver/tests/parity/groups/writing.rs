//! Patches, conflicts, preconditions, finalizers, deletion.

use serde_json::{Value, json};

use super::{config_map, pod, service, web};
use crate::requests::{
    Group, Step, delete, delete_with, get, group, json_patch, merge_patch, other, post, put,
    strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("patch-json", json_patches()),
        group("patch-merge", merge_patches()),
        group("patch-strategic", strategic_patches()),
        group("patch-strategic-lists", strategic_lists()),
        group("finalizers", finalizers()),
        group("options", options()),
        group("owners", owners()),
    ]
}

const ONE: &str = "configmaps/one";

/// As dry runs: a request that only one of the servers accepts must not change later answers.
fn rehearsed(name: &str, path: &str) -> String {
    let typed = ["a wrong type", "a list for a map", "an unknown field"];
    if typed.contains(&name) { format!("{path}?dryRun=All") } else { path.to_owned() }
}

fn json_patches() -> Vec<Step> {
    let mut made = config_map("one", json!({"a": "1", "b": "2"}));
    made["metadata"]["annotations"] = json!({"zonewise.dev/x": "3"});
    let mut steps = vec![post("made", "configmaps", made)];
    let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
    let cases = [
        ("add", op("add", "/data/x", "9".into())),
        ("add in the middle of nothing", op("add", "/spec/x/y", "9".into())),
        ("replace", op("replace", "/data/a", "7".into())),
        ("replace nothing", op("replace", "/data/none", "7".into())),
        ("remove", json!([{"op": "remove", "path": "/data/b"}])),
        ("remove nothing", json!([{"op": "remove", "path": "/data/none"}])),
        ("escaped", op("replace", "/metadata/annotations/zonewise.dev~1x", "33".into())),
        ("move", json!([{"op": "move", "from": "/data/x", "path": "/data/y"}])),
        ("move nothing", json!([{"op": "move", "from": "/data/none", "path": "/data/z"}])),
        ("copy", json!([{"op": "copy", "from": "/data/y", "path": "/data/z"}])),
        ("test that holds", op("test", "/data/a", "7".into())),
        ("test that fails", op("test", "/data/a", "8".into())),
        (
            "test, then change",
            json!([
                {"op": "test", "path": "/data/a", "value": "7"},
                {"op": "replace", "path": "/data/a", "value": "8"},
            ]),
        ),
        (
            "failed test, then change",
            json!([
                {"op": "test", "path": "/data/a", "value": "7"},
                {"op": "replace", "path": "/data/a", "value": "9"},
            ]),
        ),
        ("an unknown operation", op("invent", "/data/a", "8".into())),
        ("no path", json!([{"op": "add", "value": "1"}])),
        ("a path without a slash", op("add", "data", "8".into())),
        ("no list", json!({"op": "add"})),
        ("an empty list", json!([])),
        ("a wrong type", op("add", "/data/a", 5.into())),
        ("an unknown field", op("add", "/color", "red".into())),
    ];
    steps.extend(cases.map(|(name, body)| json_patch(name, &rehearsed(name, ONE), body)));
    steps.push(get("read", ONE));
    steps
}

fn merge_patches() -> Vec<Step> {
    let mut steps =
        vec![post("made", "configmaps", config_map("one", json!({"a": "1", "b": "2"})))];
    let cases = [
        ("add", json!({"data": {"c": "3"}})),
        ("remove", json!({"data": {"a": null}})),
        ("remove nothing", json!({"data": {"none": null}})),
        ("nothing", json!({})),
        ("a wrong type", json!({"data": {"a": 1}})),
        ("a list for a map", json!({"data": ["a"]})),
        ("an unknown field", json!({"color": "red"})),
        (
            "with its version",
            json!({"metadata": {"resourceVersion": "{version}"}, "data": {"d": "4"}}),
        ),
        ("with an old version", json!({"metadata": {"resourceVersion": "1"}, "data": {"d": "5"}})),
        ("no data at all", json!({"data": null})),
    ];
    steps.extend(cases.map(|(name, body)| {
        let step = merge_patch(name, &rehearsed(name, ONE), body);
        if name == "nothing" { step.keep("version", "/metadata/resourceVersion") } else { step }
    }));
    steps.extend([
        other("PATCH", "a list", ONE).raw("application/merge-patch+json", "[1]"),
        other("PATCH", "no JSON", ONE).raw("application/merge-patch+json", "{"),
        other("PATCH", "an unknown form", ONE).raw("application/json", "{}"),
        other("PATCH", "no form", ONE).raw("text/plain", "{}"),
        other("PATCH", "empty", ONE).raw("application/merge-patch+json", ""),
        get("read", ONE),
    ]);
    steps
}

fn strategic_patches() -> Vec<Step> {
    let one = "services/one";
    let ports = json!([{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]);
    let mut steps = vec![post(
        "made",
        "services",
        service("one", json!({"selector": {"app": "web", "tier": "front"}, "ports": ports})),
    )];
    let cases = [
        ("merged by port", json!({"spec": {"ports": [{"port": 443, "targetPort": 8443}]}})),
        ("one more", json!({"spec": {"ports": [{"port": 9090, "name": "metrics"}]}})),
        ("one less", json!({"spec": {"ports": [{"port": 9090, "$patch": "delete"}]}})),
        (
            "one less that is not there",
            json!({"spec": {"ports": [{"port": 9999, "$patch": "delete"}]}}),
        ),
        (
            "in another order",
            json!({"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 80}],
                "ports": [{"port": 443, "targetPort": 8444}]}}),
        ),
        (
            "all of them",
            json!({"spec": {"ports": [{"$patch": "replace"}, {"port": 81, "name": "only"}]}}),
        ),
        ("a key less", json!({"spec": {"selector": {"tier": null}}})),
        ("another selector", json!({"spec": {"selector": {"$patch": "replace", "app": "shop"}}})),
        ("no key to merge by", json!({"spec": {"ports": [{"name": "x"}]}})),
        ("an unknown directive", json!({"spec": {"selector": {"$patch": "invent"}}})),
        ("no selector", json!({"spec": {"selector": {"$patch": "delete"}}})),
        ("retained keys", json!({"metadata": {"labels": {"a": "1", "b": "2", "c": "3"}}})),
        ("retained", json!({"metadata": {"labels": {"$retainKeys": ["a"], "a": "9"}}})),
        ("annotations", json!({"metadata": {"annotations": {"zonewise.dev/x": "y"}}})),
        ("no annotations", json!({"metadata": {"annotations": null}})),
        ("an unknown field", json!({"spec": {"color": "red"}})),
        ("a wrong type", json!({"spec": {"ports": "all"}})),
        ("external addresses", json!({"spec": {"externalIPs": ["192.0.2.1"]}})),
        ("external addresses are replaced", json!({"spec": {"externalIPs": ["192.0.2.2"]}})),
    ];
    steps.extend(cases.map(|(name, body)| strategic(name, &rehearsed(name, one), body)));
    steps.push(get("read", one));
    steps
}

fn strategic_lists() -> Vec<Step> {
    let one = "pods/one";
    let mut made = pod("one");
    made["metadata"]["finalizers"] = json!(["zonewise.dev/a"]);
    let owner = |name: &str, uid: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        })
    };
    vec![
        post("first owner", "configmaps", config_map("a", json!({})))
            .keep("first", "/metadata/uid"),
        post("second owner", "configmaps", config_map("b", json!({})))
            .keep("second", "/metadata/uid"),
        post("made", "pods", made),
        strategic(
            "finalizers are merged",
            one,
            json!({"metadata": {"finalizers": ["zonewise.dev/b"]}}),
        ),
        strategic(
            "a finalizer less",
            one,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["zonewise.dev/a"]}}),
        ),
        strategic(
            "an owner",
            one,
            json!({"metadata": {"ownerReferences": [owner("a", "{first}")]}}),
        ),
        strategic(
            "an owner more",
            one,
            json!({"metadata": {"ownerReferences": [owner("b", "{second}")]}}),
        ),
        strategic(
            "an owner less",
            one,
            json!({"metadata": {"ownerReferences": [{"uid": "{first}", "$patch": "delete"}]}}),
        ),
        strategic(
            "a condition",
            "pods/one/status",
            json!({"status": {"conditions": [{"type": "A", "status": "True"}]}}),
        ),
        strategic(
            "a condition more",
            "pods/one/status",
            json!({"status": {"conditions": [{"type": "B", "status": "True"}]}}),
        ),
        strategic(
            "a condition less",
            "pods/one/status",
            json!({"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}),
        ),
        strategic(
            "addresses",
            "pods/one/status",
            json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}}),
        ),
        get("read", one),
        merge_patch("no finalizers", one, json!({"metadata": {"finalizers": []}})),
    ]
}

fn finalizers() -> Vec<Step> {
    let mut held = config_map("one", json!({}));
    held["metadata"]["finalizers"] = json!(["zonewise.dev/a", "zonewise.dev/b"]);
    vec![
        post("made", "configmaps", held),
        delete("asked", ONE),
        get("still there", ONE),
        delete("asked again", ONE),
        merge_patch("can be changed", ONE, json!({"data": {"a": "1"}})),
        merge_patch("one less", ONE, json!({"metadata": {"finalizers": ["zonewise.dev/b"]}})),
        merge_patch(
            "none more",
            ONE,
            json!({"metadata": {"finalizers": ["zonewise.dev/b", "zonewise.dev/c"]}}),
        ),
        post("not made again", "configmaps", config_map("one", json!({}))),
        merge_patch("let go", ONE, json!({"metadata": {"finalizers": null}})),
        get("gone", ONE),
        post("old way", "configmaps", config_map("four", json!({}))),
        delete_with(
            "an unknown policy",
            "configmaps/four",
            json!({"propagationPolicy": "Sideways"}),
        ),
        delete_with(
            "two ways at once",
            "configmaps/four",
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
        ),
        post("for a query", "configmaps", config_map("five", json!({}))),
        delete("by a query", "configmaps/five?propagationPolicy=Background"),
    ]
}

fn options() -> Vec<Step> {
    let unknown = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {},
        "color": "red",
    });
    vec![
        post("a wrong dry run", "configmaps?dryRun=Some", config_map("one", json!({}))),
        post("validated some way", "configmaps?fieldValidation=Perhaps", unknown),
        post("a manager", "configmaps?fieldManager=somebody", config_map("one", json!({"a": "1"}))),
        post(
            "a long manager",
            &format!("configmaps?fieldManager={}", "m".repeat(129)),
            config_map("two", json!({})),
        ),
        put(
            "another manager",
            "configmaps/one?fieldManager=other",
            config_map("one", json!({"a": "2"})),
        ),
        merge_patch("a third", "configmaps/one?fieldManager=third", json!({"data": {"b": "3"}})),
        merge_patch(
            "forced without reason",
            "configmaps/one?force=true",
            json!({"data": {"b": "3"}}),
        ),
        merge_patch(
            "strictly patched",
            "configmaps/one?fieldValidation=Strict&dryRun=All",
            json!({"color": "red"}),
        ),
        get("pretty", "configmaps/one?pretty=true"),
        delete_with("deleted with a wrong body", ONE, json!({"gracePeriodSeconds": "soon"})),
        other("DELETE", "deleted with no JSON", ONE).raw("application/json", "{"),
        delete_with(
            "deleted with a kind",
            ONE,
            json!({"kind": "DeleteOptions", "apiVersion": "v1"}),
        ),
        other("POST", "as yaml", "configmaps").raw(
            "application/yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: \"1\"\n",
        ),
        get("yaml back", "configmaps/yaml").header("accept", "application/yaml"),
        get("anything back", "configmaps/yaml").header("accept", "*/*"),
        get("text back", "configmaps/yaml").header("accept", "text/plain"),
        get("metadata alone", "configmaps/yaml")
            .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        get("metadata of all", "configmaps")
            .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        put(
            "a version where none is",
            "leases/none",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "none", "resourceVersion": "5"}, "spec": {}}),
        ),
        put(
            "a uid where none is",
            "leases/none",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "none", "uid": "11111111-1111-1111-1111-111111111111"},
                "spec": {}}),
        ),
        put(
            "a uid of another",
            "configmaps/yaml",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "yaml", "uid": "11111111-1111-1111-1111-111111111111"}}),
        ),
    ]
}

fn owners() -> Vec<Step> {
    let mut owned = web("owned");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{owner}",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    vec![
        post("owner", "configmaps", config_map("owner", json!({}))).keep("owner", "/metadata/uid"),
        post("owned", "services", owned),
        get("read", "services/owned"),
        merge_patch("disowned", "services/owned", json!({"metadata": {"ownerReferences": null}})),
    ]
}
