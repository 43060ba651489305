//! A watch, event by event.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use crate::protobuf::{self, Read};
use crate::servers::Side;

/// Longer than any step of these tests takes.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Stream {
    body: Body,
    /// Whether events are frames of protobuf, and not lines of JSON.
    framed: bool,
    rest: Vec<u8>,
}

impl Stream {
    /// Opens a watch in the representation that `accept` names.
    pub(crate) async fn open(side: &Side, path: &str, accept: &str) -> Self {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let answer = side.client.send(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let framed = answer.headers()["content-type"] == protobuf::STREAM_TYPE;
        assert_eq!(framed, accept.starts_with(protobuf::MEDIA_TYPE), "{path}");
        Self { body: answer.into_body(), framed, rest: Vec::new() }
    }

    /// The next event; `None` when the server has closed or aborted the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let next = tokio::time::timeout(EVENT_TIMEOUT, self.event()).await;
        let event = next.expect("the watch stays silent")?;
        if !self.framed {
            return Some(serde_json::from_slice(&event).unwrap());
        }
        let Read { object, same } = protobuf::read_frame(&event);
        assert!(same, "Kubernetes writes other bytes: {object}");
        Some(object)
    }

    /// Whether the watch has ended in the middle of an event.
    pub(crate) fn is_cut(&self) -> bool {
        !self.rest.is_empty()
    }

    /// So many events.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next().await.expect("the watch has ended"));
        }
        events
    }

    /// All that come until the server closes the watch.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// The bytes of the next event.
    async fn event(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(event) = self.take_event() {
                return Some(event);
            }
            let frame = self.body.frame().await?.ok()?;
            self.rest.extend_from_slice(frame.data_ref()?);
        }
    }

    fn take_event(&mut self) -> Option<Vec<u8>> {
        if self.framed {
            let (event, rest) = protobuf::split_frame(&self.rest)?;
            let (event, rest) = (event.to_vec(), rest.to_vec());
            self.rest = rest;
            return Some(event);
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        Some(self.rest.drain(..=end).collect())
    }
}
