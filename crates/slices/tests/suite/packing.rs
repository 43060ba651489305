//! Packing, ports, conditions and metadata: the same as the reference, with and without `upstream`.

use std::sync::Arc;

use crate::common::{Store, TestCluster};
use serde_json::{Value, json};
use zonewise_slices::plan::Plan;
use zonewise_slices::slice::Slice;

fn cluster(upstream: bool, pods: usize) -> TestCluster {
    let mut cluster = TestCluster::new(&[("a", "4")]);
    cluster.settings.upstream = upstream;
    cluster.pods("a", pods);
    cluster
}

/// The number of endpoints in each slice, largest first.
fn sizes(cluster: &TestCluster) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        cluster.store.slices.values().map(|slice| slice.endpoints.len()).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(*size));
    sizes
}

/// The number of creates, updates and deletes.
fn writes(plan: &Plan) -> [usize; 3] {
    let sum = |count: fn(&zonewise_slices::plan::FamilyPlan) -> usize| {
        plan.families.iter().map(count).sum()
    };
    [
        sum(|family| family.creates.len()),
        sum(|family| family.updates.len()),
        sum(|family| family.deletes.len()) + plan.leftovers.len(),
    ]
}

/// Runs a test with and without `upstream`.
fn both(test: impl Fn(bool)) {
    test(true);
    test(false);
}

/// A cluster with stored slices of these sizes.
fn stored(upstream: bool, sizes: &[usize]) -> TestCluster {
    let mut cluster = cluster(upstream, 0);
    let total: usize = sizes.iter().sum();
    cluster.pods("a", total);
    cluster.settings.max_endpoints = 1000;
    cluster.sync();
    let whole = cluster.store.list().remove(0);
    cluster.store = Store::default();
    let mut rest = whole.endpoints.clone();
    for (index, size) in sizes.iter().enumerate() {
        let name: Box<str> = format!("old-{index:03}").into();
        let endpoints = rest.drain(..*size).collect();
        let slice =
            Slice { name: Some(name.clone()), uid: (&*name).into(), endpoints, ..(*whole).clone() };
        cluster.store.slices.insert(name, Arc::new(slice));
    }
    cluster.settings.max_endpoints = 100;
    cluster
}

#[test]
fn new_slices_are_filled_one_after_the_other() {
    both(|upstream| {
        for (max, expected) in [
            (100, vec![100, 100, 50]),
            (50, vec![50; 5]),
            (80, vec![80, 80, 80, 10]),
            (150, vec![150, 100]),
            (250, vec![250]),
            (500, vec![250]),
        ] {
            let mut cluster = cluster(upstream, 250);
            cluster.settings.max_endpoints = max;
            let plan = cluster.sync();
            assert_eq!(
                (sizes(&cluster), writes(&plan)),
                (expected.clone(), [expected.len(), 0, 0])
            );
        }
    });
}

/// Stored sizes, Pods added, writes, sizes afterwards.
#[test]
fn additions_touch_as_few_slices_as_possible() {
    type Row<'a> = (&'a [usize], usize, [usize; 3], &'a [usize]);
    let rows: [Row<'_>; 4] = [
        (&[62, 61], 127, [1, 1, 0], &[100, 89, 61]),
        (&[74, 74], 152, [2, 0, 0], &[100, 74, 74, 52]),
        (&[30; 10], 0, [0, 0, 0], &[30; 10]),
        (&[80, 20], 15, [0, 1, 0], &[95, 20]),
    ];
    both(|upstream| {
        for (before, more, expected, after) in rows {
            let mut cluster = stored(upstream, before);
            let total = cluster.pods.len() + more;
            cluster.pods("a", total);
            let plan = cluster.sync();
            assert_eq!(
                (writes(&plan), &*sizes(&cluster)),
                (expected, after),
                "{before:?} + {more}"
            );
        }
    });
}

