//! The open connections of a server, and which of them makes room for a new one.
//!
//! A client that opens many connections and asks nothing must not keep a probe waiting. When there are too many,
//! one that has asked nothing yet is closed, of the client that has most of those. Each has a moment to ask.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinSet};
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
    number: u64,
    since: Instant,
    client: IpAddr,
    has_asked: HasAsked,
    task: AbortHandle,
}

/// The open connections, at most `limit`.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    accepted: u64,
    open: HashMap<Id, Open>,
    tasks: JoinSet<()>,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, accepted: 0, open: HashMap::new(), tasks: JoinSet::new() }
    }

    /// Waits until there is room for one more, and closes another one if need be.
    pub(crate) async fn make_room(&mut self) {
        while self.open.len() >= self.limit {
            let Some((id, age)) = self.least_worthy() else { return };
            if age >= GRACE {
                let closed = self.open.remove(&id);
                closed.inspect(|open| open.task.abort());
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
        let (number, client, since) = (self.accepted, network(client), Instant::now());
        let open = Open { number, since, client, has_asked, task };
        self.open.insert(open.task.id(), open);
    }

    /// Waits until one has ended; for ever while there are none.
    pub(crate) async fn ended(&mut self) {
        let ended = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => std::future::pending().await,
        };
        self.open.remove(&ended);
    }

    /// Waits until all have ended. Dropping the set closes those that have not in time.
    pub(crate) async fn finish(mut self, within: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(within, all).await;
    }

    /// One that has asked nothing yet, of the client that has most of those, and its age; among equals the oldest.
    fn least_worthy(&self) -> Option<(Id, Duration)> {
        let mut of_client: HashMap<(IpAddr, bool), usize> = HashMap::new();
        for open in self.open.values() {
            *of_client.entry((open.client, open.has_asked.get())).or_default() += 1;
        }
        let unworthiness = |open: &Open| {
            let asked = open.has_asked.get();
            let equals = of_client.get(&(open.client, asked)).copied().unwrap_or(0);
            (!asked, equals, std::cmp::Reverse(open.number))
        };
        let found = self.open.iter().max_by_key(|(_, open)| unworthiness(open));
        found.map(|(id, open)| (*id, open.since.elapsed()))
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
        let connections = connections(clients);
        connections.least_worthy().map(|(id, _)| connections.open[&id].number)
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
}
