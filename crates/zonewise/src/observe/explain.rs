//! `zonewise explain`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use zonewise_explain::cost::Prices;
use zonewise_explain::explanation::{Depth, Explanation, explain};
use zonewise_explain::overview::{Cost, Line, overview};
use zonewise_explain::plan::Planning;
use zonewise_explain::screens;
use zonewise_explain::snapshot::Snapshot;
use zonewise_slices::service::Service;

use super::source::{Source, Wanted};
use super::{ControllerFlags, Output, ServiceName, chosen, document, not_ours, ours, out};
use crate::args::Usage;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise explain                                   all Services of the cluster
  zonewise explain shop/web                          why this one is routed as it is
  zonewise explain shop/web --compat upstream        why the built-in controller gives it no hints
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --gb 500
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --bytes month.csv
  kubectl zonewise explain web -n shop               the same, as a kubectl plugin

Everything is explained in docs/explain.md.")]
pub(crate) struct Explain {
    /// The Service: NAMESPACE/NAME, or NAME with -n; without it all Services
    #[arg(value_name = "SERVICE")]
    service: Option<ServiceName>,
    #[command(flatten)]
    source: Source,
    /// What a GB that crosses zones costs, both directions together (0.02 for 2 cents)
    #[arg(long, value_name = "MONEY", value_parser = amount, allow_negative_numbers = true)]
    cost_per_gb: Option<f64>,
    /// GB per month of each Service
    #[arg(long, value_name = "GB", value_parser = amount, allow_negative_numbers = true, requires = "cost_per_gb")]
    gb: Option<f64>,
    /// Bytes per month, Service by Service: a CSV file of `namespace/service,bytes`
    #[arg(long, value_name = "FILE", requires = "cost_per_gb")]
    bytes: Option<PathBuf>,
    /// How to write the result
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    controller: ControllerFlags,
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("expected a number of at least 0, found `{text}`"))
}

/// One Service, with what it costs.
#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
}

/// All Services.
#[derive(Serialize)]
struct Overview<'a> {
    kind: &'static str,
    services: &'a [Line],
}

pub(crate) fn run(arguments: Explain) -> Result<()> {
    let prices = prices(&arguments)?;
    let Explain { service, source, output, controller, .. } = arguments;
    let planning = controller.planning(Depth::Full)?;
    let missing_cpu = planning.missing_cpu;
    let gathered = source.gather(&Wanted {
        service: service.as_ref(),
        pods: true,
        json: true,
        missing_cpu,
    })?;
    let snapshot = &gathered.snapshot;
    let services = chosen(snapshot, gathered.service.as_ref(), source.namespace.as_deref())?;
    match (&gathered.service, services.first()) {
        (Some(_), Some(service)) => one(snapshot, service, &planning, (prices, output)),
        _ => all(snapshot, &services, &planning, (prices, output)),
    }
}

fn prices(arguments: &Explain) -> Result<Option<Prices>> {
    let Some(per_gb) = arguments.cost_per_gb else { return Ok(None) };
    if arguments.gb.is_none() && arguments.bytes.is_none() {
        let message = "--cost-per-gb needs --gb (per Service and month) or --bytes FILE";
        return Err(Usage(message.into()).into());
    }
    let bytes = match &arguments.bytes {
        None => Default::default(),
        Some(file) => {
            let name = file.display().to_string();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            Prices::read_bytes(&name, &text)?
        }
    };
    Ok(Some(Prices { per_gb, gb: arguments.gb.unwrap_or(0.0), bytes }))
}

type Printing = (Option<Prices>, Output);

fn one(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planning: &Planning,
    (prices, output): Printing,
) -> Result<()> {
    anyhow::ensure!(
        service.is_ours(),
        "Service {} {}, so the controller writes no slices for it; its traffic goes to whatever \
         slices others write: see `zonewise route`",
        service.key(),
        not_ours(service)
    );
    let stage = planning.stage(snapshot, service);
    let verdict = stage.judge();
    let view = snapshot.view(service);
    let explanation = explain(&stage, &verdict, &view, (planning.depth, planning.consumer))?;
    let in_zone = explanation.numbers.in_zone;
    let cost =
        prices.and_then(|prices| prices.cost(&explanation.service, in_zone.now, in_zone.best));
    if !output.is_screen() {
        return document(
            &Document { kind: "Explanation", explanation: &explanation, cost },
            output,
        );
    }
    let mut out = out();
    out.write_all(screens::explanation(&explanation).as_bytes())?;
    if let Some(cost) = cost {
        writeln!(
            out,
            "\nper month: {:.2} for what crosses zones of {} GB, {:.2} at best",
            cost.now, cost.gb, cost.best
        )?;
    }
    Ok(out.flush()?)
}

/// Names in the list of bytes that mean no Service.
fn warn(services: &[Arc<Service>], prices: Option<&Prices>) {
    let known: BTreeSet<String> = services.iter().map(|service| service.key()).collect();
    let unknown = prices.iter().flat_map(|prices| prices.bytes.keys());
    for name in unknown.filter(|name| !known.contains(*name)).take(10) {
        complain(&format!("warning: --bytes names `{name}`, and there is no such Service"));
    }
}

fn all(
    snapshot: &Snapshot,
    services: &[Arc<Service>],
    planning: &Planning,
    (prices, output): Printing,
) -> Result<()> {
    let services = ours(services);
    warn(&services, prices.as_ref());
    let lines = overview(snapshot, &services, planning, prices.as_ref())?;
    if !output.is_screen() {
        return document(&Overview { kind: "Overview", services: &lines }, output);
    }
    let mut out = out();
    out.write_all(screens::overview(&lines, output.width()).as_bytes())?;
    Ok(out.flush()?)
}
