//! Controller and proxies on a cluster of namespaces with a real kube-apiserver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::time::Duration;

use crate::nodes::{
    TestNodes, cluster, cluster_ip, controller, is_ready, node_port, pod_object, responders,
    responders_udp, service_object, set, stored,
};
use serde_json::{Value, json};
use zonewise_netns::traffic::OpenConnection;
use zonewise_testbed::{Cluster, eventually_equals, objects};

const TRIES: usize = 24;

/// Three zones; endpoints in two of them; a pod that asks in each.
async fn three_zones(cluster: &Cluster) -> (TestNodes, Vec<zonewise_netns::NetnsPod>) {
    let mut nodes = TestNodes::new();
    let mut all = Vec::new();
    for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
        all.push(nodes.add(cluster, name, zone));
    }
    for (node, name) in [("n1", "a1"), ("n1", "a2"), ("n2", "b1")] {
        let pod = nodes.add_server(node, name);
        all.push(pod_object(&pod, "web"));
    }
    let callers = ["n1", "n2", "n3"].map(|node| nodes.add_pod(node, &format!("ask-{node}"))).into();
    cluster.create(&all).await.unwrap();
    (nodes, callers)
}

/// Changes the zone label of a running node.
async fn set_zone(cluster: &Cluster, name: &str, zone: &str) {
    let nodes = cluster.list("Node", None).await.unwrap();
    let mut node = nodes.into_iter().find(|node| node["metadata"]["name"] == name).unwrap();
    node["kind"] = json!("Node");
    node["apiVersion"] = json!("v1");
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
    node["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    cluster.update(&[node]).await.unwrap();
}

/// D15: from a zone with endpoints requests stay in it, from one without they are answered from
/// elsewhere. D12: the applied state is acknowledged. E4: a relabelled node is followed, and no
/// connection is lost.
#[tokio::test(flavor = "multi_thread")]
async fn d12_d15_e4_requests_stay_in_their_zone() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    let mut service = service_object("web", "web", &json!({}));
    service["metadata"]["annotations"] = json!({"zonewise.dev/routing-preference": "Zone"});
    // No Service lacks endpoints: for one that does, proxies watch other zones, and how far that watch has got follows the
    // API server's bookmarks, which come once a minute (`thorough` waits for one).
    let endpoint = objects::endpoint([192, 0, 2, 1].into(), "n1", "a");
    let api_server = objects::endpoint_slice("default", "kubernetes", "kubernetes", &[endpoint]);
    cluster.create(&[service, api_server]).await.unwrap();
    let _controller = controller(&cluster);
    for node in ["n1", "n2", "n3"] {
        nodes.start_proxy(&cluster, node, &[]);
    }
    let service = stored(&cluster, "web").await;
    let expected = [set(&["a1", "a2"]), set(&["b1"]), set(&["a1", "a2", "b1"])];
    for v6 in [false, true] {
        let to = cluster_ip(&service, v6);
        for (caller, expected) in callers.iter().zip(&expected) {
            eventually_equals(&caller.name, expected.clone(), || {
                responders(&caller.namespace, to, TRIES)
            })
            .await;
            assert_eq!(&responders_udp(&caller.namespace, to, TRIES), expected);
        }
    }
    let routes = nodes.page("n1", 10249, "/routes").unwrap();
    assert!(
        routes.contains("\"mode\":\"same-zone\"") && routes.contains("SameZoneHints"),
        "{routes}"
    );
    // A slice for each zone moves the watches of the zones, which have delivered nothing so far.
    let marker = |zone: &&str| {
        let mut slice = objects::endpoint_slice("default", "marker", &format!("for-{zone}"), &[]);
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"] = json!(zone);
        slice
    };
    cluster.create(&["a", "b", "c"].iter().map(marker).collect::<Vec<_>>()).await.unwrap();
    is_ready(&cluster, "web").await;
    let mut connection = OpenConnection::tcp(
        &callers[2].namespace,
        cluster_ip(&service, false),
        crate::nodes::PROBE_TIMEOUT,
    )
    .unwrap();
    let before = connection.probe();
    set_zone(&cluster, "n3", "b").await;
    let to = cluster_ip(&service, false);
    eventually_equals("n3 in zone b", set(&["b1"]), || {
        responders(&callers[2].namespace, to, TRIES)
    })
    .await;
    assert_eq!(connection.probe(), before);
}

