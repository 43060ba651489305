//! What was seen of a cluster, before anything is concluded from it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use zonewise_common::keys::{METADATA_NAME, SERVICE_NAME};
use zonewise_common::name::{CONTROLLER_NAME, PROXY_NAME, SYSTEM_NAMESPACE};
use zonewise_common::proxy_report::ProxyReport;
use zonewise_inventory::evacuation::StoredEvacuation;
use zonewise_inventory::guard::POLICY;
use zonewise_slices::guard::ZoneAllocation;
use zonewise_slices::node::Node;

use crate::environment::{Facts, Sight};

/// The label that names a program of zonewise on its Pods.
pub const WORKLOAD_NAME: &str = "app.kubernetes.io/name";

/// What was seen of a cluster.
#[derive(Clone, Debug)]
pub struct Sights {
    /// Leases, Pods and settings that show which programs run.
    pub facts: Facts,
    /// The time by this machine's clock, and by the API server's, at the same moment.
    pub clocks: Option<(Timestamp, Timestamp)>,
    /// The nodes.
    pub nodes: Sight<Vec<NodeSight>>,
    /// All DaemonSets.
    pub daemon_sets: Sight<Vec<WorkloadSight>>,
    /// The Deployments of `zonewise-system`.
    pub deployments: Sight<Vec<WorkloadSight>>,
    /// The Pods of `zonewise-system`.
    pub own_pods: Sight<Vec<PodSight>>,
    /// The Pods of kube-proxy and Cilium, and of kube-controller-manager.
    pub system_pods: Sight<Vec<PodSight>>,
    /// The labels of the namespace `zonewise-system`; `None` if it does not exist.
    pub namespace: Sight<Option<BTreeMap<String, String>>>,
    /// What the proxies report.
    pub reports: Sight<Vec<ProxyReport>>,
    /// When the controller that leads became the leader.
    pub leading_since: Option<Timestamp>,
    /// Who has written EndpointSlices, and when; of some of them.
    pub writes: Sight<Vec<SliceWrite>>,
    /// Services with a key that only zonewise's controller understands.
    pub asking: Sight<Vec<String>>,
    /// Services whose endpoints are to count by the CPU that they use.
    pub asking_by_use: Sight<Vec<String>>,
    /// What guard mode has in the API server.
    pub guard: Sight<GuardSight>,
    /// Zones that are being emptied, or were; none if that is not known.
    pub evacuations: Vec<StoredEvacuation>,
    /// The ClusterRoleBindings of zonewise's programs that exist.
    pub bindings: Sight<Vec<&'static str>>,
    /// What the user may do.
    pub rights: Vec<Right>,
}

impl Sights {
    /// The nodes that were seen.
    pub(super) fn nodes(&self) -> &[NodeSight] {
        self.nodes.seen().map_or(&[], Vec::as_slice)
    }

    /// A program of zonewise by its name.
    pub(super) fn own(&self, kind: WorkloadKind, name: &str) -> Option<&WorkloadSight> {
        let all = match kind {
            WorkloadKind::Deployment => &self.deployments,
            WorkloadKind::DaemonSet => &self.daemon_sets,
        };
        all.seen()?.iter().find(|one| one.is(OWN, name))
    }

    pub(super) fn controller(&self) -> Option<&WorkloadSight> {
        self.own(WorkloadKind::Deployment, CONTROLLER_NAME)
    }

    pub(super) fn proxy(&self) -> Option<&WorkloadSight> {
        self.own(WorkloadKind::DaemonSet, PROXY_NAME)
    }
}

const OWN: &str = SYSTEM_NAMESPACE;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSight {
    /// Its zone, CPU and readiness.
    pub node: Node,
    /// The version of its kernel.
    pub kernel: String,
    /// Whether it runs Linux.
    pub linux: bool,
}

