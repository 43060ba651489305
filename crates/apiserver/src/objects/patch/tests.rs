use proptest::prelude::*;
use serde_json::json;

use super::*;

fn kind(plural: &str) -> &'static Kind {
    crate::objects::kind::KINDS.iter().find(|kind| kind.plural == plural).unwrap()
}

fn service() -> Value {
    json!({"metadata": {"labels": {"n": "1"}, "finalizers": ["a/b", "c/d"]},
        "spec": {"selector": {"q": "z"}, "ports": [{"port": 80, "name": "x", "targetPort": 99}]}})
}

fn strategic(sent: &Value) -> Result<Value, StatusError> {
    patch(kind("services"), PatchType::Strategic, &service(), sent)
}

#[test]
fn json_patches() {
    let does =
        |sent: Value| patch(kind("services"), PatchType::Json, &json!({"a": {"b": 1}}), &sent);
    for (sent, wanted) in [
        (json!([{"op": "add", "path": "/a/c", "value": 2}]), json!({"a": {"b": 1, "c": 2}})),
        (json!([{"op": "replace", "path": "/a/c", "value": 2}]), json!({"a": {"b": 1, "c": 2}})),
        (
            json!([{"op": "test", "path": "/a/b", "value": 1}, {"op": "remove", "path": "/a/b"}]),
            json!({"a": {}}),
        ),
    ] {
        assert_eq!(does(sent), Ok(wanted));
    }
    for sent in [
        json!([{"op": "test", "path": "/a/b", "value": 2}]),
        json!([{"op": "remove", "path": "/a/c"}]),
        json!([{"op": "foo", "path": "/a"}]),
        json!([{"op": "add", "path": "/x/y/z", "value": 1}]),
    ] {
        assert_eq!(does(sent), Err(StatusError::patch_rejected()));
    }
    let message = "error decoding patch: json: cannot unmarshal object into Go value of type \
                   []handlers.jsonPatchOp";
    assert_eq!(does(json!({})), Err(StatusError::bad_request(message)));
}

/// Without limits, both patches would take all memory or all of the stack of the server.
#[test]
fn json_patches_have_limits() {
    let does = |sent: Vec<Value>| {
        let object = json!({"a": "x".repeat(1000), "m": {}});
        patch(kind("services"), PatchType::Json, &object, &sent.into()).map(drop)
    };
    let refused = |why: &str| Err(StatusError::patch_refused(why));
    let test = json!({"op": "test", "path": "/m", "value": {}});
    assert_eq!(does(vec![test.clone(); MAX_OPERATIONS]), Ok(()));
    let many = does(vec![test; MAX_OPERATIONS + 1]).unwrap_err();
    assert_eq!((many.code, many.reason), (413, "RequestEntityTooLarge"));
    let double = |n: usize| json!({"op": "copy", "from": "/m", "path": format!("/m/{n}")});
    let first = json!({"op": "copy", "from": "/a", "path": "/m/a"});
    let doubled = |times| does([first.clone()].into_iter().chain((0..times).map(double)).collect());
    assert_eq!(doubled(10), Ok(()));
    let why = "the patch copies more than 3145728 bytes: copy less, or send several patches";
    assert_eq!(doubled(40), refused(why));
    let nest = || {
        [
            json!({"op": "add", "path": "/n", "value": {}}),
            json!({"op": "move", "from": "/m", "path": "/n/m"}),
            json!({"op": "move", "from": "/n", "path": "/m"}),
        ]
    };
    let nested = |times| does((0..times).flat_map(|_| nest()).collect());
    assert_eq!(nested(100), Ok(()));
    let why = "the patch nests values more than 127 levels deep: nest them less";
    assert_eq!(nested(3000), refused(why));
    let path = "/m".repeat(200);
    let far = json!({"op": "add", "path": path, "value": 1});
    assert_eq!(does(vec![far]), refused(why));
}

#[test]
fn merge_patches() {
    let does =
        |sent: Value| patch(kind("services"), PatchType::Merge, &json!({"a": 1, "b": [1]}), &sent);
    assert_eq!(
        does(json!({"a": null, "b": [2], "c": {"d": null}})),
        Ok(json!({"b": [2], "c": {}}))
    );
    let message = "error decoding patch: json: cannot unmarshal array into Go value of type \
                   map[string]interface {}";
    assert_eq!(does(json!([1])), Err(StatusError::bad_request(message)));
}

