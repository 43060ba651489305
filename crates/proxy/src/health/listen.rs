//! Servers that listen at once, or as soon as their address is free.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zonewise_telemetry::server::{self, PageHandler, Server};

/// An address that could not be listened on.
#[derive(Debug, Error)]
#[error("cannot listen on {address} for {what}: {source}; free the address or choose another")]
pub struct BindError {
    /// What is served there.
    pub what: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

/// How long to wait between two attempts to listen.
const RETRY: Duration = Duration::from_secs(5);

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 128;

/// A server that listens now, or will when its address is free.
#[derive(Debug)]
pub struct Served {
    address: watch::Receiver<Option<SocketAddr>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Served {
    /// Where it listens; `None` while another program uses the address.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.borrow()
    }

    /// The same, now and later.
    pub(crate) fn addresses(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.address.clone()
    }

    /// Waits until it listens; `None` if it never will.
    pub async fn listening(&self) -> Option<SocketAddr> {
        self.address.clone().wait_for(Option::is_some).await.ok().and_then(|address| *address)
    }

    /// Accepts no more connections and gives those that are open a second.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "an HTTP server of the proxy has failed");
        }
    }
}

/// Serves `pages` on an address, as `serve_by` does.
///
/// # Errors
/// With `hard_fail`, if it cannot listen there.
pub async fn serve(
    what: &'static str,
    address: SocketAddr,
    hard_fail: bool,
    pages: impl PageHandler,
) -> Result<Served, BindError> {
    serve_by(what, address, hard_fail, |listener| server::serve(listener, pages)).await
}

/// Starts a server on an address. If that is taken: fails when `hard_fail` is set, else tries again
/// every five seconds.
///
/// # Errors
/// With `hard_fail`, if it cannot listen there.
pub(crate) async fn serve_by(
    what: &'static str,
    address: SocketAddr,
    hard_fail: bool,
    start: impl FnOnce(TcpListener) -> io::Result<Server> + Send + 'static,
) -> Result<Served, BindError> {
    let first = bind(address).await.map_err(|source| BindError { what, address, source });
    let first = match first {
        Err(error) if hard_fail => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "trying again every {RETRY:?}");
            None
        }
        Ok(listener) => Some(listener),
    };
    let known = first.as_ref().and_then(|listener| listener.local_addr().ok());
    let (sender, receiver) = watch::channel(known);
    let (stop, mut stopped) = watch::channel(false);
    let task = tokio::spawn(async move {
        let listener = match first {
            Some(listener) => listener,
            None => tokio::select! {
                listener = keep_trying(address) => listener,
                _ = stopped.wait_for(|stop| *stop) => return,
            },
        };
        match start(listener) {
            Ok(server) => run(what, server, &sender, stopped).await,
            Err(error) => tracing::error!(%error, what, "cannot serve"),
        }
    });
    Ok(Served { address: receiver, stop, task })
}

async fn run(
    what: &'static str,
    server: Server,
    address: &watch::Sender<Option<SocketAddr>>,
    mut stopped: watch::Receiver<bool>,
) {
    tracing::info!(address = %server.address(), "serving {what}");
    address.send_replace(Some(server.address()));
    // Also ends when the handle is dropped.
    let _ = stopped.wait_for(|stop| *stop).await;
    server.stop().await;
}

async fn keep_trying(address: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(RETRY).await;
        match bind(address).await {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%address, %error, "still cannot listen"),
        }
    }
}

/// The unspecified address of either family means both families where the kernel has IPv6, as in
/// kube-proxy.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip().is_unspecified() {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        match TcpListener::bind(both).await {
            Err(error) if !is_taken(&error) => {}
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Listens on an address of one family only.
pub(super) fn bind_one_family(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
            socket
        }
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
