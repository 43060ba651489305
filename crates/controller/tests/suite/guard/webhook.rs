//! The webhook, which takes the policy's place on API servers that do not have the kind.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zonewise_controller::guard;
use zonewise_slices::guard::{Others, ZoneAllocation};
use zonewise_slices::slice::Slice;
use zonewise_testbed::objects::endpoint_slice;
use zonewise_testbed::{Cluster, User, eventually};

use crate::common::guard::{
    AUTO, MANAGED_BY, allocation, annotated, cluster, cluster_without_policies, edit,
    eventually_admits, eventually_condition, eventually_counts, floor, get, install, own_zone,
    pods, rest, tell, tells, versions,
};
use crate::common::{Running, free_addresses, slices, turn};
use crate::guard::life::{MOVED, OWN_ZONE, PER_ZONE, eventually_moved, rolling_update};

const ELECTION: &str =
    "leaderElection: { leaderElect: true, leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s }";

/// A replica that serves the webhook here, for an API server that finds it there.
pub(crate) async fn replica(
    cluster: &Cluster,
    guard: &str,
    here: SocketAddr,
    there: SocketAddr,
) -> Running {
    elected(cluster, &format!("{guard}webhook: {{ address: '{here}', url: 'https://{there}' }}"))
        .await
}

/// A replica with this configuration of guard mode, which takes part in the election.
async fn elected(cluster: &Cluster, guard: &str) -> Running {
    let lines = format!("mode: guard\nguard: {{ {guard} }}\n{ELECTION}");
    Running::start_as(cluster, User::Controller, &lines).await
}

async fn eventually_ready(running: &Running) {
    eventually(|| async {
        let page = running.page("/readyz?verbose").await.unwrap_or_default();
        if page.contains("readyz check passed") { Ok(()) } else { Err(page) }
    })
    .await;
}

async fn eventually_leads(running: &Running) {
    eventually(|| async {
        let leader = running.metric("zonewise_leader").await;
        if leader.get("") == Some(&1.0) { Ok(()) } else { Err(format!("{leader:?}")) }
    })
    .await;
}

pub(crate) async fn configuration(cluster: &Cluster) -> Option<Value> {
    let objects = cluster.objects().unwrap();
    objects.get("MutatingWebhookConfiguration", None, "zonewise-guard").await.unwrap()
}

/// Without admission policies, two replicas, and an API server that reaches the one that does not lead: hints stay, nothing
/// is written at rest, and without the webhook endpoints flow on the floor.
#[tokio::test(flavor = "multi_thread")]
async fn any_replica_serves_the_webhook_and_without_it_the_floor_holds() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_without_policies(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let [first, second] = free_addresses();
    let leader = replica(&cluster, "", first, second).await;
    eventually_leads(&leader).await;
    let follower = replica(&cluster, "", second, second).await;
    eventually_moved(&cluster, "web").await;
    let stored = get(&cluster, "Service", "web").await.unwrap();
    assert_eq!(stored["spec"]["trafficDistribution"], floor());
    let selector = &configuration(&cluster).await.unwrap()["webhooks"][0]["namespaceSelector"];
    assert_eq!(selector["matchExpressions"][0]["values"], json!(["default"]));

    // The built-in controller writes the slice again and again, and hints are as allocated.
    rolling_update(&cluster, 0).await;
    eventually_moved(&cluster, "web").await;
    let patched = follower.metric("zonewise_guard_reviews_total").await;
    assert!(patched["result=\"patched\""] > 0.0, "{patched:?}");
    assert_eq!(patched["result=\"malformed\""], 0.0);
    tokio::time::sleep(rest()).await;
    let before = versions(&cluster, "web").await;
    tokio::time::sleep(rest()).await;
    assert_eq!(versions(&cluster, "web").await, before, "at rest");

    // The one that answers is lost during a rolling update.
    follower.stop().await.unwrap();
    rolling_update(&cluster, 12).await;
    eventually_counts(&cluster, "web", &OWN_ZONE).await;
    eventually_condition(&cluster, "web", "False", "HintsNotEnforced").await;
    let began = Instant::now();
    let follower = replica(&cluster, "", second, second).await;
    eventually_counts(&cluster, "web", &MOVED).await;
    let back = format!("{:.1}", began.elapsed().as_secs_f64());
    tell(&[
        vec!["hints are back after".into(), "s".into()],
        vec!["a start of the webhook".into(), back],
    ]);
    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;

    // Somebody takes the configuration away, and it returns.
    let named =
        json!({ "kind": "MutatingWebhookConfiguration", "metadata": { "name": "zonewise-guard" } });
    cluster.delete(&[named]).await.unwrap();
    rolling_update(&cluster, 24).await;
    eventually_counts(&cluster, "web", &MOVED).await;

    follower.stop().await.unwrap();
    leader.stop().await.unwrap();
    let removed = guard::remove(&cluster.client(User::Controller).unwrap()).await.unwrap();
    assert_eq!((removed.services, removed.floors), (1, 1));
    assert_eq!(configuration(&cluster).await, None);
    eventually_counts(&cluster, "web", &[("-", 12)]).await;
}

