//! How often the leader writes the ConfigMap with measured demand, in real time.

use std::time::{Duration, Instant};

use serde_json::Value;
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_testbed::{Change, User};

use crate::common::demand::{
    AUDIENCE, add_service, cluster, counts, measuring, proxy, start, token_file,
};

/// Figures change with every answer, and there are many answers in a period: they are written once in it.
#[tokio::test(flavor = "multi_thread")]
async fn however_often_figures_change_they_are_written_at_most_once_in_a_period() {
    const WRITES: u32 = 5;
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 700), ("b", 200), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let objects = cluster.objects().unwrap();
    let mut watch = objects.watch::<Value>("ConfigMap", Some("zonewise-system")).await.unwrap();
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let (period, write_period) = (Duration::from_millis(250), Duration::from_secs(3));
    let usual = measuring(token);
    let demand = DemandConfig { period, write_period, ..usual.demand };
    let begun = Instant::now();
    let running = start(&cluster, Config { demand, ..usual }).await;
    let mut seen = Vec::new();
    while seen.len() < WRITES as usize {
        let change = watch.next().await.unwrap().unwrap();
        let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) = change;
        if object["metadata"]["name"] == "zonewise-demand" {
            seen.push(object["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        }
    }
    // However late a write is seen, it was not made earlier than this.
    let elapsed = begun.elapsed();
    assert!(elapsed >= (WRITES - 1) * write_period, "{WRITES} writes in {elapsed:?}: {seen:?}");
    let answers = running.metric("zonewise_demand_requests_total").await;
    let answers = answers["result=\"success\""];
    assert!(answers > f64::from(3 * WRITES), "{answers} answers, {WRITES} writes");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}
