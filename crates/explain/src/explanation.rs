//! Everything about one Service: what was asked for, the arithmetic, the outcome, what proxies do
//! with it, what would turn zone routing on and what would turn it off.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::name::Name;
use zonewise_routing::{Frontend, Refusal};
use zonewise_slices::node::Nodes;
use zonewise_slices::requested::{
    Choice, Consumers, EndpointWeight, RequestNote, RequestedRouting,
};
use zonewise_slices::service::Service;
use zonewise_slices::slice::{Addresses, Slice};
use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::explanation as numbers;
use zonewise_topology::heuristic::{Case, Heuristic};
use zonewise_topology::heuristics;
use zonewise_topology::reason::{Code, Outcome, Reason};
use zonewise_topology::region::{Region, Situation};
use zonewise_topology::settling::Improvement as Fresh;
use zonewise_topology::traffic::TrafficModel;

use crate::change::ControllerView;
use crate::cost::Crossing;
use crate::cpu_use;
use crate::demand::{Demand, demand, with_trial};
use crate::environment::{Component, Environment, ProxyKind};
use crate::failing;
use crate::ignored;
use crate::improvements::{Improvement, improvements};
use crate::margin::{Margin, margin};
use crate::matrix::{Grouping, Matrix, Routers, Row, matrices_for};
use crate::now::Now;
use crate::plan::Planner;
use crate::proxy_view::ProxyView;
use crate::service_kind::ServiceKind;
use crate::service_snapshot::Decision;
use crate::shell_quote::shell_quote;
use crate::suggestions::{Suggestion, suggestions};
use crate::verdict::{Decided, Verdict, verdict};

/// The document that `zonewise explain` and `zonewise plan --explain` print.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The Service.
    pub service: String,
    /// What the Service is to proxies.
    pub service_kind: ServiceKind,
    /// What is active here and now; absent if only the arithmetic was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The address family that it is about: the first one whose outcome is not what was asked for,
    /// otherwise the first one.
    pub family: String,
    /// `zone`, or `region` if slices are labelled for regions: what the rows of `zones` are.
    pub grouped_by: &'static str,
    /// What was asked for, the arithmetic and the outcome.
    #[serde(flatten)]
    pub numbers: numbers::Explanation,
    /// Where the documentation explains the reason.
    pub docs: String,
    /// What is measured of the Service's demand; absent if it does not ask for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Annotations and fields that are ignored.
    pub notes: Vec<Note>,
    /// The reason in every address family.
    pub families: Vec<FamilyReason>,
    /// The Pods of the Service.
    pub pods: Pods,
    /// The slices that are stored, and what the controller would write.
    pub slices: Slices,
    /// What a fresh decision gives, if that is noticeably better than what is in force.
    pub settling: Option<Settling>,
    /// The part of the traffic that stays in its zone with each heuristic.
    pub in_zone_by_heuristic: Vec<HeuristicScore>,
    /// What each kind of proxy does once the plan is carried out.
    pub consumers: Vec<ProxyOutcome>,
    /// The smallest changes that turn zone routing on.
    pub changes: Vec<Suggestion>,
    /// What makes zone routing better where it is on, but overloads endpoints or finds none in a zone.
    pub improvements: Vec<Improvement>,
    /// Which losses leave zone routing on; absent if it is off.
    pub margin: Option<Margin>,
    /// What the cost of the Service depends on.
    #[serde(skip)]
    pub crossing: Crossing,
}

/// An annotation or field that is ignored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// The annotation's key or the field's path.
    pub source: String,
    /// Its value.
    pub value: String,
    /// Why it is ignored.
    pub reason: Code,
    /// The reason as a sentence, with what was probably meant.
    pub sentence: String,
    /// Commands that correct or remove it.
    pub commands: Vec<String>,
}

/// The reason in one address family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyReason {
    /// The family.
    pub family: String,
    /// The reason.
    pub reason: Code,
    /// What it means for routing.
    pub outcome: Outcome,
}

