//! The open connections of a server, and which of them makes room for a new one.
//!
//! A client that opens many connections and asks nothing must not keep a probe waiting. When there are too many,
//! one that has asked nothing yet is closed, of the client that has most of those. Each has a moment to ask.
//!
//! Where connections are kept, a client could fill the server with some that have asked once. A server can limit how many
//! it serves of one address ([`Connections::of`]).

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

/// How long a connection stays open although others wait and it has asked nothing.
const GRACE: Duration = Duration::from_millis(50);

/// Whether the request of a connection has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct HasAsked(Arc<AtomicBool>);

impl HasAsked {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Open {
    since: Instant,
    address: IpAddr,
    client: IpAddr,
    has_asked: HasAsked,
    task: AbortHandle,
}

/// The open connections, at most `limit`.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    accepted: u64,
    /// By number, in the order in which they came.
    open: BTreeMap<u64, Open>,
    tasks: JoinSet<()>,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, accepted: 0, open: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Waits until there is room for one more, and closes another one if need be.
    pub(crate) async fn make_room(&mut self) {
        while self.open.len() >= self.limit {
            let Some((number, age)) = self.least_worthy() else { return };
            if age >= GRACE {
                let closed = self.open.remove(&number);
                if let Some(open) = closed {
                    open.task.abort();
                }
            } else {
                // Meanwhile some may end by themselves.
                let _ = timeout(GRACE.saturating_sub(age), self.ended()).await;
            }
        }
    }

    /// Serves one more.
    pub(crate) fn add<F>(&mut self, client: IpAddr, serve: impl FnOnce(HasAsked) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.accepted += 1;
        let has_asked = HasAsked::default();
        let task = self.tasks.spawn(serve(has_asked.clone()));
        let (address, client, since) = (client.to_canonical(), network(client), Instant::now());
        self.open.insert(self.accepted, Open { since, address, client, has_asked, task });
    }

    /// How many are served of one address. The address counts here, and not its network: Pods and API servers may have
    /// addresses of the same one.
    pub(crate) fn of(&self, client: IpAddr) -> usize {
        let address = client.to_canonical();
        let is_served = |open: &&Open| open.address == address && !open.task.is_finished();
        self.open.values().filter(is_served).count()
    }

    /// Waits until one has ended; for ever while there are none.
    pub(crate) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
        self.open.retain(|_, open| !open.task.is_finished());
    }

    /// Waits until all have ended. Dropping the set closes those that have not in time.
    pub(crate) async fn finish(mut self, within: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(within, all).await;
    }

    /// One that has asked nothing yet, of the client that has most of those, and its age; among equals the oldest.
    fn least_worthy(&self) -> Option<(u64, Duration)> {
        let mut of_client: BTreeMap<(IpAddr, bool), usize> = BTreeMap::new();
        for open in self.open.values() {
            *of_client.entry((open.client, open.has_asked.get())).or_default() += 1;
        }
        let unworthiness = |number: u64, open: &Open| {
            let asked = open.has_asked.get();
            let equals = of_client.get(&(open.client, asked)).copied().unwrap_or(0);
            (!asked, equals, std::cmp::Reverse(number))
        };
        let found = self.open.iter().max_by_key(|(number, open)| unworthiness(**number, open));
        found.map(|(number, open)| (*number, open.since.elapsed()))
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which one machine can have
/// for itself.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let bits = u128::from(address) & (u128::MAX << 64);
            IpAddr::V6(bits.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Connections that stay open, from these clients in this order; `+` in front: its request has arrived.
    fn connections(clients: &[&str]) -> Connections {
        let mut connections = Connections::new(usize::MAX);
        for client in clients {
            let asks = client.starts_with('+');
            connections.add(ip(client.trim_start_matches('+')), |has_asked| {
                if asks {
                    has_asked.set();
                }
                std::future::pending()
            });
        }
        connections
    }

    /// The number of the connection that is closed for the next one, from 1.
    fn closed(clients: &[&str]) -> Option<u64> {
        connections(clients).least_worthy().map(|(number, _)| number)
    }

    #[tokio::test]
    async fn the_client_with_most_idle_connections_makes_room() {
        let rows: [(&[&str], Option<u64>); 7] = [
            (&[], None),
            (&["10.0.0.1", "10.0.0.2"], Some(1)),
            (&["10.0.0.1", "10.0.0.2", "10.0.0.2"], Some(2)),
            (&["+10.0.0.2", "+10.0.0.2", "10.0.0.1"], Some(3)),
            (&["+10.0.0.1", "+10.0.0.2", "+10.0.0.2"], Some(2)),
            (&["fd00::1", "fd00:0:0:1::1", "fd00:0:0:1::2"], Some(2)),
            (&["10.0.0.9", "10.0.0.1", "::ffff:10.0.0.1"], Some(2)),
        ];
        for (clients, expected) in rows {
            assert_eq!(closed(clients), expected, "{clients:?}");
        }
    }

    #[tokio::test]
    async fn connections_are_counted_by_their_address() {
        let open = connections(&["10.0.0.1", "+::ffff:10.0.0.1", "fd00::1", "fd00::2"]);
        let counts = ["10.0.0.1", "fd00::1", "fd00::3"].map(|client| open.of(ip(client)));
        assert_eq!(counts, [2, 1, 0]);
    }
}
