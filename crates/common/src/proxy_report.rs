//! What each proxy reports to the controller: a Lease per node.
//!
//! ```text
//!  zonewise-system/zonewise-proxy-NODE   label zonewise.dev/component: proxy
//!    annotation zonewise.dev/applied: "12345"     every change up to this version is in the kernel,
//!    annotation zonewise.dev/refused: "shop/web"  but for these Services, which the kernel refuses
//!    annotation zonewise.dev/demand-server: "10274 sha256:7d…"   where the proxy serves what it has counted
//!    spec.renewTime, spec.leaseDurationSeconds    how long the proxy counts as alive
//! ```
//!
//! Proxies encode it, the leading controller decodes it, sets the condition `zonewise.dev/RoutingPreferenceReady` on
//! Services, and asks the proxies for their counts where its configuration says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_group::COORDINATION_V1;
use crate::keys::{APPLIED, COMPONENT, DEMAND_SERVER, PROXY, REFUSED};
use crate::lenient::lenient;
use crate::name::{Key, Keyed, Name, SYSTEM_NAMESPACE};

/// The path of the Leases in [`SYSTEM_NAMESPACE`].
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/zonewise-system/leases";

/// The audience of the tokens with which proxies are asked for their counts: the API server does not accept them.
pub const DEMAND_AUDIENCE: &str = "zonewise-demand";

/// What the names of the proxies' Leases begin with; the name of the node follows.
pub const LEASE_PREFIX: &str = "zonewise-proxy-";

/// The label selector of the proxies' Leases among others.
pub fn selector() -> String {
    format!("{COMPONENT}={PROXY}")
}

/// What one proxy reports. A field that is missing from the Lease, or that cannot be read, is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Lease")]
pub struct ProxyReport {
    /// The Lease that carries the report.
    pub lease: Key,
    /// Every change up to this resource version is in the node's kernel,
    pub applied: Option<u64>,
    /// but for these Services, which the kernel refuses.
    pub refused: BTreeSet<Key>,
    /// When the proxy wrote the report, by its own clock.
    pub renewed: Option<Timestamp>,
    /// How long after that the proxy counts as alive; whole seconds.
    pub duration: Option<Duration>,
    /// Where it serves what it has counted, if it does.
    pub demand: Option<DemandServer>,
}

/// Where a proxy serves what it has counted. The host is an address of its node, which its Lease does not say: whoever
/// writes the Lease must not be able to send the controller elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandServer {
    /// The port.
    pub port: u16,
    /// The SHA-256 digest of its certificate, in DER. The proxy makes a certificate at each start.
    pub fingerprint: [u8; 32],
}

impl fmt::Display for DemandServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {SHA256}", self.port)?;
        self.fingerprint.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

const SHA256: &str = "sha256:";

impl FromStr for DemandServer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (port, fingerprint) = text.split_once(' ').ok_or(())?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(())?;
        let digits = fingerprint.strip_prefix(SHA256).ok_or(())?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| byte(pair)).collect();
        let fingerprint = bytes.filter(|_| rest.is_empty()).ok_or(())?;
        Ok(Self { port, fingerprint: fingerprint.try_into().map_err(drop)? })
    }
}

impl ProxyReport {
    /// The Lease of the proxy on a node.
    pub fn lease(node: &str) -> Key {
        (SYSTEM_NAMESPACE.into(), format!("{LEASE_PREFIX}{node}").into())
    }

    /// The path of that Lease.
    pub fn path(node: &str) -> String {
        format!("{LEASES}/{}", Self::lease(node).1)
    }

