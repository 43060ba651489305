//! The 300 recorded sequences of the reference reconciler, in `--compat upstream`.

mod compare;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Store;
use compare::{Step, assert_all, cases, compare};
use serde::Deserialize;
use serde_json::Value;
use zonewise_common::event::{Event, EventType};
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{FamilyPlan, Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

fn read<T: serde::de::DeserializeOwned>(list: &Value) -> Vec<T> {
    list.as_array()
        .map(|list| list.iter().map(|value| T::deserialize(value).unwrap()).collect())
        .unwrap_or_default()
}

fn step(step: &Value, store: &mut Store, populated: &mut bool, max_endpoints: usize) -> Step {
    let settings = Settings { upstream: true, max_endpoints, ..Settings::default() };
    let service = Service::deserialize(&step["service"]).unwrap();
    let mut pods: Vec<Arc<Pod>> = read::<Pod>(&step["pods"]).into_iter().map(Arc::new).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    let nodes: BTreeMap<Name, Node> = read::<Node>(&step["nodes"])
        .into_iter()
        .map(|node| (Name::clone(&node.name), node))
        .collect();
    let slices = store.list();
    let input = Input {
        service: &service,
        pods: &pods,
        slices: &slices,
        nodes: &Nodes::new(nodes, MissingCpu::Refuse),
        measured: None,
        trigger: None,
        populated: *populated,
        quiet: false,
    };
    let plan = plan(&input, &requested_routing(&service, &settings), &settings);
    *populated = plan.populated;
    store.run(&plan);
    told(&plan, store)
}

fn told(plan: &Plan, store: &Store) -> Step {
    let sum = |of: fn(&FamilyPlan) -> usize| plan.families.iter().map(of).sum::<usize>();
    let kind = |kind| if kind == EventType::Normal { "Normal" } else { "Warning" };
    let event = |event: &Event| format!("{} {} {}", kind(event.kind), event.reason, event.message);
    Step {
        slices: store.list().iter().map(|slice| serde_json::to_value(slice).unwrap()).collect(),
        writes: [
            sum(|family| family.creates.len()),
            sum(|family| family.updates.len()),
            sum(|family| family.deletes.len()) + plan.leftovers.len(),
        ],
        events: plan.events.iter().map(event).collect(),
        error: plan.families.iter().any(|family| !family.missing_nodes.is_empty()),
    }
}

#[test]
fn recorded_sequences_end_as_recorded() {
    let run = |case: &Value| {
        let max = case["maxEndpointsPerSlice"].as_u64().unwrap() as usize;
        let (mut store, mut populated) = (Store::default(), false);
        let steps = case["steps"].as_array().unwrap();
        let ours = steps.iter().map(|each| step(each, &mut store, &mut populated, max));
        compare(case, ours.collect())
    };
    assert_all(&cases().iter().map(run).collect::<Vec<_>>());
}
