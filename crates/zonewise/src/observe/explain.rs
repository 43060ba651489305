//! `zonewise explain`.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::similar::closest;
use zonewise_explain::documents::{self, Explained};
use zonewise_explain::environment::Component;
use zonewise_explain::{Depth, Planner, Prices, Snapshot, SortBy, overview, screens, sort};
use zonewise_slices::service::Service;

use super::prices::PriceFlags;
use super::source::{Source, Wanted};
use super::{ControllerFlags, Output, ServiceName, again_and_again, print, rendered};
use crate::args::Usage;
use crate::completion::services;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise explain                                   all Services of the cluster
  zonewise explain shop/web                          why this Service is routed as it is
  zonewise explain shop/web --compat upstream        why the built-in controller gives it no hints
  zonewise explain -A --sort overload --watch        refreshed until Ctrl-C
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --gb 500
  zonewise explain -f dump.yaml --cost-per-gb 0.02 --bytes month.csv
  kubectl zonewise explain web -n shop               as a kubectl plugin

docs/explain.md explains the output.")]
pub(crate) struct Explain {
    /// The Service as NAMESPACE/NAME, or NAME with -n (svc/NAME as well) [default: all Services]
    #[arg(value_name = "SERVICE", add = ArgValueCompleter::new(services))]
    service: Option<ServiceName>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    prices: PriceFlags,
    /// What the table of all Services is sorted by
    #[arg(
        long,
        value_enum,
        value_name = "BY",
        default_value = "saving",
        conflicts_with = "service"
    )]
    sort: Sort,
    /// Read again every TIME (5s if none is given) and show what has changed, until Ctrl-C
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s")]
    watch: Option<ConfigDuration>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    controller: ControllerFlags,
}

/// What Services are sorted by.
#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    /// Where most can be saved first: money with --cost-per-gb, otherwise the part of the traffic
    Saving,
    /// The most expensive first
    Cost,
    /// Those of which least stays in its zone first
    InZone,
    /// Those with the most loaded endpoint first
    Overload,
    /// By namespace and name
    Name,
}

impl From<Sort> for SortBy {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Saving => Self::Saving,
            Sort::Cost => Self::Cost,
            Sort::InZone => Self::InZone,
            Sort::Overload => Self::Overload,
            Sort::Name => Self::Name,
        }
    }
}

/// What is asked, and how it is answered.
struct Question {
    service: Option<ServiceName>,
    source: Source,
    planner: Planner,
    /// What the flags say that runs.
    assumed: Vec<Component>,
    prices: Option<Prices>,
    sort: SortBy,
    output: Output,
}

pub(crate) fn run(arguments: Explain) -> Result<()> {
    let prices = arguments.prices.prices()?;
    let Explain { service, source, output, controller, sort, watch, .. } = arguments;
    if matches!(sort, Sort::Cost) && prices.is_none() {
        return Err(Usage("--sort cost needs --cost-per-gb or --provider".into()).into());
    }
    if watch.is_some() && source.reads_standard_input() {
        return Err(Usage("--watch cannot read standard input again; use a file".into()).into());
    }
    let assumed = controller.assumed();
    let planner = controller.planner(Depth::Full)?;
    let sort = sort.into();
    let question = Question { service, source, planner, assumed, prices, sort, output };
    match watch {
        None => print(&question.answer()?),
        Some(period) => again_and_again(period.0, || question.answer()),
    }
}

impl Question {
    fn answer(&self) -> Result<String> {
        let gathered = self.source.gather(&Wanted {
            service: self.service.as_ref(),
            pods: true,
            json: true,
            missing_cpu: self.planner.missing_cpu,
        })?;
        let services = gathered.services()?;
        let mut planner = self.planner.clone();
        planner.observe(&gathered.snapshot, &self.assumed);
        match (&gathered.service, services.first()) {
            (Some(_), Some(service)) => self.one(&gathered.snapshot, service, &planner),
            _ => self.all(&gathered.snapshot, &services, &planner),
        }
    }
}

/// Says that amounts are projected, if they are.
fn projected(prices: Option<&Prices>) -> String {
    let measured = prices.map(|prices| &prices.measured).filter(|all| !all.services.is_empty());
    measured.map_or_else(String::new, |measured| {
        format!(
            "Amounts are projected from what was measured in the last {}.\n",
            screens::time(measured.seconds)
        )
    })
}

impl Question {
    fn one(
        &self,
        snapshot: &Snapshot,
        service: &Arc<Service>,
        planner: &Planner,
    ) -> Result<String> {
        let (environment, prices) = (&planner.environment, self.prices.as_ref());
        let explained = documents::explained(snapshot, service, planner, prices)?;
        if explained.explanation().is_some() {
            warn_of_missing(&[&service.key()], prices);
        }
        if !self.output.is_screen() {
            return rendered(&explained.document(environment), self.output);
        }
        let (explanation, cost) = match explained {
            Explained::Unmanaged(unmanaged) => {
                return Ok(screens::unmanaged(&unmanaged, environment, self.output.width()));
            }
            Explained::Managed { explanation, cost } => (explanation, cost),
        };
        let mut text = screens::explanation(&explanation, environment, self.output.width());
        if let Some(cost) = cost {
            let line = format!(
                "\nper month: {:.2} for the part of {} GB that crosses zones, {:.2} at best\n",
                cost.now, cost.gb, cost.best
            );
            text.push_str(&screens::fit(&line, self.output.width()));
            text.push_str(&projected(prices));
        }
        Ok(text)
    }

    fn all(
        &self,
        snapshot: &Snapshot,
        services: &[Arc<Service>],
        planner: &Planner,
    ) -> Result<String> {
        let environment = &planner.environment;
        warn_of_unknown(services, self.prices.as_ref());
        let mut lines = overview(snapshot, services, planner, self.prices.as_ref())?;
        sort(&mut lines, self.sort);
        if !self.output.is_screen() {
            return rendered(&documents::overview(environment, &lines), self.output);
        }
        let screen = screens::overview(&lines, environment, self.output.width());
        Ok(screen + &projected(self.prices.as_ref()))
    }
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
