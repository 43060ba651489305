//! Files that are cut off, and files that want to break the reader.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_explain::input::Item;

use crate::input::common::{list, node, pod, read, service, told, yaml};

/// A text, and where each object in it ends.
struct Written {
    text: String,
    ends: Vec<usize>,
}

fn written(parts: &[String], before: &str, between: &str, after: &str) -> Written {
    let mut text = before.to_owned();
    let mut ends = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        text += if place == 0 { "" } else { between };
        text += part;
        ends.push(text.len());
    }
    Written { text: text + after, ends }
}

fn shapes() -> Vec<Written> {
    let all =
        [node("n"), pod("s", "ü"), service("s", "w"), json!({"kind": "X", "apiVersion": "v1"})];
    let json = all.clone().map(|object| object.to_string());
    let block = all.clone().map(|object| yaml(&object));
    let items = all.map(|object| yaml(&json!([object])));
    vec![
        written(&json, "", "\n", ""),
        written(&json, "{\"kind\":\"List\",\"items\":[", ",\n", "],\"metadata\":{}}"),
        written(&block, "---\n", "---\n", ""),
        written(&items, "apiVersion: v1\nitems:\n", "", "kind: List\nmetadata: {}\n"),
    ]
}

#[test]
fn a_file_cut_off_anywhere_loses_nothing_that_was_complete_without_an_error() {
    for Written { text, ends } in shapes() {
        let (all, end) = read(&text);
        assert_eq!((all.len(), end), (4, None), "{text}");
        for cut in 0..text.len() {
            let (items, end) = read(&text.as_bytes()[..cut]);
            let complete = ends.iter().filter(|end| **end <= cut).count();
            let sure = if end.is_some() { complete.min(items.len()) } else { complete };
            assert!(items.len() >= sure, "cut at {cut}: {items:?} {end:?}\n{text}");
            assert_eq!(items[..sure], all[..sure], "cut at {cut}, {end:?}\n{text}");
        }
    }
}

#[test]
fn json_that_is_cut_off_says_where_the_unfinished_object_begins() {
    let rows = [
        ("{\"kind\":\"A\"}\n{\"kind\":", "f: document 2, line 2"),
        (
            "{\"kind\":\"List\",\"items\":[\n{\"kind\":\"A\"},\n{\"kind",
            "f: document 1, item 2, line 3",
        ),
        ("{\"kind\":\"List\",\"items\":[\n{\"kind\":\"A\"},\n", "f: document 1, line 1"),
        ("{\"kind\":\"List\",\"items\":[\n{\"kind\":\"A\"}\n]", "f: document 1, line 3"),
    ];
    for (text, place) in rows {
        let error = format!(
            "error: {place}: the file ends inside this object; it was cut off, so write it again"
        );
        assert_eq!(told(text).pop(), Some(error), "{text}");
    }
}

#[test]
fn one_annotation_of_five_megabytes_passes() {
    let mut object = service("shop", "web");
    object["metadata"]["annotations"] = json!({"long": "x \\ \" ".repeat(1 << 20)});
    let yaml = yaml(&object);
    for text in [object.to_string(), yaml] {
        assert_eq!(told(&text), ["f: document 1, line 1: Service shop/web"]);
    }
}

#[test]
fn what_wants_to_break_the_parser_is_refused() {
    let mut deep = String::new();
    for depth in 0..300 {
        writeln!(deep, "{}a:", " ".repeat(depth)).unwrap();
    }
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![alias; 9].join(", ")).unwrap();
    }
    let rows = [
        ("deep JSON", format!("{{\"a\":{}", "[".repeat(100_000) + &"]".repeat(100_000) + "}")),
        ("open JSON", "[{\"a\":".repeat(100_000)),
        ("deep YAML", deep),
        ("deep flow", format!("a: {}", "[".repeat(100_000))),
        ("bomb", bomb),
        (
            "numbers",
            "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":1e999}}".to_owned(),
        ),
        (
            "numbers in YAML",
            "apiVersion: v1\nkind: Node\nmetadata:\n  generation: 1e999\n".to_owned(),
        ),
        ("NUL", "\0\0\0\0".to_owned()),
    ];
    for (what, text) in rows {
        let (items, end) = read(&text);
        assert!(items.is_empty() && end.is_some(), "{what}: {items:?} {end:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn no_text_of_its_own_alphabet_makes_it_panic(
        parts in proptest::collection::vec(0usize..PARTS.len(), 0..40),
    ) {
        let text: String = parts.into_iter().map(|part| PARTS[part]).collect();
        let _ = read(text);
    }

    #[test]
    fn a_damaged_byte_never_goes_unnoticed_as_a_lost_object(at in 0usize..400, byte in any::<u8>()) {
        let objects: Vec<Value> = (0..4).map(|n| node(&format!("n{n}"))).collect();
        let mut text = list(&objects).to_string().into_bytes();
        let place = at % text.len();
        // With `#` as its first byte the whole text is a comment; the commands say that the input is empty.
        prop_assume!(place != 0 || byte != b'#');
        text[place] = byte;
        let (items, end) = read(&text);
        let fault = items.iter().any(|item| matches!(item, Item::Fault(_)));
        prop_assert!(items.len() == 4 || fault || end.is_some(), "{}", String::from_utf8_lossy(&text));
    }
}

const PARTS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\n",
    " ",
    "  ",
    "- ",
    "---\n",
    "...\n",
    "items:\n",
    "\"items\":",
    "kind: List\n",
    "\"kind\":\"PodList\"",
    "a: 1\n",
    "# c\n",
    "&x ",
    "*x",
    "\t",
    "|\n",
];