#[test]
fn strategic_patches() {
    let x = json!({"port": 80, "name": "x", "targetPort": 99});
    let n = json!({"port": 90, "name": "n"});
    for (sent, place, wanted) in [
        (
            json!({"spec": {"ports": [{"port": 80, "name": "y"}]}}),
            "/spec/ports",
            json!([{"port": 80, "name": "y", "targetPort": 99}]),
        ),
        (json!({"spec": {"ports": [n]}}), "/spec/ports", json!([n, x])),
        (
            json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}, n]}}),
            "/spec/ports",
            json!([n]),
        ),
        (json!({"spec": {"ports": [n, {"$patch": "replace"}]}}), "/spec/ports", json!([n])),
        (
            json!({"spec": {"$setElementOrder/ports": [{"port": 80}, {"port": 90}], "ports": [n]}}),
            "/spec/ports",
            json!([x, n]),
        ),
        (json!({"spec": {"selector": {"k": "v"}}}), "/spec/selector", json!({"q": "z", "k": "v"})),
        (
            json!({"spec": {"selector": {"$patch": "replace", "k": "v"}}}),
            "/spec/selector",
            json!({"k": "v"}),
        ),
        (json!({"spec": {"selector": {"$patch": "delete"}}}), "/spec/selector", json!({})),
        (
            json!({"spec": {"$retainKeys": ["ports"], "selector": {"a": "b"}}}),
            "/spec",
            json!({"ports": [x], "selector": {"a": "b"}}),
        ),
        (
            json!({"metadata": {"finalizers": ["e/f"]}}),
            "/metadata/finalizers",
            json!(["e/f", "a/b", "c/d"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}),
            "/metadata/finalizers",
            json!(["c/d"]),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["c/d", "a/b"]}}),
            "/metadata/finalizers",
            json!(["c/d", "a/b"]),
        ),
    ] {
        let patched = strategic(&sent).unwrap();
        assert_eq!(patched.pointer(place), Some(&wanted), "{sent}");
    }
    assert_eq!(
        strategic(&json!({"spec": {"selector": null}})).unwrap().pointer("/spec/selector"),
        None
    );
}

#[test]
fn invalid_strategic_patches_are_refused() {
    for (sent, message) in [
        (
            json!({"spec": {"ports": [{"name": "x"}]}}),
            "map: map[name:x] does not contain declared merge key: port",
        ),
        (json!({"spec": {"$patch": "foo"}}), "unknown patch type: foo in map: map[$patch:foo]"),
        (
            json!({"spec": {"ports": [{"$patch": "foo", "port": 80}]}}),
            "unknown patch type: foo in map: map[$patch:foo port:80]",
        ),
        (
            json!({"spec": {"$setElementOrder/ports": [{"port": 80}],
                "ports": [{"port": 90, "name": "n"}]}}),
            "The order in patch list:\n[map[name:n port:90]]\n doesn't match $setElementOrder \
             list:\n[map[port:80]]\n",
        ),
    ] {
        assert_eq!(strategic(&sent), Err(StatusError::internal(message)));
    }
    let message = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(strategic(&json!([1])), Err(StatusError::bad_request(message)));
}

#[test]
fn lists_in_lists() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "a",
        "env": [{"name": "E", "value": "1"}], "args": ["x"]}], "tolerations": [{"key": "t"}]}});
    let sent = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "F", "value": "2"}],
        "args": ["y"]}], "tolerations": [{"key": "u"}]}});
    assert_eq!(
        patch(kind("pods"), PatchType::Strategic, &pod, &sent),
        Ok(json!({"spec": {"containers": [{"name": "c", "image": "a",
            "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}], "args": ["y"]}],
            "tolerations": [{"key": "u"}]}}))
    );
}

fn ports() -> impl Strategy<Value = Vec<(u16, String)>> {
    proptest::collection::btree_map(1..6_u16, "[a-c]", 0..5)
        .prop_map(|map| map.into_iter().collect())
}

fn with(ports: &[(u16, String)]) -> Value {
    let ports: Vec<Value> =
        ports.iter().map(|(port, name)| json!({"port": port, "name": name})).collect();
    json!({"spec": {"ports": ports}})
}

proptest! {
    /// The difference of two Services, as kubectl would write it, leads from one to the other.
    #[test]
    fn the_difference_gives_the_target(from in ports(), to in ports()) {
        let mut changes: Vec<Value> = to
            .iter()
            .filter(|port| !from.contains(port))
            .map(|(port, name)| json!({"port": port, "name": name}))
            .collect();
        let gone = from.iter().filter(|(port, _)| !to.iter().any(|(kept, _)| kept == port));
        changes.extend(gone.map(|(port, _)| json!({"port": port, "$patch": "delete"})));
        let order: Vec<Value> = to.iter().map(|(port, _)| json!({"port": port})).collect();
        let sent = json!({"spec": {"ports": changes, "$setElementOrder/ports": order}});
        let patched = patch(kind("services"), PatchType::Strategic, &with(&from), &sent).unwrap();
        prop_assert_eq!(patched, with(&to));
    }

    #[test]
    fn patching_twice_changes_nothing(from in ports(), to in ports()) {
        for form in [PatchType::Merge, PatchType::Strategic] {
            let once = patch(kind("services"), form, &with(&from), &with(&to)).unwrap();
            let twice = patch(kind("services"), form, &once, &with(&to)).unwrap();
            prop_assert_eq!(once, twice);
        }
    }
}
