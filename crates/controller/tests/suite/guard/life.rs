//! Services that come under guard mode and leave it, while others change the same objects.

use std::time::Instant;

use serde_json::{Value, json};
use zonewise_controller::guard;
use zonewise_testbed::objects::service;
use zonewise_testbed::{Cluster, Gate, Lent, User, eventually, manifests};

use crate::built_in::BuiltIn;
use crate::common::guard::{
    AUTO, annotated, cluster, condition, counted, counts, edit, eventually_admits,
    eventually_condition, eventually_counts, get, lent_without_policies, pod, pods, rest, tell,
};
use crate::common::{ROOT, Running, bare, guard as common_guard, slices, turn};

/// Six Pods in zone a and three in b and c, by which `auto` moves two endpoints of a.
pub(crate) const PER_ZONE: [usize; 3] = [6, 3, 3];
pub(crate) const OWN_ZONE: [(&str, usize); 3] = [("a", 6), ("b", 3), ("c", 3)];
pub(crate) const MOVED: [(&str, usize); 3] = [("a", 4), ("b", 4), ("c", 4)];
pub(crate) const NONE: [(&str, usize); 1] = [("-", 12)];

/// The hints that `auto` plans are in the slices, and the condition says so.
pub(crate) async fn eventually_moved(cluster: &Cluster, service: &str) {
    eventually_counts(cluster, service, &MOVED).await;
    eventually_condition(cluster, service, "True", "HintsEnforced").await;
}

/// What a Service and its slices say, apart from versions and times.
async fn said(cluster: &Cluster, name: &str) -> Value {
    let mut service = get(cluster, "Service", name).await.unwrap();
    let of_service = managers(&service);
    let metadata = service["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields", "generation"] {
        metadata.remove(field);
    }
    let slices: Vec<Value> = slices(cluster, "default", name)
        .await
        .into_iter()
        .map(|slice| {
            json!({
                "labels": slice["metadata"]["labels"],
                "endpoints": slice["endpoints"],
                "managers": managers(&slice),
            })
        })
        .collect();
    json!({ "service": service, "managers": of_service, "slices": slices })
}

/// The field managers of an object.
fn managers(object: &Value) -> Vec<String> {
    let fields = object["metadata"]["managedFields"].as_array();
    let mut names: Vec<String> =
        fields.into_iter().flatten().map(|one| one["manager"].to_string()).collect();
    names.sort();
    names.dedup();
    names
}