/// Pods that the selector matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// All Pods that the selector matches.
    pub selected: usize,
    /// Those that are ready and not terminating.
    pub ready: usize,
    /// Those on nodes that are not known.
    pub on_unknown_nodes: usize,
}

/// The stored slices of a Service, and what the controller would do with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slices {
    /// Slices of the Service.
    pub stored: usize,
    /// How many of them another controller or a person wrote.
    pub of_others: usize,
    /// To create.
    pub creates: usize,
    /// To update.
    pub updates: usize,
    /// To delete.
    pub deletes: usize,
}

/// What a fresh decision gives that is noticeably better than what is in force, and when it is taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settling {
    /// The figures of both.
    #[serde(flatten)]
    pub improvement: Fresh,
    /// How long the Service must be quiet until the controller takes the fresh decision, such as `15s`;
    /// absent if it does not.
    pub after: Option<String>,
}

/// What a heuristic would decide for the Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeuristicScore {
    /// The heuristic.
    pub heuristic: String,
    /// The reason it would give.
    pub reason: Code,
    /// Part of the traffic that stays in its zone, by the model of the simulator; absent without zones
    /// or if the heuristic fails.
    pub in_zone: Option<f64>,
    /// How much more than an equal share of the traffic the most loaded endpoint gets, by that model.
    pub max_overload: Option<f64>,
}

/// What one kind of proxy does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyOutcome {
    /// The name of the proxy.
    pub consumer: &'static str,
    /// What it needs, and what it ignores.
    pub remark: &'static str,
    /// The address family.
    pub family: String,
    /// What it does in each zone; empty if no proxy is involved.
    pub from: Vec<ProxyZone>,
    /// Part of the traffic that stays in its zone.
    pub in_zone: Option<f64>,
}

/// What a proxy does with the traffic that starts in a zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyZone {
    /// The zone.
    pub zone: String,
    /// How close traffic is kept.
    pub mode: String,
    /// Why.
    pub reason: Code,
    /// The part of the zone's traffic that stays in it.
    pub in_zone: f64,
}

/// How much of an explanation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The arithmetic alone.
    Arithmetic,
    /// Also what takes many runs of the controller's functions: proxies, suggestions and margin.
    Full,
}

/// Explains a Service as the planner says. `proxy_view` is what proxies read of it now.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn explain(
    controller_view: &ControllerView,
    decision: &Decision,
    proxy_view: &ProxyView<'_>,
    planner: &Planner,
) -> Result<Explanation, serde_json::Error> {
    let numbers = numbers(controller_view, decision);
    let service = &controller_view.objects.service;
    let service_kind = ServiceKind::of(service, proxy_view.is_local()?);
    let family = decision.family(service).to_string();
    let mut explanation = Explanation {
        service: service.key(),
        service_kind,
        verdict: None,
        docs: numbers.reason.docs(),
        grouped_by: grouped_by(decision),
        numbers,
        demand: demand(&controller_view.objects, decision.asked.demand),
        notes: notes(controller_view, decision),
        families: families(decision),
        pods: pods(controller_view, decision),
        slices: slices(controller_view, decision),
        settling: settling(controller_view, decision),
        in_zone_by_heuristic: Vec::new(),
        consumers: Vec::new(),
        changes: Vec::new(),
        improvements: Vec::new(),
        margin: None,
        crossing: Crossing::default(),
        family,
    };
    if planner.depth == Depth::Full {
        explanation.add_trials(controller_view, decision, proxy_view, planner)?;
    }
    Ok(explanation)
}

fn notes(controller_view: &ControllerView, decision: &Decision) -> Vec<Note> {
    let (asked, service) = (&decision.asked, &controller_view.objects.service);
    let of_keys = asked.notes.iter().map(|note| Note::of(asked, note, service));
    of_keys
        .chain(evacuations(controller_view, decision))
        .chain(failing::notes(controller_view, decision))
        .chain(cpu_use::notes(controller_view, decision))
        .collect()
}

