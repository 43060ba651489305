//! Creating, reading, replacing and deleting one object of every kind.

use serde_json::{Value, json};

use super::{config_map, event, lease, new_event, node, pod, slice, web};
use crate::requests::{Group, delete, delete_with, get, group, merge_patch, post, put};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        life("life-configmap", "configmaps", "one", config_map("one", json!({"a": "1"}))),
        life("life-service", "services", "one", web("one")),
        life(
            "life-slice",
            "endpointslices",
            "one",
            slice("one", json!([{"addresses": ["10.1.2.3"]}])),
        ),
        life("life-lease", "leases", "one", lease("one", json!({"holderIdentity": "me"}))),
        life("life-event", "events", "one", event("one")),
        life("life-new-event", "newevents", "one", new_event("one")),
        life("life-pod", "pods", "one", pod("one")),
        life("life-node", "nodes", "{ns}-one", node("{ns}-one")),
        life(
            "life-cidr",
            "servicecidrs",
            "{ns}-one",
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                "metadata": {"name": "{ns}-one", "labels": {"group": "{ns}"}},
                "spec": {"cidrs": ["10.200.0.0/24"]},
            }),
        ),
    ]
}

/// The life of an object, from its creation to its deletion.
fn life(name: &'static str, plural: &str, object: &str, body: Value) -> Group {
    let path = format!("{plural}/{object}");
    let (path, dry) = (path.as_str(), format!("{plural}?dryRun=All"));
    let list = format!("{plural}?labelSelector=group%3D{{ns}}");
    let list = if matches!(plural, "nodes" | "servicecidrs") { &list } else { plural };
    let label = |value: &str| json!({"metadata": {"labels": {"group": "{ns}", "touched": value}}});
    let mut wrong_kind = body.clone();
    wrong_kind["kind"] = "Pot".into();
    let mut wrong_name = body.clone();
    wrong_name["metadata"]["name"] = "other".into();
    let mut nameless = body.clone();
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    let mut generated = nameless.clone();
    generated["metadata"]["generateName"] = "{ns}-g-".into();
    let mut changed = body.clone();
    changed["metadata"]["annotations"] = json!({"zonewise.dev/note": "changed"});
    let mut old = changed.clone();
    old["metadata"]["resourceVersion"] = "1".into();
    let mut same = changed.clone();
    same["metadata"]["resourceVersion"] = "{version}".into();
    group(
        name,
        vec![
            get("nothing yet", path),
            get("an empty list", list),
            delete("nothing to delete", path),
            merge_patch("nothing to patch", path, label("a")),
            put("replaced before it is there", path, body.clone()),
            post("dry", &dry, body.clone()),
            get("still nothing", path),
            post("made", plural, body.clone()),
            post("made again", plural, body),
            get("read", path).keep("uid", "/metadata/uid"),
            get("listed", list),
            post("of a wrong kind", plural, wrong_kind),
            post("without a name", &dry, nameless),
            post("with a generated name", plural, generated).keep("generated", "/metadata/name"),
            get("the generated one", &format!("{plural}/{{generated}}")),
            put("replaced", path, changed.clone()).keep("version", "/metadata/resourceVersion"),
            put("replaced by the same", path, changed),
            put("replaced at its version", path, same),
            put("replaced at an old version", path, old),
            put("replaced under another name", path, wrong_name),
            merge_patch("labelled", path, label("yes")),
            merge_patch("labelled again", path, label("yes")),
            merge_patch("labelled, dry", &format!("{path}?dryRun=All"), label("no")),
            delete_with("deleted, dry", path, json!({"dryRun": ["All"]})),
            delete_with(
                "not deleted: another uid",
                path,
                json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            ),
            delete_with(
                "not deleted: another version",
                path,
                json!({"preconditions": {"resourceVersion": "1"}}),
            ),
            get("read again", path),
            delete_with(
                "deleted",
                path,
                json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "{uid}"}}),
            ),
            delete("deleted twice", path),
            get("gone", path),
            delete("the generated one goes", &format!("{plural}/{{generated}}")),
        ],
    )
}
