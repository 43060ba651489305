//! What if: other endpoints, nodes, demand or another request. The changes are made to a copy of the objects, and the
//! controller's and the proxy's own functions run on it.
//!
//! ```text
//!  ControllerView ─► as it is ───► decide ─► plan ─► matrix ─┐
//!        │                                                   ├─► WhatIfAnswer
//!        └─► WhatIf::applied ────► decide ─► plan ─► matrix ─┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;
use zonewise_common::document::Document;
use zonewise_common::keys::{
    DOMAIN, PADDING, ROUTING_PREFERENCE, STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
};
use zonewise_common::name::Name;
use zonewise_routing::{Frontend, Refusal};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{TRAFFIC_DISTRIBUTION, requested_routing};
use zonewise_slices::service::Service;
use zonewise_topology::heuristics;

use crate::change::{Change, ControllerView};
use crate::cost::{Crossing, Prices};
use crate::environment::ZoneDemand;
use crate::explanation::{Depth, zonal_best};
use crate::matrix::{Matrix, matrices};
use crate::overview::Cost;
use crate::plan::{Planner, ServicePlan};
use crate::proxy_view::ProxyView;
use crate::screens::{self, counted};
use crate::shell_quote::shell_quote;
use crate::snapshot::Snapshot;

/// What is to be tried. What is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct WhatIf {
    /// Ready endpoints of zones.
    pub endpoints: BTreeMap<String, u64>,
    /// Worker nodes of zones.
    pub nodes: BTreeMap<String, u64>,
    /// Allocatable cores of all worker nodes of zones.
    pub cores: BTreeMap<String, f64>,
    /// How much traffic zones send, compared with each other. Zones that are not named send nothing.
    pub demand: BTreeMap<String, f64>,
    /// Zones that are gone, with their nodes and endpoints.
    pub lost: BTreeSet<String>,
    /// What the Service asks for.
    pub ask: Option<Ask>,
}

/// What a Service asks for: this and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Ask {
    /// The annotation or field; empty to ask for nothing.
    #[serde(default)]
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
    /// The annotation for the number of endpoints around which subsetting starts.
    #[serde(default)]
    pub starting_threshold: Option<u64>,
    /// The annotation for the distance from it at which subsetting goes on and off.
    #[serde(default)]
    pub padding: Option<u64>,
}

/// Why something cannot be tried.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhatIfError {
    /// It would take too much work.
    #[error("{what} is more than the {most} that can be tried at once")]
    TooMuch {
        /// What was asked for.
        what: String,
        /// The limit.
        most: u64,
    },
    /// A number that makes no sense.
    #[error("{0} must be a number of at least 0")]
    Number(String),
    /// Not a key that asks for routing.
    #[error("`{0}` is not a key that asks for routing; use one of {keys}", keys = KEYS.join(", "))]
    Key(String),
    /// There is no such zone.
    #[error("no node is in zone `{0}`, so nothing can be tried there")]
    Zone(String),
    /// The controller does not write the slices of the Service.
    #[error(
        "the controller does not write the slices of this Service, so it decides nothing for it"
    )]
    Unmanaged,
    /// An object cannot be read by proxies.
    #[error("an object cannot be read: {0}")]
    Unreadable(String),
}

impl From<serde_json::Error> for WhatIfError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The keys that a request can be tried with.
const KEYS: [&str; 4] = [TOPOLOGY_MODE, SUBSETTING, ROUTING_PREFERENCE, TRAFFIC_DISTRIBUTION];
/// All keys that ask for routing, in the order in which they win.
const ALL_KEYS: [&str; 6] = [
    TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
    SUBSETTING,
    ROUTING_PREFERENCE,
    STARTING_THRESHOLD,
    PADDING,
];
/// The most endpoints that a Service can be tried with, unless it has more already.
pub const MOST_ENDPOINTS: u64 = 2000;
/// The most worker nodes that a cluster can be tried with, unless it has more already.
pub const MOST_NODES: u64 = 2000;
/// The most cores that a zone can be tried with.
const MOST_CORES: u64 = 1_000_000;
/// The longest value of a request.
const LONGEST_VALUE: u64 = 256;

/// Something that a Service can ask for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskOption {
    /// The annotation or field; empty for nothing.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What it does.
    pub summary: String,
    /// What can be set besides, as `value:name=number,…`.
    pub parameters: Vec<AskParameter>,
}

