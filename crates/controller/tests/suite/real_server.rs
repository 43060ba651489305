//! The controller on a real API server, with nothing but the permissions of its own role.

use crate::common::{
    Running, addresses, cluster, condition, eventually_nine, hints, nine_pods, slices, writes,
};
use serde_json::json;
use zonewise_testbed::objects::{namespace, pod, service};
use zonewise_testbed::{Cluster, eventually};

const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SHARES: &str = "zonewise.dev/zone-shares";

#[tokio::test(flavor = "multi_thread")]
async fn e1_from_pods_to_slices_with_the_controllers_own_rights() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    nine_pods(&cluster, "shop", "web").await;
    let mut plain = service("shop", "plain", "web");
    let mut balanced = service("shop", "balanced", "web");
    balanced["metadata"]["annotations"] = json!({ PREFERENCE: "zonewise.dev/balanced" });
    let mut wrong = service("shop", "wrong", "web");
    wrong["metadata"]["annotations"] = json!({ PREFERENCE: "Nearest" });
    let mut external = service("shop", "external", "web");
    external["spec"] = json!({ "type": "ExternalName", "externalName": "example.com" });
    let mut selectorless = service("shop", "selectorless", "web");
    selectorless["spec"].as_object_mut().unwrap().remove("selector");
    let mut dual = service("shop", "dual", "web");
    dual["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    cluster.create(&[plain.clone(), balanced, wrong, external, selectorless, dual]).await.unwrap();
    let running = Running::start(&cluster, "").await;

    let found = eventually_nine(&cluster, "shop", "plain").await;
    assert_eq!(hints(&found).len(), 0);
    assert_eq!(found[0]["metadata"]["ownerReferences"][0]["kind"], "Service");
    let found = eventually_nine(&cluster, "shop", "balanced").await;
    assert!(found[0]["metadata"]["annotations"]["zonewise.dev/zone-shares"].is_string());
    let accepted = eventually(|| async {
        condition(&cluster, "shop", "balanced", "Programmed")
            .await
            .ok_or_else(|| "no condition".to_owned())
    })
    .await;
    assert_eq!(accepted, ("True".into(), "SharesBalanced".into()));
    let refused = eventually(|| async {
        condition(&cluster, "shop", "wrong", "Accepted")
            .await
            .ok_or_else(|| "no condition".to_owned())
    })
    .await;
    assert_eq!(refused, ("False".into(), "PreferenceReserved".into()));
    assert_eq!(condition(&cluster, "shop", "plain", "Accepted").await, None);
    let found = eventually_nine(&cluster, "shop", "dual").await;
    assert_eq!(found.len(), 2, "an IPv4 slice and an IPv6 placeholder");
    assert!(slices(&cluster, "shop", "external").await.is_empty());
    assert!(slices(&cluster, "shop", "selectorless").await.is_empty());

    hints_come_and_go(&cluster, &mut plain).await;
    a_deleted_slice_comes_back(&cluster).await;
    nothing_more_is_written(&cluster).await;
    running.stop().await.unwrap();
}

/// On, off, on again, with events.
async fn hints_come_and_go(cluster: &Cluster, service: &mut serde_json::Value) {
    for (value, expected) in [("Auto", 9), ("Disabled", 0), ("Auto", 9)] {
        service["metadata"]["annotations"] =
            json!({ "service.kubernetes.io/topology-mode": value });
        cluster.update(std::slice::from_ref(service)).await.unwrap();
        eventually(|| async {
            let hinted: usize = hints(&slices(cluster, "shop", "plain").await).values().sum();
            if hinted == expected { Ok(()) } else { Err(format!("{value}: {hinted}")) }
        })
        .await;
    }
    eventually(|| async {
        let events = cluster.list("Event", Some("shop")).await.unwrap();
        // The API server has something to say about addresses of Services, now and then.
        let ours = events.iter().filter(|event| {
            event["involvedObject"]["name"] == "plain"
                && event["reportingComponent"] == "endpoint-slice-controller"
        });
        let mut reasons: Vec<&str> = ours.map(|event| event["reason"].as_str().unwrap()).collect();
        reasons.sort_unstable();
        if reasons.starts_with(&["ClusterWide", "HintsAssigned"]) {
            Ok(())
        } else {
            Err(format!("events: {reasons:?}"))
        }
    })
    .await;
}

