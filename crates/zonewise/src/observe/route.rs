//! `zonewise route`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use zonewise_common::keys::SERVICE_PROXY_NAME;
use zonewise_explain::matrix::{self, Matrix, matrices};
use zonewise_explain::route::{Line, lines};
use zonewise_explain::screens;
use zonewise_explain::snapshot::Snapshot;
use zonewise_proxy::config::{GATES, Settings};
use zonewise_routing::{FeatureGates, NodeLocation};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use super::source::{Source, Wanted};
use super::{Output, ServiceName, chosen, document, out};
use crate::args::Usage;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise route --node worker-1                          every Service, as that node routes it
  zonewise route --from eu-west-1a --service shop/web     a node that might be in that zone
  zonewise route --matrix --service shop/web              zone by zone, and each endpoint's load
  kubectl get nodes,services,endpointslices -A -o json | zonewise route -f - --node worker-1 -o json

Everything is explained in docs/route.md.")]
pub(crate) struct Route {
    #[command(flatten)]
    source: Source,
    /// The node that routes
    #[arg(long, value_name = "NAME", required_unless_present_any = ["from", "matrix"])]
    node: Option<String>,
    /// A node that might be in this zone, instead of one that exists
    #[arg(long, value_name = "ZONE", conflicts_with = "node")]
    from: Option<String>,
    /// Only this Service: NAMESPACE/NAME, or NAME with -n
    #[arg(long, value_name = "SERVICE")]
    service: Option<ServiceName>,
    /// From every zone to every zone, with the expected load of each endpoint
    #[arg(long, conflicts_with_all = ["node", "from"])]
    matrix: bool,
    /// How to write the result
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// Configuration file of the proxy (KubeProxyConfiguration); flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Features of the proxy on or off, as Name=true,Name=false
    #[arg(long, value_name = "GATES", value_parser = gates)]
    feature_gates: Option<BTreeMap<String, bool>>,
}

fn gates(text: &str) -> Result<BTreeMap<String, bool>, String> {
    crate::serving::gates(text, &GATES)
}

pub(crate) fn run(arguments: &Route) -> Result<()> {
    let (routing, proxy_name) =
        settings(arguments.config.as_deref(), arguments.feature_gates.clone())
            .map_err(|error| Usage(format!("{error:#}")))?;
    let service = arguments.service.as_ref();
    let wanted = Wanted { service, pods: false, json: true, missing_cpu: MissingCpu::default() };
    let gathered = arguments.source.gather(&wanted)?;
    let snapshot = &gathered.snapshot;
    let namespace = arguments.source.namespace.as_deref();
    let mut services = chosen(snapshot, gathered.service.as_ref(), namespace)?;
    services.retain(|service| is_served(service, proxy_name.as_deref()));
    if arguments.matrix {
        if snapshot.zones().is_empty() {
            complain("warning: no node has a zone, so it is not known where traffic starts");
        }
        return print_matrices(&matrices_of(snapshot, &services, &routing)?, arguments.output);
    }
    let location = location(snapshot, arguments)?;
    let mut all = Vec::new();
    for service in &services {
        all.extend(lines(&snapshot.view(service), &location, &routing)?);
    }
    if let ([only], true) = (services.as_slice(), all.is_empty()) {
        complain(&format!("warning: {}", unrouted(only)));
    }
    print_lines(&all, arguments.output)
}

/// What the proxy's flags and files say about routing, and the name of the proxy.
fn settings(
    config: Option<&Path>,
    gates: Option<BTreeMap<String, bool>>,
) -> Result<(FeatureGates, Option<String>)> {
    let file = config.map(Settings::read).transpose()?.unwrap_or_default();
    let flags = Settings { feature_gates: gates.unwrap_or_default(), ..Settings::default() };
    let config = file.overridden_by(flags).resolve("any-node")?;
    Ok((config.routing, config.proxy_name))
}

/// Whether a proxy of this name looks after a Service; says so where it does not.
fn is_served(service: &Service, proxy_name: Option<&str>) -> bool {
    let wanted = service.labels.get(SERVICE_PROXY_NAME);
    if wanted != proxy_name {
        complain(&format!(
            "warning: Service {} left out: it is for the proxy `{}`",
            service.key(),
            wanted.unwrap_or("without a name")
        ));
    }
    wanted == proxy_name
}

fn unrouted(service: &Service) -> String {
    let why = if service.external_name {
        "is of type ExternalName: DNS answers with another name, and no proxy routes it"
    } else {
        "has no cluster IP (headless, or not applied to a cluster yet): clients get every address \
         by DNS, and no proxy routes it"
    };
    format!("Service {} {why}", service.key())
}

fn location(snapshot: &Snapshot, arguments: &Route) -> Result<NodeLocation> {
    match (&arguments.node, &arguments.from) {
        (Some(node), _) => snapshot.location(node).ok_or_else(|| no_node(snapshot, node)),
        (None, zone) => {
            let zone = zone.as_deref().unwrap_or_default();
            let zones = snapshot.zones();
            if !zones.iter().any(|known| **known == *zone) {
                let known: Vec<&str> = zones.iter().map(|zone| &**zone).collect();
                complain(&format!(
                    "warning: no node is in zone `{zone}`; zones are {}",
                    known.join(", ")
                ));
            }
            Ok(matrix::location_in(snapshot.nodes(), zone))
        }
    }
}

fn no_node(snapshot: &Snapshot, node: &str) -> anyhow::Error {
    let names: Vec<&str> = snapshot.nodes().by_name.keys().take(10).map(|name| &**name).collect();
    let known = if names.is_empty() {
        "no Node was given: add the output of `kubectl get nodes -o yaml`".into()
    } else {
        format!("nodes are {}", names.join(", "))
    };
    anyhow::anyhow!("there is no node `{node}`; {known}; or pass --from ZONE")
}

fn matrices_of(
    snapshot: &Snapshot,
    services: &[Arc<Service>],
    routing: &FeatureGates,
) -> Result<Vec<Matrix>> {
    let mut all = Vec::new();
    for service in services {
        all.extend(matrices(&snapshot.view(service), snapshot.nodes(), routing)?);
    }
    Ok(all)
}

fn print_lines(lines: &[Line], output: Output) -> Result<()> {
    if !output.is_screen() {
        return document(&lines, output);
    }
    let mut out = out();
    out.write_all(screens::routes(lines, output.width()).as_bytes())?;
    Ok(out.flush()?)
}

fn print_matrices(matrices: &[Matrix], output: Output) -> Result<()> {
    if !output.is_screen() {
        return document(&matrices, output);
    }
    let mut out = out();
    for matrix in matrices {
        writeln!(out, "{}", screens::matrix(matrix))?;
    }
    Ok(out.flush()?)
}
