//! The Node object of this node.

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::cidr::Cidr;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::keys::{REGION, ZONE};
use zonewise_common::lenient::lenient;
use zonewise_common::name::Name;
use zonewise_routing::NodeLocation;

use crate::health::is_eligible;

/// What the proxy needs of this node's Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    /// Its name.
    pub name: Name,
    /// Its unique id.
    pub uid: String,
    /// Its zone.
    pub zone: Option<Name>,
    /// Its region.
    pub region: Option<Name>,
    /// `status.addresses`: pairs of type and address.
    pub addresses: Vec<(String, String)>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<Cidr>,
    /// Whether load balancers may send traffic to it, see [`is_eligible`].
    pub eligible: bool,
}

impl NodeInfo {
    /// Where it is: its name, zone and region.
    pub(crate) fn location(&self) -> NodeLocation {
        NodeLocation::new(&self.name, self.zone.as_deref(), self.region.as_deref())
    }

    /// This version of the node, with the addresses and Pod CIDRs of the version before where it has
    /// none: a node that registers anew gets them a moment later, and rules must not change twice.
    #[must_use]
    pub(crate) fn following(mut self, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        if self.addresses.is_empty() {
            self.addresses = before.addresses;
        }
        if self.pod_cidrs.is_empty() {
            self.pod_cidrs = before.pod_cidrs;
        }
        self
    }

    /// Reads the object.
    pub(crate) fn read(node: Encoded<'_>) -> Result<Self, DecodeError> {
        node.decode::<Wire>().map(Self::from)
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Name,
    #[serde(default, deserialize_with = "lenient")]
    uid: String,
    labels: Option<std::collections::BTreeMap<String, Option<Name>>>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize)]
struct Taint {
    #[serde(default, deserialize_with = "lenient")]
    key: String,
}

#[derive(Deserialize)]
struct Status {
    addresses: Option<Vec<Address>>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default, deserialize_with = "lenient")]
    r#type: String,
    #[serde(default, deserialize_with = "lenient")]
    address: String,
}

impl From<Wire> for NodeInfo {
    fn from(wire: Wire) -> Self {
        let label = |key: &str| {
            let labels = wire.metadata.labels.as_ref();
            let value = labels.and_then(|labels| labels.get(key)?.clone());
            value.filter(|value| !value.is_empty())
        };
        let addresses = wire.status.and_then(|status| status.addresses).unwrap_or_default();
        let (cidrs, taints) = wire.spec.map_or_else(Default::default, |spec| {
            let first = spec.pod_cidr.filter(|cidr| !cidr.is_empty());
            let all = spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty());
            let cidrs = all.or_else(|| first.map(|cidr| vec![cidr]));
            (cidrs.unwrap_or_default(), spec.taints.unwrap_or_default())
        });
        let deleted = wire.metadata.deletion_timestamp.is_some();
        Self {
            zone: label(ZONE),
            region: label(REGION),
            addresses: addresses.into_iter().map(|known| (known.r#type, known.address)).collect(),
            pod_cidrs: cidrs.iter().filter_map(|cidr| Cidr::parse(cidr)).collect(),
            eligible: is_eligible(deleted, taints.iter().map(|taint| &*taint.key)),
            name: wire.metadata.name,
            uid: wire.metadata.uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use zonewise_common::testing::{assert_null_is_absent, full_node};

    use super::*;

    #[test]
    fn what_matters_of_a_node() {
        let json = r#"{"metadata":{"name":"n1","uid":"u1","labels":{"topology.kubernetes.io/zone":"a","topology.kubernetes.io/region":""}},
            "spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24","fd00::/64","nonsense"],"taints":[{"key":"other"}]},
            "status":{"addresses":[{"type":"ExternalIP","address":"203.0.113.1"},{"type":"InternalIP","address":"192.168.0.1"}]}}"#;
        let node = NodeInfo::read(Encoded::Json(json)).unwrap();
        let expected = NodeInfo {
            name: "n1".into(),
            uid: "u1".into(),
            zone: Some("a".into()),
            region: None,
            addresses: vec![
                ("ExternalIP".into(), "203.0.113.1".into()),
                ("InternalIP".into(), "192.168.0.1".into()),
            ],
            pod_cidrs: vec![Cidr::parse("10.1.0.0/24").unwrap(), Cidr::parse("fd00::/64").unwrap()],
            eligible: true,
        };
        assert_eq!(node, expected);
    }

    #[test]
    fn null_in_any_field_is_read_as_absent() {
        let required = ["/metadata", "/metadata/name"];
        assert_null_is_absent(&full_node(), &required, |json| NodeInfo::read(Encoded::Json(json)));
    }

    #[test]
    fn a_node_that_registers_anew_keeps_what_it_has_not_said_yet() {
        let node = |zone: &str, address: &[&str], cidr: &[&str]| NodeInfo {
            zone: Some(zone.into()),
            addresses: address.iter().map(|ip| ("InternalIP".into(), (*ip).into())).collect(),
            pod_cidrs: cidr.iter().map(|cidr| Cidr::parse(cidr).unwrap()).collect(),
            ..NodeInfo::default()
        };
        let before = node("a", &["192.168.0.1"], &["10.1.0.0/24"]);
        let rows = [
            (node("b", &[], &[]), node("b", &["192.168.0.1"], &["10.1.0.0/24"])),
            (node("b", &["192.168.0.2"], &[]), node("b", &["192.168.0.2"], &["10.1.0.0/24"])),
            (node("b", &[], &["10.2.0.0/24"]), node("b", &["192.168.0.1"], &["10.2.0.0/24"])),
        ];
        for (now, expected) in rows {
            assert_eq!(now.clone().following(Some(before.clone())), expected);
            assert_eq!(now.clone().following(None), now);
        }
    }

    #[test]
    fn nodes_on_their_way_out_take_no_traffic_from_load_balancers() {
        let tainted = r#"{"metadata":{"name":"n"},"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler"}]}}"#;
        let deleted = r#"{"metadata":{"name":"n","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let usual = r#"{"metadata":{"name":"n"}}"#;
        let eligible = |json| NodeInfo::read(Encoded::Json(json)).unwrap().eligible;
        assert_eq!((eligible(tainted), eligible(deleted), eligible(usual)), (false, false, true));
    }
}