/// The reference would not notice.
async fn a_deleted_slice_comes_back(cluster: &Cluster) {
    let gone = slices(cluster, "shop", "plain").await;
    cluster.delete(&gone).await.unwrap();
    eventually_nine(cluster, "shop", "plain").await;
}

/// For a moment; an hour is `paused::rest`.
async fn nothing_more_is_written(cluster: &Cluster) {
    let before = writes(cluster).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(writes(cluster).await, before);
}

const SYSTEM: &str = "zonewise-system";

/// The Lease that a proxy writes.
fn lease(applied: &str, seconds: u64) -> serde_json::Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "zonewise-proxy-a1",
            "namespace": SYSTEM,
            "labels": { "zonewise.dev/component": "proxy" },
            "annotations": { "zonewise.dev/applied": applied },
        },
        "spec": {
            "holderIdentity": "a1",
            "leaseDurationSeconds": seconds,
            "renewTime": format!("{:.6}", jiff::Timestamp::now()),
        },
    })
}

/// A proxy reports again.
async fn report(cluster: &Cluster, applied: &str, seconds: u64) {
    write(cluster, lease(applied, seconds)).await;
}

async fn write(cluster: &Cluster, mut lease: serde_json::Value) {
    let objects = cluster.objects().unwrap();
    let stored = objects.get("Lease", Some(SYSTEM), "zonewise-proxy-a1").await.unwrap().unwrap();
    lease["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    cluster.update(&[lease]).await.unwrap();
}

async fn ready(cluster: &Cluster, status: &str, code: &str) {
    eventually(|| async {
        let found = condition(cluster, "shop", "near", "Ready").await;
        if found == Some((status.to_owned(), code.to_owned())) {
            Ok(())
        } else {
            Err(format!("{found:?} is not {status} {code}"))
        }
    })
    .await;
}

/// D12: the condition comes from the proxies, and stays while only Pods change.
#[tokio::test(flavor = "multi_thread")]
async fn d12_ready_comes_from_the_proxies() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    nine_pods(&cluster, "shop", "web").await;
    let mut near = service("shop", "near", "web");
    near["metadata"]["annotations"] = json!({ PREFERENCE: "Zone" });
    cluster.create(&[near.clone()]).await.unwrap();
    let objects = cluster.objects().unwrap();
    let mut binding =
        objects.get("RoleBinding", Some(SYSTEM), "zonewise-controller").await.unwrap().unwrap();
    cluster.delete(&[binding.clone()]).await.unwrap();

    let running = Running::start(&cluster, "").await;
    eventually_nine(&cluster, "shop", "near").await;
    ready(&cluster, "Unknown", "NoProxyReports").await;
    assert!(!running.is_over(), "the controller keeps running when it may not read Leases");
    for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
        binding["metadata"].as_object_mut().unwrap().remove(field);
    }
    cluster.create(&[binding, lease("0", 60)]).await.unwrap();
    ready(&cluster, "False", "ProxiesBehind").await;
    report(&cluster, "1000000", 60).await;
    ready(&cluster, "True", "ProxiesReady").await;

    a_proxy_that_starts_takes_nothing_back(&cluster).await;
    near["metadata"]["annotations"] = json!({ PREFERENCE: "Spread" });
    cluster.update(&[near]).await.unwrap();
    ready(&cluster, "False", "ProxiesBehind").await;
    report(&cluster, "1000000", 60).await;
    ready(&cluster, "True", "ProxiesReady").await;

    let mut refusing = lease("1000000", 60);
    refusing["metadata"]["annotations"]["zonewise.dev/refused"] = json!("shop/other shop/near");
    write(&cluster, refusing).await;
    ready(&cluster, "False", "RefusedByKernel").await;
    report(&cluster, "1000000", 60).await;
    ready(&cluster, "True", "ProxiesReady").await;

    report(&cluster, "1000000", 1).await;
    ready(&cluster, "Unknown", "NoProxyReports").await;
    report(&cluster, "1000000", 60).await;
    ready(&cluster, "True", "ProxiesReady").await;
    cluster.delete(&[lease("", 60)]).await.unwrap();
    ready(&cluster, "Unknown", "NoProxyReports").await;
    running.stop().await.unwrap();
}

