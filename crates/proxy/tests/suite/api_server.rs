//! The proxy against an API server: its watches decide what it knows, and packets show it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_apiserver::Config as ServerConfig;
use zonewise_netns::traffic::probe_tcp_here;
use zonewise_netns::{Namespace, NetnsPod};
use zonewise_testbed::{eventually, eventually_equals, objects};

use crate::common::live::{Api, LiveNetwork, LiveProxy, slice_of};
use crate::common::objects::{labelled, ports};
use crate::health::ask;

const HEADLESS: &str = "service.kubernetes.io/headless";

/// A slice that gets the label of headless Services is not for proxies: no list brings it back.
#[test]
fn c8_a_slice_that_becomes_headless_stays_away() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        api.objects.create(&[network.n1_object()]).await.unwrap();
        let web = api.add_service("web").await;
        let slice = slice_of("web", "web-1", &[&network.here], false);
        api.objects.create(std::slice::from_ref(&slice)).await.unwrap();
        let proxy = LiveProxy::start(&api);
        network.answers_at_last(web, "here").await;

        api.objects.update(&[labelled(slice.clone(), HEADLESS, "")]).await.unwrap();
        network.answers_at_last(web, "refused").await;
        // When a later change is in the kernel, whatever followed the label is there as well.
        let marker = api.add_service("marker").await;
        api.objects
            .create(&[slice_of("marker", "marker-1", &[&network.there], false)])
            .await
            .unwrap();
        network.answers_at_last(marker, "there").await;
        let answers: Vec<String> = (0..20).map(|_| network.answer(web)).collect();
        assert_eq!(answers, vec!["refused"; 20]);

        api.objects.update(&[slice]).await.unwrap();
        network.answers_at_last(web, "here").await;
        proxy.stop().await;
    });
}

/// The body of `/healthz`, once the server listens.
async fn healthz() -> Value {
    let address = SocketAddr::from(([127, 0, 0, 1], 10256));
    let (_, body) =
        eventually(async || ask(address, "GET", "/healthz").await.ok_or("no answer".to_owned()))
            .await;
    serde_json::from_str(&body).unwrap()
}

/// What a proxy waits for at its start is on `/healthz`, with what to do about it.
#[test]
fn a_proxy_without_its_node_says_what_it_waits_for() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        let proxy = LiveProxy::start(&api);
        let waits_for = async |expected: &str| {
            eventually(async || {
                let body = healthz().await;
                let said = body["waitingFor"].as_str().unwrap_or("nothing");
                if said.contains(expected) { Ok(()) } else { Err(format!("{expected}: {body}")) }
            })
            .await;
        };
        waits_for("has no Node n1; start the kubelet of this node, or set --node-name").await;
        let mut node = network.n1_object();
        let addresses = node["status"]["addresses"].take();
        api.objects.create(std::slice::from_ref(&node)).await.unwrap();
        waits_for("Node n1 has no address in status.addresses").await;
        node["status"]["addresses"] = addresses;
        api.objects.update_status(&[node]).await.unwrap();
        waits_for("nothing").await;
        eventually(async || match healthz().await {
            body if body["nodeEligible"] == json!(true) => Ok(()),
            body => Err(body.to_string()),
        })
        .await;
        proxy.stop().await;
    });
}

/// A proxy reports in its Lease how far all its watches have got. Its watch of slices for the zone has
/// nothing to deliver here, and moves with the API server's bookmarks.
#[test]
fn d12_a_lease_reports_what_all_watches_have_reached() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let bookmark_interval = Duration::from_secs(1);
        let api = Api::start_with(ServerConfig { bookmark_interval, ..Default::default() }).await;
        let system = objects::namespace("zonewise-system");
        api.objects.create(&[network.n1_object(), system]).await.unwrap();
        let web = api.add_service("web").await;
        let proxy = LiveProxy::start(&api);
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
        api.objects.create(&[slice_of("web", "web-1", &[], false)]).await.unwrap();
        for pod in [&network.here, &network.there] {
            api.objects.update(&[slice_of("web", "web-1", &[pod], false)]).await.unwrap();
            network.answers_at_last(web, &pod.name).await;
            let stored = api.objects.get("EndpointSlice", Some("default"), "web-1").await.unwrap();
            let stored: u64 = version(&stored.unwrap()).unwrap();
            eventually(async || {
                let lease = Some("zonewise-system");
                let lease = api.objects.get("Lease", lease, "zonewise-proxy-n1").await.unwrap();
                let lease = lease.ok_or("no Lease")?;
                let applied = &lease["metadata"]["annotations"]["zonewise.dev/applied"];
                let applied = applied.as_str().and_then(|text| text.parse::<u64>().ok());
                if applied >= Some(stored) { Ok(()) } else { Err(format!("{stored}: {lease}")) }
            })
            .await;
        }
        proxy.stop().await;
    });
}

