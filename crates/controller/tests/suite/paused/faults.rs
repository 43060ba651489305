//! Failures that last for hours: how much is tried meanwhile, and how soon all is well afterwards.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use zonewise_controller::RunError;
use zonewise_testbed::objects::service;

use super::{HOUR, MINUTE, SOON, simulate, within};
use crate::common::{addresses, config, shop_pods};

/// So many Services that select the Pods `web`.
fn services(count: usize) -> Vec<Value> {
    (0..count).map(|n| service("shop", &format!("web-{n}"), "web")).collect()
}

/// The requests of the controller in an hour in which the API server does not answer, or refuses everything with 503, while Pods of
/// all Services change.
fn requests_in_an_outage(count: usize, is_silent: bool) -> usize {
    let (sender, receiver) = std::sync::mpsc::channel();
    simulate(async move |world| {
        world.objects.create(&services(count)).await.unwrap();
        let running = world.controller("controller", config(""));
        world.holds(MINUTE, &format!("web-{}", count - 1), 0).await;
        within(MINUTE, async || {
            let all = world.objects.list("EndpointSlice", Some("shop")).await.unwrap().len();
            if all == count { Ok(()) } else { Err(format!("{all} slices")) }
        })
        .await;
        let begun = Instant::now();
        match is_silent {
            true => world.cut("controller"),
            false => world.refuse(|_, _, _| Some(503)),
        }
        world.objects.create(&shop_pods("web", 0..3)).await.unwrap();
        sleep(HOUR).await;
        sender.send(world.sent_since(begun).len()).unwrap();
        match is_silent {
            true => world.heal("controller"),
            false => world.refuse(|_, _, _| None),
        }
        for number in [0, count / 2, count - 1] {
            world.holds(2 * MINUTE, &format!("web-{number}"), 3).await;
        }
        running.stop().await.unwrap();
    });
    receiver.recv().unwrap()
}

/// In an hour without answers each watch and each kind of request is tried at most twice a minute, and not more for more Services.
#[test]
fn e3_an_outage_of_an_hour_is_no_storm() {
    for is_silent in [true, false] {
        let found = [3, 100].map(|count| requests_in_an_outage(count, is_silent));
        println!("{found:?} requests in an hour, silent: {is_silent}");
        assert!(found.iter().all(|&count| count < 1500), "{found:?}, silent: {is_silent}");
        assert!(found[1] <= found[0] + 600, "more Services, more requests: {found:?}");
    }
}

/// Writes of a Service that the API server refuses are tried again later and later, and those of others are not delayed.
#[test]
fn a_refused_write_is_tried_less_and_less() {
    simulate(async |world| {
        world
            .objects
            .create(&[service("shop", "bad", "bad"), service("shop", "web", "web")])
            .await
            .unwrap();
        world.refuse(|method, path, body| {
            let is_bad = *method != http::Method::GET
                && path.contains("/endpointslices")
                && body.contains("bad");
            is_bad.then_some(422)
        });
        let begun = Instant::now();
        let running = world.controller("controller", config(""));
        world.holds(SOON, "web", 0).await;
        sleep(HOUR / 2).await;
        world.objects.create(&shop_pods("web", 0..3)).await.unwrap();
        world.holds(SOON, "web", 3).await;
        sleep(HOUR / 2).await;
        let refused: Vec<_> = world
            .sent_since(begun)
            .into_iter()
            .filter(|sent| sent.status == Some(422) && sent.path.contains("/endpointslices"))
            .map(|sent| sent.at - begun)
            .collect();
        assert!((5..=20).contains(&refused.len()), "{} in an hour: {refused:?}", refused.len());
        let told = world.events("bad", "FailedToUpdateEndpointSlices").await;
        assert!(told > 0);
        running.stop().await.unwrap();
    });
}

/// Another program removes what we write, every five seconds for an hour: it is told, and corrected after longer and longer delays, while
/// another Service is written at once.
#[test]
fn a_second_writer_is_told_and_not_fought() {
    simulate(async |world| {
        let mut balanced = service("shop", "web", "web");
        balanced["metadata"]["annotations"] =
            json!({ "zonewise.dev/routing-preference": "zonewise.dev/balanced" });
        world.objects.create(&[balanced, service("shop", "plain", "web")]).await.unwrap();
        world.objects.create(&shop_pods("web", 0..6)).await.unwrap();
        let running = world.controller("controller", config(""));
        world.holds(SOON, "web", 6).await;
        let begun = Instant::now();
        while begun.elapsed() < HOUR {
            for mut slice in world.slices("web").await {
                slice["kind"] = "EndpointSlice".into();
                if slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].is_string() {
                    slice["metadata"].as_object_mut().unwrap().remove("annotations");
                    // It may have been written meanwhile.
                    let _ = world.objects.update(&[slice]).await;
                }
            }
            sleep(SOON).await;
        }
        let writes = world.sent_since(begun).iter().filter(|sent| sent.changes_routing()).count();
        assert!(
            (5..=60).contains(&writes),
            "{writes} writes in an hour in which the other looks 720 times"
        );
        assert!(world.events("web", "SecondWriter").await > 0);
        world.objects.create(&shop_pods("web", 6..9)).await.unwrap();
        world.holds(SOON, "plain", 9).await;
        running.stop().await.unwrap();
        assert_eq!(addresses(&world.slices("plain").await).len(), 9);
    });
}

/// Of two replicas one writes. A leader that is cut off for ten minutes has ended before the other one writes, and never writes again.
#[test]
fn a_partition_of_ten_minutes_has_one_writer_at_a_time() {
    simulate(async |world| {
        world.objects.create(&[service("shop", "web", "web")]).await.unwrap();
        let election = || config("leaderElection: { leaderElect: true }");
        let first = world.controller("first", election());
        world.objects.create(&shop_pods("web", 0..3)).await.unwrap();
        world.holds(MINUTE, "web", 3).await;
        let second = world.controller("second", election());
        sleep(MINUTE).await;
        world.objects.create(&shop_pods("web", 3..5)).await.unwrap();
        world.holds(SOON, "web", 5).await;
        let cut = Instant::now();
        world.cut("first");
        world.objects.create(&shop_pods("web", 5..9)).await.unwrap();
        world.holds(MINUTE, "web", 9).await;
        assert!(first.is_over(), "the leader that was cut off has ended by itself");
        sleep(10 * MINUTE).await;
        world.heal("first");
        world.objects.delete(&shop_pods("web", 0..4)).await.unwrap();
        world.holds(SOON, "web", 5).await;
        assert!(matches!(first.ended().await, Err(RunError::LeaseLost)));

        let mut writers: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
        for sent in world.sent_since(cut).into_iter().filter(|sent| sent.changes_routing()) {
            if sent.status.is_some() {
                writers.entry(sent.who).or_default().push(sent.at);
            }
        }
        assert_eq!(writers.keys().collect::<Vec<_>>(), ["second"]);
        second.stop().await.unwrap();
        let leases = world.objects.list("Lease", Some("zonewise-system")).await.unwrap();
        assert_eq!(leases[0]["spec"]["holderIdentity"], "", "given back on a clean end");
    });
}
