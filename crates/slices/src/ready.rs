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
    use super::*;
    use crate::slice::{Conditions, Endpoint};

    #[test]
    fn a_service_with_two_families_has_each_endpoint_once() {
        let endpoint = |zone: Option<&str>, ready| Endpoint {
            zone: zone.map(Name::from),
            conditions: Conditions { ready, ..Conditions::default() },
            ..Endpoint::default()
        };
        let slice = |family, endpoints| Slice { family, endpoints, ..Slice::default() };
        let mut ready = ReadyEndpoints::default();
        let two = vec![endpoint(Some("a"), Some(true)), endpoint(Some("a"), None)];
        ready.add(&slice(AddressType::IPv4, two.clone()));
        ready.add(&slice(AddressType::IPv6, two));
        ready.add(&slice(
            AddressType::IPv4,
            vec![endpoint(None, Some(true)), endpoint(Some("b"), Some(false))],
        ));
        assert_eq!(ready.by_zone(), BTreeMap::from([("a".into(), 2), (Name::default(), 1)]));
    }
}
