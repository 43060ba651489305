//! Watches: the objects that exist, then their changes, until the time is up.
//!
//! ```text
//!            start (under the lock)              run (until the end)
//!  version "" or 0:    all objects as ADDED  ─┐
//!  sendInitialEvents:  the same, BOOKMARK    ─┼─► position ─► wait ─► events after it as
//!  version N:          nothing               ─┘           │   ADDED, MODIFIED, DELETED
//!                                                         └─► BOOKMARK, now and then
//! ```
//!
//! A watch keeps nothing but its position. A slow client reads later from the history; one that is
//! slower than the history gets 410 and has to list again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use zonewise_common::api_group::METADATA_V1;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{mpsc, watch as signal};
use tokio::time::{Instant, sleep_until};

use crate::http::representation::{Encoder, View, document};
use crate::http::request::Options;
use crate::objects::conversion;
use crate::objects::kind::Kind;
use crate::objects::selectors::Selector;
use crate::operations::paging;
use crate::status::StatusError;
use crate::store::{Change, Compacted, Object, Store, WatchEvent, range};

/// Bytes that are collected before they are sent.
const CHUNK: usize = 64 * 1024;

/// Closes the connection in the middle of a response.
#[derive(Debug, thiserror::Error)]
#[error("the connection was aborted")]
pub struct ConnectionAborted;

/// Takes the bytes of a response that stays open.
pub(crate) type Sink = mpsc::Sender<Result<Bytes, ConnectionAborted>>;

/// The objects that a watch shows.
#[derive(Debug)]
pub(crate) struct WatchFilter {
    kind: &'static Kind,
    prefix: String,
    selector: Option<Selector>,
}

impl WatchFilter {
    pub(crate) fn new(
        kind: &'static Kind,
        prefix: String,
        options: &Options,
    ) -> Result<Self, StatusError> {
        let selector = Selector::parse(kind, &options.label_selector, &options.field_selector)?;
        Ok(Self { kind, prefix, selector: (!options.selects_all()).then_some(selector) })
    }

    fn selects(&self, object: &Object) -> bool {
        let matches = |s: &Selector| s.matches(&conversion::from_storage(self.kind, &object.value));
        self.selector.as_ref().is_none_or(matches)
    }

    /// What the client sees of an event: an object that no longer matches counts as deleted.
    fn visible(&self, event: &WatchEvent) -> Option<(Change, Arc<Object>)> {
        if !event.key.starts_with(&self.prefix) {
            return None;
        }
        let was = event.before.as_ref().is_some_and(|before| self.selects(before));
        let is = event.change != Change::Deleted && self.selects(&event.object);
        let object = Arc::clone(&event.object);
        Some(match (was, is) {
            (false, false) => return None,
            (false, true) => (Change::Added, object),
            (true, true) => (Change::Modified, object),
            (true, false) if event.change == Change::Deleted => (Change::Deleted, object),
            (true, false) => (Change::Deleted, event.deselected()),
        })
    }
}

/// What a watch sends first, and from where it goes on.
#[derive(Debug)]
pub(crate) struct Start {
    /// Sent as ADDED.
    initial: Vec<Arc<Object>>,
    /// The client knows everything up to this version.
    position: u64,
    /// Whether a bookmark follows the initial objects.
    initial_bookmark: bool,
}

/// Decides how a watch starts. With `resourceVersion=0` it starts at `stale_version`, if there is
/// one.
///
/// The outer error is a response of its own; the inner one is sent as an ERROR event, as
/// kube-apiserver does for errors that it finds after the watch is open.
pub(crate) fn start(
    store: &Store,
    filter: &WatchFilter,
    options: &Options,
    stale_version: Option<u64>,
) -> Result<Result<Start, StatusError>, StatusError> {
    options.check_watch()?;
    let version =
        paging::parse_version(&options.resource_version).map_err(StatusError::internal)?;
    let all = options.send_initial_events.unwrap_or(version == 0);
    if !all {
        let position = if version == 0 { store.version() } else { version };
        return Ok(match store.events_since(filter.kind.storage_resource(), position) {
            Ok(_) => Ok(Start { initial: Vec::new(), position, initial_bookmark: false }),
            Err(Compacted(oldest)) => Err(too_old(position, oldest)),
        });
    }
    if let Err(error) = paging::check_not_ahead(version, store.version()) {
        return Ok(Err(error));
    }
    let stale_version = stale_version.filter(|_| options.resource_version == "0");
    let position = stale_version.unwrap_or(store.version());
    let Ok(objects) = store.snapshot(filter.kind.storage_resource(), position) else {
        return Ok(Err(too_old(position, store.version())));
    };
    let initial = range(&objects, &filter.prefix, None)
        .filter(|(_, object)| filter.selects(object))
        .map(|(_, object)| Arc::clone(object))
        .collect();
    let initial_bookmark =
        options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
    Ok(Ok(Start { initial, position, initial_bookmark }))
}

