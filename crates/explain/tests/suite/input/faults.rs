//! What is said about objects and files that are wrong.

use serde_json::{Value, json};

use crate::input::common::{node, pod, service, slice, told, yaml};

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[test]
fn an_object_that_cannot_be_used_is_named_with_cause_and_field() {
    let rows = [
        (
            with(service("shop", "web"), "/spec/ports", json!(5)),
            "Service shop/web: `spec.ports`: a list is needed, not integer `5`",
        ),
        (
            with(service("shop", "web"), "/spec/ports/0/port", json!("x")),
            "Service shop/web: `spec.ports[0].port`: a whole number is needed, not string \"x\"",
        ),
        (
            with(pod("shop", "web"), "/spec/containers/0/ports/0/containerPort", json!(1e30)),
            "Pod shop/web: `spec.containers[0].ports[0].containerPort`: a whole number is needed, not floating point `1e+30`",
        ),
        (
            with(pod("shop", "web"), "/metadata/labels/app", json!(1.5)),
            "Pod shop/web: `metadata.labels.app`: a string is needed, not floating point `1.5`",
        ),
        (with(node("n1"), "/metadata", json!([])), "Node: it has no name: set `metadata.name`"),
        (
            with(node("n1"), "/metadata/name", json!("")),
            "Node : it has no name: set `metadata.name`",
        ),
        (
            with(node("n1"), "/kind", json!(null)),
            "object n1: it has no `kind`: add `kind` and `apiVersion`",
        ),
        (with(node("n1"), "/apiVersion", json!(null)), "Node n1: it has no `apiVersion`: add it"),
        (
            with(slice("shop", "web"), "/addressType", json!(null)),
            "EndpointSlice shop/web: `addressType`: a string is needed, not null",
        ),
        (
            with(slice("shop", "web"), "/apiVersion", json!("discovery.k8s.io/v1beta1")),
            "EndpointSlice shop/web: version discovery.k8s.io/v1beta1 is not read: fetch it again with `kubectl get endpointslices.v1.discovery.k8s.io -A -o json`",
        ),
        (
            with(pod("shop", "web"), "/apiVersion", json!("v1beta3")),
            "Pod shop/web: version v1beta3 is not read: fetch it again with `kubectl get pods -A -o json`",
        ),
        (
            with(pod("a\u{1b}[31m", "ü/\n"), "/spec/nodeName", json!({})),
            "Pod a\\u{1b}[31m/ü/\\n: `spec.nodeName`: a string is needed, not an object",
        ),
        (json!({"kind": "PodList", "items": {}}), "PodList: `items` of a list must be a list"),
    ];
    for (object, expected) in rows {
        for text in [object.to_string(), yaml(&object)] {
            let fault = format!("f: document 1, line 1: {expected}");
            assert_eq!(told(&text), [fault], "{text}");
        }
    }
}

#[test]
fn the_others_are_used() {
    let bad = with(service("shop", "bad"), "/spec/ports", json!(5));
    let text = format!("{bad}\n{}\n{{}}\n{}", node("a"), node("b"));
    let expected = [
        "f: document 1, line 1: Service shop/bad: `spec.ports`: a list is needed, not integer `5`",
        "f: document 2, line 2: Node a",
        "f: document 3, line 3: object: it has no `kind`: add `kind` and `apiVersion`",
        "f: document 4, line 4: Node b",
    ];
    assert_eq!(told(text), expected);
}

