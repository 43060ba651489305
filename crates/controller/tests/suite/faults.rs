//! Failures of the API server, etcd, the network, watches and objects. Afterwards no endpoint is missing or
//! there twice, the controller does not retry in a tight loop, and everything recovers by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, pod, service};
use zonewise_testbed::{Cluster, Gate, eventually};

use crate::common::{
    Running, cluster, eventually_holds, own_cluster, own_cluster_with, shop_pods, slices,
};

#[tokio::test(flavor = "multi_thread")]
async fn e2_the_server_dies_under_load_and_the_watch_is_too_old() {
    let _turn = crate::common::turn().await;
    let cluster = own_cluster().await;
    cluster.create(&[namespace("shop"), service("shop", "web", "web")]).await.unwrap();
    let running = Running::start(&cluster, "").await;
    cluster.create(&shop_pods("web", 0..60)).await.unwrap();
    cluster.kill_apiserver().unwrap();
    // The controller has tried to reach it in vain.
    eventually(|| async {
        let failed = running.metric("zonewise_watch_failures_total").await;
        if failed.values().sum::<f64>() > 0.0 { Ok(()) } else { Err(format!("{failed:?}")) }
    })
    .await;
    cluster.start_apiserver().await.unwrap();
    cluster.create(&shop_pods("web", 60..90)).await.unwrap();
    eventually_holds(&cluster, "web", 90).await;

    cluster.delete(&shop_pods("web", 0..30)).await.unwrap();
    // A server that starts after a compaction knows no versions of before: watches of kinds that
    // have not changed since (nodes, Services) get 410 and have to list again.
    cluster.compact_etcd().await.unwrap();
    cluster.kill_apiserver().unwrap();
    cluster.start_apiserver().await.unwrap();
    eventually_holds(&cluster, "web", 60).await;

    cluster.pause_etcd().unwrap();
    let more = shop_pods("web", 90..100);
    let creating = cluster.create(&more);
    let resuming = async {
        // Nothing is answered meanwhile; a pause of hours is `paused::faults`.
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.resume_etcd().unwrap();
    };
    let (created, ()) = tokio::join!(creating, resuming);
    if created.is_err() {
        // Some may have been stored although the answer came too late.
        for one in &more {
            let _ = cluster.create(std::slice::from_ref(one)).await;
        }
        cluster.update(&more).await.unwrap();
    }
    eventually_holds(&cluster, "web", 70).await;
    running.stop().await.unwrap();
}

/// etcd is put back to an older state: what the controller knows is newer than what there is. It ends by itself, and
/// after its restart the slices follow the Pods again.
#[tokio::test(flavor = "multi_thread")]
async fn e2_etcd_restored_from_a_backup() {
    let _turn = crate::common::turn().await;
    let cluster = own_cluster().await;
    cluster.create(&[namespace("shop"), service("shop", "web", "web")]).await.unwrap();
    cluster.create(&shop_pods("web", 0..3)).await.unwrap();
    let running = Running::start(&cluster, "").await;
    eventually_holds(&cluster, "web", 3).await;
    cluster.back_up_etcd().await.unwrap();
    cluster.create(&shop_pods("web", 3..9)).await.unwrap();
    eventually_holds(&cluster, "web", 9).await;
    cluster.restore_etcd().await.unwrap();
    assert!(matches!(running.ended().await, Err(zonewise_controller::RunError::Rewound)));
    let restarted = Running::start(&cluster, "").await;
    eventually_holds(&cluster, "web", 3).await;
    cluster.create(&shop_pods("web", 3..5)).await.unwrap();
    eventually_holds(&cluster, "web", 5).await;
    restarted.stop().await.unwrap();
}

