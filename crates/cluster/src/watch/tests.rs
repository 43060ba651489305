use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use zonewise_common::protobuf::stream::FrameCutter;
use zonewise_common::testing::protobuf::{bytes, encode, envelope, frame, int, watch_event};

use super::*;

/// An object with a field that can be wrong.
#[derive(Deserialize)]
struct WatchedPod {
    metadata: IdentifyingMeta,
    #[serde(rename = "spec")]
    _spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(rename = "nodeName")]
    _node_name: Option<String>,
}

impl Keyed for WatchedPod {
    fn key(&self) -> Key {
        let namespace = self.metadata.namespace.clone();
        (namespace.unwrap_or_default(), Name::clone(&self.metadata.name))
    }
}

/// Records the calls that it gets.
#[derive(Default)]
struct RecordingListener(Vec<String>);

impl WatchListener for RecordingListener {
    type Object = WatchedPod;

    fn read(&self, object: Encoded<'_>) -> Result<WatchedPod, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, object: WatchedPod) {
        self.0.push(format!("apply {}", object.metadata.name));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        assert!(!error.is_empty());
        self.0.push(format!("unreadable {}", key.1));
    }

    fn delete(&mut self, version: u64, key: &Key) {
        self.0.push(format!("delete {} at {version}", key.1));
    }

    fn listed(&mut self, _: u64, _: &BTreeSet<Key>) {}

    fn health(&mut self, _: Result<(), &ApiError>) {}
}

type Outcome = (Vec<String>, String, Option<ApiError>);

/// The calls that a watch leads to, the version to go on from, and the error.
fn calls(mut reader: EventReader, bytes: &[u8]) -> Outcome {
    let (mut listener, mut version) = (RecordingListener::default(), "1".to_owned());
    let result = reader.feed(bytes, |event| handle(event, &mut listener, &mut version));
    (listener.0, version, result.err())
}

fn json_calls(lines: &[&str]) -> Outcome {
    calls(EventReader::Json(Vec::new()), (lines.join("\n") + "\n").as_bytes())
}

fn protobuf_calls(frames: &[Vec<u8>]) -> Outcome {
    calls(EventReader::Protobuf(&kinds::POD, FrameCutter::default()), &frames.concat())
}

/// An event about a Pod; `spec` is the rest of its message.
fn pod_event(event_type: &str, name: &str, version: &str, spec: &[u8]) -> Vec<u8> {
    let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version});
    let metadata = encode(&kinds::POD.fields[..1], &json!({"metadata": metadata}));
    watch_event(event_type, &envelope("v1", "Pod", &[&metadata, spec].concat()))
}

fn error_event(status: &Value) -> Vec<u8> {
    watch_event("ERROR", &envelope("v1", "Status", &encode(kinds::STATUS.fields, status)))
}

/// An object that cannot be decoded does not end the watch, and its deletion is noticed.
#[test]
fn an_object_that_does_not_parse_is_named_and_can_still_be_deleted() {
    let json = json_calls(&[
        r#"{"type":"ADDED","object":{"metadata":{"name":"good","namespace":"n","resourceVersion":"5"}}}"#,
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"6"},"spec":{"nodeName":7}}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"7"},"spec":{"nodeName":7}}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
        "",
    ]);
    // A node's name that is a number, and a spec that is longer than the object.
    let (no_text, no_end) = (bytes(2, int(10, 7)), vec![0x12, 99, 1]);
    let protobuf = protobuf_calls(&[
        pod_event("ADDED", "good", "5", &[]),
        pod_event("MODIFIED", "bad", "6", &no_text),
        pod_event("DELETED", "bad", "7", &no_end),
        pod_event("BOOKMARK", "", "9", &[]),
    ]);
    for (calls, version, error) in [json, protobuf] {
        assert_eq!(calls, ["apply good", "unreadable bad", "delete bad at 7"]);
        assert_eq!((version.as_str(), error.is_none()), ("9", true), "{error:?}");
    }
}

