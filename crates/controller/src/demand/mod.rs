//! Measured demand: from what was counted to the shares that plans are based on.
//!
//! ```text
//!  proxies ────► collect ─► Window ─┐
//!                 (ask)             ├─► decide, every 15 s ─► shares in force ─► Services whose shares change ─► queue
//!  Prometheus ─► query ───► Rates ──┘        ▲    │
//!                               ConfigMap ◄──┴────┘ read by a new leader; written at most once a minute
//! ```
//!
//! Both sources are a [`Measuring`], and all arithmetic is in `zonewise_demand`. Only the leader asks and decides. What
//! cannot be collected is left out: figures fade to the model then, and nothing else is harmed. The same answers of proxies
//! say which connections fail: while a zone is being emptied, of all Services with endpoints in that zone; and of Services whose
//! failing zones are to count for less ([`failing`]). The metrics API says what the Pods of Services use whose endpoints are to
//! count by that ([`cpu_use`]).

mod ask;
mod collect;
mod cpu_use;
mod failing;
mod lead;
mod pod_metrics;
mod prometheus;
mod proxies;
mod storing;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use zonewise_common::clock;
use zonewise_common::name::{Key, Name};
use zonewise_demand::cpu_use::{MIN_BYTES, UseState, UseStateError};
use zonewise_demand::failures::Failures;
use zonewise_demand::load::{Load, load};
use zonewise_demand::notes::Notes;
use zonewise_demand::shares::{Decision, ZoneDemand};
use zonewise_demand::state::State;
use zonewise_demand::{Figures, Millis};
use zonewise_inventory::demand::{StoredDemand, StoredTexts};
use zonewise_slices::node::{MeasuredZones, Node, Nodes};
use zonewise_slices::requested::{self, EndpointWeight, RequestedRouting};
use zonewise_telemetry::metrics::{Counter, Family, Kind, MetricError, Registry};
use zonewise_topology::reason::Code;

use crate::config::{DemandConfig, Source};
use crate::status::Measured;
use cpu_use::UseWeights;
use failing::FailingZones;
pub(crate) use lead::Lead;
use prometheus::PrometheusRates;
use proxies::ProxyCounts;
use told::ToldCodes;

/// Where figures come from.
trait Measuring: Send + Sync {
    /// Lets `work` use the figures.
    fn figures(&self, work: &mut dyn FnMut(&mut dyn Figures));
    /// When figures came last.
    fn counted(&self) -> Option<Millis>;
    /// Says in the log what gives no figures, once, and what gives them again.
    fn tell(&self);
}

/// The demand of Services, as far as it is measured.
pub(crate) struct Demand {
    proxies: Arc<ProxyCounts>,
    prometheus: Arc<PrometheusRates>,
    source: Source,
    state: Mutex<State>,
    /// What only people want to know.
    notes: Mutex<Notes>,
    /// What conditions say.
    told: Mutex<ToldCodes>,
    /// How many Services have which reason.
    reasons: Mutex<BTreeMap<String, usize>>,
    loads: Mutex<Vec<ServiceLoad>>,
    watch: Mutex<Watch>,
    failing: FailingZones,
    /// `None` where nobody reads what Pods use.
    by_use: Option<UseWeights>,
}

/// The Services whose failed connections are watched, and what is known of them.
#[derive(Default)]
struct Watch {
    /// Those with endpoints in zones that are being emptied.
    evacuated: BTreeSet<Key>,
    /// Those whose failing zones are to count for less.
    spilling: BTreeSet<Key>,
    /// Those that are not watched, because there are too many.
    left_out: BTreeSet<Key>,
    known: Option<(Instant, Arc<Failures>)>,
}

/// How long what fails is taken for what fails now: proxies are asked less often.
const FAILURES_FRESH: Duration = Duration::from_secs(2);

/// The Services for which a decision has changed something.
#[derive(Default)]
struct Changed {
    /// Their shares.
    shares: Vec<Key>,
    /// What their conditions say.
    told: Vec<Key>,
}

/// What is shown of a Service.
struct ServiceLoad {
    service: Key,
    load: Option<Load>,
    /// How far the measured share of a zone is from that of the model, at most.
    off_model: Option<f64>,
}

/// Ready endpoints of a Service by zone.
type Endpoints<'a> = dyn Fn(&Key) -> BTreeMap<Name, u64> + 'a;

