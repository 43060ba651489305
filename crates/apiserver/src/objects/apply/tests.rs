use proptest::prelude::*;

use super::*;

fn services() -> &'static Kind {
    Kind::find("", "v1", "services").unwrap()
}

fn writer<'a>(manager: &'a str, time: &'a str) -> Writer<'a> {
    Writer { manager, subresource: None, time }
}

fn service(labels: Value, spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    service["metadata"]["labels"] = labels;
    service["spec"] = spec;
    service
}

fn owners(object: &Value) -> Vec<(String, String, Option<String>, Value)> {
    let all = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned();
    all.unwrap_or_default()
        .iter()
        .map(|entry| {
            (
                text(entry, "/manager").to_owned(),
                text(entry, "/operation").to_owned(),
                entry.get("time").and_then(Value::as_str).map(str::to_owned),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

fn owner(
    manager: &str,
    operation: &str,
    time: Option<&str>,
    fields: Value,
) -> (String, String, Option<String>, Value) {
    (manager.into(), operation.into(), time.map(str::to_owned), fields)
}

fn port(fields: Value) -> Value {
    let mut ports = json!({});
    ports["k:{\"port\":80,\"protocol\":\"TCP\"}"] = fields;
    ports
}

#[test]
fn applied_create_update() {
    let sent = service(json!({"a": "b"}), json!({"ports": [{"port": 80}], "selector": {"q": "r"}}));
    let made = apply(services(), None, &sent, &writer("one", "1"), false).unwrap();
    let fields = json!({"f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:ports": port(json!({".": {}, "f:port": {}})), "f:selector": {}}});
    assert_eq!(owners(&made), [owner("one", "Apply", Some("1"), fields.clone())]);
    let again = apply(services(), Some(&made), &sent, &writer("one", "2"), false).unwrap();
    assert_eq!(again, made);
    let same = service(json!({}), json!({"ports": [{"port": 80}]}));
    let shared = apply(services(), Some(&made), &same, &writer("two", "3"), false).unwrap();
    let theirs = json!({"f:metadata": {"f:labels": {}},
        "f:spec": {"f:ports": port(json!({".": {}, "f:port": {}}))}});
    assert_eq!(
        owners(&shared),
        [owner("two", "Apply", None, theirs), owner("one", "Apply", Some("1"), fields)]
    );
}

#[test]
fn conflicts_are_listed_and_can_be_forced() {
    let one = service(json!({"a": "b"}), json!({"ports": [{"port": 80}], "selector": {"q": "r"}}));
    let made = apply(services(), None, &one, &writer("one", "1"), false).unwrap();
    let mut updated = made.clone();
    updated["spec"]["sessionAffinity"] = "ClientIP".into();
    track_update(services(), Some(&made), &mut updated, &writer("upd", "2"));
    let two = service(
        json!({"a": "c"}),
        json!({"ports": [{"port": 80, "name": "x"}], "selector": {"q": "z"},
        "sessionAffinity": "None"}),
    );
    let error = apply(services(), Some(&updated), &two, &writer("two", "3"), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .metadata.labels.a\n- \
         .spec.selector\n\
         conflicts with \"upd\" using v1:\n- .spec.sessionAffinity"
    );
    assert_eq!(
        error.details.unwrap()["causes"][2],
        json!({"reason": "FieldManagerConflict", "field": ".spec.sessionAffinity",
            "message": "conflict with \"upd\" using v1"})
    );
    let forced = apply(services(), Some(&updated), &two, &writer("two", "3"), true).unwrap();
    assert_eq!(forced["spec"]["selector"], json!({"q": "z"}));
    let left = json!({"f:spec": {"f:ports": port(json!({".": {}, "f:port": {}}))}});
    let taken = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:selector": {},
        "f:sessionAffinity": {}, "f:ports": port(json!({".": {}, "f:name": {}, "f:port": {}}))}});
    assert_eq!(
        owners(&forced),
        [owner("one", "Apply", Some("1"), left), owner("two", "Apply", Some("3"), taken)]
    );
}