/// The zones that are being emptied, where that changes something for the Service.
fn evacuations(
    controller_view: &ControllerView,
    decision: &Decision,
) -> impl Iterator<Item = Note> {
    let families = &decision.plan.families;
    let concerned: BTreeSet<&Name> =
        families.iter().flat_map(|family| &family.served_elsewhere).collect();
    let all = controller_view.objects.nodes.evacuations.zones();
    let concerned = all.filter(move |(zone, _)| concerned.contains(zone));
    concerned.map(|(zone, percent)| Note::being_emptied(zone, percent))
}

impl Explanation {
    /// Adds what needs many runs of the controller's and the proxy's functions.
    fn add_trials(
        &mut self,
        controller_view: &ControllerView,
        decision: &Decision,
        proxy_view: &ProxyView<'_>,
        planner: &Planner,
    ) -> Result<(), serde_json::Error> {
        self.in_zone_by_heuristic = scores(controller_view, decision);
        if let Some(known) = self.demand.take() {
            let kind = planner.proxy_kind;
            self.demand = Some(with_trial(known, controller_view, decision, kind)?);
        }
        let planned = controller_view.planned(decision)?;
        let by_kind = if controller_view.objects.service.headless {
            Vec::new()
        } else {
            by_kind(controller_view, &planned)?
        };
        self.consumers = consumers(controller_view, decision, &by_kind);
        // Of other Services, nothing can be turned on or off.
        if self.service_kind == ServiceKind::Routed {
            self.changes = suggestions(controller_view, &planner.environment);
            self.improvements = improvements(controller_view, decision, planner.proxy_kind);
            self.margin = margin(controller_view);
        }
        if controller_view.overruled(decision).is_some() {
            self.notes.push(Note::foreign_slices(controller_view));
        }
        let environment = &planner.environment;
        if environment.nodes_with(ProxyKind::Zonewise) > 0 {
            self.notes.extend(proxy_view.refused.iter().map(Note::refused));
            self.notes.extend(proxy_view.special_addresses()?.map(Note::special_addresses));
        }
        let now = current_traffic(controller_view, proxy_view, environment, &self.family)?;
        let best = zonal_best(controller_view, decision);
        let best = best.filter(|_| self.service_kind == ServiceKind::Routed);
        self.crossing = Crossing { in_zone: now.in_zone(), best };
        let needs = needs(controller_view, decision, &by_kind, &self.family);
        let of_kind = by_kind.into_iter().find(|(kind, _)| *kind == planner.proxy_kind);
        let zonal =
            of_kind.and_then(|(_, all)| all.into_iter().find(|one| one.family == self.family));
        let stays = zonal.as_ref().and_then(|matrix| matrix.in_zone);
        if let Some(matrix) = zonal.as_ref().filter(|_| controller_view.has_foreign_endpoints()) {
            self.count_foreign_endpoints(matrix);
        }
        if self.grouped_by == "region" {
            let regions =
                regional(controller_view, decision, &planned, planner.proxy_kind, &self.family)?;
            let now = regional_now(controller_view, proxy_view, environment, &self.family)?;
            self.fill(now, regions.as_ref());
        } else {
            self.fill(now.in_zone(), zonal.as_ref());
        }
        let (reason, sentence) = (self.numbers.reason, self.numbers.sentence.as_str());
        let built_in_agrees = controller_view.built_in().reason().code() == reason;
        let decided = Decided { reason, sentence, in_zone: stays, needs: &needs, built_in_agrees };
        self.verdict = Some(verdict(self.service_kind, environment, &now, Some(decided)));
        Ok(())
    }

