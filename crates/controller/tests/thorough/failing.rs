//! A zone whose connections fail, in real time: proxies report it, and the zone's share of traffic moves to others until it is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_demand::health::{HealthState, LEAST};
use zonewise_testbed::objects::service;
use zonewise_testbed::{Cluster, User, eventually};
use zonewise_topology::zone_shares::ZoneShares;

use crate::common::demand::{
    AUDIENCE, ZONES, cluster, failing_counts, measuring, proxy, start, token_file, zone_shares,
};
use crate::common::zonal_pods;

/// The part of what clients in zone a send that stays there, in percent, if all slices say the same.
async fn kept_in_a(cluster: &Cluster) -> Result<u32, String> {
    let texts = zone_shares(cluster).await;
    let first = texts.first().and_then(Value::as_str).ok_or("no shares")?;
    if texts.iter().any(|text| text != first) {
        return Err(format!("{texts:?}"));
    }
    let shares = ZoneShares::decode(first).map_err(|error| error.to_string())?;
    Ok(shares.from["a"].get("a").copied().unwrap_or(0) / 10_000)
}

/// What is stored that the endpoints of zone a count for.
async fn stored_percent(cluster: &Cluster) -> Option<u8> {
    let objects = cluster.objects().unwrap();
    let stored = objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await;
    let stored = stored.unwrap()?;
    let state = HealthState::decode(stored["data"]["failing"].as_str()?).unwrap();
    Some(state.of("shop/web")?.zones["a"].percent)
}

/// Waits until the part that stays in zone a is in these limits.
async fn kept(cluster: &Cluster, limits: std::ops::RangeInclusive<u32>) -> u32 {
    eventually(|| async {
        let kept = kept_in_a(cluster).await?;
        if limits.contains(&kept) { Ok(kept) } else { Err(format!("{kept} %, not {limits:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_leaves_a_zone_whose_connections_fail_and_comes_back() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    let mut web = service("shop", "web", "web");
    web["metadata"]["annotations"] = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced",
        "zonewise.dev/failing-zones": "spill",
    });
    cluster.create(&[web]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 2)).await.unwrap();
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let failing = Arc::new(AtomicBool::new(false));
    let mut servers = Vec::new();
    for zone in ZONES {
        let node = format!("{zone}1");
        let page = failing_counts(&node, zone, Arc::clone(&failing));
        servers.push(proxy(&cluster, &node, page).await);
    }
    let usual = measuring(token);
    let config = || {
        // The figures of a decision are about two answers.
        let second = Duration::from_secs(1);
        let demand = DemandConfig { period: second, write_period: second, ..usual.demand.clone() };
        Config { demand, ..usual.clone() }
    };

    let running = start(&cluster, config()).await;
    assert_eq!(kept(&cluster, 100..=100).await, 100);
    failing.store(true, Ordering::Relaxed);
    // With the least that a zone counts for it has one of 21 parts, and a third of all traffic comes from it.
    kept(&cluster, 0..=15).await;
    let percents = running.metric("zonewise_failing_zone_percent").await;
    let labels = "namespace=\"shop\",service=\"web\",zone=\"a\"".to_owned();
    assert_eq!(percents, BTreeMap::from([(labels, f64::from(LEAST))]));
    let writes = running.metric("zonewise_demand_slice_writes_total").await;
    assert!(writes["because=\"failing-zones\""] >= 1.0, "{writes:?}");
    assert_eq!(writes["because=\"demand\""], 0.0, "nobody asks for measured shares: {writes:?}");
    running.stop().await.unwrap();
    assert_eq!(stored_percent(&cluster).await, Some(LEAST), "for the next leader");

    // The next leader goes on there, and raises the zone once it is well.
    let running = start(&cluster, config()).await;
    eventually(|| async {
        let synced = running.metric("endpoint_slice_controller_syncs").await;
        let percents = running.metric("zonewise_failing_zone_percent").await;
        if synced.values().sum::<f64>() > 0.0 && !percents.is_empty() {
            Ok(())
        } else {
            Err(format!("{synced:?} {percents:?}"))
        }
    })
    .await;
    kept(&cluster, 0..=15).await;
    failing.store(false, Ordering::Relaxed);
    kept(&cluster, 20..=99).await;

    // Whoever does not want it has everything back at once.
    let objects = cluster.objects().unwrap();
    let mut web = objects.get("Service", Some("shop"), "web").await.unwrap().unwrap();
    web["metadata"]["annotations"]["zonewise.dev/failing-zones"] = "ignore".into();
    web["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    cluster.update(&[web]).await.unwrap();
    kept(&cluster, 100..=100).await;
    eventually(|| async {
        let stored = stored_percent(&cluster).await;
        if stored.is_none() { Ok(()) } else { Err(format!("{stored:?}")) }
    })
    .await;
    running.stop().await.unwrap();
}
