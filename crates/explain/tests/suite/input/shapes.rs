//! Every shape of input gives the same objects.

use serde_json::{Value, json};

use crate::input::common::{
    cluster, list, node, objects, pod, progress, read, service, slice, told, yaml,
};

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn each(write: impl Fn(&Value) -> String, between: &str) -> String {
    cluster().iter().map(write).collect::<Vec<_>>().join(between)
}

/// The same list with what stands around its items after them.
fn reordered(text: &str) -> String {
    let (before, after) = text.split_once("\"items\":").unwrap();
    let items = after.strip_suffix('}').unwrap();
    let fields = before[1..].strip_suffix(',').unwrap();
    format!("{{\"items\":{items},{fields}}}")
}

/// Everything that is part of something moved to the right.
fn indented(text: &str) -> String {
    let part = |line: &str| line.starts_with("- ") || line.starts_with(' ');
    let line = |line: &str| format!("{}{line}\n", if part(line) { "  " } else { "" });
    text.lines().map(line).collect()
}

#[test]
fn the_same_objects_in_any_shape_are_the_same() {
    let all = list(&cluster());
    let expected = objects(each(Value::to_string, "\n"));
    assert_eq!(expected.len(), 4);
    let rows = [
        ("JSON, one after the other, no blank between", each(Value::to_string, "")),
        ("JSON, pretty", each(pretty, "\n")),
        ("JSON, with markers between", format!("---\n{}\n", each(pretty, "\n---\n"))),
        ("JSON list", all.to_string()),
        ("JSON list, pretty", pretty(&all)),
        ("JSON array", Value::from(cluster()).to_string()),
        ("YAML documents", each(yaml, "---\n")),
        (
            "YAML documents, markers of all sorts",
            format!(
                "\u{feff}# all\n\n%YAML 1.2\n---\n---  \n{}...\n",
                each(yaml, "...\n# x\n---\t# next\n\n")
            ),
        ),
        ("YAML list", yaml(&all)),
        ("YAML list and a comment between", yaml(&all).replace("\n- ", "\n# here\n\n- ")),
        ("YAML, CRLF", yaml(&all).replace('\n', "\r\n")),
        (
            "YAML, then JSON",
            format!("{}---\n{}", yaml(&list(&cluster()[..2])), list(&cluster()[2..])),
        ),
        (
            "flow style",
            all.to_string()
                .replace("\"kind\":", "kind: ")
                .replace("\"items\":", "items: ")
                .replacen("{\"apiVersion\":", "{apiVersion: ", 1),
        ),
        (
            "YAML with items in flow style",
            format!("kind: List\nitems: {}\napiVersion: v1\n", Value::from(cluster())),
        ),
        ("YAML list whose dashes are indented", indented(&yaml(&all))),
    ];
    for (shape, text) in rows {
        assert_eq!(objects(&text), expected, "{shape}:\n{text}");
    }
}

#[test]
fn items_of_typed_lists_need_no_kind() {
    let kinds = [
        ("v1", "NodeList", node("n1")),
        ("v1", "PodList", pod("shop", "web-1")),
        ("v1", "ServiceList", service("shop", "web")),
        ("discovery.k8s.io/v1", "EndpointSliceList", slice("shop", "web-abc")),
    ];
    for (version, kind, object) in kinds {
        let mut bare = object.clone();
        let fields = bare.as_object_mut().unwrap();
        fields.remove("kind");
        fields.remove("apiVersion");
        let raw = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{}},"items":[{bare},{bare}]}}"#
        );
        let sorted = json!({"apiVersion": version, "kind": kind, "items": [bare, bare]});
        let strip = |mut found: Vec<(_, Option<Value>)>| {
            for json in found.iter_mut().filter_map(|(_, json)| json.as_mut()) {
                json.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
            }
            found
        };
        let expected = strip(objects(format!("{object}{object}")));
        for text in [raw.clone(), sorted.to_string(), yaml(&sorted), reordered(&raw)] {
            assert_eq!(strip(objects(&text)), expected, "{text}");
        }
    }
}