/// A number that can be set.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskParameter {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The value when not given; absent when it depends on the Service.
    pub default: Option<f64>,
    /// Only whole numbers make sense.
    pub whole: bool,
}

/// Everything that a Service can ask for, as the controller knows it.
pub fn options() -> Vec<AskOption> {
    let option = |key, value: &str, summary: &str| AskOption {
        key,
        value: value.into(),
        summary: summary.into(),
        parameters: Vec::new(),
    };
    let mut options = vec![
        option("", "", "nothing: every client uses every endpoint"),
        option(
            TRAFFIC_DISTRIBUTION,
            "PreferSameZone",
            "endpoints of the own zone, all if it has none",
        ),
        option(
            TRAFFIC_DISTRIBUTION,
            "PreferSameNode",
            "endpoints of the own node, then of the zone, then all",
        ),
        option(TOPOLOGY_MODE, "Auto", "hints in proportion to capacity, or none (KEP-2433)"),
        option(SUBSETTING, "Auto", "slices per zone once there are enough endpoints (KEP-2004)"),
        option(
            SUBSETTING,
            "Require",
            "slices per zone, whatever the number of endpoints (KEP-2004)",
        ),
        option(
            SUBSETTING,
            "Region",
            "slices per region once there are enough endpoints (KEP-2004)",
        ),
    ];
    options.extend(heuristics::TABLE.iter().map(|entry| AskOption {
        key: ROUTING_PREFERENCE,
        value: format!("{DOMAIN}{}", entry.name),
        summary: entry.summary.into(),
        parameters: entry.parameters.iter().map(parameter).collect(),
    }));
    options
}

fn parameter(known: &heuristics::Parameter) -> AskParameter {
    let heuristics::Parameter { name, summary, default, whole, .. } = *known;
    AskParameter { name, summary, default, whole }
}

/// What comes of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfAnswer {
    /// What the controller decides for the objects as they are.
    pub now: Side,
    /// What it decides for the changed ones.
    pub then: Side,
    /// What was changed, in words.
    pub changes: Vec<String>,
    /// The change of the Service as a manifest, with what people have to do besides as comments.
    pub yaml: String,
}

/// What the controller decides, and where traffic goes then.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// What it writes, and why.
    pub plan: ServicePlan,
    /// Where traffic goes once that is written, one matrix for each port and address family.
    pub matrices: Vec<Matrix>,
    /// The part of the traffic that stays in its zone.
    pub in_zone: Option<f64>,
    /// How much more than its fair share the most loaded endpoint gets.
    pub max_overload: Option<f64>,
    /// The largest part that could stay in its zone without overload.
    pub best: Option<f64>,
    /// What crossing zones costs per month.
    pub cost: Option<Cost>,
}

impl WhatIfAnswer {
    /// The document of kind `WhatIf`.
    pub fn document(&self) -> impl Serialize + use<'_> {
        Document::new("WhatIf", self)
    }
}

/// Tries something with a Service.
///
/// # Errors
/// If it cannot be tried, and why.
pub fn what_if(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planner: &Planner,
    prices: Option<&Prices>,
    tried: &WhatIf,
) -> Result<WhatIfAnswer, WhatIfError> {
    if !service.is_ours() {
        return Err(WhatIfError::Unmanaged);
    }
    let view = planner.controller_view(snapshot, service);
    let (changed, changes) = tried.applied(&view)?;
    let planner = Planner { depth: Depth::Arithmetic, ..planner.clone() };
    let refused = snapshot.proxy_view(service).refused;
    let side = |view: &ControllerView| Side::of(view, &planner, prices, refused.clone());
    let mut then = side(&changed)?;
    if tried.sets_demand() {
        // What the controller has stored is not what is tried.
        then.plan.explanation.demand = None;
    }
    Ok(WhatIfAnswer {
        now: side(&view)?,
        then,
        yaml: manifest(service, tried.ask.as_ref(), &changes)?,
        changes,
    })
}

