//! Removes UDP flows that conntrack would still send to endpoints that are gone.
//!
//! ```text
//!  sync ─► flows of the changed Services, judged ─┬─ stale ─► removed
//!          by the slices that this node knows     └─ unsure ─► the API server is asked for all slices of
//!                                                             the Service, and the flows are judged again
//! ```
//!
//! The API server is asked only if there is a flow to an endpoint that has left this node's slices, and
//! the Service is divided into subsets. Every node of a zone may want to know at the same moment; each
//! waits for a random time before it asks, and one request is about all such Services of a namespace.
//!
//! A flow that stays with an endpoint in another zone's slice has to end with that endpoint. So the other
//! slices of such a Service are watched for as long as it has such flows (`Index::flows_elsewhere`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use zonewise_cluster::watch::{Backoff, random_part};
use zonewise_common::name::{Key, Name};
use zonewise_nft::Family;
use zonewise_routing::{
    FeatureGates, Frontend, ObjectReader, Protocol, RouteQuery, RoutedService, RoutedSlice,
    serving_targets,
};

use crate::conntrack::{self, Frontends, Known, SuspectFlows};
use crate::host::{Host, blocking};
use crate::index::Index;
use crate::kernel::KernelHandle;
use crate::metrics::Metrics;
use crate::rules::entries::routing_family;
use crate::rules::layout::family_name;
use crate::watches::{ClusterView, slices_of};

/// How long to wait at most before the API server is asked.
const SPREAD: Duration = Duration::from_secs(1);

/// What decides about flows: the cluster as this node knows it.
#[derive(Clone)]
pub(super) struct StaleFlows {
    host: Host,
    kernel: KernelHandle,
    cluster: Arc<ClusterView>,
    metrics: Arc<Metrics>,
    gates: FeatureGates,
    families: Vec<Family>,
    /// Services with flows that need all slices to be judged.
    unsure: UnboundedSender<BTreeSet<Key>>,
    /// Services whose flows could not be read or removed.
    failed: Arc<Mutex<BTreeSet<Key>>>,
}

/// Which slices of a Service count.
#[derive(Clone, Copy)]
enum Basis<'a> {
    /// Those for this node.
    Own,
    /// All that are known, and these of the API server.
    Known(&'a BTreeMap<Key, Vec<RoutedSlice>>),
}

impl<'a> Basis<'a> {
    fn slices<'i>(self, index: &'i Index, service: &Key) -> (Vec<&'i RoutedSlice>, Known)
    where
        'a: 'i,
    {
        match self {
            Self::Own => (index.own_slices(service), Known::Own),
            Self::Known(all) => match all.get(service) {
                Some(all) => (index.slices(service).into_iter().chain(all).collect(), Known::All),
                None if index.is_partly_known(service) => (index.slices(service), Known::Own),
                None => (index.slices(service), Known::All),
            },
        }
    }
}

/// The Services that [`StaleFlows`] is unsure about.
pub(super) type Unsure = UnboundedReceiver<BTreeSet<Key>>;

impl StaleFlows {
    pub(super) fn new(
        host: Host,
        kernel: KernelHandle,
        cluster: Arc<ClusterView>,
        metrics: Arc<Metrics>,
        gates: FeatureGates,
        families: Vec<Family>,
    ) -> (Self, Unsure) {
        let (unsure, services) = unbounded_channel();
        let failed = Arc::default();
        (Self { host, kernel, cluster, metrics, gates, families, unsure, failed }, services)
    }

    /// Removes the stale flows of these Services, as far as the slices that this node knows tell. The
    /// others are left to [`Self::settle`].
    pub(super) fn remove(&self, services: &BTreeSet<Key>) {
        let unsure = self.remove_by(services, &BTreeMap::new());
        if !unsure.is_empty() {
            // The receiver ends together with the proxy.
            drop(self.unsure.send(unsure));
        }
    }

    /// Removes connections to Services that began before there were rules: their clients send the first packet again, and
    /// reach an endpoint then. Once there are rules, packets to addresses that no Service has are dropped, and conntrack
    /// forgets them.
    pub(super) fn remove_early(&self) {
        for &family in &self.families {
            let found = self.kernel.with(|kernel| {
                let is_for_services = |to: &Frontend| kernel.is_for_services(to);
                conntrack::find_early(self.host.network(), family, is_for_services)
            });
            let removed = found
                .unwrap_or_else(|| Ok(Vec::new()))
                .and_then(|flows| conntrack::remove(self.host.network(), &flows));
            match removed {
                Ok(removed) => {
                    self.metrics.flows_deleted.with([family_name(family)]).add(removed as u64);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot remove connections that began before there were rules; \
                        their clients reach a Service with the next connection");
                }
            }
        }
    }

