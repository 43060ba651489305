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
use zonewise_demand::notes::Notes;
use zonewise_inventory::demand::{self as stored, StoredDemand, StoredDemandError, StoredTexts};
use zonewise_inventory::follow::{IndexListener, WatchedIndex};
use zonewise_slices::node::Nodes;
use zonewise_slices::ready::ReadyEndpoints;
use zonewise_slices::requested::{self, RequestedRouting, requested_routing};
use zonewise_slices::settings::Settings;

use super::Demand;
use super::ask::Target;
use super::collect::Collector;
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

    /// Asks for demand and decides, until the future is dropped; `changed` gets the Services whose shares have changed.
    pub(crate) async fn measure(
        &self,
        nodes: &watch::Sender<Arc<Nodes>>,
        changed: impl Fn(Vec<Key>),
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

    async fn decide(&self, nodes: &watch::Sender<Arc<Nodes>>, changed: impl Fn(Vec<Key>)) {
        loop {
            sleep(self.config.period).await;
            let nodes = Arc::clone(&nodes.borrow());
            let Asking { measured, spilling } = self.asking_services();
            let endpoints = |service: &Key| self.endpoints(service);
            changed(self.demand.decide(&nodes, &measured, &endpoints));
            changed(self.demand.decide_failing(spilling, &endpoints));
            self.demand.tell();
            if self.stored.lock().is_due(self.config.write_period) {
                self.store().await;
            }
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
            self.store().await;
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

    /// Stores what is in force, if that has changed.
    async fn store(&self) {
        let (notes, texts) = self.demand.encoded();
        if self.stored.lock().has(&texts, &notes) || !self.leadership.may_write() {
            return;
        }
        let result = stored::write(self.client, &texts).await;
        let mut stored = self.stored.lock();
        stored.written = Some(Instant::now());
        let failed = std::mem::replace(&mut stored.failing, result.is_err());
        match result {
            Ok(()) => {
                stored.texts = texts;
                stored.left_out = notes.not_measured;
                if failed {
                    tracing::info!("the demand that decisions use is stored again");
                }
            }
            Err(error) if !failed => {
                tracing::warn!(%error, "the demand that decisions use cannot be stored: a new leader would begin anew");
            }
            Err(_) => {}
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

/// What is stored.
#[derive(Default)]
pub(crate) struct Stored {
    texts: StoredTexts,
    /// How many Services were not measured, because too many ask for it.
    left_out: usize,
    written: Option<Instant>,
    failing: bool,
}

impl Stored {
    /// Whether this is stored already. What notes say besides changes only if what is in force does, but for who is left out.
    fn has(&self, texts: &StoredTexts, notes: &Notes) -> bool {
        let known = &self.texts;
        (&known.state, &known.failing) == (&texts.state, &texts.failing)
            && self.left_out == notes.not_measured
    }

    /// Whether it may be stored again.
    fn is_due(&self, period: Duration) -> bool {
        self.written.is_none_or(|written| written.elapsed() >= period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_decisions_used_is_stored_at_most_once_a_minute_and_only_if_it_has_changed() {
        let period = DemandConfig::default().write_period;
        assert_eq!(period, Duration::from_secs(60));
        let mut stored = Stored::default();
        let mut writes = Vec::new();
        let begin = Instant::now();
        // Decisions are made every 15 seconds, and a new one has another text, but for the last ten minutes.
        for decision in 0..120_u64 {
            // The notes change all the time.
            let (state, notes) = (decision.min(80).to_string(), decision.to_string());
            let texts = StoredTexts { state, notes, failing: None };
            if stored.is_due(period) && !stored.has(&texts, &Notes::default()) {
                writes.push(begin.elapsed());
                stored = Stored { texts, written: Some(Instant::now()), ..Stored::default() };
            }
            tokio::time::advance(Duration::from_secs(15)).await;
        }
        assert!(writes.windows(2).all(|pair| pair[1] - pair[0] >= period), "{writes:?}");
        assert_eq!((writes.len(), writes.last()), (21, Some(&Duration::from_secs(20 * 60))));
        let mut full = Notes::default();
        full.not_measured = 1;
        let same = stored.texts.clone();
        assert!(stored.has(&same, &Notes::default()));
        assert!(!stored.has(&same, &full), "who is left out is stored, too");
    }
}