#[test]
fn fields_in_lists_are_named_by_their_keys() {
    let one = service(json!({}), json!({"ports": [{"port": 80, "name": "x"}]}));
    let made = apply(services(), None, &one, &writer("one", "1"), false).unwrap();
    let two = service(json!({}), json!({"ports": [{"port": 80, "name": "q"}]}));
    let error = apply(services(), Some(&made), &two, &writer("two", "2"), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"one\": \
         .spec.ports[port=80,protocol=\"TCP\"].name"
    );
    let twice = service(json!({}), json!({"ports": [{"port": 80}, {"port": 80}]}));
    let error = apply(services(), Some(&made), &twice, &writer("two", "2"), false).unwrap_err();
    assert_eq!(
        error.message,
        "failed to create typed patch object (/s; /v1, Kind=Service): .spec.ports: duplicate \
         entries for key [port=80,protocol=\"TCP\"]"
    );
}

#[test]
fn a_field_that_is_no_longer_applied_is_removed_unless_another_manager_owns_it() {
    let one = service(
        json!({"a": "1", "b": "2"}),
        json!({"ports": [{"port": 80}, {"port": 81, "name": "y"}]}),
    );
    let mut made = apply(services(), None, &one, &writer("one", "1"), false).unwrap();
    for port in made["spec"]["ports"].as_array_mut().unwrap() {
        port["protocol"] = "TCP".into();
        port["targetPort"] = 9.into();
    }
    let two = service(json!({"b": "2"}), json!({}));
    let shared = apply(services(), Some(&made), &two, &writer("two", "2"), false).unwrap();
    let less = service(json!({"a": "1"}), json!({"ports": [{"port": 80}]}));
    let left = apply(services(), Some(&shared), &less, &writer("one", "3"), false).unwrap();
    assert_eq!(left["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(left["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 9}]));
    let gone = service(json!({"z": "1"}), json!({}));
    let gone = apply(services(), Some(&left), &gone, &writer("two", "4"), false).unwrap();
    assert_eq!(gone["metadata"]["labels"], json!({"a": "1", "z": "1"}));
}

#[test]
fn an_object_keeps_its_name_when_no_manager_owns_its_metadata() {
    let labelled = service(json!({"a": "b"}), json!({"type": "ClusterIP"}));
    let made = apply(services(), None, &labelled, &writer("one", "1"), false).unwrap();
    let mut bare = labelled.clone();
    bare["metadata"] = json!({"name": "s"});
    let left = apply(services(), Some(&made), &bare, &writer("one", "2"), false).unwrap();
    assert_eq!(left["metadata"]["name"], "s");
    assert_eq!(left.pointer("/metadata/labels"), None);
}

#[test]
fn updates_are_tracked() {
    let mut made = json!({"metadata": {"name": "s", "uid": "u", "labels": {"a": "b"},
        "finalizers": ["a/b"],
        "ownerReferences": [{"uid": "o", "name": "n"}]},
        "spec": {"type": "ClusterIP", "selector": {"q": "r"},
            "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {}}});
    track_update(services(), None, &mut made, &writer("me", "1"));
    let fields = json!({
        "f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}, "f:labels": {".": {}, "f:a": {}},
            "f:ownerReferences": {".": {}, "k:{\"uid\":\"o\"}": {}}},
        "f:spec": {"f:selector": {}, "f:type": {},
            "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {},
                "f:protocol": {}}}},
    });
    assert_eq!(owners(&made), [owner("me", "Update", Some("1"), fields)]);
    let mut next = made.clone();
    next["metadata"]["labels"] = json!({"a": "c"});
    next["metadata"].as_object_mut().unwrap().remove("finalizers");
    next["spec"] = json!({"type": "ClusterIP"});
    next["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    track_update(services(), Some(&made), &mut next, &writer("you", "2"));
    assert_eq!(
        owners(&next),
        [
            owner(
                "me",
                "Update",
                Some("1"),
                json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:type": {}}})
            ),
            owner("you", "Update", Some("2"), json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
        ]
    );
    let mut same = next.clone();
    track_update(services(), Some(&next), &mut same, &writer("third", "3"));
    assert_eq!(same, next);
}

#[test]
fn the_status_has_managers_of_its_own() {
    let nodes = Kind::find("", "v1", "nodes").unwrap();
    let mut made = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    track_update(nodes, None, &mut made, &writer("me", "1"));
    let mut next = made.clone();
    next["status"]["conditions"][0]["status"] = "False".into();
    let kubelet = Writer { manager: "kubelet", subresource: Some("status"), time: "2" };
    track_update(nodes, Some(&made), &mut next, &kubelet);
    assert_eq!(
        next["metadata"]["managedFields"],
        json!([
            {"manager": "me", "operation": "Update", "apiVersion": "v1", "time": "1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:taints": {}}}},
            {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2",
                "fieldsType": "FieldsV1", "subresource": "status",
                "fieldsV1": {"f:status": {"f:conditions": {
                    "k:{\"type\":\"Ready\"}": {"f:status": {}},
                }}}},
        ])
    );
}

