//! `zonewise plan`.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use zonewise_common::document::API_VERSION;
use zonewise_explain::screens::{self, Totals, Width};
use zonewise_explain::{Depth, Environment, Planner, ServicePlan};

use super::source::{Source, Wanted};
use super::{ControllerFlags, Out, Output, ServiceName, not_ours, ours, out};
use crate::args::Usage;
use crate::completion::services;

#[derive(Args)]
#[command(after_help = "\
Examples:
  kubectl get nodes,pods,services,endpointslices -A -o yaml | zonewise plan -f -
  zonewise plan -f dump.json --diff                   what would change, in colour
  zonewise plan -f dump.json --explain -n shop        and why
  zonewise plan -f dump.json -o yaml | kubectl apply --server-side --force-conflicts -f -
  zonewise plan -f dump.json --compat upstream        what the built-in controller would write
  zonewise plan                                       for the cluster of the kubeconfig

docs/plan.md explains the output.")]
pub(crate) struct Plan {
    #[command(flatten)]
    source: Source,
    /// Only this Service, as NAMESPACE/NAME, or NAME with -n (svc/NAME as well)
    #[arg(long, value_name = "SERVICE", add = ArgValueCompleter::new(services))]
    service: Option<ServiceName>,
    /// Show the changes to stored slices as a diff
    #[arg(long, conflicts_with = "output")]
    diff: bool,
    /// Explain each Service: the arithmetic, and what would turn zone routing on or off
    #[arg(long)]
    explain: bool,
    /// Output format; yaml is a List for `kubectl apply --server-side`
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    controller: ControllerFlags,
}

pub(crate) fn run(arguments: Plan) -> Result<()> {
    let Plan { source, service, diff, explain, output, controller } = arguments;
    if explain && output == Output::Yaml {
        let message = "-o yaml prints only slices, without --explain; use -o json";
        return Err(Usage(message.into()).into());
    }
    let depth = if explain { Depth::Full } else { Depth::Arithmetic };
    let assumed = controller.assumed();
    let mut planner = controller.planner(depth)?;
    let missing_cpu = planner.missing_cpu;
    let wanted = Wanted { service: service.as_ref(), pods: true, json: explain, missing_cpu };
    let gathered = source.gather(&wanted)?;
    let snapshot = &gathered.snapshot;
    planner.observe(snapshot, &assumed);
    let services = gathered.services()?;
    if let ([only], true) = (services.as_slice(), gathered.service.is_some())
        && !only.is_ours()
    {
        bail!(
            "Service {} {}, so the controller writes no EndpointSlices for it",
            only.key(),
            not_ours(only)
        );
    }
    let services = ours(&services);
    let mut printer = printer(output, diff, explain, &planner);
    let mut out = out();
    printer.begin(&mut out)?;
    planner.each::<anyhow::Error>(snapshot, &services, |plan| printer.service(&plan, &mut out))?;
    printer.end(&mut out)?;
    Ok(out.flush()?)
}

/// Writes plans one by one.
trait Printer {
    fn begin(&mut self, out: &mut Out) -> Result<()>;
    fn service(&mut self, plan: &ServicePlan, out: &mut Out) -> Result<()>;
    fn end(&mut self, out: &mut Out) -> Result<()>;
}

fn printer<'a>(
    output: Output,
    diff: bool,
    explain: bool,
    planner: &'a Planner,
) -> Box<dyn Printer + 'a> {
    let environment = &planner.environment;
    let (width, totals) = (output.width(), Totals::default());
    let heading = match planner.settings.guard {
        true => screens::planned_for_guard(environment, width),
        false => screens::planned_by(environment, width),
    };
    let explained = explain.then_some((environment, width));
    match output {
        _ if diff => Box::new(Diff { heading, explained, totals }),
        Output::Table | Output::Wide => {
            let (rows, demand) = (Vec::new(), Vec::new());
            Box::new(Table { heading, explained, rows, demand, totals, width })
        }
        Output::Json => Box::new(Json { environment, first: true }),
        Output::Yaml => Box::new(Yaml { list: screens::List::default() }),
    }
}

/// What the screens of explanations need; `None` without --explain.
type Explained<'a> = Option<(&'a Environment, Width)>;

struct Table<'a> {
    heading: String,
    explained: Explained<'a>,
    rows: Vec<Vec<String>>,
    /// What is to say about Services whose measured demand is not fully in force.
    demand: Vec<String>,
    totals: Totals,
    width: Width,
}

impl Printer for Table<'_> {
    fn begin(&mut self, out: &mut Out) -> Result<()> {
        Ok(writeln!(out, "{}", self.heading)?)
    }

    fn service(&mut self, plan: &ServicePlan, out: &mut Out) -> Result<()> {
        self.totals.add(plan);
        self.rows.push(screens::plan_row(plan));
        let demand = plan.explanation.demand.as_ref().filter(|demand| !demand.is_in_force());
        self.demand.extend(demand.map(|demand| screens::demand_line(&plan.service, demand)));
        if let Some((environment, width)) = self.explained {
            writeln!(out, "{}", screens::explanation(&plan.explanation, environment, width))?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        out.write_all(screens::totals(rows, &self.totals, self.width).as_bytes())?;
        for line in self.demand.iter().take(NAMED) {
            write!(out, "{}", screens::fit(&format!("{line}\n"), self.width))?;
        }
        if let Some(more) = self.demand.len().checked_sub(NAMED).filter(|more| *more > 0) {
            writeln!(
                out,
                "demand of {more} more Services is not fully in force: -o json names them"
            )?;
        }
        Ok(())
    }
}

/// Services whose demand is told by name; the others are counted.
const NAMED: usize = 10;

struct Diff<'a> {
    heading: String,
    explained: Explained<'a>,
    totals: Totals,
}

impl Printer for Diff<'_> {
    fn begin(&mut self, out: &mut Out) -> Result<()> {
        Ok(writeln!(out, "{}", self.heading)?)
    }

    fn service(&mut self, plan: &ServicePlan, out: &mut Out) -> Result<()> {
        self.totals.add(plan);
        let diff = screens::diff(plan)?;
        if let Some((environment, width)) = self.explained.filter(|_| !diff.is_empty()) {
            writeln!(out, "{}", screens::explanation(&plan.explanation, environment, width))?;
        }
        Ok(out.write_all(diff.as_bytes())?)
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        Ok(out.write_all(screens::totals(Vec::new(), &self.totals, Width::Usual).as_bytes())?)
    }
}

struct Json<'a> {
    environment: &'a Environment,
    first: bool,
}

impl Printer for Json<'_> {
    fn begin(&mut self, out: &mut Out) -> Result<()> {
        write!(out, "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"Plan\",\"environment\":")?;
        serde_json::to_writer(&mut *out, self.environment)?;
        Ok(out.write_all(b",\"services\":[\n")?)
    }

    fn service(&mut self, plan: &ServicePlan, out: &mut Out) -> Result<()> {
        if !self.first {
            out.write_all(b",\n")?;
        }
        self.first = false;
        Ok(serde_json::to_writer(out, plan)?)
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        Ok(out.write_all(b"\n]}\n")?)
    }
}

struct Yaml {
    list: screens::List,
}

impl Printer for Yaml {
    fn begin(&mut self, _: &mut Out) -> Result<()> {
        Ok(())
    }

    fn service(&mut self, plan: &ServicePlan, out: &mut Out) -> Result<()> {
        Ok(out.write_all(self.list.add(plan)?.as_bytes())?)
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        Ok(out.write_all(self.list.end().as_bytes())?)
    }
}
