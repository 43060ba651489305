//! One Service with everything its slices depend on, and what the controller makes of it.

use std::sync::Arc;

use zonewise_common::keys::MANAGED_BY;
use zonewise_slices::node::Nodes;
use zonewise_slices::plan::{Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{self, RequestedRouting, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{AddressType, Slice};
use zonewise_topology::reason::{Code, Outcome, Reason};

use crate::names;

/// A Service as the controller sees it.
#[derive(Clone)]
pub struct Scene {
    /// The Service.
    pub service: Arc<Service>,
    /// The Pods it selects, by name.
    pub pods: Vec<Arc<Pod>>,
    /// Its slices, whoever wrote them.
    pub slices: Vec<Arc<Slice>>,
    /// The nodes.
    pub nodes: Arc<Nodes>,
}

/// What the controller makes of a scene.
pub struct Verdict {
    /// What is asked for.
    pub asked: RequestedRouting,
    /// What is written.
    pub plan: Plan,
}

impl Verdict {
    /// Why routing is as it is.
    pub fn reason(&self) -> Reason {
        self.plan.reason()
    }

    /// The address family that stands for the Service.
    pub fn family<'a>(&'a self, service: &'a Service) -> &'a AddressType {
        let family = self.plan.leading().map(|plan| &plan.family);
        family.or(service.families.first()).unwrap_or(&AddressType::IPv4)
    }

    /// Whether traffic is kept near: something was asked for and is in force.
    pub fn is_on(&self) -> bool {
        let reason = self.reason();
        reason.outcome() == Outcome::InForce && reason.code() != Code::ClusterWide
    }
}

impl Scene {
    /// Its slices that the controller counts as its own.
    pub fn own_slices(&self, settings: &Settings) -> Vec<Arc<Slice>> {
        let own =
            |slice: &&Arc<Slice>| !slice.deleting && settings.manages(slice.labels.get(MANAGED_BY));
        self.slices.iter().filter(own).map(Arc::clone).collect()
    }

    /// Runs the controller's own functions.
    pub fn judge(&self, settings: &Settings) -> Verdict {
        let slices = self.own_slices(settings);
        let asked = requested_routing(&self.service, settings);
        let plan = plan(&self.input(&slices), &asked, settings);
        Verdict { asked, plan }
    }

    /// What the controller's functions take. Whether the reference has given hints by the
    /// annotation before is what only a running controller knows: taken as yes if there are hints,
    /// unless the field explains them.
    pub fn input<'a>(&'a self, slices: &'a [Arc<Slice>]) -> Input<'a> {
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
            trigger: None,
            populated: !by_field && slices.iter().any(hinted),
        }
    }

    /// The scene once a plan has been carried out.
    pub fn after(&self, plan: &Plan) -> Self {
        let slices = self.slices_after(plan).into_iter().map(Arc::new).collect();
        Self { slices, ..self.clone() }
    }

    /// The slices there are once a plan has been carried out; new ones have names.
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
        slices.extend(names::named(&self.service, plan, &self.slices));
        slices
    }
}