    /// The Lease as JSON. With the uid of its node, the Lease is deleted together with the node.
    pub fn encode(&self, node: &str, node_uid: &str) -> Value {
        let (namespace, name) = &self.lease;
        let mut lease = json!({
            "apiVersion": COORDINATION_V1,
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {COMPONENT: PROXY},
                "annotations": {},
            },
            "spec": {"holderIdentity": node},
        });
        let annotations = &mut lease["metadata"]["annotations"];
        if let Some(applied) = self.applied {
            annotations[APPLIED] = applied.to_string().into();
        }
        if !self.refused.is_empty() {
            let names = self.refused.iter().map(|(namespace, name)| format!("{namespace}/{name}"));
            annotations[REFUSED] = names.collect::<Vec<_>>().join(" ").into();
        }
        if let Some(demand) = &self.demand {
            annotations[DEMAND_SERVER] = demand.to_string().into();
        }
        if let Some(duration) = self.duration {
            lease["spec"]["leaseDurationSeconds"] = duration.as_secs().into();
        }
        if let Some(renewed) = self.renewed {
            // A MicroTime of Kubernetes.
            lease["spec"]["renewTime"] = format!("{renewed:.6}").into();
        }
        if !node_uid.is_empty() {
            lease["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}]);
        }
        lease
    }
}

impl Keyed for ProxyReport {
    fn key(&self) -> Key {
        self.lease.clone()
    }
}

#[derive(Deserialize)]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    namespace: Name,
    name: Name,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<i64>,
}

impl From<Lease> for ProxyReport {
    fn from(Lease { metadata, spec }: Lease) -> Self {
        let spec = spec.unwrap_or_default();
        let annotation = |key| metadata.annotations.as_ref().and_then(|all| all.get(key)?.as_ref());
        let seconds = spec.lease_duration_seconds.filter(|seconds| *seconds > 0);
        Self {
            applied: annotation(APPLIED).and_then(|text| text.parse().ok()),
            refused: annotation(REFUSED).map_or_else(BTreeSet::new, |text| services(text)),
            demand: annotation(DEMAND_SERVER).and_then(|text| text.parse().ok()),
            renewed: spec.renew_time.and_then(|text| text.parse().ok()),
            duration: seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
            lease: (metadata.namespace, metadata.name),
        }
    }
}

