//! `zonewise evacuate` and `zonewise restore`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::connect::{Connection, connect_to_context};
use zonewise_common::clock;
use zonewise_common::document::Document;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::time::timestamp;
use zonewise_controller::evacuation::{
    self, EvacuationSpec, LIMIT_PERCENT, Phase, StoredEvacuation, object_name,
};
use zonewise_explain::{Depth, EvacuationCheck, evacuation_check, screens};

use super::source::{Source, Wanted};
use super::{ControllerFlags, Output, document, print};
use crate::args::Usage;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise evacuate eu-west-1a                          what it would mean; changes nothing
  zonewise evacuate eu-west-1a --yes --for 2h           do it, and wait until the zone is empty
  zonewise evacuate eu-west-1a --yes --step 5s          faster
  zonewise evacuate eu-west-1a -f dump.yaml             what it would mean in a dump
  zonewise restore eu-west-1a                           give the zone its traffic back
  kubectl get zoneevacuations                           how far it is
  kubectl zonewise evacuate eu-west-1a                  the same, as a plugin of kubectl

Exit codes: 0 the zone is empty, or could be emptied; 1 refused, gone back or failed; 2 wrong usage.
docs/evacuate.md explains what happens.")]
pub(crate) struct Evacuate {
    /// The zone, as the label topology.kubernetes.io/zone of nodes names it
    zone: String,
    /// Do it; without this, only say what it would mean
    #[arg(long)]
    yes: bool,
    /// After this time the zone gets its traffic back, whatever happens
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    lasting: ConfigDuration,
    /// The least time between two steps; whole seconds
    #[arg(long, value_name = "TIME", default_value = "30s")]
    step: ConfigDuration,
    /// The most that the busiest endpoint of a Service may get, in percent of what it gets now
    #[arg(long, value_name = "PERCENT", default_value_t = LIMIT_PERCENT,
        value_parser = clap::value_parser!(u32).range(100..=100_000))]
    limit: u32,
    /// Return at once, instead of when the zone is empty
    #[arg(long)]
    no_wait: bool,
    /// File or folder with Nodes, Pods, Services and EndpointSlices, instead of a cluster; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "yes"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Form,
    #[command(flatten)]
    controller: ControllerFlags,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise restore eu-west-1a                           and wait until the zone has all its traffic
  kubectl delete zoneevacuation eu-west-1a              all of it at once

