//! An evacuation with the times of production, until its deadline.

use std::sync::atomic::{AtomicUsize, Ordering};

use zonewise_inventory::evacuation::{self, Phase};
use zonewise_testbed::eventually;

use crate::common::evacuation::{ALL, endpoints, expect, reached, spec, status, with_web};
use crate::common::{Running, turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_ends_midway_is_followed_by_one_that_goes_on_and_the_deadline_ends_it() {
    let _turn = turn().await;
    let (cluster, client) = with_web().await;
    let running = Running::start(&cluster, "").await;
    expect(&cluster, "web", ALL).await;
    evacuation::ask(&client, &spec(5, 120)).await.unwrap();
    eventually(|| async {
        let status = status(&client).await;
        if status.percent <= 50 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    expect(&cluster, "web", [("a", (1, 1)), ("b", (2, 0)), ("c", (2, 0))]).await;
    running.stop().await.unwrap();
    let stopped = status(&client).await;
    let next = Running::start(&cluster, "").await;
    // From here on it only goes down until the zone is empty: nothing is given back at the start.
    let least = AtomicUsize::new(endpoints(&cluster, "web").await["a"].0);
    eventually(|| async {
        let now = endpoints(&cluster, "web").await["a"].0;
        let before = least.swap(now, Ordering::Relaxed);
        assert!(now <= before, "{now} endpoints are in use after {before}");
        let status = status(&client).await;
        if status.phase == Phase::Empty { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert!(stopped.percent > 0, "it was stopped midway: {stopped:?}");
    let ended = reached(&client, Phase::Ended).await;
    assert_eq!(&*ended.reason, "EvacuationDeadline");
    expect(&cluster, "web", ALL).await;
    next.stop().await.unwrap();
}