/// Questions by result, which is `success` or the name of a problem.
type Requests = Family<Counter, 1>;

const SUCCESS: &str = "success";

/// What all texts may have together: a ConfigMap has 1 MiB at most.
const MOST_BYTES: usize = 1020 << 10;

fn now() -> Millis {
    Millis::try_from(clock::now().as_millisecond()).unwrap_or_default()
}

impl Demand {
    pub(crate) fn new(
        registry: &Registry,
        config: &DemandConfig,
    ) -> Result<Arc<Self>, MetricError> {
        let requests = registry.counter(
            "zonewise_demand_requests_total",
            "Requests for counts to proxies or to Prometheus, by result",
            ["result"],
        )?;
        // Shown from the start, so that an alert sees the first one as an increase.
        for result in proxies::problems().chain(prometheus::problems()).chain([SUCCESS]) {
            requests.with([result]);
        }
        let demand = Arc::new(Self {
            proxies: Arc::new(ProxyCounts::new(requests.clone())),
            prometheus: Arc::new(PrometheusRates::new(requests)),
            source: config.source,
            state: Mutex::default(),
            notes: Mutex::default(),
            told: Mutex::default(),
            reasons: Mutex::default(),
            loads: Mutex::default(),
            watch: Mutex::default(),
            failing: FailingZones::default(),
            by_use: config.pod_metrics.then(|| UseWeights::new(registry)).transpose()?,
        });
        demand.register(registry)?;
        Ok(demand)
    }