/// As the chart has it. Nothing routes Services here, so that this one leads to an address of loopback by its name; the
/// certificate is for the name of the Service all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_finds_the_webhook_by_its_service() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_without_policies(&[]).await;
    let [low, high] = [std::process::id() % 250 + 1, std::process::id() / 250 % 250];
    let address = format!("127.77.{high}.{low}");
    let metadata = json!({ "namespace": "zonewise-system", "name": "zonewise-guard-webhook" });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": { "type": "ExternalName", "externalName": address },
    });
    cluster.delete(std::slice::from_ref(&service)).await.unwrap();
    cluster.create(&[service]).await.unwrap();
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let lines = format!("mode: guard\nguard: {{ webhook: {{ address: '{address}:443' }} }}");
    let guard = Running::start_as(&cluster, User::Controller, &lines).await;
    eventually_moved(&cluster, "web").await;
    guard.stop().await.unwrap();
}

/// An upgrade to another way, and then to another address: the first new replica does not lead, and the old leader makes no
/// certificate for it. It is ready all the same, so that a rollout goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_lead_is_ready_with_what_there_is() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let by_policy = elected(&cluster, "admission: policy").await;
    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;

    let [first, second] = free_addresses();
    let by_webhook = replica(&cluster, "admission: webhook, ", first, first).await;
    eventually_ready(&by_webhook).await;
    assert_eq!(secret(&cluster).await["data"], Value::Null, "nobody has made a certificate");
    by_policy.stop().await.unwrap();
    eventually_leads(&by_webhook).await;
    eventually_host(&cluster, "127.0.0.1").await;

    // The certificate is for the address, and this replica has another name.
    let port = second.port();
    let url = format!("webhook: {{ address: '{second}', url: 'https://localhost:{port}' }}");
    let elsewhere = elected(&cluster, &format!("admission: webhook, {url}")).await;
    eventually_ready(&elsewhere).await;
    by_webhook.stop().await.unwrap();
    eventually_leads(&elsewhere).await;
    eventually_host(&cluster, "localhost").await;
    rolling_update(&cluster, 0).await;
    eventually_moved(&cluster, "web").await;
    let patched = elsewhere.metric("zonewise_guard_reviews_total").await;
    assert!(patched["result=\"patched\""] > 0.0, "{patched:?}");
    elsewhere.stop().await.unwrap();
}

pub(crate) async fn secret(cluster: &Cluster) -> Value {
    let named = ("zonewise-guard-webhook", Some("zonewise-system"));
    cluster.objects().unwrap().get("Secret", named.1, named.0).await.unwrap().unwrap()
}

/// An entry of the Secret; empty if there is none.
pub(crate) fn entry(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
}

/// Waits until the certificate that is served with is for this host.
async fn eventually_host(cluster: &Cluster, host: &str) {
    eventually(|| async {
        let found = entry(&secret(cluster).await, "host");
        if found == host { Ok(()) } else { Err(format!("the certificate is for `{found}`")) }
    })
    .await;
}