/// Hints to nodes: requests stay on their node, then in its zone, and go anywhere only from a zone without endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn requests_stay_on_their_node_then_in_their_zone() {
    let cluster = cluster().await;
    let mut nodes = TestNodes::new();
    let places = [("n1", "a"), ("n2", "a"), ("n3", "b")];
    let mut objects: Vec<Value> =
        places.iter().map(|(node, zone)| nodes.add(&cluster, node, zone)).collect();
    let servers = places.map(|(node, _)| nodes.add_server(node, &format!("on-{node}")));
    objects.extend(servers.iter().map(|pod| pod_object(pod, "web")));
    objects.push(service_object("web", "web", &json!({"trafficDistribution": "PreferSameNode"})));
    cluster.create(&objects).await.unwrap();
    let _controller = controller(&cluster);
    let mut callers = Vec::new();
    for (node, _) in places {
        callers.push(nodes.add_pod(node, &format!("ask-{node}")));
        nodes.start_proxy(&cluster, node, &[]);
    }
    let service = stored(&cluster, "web").await;
    let heard = async |expected: [&[&str]; 3]| {
        for v6 in [false, true] {
            let to = cluster_ip(&service, v6);
            for (caller, expected) in callers.iter().zip(expected) {
                let ask = || responders(&caller.namespace, to, TRIES);
                eventually_equals(&caller.name, set(expected), ask).await;
            }
        }
    };
    heard([&["on-n1"], &["on-n2"], &["on-n3"]]).await;
    cluster.delete(&[pod_object(&servers[0], "web")]).await.unwrap();
    heard([&["on-n2"], &["on-n2"], &["on-n3"]]).await;
    cluster.delete(&[pod_object(&servers[1], "web")]).await.unwrap();
    heard([&["on-n3"]; 3]).await;
}

/// E2: without the API server the rules stay, a restart of the proxy does not disturb, and
/// afterwards what has changed meanwhile is applied. A proxy that is killed leaves its rules.
#[tokio::test(flavor = "multi_thread")]
async fn e2_rules_outlive_the_api_server_and_the_proxy() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    cluster.create(&[service_object("web", "web", &json!({"type": "NodePort"}))]).await.unwrap();
    let _controller = controller(&cluster);
    nodes.start_proxy(&cluster, "n1", &[]);
    let service = stored(&cluster, "web").await;
    let to = cluster_ip(&service, false);
    let caller = &callers[0];
    eventually_equals("all", set(&["a1", "a2", "b1"]), || responders(&caller.namespace, to, TRIES))
        .await;
    let outside = nodes.add_client("outside", "n1");
    let mut connection =
        OpenConnection::tcp(&caller.namespace, to, crate::nodes::PROBE_TIMEOUT).unwrap();
    let before = connection.probe();
    nodes.by_name["n1"].gate.cut();
    let kept = set(&["a1", "a2", "b1"]);
    assert_eq!(responders(&caller.namespace, to, TRIES), kept);
    // Killed, and started again while the API server is out of reach: the rules of before stay.
    nodes.by_name.get_mut("n1").unwrap().proxy.take().unwrap().kill().unwrap();
    assert_eq!(responders(&caller.namespace, to, TRIES), kept);
    nodes.start_proxy(&cluster, "n1", &[]);
    let waits = || nodes.page("n1", 10249, "/metrics").is_some();
    eventually_equals("the proxy waits for the API server", true, waits).await;
    assert_eq!(responders(&caller.namespace, to, TRIES), kept);
    // Meanwhile an endpoint leaves.
    let pods = cluster.list("Pod", Some("default")).await.unwrap();
    let mut gone = pods.into_iter().find(|pod| pod["metadata"]["name"] == "a2").unwrap();
    gone["kind"] = json!("Pod");
    gone["apiVersion"] = json!("v1");
    cluster.delete(&[gone]).await.unwrap();
    nodes.by_name["n1"].gate.heal();
    eventually_equals("without a2", set(&["a1", "b1"]), || {
        responders(&caller.namespace, to, TRIES)
    })
    .await;
    let port = node_port(&service, nodes.node("n1"), false);
    eventually_equals("NodePort", set(&["a1", "b1"]), || {
        responders(&outside.namespace, port, TRIES)
    })
    .await;
    assert_eq!(connection.probe(), before);
    // SIGTERM: the process goes, the rules stay.
    let proxy = nodes.by_name.get_mut("n1").unwrap().proxy.take().unwrap();
    assert!(proxy.stop().await.unwrap().success());
    assert_eq!(responders(&caller.namespace, to, TRIES), set(&["a1", "b1"]));
}