fn annotate(value: Option<&str>) -> impl Fn(&mut Value) {
    move |service: &mut Value| match value {
        Some(value) => service["metadata"]["annotations"] = json!({ AUTO.0: value }),
        None => {
            service["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
}

async fn eventually_gone(cluster: &Cluster, name: &str) {
    eventually(|| async {
        match get(cluster, "ZoneAllocation", name).await {
            None => Ok(()),
            Some(object) => Err(format!("still there: {object}")),
        }
    })
    .await;
}

/// A cluster in which the Service `web`, which asks for hints, has these Pods.
async fn cluster_with_web() -> (Lent, BuiltIn) {
    let (cluster, built_in) = cluster(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    (cluster, built_in)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_opts_in_and_out_is_as_before() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    // Nobody but the test writes the annotation, so that its manager is there before and after.
    cluster.create(&[service("default", "web", "web")]).await.unwrap();
    eventually_counts(&cluster, "web", &NONE).await;
    edit(&cluster, "Service", "web", annotate(Some("Default"))).await;
    edit(&cluster, "Service", "web", annotate(None)).await;
    let before = said(&cluster, "web").await;

    let guard = common_guard::guard(&cluster).await;
    edit(&cluster, "Service", "web", annotate(Some(AUTO.1))).await;
    eventually_moved(&cluster, "web").await;
    let stored = get(&cluster, "Service", "web").await.unwrap();
    assert_eq!(stored["spec"]["trafficDistribution"], "PreferSameZone");
    let allocation = get(&cluster, "ZoneAllocation", "web").await.unwrap();
    assert_eq!(allocation["spec"]["others"], "OwnZone");
    assert_eq!(allocation["spec"]["endpoints"].as_object().unwrap().len(), 2, "{allocation}");
    assert_eq!(allocation["metadata"]["ownerReferences"][0]["uid"], stored["metadata"]["uid"]);
    let events = cluster.list("Event", Some("default")).await.unwrap();
    assert!(events.iter().any(|event| event["reason"] == "HintsEnforced"), "{events:?}");

    edit(&cluster, "Service", "web", annotate(None)).await;
    eventually_gone(&cluster, "web").await;
    eventually(|| async {
        let now = said(&cluster, "web").await;
        if now == before { Ok(()) } else { Err(format!("{now:#}\ninstead of\n{before:#}")) }
    })
    .await;
    guard.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_another_program_sets_is_told_and_not_fought_for() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    for (number, name) in ["given", "taken"].into_iter().enumerate() {
        cluster.create(&pods(name, 20 * number, PER_ZONE)).await.unwrap();
    }
    let mut taken = annotated("taken", AUTO);
    taken["spec"]["trafficDistribution"] = "PreferSameNode".into();
    cluster.create(&[annotated("given", AUTO), taken]).await.unwrap();
    let guard = common_guard::guard(&cluster).await;
    eventually_counts(&cluster, "given", &MOVED).await;
    eventually_counts(&cluster, "taken", &MOVED).await;
    eventually_condition(&cluster, "taken", "True", "FloorRefused").await;
    eventually_condition(&cluster, "given", "True", "HintsEnforced").await;

    // Whoever replaces the whole Service without the field takes it away.
    edit(&cluster, "Service", "given", |service| {
        service["spec"].as_object_mut().unwrap().remove("trafficDistribution");
    })
    .await;
    eventually_condition(&cluster, "given", "True", "FloorWithdrawn").await;
    tokio::time::sleep(rest() / 4).await;
    for (name, field) in [("given", Value::Null), ("taken", "PreferSameNode".into())] {
        let stored = get(&cluster, "Service", name).await.unwrap();
        assert_eq!(stored["spec"]["trafficDistribution"], field, "{name}");
        eventually_counts(&cluster, name, &MOVED).await;
    }
    guard.stop().await.unwrap();
}

/// Replaces every Pod of `web` by another one, one after the other.
pub(crate) async fn rolling_update(cluster: &Cluster, first: usize) {
    for number in 0..12 {
        let zone = ["a", "a", "a", "a", "a", "a", "b", "b", "b", "c", "c", "c"][number];
        cluster.create(&[pod("web", first + 12 + number, zone)]).await.unwrap();
        cluster.delete(&[pod("web", first + number, zone)]).await.unwrap();
    }
}

async fn take_policy_away(cluster: &Cluster) {
    let named = |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "name": name } });
    let binding = named("MutatingAdmissionPolicyBinding", "zonewise-guard-web");
    cluster.delete(&[binding, named("MutatingAdmissionPolicy", "zonewise-guard")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_flow_without_the_policy_and_hints_return_with_it() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_with_web().await;
    let guard = common_guard::guard(&cluster).await;
    eventually_counts(&cluster, "web", &MOVED).await;

    // Both the policy and the controller are lost during a rolling update: the floor holds.
    guard.stop().await.unwrap();
    take_policy_away(&cluster).await;
    eventually_admits(&cluster, "web", false).await;
    rolling_update(&cluster, 0).await;
    eventually_counts(&cluster, "web", &OWN_ZONE).await;

    let began = Instant::now();
    let guard = common_guard::guard(&cluster).await;
    eventually_counts(&cluster, "web", &MOVED).await;
    let restart = began.elapsed();

    // The policy alone is removed during another one.
    take_policy_away(&cluster).await;
    let began = Instant::now();
    rolling_update(&cluster, 12).await;
    eventually(|| async {
        if is_bound(&cluster).await { Ok(()) } else { Err("no policy".to_owned()) }
    })
    .await;
    eventually_moved(&cluster, "web").await;
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    tell(&[
        vec!["hints are back after".into(), "seconds".into()],
        vec!["a start without policy".into(), format!("{:.1}", seconds(restart))],
        vec!["the loss of the policy".into(), format!("{:.1}", seconds(began.elapsed()))],
    ]);
    guard.stop().await.unwrap();
}

async fn is_bound(cluster: &Cluster) -> bool {
    bound(cluster).await.contains(&"web".to_owned())
}

/// The names of Services that the policy is bound to.
async fn bound(cluster: &Cluster) -> Vec<String> {
    let found = cluster.list("MutatingAdmissionPolicyBinding", None).await.unwrap();
    let name = |binding: &Value| binding["metadata"]["name"].as_str().unwrap().to_owned();
    let service = |name: String| name.strip_prefix("zonewise-guard-").map(str::to_owned);
    let mut names: Vec<String> = found.iter().map(name).filter_map(service).collect();
    names.sort();
    names
}

async fn eventually_bound(cluster: &Cluster, names: &[&str]) {
    eventually(|| async {
        let found = bound(cluster).await;
        if found == names { Ok(()) } else { Err(format!("{found:?} instead of {names:?}")) }
    })
    .await;
}

/// A metric is counted when an allocation is stored, which can be after the policy has its name.
async fn eventually_metric(guard: &Running, name: &str, value: f64) {
    eventually(|| async {
        let found = guard.metric(name).await;
        if found.get("") == Some(&value) {
            Ok(())
        } else {
            Err(format!("{name} is {found:?} instead of {value}"))
        }
    })
    .await;
}

/// With four places, a namespace alone gets two. The others wait, and nothing of theirs is written.
#[tokio::test(flavor = "multi_thread")]
async fn services_beyond_the_limit_are_told_and_get_a_place_once_one_is_free() {
    const LIMITED: &str = "mode: guard\nguard: { maxServiceNames: 4 }";
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    let of_web = |namespace: &str, name: &str| {
        let mut object = service(namespace, name, "web");
        object["metadata"]["annotations"] = json!({ AUTO.0: AUTO.1 });
        object
    };
    let guard = Running::start_as(&cluster, User::Controller, LIMITED).await;
    cluster.create(&["c", "d"].map(|name| of_web("default", name))).await.unwrap();
    for name in ["c", "d"] {
        eventually_condition(&cluster, name, "True", "HintsEnforced").await;
    }
    cluster.create(&["a", "b"].map(|name| of_web("default", name))).await.unwrap();
    for name in ["a", "b"] {
        eventually_condition(&cluster, name, "False", "GuardLimitReached").await;
        let stored = get(&cluster, "Service", name).await.unwrap();
        assert_eq!(stored["spec"]["trafficDistribution"], Value::Null, "{name}");
        assert_eq!(get(&cluster, "ZoneAllocation", name).await, None, "{name}");
        assert_eq!(counts(&cluster, name).await, counted(&NONE), "{name}");
    }
    eventually_metric(&guard, "zonewise_guard_waiting_services", 2.0).await;
    // Another namespace has places left, and names that are bound cost it nothing.
    let space = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "bank" } });
    cluster.create(&[space]).await.unwrap();
    cluster.create(&["c", "e"].map(|name| of_web("bank", name))).await.unwrap();
    eventually_bound(&cluster, &["c", "d", "e"]).await;
    eventually_metric(&guard, "zonewise_guard_service_names", 3.0).await;
    guard.stop().await.unwrap();

    // Who is in force stays when another leader begins, although others come first in the alphabet.
    let guard = Running::start_as(&cluster, User::Controller, LIMITED).await;
    eventually_metric(&guard, "zonewise_guard_waiting_services", 2.0).await;
    assert_eq!(bound(&cluster).await, ["c", "d", "e"]);

    // One leaves, and one of those that wait gets its place: whichever is synced first.
    edit(&cluster, "Service", "d", annotate(None)).await;
    let (in_force, waits) = eventually(|| async {
        let found = bound(&cluster).await;
        match found.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["a", "c", "e"] => Ok(("a", "b")),
            ["b", "c", "e"] => Ok(("b", "a")),
            _ => Err(format!("{found:?}")),
        }
    })
    .await;
    eventually_moved(&cluster, in_force).await;
    assert_eq!(
        condition(&cluster, waits, "Enforced").await,
        Some(("False".to_owned(), "GuardLimitReached".to_owned()))
    );
    guard.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_guard_mode_leaves_nothing() {
    let _turn = turn().await;
    let (cluster, built_in) = cluster_with_web().await;
    eventually_counts(&cluster, "web", &NONE).await;
    let before = said(&cluster, "web").await;
    let guard = common_guard::guard(&cluster).await;
    eventually_moved(&cluster, "web").await;
    // The policy is there before its first binding, which the API server would refuse.
    let events = cluster.list("Event", Some("default")).await.unwrap();
    let failed = events.iter().find(|event| event["reason"] == "FailedToUpdateEndpointSlices");
    assert_eq!(failed, None);
    guard.stop().await.unwrap();

    let client = cluster.client(User::Controller).unwrap();
    let removed = guard::remove(&client).await.unwrap();
    assert_eq!((removed.services, removed.floors), (1, 1));
    eventually(|| async {
        let now = said(&cluster, "web").await;
        if now == before { Ok(()) } else { Err(format!("{now:#}\ninstead of\n{before:#}")) }
    })
    .await;
    assert!(!is_bound(&cluster).await);
    for kind in ["MutatingAdmissionPolicy", "ZoneAllocation"] {
        assert_eq!(cluster.list(kind, None).await.unwrap(), Vec::<Value>::new());
    }
    assert_eq!(guard::remove(&client).await.unwrap(), guard::Removed::default(), "again");
    drop::<BuiltIn>(built_in);
}

