//! Services: the fields that are used, and the annotations that request routing.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::keys::CONDITION_PREFIX;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};
use zonewise_common::time::Seconds;

use crate::labels::Labels;
use crate::routing_keys::{is_misspelt, is_routing_key};
use crate::slice::{AddressType, Owner, Protocol};

/// The fields of a Service that are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Service {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its unique id.
    pub uid: Uid,
    /// When it was created, in seconds since 1970.
    pub created: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations that request routing, and those whose keys look like it.
    pub annotations: Labels,
    /// Its selector; `None` if it is absent or empty.
    pub selector: Option<Labels>,
    /// Whether its type is ExternalName.
    pub external_name: bool,
    /// Whether it has no cluster IP.
    pub headless: bool,
    /// The address families of its slices, IPv4 first.
    pub families: Vec<AddressType>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
    /// `spec.publishNotReadyAddresses`: endpoints count as ready even if their Pods are not.
    pub publish_not_ready: bool,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<Box<str>>,
    /// Whether the internal or the external traffic policy is Local.
    pub local_policy: bool,
    /// Whether the internal traffic policy is Local: clients use the endpoints of their own node only.
    pub own_node_only: bool,
    /// Whether a client stays with its endpoint (`sessionAffinity: ClientIP`).
    pub session_affinity: bool,
    /// Whether it carries `spec.topologyKeys`, a field that the API no longer has.
    pub topology_keys: bool,
    /// Our conditions, as stored.
    pub conditions: Box<[Condition]>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// The application protocol.
    pub app_protocol: Option<Name>,
    /// The port of the Pods that it leads to.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// The condition's type.
    #[serde(deserialize_with = "lenient")]
    pub r#type: Box<str>,
    /// True, False or Unknown.
    #[serde(deserialize_with = "lenient")]
    pub status: Box<str>,
    /// A reason code (docs/reasons.md).
    #[serde(deserialize_with = "lenient")]
    pub reason: Box<str>,
    /// The explanation for people.
    #[serde(deserialize_with = "lenient")]
    pub message: Box<str>,
    /// When `status` last changed. The API server writes a time of zero as `null`.
    #[serde(rename = "lastTransitionTime", deserialize_with = "lenient")]
    pub since: Box<str>,
}

impl Service {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the controller writes slices for it: it has a selector and is not an ExternalName. Slices
    /// of Services without a selector are made by people or other controllers.
    pub fn is_ours(&self) -> bool {
        !self.external_name && self.selector.is_some()
    }

    /// The owner reference of its slices.
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
    #[serde(deserialize_with = "lenient")]
    name: Name,
    namespace: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    uid: Uid,
    #[serde(deserialize_with = "lenient")]
    labels: Labels,
    #[serde(deserialize_with = "lenient")]
    annotations: Labels,
    #[serde(deserialize_with = "lenient")]
    creation_timestamp: Seconds,
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
    session_affinity: Option<Box<str>>,
    topology_keys: Option<Vec<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    name: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    protocol: Protocol,
    app_protocol: Option<Name>,
    #[serde(deserialize_with = "lenient")]
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
            own_node_only: is_local(&spec.internal_traffic_policy),
            session_affinity: spec.session_affinity.as_deref() == Some("ClientIP"),
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
            created: metadata.creation_timestamp.0,
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            annotations: metadata.annotations.retain(|key| is_routing_key(key) || is_misspelt(key)),
        }
    }
}

/// The address families, IPv4 first whatever their order in `ipFamilies`. Without that field (API
/// servers older than dual stack) the family of the cluster IP; without a cluster IP, both.
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
