//! Events on Services and other objects, with the limits of client-go's event recorder.
//!
//! An event with the reason and message of an earlier one is not created again; the count of the
//! earlier one is raised instead. An object may have 25 events at once and one more every 5
//! minutes, so that an error that repeats cannot flood the API server.
//!
//! The limits are those of `defaultSpamBurst`, `defaultSpamQPS` and `maxLruCacheEntries` in
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/client-go/tools/record/events_cache.go>.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use zonewise_common::clock;
use zonewise_common::event::{Event, EventType};
use zonewise_common::keys::COMPONENT;
use zonewise_common::name::Uid;
use zonewise_common::time::timestamp;

use crate::api::{self, ApiError};

/// How many events an object may have at once (client-go: `defaultSpamBurst` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/client-go/tools/record/events_cache.go>).
const BURST: u32 = 25;
/// The time after which an object may have one more event (`defaultSpamQPS` in the same file).
const REFILL: Duration = Duration::from_secs(300);
/// How many events may wait to be written. Further ones are dropped; callers count them.
const QUEUE_SIZE: usize = 1024;
/// How many events are remembered so that repetitions can be counted (`maxLruCacheEntries`
/// in the same file).
const REMEMBERED: usize = 4096;

/// The object that an event is about (`involvedObject` in the API).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvolvedObject {
    api_version: &'static str,
    kind: &'static str,
    /// Its namespace; empty for an object that is in none.
    namespace: Box<str>,
    name: Box<str>,
    uid: Uid,
}

impl InvolvedObject {
    /// A Service, by its namespace, name and uid.
    pub fn service(namespace: &str, name: &str, uid: Uid) -> Self {
        let (api_version, kind) = ("v1", "Service");
        Self { api_version, kind, namespace: namespace.into(), name: name.into(), uid }
    }

    /// An object that is in no namespace.
    pub fn of_cluster(api_version: &'static str, kind: &'static str, name: &str, uid: Uid) -> Self {
        Self { api_version, kind, namespace: "".into(), name: name.into(), uid }
    }

    /// The namespace that its events are in. Those about objects without a namespace are in `default`.
    fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

/// The program that reports events.
#[derive(Clone, Copy, Debug)]
pub struct Reporter {
    /// The name that events are reported under (`reportingComponent` in the API).
    pub component: &'static str,
    /// The value of the label [`COMPONENT`] on the events, by which people find them, and remove them
    /// when they remove the program; `None` for events without a label of ours.
    pub label: Option<&'static str>,
}

/// Takes events and writes them to the API server in the background.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    sender: mpsc::Sender<(InvolvedObject, Event)>,
}

impl EventRecorder {
    /// Starts the task that writes events.
    pub fn start(client: Client, reporter: Reporter) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_SIZE);
        tokio::spawn(write_all(client, reporter, receiver));
        Self { sender }
    }

    /// Records an event without waiting. Returns false if it was dropped because too many wait.
    pub fn record(&self, object: InvolvedObject, event: Event) -> bool {
        self.sender.try_send((object, event)).is_ok()
    }
}

async fn write_all(
    client: Client,
    reporter: Reporter,
    mut events: mpsc::Receiver<(InvolvedObject, Event)>,
) {
    let mut correlator = EventCorrelator::default();
    while let Some((object, event)) = events.recv().await {
        let Some(write) = correlator.next(&object, &event, Instant::now()) else { continue };
        let now = clock::now().as_second();
        let result = match write {
            EventWrite::Create { name } => {
                create(&client, reporter, &object, &event, &name, now).await
            }
            EventWrite::Count { name, count } => {
                count_up(&client, &object, &name, count, now).await
            }
        };
        if let Err(error) = result {
            tracing::warn!(kind = object.kind, namespace = %object.namespace, name = %object.name, %error, "an event could not be written");
            correlator.forget(&object, &event);
        }
    }
}

async fn create(
    client: &Client,
    reporter: Reporter,
    object: &InvolvedObject,
    event: &Event,
    name: &str,
    now: i64,
) -> Result<(), ApiError> {
    let Reporter { component, label } = reporter;
    let labels: BTreeMap<&str, &str> = label.map(|value| (COMPONENT, value)).into_iter().collect();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": object.events_namespace(), "labels": labels },
        "involvedObject": {
            "apiVersion": object.api_version,
            "kind": object.kind,
            "namespace": object.namespace,
            "name": object.name,
            "uid": object.uid,
        },
        "type": match event.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        },
        "reason": event.reason,
        "message": event.message,
        "source": { "component": component },
        "reportingComponent": component,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    });
    let path = format!("/api/v1/namespaces/{}/events", object.events_namespace());
    send(client, Method::POST, &path, api::JSON, &body).await
}