/// Labels a slice for a zone.
fn for_zone(slice: Value, zone: &str) -> Value {
    labelled(slice, "endpointslice.kubernetes.io/for-zone", zone)
}

/// A port, or an address family, that only another zone's slices serve is served from all slices, as
/// with `Require`; the other ports stay in their zone.
#[test]
fn c8_a_port_or_family_without_an_endpoint_in_its_zone_is_served_from_all() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        api.objects.create(&[network.n1_object()]).await.unwrap();
        let mut service = objects::service("default", "web", "web");
        service["spec"].as_object_mut().unwrap().remove("selector");
        service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
        service["spec"]["ports"] = json!([
            {"name": "http", "port": 80, "protocol": "TCP"},
            {"name": "admin", "port": 81, "protocol": "TCP"},
        ]);
        api.objects.create(&[service]).await.unwrap();
        let (http, admin) = (("http", 8080, "TCP"), ("admin", 8080, "TCP"));
        let four = |name, pod: &NetnsPod| slice_of("web", name, &[pod], false);
        let six = slice_of("web", "web-b6", &[&network.there], true);
        let slices = [
            for_zone(ports(four("web-a", &network.here), &[http]), "a"),
            for_zone(ports(four("web-b", &network.there), &[http, admin]), "b"),
            for_zone(ports(six, &[http]), "b"),
        ];
        api.objects.create(&slices).await.unwrap();
        let proxy = LiveProxy::start(&api);
        let [v4, v6] = [false, true].map(|v6| api.cluster_ip("web", v6));
        let (v4, v6) = (v4.await, v6.await);
        network.answers_at_last(SocketAddr::new(v4, 80), "here").await;
        network.answers_at_last(SocketAddr::new(v4, 81), "there").await;
        network.answers_at_last(SocketAddr::new(v6, 80), "there").await;
        let nearby = (0..20).map(|_| network.answer(SocketAddr::new(v4, 80)));
        assert_eq!(nearby.collect::<Vec<_>>(), vec!["here"; 20], "this port stays in its zone");
        proxy.stop().await;
    });
}

/// How long a connection under load may take. A packet that was dropped is sent again after a second, so it still counts
/// as no answer, and one that only waits for a busy machine does not.
const PATIENCE: Duration = Duration::from_millis(900);

/// Asks without a pause on a thread of its own, and counts who answers, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<String, usize>>,
}

impl Load {
    fn start(from: &Namespace, to: SocketAddr) -> Self {
        let (from, stop) = (from.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            from.join().unwrap();
            let mut answers = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                *answers.entry(probe_tcp_here(to, PATIENCE).to_string()).or_default() += 1;
            }
            answers
        });
        Self { stop, thread }
    }

    fn stop(self) -> BTreeMap<String, usize> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A node whose zone label is edited moves its watches without a gap: no connection fails, although
/// the API server takes its time to answer, and although one zone has no slices at all.
#[test]
fn c5_a_node_that_changes_its_zone_fails_no_connection() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        api.objects.create(&[network.n1_object()]).await.unwrap();
        let web = api.add_service("web").await;
        let of = |name, pod| slice_of("web", name, &[pod], false);
        let slices =
            [for_zone(of("web-a", &network.here), "a"), for_zone(of("web-b", &network.there), "b")];
        api.objects.create(&slices).await.unwrap();
        let proxy = LiveProxy::start(&api);
        network.answers_at_last(web, "here").await;
        let load = Load::start(&network.caller.namespace, web);
        api.server.set_faults("latency=100ms..300ms".parse().unwrap());
        for zone in ["b", "a", "nowhere", "b", "nowhere", "a"] {
            let mut node = network.n1_object();
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
            api.objects.update(&[node]).await.unwrap();
            let expected: &[&str] = match zone {
                "a" => &["here"],
                "b" => &["there"],
                _ => &["here", "there"],
            };
            let expected: BTreeSet<String> = expected.iter().map(|name| (*name).into()).collect();
            eventually_equals(zone, expected, || (0..24).map(|_| network.answer(web)).collect())
                .await;
        }
        let answers = load.stop();
        let names: Vec<&str> = answers.keys().map(String::as_str).collect();
        assert_eq!(names, ["here", "there"], "{answers:?}");
        proxy.stop().await;
    });
}
