//! The same work for kube-controller-manager and for `zonewise controller`, each on a cluster of its own.
//!
//! ```text
//!  scenario ──► etcd + kube-apiserver ──► program under test        subject   what is started, and how
//!                        │                      │                   observer  slices as a consumer sees them
//!                        └──► observer          └──► CPU, memory    phases    the work and its measures
//! ```
//!
//! ```text
//!  cargo build --release --package zonewise
//!  cargo bench --package zonewise-controller --bench side_by_side -- [--scale 0.1] [--only reference|ours] [--rate 50]
//! ```
//!
//! `ZONEWISE_BINARY` names the program to measure; without it that is `target/release/zonewise`.
#![allow(clippy::print_stdout, reason = "the table is the product")]
#![allow(clippy::print_stderr, reason = "a run takes minutes and must show that it moves")]

mod observer;
mod phases;
mod scenario;
mod subject;
mod table;

use anyhow::{Context, Result, bail};

use scenario::Scenario;
use subject::Subject;

struct Arguments {
    scenario: Scenario,
    subjects: Vec<Subject>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { scenario, subjects } = arguments(std::env::args().skip(1))?;
    println!("{scenario}\n");
    // All of them before the first runs: a missing program shows now and not in ten minutes.
    for subject in &subjects {
        println!("{subject}: {}", subject.command()?);
    }
    let mut columns = Vec::new();
    for subject in subjects {
        columns.push((subject, phases::measure(subject, &scenario).await?));
    }
    println!("\n{}", table::render(&columns));
    Ok(())
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut scenario = Scenario::default();
    let mut subjects = vec![Subject::Reference, Subject::Ours];
    while let Some(flag) = given.next() {
        let mut value = || given.next().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--scale" => scenario.scale = value()?.parse().context("--scale needs a number")?,
            "--rate" => scenario.rate = value()?.parse().context("--rate needs a number")?,
            "--only" => subjects = vec![Subject::named(&value()?)?],
            // Cargo says this to every benchmark.
            "--bench" => {}
            other => bail!("unknown flag {other}: use --scale, --rate or --only"),
        }
    }
    if !(scenario.scale > 0.0 && scenario.rate > 0.0) {
        bail!("--scale and --rate must be above 0");
    }
    Ok(Arguments { scenario, subjects })
}