/// A text, and what is told about it.
type Row = (&'static str, &'static [&'static str]);

const MISTAKES: [Row; 24] = [
    (
        "hello",
        &[
            "f: document 1, line 1: object: this is not an object: an object has `kind` and `metadata`",
        ],
    ),
    (
        "- a\n- b",
        &[
            "f: document 1, item 1, line 1: object: this is not an object: an object has `kind` and `metadata`",
            "f: document 1, item 2, line 1: object: this is not an object: an object has `kind` and `metadata`",
        ],
    ),
    (
        "[1]",
        &[
            "f: document 1, item 1, line 1: object: this is not an object: an object has `kind` and `metadata`",
        ],
    ),
    (
        "{\"items\":[{\"metadata\":{\"name\":\"a\"}}]}",
        &[
            "f: document 1, item 1, line 1: object a: it has no `kind`, and its list has none before its items: add `kind` and `apiVersion`",
        ],
    ),
    (
        "{\"kind\":\"List\",\"items\":[{\"kind\":\"PodList\",\"items\":[]}]}",
        &["f: document 1, item 1, line 1: PodList: a list inside a list is not read: take it out"],
    ),
    (
        "{\"kind\":\"List\",\"items\":[null]}",
        &[
            "f: document 1, item 1, line 1: object: this is not an object: an object has `kind` and `metadata`",
        ],
    ),
    ("kind: List\n", &["f: document 1, line 1: List: a list needs `items`"]),
    ("kind: AllowList\n", &["ignored: AllowList"]),
    (
        "kind: Node\nkind: Node\n",
        &["f: document 1, line 2: object: `kind` is set twice: remove one of them"],
    ),
    (
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\n\"metadata\":{\"name\":\"a\"},\n\"metadata\":{}}",
        &["f: document 1, line 3: Node: a field is set twice: remove one of them"],
    ),
    ("{\n\"kind\": tru }", &["error: f: document 1, line 2: this is not JSON: expected ident"]),
    (
        "{\"kind\":\"List\",\n\"items\":[{\"kind\":\"A\"},\n,{}]}",
        &[
            "ignored: A",
            "error: f: document 1, item 2, line 3: an item is missing here: is there a comma too many?",
        ],
    ),
    (
        "{\"kind\":\"List\",\n\"items\":[{\"kind\":\"A\"}{}]}",
        &["error: f: document 1, item 1, line 2: this is not JSON: trailing characters"],
    ),
    (
        "{\"kind\":\"List\",\"items\":[{\"kind\":\"A\"}],\n\"a\"}",
        &["ignored: A", "error: f: document 1, line 2: this is not JSON: expected `:`"],
    ),
    (
        "{\"kind\":\"List\",\"items\":[{\"kind\":\"A\"}],\"items\":[{\"kind\":\"B\"}]}",
        &[
            "ignored: A",
            "error: f: document 1, line 1: this list has `items` twice: make it two lists",
        ],
    ),
    (
        "{\"kind\":\"A\"}}",
        &["ignored: A", "error: f: document 2, line 1: this is not YAML: misplaced bracket"],
    ),
    (
        "a: b: c\n",
        &[
            "error: f: document 1, line 1: this is not YAML: mapping values are not allowed in this context",
        ],
    ),
    (
        "kind: List\nitems:\n- kind: A\n- kind: B: C\n",
        &[
            "ignored: A",
            "error: f: document 1, item 2, line 4: this is not YAML: mapping values are not allowed in this context",
        ],
    ),
    (
        "kind: List\nitems:\n- kind: A\nx: y: z\n",
        &[
            "ignored: A",
            "error: f: document 1, line 4: this is not YAML: mapping values are not allowed in this context",
        ],
    ),
    (
        "kind: List\nitems:\n- kind: A\n  b: *none\n",
        &[
            "error: f: document 1, item 1, line 4: the alias refers to an anchor that does not exist",
        ],
    ),
    (
        "kind: List\nitems:\n- kind: A\n\t- b\n",
        &[
            "error: f: document 1, item 1, line 3: this is not YAML: while scanning a plain scalar, found a tab",
        ],
    ),
    (
        "kind: A\nmetadata:\n\tname: b\n",
        &[
            "error: f: document 1, line 3: this is not YAML: tabs disallowed within this context (block indentation)",
        ],
    ),
    (
        "kind: A\n---\nkind: \"B\n---\nkind: C\n",
        &[
            "ignored: A",
            "error: f: document 2, line 4: this is not YAML: invalid indentation in multiline quoted scalar",
        ],
    ),
    (
        "kind: A\n---\nkind: [B\n",
        &["ignored: A", "error: f: document 2, line 3: this is not YAML: unclosed bracket '['"],
    ),
];

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, expected) in MISTAKES {
        assert_eq!(told(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_text_is_told_with_the_remedy() {
    let rows: [(&[u8], &str); 5] = [
        (
            b"\x1f\x8b\x08\x00abc",
            "f: document 1, line 1: this is gzip: unpack it first, for instance with `gunzip`",
        ),
        (
            b"\xff\xfek\x00i\x00",
            "f: document 1, line 1: this is UTF-16: save it as UTF-8, in PowerShell with `Out-File -Encoding utf8`",
        ),
        (
            b"kind: A\nb: \xff\xfe\n",
            "f: document 1, line 2: this line is not UTF-8 text: is it a binary file?",
        ),
        (
            b"{\"kind\":\"List\",\"items\":[\n{},\n{\"a\":\n\"\xc3\"}]}",
            "f: document 1, item 2, line 4: this line is not UTF-8 text: is it a binary file?",
        ),
        (
            b"\x7fELF\x02\x01\x01\x00\x00\n\xff",
            "f: document 1, line 2: this line is not UTF-8 text: is it a binary file?",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(told(text).pop(), Some(format!("error: {expected}")), "{text:?}");
    }
}