#[test]
fn managed_fields_can_be_cleared() {
    let sent = service(json!({"a": "b"}), json!({"type": "ClusterIP"}));
    let made = apply(services(), None, &sent, &writer("one", "1"), false).unwrap();
    for reset in [json!([]), json!([{}])] {
        let mut next = made.clone();
        next["metadata"]["managedFields"] = reset;
        track_update(services(), Some(&made), &mut next, &writer("u", "2"));
        assert_eq!(owners(&next), []);
        let mut later = next.clone();
        later["metadata"]["labels"] = json!({"n": "1"});
        track_update(services(), Some(&next), &mut later, &writer("u", "3"));
        assert_eq!(owners(&later), []);
        let sent = service(json!({"n": "1"}), json!({}));
        let first = apply(services(), Some(&later), &sent, &writer("one", "4"), false).unwrap();
        let all =
            json!({"f:metadata": {"f:labels": {".": {}, "f:n": {}}}, "f:spec": {"f:type": {}}});
        let own = json!({"f:metadata": {"f:labels": {"f:n": {}}}, "f:spec": {}});
        assert_eq!(
            owners(&first),
            [
                owner("one", "Apply", None, own),
                owner("before-first-apply", "Update", Some("4"), all),
            ]
        );
    }
    let mut silent = made.clone();
    silent["metadata"].as_object_mut().unwrap().remove("managedFields");
    track_update(services(), Some(&made), &mut silent, &writer("u", "2"));
    assert_eq!(silent, made);
}

#[test]
fn the_order_of_lists() {
    let names =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    let pods = Kind::find("", "v1", "pods").unwrap();
    for (live, applied, wanted) in [
        (&["a", "b"][..], &["c"][..], &["a", "b", "c"][..]),
        (&["a", "b"], &["b", "c"], &["a", "b", "c"]),
        (&["a", "b"], &["c", "a"], &["c", "a", "b"]),
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
    ] {
        let of = |names: Value| json!({"spec": {"containers": names}});
        let merged = Shape { kind: pods }.merge("", &of(names(live)), &of(names(applied)));
        assert_eq!(merged, of(names(wanted)), "{live:?} {applied:?}");
    }
}

fn some_service() -> impl Strategy<Value = Value> {
    let labels = proptest::collection::btree_map("[a-c]", "[x-y]", 0..3);
    let ports = proptest::collection::btree_map(1..4_u16, "[a-c]", 0..3);
    (labels, ports).prop_map(|(labels, ports)| {
        let ports: Vec<Value> =
            ports.iter().map(|(port, name)| json!({"port": port, "name": name})).collect();
        service(json!(labels), json!({"ports": ports}))
    })
}

proptest! {
    #[test]
    fn applying_the_same_twice_changes_nothing(one in some_service(), two in some_service()) {
        let first = apply(services(), None, &one, &writer("one", "1"), true).unwrap();
        let second = apply(services(), Some(&first), &two, &writer("two", "2"), true).unwrap();
        let again = apply(services(), Some(&second), &two, &writer("two", "3"), false).unwrap();
        prop_assert_eq!(again, second);
    }

    /// The only manager gets exactly what it applies, whatever it has applied before.
    #[test]
    fn the_only_manager_gets_what_it_applies(one in some_service(), two in some_service()) {
        let first = apply(services(), None, &one, &writer("me", "1"), false).unwrap();
        let second = apply(services(), Some(&first), &two, &writer("me", "2"), false).unwrap();
        for (key, value) in two["metadata"]["labels"].as_object().unwrap() {
            prop_assert_eq!(&second["metadata"]["labels"][key], value);
        }
        let size = |object: &Value| {
            object.pointer("/metadata/labels").and_then(Value::as_object).map_or(0, Map::len)
        };
        prop_assert_eq!(size(&second), size(&two));
        let ports = |object: &Value| object["spec"]["ports"].as_array().map_or(0, Vec::len);
        prop_assert_eq!(ports(&second), ports(&two));
    }
}
