//! Takes evacuations forward: looks, decides, stores the decision, and reports it with events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::events::{EventRecorder, InvolvedObject};
use zonewise_cluster::lease::Leadership;
use zonewise_cluster::watch::version_number;
use zonewise_common::api_group::ZONEWISE_V1ALPHA1;
use zonewise_common::clock;
use zonewise_common::event::{Event, EventType};
use zonewise_common::keys::MANAGED_BY;
use zonewise_common::name::{Key, Name};
use zonewise_demand::failures::Failures;
use zonewise_inventory::evacuation::{self, EvacuationStatus, KIND, Phase, StoredEvacuation};
use zonewise_inventory::follow::{IndexListener, WatchedIndex};
use zonewise_slices::evacuation::{Prospect, Survey, is_written};
use zonewise_slices::node::Nodes;
use zonewise_slices::plan::Input;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::settings::Settings;

use super::StoredEvacuations;
use super::course::{Sight, next};
use super::failing::{Failed, Failing};
use crate::demand::Demand;
use crate::proxies::{ProxyProgress, ProxyReadiness};

/// How often evacuations are looked at, when nothing changes.
const PERIOD: Duration = Duration::from_secs(1);
/// The same for a zone that is empty.
const EMPTY_PERIOD: Duration = Duration::from_secs(5);
/// After so many Services, other tasks get their turn.
const BATCH: usize = 64;

/// What takes evacuations forward, in the leading replica.
pub(crate) struct Driver<L> {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) evacuations: Arc<StoredEvacuations>,
    pub(crate) watched: Arc<WatchedIndex<L>>,
    pub(crate) nodes: watch::Receiver<Arc<Nodes>>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) readiness: Arc<ProxyReadiness>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) events: EventRecorder,
    /// Told when the zones that are being emptied have changed.
    pub(crate) zones_changed: Box<dyn Fn() + Send + Sync>,
}

impl<L: IndexListener> Driver<L> {
    /// Never ends.
    pub(crate) async fn drive(&self) {
        loop {
            let (mut period, mut watched) = (None, BTreeSet::new());
            for stored in self.evacuations.all() {
                watched.extend(self.advance(&stored).await);
                let own = match stored.status.phase {
                    _ if stored.status.observed_generation != stored.generation() => Some(PERIOD),
                    Phase::Empty => Some(EMPTY_PERIOD),
                    phase if phase.is_over() => None,
                    _ => Some(PERIOD),
                };
                period = own.into_iter().chain(period).min();
            }
            self.demand.watch(watched);
            match period {
                None => self.evacuations.changed().await,
                Some(period) => drop(timeout(period, self.evacuations.changed()).await),
            }
        }
    }

    /// Takes an evacuation a step forward, if it is time. Returns the Services whose failed connections are to be watched.
    async fn advance(&self, stored: &StoredEvacuation) -> BTreeSet<Key> {
        let is_new = stored.status.observed_generation != stored.generation();
        if stored.status.phase.is_over() && !is_new {
            return BTreeSet::new();
        }
        let (services, zone_exists) = self.services_in(&stored.spec.zone);
        let sight = self.look(stored, &services, zone_exists).await;
        if let Some(status) = next(stored, &sight) {
            self.report(stored, &status).await;
        }
        services
    }

    async fn report(&self, stored: &StoredEvacuation, status: &EvacuationStatus) {
        if !self.leadership.may_write() {
            return;
        }
        match evacuation::report(&self.client, stored, status).await {
            Ok(now) => {
                self.evacuations.note(now);
                (self.zones_changed)();
                self.tell(stored, status);
            }
            // It was changed or deleted meanwhile, which the watch reports.
            Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => sleep(PERIOD).await,
            Err(error) => {
                tracing::warn!(zone = %stored.spec.zone, %error, "the status of an evacuation could not be written");
                sleep(PERIOD).await;
            }
        }
    }

    fn tell(&self, stored: &StoredEvacuation, status: &EvacuationStatus) {
        let before = &stored.status;
        if (before.phase, before.percent) == (status.phase, status.percent) {
            return;
        }
        tracing::info!(
            zone = %stored.spec.zone, phase = ?status.phase, percent = status.percent,
            reason = %status.reason, message = %status.message, "an evacuation goes on"
        );
        let kind = match status.phase {
            Phase::Refused | Phase::GoneBack => EventType::Warning,
            _ => EventType::Normal,
        };
        let (reason, message) = (status.reason.to_string(), status.message.clone());
        let subject = InvolvedObject::of_cluster(
            ZONEWISE_V1ALPHA1,
            KIND,
            stored.name(),
            stored.uid().clone(),
        );
        self.events.record(subject, Event { kind, reason, message });
    }

