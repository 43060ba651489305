//! kube-proxy and ours, each in a network of its own with the same objects: the same endpoints are reached from
//! every kind of client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::nodes::{
    TestNodes, cluster, cluster_ip, node_port, pod_object, responders, responders_udp,
    service_object, set, stored,
};
use serde_json::{Value, json};
use zonewise_netns::{Namespace, NetnsPod};
use zonewise_testbed::{Cluster, eventually, eventually_equals, objects};

const TRIES: usize = 24;

/// One of the twins.
struct Twin {
    nodes: TestNodes,
    pods: Vec<NetnsPod>,
    caller: NetnsPod,
    client: zonewise_netns::NetnsClient,
}

/// Two nodes, a pod that serves on each and one that asks, somebody outside. Every call makes the
/// same addresses.
fn twin(cluster: &Cluster) -> (Twin, Vec<Value>) {
    let mut nodes = TestNodes::new();
    let mut objects = vec![nodes.add(cluster, "n1", "a"), nodes.add(cluster, "n2", "b")];
    let pods = vec![nodes.add_server("n1", "here"), nodes.add_server("n2", "there")];
    objects.extend(pods.iter().map(|pod| pod_object(pod, "web")));
    let caller = nodes.add_pod("n1", "caller");
    let client = nodes.add_client("client", "n1");
    (Twin { nodes, pods, caller, client }, objects)
}

/// Services of every kind, with the changes to their `spec`.
fn services() -> Vec<(&'static str, Value)> {
    let outside =
        json!({"type": "LoadBalancer", "externalIPs": ["198.51.100.77", "2001:db8:1::77"]});
    let with = |changes: Value| {
        let mut all = outside.clone();
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    vec![
        ("plain", json!({})),
        ("nodeport", json!({"type": "NodePort"})),
        ("balancer", outside.clone()),
        (
            "external-local",
            with(json!({"externalTrafficPolicy": "Local", "externalIPs": ["198.51.100.78"]})),
        ),
        (
            "internal-local",
            with(json!({"internalTrafficPolicy": "Local", "externalIPs": ["198.51.100.79"]})),
        ),
        (
            "both-local",
            with(
                json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local", "externalIPs": ["198.51.100.80"]}),
            ),
        ),
        (
            "ranges",
            with(
                json!({"loadBalancerSourceRanges": ["192.168.0.0/24", "10.0.0.0/8"], "externalIPs": ["198.51.100.81"]}),
            ),
        ),
        ("nobody", with(json!({"selector": {"app": "nobody"}, "externalIPs": ["198.51.100.82"]}))),
        ("prefer-zone", json!({"trafficDistribution": "PreferSameZone"})),
        ("prefer-node", json!({"trafficDistribution": "PreferSameNode"})),
        ("not-ready", json!({"selector": {"app": "unready"}})),
        ("published", json!({"selector": {"app": "unready"}, "publishNotReadyAddresses": true})),
    ]
}

/// Where each Service is found: what, and where.
fn frontends(twin: &Twin, service: &Value) -> Vec<(String, SocketAddr)> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        let family = if v6 { "IPv6" } else { "IPv4" };
        all.push((format!("ClusterIP {family}"), cluster_ip(service, v6)));
        let stray = SocketAddr::new(cluster_ip(service, v6).ip(), 81);
        all.push((format!("ClusterIP, no port {family}"), stray));
        if service["spec"]["ports"][0]["nodePort"].is_u64() {
            for node in ["n1", "n2"] {
                let at = node_port(service, twin.nodes.node(node), v6);
                all.push((format!("NodePort on {node} {family}"), at));
            }
        }
    }
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let ips = service["spec"]["externalIPs"].as_array().into_iter().flatten();
    for ip in ingress.map(|ingress| &ingress["ip"]).chain(ips) {
        let ip = ip.as_str().unwrap();
        all.push((format!("outside {ip}"), SocketAddr::new(ip.parse().unwrap(), 80)));
    }
    all
}

type Matrix = BTreeMap<String, BTreeSet<String>>;

fn look(twin: &Twin, services: &[Value]) -> Matrix {
    let callers: [(&str, &Namespace); 4] = [
        ("pod", &twin.caller.namespace),
        ("endpoint", &twin.pods[0].namespace),
        ("node", &twin.nodes.node("n1").namespace),
        ("client", &twin.client.namespace),
    ];
    let mut matrix = Matrix::new();
    std::thread::scope(|scope| {
        let mut parts = Vec::new();
        for service in services {
            parts.push(scope.spawn(move || {
                let mut part = Matrix::new();
                let name = service["metadata"]["name"].as_str().unwrap();
                for (what, to) in frontends(twin, service) {
                    for (who_asks, namespace) in callers {
                        let heard = settled(|tries| responders(namespace, to, tries));
                        part.insert(format!("{name}: {who_asks} to {what}, TCP"), heard);
                        let heard = settled(|tries| responders_udp(namespace, to, tries));
                        part.insert(format!("{name}: {who_asks} to {what}, UDP"), heard);
                    }
                }
                part
            }));
        }
        for part in parts {
            matrix.extend(part.join().unwrap());
        }
    });
    matrix
}

