//! The ConfigMap with measured demand: when the leader removes it, and what it does with one that is damaged.

use serde_json::{Value, json};
use zonewise_testbed::{Cluster, eventually};

use crate::common::demand::{
    add_service, cluster, counts, hasty, proxy, start, stored_shares, zone_shares,
};
use crate::common::{addresses, config, slices};

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