    /// Looks at all Services with endpoints in the zone.
    async fn look(
        &self,
        stored: &StoredEvacuation,
        services: &BTreeSet<Key>,
        zone_exists: bool,
    ) -> Sight {
        let zone = &stored.spec.zone;
        let nodes = Arc::clone(&self.nodes.borrow());
        let settings = Arc::clone(&self.settings.borrow());
        let with = |evacuations| (*nodes).clone().evacuating(evacuations);
        // What is stored may be newer than what the nodes are told.
        let now = self.evacuations.in_force();
        let view = View {
            in_use: with(now.clone().without(zone)),
            emptied: with(now.clone().with(zone, 0)),
            now: with(now),
            settings,
            zone,
        };
        let mut seen = Seen {
            survey: Survey::new(stored.spec.limit_percent()),
            unwritten: 0,
            newest: 0,
            watch: self.demand.failures().map(Watch::new),
        };
        for (number, key) in services.iter().enumerate() {
            self.look_at(key, &view, &mut seen);
            if number % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
        }
        let proxies_behind = match self.readiness.progress() {
            ProxyProgress::AppliedUpTo(version) => version < seen.newest,
            ProxyProgress::NotKnownYet | ProxyProgress::NoProxyReports => false,
        };
        Sight {
            now: clock::now().as_second(),
            survey: seen.survey,
            zone_exists,
            unwritten: seen.unwritten,
            proxies_behind,
            failing: seen.watch.map_or(Failing::NotWatched, Watch::failing),
        }
    }

    /// The Services with Pods in a zone, and whether some node is in it.
    fn services_in(&self, zone: &str) -> (BTreeSet<Key>, bool) {
        let index = self.watched.index();
        let nodes = index.nodes().values().filter(|node| node.zone.as_deref() == Some(zone));
        let names: Vec<&Name> = nodes.map(|node| &node.name).collect();
        let services = names.iter().flat_map(|node| index.services_on(node)).collect();
        (services, !names.is_empty())
    }

    fn look_at(&self, key: &Key, view: &View<'_>, seen: &mut Seen) {
        let objects = {
            let index = self.watched.index();
            index.service(key).map(|service| {
                let slices = index.slices_of(key).into_iter().filter(|slice| {
                    !slice.deleting && view.settings.manages(slice.labels.get(MANAGED_BY))
                });
                (index.pods_of(&service), slices.collect::<Vec<_>>(), service)
            })
        };
        let Some((pods, slices, service)) = objects else { return };
        let requested = requested_routing(&service, &view.settings);
        let choice = &requested.choice;
        let measured = self.demand.zones_of(key, &requested, &view.now);
        let input = |nodes| Input {
            service: &service,
            pods: &pods,
            slices: &slices,
            nodes,
            measured: measured.as_ref(),
            trigger: None,
            populated: false,
            quiet: false,
        };
        let prospect = Prospect::of(&input(&view.in_use), &input(&view.emptied), choice, view.zone);
        let Some(prospect) = prospect else { return };
        seen.survey.add(&service, prospect);
        if let Some(watch) = &mut seen.watch {
            watch.add(&service.key(), view.zone);
        }
        seen.unwritten += u64::from(!is_written(&input(&view.now), choice, view.zone));
        let versions = slices.iter().map(|slice| version_number(&slice.resource_version));
        // Where endpoints stay, nothing was written for the sake of the zone.
        if prospect.kept.is_none() {
            seen.newest = versions.fold(seen.newest, u64::max);
        }
    }
}

/// The nodes while the zone is in use, while it is empty, and as it is now.
struct View<'a> {
    in_use: Nodes,
    emptied: Nodes,
    now: Nodes,
    settings: Arc<Settings>,
    zone: &'a str,
}

/// What was seen so far.
struct Seen {
    survey: Survey,
    unwritten: u64,
    /// The highest resource version among the slices.
    newest: u64,
    /// `None` where connections that fail are not watched.
    watch: Option<Watch>,
}

/// What was seen so far of connections that fail.
struct Watch {
    known: Arc<Failures>,
    services: Vec<Failed>,
    complete: bool,
}

impl Watch {
    fn new(known: Arc<Failures>) -> Self {
        Self { known, services: Vec::new(), complete: true }
    }

    fn add(&mut self, service: &str, zone: &str) {
        let known = self.known.of(service);
        self.complete &= known.is_some_and(|known| known.complete);
        self.services.extend(known.map(|known| Failed::outside(service, known, zone)));
    }

    fn failing(self) -> Failing {
        Failing::Watched { services: self.services, complete: self.complete }
    }
}
