//! Failures that last, and what needs more than the API server: another program that writes slices, a Lease that expires, and
//! ten thousand Services.

use std::time::Duration;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, service};
use zonewise_testbed::{Gate, eventually};

use crate::common::{Running, addresses, cluster, eventually_holds, shop_pods, slices, writes};

/// A second writer is reported, and its writes are corrected after longer and longer delays.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_is_said_not_fought() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    let mut auto = service("shop", "web", "web");
    auto["metadata"]["annotations"] =
        json!({ "zonewise.dev/routing-preference": "zonewise.dev/balanced" });
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&[auto]).await.unwrap();
    cluster.create(&shop_pods("web", 0..6)).await.unwrap();
    let running = Running::start(&cluster, "").await;
    eventually_holds(&cluster, "web", 6).await;
    // The reference removes hints that it did not ask for, as soon as something changes.
    let reference = cluster.controller_manager(&[]).unwrap();
    eventually(|| async {
        let events = cluster.list("Event", Some("shop")).await.unwrap();
        let said = events.iter().any(|event| event["reason"] == "SecondWriter");
        if said { Ok(()) } else { Err("not noticed".to_owned()) }
    })
    .await;
    let before = writes(&cluster).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let fought = writes(&cluster).await - before;
    assert!(fought < 20, "{fought} writes in 10 s");
    reference.stop().await.unwrap();
    running.stop().await.unwrap();
    assert_eq!(addresses(&slices(&cluster, "shop", "web").await).len(), 6);
}

/// Of two replicas one writes. A leader that is cut off stops before the other starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_30_seconds_has_one_writer_at_a_time() {
    let _turn = crate::common::turn().await;
    let election = "leaderElection: { leaderElect: true, leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s }";
    let cluster = cluster().await;
    cluster.create(&[namespace("shop"), service("shop", "web", "web")]).await.unwrap();
    let gate = Gate::open(&cluster).await.unwrap();
    let first = Running::through(&cluster, &gate, election).await;
    cluster.create(&shop_pods("web", 0..3)).await.unwrap();
    eventually_holds(&cluster, "web", 3).await;
    let holder = || async {
        let leases = cluster.list("Lease", Some("zonewise-system")).await.unwrap();
        leases[0]["spec"]["holderIdentity"].as_str().unwrap_or("").to_owned()
    };
    let leader = holder().await;
    let second = Running::start(&cluster, election).await;
    cluster.create(&shop_pods("web", 3..5)).await.unwrap();
    eventually_holds(&cluster, "web", 5).await;
    assert_eq!(holder().await, leader, "the second waits");
    gate.cut();
    cluster.create(&shop_pods("web", 5..9)).await.unwrap();
    eventually_holds(&cluster, "web", 9).await;
    assert_ne!(holder().await, leader);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(first.is_over(), "the leader that was cut off has ended by itself");
    gate.heal();
    cluster.delete(&shop_pods("web", 0..4)).await.unwrap();
    eventually_holds(&cluster, "web", 5).await;
    assert!(matches!(first.ended().await, Err(zonewise_controller::RunError::LeaseLost)));
    second.stop().await.unwrap();
    assert_eq!(holder().await, "", "given back on a clean end");
}

/// Ten thousand Services change at once.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_services_change_at_once() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&shop_pods("web", 0..3)).await.unwrap();
    let services: Vec<Value> = (0..10_000)
        .map(|n| {
            let mut one = service("shop", &format!("web-{n}"), "web");
            // Cluster IPs are not what this is about, and there are not enough.
            one["spec"]["clusterIP"] = "None".into();
            one
        })
        .collect();
    cluster.create(&services).await.unwrap();
    let running = Running::start(&cluster, "concurrentServiceSyncs: 20").await;
    let everywhere = |count: usize| {
        let cluster = &cluster;
        move || async move {
            let slices = cluster
                .list("EndpointSlice", Some("shop"))
                .await
                .map_err(|error| error.to_string())?;
            let full = slices
                .iter()
                .filter(|slice| slice["endpoints"].as_array().map_or(0, Vec::len) == count)
                .count();
            if (slices.len(), full) == (10_000, 10_000) {
                Ok(())
            } else {
                Err(format!("{full} of {}", slices.len()))
            }
        }
    };
    // A list of so many slices is slow on a busy machine, and so is etcd.
    let eventually_everywhere = async |count| {
        for _ in 0..30 {
            if everywhere(count)().await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        eventually(everywhere(count)).await;
    };
    eventually_everywhere(3).await;
    let before = writes(&cluster).await;
    // One Pod of all of them leaves: every Service has to be written once. The Pod first terminates
    // and then is gone: the few Services that were looked at in between see both.
    cluster.delete(&shop_pods("web", 0..1)).await.unwrap();
    eventually_everywhere(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let written = writes(&cluster).await - before;
    assert!((10_000..10_100).contains(&written), "{written} writes");
    running.stop().await.unwrap();
}