#[test]
fn a_changed_port_rewrites_slices_under_their_old_names() {
    both(|upstream| {
        for (before, expected, after) in [
            (vec![100, 100, 50], [0, 3, 0], vec![100, 100, 50]),
            (vec![30; 10], [0, 3, 7], vec![100; 3]),
        ] {
            let mut cluster = stored(upstream, &before);
            cluster.service["spec"]["ports"][0]["targetPort"] = json!(9090);
            let plan = cluster.sync();
            assert_eq!((writes(&plan), sizes(&cluster)), (expected, after));
        }
    });
}

#[test]
fn labels_of_the_service_are_copied_but_for_reserved_ones() {
    both(|upstream| {
        let mut cluster = stored(upstream, &[100, 100, 50]);
        cluster.service["metadata"]["labels"] = json!({"team": "shop"});
        assert_eq!(writes(&cluster.sync()), [0, 3, 0]);
        assert!(
            cluster.store.slices.values().all(|slice| slice.labels.get("team") == Some("shop"))
        );
        cluster.service["metadata"]["labels"] = json!({
            "team": "shop",
            "kubernetes.io/service-name": "mine",
            "endpointslice.kubernetes.io/managed-by": "me",
            "service.kubernetes.io/headless": "yes",
        });
        assert_eq!(writes(&cluster.sync()), [0, 0, 0]);
    });
}

#[test]
fn a_service_without_pods_keeps_a_placeholder() {
    both(|upstream| {
        let mut cluster = cluster(upstream, 0);
        assert_eq!((writes(&cluster.sync()), sizes(&cluster)), ([1, 0, 0], vec![0]));
        assert_eq!(writes(&cluster.sync()), [0, 0, 0]);
        let name = cluster.store.list()[0].name.clone();
        cluster.pods("a", 1);
        assert_eq!(writes(&cluster.sync()), [0, 1, 0], "the first Pod takes its name");
        cluster.pods("a", 0);
        assert_eq!(writes(&cluster.sync()), [0, 1, 0], "the last leaves it");
        assert_eq!(cluster.store.list()[0].name, name);
    });
}

#[test]
fn slices_of_another_owner_or_family_go() {
    both(|upstream| {
        let mut cluster = stored(upstream, &[1]);
        cluster.service["metadata"]["uid"] = "another".into();
        assert_eq!(writes(&cluster.sync()), [1, 0, 1]);
        cluster.service["spec"]["ipFamilies"] = json!(["IPv6"]);
        cluster.pods.clear();
        assert_eq!(writes(&cluster.sync()), [1, 0, 1]);
        assert_eq!(cluster.store.list()[0].family.to_string(), "IPv6");
    });
}

