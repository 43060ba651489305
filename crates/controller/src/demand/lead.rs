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
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_demand::Millis;
use zonewise_demand::cpu_use::Endpoint;
use zonewise_inventory::demand::{self as stored, StoredDemand, StoredDemandError};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_inventory::index::Index;
use zonewise_slices::node::Nodes;
use zonewise_slices::pod::Pod;
use zonewise_slices::ready::ReadyEndpoints;
use zonewise_slices::requested::{self, EndpointWeight, RequestedRouting, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;

use super::ask::Target;
use super::collect::Collector;
use super::cpu_use;
use super::pod_metrics::WantedPods;
use super::storing::{Occasion, Stored};
use super::{Changed, Demand};
use crate::config::{DemandConfig, Mode, Source};
use crate::proxies::ProxyReadiness;

/// How long a new leader waits for what the last one has stored. Without it, it begins with the model.
const RESTORE_LIMIT: Duration = Duration::from_secs(10);

/// What the leader needs for it.
pub(crate) struct Lead<'a, L> {
    pub(crate) demand: &'a Arc<Demand>,
    pub(crate) mode: Mode,
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
        if !self.config.is_on() {
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

    /// Removes what was stored while something was measured: `plan` and `explain` would take it for what is in force. Tries again
    /// while the API server is not available.
    async fn forget(&self) {
        let mut backoff = Backoff::default();
        while self.mode != Mode::Observe && self.leadership.may_write() {
            match stored::delete(self.client).await {
                Ok(()) => return,
                Err(error) if error.is_general() => sleep(backoff.next()).await,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "nothing is measured, and what was measured earlier may still be stored: delete the ConfigMap \
                         zonewise-system/zonewise-demand"
                    );
                    return;
                }
            }
        }
    }

    /// Asks for demand and decides, until the future is dropped; `changed` gets the Services for which something has changed.
    pub(crate) async fn measure(
        &self,
        nodes: &watch::Sender<Arc<Nodes>>,
        changed: impl Fn(Cause, Vec<Key>),
    ) {
        let decide = async { tokio::join!(self.decide(nodes, changed), self.read_use()) };
        match self.config.source {
            Source::None if !self.config.is_on() => {
                self.forget().await;
                std::future::pending::<()>().await;
            }
            Source::None => drop(decide.await),
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
            let Asking { measured, spilling, by_use } = self.asking_services();
            let endpoints = |service: &Key| self.endpoints(service);
            if self.config.source != Source::None {
                let Changed { shares, told } = self.demand.decide(&nodes, &measured, &endpoints);
                changed(Cause::Demand, shares);
                changed(Cause::Conditions, told);
                changed(Cause::FailingZones, self.demand.decide_failing(spilling, &endpoints));
                changed(Cause::Conditions, self.demand.changes_of_unwatched());
                self.demand.tell();
            }
            let Changed { shares, told } = self.decide_use(&nodes, &by_use);
            changed(Cause::CpuUse, shares);
            changed(Cause::Conditions, told);
            self.store(Occasion::Decided { period: self.config.write_period }).await;
        }
    }

    /// The ready endpoints of a Service by zone.
    fn endpoints(&self, service: &Key) -> BTreeMap<Name, u64> {
        let mut ready = ReadyEndpoints::default();
        self.watched.index().slices_of(service).iter().for_each(|slice| ready.add(slice));
        ready.by_zone()
    }

    /// Asks the metrics API for the Pods of Services whose endpoints count by use, until the future is dropped.
    async fn read_use(&self) {
        let Some(by_use) = &self.demand.by_use else { return };
        let period = Duration::from_millis(self.config.use_pace.step);
        let wanted = || {
            let index = self.watched.index();
            let mut wanted = WantedPods::new();
            for service in self.asking_services_of(&index).by_use {
                let pods = index.pods_of(&service).into_iter().filter(|pod| is_ready(pod));
                let of_namespace = wanted.entry(Name::clone(&service.namespace)).or_default();
                of_namespace.extend(pods.map(|pod| Name::clone(&pod.name)));
            }
            wanted.retain(|_, pods| !pods.is_empty());
            wanted
        };
        by_use.feed.collect(self.client, period, wanted).await;
    }

    /// Decides what zones count for by use. Returns the Services for which something has changed.
    fn decide_use(&self, nodes: &Nodes, services: &[Arc<Service>]) -> Changed {
        let Some(by_use) = &self.demand.by_use else { return Changed::default() };
        let index = self.watched.index();
        let asking = |service: &Arc<Service>| {
            let pods = index.pods_of(service);
            let endpoints = pods.iter().filter(|pod| is_ready(pod)).filter_map(|pod| {
                let node = nodes.by_name.get(pod.node.as_deref()?)?;
                Some(Endpoint {
                    zone: node.zone.clone()?,
                    ready_since: pod.ready_since.map_or(0, milliseconds),
                    node_milli: node.cpu_milli,
                    known: by_use.feed.of(&pod.key()),
                })
            });
            let key = Keyed::key(&**service);
            let emptied = nodes.evacuations.zones().map(|(zone, _)| Name::clone(zone));
            let held = emptied.chain(self.demand.lowered_zones(&key)).collect();
            cpu_use::Asking { service: key, endpoints: endpoints.collect(), held }
        };
        let asking: Vec<_> = services.iter().map(asking).collect();
        drop(index);
        by_use.decide(&asking, self.config.use_pace)
    }

    /// Stores what was decided since the last write, so that the next leader goes on there. To be called once, when this
    /// process does not lead any more.
    pub(crate) async fn finish(&self) {
        if self.config.is_on() {
            self.store(Occasion::Ending).await;
        }
    }

    /// The Services that ask for something that is measured.
    fn asking_services(&self) -> Asking {
        self.asking_services_of(&self.watched.index())
    }

    fn asking_services_of(&self, index: &Index) -> Asking {
        let settings = Arc::clone(&self.settings.borrow());
        let mut asking = Asking::default();
        for service in index.services() {
            let RequestedRouting { demand, endpoint_weight, failing_zones, .. } =
                requested_routing(service, &settings);
            if endpoint_weight == EndpointWeight::CpuUse && self.config.pod_metrics {
                asking.by_use.push(Arc::clone(service));
            }
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
    /// For endpoints to count by the CPU that they use, where that is read.
    by_use: Vec<Arc<Service>>,
}

/// Whether a Pod is a ready endpoint.
fn is_ready(pod: &Pod) -> bool {
    pod.ready && !pod.terminating && pod.is_considered()
}

/// A time in seconds since 1970, in milliseconds.
fn milliseconds(seconds: i64) -> Millis {
    Millis::try_from(seconds).unwrap_or_default().saturating_mul(1000)
}
