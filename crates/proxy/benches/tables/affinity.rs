//! Session affinity with a million clients: what a change of another Service waits for while clients are forgotten.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use zonewise_nft::{Batch, Bytes, Data, Element, Family, Verb};
use zonewise_proxy::testing::{CLIENTS, Kept, TABLE};

use crate::Row;
use crate::node::{Node, cluster_ip, pod_ip};
use crate::pages::milliseconds;

/// Services whose maps are full.
const FULL: u32 = 16;
/// As the proxy does it.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Services for what their maps cost.
const MANY: u32 = 1000;

pub(crate) fn measure() -> Result<Vec<Row>> {
    let mut rows = forgetting()?;
    rows.extend(creating()?);
    Ok(rows)
}

/// All clients of sixteen Services have an endpoint that goes.
fn forgetting() -> Result<Vec<Row>> {
    let mut node = Node::new()?;
    // So that this program can put clients into the maps.
    node.kernel.without_owner();
    let sticky = json!({"sessionAffinity": "ClientIP"});
    for number in 0..FULL {
        node.put(number, &sticky, 2)?;
    }
    node.sync()?;
    let clients = fill(&node)?;
    for number in 0..FULL {
        node.put(number, &sticky, 1)?;
    }
    node.sync()?;
    let (began, mut waits, mut changes) = (Instant::now(), Vec::new(), Vec::new());
    let namespace = node.namespace.clone();
    loop {
        // A change that comes when a portion has begun waits for its end.
        let came = Instant::now();
        let kept = namespace.enter(|| node.kernel.keep_clients(AT_ONCE))?;
        waits.push(came.elapsed());
        changes.push(change(&mut node, changes.len())?);
        if kept == Kept::Done {
            break;
        }
    }
    let took = began.elapsed();
    let alone: Vec<Duration> =
        (0..changes.len()).map(|number| change(&mut node, number)).collect::<Result<_>>()?;
    let name = format!("{clients} clients of {FULL} Services are forgotten");
    Ok(vec![
        Row::new(format!("{name}: all of it"), milliseconds(took)),
        Row::new(format!("{name}: what a change waits for, p50, p99, slowest"), spread(waits)),
        Row::new(format!("{name}: the change itself meanwhile"), spread(changes)),
        Row::new("the same change when nothing is forgotten", spread(alone)),
    ])
}

/// How long a change of a Service without affinity takes.
fn change(node: &mut Node, number: usize) -> Result<Duration> {
    let number = number as u32;
    node.put(FULL + number % 100, &json!({}), 1 + number / 100 % 2)?;
    let began = Instant::now();
    node.sync()?;
    Ok(began.elapsed())
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or_default()
    };
    [50, 99, 100].map(|percent| milliseconds(at(percent))).join(", ")
}

/// Puts clients into all maps; returns how many.
fn fill(node: &Node) -> Result<u32> {
    node.namespace.enter(|| {
        let mut socket = zonewise_nft::Socket::open()?;
        let sets = socket.sets(Family::Ip, TABLE)?.into_iter().map(|set| set.name);
        let maps: Vec<String> = sets.filter(|name| name.starts_with("affinity-")).collect();
        ensure!(maps.len() == FULL as usize, "every Service has a map");
        for map in &maps {
            let all: Vec<u32> = (0..CLIENTS).collect();
            for portion in all.chunks(8192) {
                let mut batch = Batch::new(TABLE);
                let mut elements = batch.elements(Verb::Add, Family::Ip, map);
                for client in portion {
                    let client: IpAddr = Ipv4Addr::from((20 << 24) + client).into();
                    let key = Bytes::new().address(client).address(cluster_ip(0));
                    let key = key.protocol(6).port(80);
                    let data = Bytes::new().address(pod_ip(0, 1)).port(8080);
                    let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
                    let timeout = Some(Duration::from_secs(10_000));
                    elements.push(&Element { timeout, ..element });
                }
                drop(elements);
                socket.commit(&batch)?;
            }
        }
        Ok(CLIENTS * FULL)
    })
}

/// A thousand Services, with affinity and without, and one more.
fn creating() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (what, changes) in
        [("without affinity", json!({})), ("with affinity", json!({"sessionAffinity": "ClientIP"}))]
    {
        let mut node = Node::new()?;
        node.sync()?;
        for number in 0..MANY {
            node.add(number, &changes)?;
        }
        let began = Instant::now();
        node.sync()?;
        let name = format!("{MANY} Services {what}");
        rows.push(Row::new(format!("{name}: written"), milliseconds(began.elapsed())));
        node.add(MANY, &changes)?;
        let began = Instant::now();
        node.sync()?;
        rows.push(Row::new(format!("{name}: one more"), milliseconds(began.elapsed())));
    }
    Ok(rows)
}
