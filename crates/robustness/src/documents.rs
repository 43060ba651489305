//! What `zonewise plan` and `zonewise explain` say of the cluster at rest is what has been written.

use serde_json::{Value, json};
use zonewise_common::keys::CONDITION_PREFIX;
use zonewise_explain::input::{self, Options};
use zonewise_explain::{
    Depth, Environment, Planner, ProxyKind, ServicePlan, Snapshot, SnapshotBuilder,
};
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

use crate::wire::Wire;

/// The kinds that the commands read.
const KINDS: [(&str, &str, &str); 4] = [
    ("v1", "Node", "/api/v1/nodes"),
    ("v1", "Pod", "/api/v1/pods"),
    ("v1", "Service", "/api/v1/services"),
    ("discovery.k8s.io/v1", "EndpointSlice", "/apis/discovery.k8s.io/v1/endpointslices"),
];

/// The first thing that the commands say otherwise.
pub(crate) async fn problem(wire: &Wire) -> Option<String> {
    let objects = objects(wire).await;
    let snapshot = snapshot(&objects);
    let planner = Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::default(),
        depth: Depth::Arithmetic,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    };
    let ours = snapshot.services().filter(|service| service.is_ours());
    for service in ours {
        let plan = match planner.plan(&snapshot, service) {
            Ok(plan) => plan,
            Err(error) => return Some(format!("{} cannot be planned: {error}", service.key())),
        };
        let problem = unwritten(&plan).or_else(|| wrong_condition(&plan, &objects));
        if let Some(problem) = problem {
            return Some(format!("{}: {problem}", plan.service));
        }
    }
    None
}

async fn objects(wire: &Wire) -> Vec<Value> {
    let mut objects = Vec::new();
    for (version, kind, path) in KINDS {
        for mut object in wire.list(path).await {
            (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
            objects.push(object);
        }
    }
    objects
}

fn snapshot(objects: &[Value]) -> Snapshot {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut builder = SnapshotBuilder::default();
    let options = Options { keep_json: false };
    input::read("cluster", list.as_bytes(), &options, &mut |item| builder.add(item), &|_| ())
        .expect("the server's objects can be read");
    builder.finish(MissingCpu::default()).0
}

/// What the plan would still write.
fn unwritten(plan: &ServicePlan) -> Option<String> {
    let names = |slices: &[zonewise_slices::slice::Slice]| -> Vec<String> {
        slices.iter().map(|slice| slice.name().to_owned()).collect()
    };
    let (creates, updates) = (names(&plan.creates), names(&plan.updates));
    let nothing = creates.is_empty() && updates.is_empty() && plan.deletes.is_empty();
    (!nothing).then(|| {
        format!(
            "the plan would create {creates:?}, update {updates:?} and delete {:?}",
            plan.deletes
        )
    })
}

/// The condition `Programmed` has the reason that the explanation has. It does not tell apart whether hints and
/// subsets are new or were kept.
fn wrong_condition(plan: &ServicePlan, objects: &[Value]) -> Option<String> {
    let service = objects.iter().find(|object| {
        let [namespace, name] =
            ["namespace", "name"].map(|key| object["metadata"][key].as_str().unwrap_or_default());
        object["kind"] == "Service" && format!("{namespace}/{name}") == plan.service
    })?;
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let conditions = service["status"]["conditions"].as_array()?;
    let programmed = conditions.iter().find(|condition| condition["type"] == *kind)?;
    let code = json!(plan.explanation.numbers.reason);
    let explained = code.as_str().unwrap_or_default().replace("Kept", "Assigned");
    (programmed["reason"] != explained.as_str())
        .then(|| format!("the condition says {}, explain {explained}", programmed["reason"]))
}
