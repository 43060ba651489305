//! What an open page is sent: lines of JSON, as things happen.
//!
//! ```text
//!  {"kind":"Cluster", …}    the state of the cluster and of the connection to it
//!  {"kind":"Services", …}   Services that have changed since the version that the page has
//!  {"kind":"Lab", …}        what the clients of a lab have measured, every half second
//!  {"kind":"Alive"}         nothing has happened for a while, and the connection works
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::access::{Access, Allowed};
use crate::hub::{ClusterState, Hub, Namespaces};

/// After so long without a message, one says that the connection works.
const ALIVE: Duration = Duration::from_secs(3);
const ALIVE_LINE: Bytes = Bytes::from_static(b"{\"kind\":\"Alive\"}\n");
/// How long a page that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked again what a person may see.
const REVIEW: Duration = Duration::from_secs(60);

/// What a page has seen before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The run of this program that told it.
    pub(crate) run: String,
    /// The version of the Services.
    pub(crate) version: Option<u64>,
}

/// Who listens.
pub(crate) struct Listener {
    pub(crate) hub: Arc<Hub>,
    pub(crate) access: Arc<Access>,
    pub(crate) token: Option<String>,
    pub(crate) allowed: Allowed,
}

/// Tells a page what happens until it is closed.
pub(crate) fn start(listener: Listener, seen: &Seen) -> mpsc::Receiver<Bytes> {
    let (sender, parts) = mpsc::channel(2);
    let version = seen.version.filter(|_| seen.run == listener.hub.run());
    let reviewed = (Instant::now(), listener.hub.namespaces());
    let teller = Teller { listener, sender, version, state: None, reviewed };
    tokio::spawn(async move {
        // It ends when the page is closed.
        let _ = teller.tell().await;
    });
    parts
}

/// The page is gone, or its reader may see nothing any more.
struct Ended;

struct Teller {
    listener: Listener,
    sender: mpsc::Sender<Bytes>,
    version: Option<u64>,
    state: Option<ClusterState>,
    /// When it was asked what the reader may see, and of which namespaces.
    reviewed: (Instant, Option<Namespaces>),
}

impl Teller {
    async fn tell(mut self) -> Result<(), Ended> {
        let mut versions = self.listener.hub.versions();
        let mut lab = self.listener.hub.lab.clone();
        if let Some(lab) = &mut lab {
            lab.mark_changed();
        }
        loop {
            self.tell_state().await?;
            self.tell_services().await?;
            tokio::select! {
                changed = versions.changed() => changed.map_err(|_| Ended)?,
                text = next(&mut lab) => self.send(Bytes::from(format!("{text}\n"))).await?,
                () = sleep(ALIVE) => self.send(ALIVE_LINE).await?,
            }
            self.review().await?;
        }
    }

    async fn tell_state(&mut self) -> Result<(), Ended> {
        let state = self.listener.hub.state();
        if self.state.as_ref() != Some(&state) {
            self.send_line(&state).await?;
            self.state = Some(state);
        }
        Ok(())
    }

    async fn tell_services(&mut self) -> Result<(), Ended> {
        let update = self.listener.hub.board().since(self.version, &self.listener.allowed);
        if !update.is_empty() {
            self.send_line(&update).await?;
        }
        self.version = Some(update.version);
        Ok(())
    }

    /// Asks again what the reader may see, from time to time and when there is a new namespace. Whoever may see something
    /// else gets everything anew.
    async fn review(&mut self) -> Result<(), Ended> {
        let namespaces = self.listener.hub.namespaces();
        let (at, known) = &self.reviewed;
        let sees_all = self.listener.allowed == Allowed::All;
        let same = namespaces.as_ref().map(Arc::as_ptr) == known.as_ref().map(Arc::as_ptr);
        if at.elapsed() < REVIEW && (same || sees_all) {
            return Ok(());
        }
        self.reviewed = (Instant::now(), namespaces);
        let allowed = self.allowed_now().await?;
        if allowed != self.listener.allowed {
            self.listener.allowed = allowed;
            self.version = None;
        }
        Ok(())
    }

    /// What the reader may see now. That can take a while, in which the page hears that the connection works.
    async fn allowed_now(&self) -> Result<Allowed, Ended> {
        let Listener { hub, access, token, .. } = &self.listener;
        let mut allowed = pin!(access.allowed(token.as_deref(), hub));
        loop {
            tokio::select! {
                answer = &mut allowed => return answer.map_err(|_| Ended),
                () = sleep(ALIVE) => self.send(ALIVE_LINE).await?,
            }
        }
    }

    async fn send_line<T: Serialize>(&self, message: &T) -> Result<(), Ended> {
        let mut line = serde_json::to_vec(message).map_err(|_| Ended)?;
        line.push(b'\n');
        self.send(Bytes::from(line)).await
    }

    async fn send(&self, part: Bytes) -> Result<(), Ended> {
        match timeout(PATIENCE, self.sender.send(part)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Ended),
        }
    }
}

/// The next measurement of a lab; never without one.
async fn next(lab: &mut Option<tokio::sync::watch::Receiver<Arc<str>>>) -> Arc<str> {
    if let Some(receiver) = lab
        && receiver.changed().await.is_ok()
    {
        return Arc::clone(&receiver.borrow_and_update());
    }
    std::future::pending().await
}
