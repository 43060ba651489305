//! What tables of many Services cost on the real kernel, without an API server.
//!
//! ```text
//!  objects ─► index ─► Kernel, in a network namespace of its own ─► figures
//! ```
//!
//! * `transit`: how much memory a changed element needs on its way to the kernel.
//! * `affinity`: what a change waits for while a million clients are forgotten, and what the maps of a thousand
//!   Services cost.
//! * `demand`: what counting connections and bytes costs a connection.
//! * `pages`: how long `/healthz`, `/metrics` and `/routes` take while the tables are verified.
//!
//! ```text
//!  cargo bench --package zonewise-proxy --bench tables -- [--scale 20000] [--only transit|affinity|demand|pages]
//! ```
//!
//! It needs root.
#![allow(clippy::print_stdout, reason = "the table is the product")]

mod affinity;
mod demand;
mod node;
mod pages;
mod transit;

use anyhow::{Context, Result, bail};
use zonewise_testbed::table;

/// One line of the table.
pub(crate) struct Row {
    name: String,
    value: String,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

fn main() -> Result<()> {
    let (mut scale, mut only) = (20_000, None);
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let mut value = || given.next().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--scale" => scale = value()?.parse().context("--scale: not a number")?,
            "--only" => only = Some(value()?),
            // Cargo passes this to every benchmark.
            "--bench" => {}
            other => bail!("unknown flag {other}: use --scale or --only"),
        }
    }
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let mut rows = Vec::new();
    // First, while the process has freed little that it could use again.
    if wanted("transit") {
        rows.extend(transit::measure(scale)?);
    }
    if wanted("pages") {
        rows.extend(pages::measure(scale)?);
    }
    if wanted("affinity") {
        rows.extend(affinity::measure()?);
    }
    if wanted("demand") {
        rows.extend(demand::measure()?);
    }
    let mut lines = vec![vec!["measure".to_owned(), "figure".to_owned()]];
    lines.extend(rows.into_iter().map(|row| vec![row.name, row.value]));
    println!("{}", table::markdown(&lines));
    Ok(())
}