    /// The controller balances its own endpoints. Proxies also use those that others have written: the
    /// figures of the reason are those of all endpoints.
    fn count_foreign_endpoints(&mut self, planned: &Matrix) {
        let (Some(in_zone), Some(max_overload)) = (planned.in_zone, planned.max_overload()) else {
            return;
        };
        self.numbers.arithmetic = match self.numbers.arithmetic {
            Reason::SharesBalanced { .. } => Reason::SharesBalanced { in_zone, max_overload },
            Reason::HintsBalanced { .. } => Reason::HintsBalanced { in_zone, max_overload },
            other => other,
        };
        self.numbers.sentence = self.numbers.arithmetic.to_string();
    }

    /// Fills in what comes of the decision, from what is written and what proxies do with it.
    pub(crate) fn fill(&mut self, now: Option<f64>, planned: Option<&Matrix>) {
        self.numbers.in_zone.now = now;
        let Some(planned) = planned else { return };
        self.numbers.in_zone.planned = planned.in_zone;
        for zone in &mut self.numbers.zones {
            let row = planned.from.iter().find(|row| *row.zone == *zone.zone);
            zone.assigned = row.map(|row| row.used);
            zone.overload = row.and_then(|row| row.highest_overload);
        }
    }
}

/// The matrices of the planned slices by zones, for every kind of proxy.
fn by_kind(
    controller_view: &ControllerView,
    planned: &ProxyView<'_>,
) -> Result<Vec<(ProxyKind, Vec<Matrix>)>, serde_json::Error> {
    let service = &controller_view.objects.service;
    let routers = ProxyKind::ZONAL.map(|kind| Routers::Same(kind.gates(service)));
    let all = matrices_for(planned, &controller_view.objects.senders(), &routers, Grouping::Zones)?;
    Ok(ProxyKind::ZONAL.into_iter().zip(all).collect())
}

/// What of zonewise the decision needs: its controller, if the built-in one does not give the same outcome;
/// its proxy, if kube-proxy does something else with what is written.
fn needs(
    controller_view: &ControllerView,
    decision: &Decision,
    by_kind: &[(ProxyKind, Vec<Matrix>)],
    family: &str,
) -> Vec<Component> {
    if !decision.is_on() {
        return Vec::new();
    }
    let rows = |wanted: ProxyKind| {
        let (_, all) = by_kind.iter().find(|(kind, _)| *kind == wanted)?;
        let matrix = all.iter().find(|matrix| matrix.family == family)?;
        Some(matrix.from.iter().map(|row| (&row.mode, &row.to)).collect::<Vec<_>>())
    };
    let proxy = rows(ProxyKind::Zonewise) != rows(ProxyKind::KubeProxy);
    let controller = proxy || !controller_view.built_in().is_on();
    let needed = [(controller, Component::Controller), (proxy, Component::Proxy)];
    needed.into_iter().filter(|(needed, _)| *needed).map(|(_, component)| component).collect()
}

/// The region of each endpoint, by its address.
fn regions_of<'s>(
    slices: impl IntoIterator<Item = &'s Slice>,
    nodes: &Nodes,
) -> BTreeMap<IpAddr, String> {
    let mut regions = BTreeMap::new();
    for endpoint in slices.into_iter().flat_map(|slice| &slice.endpoints) {
        let node = endpoint.node.as_ref().and_then(|name| nodes.by_name.get(name));
        let region = node.and_then(|node| node.region.as_ref());
        if let (Addresses::One(address), Some(region)) = (&endpoint.addresses, region) {
            regions.insert(*address, region.to_string());
        }
    }
    regions
}

/// The matrix of the planned slices by regions.
fn regional(
    controller_view: &ControllerView,
    decision: &Decision,
    planned: &ProxyView<'_>,
    proxy_kind: ProxyKind,
    family: &str,
) -> Result<Option<Matrix>, serde_json::Error> {
    let nodes = &controller_view.objects.nodes;
    let slices = controller_view.objects.slices_after(&decision.plan);
    let regions = regions_of(&slices, nodes);
    let routers = [Routers::Same(proxy_kind.gates(&controller_view.objects.service))];
    let all = matrices_for(planned, nodes, &routers, Grouping::Regions(&regions))?;
    Ok(all.into_iter().flatten().find(|matrix| matrix.family == family))
}

