//! What endpoints count for, where a Service asks that they count for the CPU that their Pods request
//! (`zonewise.dev/endpoint-weight: cpu-request`).
//!
//! ```text
//!           endpoints        requests     weights                 fair part, equal    by CPU
//!  zone a   web-1, web-2     2, 2         2000 + 2000                   2 of 4        4 of 7
//!  zone b   web-3, web-4     1, none      1000 + 2000 (median)          2 of 4        3 of 7
//! ```
//!
//! Heuristics that give zone shares look at how much the endpoints of a zone can take beside all others. Where that is
//! their number, nothing else changes when it is the sum of their weights. Inside a zone, all endpoints get the same:
//! zone shares say which zone, and no proxy is told more.
//!
//! Likewise, the endpoints of a zone that fails count for a part of what they would count for otherwise, where a Service asks for
//! that (`zonewise.dev/failing-zones: spill`): then the zone takes less, and more of it spills over to other zones. And where it asks
//! that endpoints count by the CPU that they use (`zonewise.dev/endpoint-weight: cpu-use`), those of a zone count for more or for
//! less.
//!
//! An endpoint without a request counts as much as the median of those that have one. So a Pod that was
//! forgotten is neither spared nor flooded. If none has a request, all count the same.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::keys::ENDPOINT_WEIGHT;
use zonewise_common::name::Name;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::region::Situation;

use crate::desired::{Desired, DesiredEndpoint};
use crate::pod::Pod;
use crate::service::Service;

/// The value of the annotation with which endpoints count for the CPU that their Pods request.
pub const CPU_REQUEST: &str = "cpu-request";

/// The value of the annotation with which endpoints of a zone count for less where they use more CPU than others.
pub const CPU_USE: &str = "cpu-use";

/// What the endpoints of a Service count for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointWeights {
    by_address: BTreeMap<IpAddr, u64>,
    /// What endpoints without a request count for.
    usual: u64,
}

impl EndpointWeights {
    /// Those of a Service with these Pods; `None` if it does not ask for weights, or no Pod has a request.
    pub fn of(service: &Service, pods: &[Arc<Pod>]) -> Option<Self> {
        if service.annotations.get(ENDPOINT_WEIGHT) != Some(CPU_REQUEST) {
            return None;
        }
        let request = |pod: &Arc<Pod>| pod.cpu_request_milli.map(|milli| u64::from(milli.get()));
        let counted = || pods.iter().filter(|pod| pod.ready && !pod.terminating);
        let usual = median(counted().filter_map(request).collect())?;
        let requests = pods.iter().filter_map(|pod| Some((pod, request(pod)?)));
        let by_address =
            requests.flat_map(|(pod, milli)| pod.ips.iter().map(move |ip| (*ip, milli)));
        Some(Self { by_address: by_address.collect(), usual })
    }

    /// What the endpoint with this address counts for.
    pub fn at(&self, address: &IpAddr) -> u64 {
        self.by_address.get(address).copied().unwrap_or(self.usual)
    }
}

/// The ready endpoints of a Service.
fn counted<'d, 'a>(desired: &'d Desired<'a>) -> impl Iterator<Item = &'d DesiredEndpoint<'a>> {
    let endpoints = desired.endpoints.iter().enumerate();
    let counts = |(index, endpoint): &(usize, &DesiredEndpoint<'_>)| {
        endpoint.is_ready() && desired.is_unique(*index)
    };
    endpoints.filter(counts).map(|(_, endpoint)| endpoint)
}

/// What ready endpoints count for by the CPU that their Pods request, by zone, beside what the zones can send; `None` if
/// no endpoint has a weight of its own.
pub(crate) fn by_request(desired: &Desired<'_>, capacity: &Capacity) -> Option<Situation> {
    let usual = median(counted(desired).filter_map(DesiredEndpoint::cpu_request_milli).collect())?;
    let (mut placed, mut unplaced) = (BTreeMap::<&str, u64>::new(), 0);
    for endpoint in counted(desired) {
        let weight = endpoint.cpu_request_milli().unwrap_or(usual);
        match endpoint.zone() {
            Some(zone) => *placed.entry(zone).or_default() += weight,
            None => unplaced += weight,
        }
    }
    Some(Situation::sorted(capacity, placed.into_iter(), unplaced))
}

/// The same situation with the endpoints of some zones counting for so many percent. All numbers of endpoints are a
/// hundred times as large then: heuristics look at their proportions.
pub(crate) fn in_part(situation: &Situation, percents: &BTreeMap<Name, u16>) -> Option<Situation> {
    let differs = situation.names.iter().any(|name| percents.contains_key(&**name));
    if !differs {
        return None;
    }
    let percent = |name: &str| u64::from(percents.get(name).copied().unwrap_or(100));
    let mut counted = situation.clone();
    counted.unplaced = counted.unplaced.saturating_mul(100);
    for (name, zone) in counted.names.iter().zip(&mut counted.zones) {
        zone.endpoints = zone.endpoints.saturating_mul(percent(name));
    }
    Some(counted)
}

/// The lower of the two in the middle, if their number is even.
fn median(mut weights: Vec<u64>) -> Option<u64> {
    let middle = weights.len().checked_sub(1)? / 2;
    Some(*weights.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn an_endpoint_without_a_request_counts_as_the_median_of_the_others() {
        let rows: [(&[u64], Option<u64>); 4] =
            [(&[], None), (&[5], Some(5)), (&[9, 1], Some(1)), (&[3, 100, 2], Some(3))];
        for (weights, expected) in rows {
            assert_eq!(median(weights.to_vec()), expected, "{weights:?}");
        }
    }
}