/// API servers before 1.34 know the floor by another name. This one rejects the newer name as those do.
#[tokio::test(flavor = "multi_thread")]
async fn the_floor_has_its_older_name_where_the_newer_is_not_known() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    let policies = "admissionregistration.k8s.io/v1";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"],
    });
    let expression = "object.spec.?trafficDistribution.orValue('') in ['', 'PreferClose']";
    let policy = json!({
        "apiVersion": policies, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "older" },
        "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": expression, "reason": "Invalid" }],
        },
    });
    let binding = json!({
        "apiVersion": policies, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "older" },
        "spec": { "policyName": "older", "validationActions": ["Deny"] },
    });
    cluster.create(&[policy, binding]).await.unwrap();
    let mut newer = annotated("probe", AUTO);
    newer["spec"]["trafficDistribution"] = "PreferSameZone".into();
    eventually(|| async {
        match cluster.create(std::slice::from_ref(&newer)).await {
            Err(_) => Ok(()),
            Ok(()) => {
                cluster.delete(std::slice::from_ref(&newer)).await.map_err(|e| e.to_string())?;
                Err("the newer name is still accepted".to_owned())
            }
        }
    })
    .await;

    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let guard = crate::common::guard::guard(&cluster).await;
    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;
    eventually_counts(&cluster, "web", &MOVED).await;
    let field = async || {
        get(&cluster, "Service", "web").await.unwrap()["spec"]["trafficDistribution"].clone()
    };
    assert_eq!(field().await, "PreferClose");
    edit(&cluster, "Service", "web", |service| {
        service["metadata"].as_object_mut().unwrap().remove("annotations");
    })
    .await;
    eventually(|| async {
        let found = field().await;
        if found.is_null() { Ok(()) } else { Err(format!("{found}")) }
    })
    .await;
    guard.stop().await.unwrap();
}

/// An allocation and the endpoints of a slice, of every kind.
fn random(random: &mut fastrand::Rng) -> (ZoneAllocation, Vec<Value>) {
    let zone = |random: &mut fastrand::Rng| ["a", "b", "c"][random.usize(..3)];
    let mut endpoints = Vec::new();
    let mut listed = std::collections::BTreeMap::new();
    for number in 0..random.usize(..12) {
        let address = format!("10.0.0.{}", number + 1);
        let named =
            |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
        let hints = match random.usize(..5) {
            0 => json!({ "forZones": named(&[zone(random)]) }),
            1 => json!({ "forZones": named(&["a", "c"]) }),
            2 => json!({ "forZones": named(&[zone(random)]), "forNodes": named(&["n"]) }),
            _ => Value::Null,
        };
        let ready = [json!(true), json!(false), Value::Null][random.usize(..3)].clone();
        let own = if random.u8(..5) == 0 { Value::Null } else { json!(zone(random)) };
        endpoints.push(json!({
            "addresses": [address], "zone": own, "nodeName": "n", "hints": hints,
            "conditions": { "ready": ready },
        }));
        if random.bool() {
            let zones = ["", "a", "b", "b,c", "a,c"][random.usize(..5)];
            listed.insert(address.into(), zones.into());
        }
    }
    let others = [Others::OwnZone, Others::NoHints, Others::AsWritten][random.usize(..3)];
    (ZoneAllocation { others, endpoints: listed, floor: None }, endpoints)
}

/// The endpoints of a slice as the API server stores it, once it was written so.
async fn admitted(cluster: &Cluster, name: &str, endpoints: &[Value]) -> Vec<Value> {
    let mut written = endpoint_slice("default", name, name, endpoints);
    written["metadata"]["labels"][MANAGED_BY] = "endpointslice-controller.k8s.io".into();
    cluster.create(&[written]).await.unwrap();
    let stored = slices(cluster, "default", name).await.remove(0);
    stored["endpoints"].as_array().cloned().unwrap_or_default()
}

