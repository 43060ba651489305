//! Objects in, the documents and screens of the commands out.

use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_explain::environment::Component;
use zonewise_explain::input::{self, Options};
use zonewise_explain::screens::{self, Totals, Width};
use zonewise_explain::{
    Depth, Environment, Matrix, Planner, Prices, ProxyKind, Snapshot, SnapshotBuilder, Tariff,
    explain, matrices, matrices_of_nodes, overview, route_lines, unmanaged,
};
use zonewise_routing::FeatureGates;
use zonewise_slices::service::Service;
use zonewise_slices::settings::{Gate, Settings};
use zonewise_topology::capacity::MissingCpu;

/// A price and an amount of traffic, so that documents contain costs.
pub(crate) const PRICE: f64 = 0.02;
pub(crate) const GB: f64 = 500.0;

/// The objects of a cluster with one Service, `shop/web`, and the settings of the controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) objects: Vec<Value>,
    pub(crate) count_nodes: bool,
    pub(crate) upstream: bool,
    /// The feature gates of the controller that are off.
    pub(crate) gates_off: Vec<&'static str>,
    /// The feature gates of zonewise's proxy that are off, if flags set them.
    pub(crate) proxy_gates_off: Option<Vec<&'static str>>,
    /// What is assumed to run, apart from what the objects show; `None` if all of zonewise runs.
    pub(crate) here: Option<Vec<Component>>,
}

impl Cluster {
    pub(crate) fn of(objects: Vec<Value>) -> Self {
        Self { objects, ..Self::default() }
    }

    /// A cluster from `testdata/truth`.
    pub(crate) fn recorded(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/truth");
        let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
        let mut list: Value = serde_json::from_str(&text).unwrap();
        Self::of(serde_json::from_value(list["items"].take()).unwrap())
    }

    fn missing_cpu(&self) -> MissingCpu {
        if self.count_nodes { MissingCpu::CountNodes } else { MissingCpu::Refuse }
    }

    fn snapshot(&self) -> Snapshot {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": self.objects}).to_string();
        let mut builder = SnapshotBuilder::default();
        let options = Options { keep_json: true };
        input::read("f", list.as_bytes(), &options, &mut |item| builder.add(item), &|_| ())
            .unwrap();
        let (snapshot, remarks) = builder.finish(self.missing_cpu());
        assert!(remarks.faults.is_empty(), "{:?}", remarks.faults);
        snapshot
    }

    fn planner(&self, snapshot: &Snapshot, depth: Depth) -> Planner {
        let mut settings = Settings { upstream: self.upstream, ..Settings::default() };
        for gate in Gate::ALL.into_iter().filter(|gate| self.gates_off.contains(&gate.name())) {
            settings.gates.set(gate, false);
        }
        let missing_cpu = self.missing_cpu();
        let proxy_kind = ProxyKind::Zonewise;
        let environment = Environment::assumed(proxy_kind);
        let mut planner = Planner { settings, missing_cpu, depth, proxy_kind, environment };
        if let Some(assumed) = &self.here {
            planner.observe(snapshot, assumed);
        }
        planner
    }

    /// The feature gates of zonewise's proxy, if flags set them.
    fn proxy_gates(&self) -> Option<FeatureGates> {
        let off = self.proxy_gates_off.as_ref()?;
        let on = |gate: &str| !off.contains(&gate);
        Some(FeatureGates {
            hints: on("hints"),
            node_hints: on("nodeHints"),
            routing_preference: on("preference"),
            shares: on("shares"),
            subsetting: on("subsetting"),
        })
    }

    /// The document of what runs, and its line on screens.
    pub(crate) fn environment(&self) -> (Value, String) {
        let environment = self.planner(&self.snapshot(), Depth::Full).environment;
        let line = screens::environment(&environment, Width::Wide);
        (serde_json::to_value(environment).unwrap(), line)
    }

    /// The document and the screen of `zonewise explain shop/web` for a Service whose slices the
    /// controller does not write.
    pub(crate) fn unmanaged(&self, width: Width) -> (Value, String) {
        let snapshot = self.snapshot();
        let here = self.planner(&snapshot, Depth::Full).environment;
        let told = unmanaged(&snapshot, &Self::service(&snapshot), &here).unwrap();
        (serde_json::to_value(&told).unwrap(), screens::unmanaged(&told, &here, width))
    }

    fn prices() -> Prices {
        Prices { gb: Some(GB), ..Prices::new(Tariff::flat(PRICE)) }
    }

    fn service(snapshot: &Snapshot) -> Arc<Service> {
        Arc::clone(snapshot.services().next().unwrap())
    }

    /// The document and the screen of `zonewise explain shop/web`.
    pub(crate) fn explanation_at(&self, width: Width) -> (Value, String) {
        let snapshot = self.snapshot();
        let planner = self.planner(&snapshot, Depth::Full);
        let service = Self::service(&snapshot);
        let view = planner.controller_view(&snapshot, &service);
        let proxies = snapshot.proxy_view(&service);
        let decision = view.decide();
        let explained = explain(&view, &decision, &proxies, &planner).unwrap();
        let cost = Self::prices().cost(&explained.service, explained.crossing);
        let mut document = serde_json::to_value(&explained).unwrap();
        if let Some(cost) = cost {
            document["cost"] = serde_json::to_value(cost).unwrap();
        }
        (document, screens::explanation(&explained, &planner.environment, width))
    }