/// The API server does not answer any more: all connections are silent. When it does again, every Service that a Pod has
/// changed meanwhile is written. How few attempts there are in an hour of that is `paused::faults`.
#[tokio::test(flavor = "multi_thread")]
async fn e3_an_outage_is_no_storm() {
    const SERVICES: usize = 300;
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    let services: Vec<Value> =
        (0..SERVICES).map(|n| service("shop", &format!("web-{n}"), "web")).collect();
    cluster.create(&services).await.unwrap();
    let gate = Gate::open(&cluster).await.unwrap();
    let running = Running::through(&cluster, &gate, "").await;
    eventually_holds(&cluster, "web-299", 0).await;
    eventually(|| async {
        let all = cluster.list("EndpointSlice", Some("shop")).await.unwrap().len();
        if all == SERVICES { Ok(()) } else { Err(format!("{all} slices")) }
    })
    .await;
    let before = gate.accepted();
    gate.reset_all();
    gate.cut();
    cluster.create(&shop_pods("web", 0..3)).await.unwrap();
    eventually(|| async {
        let tried = gate.accepted() - before;
        if tried > 0 { Ok(()) } else { Err("nothing was tried".to_owned()) }
    })
    .await;
    gate.heal();
    for name in ["web-0", "web-150", "web-299"] {
        eventually_holds(&cluster, name, 3).await;
    }
    let connections = gate.accepted() - before;
    assert!(connections < 60, "{connections} connections for one outage of {SERVICES} Services");
    running.stop().await.unwrap();
}

/// A slice that others change is put right; a Service that cannot be written does not stop others.
#[tokio::test(flavor = "multi_thread")]
async fn one_bad_service_never_stops_the_others() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster
        .create(&[namespace("shop"), service("shop", "web", "web"), service("shop", "bad", "bad")])
        .await
        .unwrap();
    // No slice may hold a link-local address: every write of this Service is refused.
    let mut bad = pod("shop", "bad-0", "bad", "a1", "169.254.1.1");
    bad["status"]["podIPs"] = json!([{ "ip": "169.254.1.1" }]);
    cluster.create(&[bad]).await.unwrap();
    cluster.create(&shop_pods("web", 0..5)).await.unwrap();
    let running = Running::start(&cluster, "").await;
    eventually_holds(&cluster, "web", 5).await;
    eventually(|| async {
        let events = cluster.list("Event", Some("shop")).await.unwrap();
        let said = events.iter().any(|event| {
            event["involvedObject"]["name"] == "bad"
                && event["reason"] == "FailedToUpdateEndpointSlices"
        });
        if said { Ok(()) } else { Err("no event on the Service".to_owned()) }
    })
    .await;
    let mut tampered = slices(&cluster, "shop", "web").await.remove(0);
    tampered["endpoints"] = json!([]);
    cluster.update(&[tampered]).await.unwrap();
    eventually_holds(&cluster, "web", 5).await;
    running.stop().await.unwrap();
}

/// A webhook that is asked about every slice of a namespace.
fn webhook(namespace: &str, address: std::net::SocketAddr) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": format!("{namespace}.example.com"), "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://{address}/")},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "apiGroups": ["discovery.k8s.io"], "apiVersions": ["v1"], "resources": ["endpointslices"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
        }],
    })
}

