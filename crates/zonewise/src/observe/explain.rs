//! `zonewise explain`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use zonewise_common::similar::closest;
use zonewise_explain::{
    Cost, Depth, Explanation, Planner, Prices, ServiceOverview, Snapshot, explain, overview,
    screens,
};
use zonewise_slices::service::Service;

use super::source::{Source, Wanted};
use super::{ControllerFlags, Output, ServiceName, document, not_ours, ours, out};
use crate::args::Usage;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise explain                                   all Services of the cluster
  zonewise explain shop/web                          why this Service is routed as it is
  zonewise explain shop/web --compat upstream        why the built-in controller gives it no hints
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --gb 500
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --bytes month.csv
  kubectl zonewise explain web -n shop               as a kubectl plugin

docs/explain.md explains the output.")]
pub(crate) struct Explain {
    /// The Service as NAMESPACE/NAME, or NAME with -n (svc/NAME as well) [default: all Services]
    #[arg(value_name = "SERVICE")]
    service: Option<ServiceName>,
    #[command(flatten)]
    source: Source,
    /// Price of a GB that crosses zones, both directions together (0.02 for 2 cents)
    #[arg(long, value_name = "MONEY", value_parser = amount, allow_negative_numbers = true)]
    cost_per_gb: Option<f64>,
    /// GB per month that each Service sends and receives
    #[arg(long, value_name = "GB", value_parser = amount, allow_negative_numbers = true, requires = "cost_per_gb")]
    gb: Option<f64>,
    /// CSV file with the bytes per month of each Service: lines of `namespace/service,bytes`
    #[arg(long, value_name = "FILE", requires = "cost_per_gb")]
    bytes: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    controller: ControllerFlags,
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("invalid amount `{text}`: use a number of at least 0"))
}

/// The document for one Service.
#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
}

/// The document for all Services.
#[derive(Serialize)]
struct Overview<'a> {
    kind: &'static str,
    services: &'a [ServiceOverview],
}

pub(crate) fn run(arguments: Explain) -> Result<()> {
    let prices = prices(&arguments)?;
    let Explain { service, source, output, controller, .. } = arguments;
    let planner = controller.planner(Depth::Full)?;
    let missing_cpu = planner.missing_cpu;
    let gathered = source.gather(&Wanted {
        service: service.as_ref(),
        pods: true,
        json: true,
        missing_cpu,
    })?;
    let snapshot = &gathered.snapshot;
    let services = gathered.services()?;
    match (&gathered.service, services.first()) {
        (Some(_), Some(service)) => one(snapshot, service, &planner, prices.as_ref(), output),
        _ => all(snapshot, &services, &planner, prices.as_ref(), output),
    }
}

fn prices(arguments: &Explain) -> Result<Option<Prices>> {
    let Some(per_gb) = arguments.cost_per_gb else { return Ok(None) };
    if arguments.gb.is_none() && arguments.bytes.is_none() {
        let message = "--cost-per-gb needs --gb (GB per Service and month) or --bytes FILE";
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
    Ok(Some(Prices { per_gb, gb: arguments.gb, bytes }))
}

fn one(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planner: &Planner,
    prices: Option<&Prices>,
    output: Output,
) -> Result<()> {
    anyhow::ensure!(
        service.is_ours(),
        "Service {} {}, so the controller writes no EndpointSlices for it; its traffic goes to the \
         endpoints in slices that others write",
        service.key(),
        not_ours(service)
    );
    let controller_view = planner.controller_view(snapshot, service);
    let decision = controller_view.decide();
    let proxy_view = snapshot.proxy_view(service);
    let explanation =
        explain(&controller_view, &decision, &proxy_view, planner.depth, planner.proxy_kind)?;
    warn_of_missing(&[&explanation.service], prices);
    let cost = prices.and_then(|prices| prices.cost(&explanation.service, explanation.crossing));
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
            "\nper month: {:.2} for the part of {} GB that crosses zones, {:.2} at best",
            cost.now, cost.gb, cost.best
        )?;
    }
    Ok(out.flush()?)
}

/// The number of names that a warning lists.
const NAMED: usize = 10;

/// Warns of names in the file of --bytes that no Service has, and of Services that it does not contain.
fn warn_of_unknown(services: &[Arc<Service>], prices: Option<&Prices>) {
    let Some(prices) = prices else { return };
    let known: BTreeSet<String> = services.iter().map(|service| service.key()).collect();
    for name in prices.bytes.keys().filter(|name| !known.contains(*name)).take(NAMED) {
        let meant = closest(name, known.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        complain(&format!(
            "warning: --bytes contains `{name}`, but there is no such Service{meant}"
        ));
    }
    warn_of_missing(&known.iter().map(String::as_str).collect::<Vec<_>>(), Some(prices));
}

/// Warns of Services whose traffic is not known.
fn warn_of_missing(services: &[&str], prices: Option<&Prices>) {
    let Some(prices) = prices else { return };
    let missing: Vec<&str> =
        services.iter().copied().filter(|name| prices.gb(name).is_none()).collect();
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        complain(&format!(
            "warning: the cost of {} is not known, because --bytes does not contain {}{more}; add them, \
             or pass --gb for all others",
            screens::counted(missing.len(), "Service"),
            missing[..missing.len().min(NAMED)].join(", ")
        ));
    }
}

fn all(
    snapshot: &Snapshot,
    services: &[Arc<Service>],
    planner: &Planner,
    prices: Option<&Prices>,
    output: Output,
) -> Result<()> {
    let services = ours(services);
    warn_of_unknown(&services, prices);
    let lines = overview(snapshot, &services, planner, prices)?;
    if !output.is_screen() {
        return document(&Overview { kind: "Overview", services: &lines }, output);
    }
    let mut out = out();
    out.write_all(screens::overview(&lines, output.width()).as_bytes())?;
    Ok(out.flush()?)
}
