//! Measured demand in guard mode: hints follow it, and what that costs is counted.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_telemetry::server::{self, Page, PageRequest};
use zonewise_testbed::{User, eventually, manifests};

use crate::common::guard::{
    AUTO, annotated, cluster, counted, counts, eventually_condition, eventually_counts, pods,
};
use crate::common::{ROOT, Running, config, turn};

/// What a Prometheus answers: connections per second from each zone.
fn answer(rates: [u32; 3]) -> String {
    let series = ["a", "b", "c"].into_iter().zip(rates).map(|(zone, rate)| {
        json!({
            "metric": {"namespace": "default", "service": "web", "zone": zone},
            "value": [1_763_430_000.0, rate.to_string()],
        })
    });
    let result: Vec<_> = series.collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

/// Slices that have got other hints, by what was measured anew.
async fn writes(running: &Running, because: &str) -> f64 {
    let writes = running.metric("zonewise_demand_slice_writes_total").await;
    writes[&format!("because=\"{because}\"")]
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_follow_measured_demand_and_the_metric_has_the_slices() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    cluster.create(&manifests(format!("{ROOT}/deploy/demand/rbac.yaml")).unwrap()).await.unwrap();
    let mut web = annotated("web", AUTO);
    web["metadata"]["annotations"]["zonewise.dev/demand"] = "measured".into();
    cluster.create(&[web]).await.unwrap();
    cluster.create(&pods("web", 0, [4, 4, 4])).await.unwrap();

    let is_hot = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let hot = Arc::clone(&is_hot);
    let handler = move |_: PageRequest<'_>| {
        let rates = if hot.load(Ordering::Relaxed) { [700, 200, 100] } else { [300; 3] };
        Page::new(200, "application/json", answer(rates))
    };
    let prometheus = server::serve(listener, handler).unwrap();
    let usual = config(&format!(
        "mode: guard\ndemand: {{ source: prometheus, prometheus: {{ url: 'http://{}', query: rates }} }}\n",
        prometheus.address()
    ));
    let period = Duration::from_secs(4);
    let demand = DemandConfig { period, write_period: period, ..usual.demand };
    let kubeconfig = cluster.kubeconfig(User::Controller).unwrap();
    let running = Running::run(&kubeconfig, Config { demand, ..usual }).await;

    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;
    let even = [("a", 4), ("b", 4), ("c", 4)];
    eventually_counts(&cluster, "web", &even).await;
    assert_eq!(writes(&running, "demand").await, 0.0, "demand is what CPU makes expect");

    is_hot.store(true, Ordering::Relaxed);
    eventually(|| async {
        let (written, hints) = (writes(&running, "demand").await, counts(&cluster, "web").await);
        let has_followed = hints != counted(&even) && hints.get("a") > Some(&4);
        if has_followed && written >= 1.0 { Ok(()) } else { Err(format!("{written}: {hints:?}")) }
    })
    .await;
    for other in ["failing-zones", "cpu-use", "several"] {
        assert_eq!(writes(&running, other).await, 0.0, "{other}");
    }
    running.stop().await.unwrap();
    prometheus.stop().await;
}
