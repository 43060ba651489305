//! A field that is `null` is read as if it were absent, whatever the field.

use serde::de::DeserializeOwned;
use serde_json::Value;
use zonewise_common::testing::{
    assert_null_is_absent, full_node, full_pod, full_service, full_slice,
};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

fn check<T: DeserializeOwned + PartialEq + std::fmt::Debug>(object: &Value, required: &[&str]) {
    assert_null_is_absent(object, required, |json| serde_json::from_str::<T>(json));
}

#[test]
fn null_in_any_field_is_read_as_absent() {
    check::<Node>(&full_node(), &["/metadata"]);
    check::<Pod>(&full_pod(), &["/metadata"]);
    check::<Service>(&full_service(), &["/metadata"]);
    check::<Slice>(&full_slice(), &["/metadata", "/addressType"]);
}

/// The API server writes a time of zero as `null`.
#[test]
fn a_condition_whose_time_is_null_keeps_its_service_readable() {
    let mut service = full_service();
    service["status"]["conditions"][0]["lastTransitionTime"] = Value::Null;
    let service: Service = serde_json::from_value(service).unwrap();
    let [condition] = &*service.conditions else { panic!("{:?}", service.conditions) };
    assert_eq!((&*condition.status, &*condition.since), ("True", ""));
}