#[test]
fn a_version_that_is_too_old_means_to_list_again() {
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let failed = json!({"kind": "Status", "code": 500, "message": "etcd"});
    let line = |status: &Value| json!({"type": "ERROR", "object": status}).to_string();
    for outcome in [json_calls(&[&line(&expired)]), protobuf_calls(&[error_event(&expired)])] {
        assert!(matches!(&outcome.2, Some(ApiError::Gone(text)) if text == "too old"));
    }
    for outcome in [json_calls(&[&line(&failed)]), protobuf_calls(&[error_event(&failed)])] {
        assert!(matches!(&outcome.2, Some(ApiError::Failed(text)) if text == "etcd"));
    }
}

/// A server whose lists are empty and whose watches end at once; each brings an event, or none.
async fn requests_in_a_minute(with_events: bool) -> usize {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = move |request: Request<Body>| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 10;
        let watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let body = match (watch, with_events) {
            (false, _) => r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned(),
            (true, false) => String::new(),
            (true, true) => format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{number}"}}}}}}{}"#,
                '\n'
            ),
        };
        async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.into_bytes())))
        }
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let minute = Duration::from_secs(60);
    let _ = timeout(minute, follow(client, PODS, RecordingListener::default())).await;
    requests.load(Ordering::SeqCst)
}

/// A load balancer that closes streams early costs at most one request per second, fewer if nothing happens.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_not_opened_in_a_tight_loop() {
    let (idle, busy) = (requests_in_a_minute(false).await, requests_in_a_minute(true).await);
    assert!((4..=12).contains(&idle), "{idle} requests without an event");
    assert!((40..=82).contains(&busy), "{busy} requests with an event each");
}

#[test]
fn half_an_event_or_no_event_ends_the_watch_not_the_program() {
    for line in ["{", "{}", r#"{"type":"ADDED","object":{}}"#, "<html>"] {
        assert!(matches!(json_calls(&[line]).2, Some(ApiError::Unavailable(_))), "{line}");
    }
    assert!(matches!(json_calls(&["\u{0}"]).2, Some(ApiError::Format(_))));
    let service = envelope("v1", "Service", &[]);
    let rows = [
        frame(b""),
        frame(b"{}"),
        watch_event("ADDED", b"k8s"),
        watch_event("ADDED", &envelope("v1", "Pod", &[])),
        watch_event("ADDED", &service),
        watch_event("ERROR", &service),
        vec![0xff, 0xff, 0xff, 0xff],
    ];
    for event in rows {
        let (calls, version, error) = protobuf_calls(&[pod_event("ADDED", "a", "5", &[]), event]);
        assert!(matches!(error, Some(ApiError::Format(_))), "{error:?}");
        assert_eq!((calls, version.as_str()), (vec!["apply a".to_owned()], "5"));
    }
}

#[test]
fn the_answer_to_a_failed_request_may_be_in_either_form() {
    let status = json!({"code": 403, "reason": "Forbidden", "message": "no",
        "details": {"causes": [{"reason": "NamespaceTerminating"}]}});
    let message = envelope("v1", "Status", &encode(kinds::STATUS.fields, &status));
    for body in [status.to_string().into_bytes(), message] {
        let error = api::error(http::StatusCode::FORBIDDEN, &body);
        assert!(
            matches!(&error, ApiError::NamespaceTerminating(text) if text == "no"),
            "{error:?}"
        );
    }
    let refused = api::error(http::StatusCode::NOT_ACCEPTABLE, b"only json");
    assert!(matches!(&refused, ApiError::Format(text) if text.contains("only json")));
}

#[test]
fn waiting_grows_to_half_a_minute() {
    let mut backoff = Backoff::default();
    let waits: Vec<f64> = (0..10).map(|_| backoff.next().as_secs_f64()).collect();
    for (wait, full) in waits.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]) {
        assert!((0.75 * full..=1.25 * full).contains(wait), "{wait} of {full}");
    }
    backoff.reset();
    assert!(backoff.next().as_secs_f64() < 0.7);
}

#[test]
fn tokens_of_the_server_cannot_change_the_request() {
    assert_eq!(query_parameter("continue", ""), "");
    assert_eq!(query_parameter("continue", "a&limit=1#ä"), "&continue=a%26limit%3D1%23%C3%A4");
}
