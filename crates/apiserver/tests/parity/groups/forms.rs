//! Which form a client gets, and protobuf that is wrong.

use serde_json::json;
use zonewise_common::testing::protobuf::{bytes, envelope};

use crate::groups::{config_map, lease};
use crate::protobuf::{MEDIA_TYPE, write};
use crate::requests::{Group, Step, get, group, other, post};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("forms", negotiated()),
        group("discovery-forms", documents()),
        group("forms-bodies", bodies()),
    ]
}

const METADATA: &str = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "as=Table;g=meta.k8s.io;v=v1";

fn accepting(path: &str, accept: &str) -> Step {
    get(&format!("{path} as {accept}"), path).header("accept", accept)
}

fn negotiated() -> Vec<Step> {
    let mut steps = vec![
        post("one", "configmaps", config_map("one", json!({"a": "1"}))),
        post("lease", "leases", lease("one", json!({"renewTime": "2026-01-02T03:04:05.678901Z"}))),
        accepting("leases/one", MEDIA_TYPE),
    ];
    let accepted = [
        MEDIA_TYPE.to_owned(),
        format!("{MEDIA_TYPE},application/json"),
        format!("application/json,{MEDIA_TYPE}"),
        format!("{MEDIA_TYPE};q=0.1,application/json;q=0.9"),
        format!("*/*,{MEDIA_TYPE}"),
        format!("application/*, {MEDIA_TYPE}"),
        format!("{MEDIA_TYPE};stream=watch"),
        format!("{MEDIA_TYPE};stream=else"),
        format!("{MEDIA_TYPE};{METADATA}"),
        format!("{MEDIA_TYPE};{METADATA},application/json"),
        format!("{MEDIA_TYPE};{TABLE}"),
        format!("{MEDIA_TYPE};{TABLE},application/json;{TABLE}"),
        format!("{MEDIA_TYPE};{TABLE},{MEDIA_TYPE}"),
        format!("{MEDIA_TYPE};as=Else;g=meta.k8s.io;v=v1,{MEDIA_TYPE}"),
        format!("{MEDIA_TYPE};as=PartialObjectMetadata"),
        "application/cbor".to_owned(),
    ];
    for accept in &accepted {
        for path in ["configmaps/one", "configmaps", "configmaps/missing"] {
            steps.push(accepting(path, accept));
        }
    }
    for path in [
        "configmaps?limit=1",
        "configmaps?limit=-1",
        "configmaps?labelSelector=!",
        "configmaps?watch=true&resourceVersion=0&timeoutSeconds=1",
        "configmaps?watch=true&resourceVersion=a",
        "/api/v1/nothing",
        "/apis/discovery.k8s.io/v1/nothing",
    ] {
        steps.push(accepting(path, MEDIA_TYPE));
    }
    steps
}

fn documents() -> Vec<Step> {
    let aggregated = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut steps = Vec::new();
    for accept in [
        MEDIA_TYPE.to_owned(),
        format!("{MEDIA_TYPE},application/json"),
        format!("{MEDIA_TYPE};{METADATA}"),
        "text/plain".to_owned(),
    ] {
        for path in ["/api", "/apis", "/apis/coordination.k8s.io/v1"] {
            steps.push(accepting(path, &accept));
        }
    }
    for accept in [MEDIA_TYPE, "text/plain"] {
        steps.extend(["/version", "/openapi/v2", "/healthz"].map(|path| accepting(path, accept)));
    }
    steps.push(accepting("/apis/coordination.k8s.io", MEDIA_TYPE));
    for accept in [
        format!("{MEDIA_TYPE};{aggregated}"),
        format!("{MEDIA_TYPE};{aggregated},application/json"),
        format!("application/json;{aggregated},{MEDIA_TYPE};{aggregated}"),
    ] {
        steps.extend(["/api", "/apis"].map(|path| accepting(path, &accept)));
    }
    steps
}

fn bodies() -> Vec<Step> {
    let sent = |name: &str, method: &str, path: &str, body: Vec<u8>| {
        other(method, name, path).raw(MEDIA_TYPE, body).header("accept", "application/json")
    };
    let create = |name: &str, body: Vec<u8>| sent(name, "POST", "configmaps", body);
    let metadata = |name: &str| bytes(1, bytes(1, name));
    let map = write(&config_map("whole", json!({"a": "1"}))).unwrap();
    let lease = write(&lease("lease", json!({}))).unwrap();
    let options = |kind: &str, version: &str, raw: &[u8]| envelope(version, kind, raw);
    let encoded = [envelope("v1", "ConfigMap", &metadata("encoded")), bytes(3, "gzip")].concat();
    vec![
        create("whole", map.clone()),
        create("again", map.clone()),
        create("no bytes", Vec::new()),
        create("a prefix", b"k8s\0".to_vec()),
        create("another prefix", b"{}".to_vec()),
        create("a half", map[..map.len() / 2].to_vec()),
        create("no object", envelope("v1", "ConfigMap", &[])),
        create("no kind", envelope("", "", &metadata("no-kind"))),
        create("no version", envelope("", "ConfigMap", &metadata("no-version"))),
        create("another kind", lease.clone()),
        create("an unknown kind", envelope("v1", "Else", &metadata("else"))),
        create("an unknown version", envelope("v7", "ConfigMap", &metadata("version"))),
        create(
            "an unknown field",
            envelope("v1", "ConfigMap", &[metadata("field"), bytes(99, "?")].concat()),
        ),
        create("a wrong type", envelope("v1", "ConfigMap", &bytes(4, "?"))),
        create("no UTF-8", envelope("v1", "ConfigMap", &bytes(1, bytes(1, [0xff])))),
        other("POST", "protobuf as JSON", "configmaps").raw("application/json", map.clone()),
        other("PATCH", "protobuf as a patch", "configmaps/whole").raw(MEDIA_TYPE, map.clone()),
        sent(
            "replaced",
            "PUT",
            "configmaps/whole",
            write(&config_map("whole", json!({"a": "2"}))).unwrap(),
        ),
        sent("another name", "PUT", "configmaps/other", map),
        sent(
            "options of the future",
            "DELETE",
            "configmaps/whole",
            options("DeleteOptions", "v1", &bytes(4, "Later")),
        ),
        sent("options that are none", "DELETE", "configmaps/whole", lease),
        sent(
            "dry options",
            "DELETE",
            "configmaps/whole",
            options("DeleteOptions", "meta.k8s.io/v1", &bytes(5, "All")),
        ),
        sent(
            "options",
            "DELETE",
            "configmaps/whole",
            options("DeleteOptions", "v1", &bytes(4, "Background")),
        ),
        get("what is left", "configmaps"),
        sent("encoded once more", "POST", "configmaps?dryRun=All", encoded),
    ]
}
