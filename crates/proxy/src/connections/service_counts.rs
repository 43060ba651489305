//! What this node has asked of each Service, by zone of the endpoint, for metrics and the page of counts.

use std::sync::Arc;
use std::time::Duration;

use zonewise_common::name::{Key, Name};
use zonewise_nft::Network;

use super::bytes::{DRAIN, Meter};
use super::failed::FailedConnections;
use super::ledger::Sum;
use super::{Pace, Reading, by_service};
use crate::config::{Config, CountBy};
use crate::kernel::ZoneNames;
use crate::published::Published;

/// How often connections are read while no page asks.
const PERIOD: Duration = Duration::from_secs(10);

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counting {
    /// By what connections are.
    pub by: CountBy,
    /// Whether bytes are, too.
    pub bytes: bool,
}

impl From<&Config> for Counting {
    fn from(config: &Config) -> Self {
        Self { by: config.count, bytes: config.count_bytes }
    }
}

/// What was counted for a Service and a zone since the process began: it never becomes less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCount {
    /// Namespace and name of the Service.
    pub service: Key,
    /// The zone of the endpoints; empty for endpoints without one.
    pub to_zone: Name,
    /// Connections, those that failed, and bytes.
    pub sum: Sum,
}

/// Has connections and bytes read, and gives the sums. Connections that fail are not waited for: they are counted seconds
/// later in any case.
#[derive(Debug)]
pub(crate) struct ServiceCounts {
    published: Arc<Published>,
    /// `None` if connections are not counted by Service.
    connections: Option<Reading<()>>,
    /// The same for those that fail.
    failed: Option<Reading<()>>,
    /// `None` if bytes are not counted.
    bytes: Option<Reading<()>>,
}

impl ServiceCounts {
    /// Starts to read, in the network namespace of this thread.
    pub(crate) fn start(
        network: &Network,
        published: &Arc<Published>,
        zone_names: ZoneNames,
        counting: Counting,
    ) -> Self {
        let by_services = counting.by == CountBy::Services;
        let connections = by_services.then(|| {
            let published = Arc::clone(published);
            Reading::start(network, Pace::Every(PERIOD), move |socket| {
                by_service(socket, &published)
            })
        });
        let zone_names = Arc::new(zone_names);
        let names = || -> ZoneNames {
            let zone_names = Arc::clone(&zone_names);
            Box::new(move |zone| zone_names(zone))
        };
        let failed = by_services.then(|| {
            let (network_of, published) = (network.clone(), Arc::clone(published));
            let mut failed = FailedConnections::new(network_of, published, names());
            Reading::start(network, Pace::Always(DRAIN), move |_| {
                failed.read();
                Ok(())
            })
        });
        let bytes = counting.bytes.then(|| {
            let mut meter = Meter::new(network.clone(), Arc::clone(published), names());
            Reading::start(network, Pace::Always(DRAIN), move |_| {
                meter.read();
                Ok(())
            })
        });
        Self { published: Arc::clone(published), connections, failed, bytes }
    }

    /// Whether connections that fail are counted.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether bytes are counted.
    pub(crate) fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Has everything read now, so that a page that asks in a moment does not wait as long.
    pub(crate) fn ask(&self) {
        for reading in [&self.connections, &self.bytes].into_iter().flatten() {
            reading.ask();
        }
    }

    /// Waits a moment for what is read now: afterwards the sums are new, unless reading takes long.
    pub(crate) fn refresh(&self) {
        self.ask();
        for reading in [&self.connections, &self.bytes].into_iter().flatten() {
            reading.get();
        }
    }

    /// Connections that are in no sum, as far as they have been read.
    pub(crate) fn unassigned(&self) -> u64 {
        self.published.connections().unassigned().map(|(.., connections)| connections).sum()
    }

    /// All sums: as the kernel has them now, or a moment ago if reading takes long. They are copied, at most as many as
    /// there are series.
    pub(crate) fn get(&self) -> Vec<ServiceCount> {
        self.refresh();
        service_counts(&self.published)
    }
}

/// All sums, as far as they have been read.
pub fn service_counts(published: &Published) -> Vec<ServiceCount> {
    let ledger = published.connections();
    let one = |(zone, service, sum): (&Name, &Key, Sum)| ServiceCount {
        service: service.clone(),
        to_zone: Name::clone(zone),
        sum,
    };
    ledger.sums().map(one).collect()
}
