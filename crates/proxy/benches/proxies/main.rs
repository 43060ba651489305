//! The same Services for kube-proxy in nftables mode and for `zonewise proxy`, each on a node of its own.
//!
//! ```text
//!                                      ┌─ a ClusterNetwork ─────────────────────────────────┐
//!  cluster ──► etcd + kube-apiserver   │ node n1: gate ◄── program under test               │
//!   │              └───────────────────┼────────┘                 │ rules                   │
//!   │ writes slices                    │ pod caller ─ ClusterIP ──┴──► pod left, pod right  │
//!   └── phases ◄── who answers ────────┼───┘                      └──► pod path             │
//!                                      └────────────────────────────────────────────────────┘
//! ```
//!
//! * `cluster`: one API server for all programs, and the objects it holds; grows from scale to scale.
//! * `proxy`: a fresh network for each program and each scale. All networks have the same addresses.
//! * `probe`: connections from a pod.
//! * `phases`: the work, and what is measured of it.
//! * `path`: connections per second through the rules that each program has left.
//! * `counters`: what `--count services` costs; only when asked for, and without kube-proxy.
//! * `table`: the figures side by side.
//!
//! ```text
//!  ZONEWISE_REFERENCE=$(scripts/reference thorough) ZONEWISE_BINARY=target/release/zonewise \
//!    cargo test --workspace --bench proxies -- [--scale 100,1000,5000,20000] [--rounds N] [-o json]
//!      [--only first|memory|change|burst|cpu|path|counters]
//! ```
//!
//! It needs root, and kube-proxy needs the `nft` program. Without `ZONEWISE_BINARY` the program under test is
//! `target/release/zonewise`.
#![allow(clippy::print_stdout, reason = "the table is the product")]
#![allow(clippy::print_stderr, reason = "a run takes minutes and must show that it moves")]

mod cluster;
mod counters;
mod path;
mod phases;
mod probe;
mod proxy;
mod table;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use cluster::BenchCluster;
use phases::{Part, Plan, Trial};
use proxy::Subject;
use table::Row;

/// kube-proxy without its pause between two syncs is measured up to here: beyond, it is never idle.
const EAGER_LIMIT: u32 = 1000;

struct Arguments {
    scales: BTreeSet<u32>,
    parts: BTreeSet<Part>,
    rounds: Option<usize>,
    json: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = arguments(std::env::args().skip(1))?;
    // Before anything runs: a missing program shows now and not in ten minutes.
    proxy::binary()?;
    let mut cluster = BenchCluster::open().await?;
    let mut all = Vec::new();
    for scale in &arguments.scales {
        let rows = measure(&mut cluster, &arguments, *scale).await?;
        if !arguments.json && !rows.is_empty() {
            println!("{}", table::render(*scale, &rows));
        }
        all.push((*scale, rows));
        if arguments.parts.contains(&Part::Counters) {
            let rows = counters::measure(&cluster, arguments.rounds).await?;
            println!("{}", table::render_counters(*scale, &rows));
        }
    }
    if arguments.json {
        println!("{:#}", table::json(&all));
    }
    Ok(())
}

/// Everything at one scale.
async fn measure(
    cluster: &mut BenchCluster,
    arguments: &Arguments,
    scale: u32,
) -> Result<Vec<Row>> {
    cluster.fill(scale).await?;
    if arguments.parts.iter().all(|part| *part == Part::Counters) {
        return Ok(Vec::new());
    }
    let plan = Plan { scale, parts: arguments.parts.clone(), rounds: arguments.rounds };
    let (theirs, their_proxy) = Trial::run(cluster, Subject::Reference, &plan).await?;
    let eager = match scale <= EAGER_LIMIT && plan.has(Part::Change) {
        true => Trial::run(cluster, Subject::Eager, &plan).await?.0,
        false => Vec::new(),
    };
    let (ours, our_proxy) = Trial::run(cluster, Subject::Ours, &plan).await?;
    let mut rows = table::pair(&theirs, &ours);
    rows.extend(table::pair(&eager, &ours).into_iter().filter_map(Row::eager));
    let ends = [arguments.scales.first(), arguments.scales.last()];
    if plan.has(Part::Path) && ends.contains(&Some(&scale)) {
        rows.extend(path::measure(cluster, &their_proxy, &our_proxy).await?);
    }
    Ok(rows)
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut found = Arguments {
        scales: BTreeSet::from([100, 1000, 5000, 20000]),
        parts: BTreeSet::from(Part::USUAL),
        rounds: None,
        json: false,
    };
    while let Some(flag) = given.next() {
        let mut value = || given.next().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--scale" => found.scales = scales(&value()?)?,
            "--only" => {
                found.parts = value()?.split(',').map(Part::named).collect::<Result<_>>()?;
            }
            "--rounds" => found.rounds = Some(rounds(&value()?)?),
            "-o" => match &*value()? {
                "json" => found.json = true,
                other => bail!("-o {other}: use json, or leave it out for a table"),
            },
            // Cargo passes this to every benchmark.
            "--bench" => {}
            other => bail!("unknown flag {other}: use --scale, --only, --rounds or -o json"),
        }
    }
    Ok(found)
}

fn scales(text: &str) -> Result<BTreeSet<u32>> {
    let number = |part: &str| {
        let scale: u32 = part.parse().with_context(|| format!("--scale {part}: not a number"))?;
        ensure!((1..=60_000).contains(&scale), "--scale {scale}: use 1 to 60000");
        Ok(scale)
    };
    text.split(',').map(number).collect()
}

fn rounds(text: &str) -> Result<usize> {
    let rounds = text.parse().with_context(|| format!("--rounds {text}: not a number"))?;
    ensure!(rounds > 0, "--rounds must be above 0");
    Ok(rounds)
}
