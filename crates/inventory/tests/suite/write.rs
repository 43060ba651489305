//! Slices that we write: the same in both forms, for the real server and for one that takes only JSON.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_cluster::watch::ContentType;
use zonewise_common::encoded::Encoded;
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::encode::encode;
use zonewise_common::protobuf::envelope::Envelope;
use zonewise_common::protobuf::kinds::ENDPOINT_SLICE;
use zonewise_common::testing::arbitrary::{Random, object};
use zonewise_common::testing::full_slice;
use zonewise_inventory::write::SliceWriter;
use zonewise_slices::slice::Slice;
use zonewise_testbed::Cluster;
use zonewise_testbed::objects::namespace;

const API_VERSION: &str = "discovery.k8s.io/v1";

proptest! {
    #[test]
    fn random_slices_are_written_the_same_in_both_forms(seed in any::<u64>()) {
        let object = object(&mut Random(seed), ENDPOINT_SLICE.fields);
        let Ok(slice) = serde_json::from_value::<Slice>(object) else { return Ok(()) };
        let json = serde_json::to_string(&slice).unwrap();
        let expected: Slice = Encoded::Json(&json).decode().unwrap();
        let bytes = encode(API_VERSION, &ENDPOINT_SLICE, &slice).unwrap();
        let message = Envelope::open(&bytes).unwrap().object;
        let found: Slice = Encoded::Protobuf(&ENDPOINT_SLICE, message).decode().unwrap();
        prop_assert_eq!(found, expected, "{}", json);
    }
}

/// A slice with every field, that the server is to name.
fn new_slice() -> Slice {
    let mut object = full_slice();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for assigned in ["name", "uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(assigned);
    }
    metadata.insert("generateName".into(), "web-".into());
    serde_json::from_value(object).unwrap()
}

/// What two writers of the same have in common: everything but what the server assigns to each.
fn content(stored: &Value) -> Value {
    let mut stored = stored.clone();
    let metadata = stored["metadata"].as_object_mut().unwrap();
    for own in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        assert!(metadata.remove(own).is_some(), "{own}");
    }
    stored
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_stores_the_same_from_both_forms() {
    let cluster = Cluster::start().await.unwrap();
    let mut slice = new_slice();
    cluster.create(&[namespace(&slice.namespace)]).await.unwrap();
    let client = cluster.admin().unwrap();
    let forms = [ContentType::Json, ContentType::Protobuf];
    let writers = forms.map(|form| SliceWriter::new(client.clone(), form));
    let mut written = Vec::new();
    for writer in &writers {
        written.push(writer.create(&slice).await.unwrap());
    }
    for round in ["created", "replaced"] {
        let list = cluster.list("EndpointSlice", Some(&slice.namespace)).await.unwrap();
        let stored: Vec<&Value> = written
            .iter()
            .map(|slice| list.iter().find(|one| one["metadata"]["name"] == slice.name()).unwrap())
            .collect();
        assert_eq!(content(stored[0]), content(stored[1]), "{round}");
        for (slice, stored) in written.iter().zip(stored) {
            assert_eq!(*slice, serde_json::from_value(stored.clone()).unwrap(), "{round}");
        }
        slice.endpoints.truncate(1);
        for (writer, last) in writers.iter().zip(&mut written) {
            let changed = Slice { endpoints: slice.endpoints.clone(), ..last.clone() };
            *last = writer.replace(&changed).await.unwrap();
        }
    }
}

/// A server that takes these content types. What it was sent is noted.
fn server(taken: &'static [&str]) -> (SliceWriter, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&requests);
    let answer = move |request: Request<Body>| {
        let content_type = request.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let accepted = taken.contains(&content_type.as_str());
        seen.lock().push(content_type);
        async move {
            let metadata = json!({"name": "web-1", "uid": "u", "resourceVersion": "7"});
            let body = match accepted {
                true => json!({"kind": "EndpointSlice", "metadata": metadata}),
                false => {
                    json!({"kind": "Status", "message": "the body must be in application/json"})
                }
            };
            let status =
                if accepted { StatusCode::CREATED } else { StatusCode::UNSUPPORTED_MEDIA_TYPE };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    };
    let client = Client::new(tower::service_fn(answer), "default");
    (SliceWriter::new(client, ContentType::Protobuf), requests)
}

#[tokio::test]
async fn a_server_that_refuses_protobuf_is_written_to_in_json() {
    const JSON: &str = "application/json";
    for (taken, sent) in [
        (&[JSON] as &[&str], vec![MEDIA_TYPE, JSON, JSON]),
        (&[MEDIA_TYPE, JSON], vec![MEDIA_TYPE, MEDIA_TYPE]),
    ] {
        let (writer, requests) = server(taken);
        for _ in 0..2 {
            let stored = writer.create(&new_slice()).await.unwrap();
            assert_eq!((stored.name(), &*stored.resource_version), ("web-1", "7"));
        }
        assert_eq!(*requests.lock(), sent);
    }
}