/// Killed at any moment of a sync, again and again, while Services come and go: what is in the
/// kernel afterwards is what should be.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_recovers() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    let _controller = controller(&cluster);
    for round in 0..8_u32 {
        let name = format!("s{round}");
        cluster.create(&[service_object(&name, "web", &json!({}))]).await.unwrap();
        nodes.start_proxy(&cluster, "n1", &[]);
        // Sooner or later within its start and first syncs.
        tokio::time::sleep(Duration::from_millis(u64::from(round * round) * 12 + 20)).await;
        nodes.by_name.get_mut("n1").unwrap().proxy.take().unwrap().kill().unwrap();
    }
    nodes.start_proxy(&cluster, "n1", &[]);
    for round in 0..8 {
        let to = cluster_ip(&stored(&cluster, &format!("s{round}")).await, round % 2 == 1);
        eventually_equals("all", set(&["a1", "a2", "b1"]), || {
            responders(&callers[0].namespace, to, TRIES)
        })
        .await;
    }
    let metrics = nodes.page("n1", 10249, "/metrics").unwrap();
    assert!(metrics.contains("zonewise_proxy_mended_total 0"), "{metrics}");
}

/// Slices by subset. The proxy uses those of its zone, also after its node has changed zones; a slice
/// that changes zones loses no endpoint; a zone without slices is served from all.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story, step by step")]
async fn c2_c5_c8_subsets_are_never_a_black_hole() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    let mut service = service_object("web", "web", &json!({}));
    service["spec"].as_object_mut().unwrap().remove("selector");
    cluster.create(&[service]).await.unwrap();
    let pods = cluster.list("Pod", Some("default")).await.unwrap();
    let address = |name: &str| {
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name).unwrap();
        pod["status"]["podIP"].clone()
    };
    let slice = |name: &str, zone: Option<&str>, pods: &[&str]| {
        let mut labels = json!({"kubernetes.io/service-name": "web"});
        if let Some(zone) = zone {
            labels["endpointslice.kubernetes.io/for-zone"] = json!(zone);
        }
        let endpoints: Vec<Value> = pods
            .iter()
            .map(|pod| json!({"addresses": [address(pod)], "conditions": {"ready": true}}))
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": name, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        })
    };
    cluster
        .create(&[slice("s-a", Some("a"), &["a1"]), slice("s-b", Some("b"), &["a2", "b1"])])
        .await
        .unwrap();
    for node in ["n1", "n2", "n3"] {
        nodes.start_proxy(&cluster, node, &[]);
    }
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let expected = [set(&["a1"]), set(&["a2", "b1"]), set(&["a1", "a2", "b1"])];
    for (caller, expected) in callers.iter().zip(&expected) {
        eventually_equals(&caller.name, expected.clone(), || {
            responders(&caller.namespace, to, TRIES)
        })
        .await;
    }
    // A node that changes its zone uses that zone's slices, and no connection fails on the way.
    let everybody = set(&["a1", "a2", "b1"]);
    for (zone, expected) in [("b", &expected[1]), ("a", &expected[0])] {
        set_zone(&cluster, "n1", zone).await;
        eventually_equals(&format!("n1 in zone {zone}"), expected.clone(), || {
            let heard = responders(&callers[0].namespace, to, TRIES);
            assert!(heard.is_subset(&everybody), "while n1 moves to zone {zone}: {heard:?}");
            heard
        })
        .await;
    }
    // The slice of zone b becomes zone a's, then everybody's.
    let relabel = |zone: Option<&str>| {
        let mut object = slice("s-b", zone, &["a2", "b1"]);
        object["metadata"]["labels"]["touched"] = json!("yes");
        object
    };
    cluster.update(&[relabel(Some("a"))]).await.unwrap();
    eventually_equals("zone a has both", everybody.clone(), || {
        responders(&callers[0].namespace, to, TRIES)
    })
    .await;
    eventually_equals("zone b uses all", everybody.clone(), || {
        responders(&callers[1].namespace, to, TRIES)
    })
    .await;
    cluster.update(&[relabel(None)]).await.unwrap();
    eventually_equals("for all", set(&["a2", "b1"]), || {
        responders(&callers[1].namespace, to, TRIES)
    })
    .await;
}