    /// Asks the API server for all slices of Services whose flows need them, and removes the flows that
    /// are stale by these. Runs until dropped.
    pub(super) async fn settle(self, client: Client, mut unsure: Unsure) {
        let mut backoff = Backoff::default();
        while let Some(mut services) = unsure.recv().await {
            sleep(random_part(SPREAD)).await;
            while let Ok(more) = unsure.try_recv() {
                services.extend(more);
            }
            match self.all_slices(&client, &services).await {
                Ok(slices) => {
                    backoff.reset();
                    blocking(|| {
                        self.remove_by(&services, &slices);
                        self.note_elsewhere(&services);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot ask where endpoints have gone; their UDP flows stay");
                    sleep(backoff.next()).await;
                    drop(self.unsure.send(services));
                }
            }
        }
    }

    /// All slices of these Services that the API server has.
    async fn all_slices(
        &self,
        client: &Client,
        services: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Vec<RoutedSlice>>, zonewise_cluster::api::ApiError> {
        let version = self.cluster.index().newest_version();
        let mut found: BTreeMap<Key, Vec<RoutedSlice>> =
            services.iter().map(|key| (key.clone(), Vec::new())).collect();
        let namespaces: BTreeSet<&Name> = services.iter().map(|(namespace, _)| namespace).collect();
        for namespace in namespaces {
            let here = services.iter().filter(|(of, _)| of == namespace);
            let names = here.map(|(_, name)| Name::clone(name)).collect();
            for slice in slices_of(client, &self.cluster, namespace, &names, version).await? {
                let key = (Name::clone(&slice.namespace), Name::clone(&slice.service));
                found.entry(key).or_default().push(slice);
            }
        }
        Ok(found)
    }

    /// Looks again at Services with flows to endpoints in slices for other zones: the flows may have
    /// ended, or the endpoints may be gone. And at Services whose flows could not be read or removed.
    pub(super) fn check_again(&self) {
        let elsewhere = self.cluster.index().flows_elsewhere().clone();
        let failed = std::mem::take(&mut *self.failed.lock());
        self.remove(&failed.union(&elsewhere).cloned().collect());
        if !elsewhere.is_empty() {
            self.note_elsewhere(&elsewhere);
        }
    }

    /// Notes which of these Services have flows to endpoints that are in no slice for this node.
    fn note_elsewhere(&self, services: &BTreeSet<Key>) {
        let elsewhere = self.find(services, Basis::Own);
        let elsewhere = elsewhere.into_values().flat_map(|found| found.unsure).collect();
        self.cluster.set_flows_elsewhere(services, &elsewhere);
    }

    /// Removes stale flows of these Services. Those in `all` are judged by these slices as well, and by
    /// what has come meanwhile. Returns the Services that need all slices.
    fn remove_by(
        &self,
        services: &BTreeSet<Key>,
        all: &BTreeMap<Key, Vec<RoutedSlice>>,
    ) -> BTreeSet<Key> {
        let mut unsure = BTreeSet::new();
        for (family, found) in self.find(services, Basis::Known(all)) {
            unsure.extend(found.unsure);
            match conntrack::remove(self.host.network(), &found.stale) {
                Ok(removed) => {
                    self.metrics.flows_deleted.with([family_name(family)]).add(removed as u64);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot remove stale UDP flows; trying again later");
                    self.failed.lock().extend(services.iter().cloned());
                }
            }
        }
        unsure
    }

    /// Looks for the flows of these Services.
    fn find(&self, services: &BTreeSet<Key>, basis: Basis<'_>) -> BTreeMap<Family, SuspectFlows> {
        let frontends = self.frontends(services, basis);
        if frontends.is_empty() {
            return BTreeMap::new();
        }
        let own: BTreeSet<IpAddr> =
            self.host.interface_addresses().unwrap_or_default().into_iter().collect();
        let find = |(&family, frontends): (&Family, &Frontends)| {
            let began = Instant::now();
            let found = conntrack::find(self.host.network(), family, frontends, &own)
                .unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot look for stale UDP flows; trying again later");
                    self.failed.lock().extend(services.iter().cloned());
                    SuspectFlows::default()
                });
            let took = began.elapsed().as_secs_f64();
            self.metrics.conntrack.with([family_name(family)]).observe(took);
            (family, found)
        };
        frontends.iter().map(find).collect()
    }

    /// The UDP ports of Services with their endpoints, by family.
    fn frontends(&self, services: &BTreeSet<Key>, basis: Basis<'_>) -> BTreeMap<Family, Frontends> {
        // The kernel's lock comes before that of the index.
        let owned = self.kernel.with(|kernel| {
            let desired = kernel.desired();
            services.iter().map(|key| (key, desired.owned(key))).collect::<Vec<_>>()
        });
        let reader = self.cluster.reader();
        let index = self.cluster.index();
        let mut frontends: BTreeMap<Family, Frontends> = BTreeMap::new();
        for (key, owned) in owned.unwrap_or_default() {
            let Some(service) = index.services().get(key) else { continue };
            let (slices, known) = basis.slices(&index, key);
            self.add(&mut frontends, &reader, service, &owned, &slices, known);
        }
        frontends.retain(|_, frontends| !frontends.is_empty());
        frontends
    }

    fn add(
        &self,
        frontends: &mut BTreeMap<Family, Frontends>,
        reader: &ObjectReader,
        service: &RoutedService,
        owned: &BTreeSet<Frontend>,
        slices: &[&RoutedSlice],
        known: Known,
    ) {
        for port in service.ports.iter().filter(|port| port.protocol == Protocol::Udp) {
            for &family in &self.families {
                let query = RouteQuery {
                    reader,
                    gates: &self.gates,
                    service,
                    port,
                    family: routing_family(family),
                    slices,
                };
                let serving = serving_targets(&query);
                let claimed = service.frontends(port, query.family).into_iter();
                let at = claimed.map(|(frontend, _)| frontend).filter(|at| owned.contains(at));
                frontends.entry(family).or_default().add(service, at, &serving, known);
            }
        }
    }
}
