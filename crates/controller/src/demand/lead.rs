//! What the leader does about demand: goes on where the last one stopped, asks, decides, and stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use zonewise_cluster::lease::Leadership;
use zonewise_cluster::watch::Backoff;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::demand::{self as stored, StoredDemand, StoredDemandError};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_slices::node::Nodes;
use zonewise_slices::ready::ReadyEndpoints;
use zonewise_slices::requested::{self, RequestedRouting, requested_routing};
use zonewise_slices::settings::Settings;

use super::ask::Target;
use super::collect::Collector;
use super::storing::{Occasion, Stored};
use super::{Changed, Demand};
use crate::config::{DemandConfig, Source};
use crate::proxies::ProxyReadiness;

/// How long a new leader waits for what the last one has stored. Without it, it begins with the model.
const RESTORE_LIMIT: Duration = Duration::from_secs(10);

/// What the leader needs for it.
pub(crate) struct Lead<'a, L> {
    pub(crate) demand: &'a Arc<Demand>,
    pub(crate) config: &'a DemandConfig,
    pub(crate) client: &'a Client,
    pub(crate) leadership: &'a Leadership,
    pub(crate) watched: &'a WatchedIndex<L>,
    pub(crate) proxies: &'a ProxyReadiness,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) stored: Mutex<Stored>,
}

impl<L: IndexListener> Lead<'_, L> {
    /// Goes on with what the last leader has stored, before the first plan is made: another would shift traffic.
    pub(crate) async fn restore(&self) {
        if self.config.source == Source::None {
            return;
        }
        let late = || format!("it cannot be read within {} s", RESTORE_LIMIT.as_secs());
        let read = timeout(RESTORE_LIMIT, self.read()).await;
        let read =
            read.map_or_else(|_| Err(late()), |read| read.map_err(|error| error.to_string()));
        match read {
            Ok(None) => {}
            Ok(Some(stored)) => self.demand.restore(stored),
            Err(error) => {
                tracing::warn!(error, "the stored demand is not used: it is measured anew");
            }
        }
    }

    /// Tries again while the API server is not available.
    async fn read(&self) -> Result<Option<StoredDemand>, StoredDemandError> {
        let mut backoff = Backoff::default();
        loop {
            match stored::read(self.client).await {
                Err(StoredDemandError::Api(error)) if error.is_general() => {
                    sleep(backoff.next()).await;
                }
                read => return read,
            }
        }
    }

    /// Asks for demand and decides, until the future is dropped; `changed` gets the Services for which something has changed.
    pub(crate) async fn measure(
        &self,
        nodes: &watch::Sender<Arc<Nodes>>,
        changed: impl Fn(Cause, Vec<Key>),
    ) {
        let decide = self.decide(nodes, changed);
        match self.config.source {
            Source::None => std::future::pending().await,
            Source::Proxies => {
                let DemandConfig { period, token_file, .. } = self.config.clone();
                let answers = Arc::clone(&self.demand.proxies);
                let collector = Arc::new(Collector::new(period, token_file, answers));
                // Before a node is asked, it is known: otherwise its first answer would be taken for nonsense.
                let targets = || {
                    self.demand.set_nodes(&nodes.borrow());
                    self.targets()
                };
                tokio::join!(collector.collect(targets), decide);
            }
            Source::Prometheus => {
                tokio::join!(self.demand.prometheus.collect(self.config), decide);
            }
        }
    }

    /// Where proxies are asked, by node. The address is that of the Node object, which a proxy cannot write.
    fn targets(&self) -> BTreeMap<Name, Target> {
        let servers = self.proxies.demand_servers();
        let index = self.watched.index();
        let target = |(node, server): (Name, _)| {
            let address = index.nodes().get(&node)?.internal_ip?;
            Some((node, Target::new(address, server)))
        };
        servers.into_iter().filter_map(target).collect()
    }

    async fn decide(&self, nodes: &watch::Sender<Arc<Nodes>>, changed: impl Fn(Cause, Vec<Key>)) {
        loop {
            sleep(self.config.period).await;
            let nodes = Arc::clone(&nodes.borrow());
            let Asking { measured, spilling } = self.asking_services();
            let endpoints = |service: &Key| self.endpoints(service);
            let Changed { shares, told } = self.demand.decide(&nodes, &measured, &endpoints);
            changed(Cause::Demand, shares);
            changed(Cause::Conditions, told);
            changed(Cause::FailingZones, self.demand.decide_failing(spilling, &endpoints));
            changed(Cause::Conditions, self.demand.changes_of_unwatched());
            self.demand.tell();
            self.store(Occasion::Decided { period: self.config.write_period }).await;
        }
    }

    /// The ready endpoints of a Service by zone.
    fn endpoints(&self, service: &Key) -> BTreeMap<Name, u64> {
        let mut ready = ReadyEndpoints::default();
        self.watched.index().slices_of(service).iter().for_each(|slice| ready.add(slice));
        ready.by_zone()
    }

    /// Stores what was decided since the last write, so that the next leader goes on there. To be called once, when this
    /// process does not lead any more.
    pub(crate) async fn finish(&self) {
        if self.config.source != Source::None {
            self.store(Occasion::Ending).await;
        }
    }

    /// The Services that ask for something that is measured.
    fn asking_services(&self) -> Asking {
        let settings = Arc::clone(&self.settings.borrow());
        let mut asking = Asking::default();
        for service in self.watched.index().services() {
            let RequestedRouting { demand, failing_zones, .. } =
                requested_routing(service, &settings);
            if demand == requested::Demand::Measured {
                asking.measured.push(service.key());
            }
            if failing_zones == requested::FailingZones::Spill {
                let key = (Name::clone(&service.namespace), Name::clone(&service.name));
                asking.spilling.insert(key);
            }
        }
        asking
    }

    /// Stores what is in force, if the occasion asks for it.
    async fn store(&self, occasion: Occasion) {
        if !self.leadership.may_write() {
            return;
        }
        let writing = self.stored.lock().wanted(occasion, Instant::now(), || self.demand.encoded());
        let Some(writing) = writing else { return };
        let result = stored::write(self.client, &writing.texts).await;
        let told = self.stored.lock().written(writing, result.is_ok(), Instant::now());
        match (told, result) {
            (false, _) => {}
            (true, Ok(())) => tracing::info!("the demand that decisions use is stored again"),
            (true, Err(error)) => {
                tracing::warn!(%error, "the demand that decisions use cannot be stored: a new leader would begin anew");
            }
        }
    }
}

/// The Services that ask for something that is measured.
#[derive(Default)]
struct Asking {
    /// For shares by demand.
    measured: Vec<String>,
    /// For failing zones to count for less.
    spilling: BTreeSet<Key>,
}
