//! A TCP relay in front of the API server that can lose the network.
//!
//! ```text
//!            open              cut                           heal
//!  new       relayed           accepted, then silence        relayed
//!  old       relayed           silence: no FIN, no RST       reset, and gone
//! ```
//!
//! Each connection remembers the epoch in which it was accepted. A step of the epoch resets all older ones; a
//! cut only stops moving bytes, with nothing lost that was read already.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Cluster;

/// Read at once from a connection.
const CHUNK: usize = 16 * 1024;

/// The relay; closes with its connections on drop.
#[derive(Debug)]
pub struct Gate {
    port: u16,
    valve: watch::Sender<Valve>,
    counters: Arc<Counters>,
    relay: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Valve {
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
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let (valve, view) = watch::channel(Valve::default());
        let counters = Arc::new(Counters::default());
        let relay = accept(listener, cluster.port(), view, Arc::clone(&counters));
        Ok(Self { port, valve, counters, relay: tokio::spawn(relay) })
    }

    /// The port of the relay on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Black-holes every connection, and those to come: bytes stop, nothing is closed.
    pub fn cut(&self) {
        self.valve.send_modify(|valve| valve.cut = true);
    }

    /// Ends a cut. Connections of before are reset, as a peer that has forgotten them would; new ones work.
    pub fn heal(&self) {
        self.valve.send_modify(|valve| {
            valve.cut = false;
            valve.epoch += 1;
        });
    }

    /// Resets every connection; new ones work unless the gate is cut.
    pub fn reset_all(&self) {
        self.valve.send_modify(|valve| valve.epoch += 1);
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
    valve: watch::Receiver<Valve>,
    counters: Arc<Counters>,
) {
    // Dropped with this future, and all connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        connections.spawn(serve(client, server, valve.clone(), Arc::clone(&counters)));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until it ends or is reset.
async fn serve(
    mut client: TcpStream,
    server: u16,
    mut valve: watch::Receiver<Valve>,
    counters: Arc<Counters>,
) {
    let epoch = valve.borrow().epoch;
    let relayed = relay(&mut client, server, &counters);
    if !governed(relayed, &mut valve, epoch).await {
        // Without this the kernel would say goodbye politely.
        let _ = client.set_zero_linger();
    }
}

/// Moves bytes both ways until both ends have closed; false if the server cannot be reached or breaks off.
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

/// Runs `relayed` while the gate is open; false if it failed or its epoch is over.
async fn governed(
    relayed: impl Future<Output = bool>,
    valve: &mut watch::Receiver<Valve>,
    epoch: u64,
) -> bool {
    let mut relayed = std::pin::pin!(relayed);
    loop {
        let now = *valve.borrow_and_update();
        if now.epoch != epoch {
            return false;
        }
        tokio::select! {
            biased;
            changed = valve.changed() => if changed.is_err() { return false },
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
