//! What is measured, with the periods of production: shares that follow it until they rest, how little is written meanwhile, and
//! endpoints that count by use.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use zonewise_controller::config::Config;
use zonewise_demand::state::State;
use zonewise_telemetry::server::{self, Page, PageRequest, Server};
use zonewise_testbed::objects::service;
use zonewise_topology::zone_shares::ZoneShares;

use super::{HOUR, MINUTE, World, simulate, within};
use crate::common::{Running, config, zonal_pods};

const ZONES: [&str; 3] = ["a", "b", "c"];
const WEB: (&str, &str) = ("web", "Measured");

/// Connections per second from each zone, which a Prometheus tells.
type Rates = Arc<Mutex<[f64; 3]>>;

/// A Prometheus with these rates. Each answer differs by some percent from the one before, as real figures do.
async fn prometheus(rates: &Rates) -> Server {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (rates, noise) = (Arc::clone(rates), Mutex::new(fastrand::Rng::with_seed(3)));
    let handler = move |_: PageRequest<'_>| {
        let series = ZONES.into_iter().zip(*rates.lock()).map(|(zone, rate)| {
            let rate = rate * (0.97 + 0.06 * noise.lock().f64());
            let now = zonewise_common::clock::now().as_second();
            json!({
                "metric": {"namespace": "shop", "service": "web", "zone": zone},
                "value": [now, rate.to_string()],
            })
        });
        let result: Vec<Value> = series.collect();
        let answer =
            json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        Page::new(200, "application/json", answer.to_string())
    };
    server::serve(listener, handler).unwrap()
}

/// As a user has it who names a Prometheus and a query.
fn asking(prometheus: &Server) -> Config {
    config(&format!(
        "demand: {{ source: prometheus, prometheus: {{ url: 'http://{}', query: rates }} }}",
        prometheus.address()
    ))
}

async fn add_service(world: &World) {
    let mut web = service("shop", "web", "web");
    web["metadata"]["annotations"] = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced",
        "zonewise.dev/demand": "measured",
    });
    world.objects.create(&[web]).await.unwrap();
    world.objects.create(&zonal_pods("shop", "web", 2)).await.unwrap();
}

/// The shares that are stored, in percent by zone.
async fn stored_shares(world: &World) -> Result<[f64; 3], String> {
    let stored = world.objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await;
    let stored = stored.unwrap().ok_or("no ConfigMap")?;
    let state = State::decode(stored["data"]["state"].as_str().unwrap_or_default());
    let state = state.map_err(|error| error.to_string())?;
    let shares = state.shares("shop/web").ok_or("no shares of shop/web")?;
    let shares: BTreeMap<String, f64> =
        shares.map(|(zone, share)| (zone.to_string(), 100.0 * share)).collect();
    Ok(ZONES.map(|zone| shares.get(zone).copied().unwrap_or_default()))
}

/// Writes by the controllers since a moment to paths that contain this.
fn writes(world: &World, since: Instant, path: &str) -> usize {
    let sent = world.sent_since(since);
    sent.iter().filter(|sent| sent.is_write() && sent.path.contains(path)).count()
}

/// Most connections come from one zone. The shares follow, rest, and stay with a leader that Prometheus does not answer; figures that
/// differ by chance are no reason for a write.
#[test]
fn shares_follow_demand_and_then_rest() {
    simulate(async |world| {
        world.keep_ticking();
        add_service(&world).await;
        let rates = Rates::new(Mutex::new([300.0; 3]));
        let prometheus = prometheus(&rates).await;
        let running = world.controller("first", asking(&prometheus));
        world.told(30 * MINUTE, WEB, ("True", "DemandMeasured")).await;
        let even = Instant::now();
        sleep(HOUR / 2).await;
        assert_eq!(writes(&world, even, "/endpointslices"), 0, "demand is what CPU makes expect");

        *rates.lock() = [700.0, 200.0, 100.0];
        let hot = Instant::now();
        within(HOUR, async || {
            let shares = stored_shares(&world).await?;
            let is_near =
                shares.iter().zip([70.0, 20.0, 10.0]).all(|(now, near)| (now - near).abs() < 3.0);
            if is_near { Ok(()) } else { Err(format!("{shares:?}")) }
        })
        .await;
        sleep(10 * MINUTE).await;
        let moved = writes(&world, hot, "/endpointslices");
        assert!((1..=24).contains(&moved), "{moved} writes until the shares had arrived");
        let rest = Instant::now();
        sleep(HOUR).await;
        let (slices, services) =
            (writes(&world, rest, "/endpointslices"), writes(&world, rest, "/services"));
        assert!(slices <= 1 && services == 0, "{slices} and {services} writes in an hour of rest");
        // One write a minute of what decisions used, at most.
        let stored = writes(&world, rest, "/configmaps");
        assert!(stored <= 61, "{stored} writes of figures in an hour");
        running.stop().await.unwrap();
        prometheus.stop().await;

        let before = (stored_shares(&world).await, world.slices("web").await);
        let next = Instant::now();
        let running = world.controller("next", asking_nobody());
        sleep(5 * MINUTE).await;
        assert_eq!(writes(&world, next, "/endpointslices"), 0, "the next leader goes on there");
        assert_eq!((stored_shares(&world).await, world.slices("web").await), before);
        running.stop().await.unwrap();
    });
}