/// The part of the traffic that stays in its region with the slices that are stored.
fn regional_now(
    controller_view: &ControllerView,
    proxy_view: &ProxyView<'_>,
    environment: &Environment,
    family: &str,
) -> Result<Option<f64>, serde_json::Error> {
    let (nodes, service) = (&controller_view.objects.nodes, &controller_view.objects.service);
    let regions = regions_of(controller_view.objects.slices.iter().map(|slice| &**slice), nodes);
    let (proxies, grouping) = (&environment.by_node, Grouping::Regions(&regions));
    Ok(Now::of(proxy_view, nodes, service, proxies, family, grouping)?.in_zone())
}

/// The largest part of the traffic that could stay in its zone without overload, whatever the Service
/// asks for; `None` without zones or endpoints.
pub(crate) fn zonal_best(controller_view: &ControllerView, decision: &Decision) -> Option<f64> {
    let slices = controller_view.objects.own_slices(&controller_view.settings);
    let measured = controller_view.objects.measured(&decision.asked);
    let input = controller_view.objects.input(&slices, measured.as_ref());
    let family = decision.family(&controller_view.objects.service);
    let asked = &decision.asked;
    let choice = match asked.endpoint_weight {
        EndpointWeight::Equal => &Choice::ClusterWide,
        EndpointWeight::CpuRequest | EndpointWeight::CpuUse => &asked.choice,
    };
    let grounds = input.grounds(choice, family);
    let by_use = grounds.in_part.filter(|_| asked.endpoint_weight == EndpointWeight::CpuUse);
    numbers::best(&by_use.or(grounds.weighted).unwrap_or(grounds.situation).region())
}

/// Where the traffic of an address family goes now, by zones.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub(crate) fn current_traffic(
    controller_view: &ControllerView,
    proxy_view: &ProxyView<'_>,
    environment: &Environment,
    family: &str,
) -> Result<Now, serde_json::Error> {
    let (nodes, service) = (controller_view.objects.senders(), &controller_view.objects.service);
    Now::of(proxy_view, &nodes, service, &environment.by_node, family, Grouping::Zones)
}

fn grouped_by(decision: &Decision) -> &'static str {
    match decision.asked.choice.consumers() {
        Some(Consumers::Regions) => "region",
        Some(Consumers::Zones) | None => "zone",
    }
}

fn settling(controller_view: &ControllerView, decision: &Decision) -> Option<Settling> {
    let improvement = decision.plan.settles().or(decision.plan.improvement())?;
    let after = controller_view.settings.settles_after();
    Some(Settling { improvement, after: after.map(|period| ConfigDuration(period).to_string()) })
}

/// The arithmetic of the decision, with the reason for what proxies do with it.
fn numbers(controller_view: &ControllerView, decision: &Decision) -> numbers::Explanation {
    let asked = &decision.asked;
    let slices = controller_view.objects.own_slices(&controller_view.settings);
    let measured = controller_view.objects.measured(&decision.asked);
    let input = controller_view.objects.input(&slices, measured.as_ref());
    let grounds = input.grounds(&asked.choice, decision.family(&controller_view.objects.service));
    let heuristic = asked.choice.heuristic();
    let said = numbers::Asked { value: asked.value.clone(), source: asked.source.into() };
    let reason = controller_view.overruled(decision).unwrap_or_else(|| decision.reason());
    let mut numbers = numbers::arithmetic(
        said,
        heuristic.name(),
        grounds.capacity,
        &grounds.situation,
        grounds.weighted.as_ref(),
        reason,
    );
    if asked.endpoint_weight == EndpointWeight::CpuUse {
        numbers.in_zone.best = zonal_best(controller_view, decision);
    }
    numbers
}

