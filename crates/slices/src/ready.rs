//! How many ready endpoints a Service has in each zone.

use std::collections::BTreeMap;

use zonewise_common::name::Name;

use crate::slice::{AddressType, Slice};

/// The ready endpoints of a Service by zone, in each address family.
#[derive(Clone, Debug, Default)]
pub struct ReadyEndpoints {
    v4: BTreeMap<Name, u64>,
    other: BTreeMap<Name, u64>,
}

impl ReadyEndpoints {
    /// Adds those of a slice.
    pub fn add(&mut self, slice: &Slice) {
        let zones = if slice.family == AddressType::IPv4 { &mut self.v4 } else { &mut self.other };
        for endpoint in slice.endpoints.iter().filter(|one| one.conditions.ready != Some(false)) {
            *zones.entry(endpoint.zone.clone().unwrap_or_default()).or_default() += 1;
        }
    }

    /// Those of the family that has more. Endpoints without a zone are in one with an empty name.
    pub fn by_zone(self) -> BTreeMap<Name, u64> {
        let count = |zones: &BTreeMap<Name, u64>| zones.values().sum::<u64>();
        if count(&self.v4) >= count(&self.other) { self.v4 } else { self.other }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_service_with_two_families_has_each_endpoint_once() {
        let slice = |family: &str, endpoints: Value| -> Slice {
            let metadata = json!({"name": "web-1", "namespace": "shop"});
            serde_json::from_value(
                json!({"metadata": metadata, "addressType": family, "endpoints": endpoints}),
            )
            .unwrap()
        };
        let two = json!([
            {"addresses": ["10.0.0.1"], "zone": "a", "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "zone": "a"},
        ]);
        let others = json!([
            {"addresses": ["10.0.0.3"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.4"], "zone": "b", "conditions": {"ready": false}},
        ]);
        let six = json!([{"addresses": ["fd00::1"], "zone": "a"}, {"addresses": ["fd00::2"], "zone": "a"}]);
        let mut ready = ReadyEndpoints::default();
        for slice in [slice("IPv4", two), slice("IPv4", others), slice("IPv6", six)] {
            ready.add(&slice);
        }
        assert_eq!(ready.by_zone(), BTreeMap::from([("a".into(), 2), (Name::default(), 1)]));
    }
}
