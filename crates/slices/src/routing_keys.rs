//! The annotations of a Service that request routing, and keys that were probably meant to be one of them.

use zonewise_common::keys::{
    DEMAND, DOMAIN, ENDPOINT_WEIGHT, FAILING_ZONES, PADDING, ROUTING_PREFERENCE,
    STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE,
};
use zonewise_common::similar::closest;

/// All of them.
pub const ROUTING_KEYS: [&str; 9] = [
    TOPOLOGY_MODE,
    TOPOLOGY_AWARE_HINTS,
    SUBSETTING,
    ROUTING_PREFERENCE,
    STARTING_THRESHOLD,
    PADDING,
    DEMAND,
    ENDPOINT_WEIGHT,
    FAILING_ZONES,
];

/// Domains under which these keys are looked for by mistake, besides our own. Under other domains the same names mean
/// other things.
const RELATED_DOMAINS: [&str; 5] = [
    "",
    "kubernetes.io",
    "service.kubernetes.io",
    "endpointslice.kubernetes.io",
    "topology.kubernetes.io",
];

/// Whether the annotation requests routing.
pub fn is_routing_key(key: &str) -> bool {
    ROUTING_KEYS.contains(&key)
}

/// Whether the key does nothing on a Service, and was probably meant to be one that does: any other key under our own
/// domain, and keys under related domains that are nearly equal.
pub fn is_misspelt(key: &str) -> bool {
    if is_routing_key(key) {
        return false;
    }
    key.starts_with(DOMAIN) || meant_key(key).is_some()
}

/// The key that was probably meant.
pub fn meant_key(key: &str) -> Option<&'static str> {
    let (domain, name) = key.rsplit_once('/').unwrap_or(("", key));
    let related = RELATED_DOMAINS.contains(&domain) || key.starts_with(DOMAIN);
    let is_everyday_word = |name: &&str| [PADDING, DEMAND].map(name_of).contains(name);
    let names = ROUTING_KEYS.map(name_of).into_iter();
    let names = names.filter(|name| key.starts_with(DOMAIN) || !is_everyday_word(name));
    let meant = related.then(|| closest(name, names)).flatten()?;
    ROUTING_KEYS.into_iter().find(|key| name_of(key) == meant)
}

/// What follows the domain.
fn name_of(key: &'static str) -> &'static str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d10_keys_that_look_like_ours_are_noticed_and_others_are_left_alone() {
        let cases = [
            ("zonewise.dev/routing-prefrence", true, Some(ROUTING_PREFERENCE)),
            ("zonewise.dev/routing_preference", true, Some(ROUTING_PREFERENCE)),
            ("zonewise.dev/topology-mode", true, Some(TOPOLOGY_MODE)),
            ("zonewise.dev/paddin", true, Some(PADDING)),
            ("zonewise.dev/demands", true, Some(DEMAND)),
            ("zonewise.dev/endpoint-weights", true, Some(ENDPOINT_WEIGHT)),
            ("zonewise.dev/failing-zone", true, Some(FAILING_ZONES)),
            ("zonewise.dev/unheard-of", true, None),
            ("service.kubernetes.io/topology-aware-hint", true, Some(TOPOLOGY_AWARE_HINTS)),
            ("service.kubernetes.io/subsetting", true, Some(SUBSETTING)),
            ("topology-mode", true, Some(TOPOLOGY_MODE)),
            (TOPOLOGY_MODE, false, Some(TOPOLOGY_MODE)),
            ("service.kubernetes.io/service-proxy-name", false, None),
            ("service.kubernetes.io/headless", false, None),
            ("example.com/topology-mode", false, None),
            ("padding", false, None),
            ("demand", false, None),
            ("kubectl.kubernetes.io/last-applied-configuration", false, None),
        ];
        for (key, misspelt, meant) in cases {
            assert_eq!((is_misspelt(key), meant_key(key)), (misspelt, meant), "{key}");
        }
    }
}