/// Whoever deletes the definition of ZoneAllocations deletes them all; Services tell what there is to remove.
#[tokio::test(flavor = "multi_thread")]
async fn guard_mode_is_removed_without_its_allocations_and_where_there_never_were_any() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    let rows = [
        ("web", AUTO),
        ("default", (AUTO.0, "Default")),
        ("misspelt", (AUTO.0, "zonewise.dev/automatic")),
        ("subsets", ("endpointslice.kubernetes.io/subsetting", "Region")),
    ];
    cluster.create(&rows.map(|(name, asked)| annotated(name, asked))).await.unwrap();
    eventually_counts(&cluster, "web", &NONE).await;
    let mut before = Vec::new();
    for (name, _) in rows {
        eventually(|| async {
            let found = slices(&cluster, "default", name).await.len();
            if found == 1 { Ok(()) } else { Err(format!("{name}: {found} slices")) }
        })
        .await;
        before.push(said(&cluster, name).await);
    }
    let guard = common_guard::guard(&cluster).await;
    eventually_counts(&cluster, "web", &MOVED).await;
    for (name, _) in rows {
        eventually(|| async {
            let found = condition(&cluster, name, "Accepted").await;
            found.map(drop).ok_or_else(|| format!("{name} has no conditions"))
        })
        .await;
    }
    guard.stop().await.unwrap();
    let definition = manifests(format!("{ROOT}/deploy/guard/crd.yaml")).unwrap();
    cluster.delete(&definition).await.unwrap();
    eventually(|| async {
        let found = cluster.list("ZoneAllocation", None).await;
        if found.is_err() { Ok(()) } else { Err("ZoneAllocations are still known".to_owned()) }
    })
    .await;

    let client = cluster.client(User::Controller).unwrap();
    assert_eq!(guard::remove(&client).await.unwrap().floors, 1);
    for ((name, _), before) in rows.iter().zip(before) {
        eventually(|| async {
            let now = said(&cluster, name).await;
            if now == before { Ok(()) } else { Err(format!("{now:#}\ninstead of\n{before:#}")) }
        })
        .await;
    }
    assert_eq!(guard::remove(&client).await.unwrap(), guard::Removed::default(), "again");
}