async fn count_up(
    client: &Client,
    object: &InvolvedObject,
    name: &str,
    count: u32,
    now: i64,
) -> Result<(), ApiError> {
    let body = json!({ "count": count, "lastTimestamp": timestamp(now) });
    let path = format!("/api/v1/namespaces/{}/events/{name}", object.events_namespace());
    send(client, Method::PATCH, &path, api::MERGE, &body).await
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<(), ApiError> {
    let body = body.to_string().into_bytes();
    api::call(client, method, path, content_type, body).await.map(|_| ())
}

/// How an event is written.
enum EventWrite {
    /// As a new object of this name.
    Create { name: String },
    /// By raising the count of the object of this name.
    Count { name: String, count: u32 },
}

/// Decides for each event whether it is created, counted or left out (client-go: `EventCorrelator`).
#[derive(Default)]
struct EventCorrelator {
    written: BTreeMap<EventKey, WrittenEvent>,
    budgets: BTreeMap<InvolvedObject, EventBudget>,
    /// Makes the names of events unique that are created within the same nanosecond.
    serial: u32,
}

/// What makes two events the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    object: InvolvedObject,
    reason: String,
    message: String,
}

impl EventKey {
    fn new(object: &InvolvedObject, event: &Event) -> Self {
        Self {
            object: object.clone(),
            reason: event.reason.clone(),
            message: event.message.clone(),
        }
    }
}

struct WrittenEvent {
    name: String,
    count: u32,
}

/// A token bucket: how many events an object may still have.
struct EventBudget {
    left: u32,
    refilled: Instant,
}

impl EventCorrelator {
    fn next(&mut self, object: &InvolvedObject, event: &Event, now: Instant) -> Option<EventWrite> {
        if !self.allows(object, now) {
            return None;
        }
        if self.written.len() >= REMEMBERED {
            self.written.clear();
            self.budgets.clear();
        }
        let key = EventKey::new(object, event);
        if let Some(written) = self.written.get_mut(&key) {
            written.count += 1;
            return Some(EventWrite::Count { name: written.name.clone(), count: written.count });
        }
        self.serial = self.serial.wrapping_add(1);
        let nanos = clock::now().as_nanosecond() as u64;
        let name = format!("{}.{nanos:x}{:x}", object.name, self.serial);
        self.written.insert(key, WrittenEvent { name: name.clone(), count: 1 });
        Some(EventWrite::Create { name })
    }

    fn allows(&mut self, object: &InvolvedObject, now: Instant) -> bool {
        let full = EventBudget { left: BURST, refilled: now };
        let budget = self.budgets.entry(object.clone()).or_insert(full);
        let refills = now.duration_since(budget.refilled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            budget.left = BURST.min(budget.left + refills.min(u64::from(BURST)) as u32);
            budget.refilled = now;
        }
        let allowed = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        allowed
    }

    /// Forgets an event that could not be written, so that its next occurrence is created.
    fn forget(&mut self, object: &InvolvedObject, event: &Event) {
        self.written.remove(&EventKey::new(object, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> InvolvedObject {
        InvolvedObject::service("ns", name, "u".into())
    }

    fn event(message: &str) -> Event {
        Event { kind: EventType::Warning, reason: "Why".into(), message: message.into() }
    }

    #[test]
    fn b12_an_event_that_repeats_is_counted_not_written_again() {
        let (mut correlator, now) = (EventCorrelator::default(), Instant::now());
        let first = correlator.next(&object("a"), &event("one"), now);
        let Some(EventWrite::Create { name }) = first else { panic!("the first is created") };
        assert!(matches!(
            correlator.next(&object("a"), &event("one"), now),
            Some(EventWrite::Count { name: same, count: 2 }) if same == name
        ));
        assert!(matches!(
            correlator.next(&object("a"), &event("two"), now),
            Some(EventWrite::Create { .. })
        ));
    }

    #[test]
    fn b12_an_object_has_a_burst_and_then_one_event_in_five_minutes() {
        let (mut correlator, now) = (EventCorrelator::default(), Instant::now());
        let allowed = |correlator: &mut EventCorrelator, now| {
            (0..100).filter(|_| correlator.next(&object("a"), &event("one"), now).is_some()).count()
        };
        assert_eq!(allowed(&mut correlator, now), 25);
        assert_eq!(allowed(&mut correlator, now + REFILL), 1);
        assert!(
            correlator.next(&object("b"), &event("one"), now).is_some(),
            "another object has its own limit"
        );
    }
}
