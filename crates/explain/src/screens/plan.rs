//! The screen of `zonewise plan`.

use std::collections::BTreeMap;

use zonewise_slices::slice::Slice;
use zonewise_topology::reason::{Code, Outcome};

use super::table::{HINTS, fitted};
use super::{Width, clean, counted, outcome, paint};
use crate::plan::ServicePlan;

const HEADER: [&str; 7] = ["SERVICE", "REASON", "OUTCOME", "ENDPOINTS", "SLICES", "WRITES", HINTS];

/// Sums over all Services of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of Services.
    pub services: usize,
    /// Slices to create.
    pub creates: usize,
    /// Slices to update.
    pub updates: usize,
    /// Slices to delete.
    pub deletes: usize,
    /// In guard mode: the ZoneAllocations, which stand in place of the writes of slices.
    pub allocations: Option<usize>,
}

impl Totals {
    /// Adds a Service.
    pub fn add(&mut self, plan: &ServicePlan) {
        self.services += 1;
        self.creates += plan.creates.len();
        self.updates += plan.updates.len();
        self.deletes += plan.deletes.len();
        if plan.guard {
            *self.allocations.get_or_insert_default() += usize::from(plan.allocation.is_some());
        }
    }
}

/// The row of a Service.
pub fn plan_row(plan: &ServicePlan) -> Vec<String> {
    let numbers = &plan.explanation.numbers;
    let slices = plan.creates.len() + plan.updates.len() + plan.unchanged.len();
    // No proxy does anything with the decision about a Service that zone routing cannot apply to.
    let [reason, outcome] = match plan.explanation.service_kind.remark() {
        Some(remark) => [remark.into(), "-".into()],
        // That every zone uses every endpoint is what was asked for, but it is no zone routing.
        None if numbers.reason == Code::ClusterWide => {
            [numbers.reason.to_string(), Outcome::Fallback.word().into()]
        }
        None => [numbers.reason.to_string(), outcome(numbers.outcome).1.into()],
    };
    vec![
        plan.service.clone(),
        reason,
        outcome,
        numbers.endpoints.to_string(),
        slices.to_string(),
        writes(plan),
        hints(plan),
    ]
}

/// Creates, updates and deletes of slices: `+1 ~2 -0`; in guard mode, whether there is a ZoneAllocation. What is written once the Service is quiet is marked.
fn writes(plan: &ServicePlan) -> String {
    let settled = if plan.settled { " when quiet" } else { "" };
    if plan.guard && plan.allocation.is_some() {
        return format!("ZoneAllocation{settled}");
    }
    if plan.guard {
        return "none".into();
    }
    match (plan.creates.len(), plan.updates.len(), plan.deletes.len()) {
        (0, 0, 0) => "none".into(),
        (creates, updates, deletes) => format!("+{creates} ~{updates} -{deletes}{settled}"),
    }
}

/// A comment for diffs and YAML that marks the settled state; empty if everything is written at once.
pub(super) fn settled_comment(plan: &ServicePlan) -> String {
    if !plan.settled {
        return String::new();
    }
    let service = clean(&plan.service);
    format!(
        "# {service}: settled state, a part of it is written when the Service has been quiet for a while\n"
    )
}

/// The number of endpoints hinted to each zone once the plan is carried out.
fn hints(plan: &ServicePlan) -> String {
    let unchanged = plan
        .stored
        .iter()
        .map(|slice| &**slice)
        .filter(|slice| plan.unchanged.iter().any(|name| name == slice.name()));
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in plan.creates.iter().chain(&plan.updates).chain(unchanged) {
        add(slice, &mut zones);
    }
    let parts: Vec<String> = zones.iter().map(|(zone, count)| format!("{zone}:{count}")).collect();
    if parts.is_empty() { "-".into() } else { parts.join(" ") }
}

fn add<'a>(slice: &'a Slice, zones: &mut BTreeMap<&'a str, usize>) {
    for zone in slice.endpoints.iter().flat_map(|endpoint| endpoint.zone_hints()) {
        *zones.entry(zone).or_default() += 1;
    }
}

/// The table and its last line.
pub fn totals(rows: Vec<Vec<String>>, totals: &Totals, width: Width) -> String {
    let services = counted(totals.services, "Service");
    let sum = match totals.allocations {
        Some(allocations) => format!("{services}: {}", counted(allocations, "ZoneAllocation")),
        None => format!(
            "{services}: {} to create, {} to update, {} to delete",
            totals.creates, totals.updates, totals.deletes
        ),
    };
    if rows.is_empty() {
        return format!("{sum}\n");
    }
    format!("{}\n\n{}\n", fitted(&HEADER, 3, rows, width), paint(super::BOLD, &sum))
}