    fn register(self: &Arc<Self>, registry: &Registry) -> Result<(), MetricError> {
        let proxies = Arc::clone(&self.proxies);
        registry.collect(
            "zonewise_demand_proxies",
            "Proxies that are asked for counts, by result of the last request",
            Kind::Gauge,
            ["result"],
            move |samples| {
                let results = proxies.results().into_iter();
                results.for_each(|(name, count)| samples.push([name], count.into()));
            },
        )?;
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_demand_services",
            "Services whose demand is measured, by reason",
            Kind::Gauge,
            ["reason"],
            move |samples| {
                for (reason, count) in &*demand.reasons.lock() {
                    samples.push([reason], *count as f64);
                }
            },
        )?;
        self.register_loads(registry)?;
        self.register_failing(registry)?;
        self.register_use(registry)?;
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_demand_age_seconds",
            "Seconds since the last counts from a proxy or from Prometheus",
            Kind::Gauge,
            [],
            move |samples| {
                if let Some(counted) = demand.measuring().counted() {
                    samples.push([], now().saturating_sub(counted) as f64 / 1000.0);
                }
            },
        )
    }

    fn register_loads(self: &Arc<Self>, registry: &Registry) -> Result<(), MetricError> {
        type Figure = fn(&ServiceLoad) -> Option<f64>;
        let figures: [(&str, &str, Figure); 3] = [
            (
                "zonewise_zone_load_max",
                "Connections per second that start in a zone for each ready endpoint that the Service has there, in the \
                 zone where that is most; of Services whose demand is measured",
                |service| service.load.map(|load| load.max),
            ),
            (
                "zonewise_zone_load_mean",
                "Connections per second for each ready endpoint of the Service; of Services whose demand is measured",
                |service| service.load.map(|load| load.mean),
            ),
            (
                "zonewise_demand_off_model",
                "Largest difference, over the zones, between a zone's measured share of traffic and its share of CPU, 0 to 1",
                |service| service.off_model,
            ),
        ];
        for (name, help, figure) in figures {
            let demand = Arc::clone(self);
            registry.collect(
                name,
                help,
                Kind::Gauge,
                ["namespace", "service"],
                move |samples| {
                    for one in &*demand.loads.lock() {
                        let (namespace, service) = &one.service;
                        if let Some(figure) = figure(one) {
                            samples.push([namespace, service], figure);
                        }
                    }
                },
            )?;
        }
        Ok(())
    }

    fn register_failing(self: &Arc<Self>, registry: &Registry) -> Result<(), MetricError> {
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_failing_zone_percent",
            "How many percent the endpoints of a zone count for; of zones that count for less because connections to them fail",
            Kind::Gauge,
            ["namespace", "service", "zone"],
            move |samples| {
                demand.failing.each(|labels, percent| samples.push(labels, percent.into()));
            },
        )
    }

    fn register_use(self: &Arc<Self>, registry: &Registry) -> Result<(), MetricError> {
        if self.by_use.is_none() {
            return Ok(());
        }
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_endpoint_use_percent",
            "How many percent the endpoints of a zone count for by the CPU that they use; of Services with endpoint-weight cpu-use",
            Kind::Gauge,
            ["namespace", "service", "zone"],
            move |samples| {
                if let Some(by_use) = &demand.by_use {
                    by_use.each(|labels, percent| samples.push(labels, percent.into()));
                }
            },
        )
    }

    fn measuring(&self) -> &dyn Measuring {
        match self.source {
            Source::Prometheus => &*self.prometheus,
            Source::Proxies | Source::None => &*self.proxies,
        }
    }

    /// The zones with the shares that are in force for a Service, and with what their endpoints count for, as far as it asks
    /// for that; `None` where the model is in force and all zones count in full.
    pub(crate) fn zones_of(
        &self,
        (namespace, name): &Key,
        asked: &RequestedRouting,
        nodes: &Nodes,
    ) -> Option<MeasuredZones> {
        let service = format!("{namespace}/{name}");
        let shares = match asked.demand {
            requested::Demand::Model => None,
            requested::Demand::Measured => self.measured(&service, nodes),
        };
        let failing = match asked.failing_zones {
            requested::FailingZones::Ignore => None,
            requested::FailingZones::Spill => self.failing.percents(&service),
        };
        let by_use = match asked.endpoint_weight {
            EndpointWeight::Equal | EndpointWeight::CpuRequest => None,
            EndpointWeight::CpuUse => self.use_percents(&service),
        };
        if failing.is_none() && by_use.is_none() {
            return shares;
        }
        let zones = shares.unwrap_or_else(|| nodes.measured(|_| None));
        let failing = failing.into_iter().flatten();
        let failing = failing.map(|(zone, percent)| (zone, u16::from(percent)));
        Some(zones.counting(failing).counting(by_use.into_iter().flatten()))
    }

    /// The zones that count for less for a Service because they fail.
    fn lowered_zones(&self, (namespace, name): &Key) -> Vec<Name> {
        let lowered = self.failing.percents(&format!("{namespace}/{name}"));
        lowered.into_iter().flatten().map(|(zone, _)| zone).collect()
    }

    fn use_percents(&self, service: &str) -> Option<Vec<(Name, u16)>> {
        self.by_use.as_ref()?.percents(service)
    }

    fn measured(&self, service: &str, nodes: &Nodes) -> Option<MeasuredZones> {
        let state = self.state.lock();
        let shares: BTreeMap<&Name, f64> = state.shares(service)?.collect();
        Some(nodes.measured(|zone| shares.get(&Name::from(zone)).copied()))
    }

    /// Goes on with what the leader before has stored. What was measured stays so, if too many Services ask for it.
    fn restore(&self, stored: StoredDemand) {
        let StoredDemand { state, failing, failing_error, by_use, notes } = stored;
        self.restore_use(by_use);
        if self.source == Source::None {
            return;
        }
        if let Some(error) = failing_error {
            tracing::warn!(%error, "what is stored of failing zones is not used: it is found out anew");
        }
        let services: Vec<String> = state.services().map(|(name, _)| name.to_string()).collect();
        tracing::info!(services = services.len(), "continuing with the stored demand");
        self.measuring().figures(&mut |figures| figures.set_services(&services));
        *self.state.lock() = state;
        *self.notes.lock() = notes;
        self.failing.restore(failing);
    }

    /// Goes on with what zones counted for by the CPU that their endpoints use.
    fn restore_use(&self, stored: Option<Result<UseState, UseStateError>>) {
        match (&self.by_use, stored) {
            (Some(known), Some(Ok(stored))) => known.restore(stored),
            (Some(_), Some(Err(error))) => {
                tracing::warn!(%error, "what is stored of the CPU use of endpoints is not used: it is found out anew");
            }
            (None, _) | (_, None) => {}
        }
    }

    /// Says which nodes there are: what others report is not counted.
    fn set_nodes(&self, nodes: &Nodes) {
        let capacities: Vec<_> = nodes.by_name.values().map(Node::in_zone).collect();
        self.measuring().figures(&mut |figures| figures.set_nodes(&capacities));
    }

    /// What the condition of a Service that asks for this kind of demand says of it.
    pub(crate) fn told(&self, (namespace, name): &Key, asked: requested::Demand) -> Measured {
        match (asked, self.source) {
            (requested::Demand::Model, _) => Measured::NotAsked,
            (requested::Demand::Measured, Source::None) => {
                Measured::Known(Code::DemandNotCollected)
            }
            (requested::Demand::Measured, Source::Proxies | Source::Prometheus) => {
                let told = self.told.lock().of(&format!("{namespace}/{name}"));
                told.map_or(Measured::Unknown, Measured::Known)
            }
        }
    }

    /// What the condition of a Service that asks for this weight of endpoints says of it.
    pub(crate) fn told_of_use(&self, (namespace, name): &Key, asked: EndpointWeight) -> Measured {
        match (asked, &self.by_use) {
            (EndpointWeight::Equal | EndpointWeight::CpuRequest, _) => Measured::NotAsked,
            (EndpointWeight::CpuUse, None) => Measured::Known(Code::UseNotCollected),
            (EndpointWeight::CpuUse, Some(by_use)) => {
                let told = by_use.told(&format!("{namespace}/{name}"));
                told.map_or(Measured::Unknown, Measured::Known)
            }
        }
    }

    /// Decides anew, for these Services. Returns those for which something has changed.
    fn decide(&self, nodes: &Nodes, services: &[String], endpoints: &Endpoints<'_>) -> Changed {
        let now = now();
        self.set_nodes(nodes);
        let (mut decisions, mut left_out) = (Vec::new(), Vec::new());
        self.measuring().figures(&mut |figures| {
            figures.set_services(services);
            let measurement = figures.measure(&nodes.zones, now);
            decisions = self.state.lock().decide(&nodes.zones, &measurement, now);
            let loads = decisions.iter().filter_map(|(name, decision)| {
                let (service, measured) = (key(name)?, measurement.of(name)?);
                let endpoints = endpoints(&service);
                let of = |zone: &str| endpoints.get(zone).copied().unwrap_or_default();
                let load = load(&nodes.zones, &measured, of, endpoints.values().sum());
                Some(ServiceLoad { service, load, off_model: off_model(decision) })
            });
            *self.loads.lock() = loads.collect();
            left_out = figures.left_out().to_vec();
        });
        self.notes.lock().decided(&decisions, &left_out, now);
        let codes = decisions.iter().map(|(name, decision)| (name, decision.reason.code()));
        let full = left_out.iter().map(|name| (name, Code::DemandTableFull));
        let told = codes.chain(full).map(|(name, code)| (Name::clone(name), code));
        let told = self.told.lock().decided(told);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (_, decision) in &decisions {
            *reasons.entry(decision.reason.code().to_string()).or_default() += 1;
        }
        if !left_out.is_empty() {
            reasons.insert(Code::DemandTableFull.to_string(), left_out.len());
        }
        *self.reasons.lock() = reasons;
        let rewritten = decisions.iter().filter(|(_, decision)| decision.rewritten);
        Changed {
            shares: rewritten.filter_map(|(name, _)| key(name)).collect(),
            told: told.iter().filter_map(|name| key(name)).collect(),
        }
    }

    /// Decides what the zones of these Services count for, by the connections that fail. Returns the Services for which
    /// that has changed.
    fn decide_failing(&self, services: BTreeSet<Key>, endpoints: &Endpoints<'_>) -> Vec<Key> {
        let failures = self.failures();
        let changed = self.failing.decide(&services, failures.as_deref(), endpoints);
        self.watch_more(|watch| &mut watch.spilling, services);
        changed
    }

    /// Whether the failed connections of a Service are not watched, because those of too many are to be.
    pub(crate) fn is_unwatched(&self, service: &Key) -> bool {
        self.watch.lock().left_out.contains(service)
    }

    /// The Services that are not watched any more, or are from now on, since this was asked last.
    fn changes_of_unwatched(&self) -> Vec<Key> {
        let mut left_out = BTreeSet::new();
        self.measuring().figures(&mut |figures| {
            left_out = figures.unwatched().iter().filter_map(|name| key(name)).collect();
        });
        let mut watch = self.watch.lock();
        let before = std::mem::replace(&mut watch.left_out, left_out);
        before.symmetric_difference(&watch.left_out).cloned().collect()
    }

    /// Has the failed connections to these Services watched while zones are being emptied. No shares are decided for their
    /// sake.
    pub(crate) fn watch(&self, services: BTreeSet<Key>) {
        self.watch_more(|watch| &mut watch.evacuated, services);
    }

    fn watch_more(&self, which: fn(&mut Watch) -> &mut BTreeSet<Key>, services: BTreeSet<Key>) {
        let mut watch = self.watch.lock();
        if *which(&mut watch) == services {
            return;
        }
        *which(&mut watch) = services;
        let all = watch.evacuated.union(&watch.spilling);
        let names: Vec<String> =
            all.map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        self.measuring().figures(&mut |figures| figures.set_watched(&names));
        watch.known = None;
    }

    /// What fails of the connections to these Services; `None` where nobody counts that.
    pub(crate) fn failures(&self) -> Option<Arc<Failures>> {
        if self.source != Source::Proxies {
            return None;
        }
        let mut watch = self.watch.lock();
        let fresh = watch.known.as_ref().filter(|(at, _)| at.elapsed() < FAILURES_FRESH);
        if let Some((_, known)) = fresh {
            return Some(Arc::clone(known));
        }
        let mut failures = None;
        self.measuring().figures(&mut |figures| failures = figures.failures(now()));
        let known = Arc::new(failures?);
        watch.known = Some((Instant::now(), Arc::clone(&known)));
        Some(known)
    }

    /// What is in force, as text: shares, what zones count for if some count for less, and what only people want to know.
    fn encoded(&self) -> (Notes, StoredTexts) {
        let (state, not_stored) = self.state.lock().encode_counting();
        let mut notes = self.notes.lock().clone();
        notes.not_stored = not_stored;
        let (failing, text) = (self.failing.encoded(), notes.encode(now()));
        let others = state.len() + failing.as_ref().map_or(0, String::len) + text.len();
        let room = MOST_BYTES.saturating_sub(others).max(MIN_BYTES);
        let by_use = self.by_use.as_ref().and_then(|by_use| by_use.encoded(room));
        (notes, StoredTexts { state, failing, by_use, notes: text })
    }

    /// Says in the log what gives no figures.
    fn tell(&self) {
        self.measuring().tell();
    }
}

