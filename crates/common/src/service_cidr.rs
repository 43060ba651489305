//! ServiceCIDRs: the ranges that ClusterIPs come from. Proxies refuse external IPs in them, whether a Service uses the
//! address already or not.

use serde::Deserialize;

use crate::cidr::Cidr;
use crate::lenient::lenient;
use crate::name::{Key, Keyed, Name};

/// A ServiceCIDR. Ranges that do not parse are left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Fields")]
pub struct ServiceCidr {
    /// Its name.
    pub name: Name,
    /// One range, or one of each address family.
    pub ranges: Vec<Cidr>,
}

#[derive(Deserialize)]
struct Fields {
    metadata: Metadata,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    name: Name,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "lenient")]
    cidrs: Vec<String>,
}

impl From<Fields> for ServiceCidr {
    fn from(Fields { metadata, spec }: Fields) -> Self {
        let ranges = spec.cidrs.iter().filter_map(|text| Cidr::parse(text)).collect();
        Self { name: metadata.name, ranges }
    }
}

impl Keyed for ServiceCidr {
    fn key(&self) -> Key {
        (Name::default(), Name::clone(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_do_not_parse_are_left_out() {
        let rows = [
            (r#"{"metadata":{"name":"n"},"spec":{"cidrs":["10.0.0.0/8","x","fd00::/112"]}}"#, 2),
            (r#"{"metadata":{"name":"n"},"spec":{"cidrs":null}}"#, 0),
            (r#"{"metadata":{"name":"n"},"spec":null}"#, 0),
            (r#"{"metadata":{"name":"n"}}"#, 0),
        ];
        for (text, expected) in rows {
            let read: ServiceCidr = serde_json::from_str(text).unwrap();
            assert_eq!((&*read.name, read.ranges.len()), ("n", expected), "{text}");
        }
    }
}
