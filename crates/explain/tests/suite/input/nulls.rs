//! A field that is `null` is read as if it were absent, in JSON and in YAML.

use serde_json::Value;
use zonewise_common::testing::{
    NullField, full_node, full_pod, full_service, full_slice, null_fields,
};
use zonewise_explain::input::{Item, Object};

use crate::input::common::{apart, read, yaml};

/// The objects that were read, without their text, and whether anything was not.
fn readable(text: &str) -> (Vec<Object>, bool) {
    let (items, end) = read(text);
    assert_eq!(end, None);
    let faulty = items.iter().any(|item| !matches!(item, Item::Found(_)));
    let object = |item| match item {
        Item::Found(found) => Some(apart(found.object).0),
        Item::Fault(_) | Item::Ignored { .. } | Item::Clue { .. } => None,
    };
    (items.into_iter().filter_map(object).collect(), faulty)
}

#[test]
fn null_in_any_field_is_read_as_absent() {
    let required = [
        "/apiVersion",
        "/kind",
        "/metadata",
        "/metadata/name",
        "/metadata/namespace",
        "/addressType",
    ];
    for object in [full_node(), full_pod(), full_service(), full_slice()] {
        let forms: [fn(&Value) -> String; 2] = [Value::to_string, yaml];
        for (NullField { path, null, absent }, form) in
            null_fields(&object).into_iter().flat_map(|case| forms.map(|form| (case.clone(), form)))
        {
            let (null, absent) = (readable(&form(&null)), readable(&form(&absent)));
            assert_eq!(null, absent, "{} {path}", object["kind"]);
            assert!(!null.1 || required.contains(&&*path), "{} {path}", object["kind"]);
        }
    }
}