impl NodeSight {
    /// The node in an object; `None` if it is none.
    pub fn of(value: &Value) -> Option<Self> {
        let info = &value["status"]["nodeInfo"];
        Some(Self {
            node: serde_json::from_value(value.clone()).ok()?,
            kernel: text(&info["kernelVersion"]),
            // Test clusters without kubelets do not say.
            linux: !matches!(info["operatingSystem"].as_str(), Some("windows")),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.node.name
    }
}

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A DaemonSet.
    DaemonSet,
}

/// A Deployment or DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadSight {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The image of its first container.
    pub image: String,
    /// The arguments of its first container.
    pub arguments: Vec<String>,
    /// The alternatives of nodes that its affinity requires.
    pub node_terms: Vec<Value>,
    /// Pods that it should have.
    pub desired: u64,
    /// Pods that exist.
    pub current: u64,
    /// Pods of the current version.
    pub updated: u64,
    /// Pods that are ready.
    pub ready: u64,
}

impl WorkloadSight {
    /// The workload in an object.
    pub fn of(kind: WorkloadKind, value: &Value) -> Self {
        let spec = &value["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let required =
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let status = |field: &str| value["status"][field].as_u64().unwrap_or(0);
        let (desired, current, updated, ready) = match kind {
            WorkloadKind::Deployment => (
                value["spec"]["replicas"].as_u64().unwrap_or(1),
                status("replicas"),
                status("updatedReplicas"),
                status("readyReplicas"),
            ),
            WorkloadKind::DaemonSet => (
                status("desiredNumberScheduled"),
                status("currentNumberScheduled"),
                status("updatedNumberScheduled"),
                status("numberReady"),
            ),
        };
        Self {
            namespace: text(&value["metadata"]["namespace"]),
            name: text(&value["metadata"]["name"]),
            image: text(&container["image"]),
            arguments: texts(&container["args"]),
            node_terms: required["nodeSelectorTerms"].as_array().cloned().unwrap_or_default(),
            desired,
            current,
            updated,
            ready,
        }
    }

    /// Whether it is the one of this namespace and name.
    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    /// The value of an argument `--name=value`.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSight {
    /// Its namespace and name.
    pub key: (String, String),
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its node.
    pub node: String,
    /// The image of its first container.
    pub image: String,
    /// The command and arguments of its first container.
    pub command: Vec<String>,
    /// Whether it is ready.
    pub ready: bool,
    /// Why a container waits, such as `ImagePullBackOff`, with the message.
    pub waiting: Option<(String, String)>,
}

impl PodSight {
    /// The Pod in an object.
    pub fn of(value: &Value) -> Self {
        let (spec, status) = (&value["spec"], &value["status"]);
        let container = &spec["containers"][0];
        let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        let containers = |field: &str| status[field].as_array().into_iter().flatten().cloned();
        let waiting = containers("initContainerStatuses")
            .chain(containers("containerStatuses"))
            .find_map(|one| {
                let waiting = &one["state"]["waiting"];
                Some((waiting["reason"].as_str()?.to_owned(), text(&waiting["message"])))
            });
        Self {
            key: (text(&value["metadata"]["namespace"]), text(&value["metadata"]["name"])),
            labels: serde_json::from_value(value["metadata"]["labels"].clone()).unwrap_or_default(),
            node: text(&spec["nodeName"]),
            image: text(&container["image"]),
            command: [texts(&container["command"]), texts(&container["args"])].concat(),
            ready: status["conditions"].as_array().is_some_and(|all| all.iter().any(ready)),
            waiting,
        }
    }

    pub(super) fn has(&self, label: &str, value: &str) -> bool {
        self.labels.get(label).is_some_and(|found| found == value)
    }

    /// The tag of its image.
    pub(super) fn version(&self) -> &str {
        tag(&self.image)
    }
}

/// The tag of an image, or its digest.
pub(super) fn tag(image: &str) -> &str {
    if let Some((_, digest)) = image.split_once('@') {
        return digest;
    }
    // A colon before the last slash is that of a port.
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').map_or("latest", |(_, tag)| tag)
}

/// A write to an EndpointSlice, as its managed fields record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceWrite {
    /// Namespace and name of the slice.
    pub slice: String,
    /// The program that wrote.
    pub manager: String,
    /// When it wrote last.
    pub time: Timestamp,
}