/// No garbage collector runs here: the ZoneAllocation of the first Service stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_created_again_gets_a_floor_of_its_own() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_with_web().await;
    let guard = common_guard::guard(&cluster).await;
    eventually_moved(&cluster, "web").await;

    cluster.delete(&[annotated("web", AUTO)]).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    eventually(|| async {
        let service = get(&cluster, "Service", "web").await.unwrap();
        let allocation = get(&cluster, "ZoneAllocation", "web").await.unwrap();
        let owners = allocation["metadata"]["ownerReferences"].as_array().unwrap();
        let is_its_own = owners.len() == 1 && owners[0]["uid"] == service["metadata"]["uid"];
        let has_floor = service["spec"]["trafficDistribution"] == "PreferSameZone";
        let is_right = is_its_own && has_floor && allocation["spec"]["floor"] == "PreferSameZone";
        if is_right { Ok(()) } else { Err(format!("{service:#}\n{allocation:#}")) }
    })
    .await;
    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;
    eventually_counts(&cluster, "web", &MOVED).await;
    guard.stop().await.unwrap();
}

/// The built-in controller leaves the slices of such a Service as they are, so it cannot be asked to write them.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_loses_its_selector_keeps_neither_hints_nor_a_label() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_with_web().await;
    let guard = common_guard::guard(&cluster).await;
    eventually_counts(&cluster, "web", &MOVED).await;
    edit(&cluster, "Service", "web", |service| {
        service["spec"].as_object_mut().unwrap().remove("selector");
    })
    .await;
    eventually_gone(&cluster, "web").await;
    assert_eq!(counts(&cluster, "web").await, counted(&NONE));
    for slice in slices(&cluster, "default", "web").await {
        assert_eq!(slice["metadata"]["labels"]["zonewise.dev/released"], Value::Null);
    }
    guard.stop().await.unwrap();
}