/// The same slices, and the same allocations under two names: one is the policy's, the other the webhook's.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_does_what_the_policy_does() {
    const CASES: usize = 40;
    let _turn = turn().await;
    let (cluster, built_in) = cluster(&[]).await;
    // What an earlier start would have left goes.
    install(&cluster, &["left".to_owned()]).await;
    let [here] = free_addresses();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let replica = replica(&cluster, "admission: webhook, ", here, here).await;
    eventually(|| async {
        let policies = cluster.list("MutatingAdmissionPolicy", None).await.unwrap();
        if policies.is_empty() { Ok(()) } else { Err(format!("{policies:?}")) }
    })
    .await;
    eventually(|| async {
        let found = configuration(&cluster).await.unwrap_or_default();
        if found["webhooks"][0].is_object() { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    drop(built_in);
    let named = |kind: &str| json!({ "kind": kind, "metadata": { "name": "zonewise-guard-left" } });
    cluster.delete(&[named("MutatingAdmissionPolicyBinding")]).await.unwrap();
    // The last one is by which the test sees that both ways are in force.
    let names = |way: &str| (0..=CASES).map(|case| format!("{way}-{case}")).collect::<Vec<_>>();
    install(&cluster, &names("policy")).await;
    // The controller's own configuration has the names of Services alone; these have allocations and no Service.
    let mut compared = configuration(&cluster).await.unwrap();
    compared["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    compared["kind"] = "MutatingWebhookConfiguration".into();
    compared["metadata"] = json!({ "name": "compared" });
    compared["webhooks"][0]["objectSelector"]["matchExpressions"][0]["values"] =
        json!(names("webhook"));
    cluster.create(&[compared]).await.unwrap();

    let mut seed = fastrand::Rng::with_seed(7);
    let cases: Vec<_> = (0..CASES).map(|_| random(&mut seed)).collect();
    for (number, (spec, _)) in cases.iter().enumerate() {
        let both = ["policy", "webhook"].map(|way| allocation(&format!("{way}-{number}"), spec));
        cluster.create(&both).await.unwrap();
    }
    for last in ["policy", "webhook"].map(|way| format!("{way}-{CASES}")) {
        cluster.create(&[allocation(&last, &own_zone())]).await.unwrap();
        eventually_admits(&cluster, &last, true).await;
    }
    let mut changed = 0;
    for (number, (spec, endpoints)) in cases.iter().enumerate() {
        let by_policy = admitted(&cluster, &format!("policy-{number}"), endpoints).await;
        let by_webhook = admitted(&cluster, &format!("webhook-{number}"), endpoints).await;
        assert_eq!(by_webhook, by_policy, "{number}: {spec:?} {endpoints:?}");
        let written = endpoint_slice("default", "x", "x", endpoints);
        let expected = spec.admitted(&serde_json::from_value(written).unwrap());
        let stored: Slice =
            serde_json::from_value(endpoint_slice("default", "x", "x", &by_webhook)).unwrap();
        assert_eq!(stored.endpoints, expected.endpoints, "{number}: {spec:?}");
        changed += usize::from(!spec.is_applied_to(
            &serde_json::from_value(endpoint_slice("default", "x", "x", endpoints)).unwrap(),
        ));
    }
    assert!(changed > CASES / 2, "{changed} of {CASES} slices are changed at all");
    tell_costs(&cluster).await;
    replica.stop().await.unwrap();
}

/// Tells, where a minute at rest is asked for, what it costs the API server to create and delete a slice of 100 endpoints, all of which get other hints.
async fn tell_costs(cluster: &Cluster) {
    const WRITES: u32 = 50;
    if !tells() {
        return;
    }
    let endpoint = |number: usize| json!({ "addresses": [format!("10.1.0.{}", number + 1)], "zone": "a", "conditions": { "ready": true } });
    let endpoints: Vec<Value> = (0..100).map(endpoint).collect();
    let addresses = endpoints.iter().filter_map(|endpoint| endpoint["addresses"][0].as_str());
    let listed = addresses.map(|address| (address.into(), "b,c".into())).collect();
    let spec = ZoneAllocation { others: Others::OwnZone, endpoints: listed, floor: None };
    let mut rows = vec![["way", "CPU ms"].map(str::to_owned).to_vec()];
    for name in ["nothing", "policy-0", "webhook-0"] {
        let named = slices(cluster, "default", name).await;
        cluster.delete(&named).await.unwrap();
        if name != "nothing" {
            edit(cluster, "ZoneAllocation", name, |one| one["spec"] = json!(spec)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut written = endpoint_slice("default", name, name, &endpoints);
        written["metadata"]["labels"][MANAGED_BY] = "endpointslice-controller.k8s.io".into();
        let cpu = cluster.apiserver_cpu_seconds().unwrap();
        for _ in 0..WRITES {
            cluster.create(std::slice::from_ref(&written)).await.unwrap();
            cluster.delete(std::slice::from_ref(&written)).await.unwrap();
        }
        let cpu = cluster.apiserver_cpu_seconds().unwrap() - cpu;
        rows.push(vec![name.to_owned(), format!("{:.1}", cpu * 1000.0 / f64::from(WRITES))]);
    }
    tell(&rows);
}
