//! Endpoints that count by the CPU that they use, in real time: traffic leaves zones whose endpoints are slower, until all
//! use the same. `paused::demand` of the other suite has the same with the pace of production.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use zonewise_testbed::{eventually, manifests};

use crate::common::cpu_use::{
    balanced, cluster, definition, feed, parts, percents, registration, stored, told, weighing,
};
use crate::common::demand::start;
use crate::common::{ROOT, condition, config};

#[tokio::test(flavor = "multi_thread")]
async fn traffic_leaves_slow_endpoints_until_all_use_the_same_and_comes_back_without_figures() {
    let _turn = crate::common::turn().await;
    let cluster = Arc::new(cluster().await);
    let web = ("shop", "web");

    // Nobody reads it: the condition says which setting would change that.
    let running = start(&cluster, config("")).await;
    told(&cluster, web, "False", "UseNotCollected").await;
    running.stop().await.unwrap();

    // It is to be read, and neither a right nor a metrics API is there.
    let running = start(&cluster, weighing()).await;
    told(&cluster, web, "False", "PodMetricsForbidden").await;
    let roles = manifests(format!("{ROOT}/deploy/demand/pod-metrics.yaml")).unwrap();
    cluster.create(&roles).await.unwrap();
    told(&cluster, web, "False", "PodMetricsMissing").await;
    let even = parts(&cluster).await.unwrap();
    assert!(even.iter().all(|part| (part - 1.0 / 6.0).abs() < 1e-3), "{even:?}");

    // It is registered, and what should serve it is not there.
    let registration = registration();
    cluster.create(std::slice::from_ref(&registration)).await.unwrap();
    told(&cluster, web, "False", "PodMetricsUnavailable").await;
    cluster.delete(&[registration]).await.unwrap();

    cluster.create(&[definition()]).await.unwrap();
    let last = Arc::default();
    let feeding: JoinHandle<()> =
        tokio::spawn(feed(Arc::clone(&cluster), Arc::clone(&last), Duration::from_millis(400)));
    balanced(&cluster).await;
    told(&cluster, web, "True", "UseWeighted").await;
    told(&cluster, ("shop", "odd"), "False", "UseImplausible").await;
    told(&cluster, ("other", "web"), "False", "UseNotMeasured").await;
    let found = running.metric("zonewise_endpoint_use_percent").await;
    let [a, b, c] = percents(&found, "web");
    assert!(a / b < 0.6 && a / c < 0.6, "{found:?}");
    assert_eq!(percents(&found, "odd"), [100.0; 3], "nonsense moves nothing");
    let requests = running.metric("zonewise_pod_metrics_requests_total").await;
    let of = |result: &str| requests[&format!("result=\"{result}\"")];
    for result in ["success", "forbidden", "missing", "unavailable"] {
        assert!(of(result) > 0.0, "{result}: {requests:?}");
    }
    running.stop().await.unwrap();
    feeding.abort();
    let before = stored(&cluster, "shop/web").await.unwrap();

    // The next leader goes on there.
    let running = start(&cluster, weighing()).await;
    let first = eventually(|| async {
        let found = running.metric("zonewise_endpoint_use_percent").await;
        if found.is_empty() { Err("nothing".to_owned()) } else { Ok(percents(&found, "web")) }
    })
    .await;
    assert_eq!(first, before.map(f64::from));

    // Nobody tells any more: the zones come back step by step.
    let objects = cluster.objects().unwrap();
    let left = objects.list("PodMetrics", Some("shop")).await.unwrap();
    objects.delete(&left).await.unwrap();
    eventually(|| async {
        let parts = parts(&cluster).await?;
        let is_even = parts.iter().all(|part| (part - 1.0 / 6.0).abs() < 1e-3);
        if is_even { Ok(()) } else { Err(format!("{parts:?}")) }
    })
    .await;
    eventually(|| async {
        let found = condition(&cluster, "shop", "web", "Weighted").await;
        let reasons = ["UseNotMeasured", "UseTooOld"];
        match &found {
            Some((status, reason)) if status == "False" && reasons.contains(&&**reason) => Ok(()),
            _ => Err(format!("{found:?}")),
        }
    })
    .await;
    assert_eq!(stored(&cluster, "shop/web").await, Ok([100; 3]));
    running.stop().await.unwrap();
}