/// Slices that are newer than what the proxy has applied do not change the condition.
async fn a_proxy_that_starts_takes_nothing_back(cluster: &Cluster) {
    let status_writes = || async {
        let counts = cluster.request_counts().await.unwrap();
        let status = |verb: &str, resource: &str| verb == "APPLY" && resource == "services";
        counts
            .iter()
            .filter(|((verb, resource, _), _)| status(verb, resource))
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    let before = status_writes().await;
    assert!(before >= 3, "Unknown, False and True were written: {before}");
    report(cluster, "0", 60).await;
    cluster.delete(&[pod("shop", "web-0", "web", "a1", "10.2.3.1")]).await.unwrap();
    eventually(|| async {
        let found = addresses(&slices(cluster, "shop", "near").await);
        if found.len() == 8 { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(status_writes().await, before);
    ready(cluster, "True", "ProxiesReady").await;
}

/// Two Pods in each zone. What they request is set on their containers, but in zone c on the Pods as a whole; one of
/// them is then resized in place. Everything comes by the controller's own watch.
#[tokio::test(flavor = "multi_thread")]
async fn zone_shares_follow_the_cpu_that_pods_request() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    let requests = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let mut all = Vec::new();
    for (number, zone) in ["a", "b", "c", "a", "b", "c"].into_iter().enumerate() {
        let (name, ip) = (format!("web-{number}"), format!("10.2.0.{}", number + 1));
        let mut pod = pod("shop", &name, "web", &format!("{zone}1"), &ip);
        match zone {
            "c" => pod["spec"]["resources"] = requests("1"),
            _ => {
                let cpu = if zone == "a" { "2" } else { "1000m" };
                pod["spec"]["containers"][0]["resources"] = requests(cpu);
            }
        }
        all.push(pod);
    }
    let mut web = service("shop", "web", "web");
    web["metadata"]["annotations"] = json!({ PREFERENCE: "zonewise.dev/balanced", "zonewise.dev/endpoint-weight": "cpu-request" });
    cluster.create(&[&all[..], &[web]].concat()).await.unwrap();
    let running = Running::start(&cluster, "").await;
    let shares_are = async |expected: serde_json::Value| {
        eventually(|| async {
            let slices = slices(&cluster, "shop", "web").await;
            let text = &slices.first().ok_or("no slice")?["metadata"]["annotations"][SHARES];
            let shares = text.as_str().map(serde_json::from_str::<serde_json::Value>);
            let from = shares.and_then(Result::ok).unwrap_or_default()["from"].clone();
            if from == expected { Ok(()) } else { Err(format!("{from} instead of {expected}")) }
        })
        .await;
    };
    // Half of what endpoints can take is in zone a: b and c keep three quarters of their third.
    shares_are(json!({"a": {"a": 1}, "b": {"a": 0.25, "b": 0.75}, "c": {"a": 0.25, "c": 0.75}}))
        .await;
    // The endpoints request 4, 2.5 and 2 of 8.5 cores then.
    resize(&cluster, "web-1", "1500m").await;
    shares_are(json!({
        "a": {"a": 1}, "b": {"a": 0.117647, "b": 0.882353}, "c": {"a": 0.294118, "c": 0.705882},
    }))
    .await;
    running.stop().await.unwrap();
}

/// Lets the container of a running Pod request so much CPU.
async fn resize(cluster: &Cluster, name: &str, cpu: &str) {
    let patch = json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": { "cpu": cpu } } },
    ] } });
    let request = http::Request::patch(format!("/api/v1/namespaces/shop/pods/{name}/resize"))
        .header("Content-Type", "application/strategic-merge-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    cluster.admin().unwrap().request_text(request).await.unwrap();
}
