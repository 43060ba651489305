//! Services: what is to be routed, and how its owner asks for it.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::keys::{
    CONDITION_PREFIX, PADDING, ROUTING_PREFERENCE, STARTING_THRESHOLD, SUBSETTING,
    TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE,
};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};
use zonewise_common::time::seconds;

use crate::labels::Labels;
use crate::slice::{AddressType, Owner, Protocol};

/// The annotations that are kept in memory.
const READ: [&str; 6] = [
    TOPOLOGY_MODE,
    TOPOLOGY_AWARE_HINTS,
    SUBSETTING,
    ROUTING_PREFERENCE,
    STARTING_THRESHOLD,
    PADDING,
];

/// What matters of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Service {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its unique id.
    pub uid: Uid,
    /// When it was created.
    pub created: Option<i64>,
    /// It is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations, those we read.
    pub annotations: Labels,
    /// Its selector; `None` when there is none.
    pub selector: Option<Labels>,
    /// It is of type ExternalName.
    pub external_name: bool,
    /// It has no cluster IP.
    pub headless: bool,
    /// Address families it is served in.
    pub families: Vec<AddressType>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
    /// Endpoints count as ready whether they are or not.
    pub publish_not_ready: bool,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<Box<str>>,
    /// The internal or external traffic policy is Local.
    pub local_policy: bool,
    /// It still carries `spec.topologyKeys`, which the API has dropped.
    pub topology_keys: bool,
    /// Our conditions as they stand.
    pub conditions: Box<[Condition]>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// What is spoken on it.
    pub app_protocol: Option<Name>,
    /// Where it leads.
    pub target: TargetPort,
}

/// The port of a Pod that a Service port leads to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// A number.
    Number(i32),
    /// The name of a container port.
    Name(Name),
}

/// One of our conditions on a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Condition {
    /// What it is about.
    pub r#type: Box<str>,
    /// True, False or Unknown.
    pub status: Box<str>,
    /// A code of the table of reasons.
    #[serde(default)]
    pub reason: Box<str>,
    /// The sentence of that code.
    #[serde(default)]
    pub message: Box<str>,
    /// When `status` last changed.
    #[serde(default, rename = "lastTransitionTime")]
    pub since: Box<str>,
}

impl Service {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether we write slices for it at all.
    pub fn is_ours(&self) -> bool {
        !self.external_name && self.selector.is_some()
    }

    /// The owner its slices name.
    pub fn owner(&self) -> Arc<[Owner]> {
        Arc::new([Owner {
            api_version: "v1".into(),
            kind: "Service".into(),
            name: Name::clone(&self.name),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }])
    }
}

impl Keyed for Service {
    fn key(&self) -> Key {
        (Name::clone(&self.namespace), Name::clone(&self.name))
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: ServiceMeta,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceMeta {
    name: Name,
    namespace: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    uid: Uid,
    #[serde(deserialize_with = "lenient")]
    labels: Labels,
    #[serde(deserialize_with = "lenient")]
    annotations: Labels,
    creation_timestamp: Option<Box<str>>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    r#type: Option<Box<str>>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<Box<str>>,
    #[serde(deserialize_with = "lenient")]
    ip_families: Vec<AddressType>,
    #[serde(deserialize_with = "lenient")]
    ports: Vec<WirePort>,
    selector: Option<Labels>,
    #[serde(deserialize_with = "lenient")]
    publish_not_ready_addresses: bool,
    traffic_distribution: Option<Box<str>>,
    internal_traffic_policy: Option<Box<str>>,
    external_traffic_policy: Option<Box<str>>,
    topology_keys: Option<Vec<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    name: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    protocol: Protocol,
    app_protocol: Option<Name>,
    port: i32,
    target_port: Option<TargetPort>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "lenient")]
    conditions: Vec<Condition>,
}

impl From<Wire> for Service {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        let is_local = |policy: &Option<Box<str>>| policy.as_deref() == Some("Local");
        let ours = |condition: &Condition| condition.r#type.starts_with(CONDITION_PREFIX);
        Self {
            families: families(&spec),
            headless: matches!(spec.cluster_ip.as_deref(), None | Some("" | "None")),
            local_policy: is_local(&spec.internal_traffic_policy)
                || is_local(&spec.external_traffic_policy),
            external_name: spec.r#type.as_deref() == Some("ExternalName"),
            selector: spec.selector.filter(|selector| !selector.is_empty()),
            ports: spec.ports.into_iter().map(ServicePort::from).collect(),
            publish_not_ready: spec.publish_not_ready_addresses,
            traffic_distribution: spec.traffic_distribution,
            topology_keys: spec.topology_keys.is_some_and(|keys| !keys.is_empty()),
            conditions: status.conditions.into_iter().filter(ours).collect(),
            namespace: metadata.namespace.unwrap_or_else(|| "".into()),
            name: metadata.name,
            uid: metadata.uid,
            created: seconds(metadata.creation_timestamp.as_deref()),
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            annotations: metadata.annotations.retain(|key| READ.contains(&key)),
        }
    }
}

/// IPv4 before IPv6, whatever the order they are listed in. Without a list (API servers of before
/// dual stack) the cluster IP tells; without that, both.
fn families(spec: &Spec) -> Vec<AddressType> {
    let both = [AddressType::IPv4, AddressType::IPv6];
    let listed = |family: &AddressType| spec.ip_families.contains(family);
    if both.iter().any(listed) {
        return both.into_iter().filter(listed).collect();
    }
    let cluster_ip = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    cluster_ip.map_or_else(|| both.to_vec(), |ip| vec![AddressType::of(&ip)])
}

impl From<WirePort> for ServicePort {
    fn from(wire: WirePort) -> Self {
        let unset = |target: &TargetPort| match target {
            TargetPort::Number(number) => *number == 0,
            TargetPort::Name(name) => name.is_empty(),
        };
        Self {
            name: wire.name.unwrap_or_else(|| "".into()),
            protocol: wire.protocol,
            app_protocol: wire.app_protocol,
            target: wire
                .target_port
                .filter(|target| !unset(target))
                .unwrap_or(TargetPort::Number(wire.port)),
        }
    }
}