fn too_old(version: u64, oldest: u64) -> StatusError {
    StatusError::expired(format!("too old resource version: {version} ({oldest})"))
}

/// The times of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTimes {
    pub(crate) end: Instant,
    /// The time between bookmarks, if the client wants any.
    pub(crate) bookmarks: Option<Duration>,
    /// When the fault `drop-watches` breaks the connection.
    pub(crate) abort: Option<Instant>,
    /// How late events are sent, from the fault `stale`.
    pub(crate) delay: Duration,
}

/// Where a running watch gets its events from.
pub(crate) trait WatchSource: Send + Sync + 'static {
    /// The events after a position, and the current version.
    fn events_after(
        &self,
        kind: &Kind,
        position: u64,
    ) -> (Result<Vec<Arc<WatchEvent>>, Compacted>, u64);
}

/// A running watch.
pub(crate) struct Watch<S> {
    pub(crate) source: Arc<S>,
    pub(crate) filter: WatchFilter,
    pub(crate) encoder: Encoder,
    pub(crate) times: WatchTimes,
    pub(crate) sink: Sink,
    /// Changes with every write to the watched resource.
    pub(crate) changed: broadcast::Receiver<()>,
    pub(crate) stop: signal::Receiver<bool>,
}

/// Why a watch ends.
enum End {
    /// The time is up, the client has gone, or the server stops.
    Closed,
    /// The fault `drop-watches` breaks the connection.
    Aborted,
    /// An error, which is sent as the last event.
    Failed(StatusError),
}

impl<S: WatchSource> Watch<S> {
    /// Runs it to its end.
    pub(crate) async fn run(mut self, start: Result<Start, StatusError>) {
        let end = match start {
            Ok(start) => match self.send_events(start).await {
                Ok(never) => match never {},
                Err(end) => end,
            },
            Err(error) => End::Failed(error),
        };
        match end {
            End::Closed => {}
            End::Aborted => self.abort().await,
            End::Failed(error) => {
                let mut event = Vec::new();
                let status = document(&error.status(), self.encoder.representation.form);
                self.encoder.event("ERROR", &status, &mut event);
                drop(self.sink.send(Ok(event.into())).await);
            }
        }
    }

    /// Breaks the connection, in the middle of an event, as connections do.
    async fn abort(&self) {
        let mut event = self.bookmark(0, false);
        event.truncate(event.len() / 2);
        if self.sink.send(Ok(event.into())).await.is_ok() {
            // The half event has been taken when all of the buffer is free; then it can be written.
            drop(self.sink.reserve_many(self.sink.max_capacity()).await);
            tokio::task::yield_now().await;
        }
        drop(self.sink.send(Err(ConnectionAborted)).await);
    }

    /// Sends events until the watch ends, which is the error.
    async fn send_events(&mut self, start: Start) -> Result<Infallible, End> {
        let mut columns = true;
        let mut chunk = Vec::new();
        for object in &start.initial {
            self.append(Change::Added, object, &mut columns, &mut chunk);
            self.flush(&mut chunk, CHUNK).await?;
        }
        let mut position = start.position;
        if start.initial_bookmark {
            chunk.extend(self.bookmark(position, true));
        }
        self.flush(&mut chunk, 0).await?;
        let mut next = self.next_bookmark();
        loop {
            let due = self.catch_up(&mut position, &mut columns).await?;
            if next.is_some_and(|next| next <= Instant::now()) {
                self.flush(&mut self.bookmark(position, false), 0).await?;
                next = self.next_bookmark();
            }
            if self.times.end <= Instant::now() {
                if self.times.bookmarks.is_some() {
                    self.flush(&mut self.bookmark(position, false), 0).await?;
                }
                return Err(End::Closed);
            }
            let wake = [next, due].into_iter().flatten().fold(self.times.end, Instant::min);
            self.wait(wake).await?;
        }
    }