/// Otherwise the probe would end the process again and again while the API server is away.
#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_while_the_api_server_does_not_answer() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    let gate = Gate::open(&cluster).await.unwrap();
    gate.cut();
    let guard = Running::through(&cluster, &gate, "mode: guard").await;
    let alive = async |path: &str| guard.page(path).await.map_err(|error| error.to_string());
    eventually(|| async { alive("/livez").await.map(drop) }).await;
    gate.heal();
    eventually(|| async {
        let page = alive("/readyz").await?;
        if page.starts_with("ok") { Ok(()) } else { Err(page) }
    })
    .await;
    guard.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn observe_mode_writes_nothing() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_with_web().await;
    eventually_counts(&cluster, "web", &NONE).await;
    let writes = async || -> u64 {
        let counts = cluster.request_counts().await.unwrap();
        // The API server renews a Lease of its own.
        let is_write = |verb: &str, resource: &str| {
            ["POST", "PUT", "PATCH", "DELETE", "APPLY"].contains(&verb) && resource != "leases"
        };
        let writes = counts.iter().filter(|((verb, resource, _), _)| is_write(verb, resource));
        writes.map(|(_, count)| count).sum()
    };
    let before = writes().await;
    // The Lease would be asked for: leader election is on where it is not switched off.
    let observer =
        Running::start(&cluster, "mode: observe\nleaderElection: { leaderElect: true }").await;
    eventually(|| async {
        let found = observer.metric("zonewise_services").await;
        let is_planned = found.keys().any(|labels| labels.contains("HintsAssigned"));
        if is_planned { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    tokio::time::sleep(rest()).await;
    assert_eq!(writes().await, before);
    let leases = cluster.list("Lease", Some("zonewise-system")).await.unwrap();
    assert_eq!(leases, Vec::<Value>::new());
    assert_eq!(counts(&cluster, "web").await, counted(&NONE));
    assert_eq!(condition(&cluster, "web", "Programmed").await, None);
    observer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_mode_says_what_the_cluster_lacks() {
    let _turn = turn().await;
    let cluster = bare().await;
    let guard = common_guard::guard(&cluster).await;
    let error = guard.ended().await.unwrap_err().to_string();
    assert!(error.contains("apply deploy/guard/crd.yaml"), "{error}");
    let cluster = lent_without_policies().await;
    let lines = "mode: guard\nguard: { admission: policy }";
    let guard = Running::start_as(&cluster, User::Controller, lines).await;
    let error = guard.ended().await.unwrap_err().to_string();
    assert!(
        error.contains("since version 1.36") && error.contains("admission: webhook"),
        "{error}"
    );
}
