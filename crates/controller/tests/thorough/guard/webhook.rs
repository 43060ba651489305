//! Hints by the webhook beside the built-in controller in each of its modes; and its certificate, at which a replica looks every half
//! minute.

#[path = "../../suite/guard/webhook.rs"]
mod beside_the_real_one;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zonewise_testbed::{Cluster, Lent, eventually};

use self::beside_the_real_one::{configuration, entry, replica, secret};
use super::life::{MOVED, PER_ZONE, eventually_moved, rolling_update};
use crate::built_in::BuiltIn;
use crate::common::guard::{
    AUTO, annotated, cluster_without_policies, counted, counts, eventually_condition, floor, pods,
    rest, versions,
};
use crate::common::{Running, free_addresses, turn};

/// Changes an entry of the Secret, as another program would.
async fn change_secret(cluster: &Cluster, key: &str, value: &str) {
    eventually(|| async {
        let mut secret = secret(cluster).await;
        secret["data"][key] = STANDARD.encode(value).into();
        cluster.update(&[secret]).await.map_err(|error| format!("{error:#}"))
    })
    .await;
}

/// The certificates that the API server accepts from the webhook.
async fn bundle(cluster: &Cluster) -> String {
    let found = configuration(cluster).await.unwrap_or_default();
    let bundle = found["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
}

/// A cluster in which the webhook puts hints into the slices of `web`, with the replica that serves it.
async fn cluster_with_webhook() -> (Lent, BuiltIn, Running) {
    let (cluster, built_in) = cluster_without_policies(&[]).await;
    cluster.create(&pods("web", 0, PER_ZONE)).await.unwrap();
    cluster.create(&[annotated("web", AUTO)]).await.unwrap();
    let [here] = free_addresses();
    let replica = replica(&cluster, "", here, here).await;
    eventually_condition(&cluster, "web", "True", "HintsEnforced").await;
    (cluster, built_in, replica)
}

/// The API server accepts the new certificate before a replica serves with it, and the old one still after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_soon_is_replaced_while_the_webhook_answers() {
    let _turn = turn().await;
    let (cluster, _built_in, replica) = cluster_with_webhook().await;
    let before = entry(&secret(&cluster).await, "tls.crt");
    assert_eq!(bundle(&cluster).await, before);
    let soon = zonewise_common::clock::now().as_second() + 10 * 24 * 3600;
    change_secret(&cluster, "expires", &soon.to_string()).await;
    eventually(|| async {
        let served = entry(&secret(&cluster).await, "tls.crt");
        let accepted = bundle(&cluster).await;
        assert!(accepted.contains(&served), "what is served with is not accepted");
        assert!(accepted.contains(&before), "what was served with before is not accepted");
        if served == before { Err("the same one".to_owned()) } else { Ok(()) }
    })
    .await;
    rolling_update(&cluster, 0).await;
    eventually_moved(&cluster, "web").await;
    replica.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_used_is_replaced() {
    let _turn = turn().await;
    let (cluster, _built_in, replica) = cluster_with_webhook().await;
    let before = entry(&secret(&cluster).await, "tls.crt");
    change_secret(&cluster, "tls.key", "garbage").await;
    eventually(|| async {
        let found = secret(&cluster).await;
        let (certificate, key) = (entry(&found, "tls.crt"), entry(&found, "tls.key"));
        let is_replaced = certificate != before && key != "garbage";
        if is_replaced && bundle(&cluster).await == certificate { Ok(()) } else { Err(key) }
    })
    .await;
    rolling_update(&cluster, 0).await;
    eventually_moved(&cluster, "web").await;
    replica.stop().await.unwrap();
}

/// Services in the three modes of the built-in controller: hints by the webhook stay, and nothing is written at rest.
#[tokio::test(flavor = "multi_thread")]
async fn hints_by_the_webhook_stay_in_every_mode() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster_without_policies(&[]).await;
    let modes = ["none", "floor", "auto"];
    for (number, mode) in modes.into_iter().enumerate() {
        cluster.create(&pods(mode, 15 * number, PER_ZONE)).await.unwrap();
        let mut object = annotated(mode, AUTO);
        match mode {
            "floor" => object["spec"]["trafficDistribution"] = floor().into(),
            "auto" => {
                object["metadata"]["annotations"]["service.kubernetes.io/topology-mode"] =
                    "Auto".into();
            }
            _ => {}
        }
        cluster.create(&[object]).await.unwrap();
    }
    let [address] = free_addresses();
    let webhook = replica(&cluster, "", address, address).await;
    for mode in modes {
        eventually_moved(&cluster, mode).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut before = Vec::new();
    for mode in modes {
        before.push(versions(&cluster, mode).await);
    }
    tokio::time::sleep(rest()).await;
    for (mode, before) in modes.into_iter().zip(before) {
        assert_eq!(versions(&cluster, mode).await, before, "{mode} at rest");
        assert_eq!(counts(&cluster, mode).await, counted(&MOVED), "{mode}");
    }
    webhook.stop().await.unwrap();
}
