//! `zonewise lint`.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use zonewise_explain::input::Item;
use zonewise_explain::lint::{self, Finding};
use zonewise_explain::{Depth, screens};
use zonewise_slices::settings::Settings;

use super::source::{Source, Wanted};
use super::{ControllerFlags, chosen, out};
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise lint -f deploy/                            before manifests are applied
  helm template my-chart | zonewise lint -f -         a chart, rendered
  zonewise lint -f deploy/ -o sarif > lint.sarif      for code scanning
  zonewise lint                                       Services of the cluster of the kubeconfig

Exit codes: 0 nothing found, 1 something found or a file cannot be read, 2 wrong usage.
docs/lint.md lists what is found, and shows a pre-commit hook.")]
pub(crate) struct Lint {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    controller: ControllerFlags,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One line per finding: FILE:LINE: OBJECT: KEY: WHY
    Text,
    /// A list of findings
    Json,
    /// Static Analysis Results Interchange Format 2.1.0
    Sarif,
}

pub(crate) fn run(arguments: Lint) -> Result<()> {
    let Lint { source, output, controller } = arguments;
    let planner = controller.planner(Depth::Arithmetic)?;
    let (services, findings) = if source.is_files() {
        in_files(&source, &planner.settings)?
    } else {
        let wanted =
            Wanted { service: None, pods: false, json: false, missing_cpu: planner.missing_cpu };
        let snapshot = source.gather(&wanted)?.snapshot;
        let services = chosen(&snapshot, None, source.namespace.as_deref())?;
        let of = |service: &_| lint::of_service(service, &planner.settings);
        (services.len(), services.iter().flat_map(|service| of(service)).collect())
    };
    print(&findings, output)?;
    if findings.is_empty() {
        complain(&format!("{} checked, nothing found", screens::counted(services, "Service")));
        return Ok(());
    }
    bail!(
        "{} in {}",
        screens::counted(findings.len(), "finding"),
        screens::counted(services, "Service")
    )
}

/// The number of Services in the files, and the findings.
fn in_files(source: &Source, settings: &Settings) -> Result<(usize, Vec<Finding>)> {
    let (mut services, mut faults) = (0, 0);
    let mut findings = Vec::new();
    source.each_item(&mut |item| {
        findings.extend(lint::findings(&item, settings));
        match item {
            Item::Found(found) => services += usize::from(found.is_service()),
            Item::Fault(fault) => {
                faults += 1;
                complain(&format!(
                    "error: {}: {}: {}",
                    fault.location, fault.subject, fault.message
                ));
            }
            Item::Ignored { .. } => {}
        }
    })?;
    if faults > 0 {
        bail!("{} cannot be read; correct the files", screens::counted(faults, "object"));
    }
    Ok((services, findings))
}

fn print(findings: &[Finding], output: Format) -> Result<()> {
    let mut out = out();
    match output {
        Format::Text => {
            for finding in findings {
                writeln!(out, "{}", finding.to_line())?;
                for command in &finding.commands {
                    writeln!(out, "    {}", screens::clean(command))?;
                }
            }
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, findings)?;
            writeln!(out)?;
        }
        Format::Sarif => {
            serde_json::to_writer_pretty(&mut out, &lint::sarif(findings))?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