/// One namespace's webhook closes every connection, so that the API server answers 500; another's never answers.
/// Their Services get an event and are tried again; no worker waits because of them, and changes in a third
/// namespace are written.
#[tokio::test(flavor = "multi_thread")]
async fn broken_webhooks_delay_their_own_namespace_alone() {
    let _turn = crate::common::turn().await;
    let cluster = own_cluster().await;
    let broken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hooks = [("broken", broken.local_addr().unwrap()), ("slow", slow.local_addr().unwrap())];
    let closing = tokio::spawn(async move { while broken.accept().await.is_ok() {} });
    let holding = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = slow.accept().await {
            held.push(connection);
        }
    });
    let mut objects: Vec<Value> = hooks.map(|(space, address)| webhook(space, address)).into();
    objects.extend(["broken", "slow", "shop"].map(namespace));
    cluster.create(&objects).await.unwrap();
    let mut objects = vec![service("shop", "web", "web")];
    for (space, _) in hooks {
        objects.extend((0..8).map(|n| service(space, &format!("app-{n}"), "app")));
        objects.push(pod(space, "app-0", "app", "a1", "10.9.0.1"));
    }
    cluster.create(&objects).await.unwrap();
    let running = Running::start(&cluster, "").await;
    let failures = || async {
        let counts = running.metric("endpoint_slice_controller_syncs").await;
        counts.get("result=\"error\"").copied().unwrap_or(0.0)
    };
    for round in 1..=4 {
        let before = failures().await;
        cluster.create(&shop_pods("web", round * 3..round * 3 + 3)).await.unwrap();
        eventually_holds(&cluster, "web", 3 * round).await;
        eventually(|| async {
            let failed = failures().await - before;
            if failed >= 2.0 { Ok(()) } else { Err(format!("{failed} writes have failed")) }
        })
        .await;
    }
    assert_eq!(running.metric("zonewise_write_pauses_total").await.get(""), Some(&0.0));
    for (space, _) in hooks {
        eventually(|| async {
            let events = cluster.list("Event", Some(space)).await.unwrap();
            let told = |event: &Value| event["reason"] == "FailedToUpdateEndpointSlices";
            if events.iter().any(told) { Ok(()) } else { Err(format!("{space}: {events:?}")) }
        })
        .await;
    }
    running.stop().await.unwrap();
    closing.abort();
    holding.abort();
}

/// A webhook that nothing was known about hangs, and as many writes as there are workers wait for it. Before the first
/// of them has failed, another namespace's change is written. Each round has a webhook of its own; a round on a machine
/// that stands still for seconds proves nothing, so one of several is enough. Without free workers none would do.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_hangs_for_the_first_time_holds_no_worker() {
    const WORKERS: usize = 3;
    let _turn = crate::common::turn().await;
    let cluster = own_cluster().await;
    cluster.create(&[namespace("shop"), service("shop", "web", "web")]).await.unwrap();
    let running = Running::start(&cluster, &format!("concurrentServiceSyncs: {WORKERS}")).await;
    eventually_holds(&cluster, "web", 0).await;
    let failures = || async {
        let counts = running.metric("endpoint_slice_controller_syncs").await;
        counts.get("result=\"error\"").copied().unwrap_or(0.0)
    };
    let mut seen = Vec::new();
    for round in 0..5 {
        let before = failures().await;
        let held = hang(&cluster, &format!("slow-{round}"), 4 * WORKERS).await;
        eventually(|| async {
            let held = held.lock().unwrap().len();
            if held >= WORKERS { Ok(()) } else { Err(format!("{held} writes wait")) }
        })
        .await;
        cluster.create(&shop_pods("web", round * 3..round * 3 + 3)).await.unwrap();
        eventually_holds(&cluster, "web", 3 * round + 3).await;
        seen.push(failures().await - before);
        if seen.ends_with(&[0.0]) {
            break;
        }
    }
    assert!(seen.ends_with(&[0.0]), "writes that failed before the other namespace's: {seen:?}");
    running.stop().await.unwrap();
}

/// A namespace with so many Services and a webhook that never answers. Returns its connections.
async fn hang(
    cluster: &Cluster,
    space: &str,
    services: usize,
) -> Arc<Mutex<Vec<tokio::net::TcpStream>>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = webhook(space, listener.local_addr().unwrap());
    let held = Arc::new(Mutex::new(Vec::new()));
    let accepted = Arc::clone(&held);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            accepted.lock().unwrap().push(connection);
        }
    });
    cluster.create(&[hook, namespace(space)]).await.unwrap();
    let services: Vec<Value> =
        (0..services).map(|n| service(space, &format!("app-{n}"), "app")).collect();
    cluster.create(&services).await.unwrap();
    held
}