/// As [`asking`] with an address that nothing listens on.
fn asking_nobody() -> Config {
    let [address] = crate::common::free_addresses();
    config(&format!(
        "demand: {{ source: prometheus, prometheus: {{ url: 'http://{address}', query: rates }} }}"
    ))
}

/// Few connections are no measure. That is told once, and not again for an hour.
#[test]
fn a_condition_that_stays_is_written_once() {
    simulate(async |world| {
        world.keep_ticking();
        add_service(&world).await;
        let rates = Rates::new(Mutex::new([0.01; 3]));
        let prometheus = prometheus(&rates).await;
        let running = world.controller("controller", asking(&prometheus));
        world.told(10 * MINUTE, WEB, ("False", "TooFewConnections")).await;
        sleep(MINUTE).await;
        assert_eq!(world.events("web", "TooFewConnections").await, 1);
        let begun = Instant::now();
        sleep(HOUR).await;
        assert_eq!(writes(&world, begun, "/services") + writes(&world, begun, "/events"), 0);
        *rates.lock() = [300.0; 3];
        world.told(30 * MINUTE, WEB, ("True", "DemandMeasured")).await;
        sleep(MINUTE).await;
        assert_eq!(world.events("web", "DemandMeasured").await, 1);
        running.stop().await.unwrap();
        prometheus.stop().await;
    });
}

/// What the endpoints of each zone get of all traffic, by the slices.
async fn parts(world: &World) -> Option<[f64; 3]> {
    let slices = world.slices("web").await;
    let text =
        slices.first()?["metadata"]["annotations"]["zonewise.dev/zone-shares"].as_str()?.to_owned();
    let shares = ZoneShares::decode(&text).unwrap();
    let part = |to: &str| -> f64 {
        let from = ZONES.map(|from| shares.from[from].get(to).copied().unwrap_or(0));
        from.into_iter().map(|part| f64::from(part) / 1e6 / 3.0 / 2.0).sum()
    };
    Some(ZONES.map(part))
}

/// What a part of the traffic costs an endpoint of each zone, in thousandths of a core: those of zone a are half as fast.
const COSTS: [f64; 3] = [6000.0, 3000.0, 3000.0];

/// Answers for the metrics API by what endpoints get.
fn serve_metrics(world: &World) -> Arc<Mutex<Option<[f64; 3]>>> {
    let used: Arc<Mutex<Option<[f64; 3]>>> = Arc::default();
    let told = Arc::clone(&used);
    world.serve("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", move || {
        let now = zonewise_common::clock::now().to_string();
        let items: Vec<Value> = match *told.lock() {
            None => Vec::new(),
            Some(uses) => (0..6)
                .map(|n| {
                    let cpu = format!("{}u", (uses[n % 3] * 1000.0) as u64);
                    json!({
                        "metadata": {"name": format!("web-{n}"), "namespace": "shop"},
                        "timestamp": now, "window": "30s",
                        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "1Mi"}}],
                    })
                })
                .collect(),
        };
        json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
    });
    used
}

/// Runs so long, while endpoints use CPU by the traffic that they get.
async fn run_loaded(world: &World, used: &Mutex<Option<[f64; 3]>>, minutes: u32) {
    for _ in 0..4 * minutes {
        if let Some(parts) = parts(world).await {
            *used.lock() = Some([0, 1, 2].map(|zone| parts[zone] * COSTS[zone]));
        }
        sleep(MINUTE / 4).await;
    }
}

/// Traffic leaves slow endpoints until all use the same, stays so, outlives its leader, and comes back when nobody tells what
/// endpoints use.
#[test]
fn traffic_leaves_slow_endpoints_and_comes_back_without_figures() {
    simulate(async |world| {
        let mut web = service("shop", "web", "web");
        web["metadata"]["annotations"] = json!({
            "zonewise.dev/routing-preference": "zonewise.dev/balanced",
            "zonewise.dev/endpoint-weight": "cpu-use",
        });
        world.objects.create(&[web]).await.unwrap();
        world.objects.create(&zonal_pods("shop", "web", 2)).await.unwrap();
        let used = serve_metrics(&world);
        let start = |name: &str| -> Running {
            world.controller(name, config("demand: { podMetrics: true }"))
        };
        let running = start("first");
        run_loaded(&world, &used, 30).await;
        let uses = used.lock().unwrap();
        let mean = uses.iter().sum::<f64>() / 3.0;
        assert!(uses.iter().all(|one| (one / mean - 1.0).abs() < 0.1), "{uses:?}");
        world.told(MINUTE, ("web", "Weighted"), ("True", "UseWeighted")).await;
        let rest = Instant::now();
        run_loaded(&world, &used, 60).await;
        let slices = writes(&world, rest, "/endpointslices");
        assert!(slices <= 2, "{slices} writes of slices in an hour of even use");
        running.stop().await.unwrap();

        let before = parts(&world).await;
        let running = start("next");
        run_loaded(&world, &used, 5).await;
        assert_eq!(parts(&world).await, before, "the next leader goes on there");

        *used.lock() = None;
        sleep(HOUR).await;
        let even = parts(&world).await.unwrap();
        assert!(even.iter().all(|part| (part - 1.0 / 6.0).abs() < 1e-3), "{even:?}");
        assert_eq!(world.condition("web", "Weighted").await.unwrap().0, "False");
        running.stop().await.unwrap();
    });
}
