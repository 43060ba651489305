//! `zonewise lint`.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use zonewise_common::document::Document;
use zonewise_explain::input::{Fault, Item, Object};
use zonewise_explain::lint::{self, Finding};
use zonewise_explain::{Depth, Planner, screens};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;

use super::source::{Source, Wanted};
use super::{ControllerFlags, out};
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
    /// A document with a list of findings
    Json,
    /// Static Analysis Results Interchange Format 2.1.0
    Sarif,
}

/// What was looked at, and what was found.
#[derive(Default)]
struct Checked {
    services: usize,
    /// Objects that cannot be read.
    faults: usize,
    findings: Vec<Finding>,
}

pub(crate) fn run(arguments: Lint) -> Result<()> {
    let Lint { source, output, controller } = arguments;
    let planner = controller.planner(Depth::Arithmetic)?;
    let checked = if source.is_files() {
        in_files(&source, &planner.settings)?
    } else {
        in_cluster(&source, &planner)?
    };
    print(&checked.findings, output)?;
    let Checked { services, faults, findings } = checked;
    let of_services = screens::counted(services, "Service");
    if faults > 0 && !source.keep_going {
        let objects = screens::counted(faults, "object");
        bail!(
            "{objects} cannot be read; correct the files, or pass --keep-going to leave them out"
        );
    }
    if findings.is_empty() {
        complain(&format!("{of_services} checked, nothing found"));
        return Ok(());
    }
    bail!("{} in {of_services}", screens::counted(findings.len(), "finding"))
}

fn in_cluster(source: &Source, planner: &Planner) -> Result<Checked> {
    let wanted =
        Wanted { service: None, pods: false, json: false, missing_cpu: planner.missing_cpu };
    let services = source.gather(&wanted)?.services()?;
    let of = |service: &Arc<Service>| lint::of_service(service, &planner.settings);
    let findings = services.iter().flat_map(of).collect();
    Ok(Checked { services: services.len(), faults: 0, findings })
}

fn in_files(source: &Source, settings: &Settings) -> Result<Checked> {
    let mut checked = Checked::default();
    source.each_item(&mut |item| {
        if !is_chosen(&item, source.namespace.as_deref()) {
            return;
        }
        checked.findings.extend(lint::findings(&item, settings));
        match item {
            Item::Found(found) => checked.services += usize::from(found.is_service()),
            Item::Fault(fault) => {
                checked.faults += 1;
                let word = if source.keep_going { "warning" } else { "error" };
                let Fault { location, subject, message } = fault;
                complain(&format!("{word}: {location}: {subject}: {message}"));
            }
            Item::Ignored { .. } | Item::Clue { .. } => {}
        }
    })?;
    Ok(checked)
}

/// Whether an item is in the namespace that was asked for. The namespace of other kinds is not read.
fn is_chosen(item: &Item, namespace: Option<&str>) -> bool {
    match (item, namespace) {
        (Item::Found(found), Some(namespace)) => match &found.object {
            Object::Service { small, .. } => *small.namespace == *namespace,
            Object::Node(_)
            | Object::Pod(_)
            | Object::Slice { .. }
            | Object::ServiceCidr(_)
            | Object::Evacuation(_) => true,
        },
        _ => true,
    }
}

/// The document.
#[derive(Serialize)]
struct Found<'a> {
    findings: &'a [Finding],
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
            let document = Document::new("Findings", Found { findings });
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        Format::Sarif => {
            serde_json::to_writer_pretty(&mut out, &lint::sarif(findings))?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