/// How far what is measured is from the model, once there is enough of it.
fn off_model(decision: &Decision) -> Option<f64> {
    let off = |zone: &ZoneDemand| zone.measured.map(|measured| (measured - zone.model).abs());
    let off = decision.zones.iter().filter_map(off).reduce(f64::max);
    off.filter(|_| decision.weight >= 0.5)
}

/// The key of `namespace/name`.
fn key(service: &str) -> Option<Key> {
    service.split_once('/').map(|(namespace, name)| (namespace.into(), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonewise_demand::window::MAX_SERVICES;

    #[test]
    fn services_beyond_those_that_can_be_watched_are_known_until_there_is_room() {
        let config = DemandConfig { source: Source::Proxies, ..DemandConfig::default() };
        let demand = Demand::new(&Registry::default(), &config).unwrap();
        let service =
            |number: usize| -> Key { ("shop".into(), format!("s{number:05}").as_str().into()) };
        let watch = |services: std::ops::Range<usize>| {
            demand.decide_failing(services.map(service).collect(), &|_| BTreeMap::new());
            demand.changes_of_unwatched()
        };
        let beyond = [service(MAX_SERVICES), service(MAX_SERVICES + 1)];
        assert_eq!(watch(0..MAX_SERVICES + 2), beyond);
        assert!(beyond.iter().all(|service| demand.is_unwatched(service)));
        assert!(!demand.is_unwatched(&service(0)));
        assert_eq!(watch(0..MAX_SERVICES + 2), [], "nothing has changed");
        assert_eq!(watch(1..MAX_SERVICES + 2), [service(MAX_SERVICES)], "there is room for one");
        assert_eq!(watch(1..MAX_SERVICES), [service(MAX_SERVICES + 1)], "nobody is left out");
        assert!(!demand.is_unwatched(&service(MAX_SERVICES + 1)));
    }
}