/// A refusal is for everybody; anything else may depend on the endpoint that was picked.
fn settled(ask: impl Fn(usize) -> BTreeSet<String>) -> BTreeSet<String> {
    let first = ask(1);
    if first.contains("refused") { first } else { &first | &ask(TRIES) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_endpoints_are_reached_as_with_kube_proxy() {
    let cluster = cluster().await;
    let (mut theirs, objects) = twin(&cluster);
    let (mut ours, same) = twin(&cluster);
    assert_eq!(objects, same);
    cluster.create(&objects).await.unwrap();
    let _controller = cluster.controller_manager(&[]).unwrap();
    for (name, changes) in services() {
        cluster.create(&[service_object(name, "web", &changes)]).await.unwrap();
    }
    let mut unready = objects[2].clone();
    unready["metadata"]["name"] = json!("unready");
    unready["metadata"]["labels"]["app"] = json!("unready");
    zonewise_testbed::objects::set_ready(&mut unready, false);
    cluster.create(&[unready]).await.unwrap();
    give_addresses(&cluster).await;
    let mut all = Vec::new();
    for (name, _) in services() {
        all.push(stored(&cluster, name).await);
    }
    for node in ["n1", "n2"] {
        theirs.nodes.start_kube_proxy(&cluster, node, &[]);
        ours.nodes.start_proxy(&cluster, node, &[]);
    }
    all_are_written(&cluster).await;
    // What is written last is served when everything before it is.
    let mut last = service_object("last", "web", &json!({}));
    last["spec"].as_object_mut().unwrap().remove("selector");
    let here = objects::endpoint(theirs.pods[0].address(false), "n1", "a");
    let mut slice = objects::endpoint_slice("default", "last", "last", &[here]);
    slice["ports"] = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    cluster.create(&[last, slice]).await.unwrap();
    let last = stored(&cluster, "last").await;
    for twin in [&theirs, &ours] {
        let at = |to, tries| responders(&twin.caller.namespace, to, tries);
        let served = cluster_ip(&last, false);
        eventually_equals("the last Service", set(&["here"]), || at(served, 1)).await;
        // kube-proxy learns the zone of its node a while after its first rules.
        for near in all.iter().filter(|one| one["spec"]["trafficDistribution"].is_string()) {
            let to = cluster_ip(near, false);
            eventually_equals("near", set(&["here"]), || at(to, TRIES)).await;
        }
    }
    let (theirs_heard, ours_heard) =
        tokio::task::block_in_place(|| (look(&theirs, &all), look(&ours, &all)));
    let different: Vec<String> = theirs_heard
        .iter()
        .filter(|(what, heard)| ours_heard.get(*what) != Some(heard))
        .map(|(what, heard)| format!("{what}: theirs {heard:?}, ours {:?}", ours_heard[what]))
        .collect();
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        theirs_heard.len(),
        different.join("\n")
    );
    theirs.nodes.proxy("n1").check().unwrap();
    ours.nodes.proxy("n1").check().unwrap();
}

/// Waits until the slices of all Services have the endpoints that their selectors find.
async fn all_are_written(cluster: &Cluster) {
    let expected: BTreeMap<&str, usize> = services()
        .into_iter()
        .map(|(name, changes)| match changes["selector"]["app"].as_str() {
            None => (name, 4),
            Some("unready") => (name, 2),
            Some(_) => (name, 0),
        })
        .collect();
    eventually(async || {
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        let slices = cluster.list("EndpointSlice", Some("default")).await.unwrap();
        for slice in &slices {
            let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
            let endpoints = slice["endpoints"].as_array().map_or(0, Vec::len);
            *found.entry(service.unwrap_or_default()).or_default() += endpoints;
        }
        found.retain(|name, _| expected.contains_key(name));
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Load balancers get an address each, as a cloud would give them.
async fn give_addresses(cluster: &Cluster) {
    let objects = cluster.objects().unwrap();
    let mut number = 0;
    for mut service in cluster.list("Service", Some("default")).await.unwrap() {
        if service["spec"]["type"] == "LoadBalancer" {
            number += 1;
            service["kind"] = json!("Service");
            service["apiVersion"] = json!("v1");
            service["status"] =
                json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{number}")}]}});
            objects.update_status(&[service]).await.unwrap();
        }
    }
}