fn families(decision: &Decision) -> Vec<FamilyReason> {
    let line = |family: &zonewise_slices::plan::FamilyPlan| FamilyReason {
        family: family.family.to_string(),
        reason: family.reason.code(),
        outcome: family.reason.outcome(),
    };
    decision.plan.families.iter().map(line).collect()
}

impl Note {
    /// Whether something is not as it was asked for. Others only tell what is in force.
    pub(crate) fn is_fault(&self) -> bool {
        self.reason.entry().outcome != Outcome::InForce
    }

    fn of(asked: &RequestedRouting, note: &RequestNote, service: &Service) -> Self {
        Self {
            source: note.source.to_string(),
            value: note.value.clone(),
            reason: note.reason.code(),
            sentence: asked.sentence(note),
            commands: ignored::commands(note, service),
        }
    }

    /// Zonewise's proxy does not give the Service an address and port that it asks for.
    fn refused((at, why): &(Frontend, Refusal)) -> Self {
        Self {
            source: "address and port".into(),
            value: at.to_string(),
            reason: Code::AddressRefused,
            sentence: why.to_string(),
            commands: Vec::new(),
        }
    }

    /// Zonewise's proxy leaves endpoints out because of their address.
    fn special_addresses(reason: Reason) -> Self {
        Self {
            source: "endpoints".into(),
            value: "addresses".into(),
            reason: reason.code(),
            sentence: reason.to_string(),
            commands: Vec::new(),
        }
    }

    /// A zone is being emptied.
    fn being_emptied(zone: &str, percent: u8) -> Self {
        let entry = Code::ZoneBeingEmptied.entry();
        Self {
            source: format!("zone {zone}"),
            value: format!("{percent} % of its endpoints are in use"),
            reason: entry.code,
            sentence: format!("{}; {}", entry.sentence, entry.remedy),
            commands: vec![format!("zonewise restore {}", shell_quote(zone))],
        }
    }

    /// Proxies ignore all hints if slices that others wrote have endpoints without hints.
    fn foreign_slices(controller_view: &ControllerView) -> Self {
        let own = controller_view.objects.own_slices(&controller_view.settings);
        let foreign = controller_view.objects.slices.iter().filter(|slice| !own.contains(slice));
        let names: Vec<&str> = foreign.map(|slice| slice.name()).collect();
        let entry = Code::HintMissing.entry();
        Self {
            source: "slices of other writers".into(),
            value: names.join(", "),
            reason: entry.code,
            sentence: format!("{}; {}", entry.sentence, entry.remedy),
            commands: Vec::new(),
        }
    }
}

fn pods(controller_view: &ControllerView, decision: &Decision) -> Pods {
    let ready = |pod: &&std::sync::Arc<zonewise_slices::pod::Pod>| {
        pod.is_considered() && pod.ready && !pod.terminating
    };
    let missing = decision.plan.families.iter().map(|family| family.missing_nodes.len()).max();
    Pods {
        selected: controller_view.objects.pods.len(),
        ready: controller_view.objects.pods.iter().filter(ready).count(),
        on_unknown_nodes: missing.unwrap_or(0),
    }
}

fn slices(controller_view: &ControllerView, decision: &Decision) -> Slices {
    let (stored, plan) = (controller_view.objects.slices.len(), &decision.plan);
    let sum = |of: fn(&zonewise_slices::plan::FamilyPlan) -> usize| {
        plan.families.iter().map(of).sum::<usize>()
    };
    Slices {
        stored,
        of_others: stored - controller_view.objects.own_slices(&controller_view.settings).len(),
        creates: sum(|family| family.creates.len()),
        updates: sum(|family| family.updates.len()),
        deletes: sum(|family| family.deletes.len()) + plan.leftovers.len(),
    }
}