impl SliceWrite {
    /// The writes to a slice.
    pub fn of(slice: &Value) -> Vec<Self> {
        let metadata = &slice["metadata"];
        let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
        let one = |entry: &Value| {
            Some(Self {
                slice: name.clone(),
                manager: entry["manager"].as_str()?.to_owned(),
                time: entry["time"].as_str()?.parse().ok()?,
            })
        };
        metadata["managedFields"].as_array().into_iter().flatten().filter_map(one).collect()
    }
}

/// What guard mode has in the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardSight {
    /// The ZoneAllocations by which the policy changes hints, as namespace and name; `None` if the API server does not
    /// know the kind.
    pub allocations: Option<Vec<(String, String)>>,
    /// The `failurePolicy` of the admission policy; `None` if there is none.
    pub policy: Option<String>,
    /// The names of Services that the policy is bound to.
    pub bound: Vec<String>,
    /// The webhook, which takes the policy's place.
    pub webhook: Option<WebhookSight>,
}

/// The webhook of guard mode, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSight {
    /// What becomes of a write when it does not answer.
    pub failure_policy: String,
    /// The names of Services that it selects.
    pub names: Vec<String>,
    /// The namespaces that it selects; `None` for all.
    pub namespaces: Option<Vec<String>>,
}

impl WebhookSight {
    /// What a configuration says. Without a Service there is nothing to select.
    pub fn of(configuration: &Value) -> Self {
        let Some(webhook) = configuration["webhooks"].get(0) else {
            return Self {
                failure_policy: "Ignore".to_owned(),
                names: Vec::new(),
                namespaces: None,
            };
        };
        let selected = |selector: &str, key: &str| {
            let expressions = webhook[selector]["matchExpressions"].as_array();
            let mut expressions = expressions.into_iter().flatten();
            let found = expressions.find(|one| one["key"] == key && one["operator"] == "In");
            found.map(|one| texts(&one["values"]))
        };
        Self {
            failure_policy: webhook["failurePolicy"].as_str().unwrap_or("Fail").to_owned(),
            names: selected("objectSelector", SERVICE_NAME).unwrap_or_default(),
            namespaces: selected("namespaceSelector", METADATA_NAME),
        }
    }

    fn selects(&self, namespace: &str, name: &str) -> bool {
        let is_in = |spaces: &Vec<String>| spaces.iter().any(|space| space == namespace);
        let is_named = self.names.iter().any(|one| one == name);
        is_named && self.namespaces.as_ref().is_none_or(is_in)
    }
}

impl GuardSight {
    /// The ZoneAllocation in an object; `None` if it only notes a floor, which needs no policy.
    pub fn allocation(value: &Value) -> Option<(String, String)> {
        let spec = ZoneAllocation::deserialize(&value["spec"]).unwrap_or_default();
        let metadata = &value["metadata"];
        spec.has_effect().then(|| (text(&metadata["namespace"]), text(&metadata["name"])))
    }

    /// What a policy does with a write that it fails on; without a word of its own, it is refused.
    pub fn failure_policy(policy: &Value) -> String {
        policy["spec"]["failurePolicy"].as_str().unwrap_or("Fail").to_owned()
    }

    /// Whether hints are put into the slices of a Service.
    pub(super) fn has(&self, namespace: &str, name: &str) -> bool {
        let by_policy = self.policy.is_some() && self.bound.iter().any(|one| one == name);
        by_policy || self.webhook.as_ref().is_some_and(|webhook| webhook.selects(namespace, name))
    }

    /// The name of the Services that a binding is for; `None` if it is that of another policy.
    pub fn bound(binding: &Value) -> Option<String> {
        let spec = &binding["spec"];
        (spec["policyName"] == POLICY).then(|| text(&spec["paramRef"]["name"]))
    }
}

