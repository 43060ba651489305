//! Guard mode: what the built-in controller and the policy together make of a Service is what a plan says.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use zonewise_slices::guard::{Floor, Guarded, Others, ZoneAllocation, guarded};
use zonewise_slices::plan::Plan;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{Endpoint, Slice};
use zonewise_topology::reason::Code;

use crate::common::TestCluster;

const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";

fn cluster(per_zone: [usize; 3]) -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    for (zone, count) in ["a", "b", "c"].into_iter().zip(per_zone) {
        cluster.pods(zone, count);
    }
    cluster.annotate(PREFERENCE, "zonewise.dev/auto");
    cluster.settings = Settings { guard: true, ..Settings::default() };
    cluster
}

/// The slices of the built-in controller: those of the same Pods without a request.
fn built_in(cluster: &TestCluster, floor: Option<&str>) -> Vec<Arc<Slice>> {
    let mut plain = cluster.without_slices();
    plain.service["metadata"]["annotations"] = json!({});
    plain.service["spec"]["trafficDistribution"] = json!(floor);
    plain.settings = Settings { upstream: true, ..Settings::default() };
    plain.sync();
    plain.store.list()
}

/// The zones that use each ready endpoint, by address.
fn used_by<'a>(slices: impl Iterator<Item = &'a Slice>) -> BTreeMap<String, Vec<String>> {
    let ready = slices.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.is_ready());
    let zones =
        |endpoint: &Endpoint| endpoint.zone_hints().iter().map(ToString::to_string).collect();
    ready.map(|endpoint| (format!("{:?}", endpoint.addresses), zones(endpoint))).collect()
}

fn planned(plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let families = plan.families.iter();
    used_by(families.flat_map(|family| family.creates.iter().chain(&family.updates)))
}

#[test]
fn only_endpoints_that_serve_other_zones_are_listed() {
    let rows = [
        ("all serve their own zone", [3, 3, 3], Others::OwnZone, 0),
        ("two of a serve others", [6, 3, 3], Others::OwnZone, 2),
        ("no division is possible", [1, 1, 2], Others::NoHints, 0),
        ("no endpoint yet", [0, 0, 0], Others::OwnZone, 0),
    ];
    for (what, per_zone, others, listed) in rows {
        let allocation = ZoneAllocation::of(&cluster(per_zone).plan(), &[]);
        assert_eq!((allocation.others, allocation.endpoints.len()), (others, listed), "{what}");
    }
}

#[test]
fn what_hints_cannot_carry_becomes_hints_and_is_told() {
    let rows = [
        (PREFERENCE, "zonewise.dev/balanced", Guarded::Hints(Floor::PreferSameZone), false),
        (PREFERENCE, "zonewise.dev/local-shared", Guarded::Hints(Floor::PreferSameZone), false),
        (PREFERENCE, "Zone", Guarded::Hints(Floor::PreferSameZone), false),
        (PREFERENCE, "zonewise.dev/same-node", Guarded::FloorOnly(Floor::PreferSameNode), false),
        (PREFERENCE, "Default", Guarded::Nothing, false),
        (SUBSETTING, "Auto", Guarded::Hints(Floor::PreferSameZone), true),
        (SUBSETTING, "Region", Guarded::Nothing, true),
    ];
    for (key, value, expected, noted) in rows {
        let mut cluster = cluster([6, 3, 3]);
        cluster.remove_annotation(PREFERENCE).annotate(key, value);
        let requested = cluster.requested_routing();
        assert_eq!(guarded(&requested), expected, "{value}");
        let told = |note: &zonewise_slices::requested::RequestNote| {
            note.reason.code() == Code::SubsetsNotGuarded
        };
        assert_eq!(requested.notes.iter().any(told), noted, "{value}");
        let plan = cluster.plan();
        let slices = plan.families.iter().flat_map(|family| &family.creates);
        for slice in slices {
            assert_eq!(slice.subset(), None, "{value}");
            assert_eq!(slice.annotations.get("zonewise.dev/zone-shares"), None, "{value}");
        }
    }
    let mut field = cluster([3, 3, 3]);
    field.remove_annotation(PREFERENCE).service["spec"]["trafficDistribution"] =
        json!("PreferClose");
    assert_eq!(guarded(&field.requested_routing()), Guarded::Nothing, "the field alone");
}

/// The webhook leaves its own namespace out, so that slices there would be touched for ever.
#[test]
fn services_of_the_system_namespace_are_left_out_and_told() {
    let told = |cluster: &TestCluster| {
        let requested = cluster.requested_routing();
        let codes: Vec<Code> = requested.notes.iter().map(|note| note.reason.code()).collect();
        (guarded(&requested), codes)
    };
    let mut ours = cluster([6, 3, 3]);
    ours.service["metadata"]["namespace"] = json!("zonewise-system");
    assert_eq!(told(&ours), (Guarded::Nothing, vec![Code::SystemNamespaceNotGuarded]));
    ours.remove_annotation(PREFERENCE);
    assert_eq!(told(&ours), (Guarded::Nothing, Vec::new()), "it asks for nothing");
    ours.service["spec"]["trafficDistribution"] = json!("PreferClose");
    assert_eq!(told(&ours), (Guarded::Nothing, Vec::new()), "the built-in controller does that");
}

proptest! {
    /// Whatever the built-in controller has written, with a floor or without, behind the policy every ready endpoint
    /// has the hints of the plan, and a second look changes nothing.
    #[test]
    fn behind_the_policy_slices_carry_the_plan(
        per_zone in [0_usize..9, 0..9, 0..9],
        unready in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        floor in prop::sample::select(vec![None, Some("PreferSameZone"), Some("PreferSameNode")]),
    ) {
        let mut cluster = cluster(per_zone);
        let names: Vec<String> = cluster.pods.keys().cloned().collect();
        for place in unready.iter().filter(|_| !names.is_empty()) {
            let pod = cluster.pods.get_mut(place.get(&names)).unwrap();
            pod["status"]["conditions"][0]["status"] = "False".into();
        }
        let plan = cluster.plan();
        let allocation = ZoneAllocation::of(&plan, &[]);
        let slices = built_in(&cluster, floor);
        let admitted = allocation.admitted_all(&slices);
        prop_assert_eq!(used_by(admitted.iter().map(|slice| &**slice)), planned(&plan));
        for slice in &admitted {
            prop_assert!(allocation.is_applied_to(slice));
        }
        let idle = ZoneAllocation::default();
        prop_assert_eq!(idle.admitted_all(&slices), slices);
    }
}
