//! What is written when nothing changes any more: nothing, for an hour; and what the quiet period is for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use zonewise_testbed::objects::{pod, service};
use zonewise_testbed::traffic::{Figures, TopologyKey, figures};

use super::{HOUR, MINUTE, SOON, World, simulate};
use crate::common::{addresses, config, nodes, shop_pods};

const MODE: &str = "service.kubernetes.io/topology-mode";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
/// What Services ask for: name, key and value.
const ASKED: [(&str, &str, &str); 10] = [
    ("plain", "example.com/nothing", ""),
    ("auto", MODE, "Auto"),
    ("zone", PREFERENCE, "Zone"),
    ("subsets", SUBSETTING, "Auto"),
    ("require", SUBSETTING, "Require"),
    ("local", PREFERENCE, "zonewise.dev/local"),
    ("local-shared", PREFERENCE, "zonewise.dev/local-shared"),
    ("local-weighted", PREFERENCE, "zonewise.dev/local-weighted"),
    ("shared-global", PREFERENCE, "zonewise.dev/shared-global"),
    ("balanced", PREFERENCE, "zonewise.dev/balanced"),
];

fn asking(suffix: &str) -> Vec<Value> {
    let asking = |(name, key, value): (&str, &str, &str)| {
        let mut one = service("shop", &format!("{name}{suffix}"), "web");
        one["metadata"]["annotations"] = json!({ key: value });
        one
    };
    ASKED.map(asking).into()
}

/// The writes of slices and Services in an hour at rest.
async fn writes_at_rest(world: &World) -> Vec<String> {
    let begun = Instant::now();
    sleep(HOUR).await;
    let writes = world.sent_since(begun).into_iter().filter(super::Sent::changes_routing);
    writes.map(|sent| format!("{} {}", sent.method, sent.path)).collect()
}

#[test]
fn nothing_is_written_for_an_hour_when_nothing_changes() {
    for lines in ["", "compat: upstream", "mode: observe", "leaderElection: { leaderElect: true }"]
    {
        simulate(async move |world| {
            world.objects.create(&asking("")).await.unwrap();
            world.objects.create(&shop_pods("web", 0..17)).await.unwrap();
            let running = world.controller("controller", config(lines));
            match lines.contains("observe") {
                true => sleep(MINUTE).await,
                false => world.holds(MINUTE, "balanced", 17).await,
            }
            // Until the quiet period is over.
            sleep(10 * MINUTE).await;
            assert_eq!(writes_at_rest(&world).await, [""; 0], "{lines}");
            if lines.contains("observe") {
                let sent = world.sent_since(Instant::now() - 2 * HOUR);
                assert!(
                    !sent.iter().any(super::Sent::is_write),
                    "an observer writes nothing at all"
                );
            }
            running.stop().await.unwrap();
        });
    }
}

async fn figures_of(world: &World, name: &str) -> Option<Figures> {
    figures(&nodes(), &world.slices(name).await, TopologyKey::Zone)
}

/// B20, by ourselves: after Pods have come one by one, a Service is as good as one that is made just now, once it has been quiet for the
/// usual time; and then nothing more is written.
#[test]
fn b20_after_the_quiet_period_a_service_is_as_good_as_a_new_one() {
    const NOTICEABLE: f64 = 0.02 + 1e-9;
    simulate(async |world| {
        world.objects.create(&asking("")).await.unwrap();
        let running = world.controller("controller", config(""));
        let mut count = 0;
        for zone in "cbabcccabababca".chars() {
            count += 1;
            let ip = format!("10.3.0.{count}");
            let one = pod("shop", &format!("web-{count}"), "web", &format!("{zone}1"), &ip);
            world.objects.create(&[one]).await.unwrap();
            for (name, ..) in ASKED {
                world.holds(SOON, name, count).await;
            }
        }
        sleep(10 * MINUTE).await;
        world.objects.create(&asking("-fresh")).await.unwrap();
        for (name, ..) in ASKED {
            let fresh = format!("{name}-fresh");
            world.holds(SOON, &fresh, count).await;
            let (Some(now), Some(best)) =
                (figures_of(&world, name).await, figures_of(&world, &fresh).await)
            else {
                panic!("{name}: {:?}", world.slices(name).await);
            };
            let is_good = now.in_zone >= best.in_zone - NOTICEABLE
                && now.max_overload <= best.max_overload + NOTICEABLE;
            assert!(is_good, "{name}: {now:?}, fresh {best:?}");
        }
        sleep(10 * MINUTE).await;
        assert_eq!(writes_at_rest(&world).await, [""; 0]);
        running.stop().await.unwrap();
    });
}

/// The Lease that a proxy writes, for so many seconds from now.
fn lease(applied: u64, seconds: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "zonewise-proxy-a1", "namespace": "zonewise-system",
            "labels": { "zonewise.dev/component": "proxy" },
            "annotations": { "zonewise.dev/applied": applied.to_string() },
        },
        "spec": {
            "holderIdentity": "a1", "leaseDurationSeconds": seconds,
            "renewTime": format!("{:.6}", zonewise_common::clock::now()),
        },
    })
}

/// D12: a proxy that reports keeps `Ready`, however long; one that is silent loses it when its Lease ends, and not before.
#[test]
fn d12_ready_lasts_as_long_as_the_lease_of_the_proxy() {
    const NEWEST: u64 = u64::MAX >> 8;
    let ready = ("near", "Ready");
    simulate(async move |world| {
        let mut near = service("shop", "near", "web");
        near["metadata"]["annotations"] = json!({ PREFERENCE: "Zone" });
        world.objects.create(&[near]).await.unwrap();
        world.objects.create(&shop_pods("web", 0..6)).await.unwrap();
        world.objects.create(&[lease(NEWEST, 60)]).await.unwrap();
        let running = world.controller("controller", config(""));
        world.told(MINUTE, ready, ("True", "ProxiesReady")).await;
        let begun = Instant::now();
        while begun.elapsed() < HOUR {
            sleep(Duration::from_secs(10)).await;
            let stored =
                world.objects.get("Lease", Some("zonewise-system"), "zonewise-proxy-a1").await;
            let mut renewed = lease(NEWEST, 60);
            renewed["metadata"]["resourceVersion"] =
                stored.unwrap().unwrap()["metadata"]["resourceVersion"].clone();
            world.objects.update(&[renewed]).await.unwrap();
        }
        let writes = world.sent_since(begun).iter().filter(|sent| sent.changes_routing()).count();
        assert_eq!(writes, 0, "writes while a proxy renews its Lease");
        let silent = Instant::now();
        sleep(Duration::from_secs(50)).await;
        assert_eq!(world.condition("near", "Ready").await.unwrap().0, "True");
        world.told(MINUTE, ready, ("Unknown", "NoProxyReports")).await;
        let waited = silent.elapsed().as_secs();
        assert!((60..=75).contains(&waited), "the Lease of 60 s was missed after {waited} s");
        assert_eq!(addresses(&world.slices("near").await).len(), 6);
        running.stop().await.unwrap();
    });
}
