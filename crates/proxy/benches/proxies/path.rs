//! What a connection costs: without rules, through kube-proxy's, through ours.
//!
//! ```text
//!  caller ── 10.244.1.4:8080 ─────► path      a network without a proxy
//!  caller ── ClusterIP:80 ── rules ─► path    a network with the rules of each proxy, which has ended
//! ```
//!
//! A little of each in turn, so that what else happens on the box hits all alike.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use zonewise_netns::Namespace;

use crate::cluster::{BenchCluster, PORT};
use crate::probe::hurry;
use crate::proxy::{PATH, ProxyUnderTest};
use crate::table::{Figure, Row};

const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(600);
/// Before anything counts: neighbours are found, caches are warm.
const WARM: Duration = Duration::from_millis(200);

/// Connections of one kind.
struct Lane {
    from: Namespace,
    to: SocketAddr,
    times: Vec<Duration>,
}

pub(crate) async fn measure(
    cluster: &BenchCluster,
    theirs: &ProxyUnderTest,
    ours: &ProxyUnderTest,
) -> Result<Vec<Row>> {
    cluster.say("connections per second");
    let bare = ProxyUnderTest::new(&cluster.api_server)?;
    let direct = SocketAddr::new(PATH.into(), PORT);
    let mut lanes = [(&bare, direct), (theirs, cluster.path), (ours, cluster.path)]
        .map(|(proxy, to)| Lane { from: proxy.caller.namespace.clone(), to, times: Vec::new() });
    let lanes = tokio::task::spawn_blocking(move || ride(&mut lanes).map(|()| lanes)).await??;
    let rates = lanes.each_ref().map(|lane| Figure::Known(rate(&lane.times)));
    let medians = lanes.map(|lane| Figure::Known(median(lane.times)));
    for (name, figures) in [("connections per second", rates), ("connect time in µs", medians)] {
        let [direct, theirs, ours] = figures;
        cluster.say(&format!("{name}: direct {direct}, kube-proxy {theirs}, ours {ours}"));
    }
    Ok(vec![
        Row::path("path: connections per second", "/s", rates, true),
        Row::path("path: connect time, p50", "µs", medians, false),
    ])
}

fn ride(lanes: &mut [Lane; 3]) -> Result<()> {
    for lane in &mut *lanes {
        hurry(&lane.from, lane.to, WARM).context("the rules are gone")?;
    }
    for turn in 0..TURNS {
        // Nobody is always the first.
        for place in 0..lanes.len() {
            let lane = &mut lanes[(turn + place) % 3];
            lane.times.extend(hurry(&lane.from, lane.to, TURN)?);
        }
    }
    Ok(())
}

fn rate(times: &[Duration]) -> f64 {
    times.len() as f64 / (TURN.as_secs_f64() * TURNS as f64)
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