impl Side {
    fn of(
        view: &ControllerView,
        planner: &Planner,
        prices: Option<&Prices>,
        refused: Vec<(Frontend, Refusal)>,
    ) -> Result<Self, WhatIfError> {
        let decision = view.decide();
        let planned = ProxyView { refused, ..view.planned(&decision)? };
        let kind = planner.environment.only_proxy().unwrap_or(planner.proxy_kind);
        let service = &view.objects.service;
        let matrices = matrices(&planned, &view.objects.senders(), &kind.gates(service))?;
        let family = decision.family(service).to_string();
        let matrix = matrices.iter().find(|matrix| matrix.family == family);
        let (in_zone, best) = (matrix.and_then(|one| one.in_zone), zonal_best(view, &decision));
        let max_overload = matrix.and_then(Matrix::max_overload);
        let mut plan = planner.plan_decided(view, decision, &planned)?;
        if plan.explanation.grouped_by == "zone" {
            plan.explanation.fill(None, matrix);
        }
        let cost = prices.and_then(|prices| prices.cost(&plan.service, Crossing { in_zone, best }));
        Ok(Self { plan, matrices, in_zone, max_overload, best, cost })
    }
}

impl WhatIf {
    /// The view with the changes, and the changes in words.
    fn applied(&self, view: &ControllerView) -> Result<(ControllerView, Vec<String>), WhatIfError> {
        self.check(view)?;
        let mut trial = Trial { view: view.clone(), changes: Vec::new() };
        if let Some(ask) = &self.ask {
            trial.ask(ask);
        }
        trial.lose(&self.lost);
        let stays = |zone: &String| !self.lost.contains(zone);
        for (zone, count) in self.nodes.iter().filter(|(zone, _)| stays(zone)) {
            trial.set_nodes(zone, *count);
        }
        for (zone, cores) in self.cores.iter().filter(|(zone, _)| stays(zone)) {
            trial.set_cores(zone, *cores);
        }
        for (zone, count) in self.endpoints.iter().filter(|(zone, _)| stays(zone)) {
            trial.set_endpoints(zone, *count);
        }
        if self.sets_demand() {
            trial.set_demand(&self.demand);
        }
        Ok((trial.view, trial.changes))
    }

    /// Whether zones send in other proportions.
    fn sets_demand(&self) -> bool {
        self.demand.values().sum::<f64>() > 0.0
    }

    fn check(&self, view: &ControllerView) -> Result<(), WhatIfError> {
        self.check_zones(view)?;
        for (zone, number) in self.cores.iter().chain(&self.demand) {
            if !number.is_finite() || *number < 0.0 {
                return Err(WhatIfError::Number(format!("the figure of zone `{zone}`")));
            }
            within(format!("{number} in {zone}"), *number as u64, MOST_CORES)?;
        }
        let (pods, nodes) = (&view.objects.pods, view.objects.nodes.by_name.values());
        let served = pods.iter().filter_map(|pod| zone_served(view, pod));
        let working = nodes.filter(|node| is_worker(node)).filter_map(|node| node.zone.as_ref());
        self.check_total("endpoints", &self.endpoints, served, MOST_ENDPOINTS)?;
        self.check_total("nodes", &self.nodes, working, MOST_NODES)?;
        self.ask.as_ref().map_or(Ok(()), Ask::check)
    }

    fn check_zones(&self, view: &ControllerView) -> Result<(), WhatIfError> {
        let nodes = view.objects.nodes.by_name.values();
        let known: BTreeSet<&str> = nodes.filter_map(|node| node.zone.as_deref()).collect();
        let counted = self.endpoints.keys().chain(self.nodes.keys());
        let measured = self.cores.keys().chain(self.demand.keys());
        match counted.chain(measured).chain(&self.lost).find(|zone| !known.contains(zone.as_str()))
        {
            Some(zone) => Err(WhatIfError::Zone(zone.clone())),
            None => Ok(()),
        }
    }

    /// Whether the work for so many of something is bounded: those that are tried, and those of the zones that stay as
    /// they are.
    fn check_total<'v>(
        &self,
        noun: &str,
        tried: &BTreeMap<String, u64>,
        present: impl Iterator<Item = &'v Name>,
        most: u64,
    ) -> Result<(), WhatIfError> {
        let (mut all, mut total) = (0, 0_u64);
        for zone in present {
            all += 1;
            total += u64::from(!tried.contains_key(&**zone) && !self.lost.contains(&**zone));
        }
        let tried = tried.iter().filter(|(zone, _)| !self.lost.contains(*zone));
        let total = tried.fold(total, |sum, (_, count)| sum.saturating_add(*count));
        within(format!("{total} {noun}"), total, most.max(all))
    }
}

