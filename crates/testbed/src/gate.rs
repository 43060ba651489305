//! A TCP relay in front of the API server that can simulate network failures.
//!
//! ```text
//!  connections   open          cut                           healed
//!  new           relayed       accepted, then silence        relayed
//!  existing      relayed       silence: no FIN, no RST       reset
//! ```
//!
//! Each connection has the epoch in which it was accepted. A new epoch resets all older connections. A cut only
//! stops the transfer of bytes; bytes that were already read are not lost.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Cluster;

/// Bytes to read from a connection at once.
const CHUNK: usize = 16 * 1024;

/// A running relay. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Gate {
    port: u16,
    state: watch::Sender<GateState>,
    counters: Arc<Counters>,
    relay: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct GateState {
    cut: bool,
    epoch: u64,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl Gate {
    /// Opens a relay to the API server of `cluster`.
    pub async fn open(cluster: &Cluster) -> Result<Self> {
        Self::open_at(cluster, std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
    }

    /// Opens a relay behind a listener made elsewhere, such as in another network namespace.
    pub fn open_at(cluster: &Cluster, listener: std::net::TcpListener) -> Result<Self> {
        Self::relay(listener, cluster.port())
    }

    /// Opens a relay to any server on a port of 127.0.0.1.
    pub fn open_to(port: u16) -> Result<Self> {
        Self::relay(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, port)
    }

    fn relay(listener: std::net::TcpListener, server: u16) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let (state, receiver) = watch::channel(GateState::default());
        let counters = Arc::new(Counters::default());
        let relay = accept(listener, server, receiver, Arc::clone(&counters));
        Ok(Self { port, state, counters, relay: tokio::spawn(relay) })
    }

    /// The port of the relay on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Black-holes every connection, and those to come: bytes stop, nothing is closed.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// Ends a cut. Older connections are reset, as by a peer that no longer knows them; new ones work.
    pub fn heal(&self) {
        self.state.send_modify(|state| {
            state.cut = false;
            state.epoch += 1;
        });
    }

    /// Resets every connection; new ones work unless the gate is cut.
    pub fn reset_all(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::Relaxed)
    }

    /// Bytes relayed to the API server so far.
    #[must_use]
    pub fn bytes_up(&self) -> u64 {
        self.counters.up.load(Ordering::Relaxed)
    }

    /// Bytes relayed from the API server so far.
    #[must_use]
    pub fn bytes_down(&self) -> u64 {
        self.counters.down.load(Ordering::Relaxed)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: u16,
    state: watch::Receiver<GateState>,
    counters: Arc<Counters>,
) {
    // Dropping this future drops the set, which ends all connections.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        connections.spawn(serve(client, server, state.clone(), Arc::clone(&counters)));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until it ends or is reset.
async fn serve(
    mut client: TcpStream,
    server: u16,
    mut state: watch::Receiver<GateState>,
    counters: Arc<Counters>,
) {
    let epoch = state.borrow().epoch;
    let relayed = relay(&mut client, server, &counters);
    if !while_open(relayed, &mut state, epoch).await {
        // Closes with RST instead of FIN.
        let _ = client.set_zero_linger();
    }
}

/// Relays bytes in both directions until both ends have closed; false if the server cannot be reached or resets.
async fn relay(client: &mut TcpStream, server: u16, counters: &Counters) -> bool {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
        return false;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true), server.set_zero_linger());
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = pump(&mut from_client, &mut to_server, &counters.up);
    let down = pump(&mut from_server, &mut to_client, &counters.down);
    tokio::try_join!(up, down).is_ok()
}

/// Runs `relayed` while the gate is not cut; false if it failed or its epoch is over.
async fn while_open(
    relayed: impl Future<Output = bool>,
    state: &mut watch::Receiver<GateState>,
    epoch: u64,
) -> bool {
    let mut relayed = std::pin::pin!(relayed);
    loop {
        let now = *state.borrow_and_update();
        if now.epoch != epoch {
            return false;
        }
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() { return false },
            done = &mut relayed, if !now.cut => return done,
        }
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    count: &AtomicU64,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..read]).await?;
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
}