/// Reads `namespace/name namespace/name`.
fn services(text: &str) -> BTreeSet<Key> {
    let names = text.split_whitespace().filter_map(|service| service.split_once('/'));
    names.map(|(namespace, name)| (namespace.into(), name.into())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{assert_null_is_absent, full_lease};

    fn read(annotations: &Value, spec: &Value) -> ProxyReport {
        let metadata =
            json!({"namespace": SYSTEM_NAMESPACE, "name": "a", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn report() -> ProxyReport {
        ProxyReport {
            lease: (SYSTEM_NAMESPACE.into(), "a".into()),
            applied: Some(12),
            refused: BTreeSet::new(),
            renewed: Timestamp::from_millisecond(1500).ok(),
            duration: Some(Duration::from_secs(60)),
            demand: None,
        }
    }

    #[test]
    fn d12_a_lease_says_how_far_a_proxy_is_and_what_it_does_not_say_is_nothing() {
        let spec = json!({"renewTime": "1970-01-01T00:00:01.500000Z", "leaseDurationSeconds": 60});
        let applied = json!({"zonewise.dev/applied": "12"});
        assert_eq!(read(&applied, &spec), report());
        let names = "shop/web nonsense  shop/api";
        let refusing = json!({"zonewise.dev/applied": "12", "zonewise.dev/refused": names});
        let refused = ["api", "web"].map(|name| ("shop".into(), name.into())).into();
        assert_eq!(read(&refusing, &spec), ProxyReport { refused, ..report() });
        for applied in [json!(null), json!({}), json!({"zonewise.dev/applied": "-1"})] {
            let nothing = ProxyReport { applied: None, ..report() };
            assert_eq!(read(&applied, &spec), nothing);
        }
        for spec in
            [json!(null), json!({}), json!({"renewTime": "noon", "leaseDurationSeconds": 0})]
        {
            let nothing = ProxyReport { renewed: None, duration: None, ..report() };
            assert_eq!(read(&applied, &spec), nothing);
        }
    }

    #[test]
    fn a_lease_says_where_the_counts_of_its_proxy_are_and_nonsense_is_nowhere() {
        let hex = "0123456789abcdef".repeat(4);
        let spec = json!({"renewTime": "1970-01-01T00:00:01.500000Z", "leaseDurationSeconds": 60});
        let demand = |text: &str| {
            let annotations =
                json!({"zonewise.dev/applied": "12", "zonewise.dev/demand-server": text});
            read(&annotations, &spec).demand
        };
        let found = demand(&format!("10274 sha256:{hex}")).unwrap();
        assert_eq!((found.port, &found.fingerprint[..3]), (10274, &[0x01, 0x23, 0x45][..]));
        assert_eq!(found.to_string(), format!("10274 sha256:{hex}"));
        let nonsense = [
            String::new(),
            "10274".to_owned(),
            format!("0 sha256:{hex}"),
            format!("65536 sha256:{hex}"),
            format!("10274 sha1:{hex}"),
            format!("10274 sha256:{hex}0"),
            format!("10274 sha256:{hex}00"),
            format!("10274 sha256:{}", &hex[2..]),
            format!("10274 sha256:+{}", &hex[1..]),
            format!("10274 sha256:é{}", &hex[2..]),
        ];
        for text in nonsense {
            assert_eq!(demand(&text), None, "{text}");
        }
    }

    #[test]
    fn null_in_any_field_is_read_as_absent() {
        let required = ["/metadata", "/metadata/name"];
        assert_null_is_absent(&full_lease(), &required, |json| {
            serde_json::from_str::<ProxyReport>(json)
        });
    }

    #[test]
    fn d12_a_lease_is_written_as_the_api_documents_it() {
        let refused = ["web", "api"].map(|name| ("shop".into(), name.into())).into();
        let report = ProxyReport { lease: ProxyReport::lease("n1"), refused, ..report() };
        let expected = json!({
            "apiVersion": COORDINATION_V1,
            "kind": "Lease",
            "metadata": {
                "name": "zonewise-proxy-n1",
                "namespace": "zonewise-system",
                "labels": {"zonewise.dev/component": "proxy"},
                "annotations": {
                    "zonewise.dev/applied": "12",
                    "zonewise.dev/refused": "shop/api shop/web",
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"},
                ],
            },
            "spec": {
                "holderIdentity": "n1",
                "leaseDurationSeconds": 60,
                "renewTime": "1970-01-01T00:00:01.500000Z",
            },
        });
        assert_eq!(report.encode("n1", "u1"), expected);
        assert_eq!(report.encode("n1", "")["metadata"].get("ownerReferences"), None);
        assert!(LEASES.contains(&format!("/namespaces/{SYSTEM_NAMESPACE}/")));
        assert_eq!(selector(), "zonewise.dev/component=proxy");
    }

    fn key() -> impl Strategy<Value = Key> {
        ("[a-z0-9-]{1,8}", "[a-z0-9-]{1,8}")
            .prop_map(|(namespace, name)| (namespace.into(), name.into()))
    }

    proptest! {
        #[test]
        fn d12_what_a_proxy_encodes_the_controller_decodes(
            node in "[a-z0-9.-]{1,16}",
            applied in option::of(any::<u64>()),
            refused in btree_set(key(), 0..4),
            renewed in option::of(0..4_000_000_000_000_000_i64),
            duration in option::of(1..100_000_u64),
            demand in option::of((1..=u16::MAX, any::<[u8; 32]>())),
        ) {
            let report = ProxyReport {
                lease: ProxyReport::lease(&node),
                applied,
                refused,
                renewed: renewed.and_then(|micros| Timestamp::from_microsecond(micros).ok()),
                duration: duration.map(Duration::from_secs),
                demand: demand.map(|(port, fingerprint)| DemandServer { port, fingerprint }),
            };
            let text = report.encode(&node, "uid").to_string();
            prop_assert_eq!(serde_json::from_str::<ProxyReport>(&text).unwrap(), report);
        }
    }
}