impl Ask {
    fn check(&self) -> Result<(), WhatIfError> {
        if !self.key.is_empty() && !KEYS.contains(&self.key.as_str()) {
            return Err(WhatIfError::Key(self.key.clone()));
        }
        let length = self.value.len() as u64;
        within(format!("a value of {length} bytes"), length, LONGEST_VALUE)
    }
}

fn within(what: String, number: u64, most: u64) -> Result<(), WhatIfError> {
    match number <= most {
        true => Ok(()),
        false => Err(WhatIfError::TooMuch { what, most }),
    }
}

/// The zone in which a Pod is a ready endpoint.
fn zone_served<'v>(view: &'v ControllerView, pod: &Pod) -> Option<&'v Name> {
    let serves = pod.is_considered() && pod.ready && !pod.terminating;
    let name = pod.node.as_ref().filter(|_| serves)?;
    view.objects.nodes.by_name.get(name)?.zone.as_ref()
}

/// Whether a node counts.
fn is_worker(node: &Node) -> bool {
    node.ready && !node.control_plane
}

/// A copy of the objects while it is changed.
struct Trial {
    view: ControllerView,
    changes: Vec<String>,
}

impl Trial {
    fn ask(&mut self, ask: &Ask) {
        let before = requested_routing(&self.view.objects.service, &self.view.settings);
        let wanted = |key: &str| match key {
            _ if key == ask.key => Some(ask.value.clone()),
            STARTING_THRESHOLD => ask.starting_threshold.map(|number| number.to_string()),
            PADDING => ask.padding.map(|number| number.to_string()),
            _ => None,
        };
        self.view.edit_service(|service| {
            for key in ALL_KEYS {
                service.annotations = service.annotations.with(key, wanted(key).as_deref());
            }
            service.traffic_distribution =
                wanted(TRAFFIC_DISTRIBUTION).map(|value| value.as_str().into());
        });
        let after = requested_routing(&self.view.objects.service, &self.view.settings);
        if (&before.value, before.source) != (&after.value, after.source) {
            self.changes.push(format!(
                "asks for {} ({}) instead of {} ({})",
                after.value, after.source, before.value, before.source
            ));
        }
    }

    fn lose(&mut self, lost: &BTreeSet<String>) {
        if lost.is_empty() {
            return;
        }
        let gone = |node: &Node| node.zone.as_deref().is_some_and(|zone| lost.contains(zone));
        self.view = self.view.without_nodes(gone);
        self.changes.extend(lost.iter().map(|zone| format!("zone {zone} is lost")));
    }

    /// The workers of a zone that count, by name.
    fn workers(&self, zone: &str) -> Vec<Node> {
        let here = |node: &&Node| node.zone.as_deref() == Some(zone) && is_worker(node);
        self.view.objects.nodes.by_name.values().filter(here).cloned().collect()
    }

    fn set_nodes(&mut self, zone: &str, count: u64) {
        let workers = self.workers(zone);
        let (known, usual) = (workers.len() as u64, self.view.usual_cpu());
        let model = workers.last().cloned();
        if count > known {
            let region = model.as_ref().and_then(|node| node.region.clone());
            let cpu_milli = model.and_then(|node| node.cpu_milli).or(Some(usual));
            let added = (known..count).map(|number| Node {
                name: format!("added-{zone}-{number}").into(),
                zone: Some(zone.into()),
                region: region.clone(),
                cpu_milli,
                ready: true,
                control_plane: false,
                internal_ip: None,
            });
            let added: Vec<Node> = added.collect();
            self.view.edit_nodes(|nodes| {
                nodes.extend(added.into_iter().map(|node| (Name::clone(&node.name), node)));
            });
        } else if count < known {
            self.remove_nodes(&workers[count as usize..], workers[..count as usize].first());
        }
        self.tell_count("node", zone, known, count);
    }

    /// Removes nodes. Their Pods move to another one of the zone, or are gone with the last.
    fn remove_nodes(&mut self, gone: &[Node], other: Option<&Node>) {
        let is_gone = |name: &Name| gone.iter().any(|node| node.name == *name);
        if let Some(other) = other {
            for pod in &mut self.view.objects.pods {
                if pod.node.as_ref().is_some_and(is_gone) {
                    Arc::make_mut(pod).node = Some(Name::clone(&other.name));
                }
            }
        }
        self.view = self.view.without_nodes(|node| is_gone(&node.name));
    }