/// Everything that one Service can be and become, from every kind of client.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_endpoints_may_flap() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    cluster.create(&[service_object("web", "web", &json!({}))]).await.unwrap();
    let _controller = controller(&cluster);
    nodes.start_proxy(&cluster, "n1", &[]);
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let all = set(&["a1", "a2", "b1"]);
    eventually_equals("all", all.clone(), || responders(&callers[0].namespace, to, TRIES)).await;
    let objects = cluster.objects().unwrap();
    for round in 0..20 {
        for name in ["a2", "b1"] {
            let pods = cluster.list("Pod", Some("default")).await.unwrap();
            let mut pod = pods.into_iter().find(|pod| pod["metadata"]["name"] == name).unwrap();
            pod["kind"] = json!("Pod");
            pod["apiVersion"] = json!("v1");
            zonewise_testbed::objects::set_ready(&mut pod, round % 2 == 1);
            objects.update_status(&[pod]).await.unwrap();
        }
        // Nobody is ever turned away: a1 is always there.
        let heard = responders(&callers[0].namespace, to, 8);
        assert!(heard.is_subset(&all), "{heard:?}");
    }
    eventually_equals("all again", all, || responders(&callers[0].namespace, to, TRIES)).await;
}

/// C6: what a node receives with subsets and without, with three zones.
#[tokio::test(flavor = "multi_thread")]
async fn c6_a_node_receives_the_subset_of_its_zone() {
    let cluster = cluster().await;
    let (mut nodes, callers) = three_zones(&cluster).await;
    // Every port and family of the Service has endpoints in each zone: those without would make the proxy
    // watch all slices of the Service.
    let served = json!({
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
    });
    let mut service = service_object("web", "web", &served);
    service["spec"].as_object_mut().unwrap().remove("selector");
    cluster.create(&[service]).await.unwrap();
    let server = &nodes.network.pods()[0];
    let endpoints: Vec<Value> = (0..50)
        .map(|n| json!({"addresses": [format!("10.200.0.{n}")], "conditions": {"ready": false}}))
        .chain([json!({"addresses": [server.v4], "conditions": {"ready": true}})])
        .collect();
    let slices: Vec<Value> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|zone| (0..20).map(move |n| (zone, n)))
        .map(|(zone, n)| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "default", "name": format!("s-{zone}-{n}"), "labels": {
                    "kubernetes.io/service-name": "web",
                    "endpointslice.kubernetes.io/for-zone": zone,
                }},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": endpoints,
            })
        })
        .collect();
    cluster.create(&slices).await.unwrap();
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let mut received = Vec::new();
    for gate in ["EndpointSliceSubsetting=true", "EndpointSliceSubsetting=false"] {
        let before = nodes.by_name["n1"].gate.bytes_down();
        nodes.start_proxy(&cluster, "n1", &[&format!("--feature-gates={gate}")]);
        // The rules of before stay until the next proxy has its own.
        let routes = || nodes.page("n1", 10249, "/routes").unwrap_or_default();
        eventually_equals(gate, true, || routes().contains("default/web")).await;
        assert_eq!(responders(&callers[0].namespace, to, 2), set(&["a1"]));
        nodes.by_name.get_mut("n1").unwrap().proxy.take().unwrap().stop().await.unwrap();
        received.push(nodes.by_name["n1"].gate.bytes_down() - before);
    }
    let (subset, everything) = (received[0], received[1]);
    println!(
        "bytes received by a node of one of three zones: {subset} with subsets, {everything} without"
    );
    assert!(subset * 2 < everything, "{subset} of {everything}");
}