#[test]
fn a_namespace_that_is_not_told_is_default() {
    let without = |mut object: Value| {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        object
    };
    for object in [pod, service, slice] {
        let (told, silent) = (object("default", "x"), without(object("default", "x")));
        let empty = without(object("default", "x")).to_string();
        let empty = empty.replacen(r#""metadata":{"#, r#""metadata":{"namespace":"","#, 1);
        let expected = objects(told.to_string());
        assert_eq!(objects(silent.to_string()), expected);
        assert_eq!(objects(yaml(&silent)), expected);
        assert_eq!(objects(empty), expected);
    }
}

#[test]
fn places_are_those_of_the_file() {
    let rows: [(&str, &[&str]); 6] = [
        (
            "# first\n---\n\napiVersion: v1\nkind: Node\nmetadata:\n  name: a\n---\n# none\n---\n\
             apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: b}\n\n\
             - apiVersion: v1\n  kind: Node\n  metadata: {name: c}\nkind: List\n",
            &[
                "f: document 1, line 4: Node a",
                "f: document 2, item 1, line 13: Node b",
                "f: document 2, item 2, line 17: Node c",
            ],
        ),
        (
            "{\"kind\":\"NodeList\",\n\"apiVersion\":\"v1\",\"items\":[\n{\"metadata\":{\"name\":\"a\"}},\n\
             {\"metadata\":\n{\"name\":\"b\"}}]}\n\n{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"}",
            &[
                "f: document 1, item 1, line 3: Node a",
                "f: document 1, item 2, line 4: Node b",
                "ignored: ConfigMap",
            ],
        ),
        ("kind: Deployment\napiVersion: apps/v1\n", &["ignored: Deployment"]),
        ("kind: Service\napiVersion: serving.knative.dev/v1\n", &["ignored: Service"]),
        (
            "items:\n- &x\n  apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n- <<: *x\n  \
             metadata: {name: b}\n- *x\nkind: List\n",
            &[
                "f: document 1, item 1, line 2: Node a",
                "f: document 1, item 2, line 6: Node b",
                "f: document 1, item 3, line 8: Node a",
            ],
        ),
        (
            "--- {kind: Node, apiVersion: v1, metadata: {name: 'x'}}\n--- # no more\n",
            &["f: document 1, line 1: Node x"],
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(told(text), expected, "{text}");
    }
}

#[test]
fn what_is_empty_gives_nothing() {
    let rows = [
        "",
        "\n",
        " \n\t\n",
        "# a\n# b",
        "---\n",
        "---\n---\n...\n",
        "\u{feff}",
        "~\n",
        "null",
        "--- # x",
        "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[]}",
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":null}",
        "kind: List\nitems:\n",
        "kind: List\nitems: []\n",
        "kind: List\nitems: null\n",
        "[]",
        "[ ]\n",
        "kind: List\nitems:\nmetadata: {}\n",
    ];
    for text in rows {
        assert_eq!(read(text), (Vec::new(), None), "{text:?}");
    }
}

#[test]
fn progress_counts_bytes() {
    let text = node("a").to_string().repeat(40_000);
    let told = progress(&text);
    assert_eq!(told.last(), Some(&(text.len() as u64)));
    assert!(told.len() > 1 && told.is_sorted(), "{told:?}");
}

#[test]
fn json_is_kept_only_where_asked_for_and_without_blanks() {
    let text = pretty(&service("shop", "web"));
    let (items, _) = read(&text);
    let kept = match &items[..] {
        [zonewise_explain::input::Item::Found(found)] => &found.object,
        other => panic!("{other:?}"),
    };
    let zonewise_explain::input::Object::Service { json: Some(json), .. } = kept else {
        panic!("{kept:?}");
    };
    assert_eq!(**json, service("shop", "web").to_string());
}