#[test]
fn a_dual_stack_service_has_slices_of_both_families() {
    both(|upstream| {
        let mut cluster = cluster(upstream, 2);
        cluster.service["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
        let name = cluster.pods.keys().next().unwrap().clone();
        cluster.pods.get_mut(&name).unwrap()["status"]["podIPs"] =
            json!([{"ip": "10.1.0.9"}, {"ip": "2001:DB8:0:0::9"}]);
        let plan = cluster.plan();
        cluster.store.run(&plan);
        let found: Vec<(String, usize)> = cluster
            .store
            .slices
            .values()
            .map(|slice| (slice.family.to_string(), slice.endpoints.len()))
            .collect();
        assert_eq!(found, [("IPv4".into(), 2), ("IPv6".into(), 1)]);
        let text = serde_json::to_value(&*cluster.store.list()[1]).unwrap();
        assert_eq!(text["endpoints"][0]["addresses"], json!(["2001:db8::9"]));
    });
}

/// Pod state, publishNotReadyAddresses → ready, serving, terminating.
#[test]
fn conditions_follow_the_pod() {
    let rows = [
        (true, false, false, [true, true, false]),
        (false, false, false, [false, false, false]),
        (true, true, false, [false, true, true]),
        (false, true, false, [false, false, true]),
        (true, false, true, [true, true, false]),
        (false, false, true, [true, false, false]),
        (true, true, true, [true, true, true]),
        (false, true, true, [true, false, true]),
    ];
    both(|upstream| {
        for (ready, terminating, publish, expected) in rows {
            let mut cluster = cluster(upstream, 1);
            cluster.service["spec"]["publishNotReadyAddresses"] = publish.into();
            let pod = cluster.pods.values_mut().next().unwrap();
            pod["status"]["conditions"][0]["status"] = if ready { "True" } else { "False" }.into();
            if terminating {
                pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            }
            cluster.sync();
            let found = cluster.store.list()[0].endpoints[0].conditions;
            assert_eq!([found.ready, found.serving, found.terminating], expected.map(Some));
        }
    });
}

#[test]
fn pods_that_are_over_or_have_no_address_are_no_endpoints() {
    both(|upstream| {
        for (phase, addresses, expected) in [
            ("Failed", true, 0),
            ("Succeeded", true, 0),
            ("Running", false, 0),
            ("Pending", true, 1),
            ("Unknown", true, 1),
        ] {
            let mut cluster = cluster(upstream, 1);
            let pod = cluster.pods.values_mut().next().unwrap();
            pod["status"]["phase"] = phase.into();
            if !addresses {
                pod["status"]["podIPs"] = Value::Null;
                pod["status"]["podIP"] = Value::Null;
            }
            let plan = cluster.plan();
            cluster.store.run(&plan);
            assert_eq!(sizes(&cluster), [expected], "{phase}");
        }
    });
}

#[test]
fn a_named_port_is_looked_up_in_every_pod() {
    both(|upstream| {
        let mut cluster = cluster(upstream, 300);
        cluster.service["spec"]["ports"][0]["targetPort"] = "web".into();
        for (index, pod) in cluster.pods.values_mut().enumerate() {
            let port = json!([{"name": "web", "containerPort": 8000 + index % 5}]);
            pod["spec"]["containers"][0]["ports"] = port;
        }
        assert_eq!((writes(&cluster.sync()), sizes(&cluster)), ([5, 0, 0], vec![60; 5]));
    });
}

#[test]
fn a_port_is_found_in_containers_then_in_sidecars_by_name_and_protocol() {
    let cases = [
        (
            json!({"containers": [{"ports": [{"name": "web", "containerPort": 1}]}], "initContainers": [{"restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 2}]}]}),
            Some(1),
        ),
        (
            json!({"containers": [{}, {"ports": [{"name": "other", "containerPort": 1}, {"name": "web", "containerPort": 3}]}]}),
            Some(3),
        ),
        (
            json!({"containers": [{}], "initContainers": [{"restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 2}]}]}),
            Some(2),
        ),
        (
            json!({"containers": [{}], "initContainers": [{"ports": [{"name": "web", "containerPort": 2}]}]}),
            None,
        ),
        (
            json!({"containers": [{"ports": [{"name": "web", "containerPort": 1, "protocol": "UDP"}]}]}),
            None,
        ),
    ];
    both(|upstream| {
        for (spec, expected) in &cases {
            let mut cluster = cluster(upstream, 1);
            cluster.service["spec"]["ports"][0]["targetPort"] = "web".into();
            let pod = cluster.pods.values_mut().next().unwrap();
            let node = pod["spec"]["nodeName"].clone();
            pod["spec"] = spec.clone();
            pod["spec"]["nodeName"] = node;
            cluster.sync();
            let ports: Vec<i32> =
                cluster.store.list()[0].ports.iter().filter_map(|port| port.port).collect();
            assert_eq!(ports, expected.iter().copied().collect::<Vec<i32>>(), "{spec}");
        }
    });
}

#[test]
fn a_pod_on_an_unknown_node_waits_unless_published_anyway() {
    both(|upstream| {
        let mut cluster = cluster(upstream, 2);
        cluster.sync();
        let name = cluster.pods.keys().next().unwrap().clone();
        cluster.pods.get_mut(&name).unwrap()["spec"]["nodeName"] = "nowhere".into();
        let plan = cluster.plan();
        assert_eq!((writes(&plan), plan.families[0].missing_nodes.len()), ([0, 1, 0], 1));
        assert_eq!(&*plan.families[0].missing_nodes[0].node, "nowhere");
        cluster.service["spec"]["publishNotReadyAddresses"] = true.into();
        let plan = cluster.plan();
        assert_eq!(plan.families[0].missing_nodes, []);
    });
}

#[test]
fn a_hostname_needs_the_services_name_as_subdomain() {
    both(|upstream| {
        for (subdomain, expected) in [("web", Some("db-0")), ("other", None)] {
            let mut cluster = cluster(upstream, 1);
            let pod = cluster.pods.values_mut().next().unwrap();
            pod["spec"]["hostname"] = "db-0".into();
            pod["spec"]["subdomain"] = subdomain.into();
            cluster.sync();
            assert_eq!(cluster.store.list()[0].endpoints[0].hostname.as_deref(), expected);
        }
    });
}

#[test]
fn a_service_that_is_being_deleted_gets_no_new_slices() {
    both(|upstream| {
        let mut cluster = stored(upstream, &[3]);
        cluster.service["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        cluster.pods("a", 200);
        let plan = cluster.plan();
        assert_eq!(plan.families[0].creates.len(), 0);
    });
}

/// Annotations and finalizers of others survive our writes.
#[test]
fn what_others_put_on_a_slice_stays() {
    both(|upstream| {
        let mut cluster = stored(upstream, &[3]);
        let old = cluster.store.list().remove(0);
        let marked = Slice {
            generate_name: Some("made-from-".into()),
            annotations: old.annotations.with("example.com/keep", Some("me")),
            finalizers: Box::new(["example.com/hold".into()]),
            ..(*old).clone()
        };
        cluster.store.slices.insert("old-000".into(), Arc::new(marked));
        cluster.pods("a", 4);
        assert_eq!(writes(&cluster.sync()), [0, 1, 0]);
        let slice = &cluster.store.slices["old-000"];
        assert_eq!(slice.annotations.get("example.com/keep"), Some("me"));
        assert_eq!(slice.finalizers.len(), 1);
        assert_eq!(slice.generate_name.as_deref(), Some("made-from-"));
    });
}

#[test]
fn a_changed_managed_by_relabels_in_place() {
    let mut cluster = stored(false, &[3]);
    cluster.settings.managed_by = "zonewise.dev".into();
    cluster.settings.adopt = vec!["endpointslice-controller.k8s.io".into()];
    assert_eq!(writes(&cluster.sync()), [0, 1, 0]);
    assert_eq!(
        cluster.store.list()[0].labels.get("endpointslice.kubernetes.io/managed-by"),
        Some("zonewise.dev")
    );
}

proptest::proptest! {
    /// After any change each Pod is in exactly one slice, and a second sync writes nothing.
    #[test]
    fn a29_random_changes_settle_at_once(
        steps in proptest::collection::vec((0usize..40, 0usize..40, 0usize..40, 0usize..8), 1..8),
        max in 2usize..20,
        upstream: bool,
    ) {
        let mut cluster = TestCluster::three_zones();
        cluster.settings.upstream = upstream;
        cluster.settings.max_endpoints = max;
        for (a, b, c, mode) in steps {
            cluster.pods("a", a).pods("b", b).pods("c", c);
            let keys = ["service.kubernetes.io/topology-mode", "endpointslice.kubernetes.io/subsetting", "zonewise.dev/routing-preference"];
            for key in keys {
                cluster.remove_annotation(key);
            }
            match mode {
                1 => cluster.annotate(keys[0], "Auto"),
                2 => cluster.annotate(keys[1], "Auto"),
                3 => cluster.annotate(keys[1], "Require"),
                4 => cluster.annotate(keys[2], "Zone"),
                5 => cluster.annotate(keys[2], "zonewise.dev/balanced"),
                6 => cluster.annotate(keys[2], "zonewise.dev/local-shared"),
                _ => &mut cluster,
            };
            cluster.sync();
            let again = cluster.sync().writes();
            // The reference may rewrite a slice again because it cannot keep the hints it has just assigned.
            proptest::prop_assert!(upstream || again == 0, "{} more writes", again);
        }
    }
}
