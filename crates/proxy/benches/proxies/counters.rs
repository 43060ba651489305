//! What counting by Service costs before a connection is made: `zonewise proxy` with its defaults and with `--count services`,
//! one after the other, each in a network of its own. What the kernel holds is the growth of `/proc/meminfo` from before the
//! program starts until it rests; nothing else may run on the box meanwhile.

use std::fs;

use anyhow::{Context, Result};

use crate::cluster::BenchCluster;
use crate::phases::LIMIT;
use crate::proxy::{ProxyUnderTest, Subject};
use crate::table::{Figure, Row};

/// Each way is measured so often; the medians are shown.
const ROUNDS: usize = 9;
/// Where the kernel keeps sets: elements, counters (one per CPU), tables of hashes.
const FIELDS: [&str; 3] = ["SUnreclaim", "Percpu", "VmallocUsed"];

/// Rows with the defaults beside `--count services`.
pub(crate) async fn measure(cluster: &BenchCluster, rounds: Option<usize>) -> Result<Vec<Row>> {
    let (mut plain, mut counting) = (Vec::new(), Vec::new());
    for _ in 0..rounds.unwrap_or(ROUNDS) {
        plain.push(once(cluster, Subject::Ours).await?);
        counting.push(once(cluster, Subject::Counting).await?);
    }
    let names = ["the process", "kernel: elements", "kernel: per CPU", "kernel: vmalloc"];
    let rows = names.iter().enumerate().map(|(place, name)| {
        let [plain, counting] = [&plain, &counting].map(|runs| median(runs, place));
        Row::counters(&format!("memory, {name}"), plain, counting)
    });
    Ok(rows.collect())
}

/// MiB: the process, then the growth of each field.
async fn once(cluster: &BenchCluster, subject: Subject) -> Result<[f64; 4]> {
    let mut proxy = ProxyUnderTest::new(&cluster.api_server)?;
    let watcher = proxy.watch(cluster.marker, cluster.side(), LIMIT);
    let before = kernel()?;
    proxy.start(subject, &cluster.api_server)?;
    proxy.seen(watcher).await?.with_context(|| format!("{subject}: never came so far"))?;
    proxy.rest().await?;
    let (held, after) = (proxy.memory("VmRSS")?, kernel()?);
    proxy.stop().await?;
    let grown: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    cluster.say(&format!("{subject}: the process {held:.1} MiB, the kernel {grown:.1?} MiB"));
    Ok([held, grown[0], grown[1], grown[2]])
}

fn kernel() -> Result<[f64; 3]> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.map_or(0.0, |kilobytes| kilobytes / 1024.0)
    };
    Ok(FIELDS.map(field))
}

fn median(runs: &[[f64; 4]], place: usize) -> Figure {
    let mut values: Vec<f64> = runs.iter().map(|run| run[place]).collect();
    values.sort_by(f64::total_cmp);
    Figure::Known(values[values.len() / 2])
}