/// Something that the user may do, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The namespace; empty for all.
    pub namespace: &'static str,
    /// What cannot be done without it.
    pub purpose: &'static str,
    /// Whether the user may; `None` if the API server did not say.
    pub allowed: Option<bool>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_tag_of_an_image_is_what_follows_its_name() {
        for (image, expected) in [
            ("zonewise:0.1.0", "0.1.0"),
            ("host:5000/team/zonewise:0.2.0", "0.2.0"),
            ("host:5000/team/zonewise", "latest"),
            ("zonewise@sha256:ab", "sha256:ab"),
        ] {
            assert_eq!(tag(image), expected);
        }
    }

    #[test]
    fn arguments_are_found_by_their_whole_name() {
        let arguments = ["proxy", "--proxy-name=zonewise", "--log-level=info"];
        let one = WorkloadSight {
            arguments: arguments.map(str::to_owned).to_vec(),
            ..WorkloadSight::default()
        };
        assert_eq!(one.argument("--proxy-name"), Some("zonewise"));
        assert_eq!(one.argument("--log"), None);
    }

    #[test]
    fn a_webhook_selects_the_names_and_namespaces_in_its_configuration() {
        let selector = |key: &str, operator: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        let names = selector(SERVICE_NAME, "In", json!(["api", "web"]));
        let space = "kubernetes.io/metadata.name";
        let with = |spaces: Value| json!({ "webhooks": [{ "failurePolicy": "Ignore", "objectSelector": names, "namespaceSelector": spaces }] });
        let of = |failure_policy: &str, names: &[&str], namespaces: Option<&[&str]>| {
            let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
            WebhookSight {
                failure_policy: failure_policy.to_owned(),
                names: texts(names),
                namespaces: namespaces.map(texts),
            }
        };
        let both = ["api", "web"];
        let rows = [
            (json!({}), of("Ignore", &[], None)),
            (json!({ "webhooks": [] }), of("Ignore", &[], None)),
            (json!({ "webhooks": [{}] }), of("Fail", &[], None)),
            (with(Value::Null), of("Ignore", &both, None)),
            (with(selector(space, "In", json!(["shop"]))), of("Ignore", &both, Some(&["shop"]))),
            (with(selector(space, "NotIn", json!(["zonewise-system"]))), of("Ignore", &both, None)),
        ];
        for (configuration, expected) in rows {
            assert_eq!(WebhookSight::of(&configuration), expected, "{configuration}");
        }
    }

    #[test]
    fn a_service_has_its_hints_from_the_policy_or_the_webhook() {
        let webhook = |namespaces: Option<&str>| {
            let namespaces = namespaces.map(|space| vec![space.to_owned()]);
            let names = vec!["web".to_owned()];
            Some(WebhookSight { failure_policy: "Ignore".into(), names, namespaces })
        };
        let policy = || Some("Ignore".to_owned());
        let rows = [
            (policy(), vec!["web".to_owned()], None, true),
            (policy(), Vec::new(), None, false),
            (None, vec!["web".to_owned()], None, false),
            (None, Vec::new(), webhook(None), true),
            (None, Vec::new(), webhook(Some("shop")), true),
            (None, Vec::new(), webhook(Some("bank")), false),
            (policy(), Vec::new(), webhook(Some("shop")), true),
        ];
        for (policy, bound, webhook, expected) in rows {
            let sight = GuardSight { policy, bound, webhook, ..GuardSight::default() };
            assert_eq!(sight.has("shop", "web"), expected, "{sight:?}");
        }
    }

    #[test]
    fn an_allocation_that_only_notes_a_floor_needs_no_binding() {
        let seen = |spec: Value| {
            let metadata = json!({ "namespace": "shop", "name": "web" });
            GuardSight::allocation(&json!({ "metadata": metadata, "spec": spec })).is_some()
        };
        assert!(seen(json!({ "others": "OwnZone" })));
        assert!(seen(json!({ "others": "AsWritten", "endpoints": { "10.0.0.1": "a" } })));
        assert!(!seen(json!({ "others": "AsWritten", "floor": "PreferSameNode" })));
    }
}
