//! Watches: what is there, then what happens, until time is up.
//!
//! ```text
//!            begin (locked)                      follow (again and again)
//!  version "" or 0:  all objects as ADDED  ─┐
//!  initial events:   the same, BOOKMARK    ─┼─► position ─► news ─► events since ─► ADDED MODIFIED DELETED
//!  version N:        nothing               ─┘                  └─► BOOKMARK, now and then and at the end
//! ```
//!
//! A watch keeps nothing but its position. A reader that is slow reads later from the history; one that is slower
//! than the history is told 410 and has to list again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as Tick, sleep_until};

use crate::http::representation::{Form, Shape};
use crate::http::request::Options;
use crate::objects::conversion;
use crate::objects::kind::Kind;
use crate::objects::selectors::Selector;
use crate::operations::World;
use crate::operations::paging;
use crate::status::StatusError;
use crate::store::{Change, Event, Forgotten, Object, range, room};

/// Bytes that are sent at once.
const CHUNK: usize = 64 * 1024;
/// A connection that is closed in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
pub(crate) struct Cut;

/// Where a stream's bytes go.
pub(crate) type Sink = mpsc::Sender<Result<Bytes, Cut>>;

/// What is watched.
#[derive(Debug)]
pub(crate) struct Subject {
    kind: &'static Kind,
    prefix: String,
    selector: Option<Selector>,
}

impl Subject {
    pub(crate) fn new(
        kind: &'static Kind,
        prefix: String,
        options: &Options,
    ) -> Result<Self, StatusError> {
        let selector = Selector::parse(kind, &options.labels, &options.fields)?;
        Ok(Self { kind, prefix, selector: (!options.selects_all()).then_some(selector) })
    }

    fn selects(&self, object: &Object) -> bool {
        let matches = |s: &Selector| s.matches(&conversion::from_storage(self.kind, &object.value));
        self.selector.as_ref().is_none_or(matches)
    }

    /// What an event is to somebody who watches this: an object that is no longer selected is as good as gone.
    fn see(&self, event: &Event) -> Option<(Change, Arc<Object>)> {
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
            (true, false) => (Change::Deleted, event.left()),
        })
    }
}

/// How a watch begins.
#[derive(Debug)]
pub(crate) struct Start {
    /// Sent as ADDED first.
    initial: Vec<Arc<Object>>,
    /// Everything up to here is known to the client.
    position: u64,
    /// Whether the end of the initial objects is marked.
    marked: bool,
}

/// Decides how a watch begins. `past` is the version to show to those to whom any is good enough.
pub(crate) fn begin(
    world: &World,
    subject: &Subject,
    options: &Options,
    past: Option<u64>,
) -> Result<Result<Start, StatusError>, StatusError> {
    options.check_watch()?;
    let version = paging::version(&options.version).map_err(StatusError::without_reason)?;
    let store = &world.store;
    let all = options.initial.unwrap_or(version == 0);
    if !all {
        let position = if version == 0 { store.version() } else { version };
        // What is wrong from here on is told in the stream.
        return Ok(match store.since(room(subject.kind), position) {
            Ok(_) => Ok(Start { initial: Vec::new(), position, marked: false }),
            Err(Forgotten(oldest)) => Err(too_old(position, oldest)),
        });
    }
    if let Err(error) = paging::not_ahead(version, store.version()) {
        return Ok(Err(error));
    }
    let past = past.filter(|past| options.version == "0" && *past >= version);
    let position = past.unwrap_or(store.version());
    let Ok(objects) = store.at(room(subject.kind), position) else {
        return Ok(Err(too_old(position, store.version())));
    };
    let initial = range(&objects, &subject.prefix, None)
        .filter(|(_, object)| subject.selects(object))
        .map(|(_, object)| Arc::clone(object))
        .collect();
    let marked = options.initial == Some(true) && options.bookmarks;
    Ok(Ok(Start { initial, position, marked }))
}

fn too_old(version: u64, oldest: u64) -> StatusError {
    StatusError::expired(format!("too old resource version: {version} ({oldest})"))
}

/// When things happen to a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) end: Instant,
    /// If bookmarks are wanted: how far they are apart.
    pub(crate) bookmarks: Option<Duration>,
    /// If it is to break off: when.
    pub(crate) cut: Option<Instant>,
    /// How late events are.
    pub(crate) late: Duration,
}

/// How a watch that was told to begin reads on.
pub(crate) trait Source: Send + Sync + 'static {
    /// What happened after a position, and the version of now.
    fn follow(&self, kind: &Kind, position: u64) -> (Result<Vec<Arc<Event>>, Forgotten>, u64);
}