    fn next_bookmark(&self) -> Option<Instant> {
        Instant::now().checked_add(self.times.bookmarks?)
    }

    /// Sends the events after the position. If the fault `stale` holds some back, says when the
    /// next one is due.
    async fn catch_up(
        &mut self,
        position: &mut u64,
        columns: &mut bool,
    ) -> Result<Option<Instant>, End> {
        self.changed = self.changed.resubscribe();
        let (events, current) = self.source.events_after(self.filter.kind, *position);
        let events = events.map_err(|Compacted(oldest)| End::Failed(too_old(*position, oldest)))?;
        let mut chunk = Vec::new();
        let now = Instant::now();
        for event in &events {
            // A time that is too far away to be represented never comes.
            let due = event.at.checked_add(self.times.delay);
            if due.is_none_or(|due| due > now) {
                self.flush(&mut chunk, 0).await?;
                return Ok(due);
            }
            if let Some((change, object)) = self.filter.visible(event) {
                self.append(change, &object, columns, &mut chunk);
                self.flush(&mut chunk, CHUNK).await?;
            }
            *position = event.version;
        }
        self.flush(&mut chunk, 0).await?;
        // A position in the future stays: the watch waits for that version.
        *position = (*position).max(current);
        Ok(None)
    }

    async fn wait(&mut self, until: Instant) -> Result<(), End> {
        let abort = self.times.abort.unwrap_or(until + Duration::from_secs(1));
        tokio::select! {
            biased;
            changed = self.changed.recv() => match changed {
                Err(RecvError::Closed) => Err(End::Closed),
                Ok(()) | Err(RecvError::Lagged(_)) => Ok(()),
            },
            () = sleep_until(until) => Ok(()),
            () = sleep_until(abort) => Err(End::Aborted),
            () = self.sink.closed() => Err(End::Closed),
            _ = self.stop.wait_for(|stop| *stop) => Err(End::Closed),
        }
    }

    /// Sends the chunk if it has at least so many bytes.
    async fn flush(&self, chunk: &mut Vec<u8>, least: usize) -> Result<(), End> {
        if chunk.is_empty() || chunk.len() < least {
            return Ok(());
        }
        let bytes = std::mem::take(chunk).into();
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            sent = self.sink.send(Ok(bytes)) => sent.map_err(|_| End::Closed),
            _ = stop.wait_for(|stop| *stop) => Err(End::Closed),
        }
    }

    fn append(&self, change: Change, object: &Object, columns: &mut bool, out: &mut Vec<u8>) {
        let name = match change {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        };
        self.encoder.event(name, &self.encoder.object(object, *columns), out);
        *columns = false;
    }

    fn bookmark(&self, version: u64, initial: bool) -> Vec<u8> {
        let mut event = Vec::new();
        let bookmark = bookmark(self.encoder, version, initial);
        let bookmark = document(&bookmark, self.encoder.representation.form);
        self.encoder.event("BOOKMARK", &bookmark, &mut event);
        event
    }
}

fn bookmark(encoder: Encoder, version: u64, initial: bool) -> Value {
    let view = encoder.representation.view;
    let (kind, api_version) = match view {
        View::Whole => (encoder.kind.kind, encoder.kind.api_version()),
        View::Table(_) => ("Table", METADATA_V1.into()),
        View::Metadata { .. } => ("PartialObjectMetadata", METADATA_V1.into()),
    };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let mut bookmark = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
    if matches!(view, View::Table(_)) {
        bookmark["columnDefinitions"] = Value::Null;
        bookmark["rows"] = json!([]);
    }
    bookmark
}