    fn set_cores(&mut self, zone: &str, cores: f64) {
        let workers = self.workers(zone);
        let milli = |node: &Node| node.cpu_milli.unwrap_or(0);
        let before: u64 = workers.iter().map(milli).sum();
        let after = (cores * 1000.0).round() as u64;
        if before == after || workers.is_empty() {
            return;
        }
        let each = after / workers.len() as u64;
        self.view.edit_nodes(|nodes| {
            for worker in &workers {
                if let Some(node) = nodes.get_mut(&worker.name) {
                    node.cpu_milli = Some(each);
                }
            }
        });
        let cores = |milli: u64| milli as f64 / 1000.0;
        self.changes.push(format!("{} cores in {zone} instead of {}", cores(after), cores(before)));
    }

    fn set_endpoints(&mut self, zone: &str, count: u64) {
        let serves =
            |pod: &&Arc<Pod>| zone_served(&self.view, pod).is_some_and(|own| **own == *zone);
        let serving = self.view.objects.pods.iter().filter(serves);
        let names: Vec<Name> = serving.map(|pod| Name::clone(&pod.name)).collect();
        let known = names.len() as u64;
        if count > known {
            self.view.add_endpoints(zone, count - known);
        } else {
            let gone: BTreeSet<&Name> = names.iter().skip(count as usize).collect();
            self.view.objects.pods.retain(|pod| !gone.contains(&pod.name));
        }
        self.tell_count("endpoint", zone, known, count);
    }

    /// Lets zones send traffic in these proportions. The controller decides by that where the Service asks for it.
    fn set_demand(&mut self, demand: &BTreeMap<String, f64>) {
        let sent = |trial: &Self| -> Vec<(Name, f64)> {
            let zones = &trial.view.objects.senders().zones.zones;
            zones.iter().map(|zone| (Name::from(&*zone.name), zone.share)).collect()
        };
        let before = sent(self);
        let part = |zone: &Name| demand.get(&**zone).copied().unwrap_or(0.0);
        let zones = before.iter().map(|(zone, _)| (Name::clone(zone), part(zone)));
        self.view.objects.shares = Some(Arc::new(ZoneDemand::of(zones.collect())));
        let percent = |share: f64| (share * 100.0).round();
        for ((zone, before), (_, after)) in before.into_iter().zip(sent(self)) {
            let (before, after) = (percent(before), percent(after));
            if before != after {
                self.changes.push(format!("{zone} sends {after} % instead of {before} %"));
            }
        }
    }

    fn tell_count(&mut self, noun: &str, zone: &str, before: u64, after: u64) {
        if before != after {
            let after = counted(after as usize, noun);
            self.changes.push(format!("{after} in {zone} instead of {before}"));
        }
    }
}

/// The change of a Service as a manifest for `kubectl apply --server-side`.
fn manifest(
    service: &Service,
    ask: Option<&Ask>,
    changes: &[String],
) -> Result<String, WhatIfError> {
    let mut text: String =
        changes.iter().map(|change| format!("# {}\n", screens::clean(change))).collect();
    let Some(ask) = ask else { return Ok(text) };
    let removed = ALL_KEYS.into_iter().filter(|key| *key != ask.key);
    for key in removed.filter(|key| service.annotations.get(key).is_some()) {
        let command = Change::RemoveAnnotation { key: key.into() }.sentence(service);
        text.push_str(&format!("# {command}\n"));
    }
    if service.traffic_distribution.is_some() && ask.key != TRAFFIC_DISTRIBUTION {
        let (namespace, name) = (shell_quote(&service.namespace), shell_quote(&service.name));
        let patch = "'{\"spec\":{\"trafficDistribution\":null}}'";
        text.push_str(&format!("# kubectl -n {namespace} patch service {name} -p {patch}\n"));
    }
    let numbers = [(STARTING_THRESHOLD, ask.starting_threshold), (PADDING, ask.padding)];
    let mut annotations: BTreeMap<&str, String> =
        numbers.into_iter().filter_map(|(key, number)| Some((key, number?.to_string()))).collect();
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service.name, "namespace": service.namespace},
    });
    match ask.key.as_str() {
        "" => return Ok(text),
        TRAFFIC_DISTRIBUTION => object["spec"] = json!({"trafficDistribution": ask.value}),
        key => {
            annotations.insert(key, ask.value.clone());
        }
    }
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = json!(annotations);
    }
    let yaml =
        screens::yaml(&object).map_err(|error| WhatIfError::Unreadable(error.to_string()))?;
    Ok(text + &yaml)
}
