//! `plan`: what the controller would write, Service by Service.

use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use zonewise_common::event::{Event, EventType};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;
use zonewise_topology::capacity::MissingCpu;

use crate::change::Stage;
use crate::explanation::{Depth, Explanation, Kind, explain};
use crate::names;
use crate::snapshot::Snapshot;

/// One Service of a plan.
#[derive(Serialize)]
pub struct ServicePlan {
    /// The Service.
    pub service: String,
    /// Slices to create, with names.
    pub creates: Vec<Slice>,
    /// Slices to write anew.
    pub updates: Vec<Slice>,
    /// Names of slices to delete.
    pub deletes: Vec<String>,
    /// Names of slices that stay as they are.
    pub unchanged: Vec<String>,
    /// Events, as the reference emits them.
    pub events: Vec<EventLine>,
    /// Why.
    pub explanation: Explanation,
    /// The slices as they are now.
    #[serde(skip)]
    pub stored: Vec<Arc<Slice>>,
}

/// An event on a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventLine {
    /// Normal or Warning.
    pub r#type: &'static str,
    /// A short name.
    pub reason: String,
    /// A sentence.
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

/// How to plan.
pub struct Planning {
    /// How slices are written.
    pub settings: Settings,
    /// What is done about nodes that do not report CPU.
    pub missing_cpu: MissingCpu,
    /// How much is explained.
    pub depth: Depth,
    /// What runs on the nodes.
    pub consumer: Kind,
}

impl Planning {
    /// A Service with what the controller is told.
    pub fn stage(&self, snapshot: &Snapshot, service: &Arc<Service>) -> Stage {
        Stage {
            scene: snapshot.scene(service),
            settings: self.settings.clone(),
            missing_cpu: self.missing_cpu,
        }
    }

    /// Plans one Service.
    ///
    /// # Errors
    /// If an object is not what consumers expect.
    pub fn plan(
        &self,
        snapshot: &Snapshot,
        service: &Arc<Service>,
    ) -> Result<ServicePlan, serde_json::Error> {
        let stage = self.stage(snapshot, service);
        let verdict = stage.judge();
        let view = snapshot.view(service);
        let explanation = explain(&stage, &verdict, &view, (self.depth, self.consumer))?;
        let creates = names::named(service, &verdict.plan, &stage.scene.slices);
        let plan = verdict.plan;
        let names = |slices: Vec<zonewise_slices::plan::SliceName>| {
            slices.into_iter().map(|slice| slice.name.into_string())
        };
        let (mut updates, mut deletes) = (Vec::new(), Vec::new());
        for family in plan.families {
            updates.extend(family.updates);
            deletes.extend(names(family.deletes));
        }
        deletes.extend(names(plan.leftovers));
        let stored = stage.scene.own_slices(&stage.settings);
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
            explanation,
            stored,
        })
    }

    /// Plans Services and hands each plan over, in order. Works on many at once and holds few.
    ///
    /// # Errors
    /// The first of `take`, or if an object is not what consumers expect.
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

/// Enough to keep every core busy, few enough to hold.
const TOGETHER: usize = 256;
