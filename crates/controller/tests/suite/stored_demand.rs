//! The ConfigMap with measured demand: how often the leader writes it, and what it does with one that is damaged.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_testbed::{Change, Cluster, User, eventually};

use crate::common::{addresses, config, slices};
use crate::demand::{
    AUDIENCE, add_service, cluster, counts, hasty, measuring, proxy, start, stored_shares,
    token_file, zone_shares,
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

/// Writes a text that no controller has stored.
async fn damage(cluster: &Cluster) {
    let objects = cluster.objects().unwrap();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": "{\"v\":1,\"at\":17634", "failing": "{]"},
    });
    let stored = objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await;
    match stored.unwrap() {
        None => objects.create(&[config_map]).await.unwrap(),
        Some(_) => objects.update(&[config_map]).await.unwrap(),
    }
    assert!(stored_shares(cluster).await.unwrap_err().contains("not the expected JSON"));
}

/// Whether the ConfigMap is there.
async fn is_stored(cluster: &Cluster) -> bool {
    let objects = cluster.objects().unwrap();
    let stored = objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await;
    stored.unwrap().is_some()
}

/// `plan` and `explain` take what is stored for what is in force. A leader that measures nothing removes what another has
/// stored that did.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_goes_when_nothing_is_measured_any_more() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let running = start(&cluster, hasty(&cluster).await).await;
    eventually(|| async {
        if is_stored(&cluster).await { Ok(()) } else { Err("nothing is stored".to_owned()) }
    })
    .await;
    running.stop().await.unwrap();
    assert!(is_stored(&cluster).await, "the next leader goes on with it");
    let running = start(&cluster, config("")).await;
    eventually(|| async {
        if is_stored(&cluster).await { Err("it is stored".to_owned()) } else { Ok(()) }
    })
    .await;
    running.stop().await.unwrap();
}

/// A new leader begins by CPU and replaces what it cannot read. A leader that runs replaces it with the next figures, and
/// its shares stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_text_is_replaced_and_harms_no_routing() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    damage(&cluster).await;
    let running = start(&cluster, hasty(&cluster).await).await;
    // Nothing is measured yet, so there are no shares in what is stored.
    let state = || async {
        let shares = stored_shares(&cluster).await;
        shares.map_or_else(
            |error| if error == "no shares of shop/web" { Ok(()) } else { Err(error) },
            |_| Ok(()),
        )
    };
    eventually(state).await;
    let by_cpu = eventually(|| async {
        let shares = zone_shares(&cluster).await;
        if shares.is_empty() { Err("no slices".to_owned()) } else { Ok(shares) }
    })
    .await;
    // As many from each zone as its CPU makes expect.
    let mut servers = Vec::new();
    for zone in ["a", "b", "c"] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, 900)).await);
    }
    eventually(|| async { stored_shares(&cluster).await.map(drop) }).await;
    damage(&cluster).await;
    eventually(|| async { stored_shares(&cluster).await.map(drop) }).await;
    let shares = zone_shares(&cluster).await;
    assert!(shares.len() == by_cpu.len() && shares.iter().all(Value::is_string), "{shares:?}");
    let slices = slices(&cluster, "shop", "web").await;
    assert_eq!(addresses(&slices).len(), 6, "every endpoint is there: {slices:?}");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}
