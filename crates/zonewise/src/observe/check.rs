//! `zonewise check`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use zonewise_cluster::connect::{Connection, connect_to_context};
use zonewise_common::document::Document;
use zonewise_explain::check::{CheckState, Checks, Stage, checks};
use zonewise_explain::{live, screens};

use super::{Output, document, print};

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise check --pre                before zonewise is installed: is the cluster ready, may I install?
  zonewise check                      after that: does everything run, and does it agree?
  zonewise check -o json              for programs
  kubectl zonewise check              the same, as a plugin of kubectl

✓ as it should be    ! works, but not as well as it could    ✗ does not work    ? could not be found out
Exit codes: 0 nothing has failed, 1 something has failed or the cluster cannot be read, 2 wrong usage.
docs/check.md lists the checks.")]
pub(crate) struct Check {
    /// Before the installation: look at the cluster alone, and at your rights to install
    #[arg(long)]
    pre: bool,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A line per check, and how to fix what did not pass
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

pub(crate) fn run(arguments: &Check) -> Result<()> {
    let stage = if arguments.pre { Stage::Before } else { Stage::After };
    let found = look(arguments, stage)?;
    match arguments.output {
        Format::Table => print(&screens::checks(&found, Output::Table.width()))?,
        Format::Json => document(&Document::new("Checks", &found), Output::Json)?,
        Format::Yaml => document(&Document::new("Checks", &found), Output::Yaml)?,
    }
    match found.count(CheckState::Failed) {
        0 => Ok(()),
        failed => bail!("{} failed", screens::counted(failed, "check")),
    }
}

fn look(arguments: &Check, stage: Stage) -> Result<Checks> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (kubeconfig, context) = (arguments.kubeconfig.as_deref(), arguments.context.as_deref());
        let Connection { client, server, .. } = connect_to_context(kubeconfig, context).await?;
        let seen = live::sights(&client, stage).await;
        let seen = seen.with_context(|| format!("cannot read the cluster at {server}"))?;
        Ok(checks(&seen, stage))
    })
}
