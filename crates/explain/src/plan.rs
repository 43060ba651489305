//! `zonewise plan`: what the controller would write for each Service.

use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;
use zonewise_common::event::{Event, EventType};
use zonewise_inventory::guard::allocation_object;
use zonewise_slices::guard::{Guarded, ZoneAllocation, guarded};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;
use zonewise_topology::capacity::MissingCpu;

use crate::change::ControllerView;
use crate::environment::{Component, Decider, Environment, ProxyKind};
use crate::explanation::{Depth, Explanation, explain};
use crate::proxy_view::ProxyView;
use crate::service_snapshot::Decision;
use crate::slice_names;
use crate::snapshot::Snapshot;

/// What the controller would write for one Service.
#[derive(Serialize)]
pub struct ServicePlan {
    /// The Service.
    pub service: String,
    /// Slices to create. They have names, although the API server would choose those.
    pub creates: Vec<Slice>,
    /// Slices to update, as they are to be written.
    pub updates: Vec<Slice>,
    /// Names of slices to delete.
    pub deletes: Vec<String>,
    /// Names of slices that do not change.
    pub unchanged: Vec<String>,
    /// Events that the controller would emit.
    pub events: Vec<EventLine>,
    /// Whether a part of this is written only once the Service has been quiet for a while; see
    /// `settling` in the explanation.
    pub settled: bool,
    /// Why the slices are as they are.
    pub explanation: Explanation,
    /// In guard mode: the ZoneAllocation that brings the hints about. The built-in controller writes the slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Value>,
    /// Whether this is a plan for guard mode.
    #[serde(skip)]
    pub guard: bool,
    /// The slices as they are now.
    #[serde(skip)]
    pub stored: Vec<Arc<Slice>>,
}

/// An event on a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventLine {
    /// Normal or Warning.
    pub r#type: &'static str,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl From<&Event> for EventLine {
    fn from(event: &Event) -> Self {
        Self {
            r#type: match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
            reason: event.reason.clone(),
            message: event.message.clone(),
        }
    }
}

/// Plans Services as a controller with these settings does.
#[derive(Clone)]
pub struct Planner {
    /// The settings of the controller.
    pub settings: Settings,
    /// How nodes count that report no allocatable CPU.
    pub missing_cpu: MissingCpu,
    /// How much of the explanation is computed.
    pub depth: Depth,
    /// The proxy that runs on the nodes once the plan is carried out.
    pub proxy_kind: ProxyKind,
    /// What runs in the cluster now.
    pub environment: Environment,
}

impl Planner {
    /// Finds out what runs in the cluster of a snapshot. What is `assumed` counts as running.
    pub fn observe(&mut self, snapshot: &Snapshot, assumed: &[Component]) {
        let decider = if self.settings.upstream { Decider::BuiltIn } else { Decider::Zonewise };
        self.environment =
            Environment { decider, ..snapshot.environment(assumed, self.proxy_kind) };
    }

    /// A Service with everything that the controller decides by.
    pub fn controller_view(&self, snapshot: &Snapshot, service: &Arc<Service>) -> ControllerView {
        ControllerView {
            objects: snapshot.service_snapshot(service),
            settings: self.settings.clone(),
            missing_cpu: self.missing_cpu,
            proxy_service: snapshot.proxy_view(service).service.into(),
        }
    }

    /// Plans one Service.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub fn plan(
        &self,
        snapshot: &Snapshot,
        service: &Arc<Service>,
    ) -> Result<ServicePlan, serde_json::Error> {
        let controller_view = self.controller_view(snapshot, service);
        let decision = controller_view.decide();
        self.plan_decided(&controller_view, decision, &snapshot.proxy_view(service))
    }

    /// The plan of a Service for which the controller has decided. `proxy_view` is what proxies read of it now.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub(crate) fn plan_decided(
        &self,
        controller_view: &ControllerView,
        decision: Decision,
        proxy_view: &ProxyView<'_>,
    ) -> Result<ServicePlan, serde_json::Error> {
        let explanation = explain(controller_view, &decision, proxy_view, self)?;
        let service = &controller_view.objects.service;
        let creates =
            slice_names::with_names(service, &decision.plan, &controller_view.objects.slices);
        let stored = controller_view.objects.own_slices(&controller_view.settings);
        let is_guarded =
            self.settings.guard && matches!(guarded(&decision.asked), Guarded::Hints(_));
        let plan = decision.plan;
        let allocation =
            is_guarded.then(|| allocation_object(service, &ZoneAllocation::of(&plan, &stored)));
        let settled = plan.settles().is_some();
        let names = |slices: Vec<zonewise_slices::plan::SliceName>| {
            slices.into_iter().map(|slice| slice.name.into_string())
        };
        let (mut updates, mut deletes) = (Vec::new(), Vec::new());
        for family in plan.families {
            updates.extend(family.updates);
            deletes.extend(names(family.deletes));
        }
        deletes.extend(names(plan.leftovers));
        let touched = |name: &str| {
            updates.iter().any(|update: &Slice| update.name() == name)
                || deletes.iter().any(|deleted| deleted == name)
        };
        let unchanged = stored.iter().map(|slice| slice.name()).filter(|name| !touched(name));
        Ok(ServicePlan {
            service: service.key(),
            unchanged: unchanged.map(str::to_owned).collect(),
            creates,
            updates,
            deletes,
            events: plan.events.iter().map(EventLine::from).collect(),
            settled,
            explanation,
            allocation,
            guard: self.settings.guard,
            stored,
        })
    }

    /// Plans Services on all cores and passes each plan to `take`, in order. Only a few plans are in
    /// memory at a time.
    ///
    /// # Errors
    /// The first error of `take`, or if a proxy could not read one of the objects.
    pub fn each<E: From<serde_json::Error>>(
        &self,
        snapshot: &Snapshot,
        services: &[Arc<Service>],
        mut take: impl FnMut(ServicePlan) -> Result<(), E>,
    ) -> Result<(), E> {
        for group in services.chunks(TOGETHER) {
            let plans: Vec<Result<ServicePlan, serde_json::Error>> =
                group.par_iter().map(|service| self.plan(snapshot, service)).collect();
            for plan in plans {
                take(plan?)?;
            }
        }
        Ok(())
    }
}

/// Services planned together: enough to keep every core busy, few enough to keep in memory.
const TOGETHER: usize = 256;
