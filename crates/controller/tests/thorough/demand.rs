//! Demand that proxies measure, in real time: shares that follow it until they rest, what is written meanwhile, and a proxy that
//! lies. `paused::demand` of the other suite has the same with the periods of production.

use std::collections::BTreeMap;
use std::time::Instant;

use zonewise_testbed::{Cluster, User, eventually};

use crate::common::demand::{
    AUDIENCE, HASTE, PERIOD, add_service, cluster, condition_writes, counts, hasty,
    measured_writes, measuring, proxy, start, stored_shares, token_file, told, zone_shares,
};
use crate::common::{condition, config, slices, writes};

/// Waits until neither what is stored nor the slices change for some decisions.
async fn settled(cluster: &Cluster) {
    eventually(|| async {
        let before = (stored_shares(cluster).await?, zone_shares(cluster).await);
        tokio::time::sleep(4 * PERIOD).await;
        let now = (stored_shares(cluster).await?, zone_shares(cluster).await);
        if now == before { Ok(()) } else { Err(format!("{before:?} became {now:?}")) }
    })
    .await;
}

/// Most connections come from one zone. The shares of the Service follow, and the next leader goes on with them although
/// no proxy answers it.
#[tokio::test(flavor = "multi_thread")]
async fn shares_follow_what_proxies_count_and_a_new_leader_goes_on() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 700), ("b", 200), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let running = start(&cluster, measuring(token.clone())).await;
    let by_model = eventually(|| async {
        let shares = zone_shares(&cluster).await;
        if shares.is_empty() { Err("no slices".to_owned()) } else { Ok(shares) }
    })
    .await;
    eventually(|| async {
        let shares = stored_shares(&cluster).await?;
        let near = |zone: &str, percent: f64| (shares[zone] - percent).abs() < 3.0;
        let all = near("a", 70.0) && near("b", 20.0) && near("c", 10.0);
        if all { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    settled(&cluster).await;
    assert_ne!(zone_shares(&cluster).await, by_model);
    let results = running.metric("zonewise_demand_proxies").await;
    assert_eq!(results, BTreeMap::from([("result=\"success\"".to_owned(), 3.0)]));
    let requests = running.metric("zonewise_demand_requests_total").await;
    assert_eq!(requests["result=\"nonsense\""], 0.0, "the first answers count, too: {requests:?}");
    let measured = running.metric("zonewise_demand_services").await;
    assert_eq!(measured.values().sum::<f64>(), 1.0, "{measured:?}");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }

    let (before, written) = (zone_shares(&cluster).await, writes(&cluster).await);
    let running = start(&cluster, measuring(token)).await;
    eventually(|| async {
        let synced = running.metric("endpoint_slice_controller_syncs").await;
        let failed = running.metric("zonewise_demand_proxies").await;
        let failed = failed.get("result=\"unreachable\"").copied().unwrap_or_default();
        if synced.values().sum::<f64>() > 0.0 && failed == 3.0 {
            Ok(())
        } else {
            Err(format!("{synced:?} {failed}"))
        }
    })
    .await;
    assert_eq!((zone_shares(&cluster).await, writes(&cluster).await), (before, written));
    running.stop().await.unwrap();
}

/// The condition and one event say that measured demand is asked for and not in force, and then that it is. In between,
/// however many decisions there are, nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn the_condition_says_whether_measured_demand_is_in_force_and_changes_rarely() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    // No source at all: that is known at once.
    let running = start(&cluster, config("")).await;
    told(&cluster, "False", "DemandNotCollected").await;
    running.stop().await.unwrap();

    let running = start(&cluster, hasty(&cluster).await).await;
    told(&cluster, "False", "TooFewConnections").await;
    let written = condition_writes(&running).await;
    let requests = || async {
        let counts = running.metric("zonewise_demand_services").await;
        counts.get("reason=\"TooFewConnections\"").copied()
    };
    let (before, until) = (written, Instant::now() + 10 * HASTE);
    while Instant::now() < until {
        assert_eq!(requests().await, Some(1.0));
        tokio::time::sleep(HASTE).await;
    }
    assert_eq!(condition_writes(&running).await, before, "the same code again is no write");
    let written = writes(&cluster).await;

    // As many from each zone as its CPU makes expect: the shares need not change.
    let mut servers = Vec::new();
    for zone in ["a", "b", "c"] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, 900)).await);
    }
    told(&cluster, "True", "DemandMeasured").await;
    let reasons = eventually(|| async {
        let events = cluster.list("Event", Some("shop")).await.unwrap();
        let of_demand = events.iter().filter(|event| {
            let reason = event["reason"].as_str().unwrap_or_default();
            reason.starts_with("Demand") || reason == "TooFewConnections"
        });
        let found: BTreeMap<String, u64> = of_demand
            .map(|event| {
                (event["reason"].as_str().unwrap().to_owned(), event["count"].as_u64().unwrap())
            })
            .collect();
        if found.contains_key("DemandMeasured") { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await;
    let once = ["DemandMeasured", "DemandNotCollected", "TooFewConnections"];
    assert_eq!(reasons, once.map(|reason| (reason.to_owned(), 1)).into());
    let others = condition(&cluster, "shop", "web", "Programmed").await.unwrap();
    assert_eq!(others, ("True".to_owned(), "SharesBalanced".to_owned()));
    // The zones send as the model says, but for what the moments of the answers make of it.
    assert_eq!(measured_writes(&running).await, 0.0, "nothing is worth a write");
    assert_eq!(writes(&cluster).await, written, "the metric has all writes");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}

/// One node claims a billion connections per second: the reason says so, and its zone gets no more than one node counts for.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_lies_is_bounded_and_named() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 1_000_000_000), ("b", 100), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let running = start(&cluster, measuring(token)).await;
    eventually(|| async {
        let reasons = running.metric("zonewise_demand_services").await;
        let shares = stored_shares(&cluster).await?;
        // Three quarters, and a third of the rest by the model.
        let is_bounded = reasons.get("reason=\"DemandOfOneNode\"") == Some(&1.0);
        let arrived = (shares["a"] - 83.3).abs() < 1.0;
        if is_bounded && arrived { Ok(()) } else { Err(format!("{reasons:?} {shares:?}")) }
    })
    .await;
    for _ in 0..3 {
        assert!(stored_shares(&cluster).await.unwrap()["a"] < 84.0);
        tokio::time::sleep(PERIOD).await;
    }
    let writes = measured_writes(&running).await;
    assert!((1.0..=12.0).contains(&writes), "{writes} slices were written because of it");
    let slices = slices(&cluster, "shop", "web").await;
    assert_eq!(crate::common::addresses(&slices).len(), 6, "every endpoint is there: {slices:?}");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}
