//! A zone whose connections fail, with the periods of production: its share moves to others, stays there, and comes back once the zone
//! is well.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;
use zonewise_common::clock;
use zonewise_common::proxy_report::{DemandServer, ProxyReport};
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_telemetry::server::{self, Page, PageRequest, Protection, Server};
use zonewise_telemetry::tls::{Certificate, Tls};
use zonewise_testbed::objects::{node, service};
use zonewise_topology::zone_shares::ZoneShares;

use super::{HOUR, MINUTE, Sent, World, simulate, within};
use crate::common::demand::{Everybody, ZONES, failing_counts};
use crate::common::{config, zonal_pods};

/// Serves the counts of the proxy on a node, and says so in its Lease for a day.
async fn proxy(
    world: &World,
    node: &str,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> Server {
    let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
    let fingerprint = tls.fingerprint();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let handler = move |_: PageRequest<'_>| Page::new(200, "application/json", page());
    let access = Arc::new(Everybody);
    let server = server::serve_kept(listener, handler, Protection { tls, access }).unwrap();
    let port = server.address().port();
    let report = ProxyReport {
        lease: ProxyReport::lease(node),
        applied: Some(1),
        refused: std::collections::BTreeSet::new(),
        renewed: Some(clock::now()),
        duration: Some(24 * HOUR),
        demand: Some(DemandServer { port, fingerprint }),
    };
    world.objects.create(&[report.encode(node, "")]).await.unwrap();
    server
}

/// The part of what clients in zone a send that stays there, in percent.
async fn kept_in_a(world: &World) -> Result<u32, String> {
    let slices = world.slices("web").await;
    let text =
        slices.first().ok_or("no slice")?["metadata"]["annotations"]["zonewise.dev/zone-shares"]
            .as_str()
            .ok_or("no shares")?
            .to_owned();
    let shares = ZoneShares::decode(&text).map_err(|error| error.to_string())?;
    Ok(shares.from["a"].get("a").copied().unwrap_or(0) / 10_000)
}

/// Waits until the part that stays in zone a is in these limits.
async fn kept(world: &World, limit: Duration, limits: std::ops::RangeInclusive<u32>) {
    within(limit, async || {
        let kept = kept_in_a(world).await?;
        if limits.contains(&kept) { Ok(()) } else { Err(format!("{kept} %, not {limits:?}")) }
    })
    .await;
}

fn slice_writes(world: &World, since: Instant) -> usize {
    let sent = world.sent_since(since);
    let is_of_slices = |sent: &&Sent| sent.is_write() && sent.path.contains("/endpointslices");
    sent.iter().filter(is_of_slices).count()
}

#[test]
fn traffic_leaves_a_failing_zone_for_as_long_as_it_fails() {
    simulate(async |world| {
        world.keep_ticking();
        let nodes = ZONES.map(|zone| {
            let mut node = node(&format!("{zone}1"), zone, "4");
            node["status"]["addresses"] =
                json!([{"type": "InternalIP", "address": Ipv4Addr::LOCALHOST}]);
            node
        });
        world.objects.delete(&crate::common::nodes()).await.unwrap();
        world.objects.create(&nodes).await.unwrap();
        let mut web: Value = service("shop", "web", "web");
        web["metadata"]["annotations"] = json!({
            "zonewise.dev/routing-preference": "zonewise.dev/balanced",
            "zonewise.dev/failing-zones": "spill",
        });
        world.objects.create(&[web]).await.unwrap();
        world.objects.create(&zonal_pods("shop", "web", 2)).await.unwrap();
        let failing = Arc::new(AtomicBool::new(false));
        let mut servers = Vec::new();
        for zone in ZONES {
            let node = format!("{zone}1");
            let page = failing_counts(&node, zone, Arc::clone(&failing));
            servers.push(proxy(&world, &node, page).await);
        }
        let directory = TempDir::new().unwrap();
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "of the controller\n").unwrap();
        let measuring = || {
            let usual = config("demand: { source: proxies }");
            let demand = DemandConfig { token_file: token_file.clone(), ..usual.demand.clone() };
            Config { demand, ..usual }
        };

        let running = world.controller("first", measuring());
        kept(&world, 10 * MINUTE, 100..=100).await;
        failing.store(true, Ordering::Relaxed);
        // With the least that a zone counts for it has one of 21 parts, and a third of all traffic comes from it.
        kept(&world, 30 * MINUTE, 0..=15).await;
        tokio::time::sleep(10 * MINUTE).await;
        let rest = Instant::now();
        tokio::time::sleep(HOUR).await;
        let writes = slice_writes(&world, rest);
        assert!(
            writes <= 2,
            "{writes} writes of slices in an hour in which the zone fails all the time"
        );
        kept(&world, MINUTE, 0..=15).await;
        running.stop().await.unwrap();

        // The next leader goes on there, and raises the zone once it is well.
        let running = world.controller("next", measuring());
        tokio::time::sleep(10 * MINUTE).await;
        kept(&world, MINUTE, 0..=15).await;
        failing.store(false, Ordering::Relaxed);
        kept(&world, 3 * HOUR, 100..=100).await;
        running.stop().await.unwrap();
        for server in servers {
            server.stop().await;
        }
    });
}
