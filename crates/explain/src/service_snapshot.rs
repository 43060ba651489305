//! One Service with everything that its slices depend on, and what the controller decides for it.

use std::sync::Arc;

use zonewise_common::keys::MANAGED_BY;
use zonewise_common::name::Name;
use zonewise_slices::node::{MeasuredZones, Nodes};
use zonewise_slices::plan::{Input, Plan, kept_reason, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{
    self, Choice, Demand, EndpointWeight, FailingZones, RequestedRouting, requested_routing,
};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{AddressType, Slice};
use zonewise_topology::heuristic::Heuristic as _;
use zonewise_topology::heuristics::balanced_hints::BalancedHints;
use zonewise_topology::reason::{Code, Outcome, Reason};

use crate::environment::{Facts, ZoneDemand};
use crate::failing::FailingZone;
use crate::slice_names;

/// A Service with its Pods and slices, and the nodes of the cluster.
#[derive(Clone)]
pub struct ServiceSnapshot {
    /// The Service.
    pub service: Arc<Service>,
    /// The Pods it selects, by name.
    pub pods: Vec<Arc<Pod>>,
    /// Its slices, including those of other controllers.
    pub slices: Vec<Arc<Slice>>,
    /// The nodes.
    pub nodes: Arc<Nodes>,
    /// The shares of zones that are in force by measured demand, where any are stored.
    pub shares: Option<Arc<ZoneDemand>>,
    /// What was seen of the programs that run, with all that is stored of measured demand.
    pub facts: Arc<Facts>,
    /// The zones that count for less because they fail, where there are such.
    pub failing: Option<Arc<[FailingZone]>>,
}

/// What the controller decides for a Service.
pub struct Decision {
    /// What the Service asks for.
    pub asked: RequestedRouting,
    /// What the controller would write.
    pub plan: Plan,
}

impl Decision {
    /// The reason for the outcome.
    pub fn reason(&self) -> Reason {
        self.plan.reason()
    }

    /// The address family whose outcome stands for the Service.
    pub fn family<'a>(&'a self, service: &'a Service) -> &'a AddressType {
        let family = self.plan.leading().map(|plan| &plan.family);
        family.or(service.families.first()).unwrap_or(&AddressType::IPv4)
    }

    /// Whether zone routing is on: the Service asks for it, and it is active.
    pub fn is_on(&self) -> bool {
        is_in_force(self.reason())
    }
}

/// Whether a reason says that zone routing is asked for and active.
pub(crate) fn is_in_force(reason: Reason) -> bool {
    reason.outcome() == Outcome::InForce && reason.code() != Code::ClusterWide
}

/// The reason that stands for a Service, of those of its address families: the first that is not in
/// force, otherwise the first.
pub(crate) fn leading(reasons: impl Iterator<Item = Reason>) -> Reason {
    let reasons: Vec<Reason> = reasons.collect();
    let fallback = |reason: &&Reason| reason.outcome() != Outcome::InForce;
    *reasons.iter().find(fallback).or(reasons.first()).unwrap_or(&Reason::ClusterWide)
}

/// Whether hints that may be kept can end when the controller decides afresh, because they gain nothing.
pub(crate) fn gives_up_hints(choice: &Choice) -> bool {
    choice.heuristic().name() == BalancedHints::default().name()
}

impl ServiceSnapshot {
    /// The slices that this controller manages.
    pub fn own_slices(&self, settings: &Settings) -> Vec<Arc<Slice>> {
        let own =
            |slice: &&Arc<Slice>| !slice.deleting && settings.manages(slice.labels.get(MANAGED_BY));
        self.slices.iter().filter(own).map(Arc::clone).collect()
    }

    /// Runs the controller's functions, for the time when the Service has settled: the controller decides
    /// afresh then, if that is better and it does so at all.
    pub fn decide(&self, settings: &Settings) -> Decision {
        let slices = self.own_slices(settings);
        let asked = requested_routing(&self.service, settings);
        let quiet = settings.settles_after().is_some();
        let measured = self.measured(&asked);
        let plan =
            plan(&Input { quiet, ..self.input(&slices, measured.as_ref()) }, &asked, settings);
        Decision { asked, plan }
    }

    /// The reason of [`decide`](Self::decide), or another one with the same outcome. Much faster.
    pub fn kept_reason(&self, settings: &Settings) -> Reason {
        let asked = requested_routing(&self.service, settings);
        let choice = &asked.choice;
        if settings.upstream || gives_up_hints(choice) {
            return self.decide(settings).reason();
        }
        let slices = self.own_slices(settings);
        let measured = self.measured(&asked);
        let input = self.input(&slices, measured.as_ref());
        leading(self.service.families.iter().map(|family| {
            let grounds = input.grounds(choice, family);
            kept_reason(choice, &grounds.situation, grounds.previous.as_ref())
        }))
    }

    /// The zones with the shares that are in force for the Service, and with what their endpoints count for, as far as it
    /// asks for that.
    pub fn measured(&self, asked: &RequestedRouting) -> Option<MeasuredZones> {
        let shares = self.shares.as_ref().filter(|_| asked.demand == Demand::Measured);
        let failing = self.failing.as_ref().filter(|_| asked.failing_zones == FailingZones::Spill);
        let by_use = match asked.endpoint_weight {
            EndpointWeight::Equal | EndpointWeight::CpuRequest => Vec::new(),
            EndpointWeight::CpuUse => self.facts.demand.use_percents_of(&self.service.key()),
        };
        if shares.is_none() && failing.is_none() && by_use.is_empty() {
            return None;
        }
        let zones = self.nodes.measured(|zone| shares.and_then(|shares| shares.share_of(zone)));
        let failing = failing.iter().flat_map(|zones| zones.iter());
        let failing = failing.map(|one| (Name::clone(&one.zone), one.percent.into()));
        Some(zones.counting(failing).counting(by_use.into_iter()))
    }

    /// The nodes, with what each zone sends to the Service: as it was measured where that is known, otherwise by capacity.
    pub fn senders(&self) -> Arc<Nodes> {
        let Some(shares) = &self.shares else { return Arc::clone(&self.nodes) };
        let mut nodes = Nodes::clone(&self.nodes);
        nodes.zones = nodes.zones.measured(|zone| shares.share_of(zone));
        Arc::new(nodes)
    }

    /// The input of the controller's functions; `measured` is what [`measured`](Self::measured) returns.
    ///
    /// `populated` says whether the built-in controller has set hints before because of the
    /// topology annotation. Only a running controller knows that. It is assumed if there are hints,
    /// unless `spec.trafficDistribution` explains them.
    pub fn input<'a>(
        &'a self,
        slices: &'a [Arc<Slice>],
        measured: Option<&'a MeasuredZones>,
    ) -> Input<'a> {
        let by_field = !requested::is_auto(&self.service)
            && requested::traffic_distribution(&self.service).is_some();
        let hinted = |slice: &Arc<Slice>| {
            slice.endpoints.iter().any(|endpoint| !endpoint.zone_hints().is_empty())
        };
        Input {
            service: &self.service,
            pods: &self.pods,
            slices,
            nodes: &self.nodes,
            measured,
            trigger: None,
            populated: !by_field && slices.iter().any(hinted),
            quiet: false,
        }
    }

    /// The snapshot after a plan has been carried out.
    pub fn after(&self, plan: &Plan) -> Self {
        let slices = self.slices_after(plan).into_iter().map(Arc::new).collect();
        Self { slices, ..self.clone() }
    }

    /// The slices after a plan has been carried out. New ones have names.
    pub fn slices_after(&self, plan: &Plan) -> Vec<Slice> {
        let gone = |slice: &Arc<Slice>| {
            let deletes = plan.families.iter().flat_map(|family| &family.deletes);
            deletes.chain(&plan.leftovers).any(|deleted| *deleted.name == *slice.name())
        };
        let updated = |slice: &Arc<Slice>| {
            let mut updates = plan.families.iter().flat_map(|family| &family.updates);
            updates.any(|update| update.name() == slice.name())
        };
        let kept = self.slices.iter().filter(|slice| !gone(slice) && !updated(slice));
        let mut slices: Vec<Slice> = kept.map(|slice| (**slice).clone()).collect();
        slices.extend(plan.families.iter().flat_map(|family| family.updates.iter().cloned()));
        slices.extend(slice_names::with_names(&self.service, plan, &self.slices));
        slices
    }
}