    /// The same with everything on the screen.
    pub(crate) fn explanation(&self) -> (Value, String) {
        self.explanation_at(Width::Wide)
    }

    /// The Service's row in the document of `zonewise explain`, and the screen.
    pub(crate) fn overview_at(&self, width: Width) -> (Value, String) {
        let snapshot = self.snapshot();
        let planner = self.planner(&snapshot, Depth::Full);
        let services = [Self::service(&snapshot)];
        let prices = Self::prices();
        let lines = overview(&snapshot, &services, &planner, Some(&prices)).unwrap();
        (
            serde_json::to_value(&lines[0]).unwrap(),
            screens::overview(&lines, &planner.environment, width),
        )
    }

    /// The same with everything on the screen.
    pub(crate) fn overview(&self) -> (Value, String) {
        self.overview_at(Width::Wide)
    }

    /// The Service's part of the document of `zonewise plan`, and its row on the screen.
    pub(crate) fn plan(&self, depth: Depth) -> (Value, Vec<String>) {
        let snapshot = self.snapshot();
        let planner = self.planner(&snapshot, depth);
        let plan = planner.plan(&snapshot, &Self::service(&snapshot)).unwrap();
        (serde_json::to_value(&plan).unwrap(), screens::plan_row(&plan))
    }

    /// The document of `zonewise route --matrix`, and the screens.
    pub(crate) fn matrices_at(&self, width: Width) -> (Value, Vec<String>) {
        let snapshot = self.snapshot();
        let service = Self::service(&snapshot);
        let (proxies, nodes) = (snapshot.proxy_view(&service), snapshot.nodes());
        let all: Vec<Matrix> = match self.proxy_gates() {
            Some(gates) => matrices(&proxies, nodes, &gates).unwrap(),
            None => {
                let here = self.planner(&snapshot, Depth::Full).environment;
                let of_nodes = here.by_node.or(ProxyKind::Zonewise);
                matrices_of_nodes(&proxies, nodes, &service, &of_nodes).unwrap()
            }
        };
        let screens = all.iter().map(|matrix| screens::matrix(matrix, width)).collect();
        (serde_json::to_value(&all).unwrap(), screens)
    }

    /// The same with everything on the screen.
    pub(crate) fn matrices(&self) -> (Value, Vec<String>) {
        self.matrices_at(Width::Wide)
    }

    /// The document of `zonewise route --node NODE`, and the screen.
    pub(crate) fn routes_at(&self, node: &str, width: Width) -> (Value, String) {
        let snapshot = self.snapshot();
        let location = snapshot.location(node).unwrap();
        let service = Self::service(&snapshot);
        let proxies = snapshot.proxy_view(&service);
        let gates = self.proxy_gates().unwrap_or_else(|| {
            let here = self.planner(&snapshot, Depth::Full).environment;
            here.by_node.of(node).unwrap_or_default().gates(&service)
        });
        let lines = route_lines(&proxies, &location, &gates).unwrap();
        (serde_json::to_value(&lines).unwrap(), screens::routes(&lines, width))
    }

    /// The same with everything on the screen.
    pub(crate) fn routes(&self, node: &str) -> (Value, String) {
        self.routes_at(node, Width::Wide)
    }

    /// The screen of `zonewise plan`.
    pub(crate) fn plan_screen(&self, width: Width) -> String {
        let here = self.planner(&self.snapshot(), Depth::Arithmetic).environment;
        let (_, row) = self.plan(Depth::Arithmetic);
        let table = screens::totals(vec![row], &Totals::default(), width);
        format!("{}\n{table}", screens::planned_by(&here, width))
    }

    /// The cluster after the controller has written what it plans. What others write stays.
    pub(crate) fn settled(&self) -> Self {
        let (plan, _) = self.plan(Depth::Arithmetic);
        let list = |key: &str| plan[key].as_array().unwrap().clone();
        let (updates, deletes) = (list("updates"), list("deletes"));
        let name = |object: &Value| object["metadata"]["name"].clone();
        let replaced = |object: &Value| {
            object["kind"] == "EndpointSlice"
                && (deletes.contains(&name(object))
                    || updates.iter().any(|update| name(update) == name(object)))
        };
        let mut settled = self.clone();
        settled.objects.retain(|object| !replaced(object));
        for mut slice in list("creates").into_iter().chain(updates) {
            slice["apiVersion"] = "discovery.k8s.io/v1".into();
            slice["kind"] = "EndpointSlice".into();
            settled.objects.push(slice);
        }
        settled
    }

    /// The cluster without the objects for which `gone` is true.
    pub(crate) fn without(&self, gone: impl Fn(&Value) -> bool) -> Self {
        let mut left = self.clone();
        left.objects.retain(|object| !gone(object));
        left
    }
}

/// Whether an explanation says that zone routing is on.
pub(crate) fn is_on(explanation: &Value) -> bool {
    explanation["outcome"] == "in-force" && explanation["reason"] != "ClusterWide"
}
