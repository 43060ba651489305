//! Events on Services: recorded, counted up when they repeat, never a flood.
//!
//! An event that is the same as an earlier one raises that one's count. An object gets a burst of
//! [`BURST`] events and then one in [`REFILL`]: the reference's limits.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use zonewise_common::event::{Event, EventType};
use zonewise_common::name::Uid;
use zonewise_common::time::timestamp;

use crate::api::{self, ApiError};

/// Events of one object at once.
pub const BURST: u32 = 25;
/// Time after which it may have one more.
pub const REFILL: Duration = Duration::from_secs(300);
/// Events waiting to be written; more are dropped and counted.
const WAITING: usize = 1024;
/// Events remembered to be counted up.
const REMEMBERED: usize = 4096;

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    namespace: Box<str>,
    name: Box<str>,
    uid: Uid,
}

impl Subject {
    /// A Service, by what identifies it.
    pub fn service(namespace: &str, name: &str, uid: Uid) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid }
    }
}

/// Where events go.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<(Subject, Event)>,
}

impl Recorder {
    /// A recorder, and the task that writes what it takes.
    pub fn start(client: Client, component: &'static str) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(write_all(client, component, receiver));
        Self { sender }
    }

    /// Records an event. Returns whether it could be taken.
    pub fn record(&self, subject: Subject, event: Event) -> bool {
        self.sender.try_send((subject, event)).is_ok()
    }
}

async fn write_all(
    client: Client,
    component: &'static str,
    mut events: mpsc::Receiver<(Subject, Event)>,
) {
    let mut memory = Memory::default();
    while let Some((subject, event)) = events.recv().await {
        let Some(write) = memory.next(&subject, &event, Instant::now()) else { continue };
        let now = jiff::Timestamp::now().as_second();
        let result = match write {
            Write::Create { name } => {
                create(&client, component, (&subject, &event), &name, now).await
            }
            Write::Count { name, count } => count_up(&client, &subject, &name, count, now).await,
        };
        if let Err(error) = result {
            tracing::warn!(namespace = %subject.namespace, service = %subject.name, %error, "an event was not written");
            memory.forget(&subject, &event);
        }
    }
}

async fn create(
    client: &Client,
    component: &str,
    (subject, event): (&Subject, &Event),
    name: &str,
    now: i64,
) -> Result<(), ApiError> {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": subject.namespace },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Service",
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
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
    let path = format!("/api/v1/namespaces/{}/events", subject.namespace);
    send(client, Method::POST, &path, (api::JSON, &body)).await
}

async fn count_up(
    client: &Client,
    subject: &Subject,
    name: &str,
    count: u32,
    now: i64,
) -> Result<(), ApiError> {
    let body = json!({ "count": count, "lastTimestamp": timestamp(now) });
    let path = format!("/api/v1/namespaces/{}/events/{name}", subject.namespace);
    send(client, Method::PATCH, &path, (api::MERGE, &body)).await
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    (kind, body): (&str, &Value),
) -> Result<(), ApiError> {
    api::call(client, method, path, (kind, body.to_string().into_bytes())).await.map(|_| ())
}

enum Write {
    Create { name: String },
    Count { name: String, count: u32 },
}

/// What has been written, and how much each object may still have.
#[derive(Default)]
struct Memory {
    written: BTreeMap<(Subject, String, String), (String, u32)>,
    tokens: BTreeMap<Subject, (u32, Instant)>,
    serial: u32,
}

impl Memory {
    fn next(&mut self, subject: &Subject, event: &Event, now: Instant) -> Option<Write> {
        if !self.allows(subject, now) {
            return None;
        }
        if self.written.len() >= REMEMBERED {
            self.written.clear();
            self.tokens.clear();
        }
        let key = key(subject, event);
        if let Some((name, count)) = self.written.get_mut(&key) {
            *count += 1;
            return Some(Write::Count { name: name.clone(), count: *count });
        }
        self.serial = self.serial.wrapping_add(1);
        let nanos = jiff::Timestamp::now().as_nanosecond() as u64;
        let name = format!("{}.{nanos:x}{:x}", subject.name, self.serial);
        self.written.insert(key, (name.clone(), 1));
        Some(Write::Create { name })
    }

    fn allows(&mut self, subject: &Subject, now: Instant) -> bool {
        let (left, since) = self.tokens.entry(subject.clone()).or_insert((BURST, now));
        let refills = now.duration_since(*since).as_secs() / REFILL.as_secs();
        if refills > 0 {
            *left = BURST.min(*left + refills.min(u64::from(BURST)) as u32);
            *since = now;
        }
        let allowed = *left > 0;
        *left = left.saturating_sub(1);
        allowed
    }

    fn forget(&mut self, subject: &Subject, event: &Event) {
        self.written.remove(&key(subject, event));
    }
}

fn key(subject: &Subject, event: &Event) -> (Subject, String, String) {
    (subject.clone(), event.reason.clone(), event.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> Subject {
        Subject { namespace: "ns".into(), name: name.into(), uid: "u".into() }
    }

    fn event(message: &str) -> Event {
        Event { kind: EventType::Warning, reason: "Why".into(), message: message.into() }
    }

    #[test]
    fn b12_an_event_that_repeats_is_counted_not_written_again() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let first = memory.next(&subject("a"), &event("one"), now);
        let Some(Write::Create { name }) = first else { panic!("the first is created") };
        assert!(matches!(
            memory.next(&subject("a"), &event("one"), now),
            Some(Write::Count { name: same, count: 2 }) if same == name
        ));
        assert!(matches!(
            memory.next(&subject("a"), &event("two"), now),
            Some(Write::Create { .. })
        ));
    }

    #[test]
    fn b12_an_object_has_a_burst_and_then_one_event_in_five_minutes() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let allowed = |memory: &mut Memory, now| {
            (0..100).filter(|_| memory.next(&subject("a"), &event("one"), now).is_some()).count()
        };
        assert_eq!(allowed(&mut memory, now), 25);
        assert_eq!(allowed(&mut memory, now + REFILL), 1);
        assert!(memory.next(&subject("b"), &event("one"), now).is_some(), "others are free");
    }
}
