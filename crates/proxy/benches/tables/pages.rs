//! The pages while the tables are verified: asked over HTTP, again and again, until the verification is over.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use zonewise_proxy::testing::{Health, HealthPages, KernelHandle, Moment, serve, table_pages};
use zonewise_routing::Family;
use zonewise_telemetry::metrics::Registry;

use crate::Row;
use crate::node::{ENDPOINTS, Node};

pub(crate) fn measure(scale: u32) -> Result<Vec<Row>> {
    let mut node = Node::new()?;
    for number in 0..scale {
        node.add(number, &json!({}))?;
    }
    node.sync()?;
    let Node { namespace, kernel, published, .. } = node;
    let handle = KernelHandle::default();
    handle.set(kernel);
    namespace.enter(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let health = Health::new(Duration::from_secs(30));
        health.node_seen(true);
        health.updated(Family::V4, Moment::now());
        let healthz = HealthPages::new(health, &Registry::default())?;
        let pages = table_pages("n1", &published)?;
        let (healthz, pages) = runtime.block_on(async {
            let healthz = serve("health checks", any, true, healthz).await?;
            anyhow::Ok((healthz, serve("metrics", any, true, pages).await?))
        })?;
        let at = |served: Option<SocketAddr>| served.context("the server listens");
        let (healthz, pages) = (at(healthz.address())?, at(pages.address())?);
        let asked = [(healthz, "/healthz"), (pages, "/metrics"), (pages, "/routes")];
        let verified = AtomicBool::new(false);
        let (took, slowest) = std::thread::scope(|scope| {
            let verifying = scope.spawn(|| {
                let began = Instant::now();
                let repaired = handle.with(|kernel| kernel.restore());
                verified.store(true, Relaxed);
                (began.elapsed(), repaired)
            });
            let asking = scope.spawn(|| namespace.enter(|| slowest(&asked, &verified)));
            (verifying.join(), asking.join())
        });
        let failed = || anyhow::anyhow!("a thread has failed");
        let (took, repaired) = took.map_err(|_| failed())?;
        ensure!(repaired.context("there are tables")??.is_clean(), "nothing was wrong");
        let slowest = slowest.map_err(|_| failed())??;
        let of = format!("{scale} Services × {ENDPOINTS} endpoints");
        let mut rows = vec![Row::new(format!("{of}: verification"), milliseconds(took))];
        for ((_, page), (slowest, times)) in asked.iter().zip(slowest) {
            let name = format!("{of}: {page} meanwhile, the slowest of {times}");
            rows.push(Row::new(name, milliseconds(slowest)));
        }
        Ok(rows)
    })
}

/// The longest time that each page took, and how often it was asked for.
fn slowest(pages: &[(SocketAddr, &str)], done: &AtomicBool) -> Result<Vec<(Duration, u32)>> {
    let mut slowest = vec![(Duration::ZERO, 0); pages.len()];
    while !done.load(Relaxed) {
        for ((at, page), (slowest, times)) in pages.iter().zip(&mut slowest) {
            let began = Instant::now();
            get(*at, page)?;
            *slowest = began.elapsed().max(*slowest);
            *times += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(slowest)
}

fn get(at: SocketAddr, page: &str) -> Result<()> {
    let mut stream = TcpStream::connect(at)?;
    write!(stream, "GET {page} HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{page} failed");
    Ok(())
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