/// The events about refused addresses in a namespace: Service, how often, and what they say.
async fn refused_addresses(cluster: &Cluster) -> Vec<String> {
    let events = cluster.list("Event", Some("shop")).await.unwrap();
    let told = events.iter().filter(|event| event["reason"] == "AddressRefused");
    told.map(|event| {
        let text = |field: &str| event.pointer(field).unwrap().as_str().unwrap().to_owned();
        let count = event["count"].as_u64().unwrap_or(1);
        format!("{} {count} {}", text("/involvedObject/name"), text("/message"))
    })
    .collect()
}

/// Waits until an address is refused.
async fn refused(cluster: &Cluster) {
    eventually(|| async {
        let told = refused_addresses(cluster).await;
        if told.is_empty() { Err("not told".to_owned()) } else { Ok(()) }
    })
    .await;
}

fn told_once(address: &str) -> String {
    format!(
        "aaa 1 the Service does not get an address and port that it asks for ({address}:80/TCP: the external IP is \
         in the range of ClusterIPs or is another Service's ClusterIP); use another address or port; \
         docs/proxy.md#who-has-an-address says which Service gets an address that several ask for"
    )
}

/// A Service that asks for another one's address gets an event, once, whatever else changes about it. Its
/// slices are written all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_claims_anothers_address_is_told_once() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop"), service("shop", "web", "web")]).await.unwrap();
    let web = &cluster.list("Service", Some("shop")).await.unwrap()[0];
    let address = web["spec"]["clusterIP"].as_str().unwrap();
    let mut thief = service("shop", "aaa", "thief");
    thief["spec"]["externalIPs"] = json!([address]);
    let running = Running::start(&cluster, "").await;
    cluster.create(&[thief]).await.unwrap();
    for number in [0..1, 1..2, 2..3] {
        let count = number.end;
        cluster.create(&shop_pods("thief", number)).await.unwrap();
        eventually_holds(&cluster, "aaa", count).await;
    }
    refused(&cluster).await;
    let livez = running.page("/livez?verbose").await.unwrap();
    assert!(livez.contains("[+]worker 1 ok\n"), "a worker that hangs would show: {livez}");
    running.stop().await.unwrap();
    assert_eq!(refused_addresses(&cluster).await, [told_once(address)]);
}

/// Proxies refuse external IPs in the whole range of ClusterIPs, also where no Service has the address yet. The
/// controller tells the same, and also when a range is added later.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_claims_a_cluster_ip_that_nobody_has_is_told() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    let mut claiming = service("shop", "aaa", "aaa");
    claiming["spec"]["externalIPs"] = json!(["10.96.200.200"]);
    let mut later = service("shop", "later", "later");
    later["spec"]["externalIPs"] = json!(["10.200.0.7"]);
    let running = Running::start(&cluster, "").await;
    cluster.create(&[namespace("shop"), claiming, later]).await.unwrap();
    refused(&cluster).await;
    assert_eq!(refused_addresses(&cluster).await, [told_once("10.96.200.200")]);
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.200.0.0/24"]},
    });
    cluster.create(&[range]).await.unwrap();
    eventually(|| async {
        let told = refused_addresses(&cluster).await;
        let of_later = told.iter().any(|told| told.starts_with("later 1 "));
        if of_later { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    running.stop().await.unwrap();
}

/// A server that answers most requests with 429 gets fewer requests, and all slices are still written.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_throttles_gets_time() {
    let _turn = crate::common::turn().await;
    let options = zonewise_testbed::Options::default()
        .apiserver("--enable-priority-and-fairness=false")
        .apiserver("--max-mutating-requests-inflight=2");
    let cluster = own_cluster_with(options).await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    let services: Vec<Value> =
        (0..60).map(|n| service("shop", &format!("web-{n}"), "web")).collect();
    cluster.create(&services).await.unwrap();
    cluster.create(&shop_pods("web", 0..3)).await.unwrap();
    let running = Running::start(&cluster, "concurrentServiceSyncs: 50").await;
    for name in ["web-0", "web-30", "web-59"] {
        eventually_holds(&cluster, name, 3).await;
    }
    running.stop().await.unwrap();
}