/// What every heuristic would decide for the zones if it were asked for now and nothing were in force,
/// and what the model of the simulator expects of it.
pub(crate) fn scores(controller_view: &ControllerView, decision: &Decision) -> Vec<HeuristicScore> {
    let slices = controller_view.objects.own_slices(&controller_view.settings);
    let measured = controller_view.objects.measured(&decision.asked);
    let input = controller_view.objects.input(&slices, measured.as_ref());
    let family = decision.family(&controller_view.objects.service);
    let situation = input.grounds(&Choice::ClusterWide, family).situation;
    let mut trial = Trial { allocation: Allocation::new(), model: TrafficModel::new() };
    let names = heuristics::names().into_iter();
    let parsed =
        names.filter_map(|name| Some((name, controller_view.settings.heuristic(name).ok()?)));
    parsed.map(|(name, heuristic)| trial.score(name, &*heuristic, &situation)).collect()
}

/// Buffers that the trials of heuristics share.
struct Trial {
    allocation: Allocation,
    model: TrafficModel,
}

impl Trial {
    fn score(
        &mut self,
        name: &str,
        heuristic: &dyn Heuristic,
        situation: &Situation,
    ) -> HeuristicScore {
        let region = situation.region();
        let allocation = &mut self.allocation;
        let decided = heuristic.allocate_named(&Case::fresh(region), &situation.names, allocation);
        let reason = written(decided, &region, allocation);
        if reason.outcome() == Outcome::InForce {
            allocation.serve_the_unserved();
        } else {
            allocation.everywhere(&region, Carrier::Plain);
        }
        let usable = reason.outcome() != Outcome::Failed;
        let traffic = if usable { self.model.run(&region, allocation) } else { None };
        HeuristicScore {
            heuristic: name.into(),
            reason: reason.code(),
            in_zone: traffic.map(|traffic| traffic.in_zone),
            max_overload: traffic.map(|traffic| traffic.max_overload),
        }
    }
}

/// The reason once an allocation is to be written: there must be endpoints, and hints must be possible
/// for all of them.
fn written(reason: Reason, region: &Region<'_>, allocation: &Allocation) -> Reason {
    let placed: u64 = allocation.groups().iter().map(|group| group.size).sum();
    match allocation.carrier() {
        _ if reason.outcome() != Outcome::InForce => reason,
        _ if region.present() == 0 && reason != Reason::ClusterWide => Reason::NoEndpoints,
        Carrier::Hints | Carrier::Subsets if placed < region.present() && region.unplaced > 0 => {
            Reason::EndpointsWithoutZone { endpoints: region.unplaced }
        }
        _ => reason,
    }
}

/// What each kind of proxy does once the plan is carried out, for each address family. The first
/// port stands for all ports.
fn consumers(
    controller_view: &ControllerView,
    decision: &Decision,
    by_kind: &[(ProxyKind, Vec<Matrix>)],
) -> Vec<ProxyOutcome> {
    if controller_view.objects.service.headless {
        return vec![ProxyOutcome {
            consumer: "clients",
            remark: "the Service is headless: clients get every address by DNS and choose \
                     themselves; no proxy and no hint is involved",
            family: String::new(),
            from: Vec::new(),
            in_zone: None,
        }];
    }
    let mut consumers = Vec::new();
    for (kind, all) in by_kind {
        for family in &decision.plan.families {
            let family = family.family.to_string();
            let matrix = all.iter().find(|matrix| matrix.family == family);
            consumers.push(ProxyOutcome {
                consumer: kind.name(),
                remark: kind.remark(),
                in_zone: matrix.and_then(|matrix| matrix.in_zone),
                from: matrix.map(zones).unwrap_or_default(),
                family,
            });
        }
    }
    consumers
}

fn zones(matrix: &Matrix) -> Vec<ProxyZone> {
    let zone = |row: &Row| ProxyZone {
        in_zone: row.at_home(),
        zone: row.zone.clone(),
        mode: row.mode.clone(),
        reason: row.reason,
    };
    matrix.from.iter().map(zone).collect()
}
