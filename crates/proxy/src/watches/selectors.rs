//! Which objects the API server is asked for: label and field selectors.

use std::borrow::Cow;
use std::collections::BTreeSet;

use zonewise_cluster::watch::{self, Resource, query_parameter};
use zonewise_common::keys::{FOR_REGION, FOR_ZONE, HEADLESS, SERVICE_NAME, SERVICE_PROXY_NAME};
use zonewise_common::name::Name;
use zonewise_routing::{FeatureGates, NodeLocation};

/// More names than this are not written into a selector: it is part of the request's first line, whose
/// length servers limit.
const MAX_NAMED: usize = 500;

/// The Services of this proxy: those without the label for other proxies, or those labelled with its
/// name. Headless Services need no proxy.
pub(super) fn services(proxy_name: Option<&str>) -> Resource {
    let ours = proxy_name.map_or_else(
        || format!("!{SERVICE_PROXY_NAME}"),
        |name| format!("{SERVICE_PROXY_NAME}={name}"),
    );
    let selector = query_parameter("labelSelector", &ours)
        + &query_parameter("fieldSelector", "spec.clusterIP!=None");
    Resource { selector: Cow::Owned(selector), ..watch::SERVICES }
}

/// This node.
pub(super) fn this_node(name: &str) -> Resource {
    let selector = query_parameter("fieldSelector", &format!("metadata.name={name}"));
    Resource { selector: Cow::Owned(selector), ..watch::NODES }
}

/// Whether this node watches the slices of its own zone and region only. It watches all slices where
/// subsets are turned off or its zone is not known.
pub(super) fn watches_subsets(location: &NodeLocation, gates: &FeatureGates) -> bool {
    gates.subsetting && location.zone.is_some()
}

/// The slices that this node consumes, one resource per watch: those without a subset label, those for
/// its zone, those for its region.
pub(super) fn own(location: &NodeLocation, gates: &FeatureGates) -> Vec<Resource> {
    if !watches_subsets(location, gates) {
        return vec![slices(&format!("!{HEADLESS}"))];
    }
    let subsets = [(FOR_ZONE, &location.zone), (FOR_REGION, &location.region)];
    let mine = subsets.iter().filter_map(|(label, value)| {
        let value = value.as_ref()?;
        Some(slices(&format!("!{HEADLESS},{label}={value}")))
    });
    // A node without a region cannot select its region's slices: it watches those of all regions.
    let unlabelled = match location.region {
        Some(_) => format!("!{HEADLESS},!{FOR_ZONE},!{FOR_REGION}"),
        None => format!("!{HEADLESS},!{FOR_ZONE}"),
    };
    std::iter::once(slices(&unlabelled)).chain(mine).collect()
}

/// The slices of these Services that are for other zones, and for other regions, one resource per
/// watch. Together with [`own`] they are all slices of these Services.
pub(super) fn of_other_zones(location: &NodeLocation, services: &BTreeSet<Name>) -> Vec<Resource> {
    let named = named(services);
    let zone = location.zone.as_ref().map(|zone| format!("{FOR_ZONE},{FOR_ZONE}!={zone}"));
    let region = location
        .region
        .as_ref()
        .map(|region| format!("!{FOR_ZONE},{FOR_REGION},{FOR_REGION}!={region}"));
    let all = zone.into_iter().chain(region);
    all.map(|labels| slices(&format!("!{HEADLESS},{labels}{named}"))).collect()
}

/// All slices of these Services, as query parameters. Slices with the label of headless Services are
/// not for proxies.
pub(super) fn of_services(services: &BTreeSet<Name>) -> String {
    query_parameter("labelSelector", &format!("!{HEADLESS}{}", named(services)))
}

/// The part of a selector that names Services; empty, which selects all, if there are too many.
fn named(services: &BTreeSet<Name>) -> String {
    if services.is_empty() || services.len() > MAX_NAMED {
        return String::new();
    }
    let names: Vec<&str> = services.iter().map(|name| &**name).collect();
    format!(",{SERVICE_NAME} in ({})", names.join(","))
}

fn slices(selector: &str) -> Resource {
    Resource { selector: Cow::Owned(query_parameter("labelSelector", selector)), ..watch::SLICES }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The selectors, with the domains of the labels left out, are these.
    fn assert_selectors(resources: &[Resource], expected: &[&str]) {
        let encoded = |text: &&str| {
            let text = text
                .replace("headless", HEADLESS)
                .replace("for-zone", FOR_ZONE)
                .replace("for-region", FOR_REGION)
                .replace("service-name", SERVICE_NAME);
            query_parameter("labelSelector", &text)
        };
        let found: Vec<&str> = resources.iter().map(|resource| &*resource.selector).collect();
        assert_eq!(found, expected.iter().map(encoded).collect::<Vec<_>>(), "{expected:?}");
    }

    /// Whatever the labels of a slice: exactly one kind of watch selects it, unless it has both labels.
    #[test]
    fn c2_c8_own_and_other_watches_select_everything() {
        let gates = FeatureGates::default();
        let names: BTreeSet<Name> = ["web".into(), "shop".into()].into();
        let both = NodeLocation::new("n", Some("a"), Some("r"));
        let mine =
            ["!headless,!for-zone,!for-region", "!headless,for-zone=a", "!headless,for-region=r"];
        assert_selectors(&own(&both, &gates), &mine);
        let rest = [
            "!headless,for-zone,for-zone!=a,service-name in (shop,web)",
            "!headless,!for-zone,for-region,for-region!=r,service-name in (shop,web)",
        ];
        assert_selectors(&of_other_zones(&both, &names), &rest);
        let zone = NodeLocation::new("n", Some("a"), None);
        assert_selectors(&own(&zone, &gates), &["!headless,!for-zone", "!headless,for-zone=a"]);
        assert_selectors(&of_other_zones(&zone, &names), &rest[..1]);
        let nowhere = NodeLocation::new("n", None, Some("r"));
        assert_selectors(&own(&nowhere, &gates), &["!headless"]);
        let off = FeatureGates { subsetting: false, ..gates };
        assert_selectors(&own(&both, &off), &["!headless"]);
    }

    #[test]
    fn too_many_names_select_all() {
        let names: BTreeSet<Name> = (0..=MAX_NAMED).map(|n| format!("s{n}").into()).collect();
        let location = NodeLocation::new("n", Some("a"), None);
        assert_selectors(&of_other_zones(&location, &names), &["!headless,for-zone,for-zone!=a"]);
    }
}