/// A watch that runs.
pub(crate) struct Watch<S> {
    pub(crate) source: Arc<S>,
    pub(crate) subject: Subject,
    pub(crate) shape: Shape,
    pub(crate) times: Times,
    pub(crate) sink: Sink,
    pub(crate) news: watch::Receiver<u64>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Why a watch ends.
enum End {
    /// Nobody listens, or everything was said.
    Quiet,
    /// In the middle.
    Cut,
    /// With an error that is told.
    Told(StatusError),
}

impl<S: Source> Watch<S> {
    /// Runs it to its end.
    pub(crate) async fn run(mut self, start: Result<Start, StatusError>) {
        let end = match start {
            Ok(start) => match self.go(start).await {
                Ok(never) => never,
                Err(end) => end,
            },
            Err(error) => End::Told(error),
        };
        match end {
            End::Quiet => {}
            End::Cut => drop(self.sink.send(Err(Cut)).await),
            End::Told(error) => {
                let line = line("ERROR", &crate::http::representation::text(&error.status()));
                drop(self.sink.send(Ok(line.into())).await);
            }
        }
    }

    async fn go(&mut self, start: Start) -> Result<End, End> {
        let mut columns = true;
        let mut chunk = Vec::new();
        for object in &start.initial {
            self.add(Change::Added, object, &mut columns, &mut chunk);
            self.flush(&mut chunk, CHUNK).await?;
        }
        let mut position = start.position;
        if start.marked {
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
                return Err(End::Quiet);
            }
            let wake = [next, due].into_iter().flatten().fold(self.times.end, Instant::min);
            self.wait(wake).await?;
        }
    }

    fn next_bookmark(&self) -> Option<Instant> {
        Instant::now().checked_add(self.times.bookmarks?)
    }

    /// Sends what has happened; says when the next event is due that is kept back.
    async fn catch_up(
        &mut self,
        position: &mut u64,
        columns: &mut bool,
    ) -> Result<Option<Instant>, End> {
        self.news.mark_unchanged();
        let (events, current) = self.source.follow(self.subject.kind, *position);
        let events = events.map_err(|Forgotten(oldest)| End::Told(too_old(*position, oldest)))?;
        let mut chunk = Vec::new();
        let now = Instant::now();
        for event in &events {
            // A time that cannot be told is never.
            let due = event.at.checked_add(self.times.late);
            if due.is_none_or(|due| due > now) {
                self.flush(&mut chunk, 0).await?;
                return Ok(due);
            }
            if let Some((change, object)) = self.subject.see(event) {
                self.add(change, &object, columns, &mut chunk);
                self.flush(&mut chunk, CHUNK).await?;
            }
            *position = event.version;
        }
        self.flush(&mut chunk, 0).await?;
        // A version of the future is waited for.
        *position = (*position).max(current);
        Ok(None)
    }

    async fn wait(&mut self, until: Instant) -> Result<(), End> {
        let cut = self.times.cut.unwrap_or(until + Duration::from_secs(1));
        tokio::select! {
            changed = self.news.changed() => changed.map_err(|_| End::Quiet),
            () = sleep_until(Tick::from_std(until)) => Ok(()),
            () = sleep_until(Tick::from_std(cut)) => Err(End::Cut),
            () = self.sink.closed() => Err(End::Quiet),
            _ = self.stop.wait_for(|stop| *stop) => Err(End::Quiet),
        }
    }

    /// Sends what has gathered, once it is enough.
    async fn flush(&self, chunk: &mut Vec<u8>, enough: usize) -> Result<(), End> {
        if chunk.is_empty() || chunk.len() < enough {
            return Ok(());
        }
        let bytes = std::mem::take(chunk).into();
        let mut stop = self.stop.clone();
        tokio::select! {
            sent = self.sink.send(Ok(bytes)) => sent.map_err(|_| End::Quiet),
            _ = stop.wait_for(|stop| *stop) => Err(End::Quiet),
        }
    }

    fn add(&self, change: Change, object: &Object, columns: &mut bool, out: &mut Vec<u8>) {
        let name = match change {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        };
        out.extend_from_slice(format!(r#"{{"type":"{name}","object":"#).as_bytes());
        self.shape.write(object, *columns, out);
        out.extend_from_slice(b"}\n");
        *columns = false;
    }

    fn bookmark(&self, version: u64, initial: bool) -> Vec<u8> {
        line("BOOKMARK", &crate::http::representation::text(&marker(self.shape, version, initial)))
    }
}

fn marker(shape: Shape, version: u64, initial: bool) -> Value {
    let (kind, api_version) = match shape.form {
        Form::Json => (shape.kind.kind, shape.kind.api_version()),
        Form::Table(_) => ("Table", "meta.k8s.io/v1".into()),
        Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".into()),
    };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let mut marker = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
    if matches!(shape.form, Form::Table(_)) {
        marker["columnDefinitions"] = Value::Null;
        marker["rows"] = json!([]);
    }
    marker
}

fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut line = format!(r#"{{"type":"{kind}","object":"#).into_bytes();
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line
}
