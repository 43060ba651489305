//! Explanations agree with the controller: the arithmetic of an explanation gives the reason of the
//! controller's plan, and every suggestion turns zone routing on.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_common::name::Name;
use zonewise_explain::testing::{Change, ControllerView, ServiceSnapshot, suggestions};
use zonewise_explain::{Environment, ProxyKind};
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::pod::Pod;
use zonewise_slices::settings::Settings;
use zonewise_topology::allocation::Allocation;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::heuristic::Case;

/// Cores, ready Pods and Pods that are not ready, of one zone.
type Zone = (u32, usize, usize);

fn node(zone: usize, cpu: u32) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{zone}"), "labels": {"topology.kubernetes.io/zone": format!("z{zone}")}},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn pod(number: usize, zone: usize, ready: bool) -> Arc<Pod> {
    let status = if ready { "True" } else { "False" };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": format!("p{number:04}"), "namespace": "ns", "uid": format!("p{number}"), "labels": {"app": "web"}},
            "spec": {"nodeName": format!("n{zone}")},
            "status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.{}.{}", number / 250, number % 250 + 1)}], "conditions": [{"type": "Ready", "status": status}]},
        }))
        .unwrap(),
    )
}

fn view(asked: &Value, zones: &[Zone]) -> ControllerView {
    let nodes: BTreeMap<Name, Node> = zones
        .iter()
        .enumerate()
        .map(|(zone, (cpu, ..))| node(zone, *cpu))
        .map(|node| (Name::clone(&node.name), node))
        .collect();
    let mut pods = Vec::new();
    for (zone, (_, ready, unready)) in zones.iter().enumerate() {
        for number in 0..ready + unready {
            pods.push(pod(pods.len(), zone, number < *ready));
        }
    }
    let service = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "web", "annotations": asked},
        "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    ControllerView {
        objects: ServiceSnapshot {
            service: Arc::new(serde_json::from_value(service).unwrap()),
            pods,
            slices: Vec::new(),
            nodes: Arc::new(Nodes::new(nodes, MissingCpu::Refuse)),
            shares: None,
            facts: Arc::default(),
            failing: None,
        },
        settings: Settings::default(),
        missing_cpu: MissingCpu::Refuse,
        proxy_service: "{}".into(),
    }
}

fn preferences() -> impl Strategy<Value = Value> {
    let preference = |name: &str| json!({"zonewise.dev/routing-preference": name});
    prop::sample::select(vec![
        json!({}),
        json!({"service.kubernetes.io/topology-mode": "Auto"}),
        json!({"endpointslice.kubernetes.io/subsetting": "Auto"}),
        json!({"endpointslice.kubernetes.io/subsetting": "Require"}),
        preference("Zone"),
        preference("zonewise.dev/same-node"),
        preference("zonewise.dev/balanced"),
        preference("zonewise.dev/local-shared"),
    ])
}

fn zones() -> impl Strategy<Value = Vec<Zone>> {
    prop::collection::vec((1u32..16, 0usize..7, 0usize..2), 1..5)
}

proptest! {
    #[test]
    fn the_arithmetic_gives_the_plan_s_reason(asked in preferences(), zones in zones(), settled in any::<bool>()) {
        let mut view = view(&asked, &zones);
        if settled {
            let plan = view.decide().plan;
            view.objects = view.objects.after(&plan);
        }
        let decision = view.decide();
        let slices = view.objects.own_slices(&view.settings);
        let family = &view.objects.service.families[0];
        let grounds = view.objects.input(&slices, None).grounds(&decision.asked.choice, family);
        let case = Case::following(grounds.situation.region(), grounds.previous.as_ref());
        let reason = decision.asked.choice.heuristic().allocate(&case, &mut Allocation::new());
        prop_assert_eq!(reason.code(), decision.reason().code());
    }

    /// Every suggestion turns zone routing on, whatever the cluster looks like.
    #[test]
    fn every_suggestion_turns_zone_routing_on(asked in preferences(), zones in zones()) {
        let view = view(&asked, &zones);
        for suggestion in suggestions(&view, &Environment::assumed(ProxyKind::Zonewise)) {
            let decision = view.with_all(&suggestion.steps).decide();
            prop_assert!(decision.is_on());
            prop_assert_eq!(decision.reason().code(), suggestion.then);
            let endpoints = suggestion.steps.iter().filter(|step| matches!(step, Change::AddEndpoints { .. }));
            prop_assert!(endpoints.count() <= zones.len() + 1);
        }
    }
}