docs/evacuate.md explains what happens.")]
pub(crate) struct Restore {
    /// The zone
    zone: String,
    /// Return at once, instead of when the zone has its traffic back
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Place {
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Place {
    async fn connect(&self) -> Result<Connection> {
        let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        Ok(connect_to_context(kubeconfig, context).await?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table, and a line for each step
    Table,
    /// JSON: what it would mean, or with --yes the object that was written
    Json,
}

pub(crate) fn run(arguments: Evacuate) -> Result<()> {
    let Evacuate { zone, yes, lasting, step, limit, no_wait, files, place, output, controller } =
        arguments;
    let spec = spec(&zone, lasting.0, step.0, limit)?;
    let source = Source {
        files,
        kubeconfig: place.kubeconfig.clone(),
        context: place.context.clone(),
        namespace: None,
        all_namespaces: false,
        keep_going: false,
    };
    let planner = controller.planner(Depth::Arithmetic)?;
    if planner.settings.upstream || planner.settings.guard {
        let message = "zones can be emptied where zonewise writes the slices: not with --mode guard or --compat upstream";
        return Err(Usage(message.into()).into());
    }
    let missing_cpu = planner.missing_cpu;
    let wanted = Wanted { service: None, pods: true, json: false, missing_cpu };
    let snapshot = source.gather(&wanted)?.snapshot;
    let check = evacuation_check(&snapshot, &planner.settings, &zone, limit);
    let check = check.map_err(anyhow::Error::msg)?;
    show(&check, output, yes)?;
    if !check.possible {
        bail!(
            "zone {zone} cannot be emptied: run more endpoints in other zones, or allow more with --limit"
        );
    }
    if !yes {
        return Ok(());
    }
    let goal = Goal { phase: Phase::Empty, wait: !no_wait, output };
    run_async(async { goal.reach(&place.connect().await?, &spec).await })
}

/// The check for people, and with JSON if nothing else follows.
fn show(check: &EvacuationCheck, output: Form, yes: bool) -> Result<()> {
    match output {
        Form::Json if yes => Ok(()),
        Form::Json => document(&Document::new("EvacuationCheck", check), Output::Json),
        Form::Table => {
            print(&screens::evacuation(check, Output::Table.width()))?;
            if check.possible && !yes {
                print("Nothing was changed; add --yes to do it.\n")?;
            }
            Ok(())
        }
    }
}

fn spec(zone: &str, lasting: Duration, step: Duration, limit: u32) -> Result<EvacuationSpec> {
    let wrong = |message: String| Err(Usage(message).into());
    if zone.is_empty() || object_name(zone).is_empty() {
        return wrong(format!("`{zone}` cannot be the name of a zone"));
    }
    if step.is_zero() || step.subsec_nanos() > 0 || step.as_secs() > 86_400 {
        return wrong("--step has to be whole seconds, 1s to 24h".to_owned());
    }
    // There and back, with a step to spare.
    let least = step * 10;
    if lasting < least {
        let least = ConfigDuration(least);
        return wrong(format!(
            "--for is too short for steps of {}: there and back takes {least} at least; pass a longer time, or shorter steps with --step",
            ConfigDuration(step)
        ));
    }
    let seconds = i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX);
    Ok(EvacuationSpec {
        zone: zone.into(),
        deadline: timestamp(clock::now().as_second().saturating_add(seconds)).into(),
        step_seconds: u32::try_from(step.as_secs()).ok(),
        limit_percent: Some(limit),
        restore: false,
    })
}

pub(crate) fn restore(arguments: &Restore) -> Result<()> {
    let Restore { zone, no_wait, place } = arguments;
    run_async(async {
        let connection = place.connect().await?;
        let stored = evacuation::stored(&connection.client, zone).await.map_err(explained)?;
        let Some(stored) = stored else {
            bail!(
                "zone {zone} is not being emptied; `kubectl get zoneevacuations` lists those that are"
            );
        };
        let is_taken_up = stored.status.observed_generation == stored.generation();
        if is_taken_up && stored.status.phase.is_over() {
            return print(&format!("zone {zone} has its traffic: {}\n", stored.status.message));
        }
        let spec = EvacuationSpec { restore: true, ..stored.spec };
        let goal = Goal { phase: Phase::Ended, wait: !no_wait, output: Form::Table };
        goal.reach(&connection, &spec).await
    })
}

fn run_async(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The error of a request, with a remedy where the kind is not known.
fn explained(error: ApiError) -> anyhow::Error {
    match error {
        ApiError::NotFound(message) => anyhow::anyhow!(
            "the CustomResourceDefinition of ZoneEvacuations is not installed ({message}); install the chart with controller.mode=controller, \
             or apply deploy/controller/crd.yaml"
        ),
        other => other.into(),
    }
}

/// What is waited for.
struct Goal {
    phase: Phase,
    wait: bool,
    output: Form,
}

/// How often the object is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// A controller that runs takes an object up within this time.
const TAKEN_UP: Duration = Duration::from_secs(30);

impl Goal {
    /// Writes what is asked for, and shows each step until the goal is reached.
    async fn reach(&self, connection: &Connection, spec: &EvacuationSpec) -> Result<()> {
        let client = &connection.client;
        let asked = evacuation::ask(client, spec).await.map_err(explained)?;
        if self.output == Form::Json {
            let object =
                json!({ "name": asked.name(), "spec": asked.spec, "status": asked.status });
            print(&format!("{object}\n"))?;
        }
        if !self.wait {
            return Ok(());
        }
        let (began, mut shown) = (tokio::time::Instant::now(), None);
        loop {
            let stored = evacuation::stored(client, &spec.zone).await.map_err(explained)?;
            let stored = stored.context("the ZoneEvacuation was deleted meanwhile")?;
            if self.show(&stored, &mut shown)? {
                return Ok(());
            }
            let taken_up = stored.status.observed_generation >= asked.generation();
            if !taken_up && began.elapsed() > TAKEN_UP {
                bail!(
                    "no controller has taken it up within {} s: check with `zonewise check` that zonewise controller runs, \
                     is of this version and has the rights of deploy/controller/rbac.yaml; `kubectl delete zoneevacuation {}` \
                     withdraws it",
                    TAKEN_UP.as_secs(),
                    stored.name()
                );
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Shows what is new. Returns whether the goal is reached.
    fn show(&self, stored: &StoredEvacuation, shown: &mut Option<String>) -> Result<bool> {
        let status = &stored.status;
        if status.observed_generation != stored.generation() {
            return Ok(false);
        }
        let line = format!("{:?}: {}\n", status.phase, screens::clean(&status.message));
        if self.output == Form::Table && shown.as_ref() != Some(&line) {
            print(&line)?;
            *shown = Some(line);
        }
        match status.phase {
            phase if phase == self.phase => Ok(true),
            phase if phase.is_over() => {
                bail!(
                    "zone {} is not {:?} but {phase:?}: {}",
                    stored.spec.zone,
                    self.phase,
                    status.message
                )
            }
            _ => Ok(false),
        }
    }
}
