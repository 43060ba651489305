//! `zonewise route`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use zonewise_common::keys::SERVICE_PROXY_NAME;
use zonewise_common::similar::closest;
use zonewise_explain::environment::Component;
use zonewise_explain::{
    Environment, Matrix, ProxyKind, RouteLine, Snapshot, documents, location_in, matrices,
    matrices_of_nodes, name_demand, route_lines, screens,
};
use zonewise_proxy::config::{GATES, Settings};
use zonewise_routing::{FeatureGates, NodeLocation};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use super::source::{Source, Wanted};
use super::{AsIfFlags, Output, ServiceName, document, print};
use crate::args::Usage;
use crate::completion::services;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise route --node worker-1                          the routes of every Service on that node
  zonewise route --from eu-west-1a --service shop/web     on an imaginary node in that zone
  zonewise route --matrix --service shop/web              from zone to zone, and the load of endpoints
  kubectl get nodes,services,endpointslices -A -o json | zonewise route -f - --node worker-1 -o json

docs/route.md explains the output.")]
pub(crate) struct Route {
    #[command(flatten)]
    source: Source,
    /// The node whose routes are shown
    #[arg(long, value_name = "NAME", required_unless_present_any = ["from", "matrix"])]
    node: Option<String>,
    /// Show the routes of an imaginary node in this zone
    #[arg(long, value_name = "ZONE", conflicts_with = "node")]
    from: Option<String>,
    /// Only this Service, as NAMESPACE/NAME, or NAME with -n (svc/NAME as well)
    #[arg(long, value_name = "SERVICE", add = ArgValueCompleter::new(services))]
    service: Option<ServiceName>,
    /// Show the traffic from every zone to every zone, and the expected load of each endpoint
    #[arg(long, conflicts_with_all = ["node", "from"])]
    matrix: bool,
    #[command(flatten)]
    as_if: AsIfFlags,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// Configuration file of the proxy (KubeProxyConfiguration); flags take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Feature gates of the proxy, as Name=true,Name=false
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
    let mut services = gathered.services()?;
    services.retain(|service| is_served(service, proxy_name.as_deref()));
    let routers = Routers { flags: arguments.flags_of_proxy().then_some(routing), arguments };
    let environment = snapshot.environment(&routers.assumed(), ProxyKind::Zonewise);
    let unrouted = services.iter().filter(|service| !is_routed(service));
    unrouted.for_each(|service| complain(&format!("warning: {}", not_routed(service))));
    if arguments.matrix {
        if snapshot.zones().is_empty() {
            complain("warning: no node has a zone label, so it is not known where traffic starts");
        }
        let matrices = routers.matrices(snapshot, &services, &environment)?;
        return print_matrices(
            &matrices,
            (&routers.first_lines(&environment), &environment),
            arguments.output,
        );
    }
    let location = location(snapshot, arguments)?;
    // Other proxies have rules of their own about addresses that several Services ask for.
    let ours = environment.only_proxy().is_none_or(|kind| kind == ProxyKind::Zonewise);
    let mut all = Vec::new();
    for service in &services {
        let gates = routers.on(arguments.node.as_deref(), service, &environment);
        let mut proxy_view = snapshot.proxy_view(service);
        if !ours {
            proxy_view.refused.clear();
        }
        let mut lines = route_lines(&proxy_view, &location, &gates)?;
        name_demand(&snapshot.service_snapshot(service), &mut lines);
        all.extend(lines);
    }
    print_lines(&all, (&routers.first_lines(&environment), &environment), arguments.output)
}

impl Route {
    /// Whether the flags of the proxy say what it uses.
    fn flags_of_proxy(&self) -> bool {
        self.config.is_some() || self.feature_gates.is_some()
    }
}

/// Which proxies route: those that were seen; zonewise's where none was seen or where flags say so.
struct Routers<'a> {
    /// The feature gates of zonewise's proxy, if flags set them.
    flags: Option<FeatureGates>,
    arguments: &'a Route,
}

impl Routers<'_> {
    fn assumed(&self) -> Vec<Component> {
        let mut assumed = self.arguments.as_if.assumed();
        if self.flags.is_some() && !assumed.contains(&Component::Proxy) {
            assumed.push(Component::Proxy);
        }
        assumed
    }

    /// What the proxy of a node uses.
    fn on(&self, node: Option<&str>, service: &Service, here: &Environment) -> FeatureGates {
        let kind = node.map_or_else(|| here.only_proxy(), |node| here.by_node.of(node));
        self.flags.unwrap_or_else(|| kind.unwrap_or_default().gates(service))
    }

    fn matrices(
        &self,
        snapshot: &Snapshot,
        services: &[Arc<Service>],
        here: &Environment,
    ) -> Result<Vec<Matrix>> {
        let mut all = Vec::new();
        let proxies = here.by_node.or(ProxyKind::Zonewise);
        for service in services {
            let (proxy_view, nodes) = (snapshot.proxy_view(service), snapshot.senders(service));
            all.extend(match &self.flags {
                Some(gates) => matrices(&proxy_view, &nodes, gates)?,
                None => matrices_of_nodes(&proxy_view, &nodes, service, &proxies)?,
            });
        }
        Ok(all)
    }

    /// Whose routes these are, and what runs.
    fn first_lines(&self, here: &Environment) -> String {
        let known = match &self.arguments.node {
            Some(node) => here.by_node.of(node).map(ProxyKind::name),
            None if self.arguments.matrix => {
                here.all_proxies_known().then_some("the proxy of each node")
            }
            None => here.only_proxy().map(ProxyKind::name),
        };
        let whose = match known {
            Some(name) => format!("as {name} routes"),
            None => "as zonewise's proxy routes; it is not known whether it runs".into(),
        };
        format!("{whose}\n{}\n\n", screens::environment(here, self.arguments.output.width()))
    }
}

/// The feature gates and the name of the proxy, from its configuration file and flags.
fn settings(
    config: Option<&Path>,
    gates: Option<BTreeMap<String, bool>>,
) -> Result<(FeatureGates, Option<String>)> {
    let file = config.map(Settings::read).transpose()?.unwrap_or_default();
    let flags = Settings { feature_gates: gates.unwrap_or_default(), ..Settings::default() };
    let config = file.overridden_by(flags).resolve("any-node")?;
    Ok((config.routing, config.proxy_name))
}

/// Whether the proxy of this name serves a Service. Prints a warning if not.
fn is_served(service: &Service, proxy_name: Option<&str>) -> bool {
    let wanted = service.labels.get(SERVICE_PROXY_NAME);
    if wanted != proxy_name {
        complain(&format!(
            "warning: Service {} left out: {}",
            service.key(),
            wanted.map_or_else(
                || format!("it has no label {SERVICE_PROXY_NAME}"),
                |name| format!("the proxy `{name}` serves it")
            )
        ));
    }
    wanted == proxy_name
}

/// Whether proxies route a Service: it has a cluster IP.
fn is_routed(service: &Service) -> bool {
    !service.external_name && !service.headless
}

/// Why a Service is not listed.
fn not_routed(service: &Service) -> String {
    let why = if service.external_name {
        "is of type ExternalName: it is a DNS alias, and no proxy routes it"
    } else {
        "has no cluster IP (headless, or not created in a cluster yet): clients get all addresses by \
         DNS, and no proxy routes it"
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
                let known =
                    known("zone", zone, &zones.iter().map(|zone| &**zone).collect::<Vec<_>>());
                complain(&format!("warning: no node is in zone `{zone}`; {known}"));
            }
            Ok(location_in(snapshot.nodes(), zone))
        }
    }
}

fn no_node(snapshot: &Snapshot, node: &str) -> anyhow::Error {
    let names: Vec<&str> = snapshot.nodes().by_name.keys().map(|name| &**name).collect();
    anyhow::anyhow!(
        "there is no node `{node}`; {}; or pass --from ZONE",
        known("node", node, &names)
    )
}

/// The number of names that are listed where none is similar to the given one.
const LISTED: usize = 10;

/// What a name was probably meant to be, or the names that there are.
fn known(noun: &str, given: &str, names: &[&str]) -> String {
    if let Some(meant) = closest(given, names.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    match names.len().saturating_sub(LISTED) {
        _ if names.is_empty() => format!("no {noun} is known: is a Node missing?"),
        0 => format!("the {noun}s are {}", names.join(", ")),
        more => format!("the {noun}s are {} and {more} more", names[..LISTED].join(", ")),
    }
}

/// The first lines of a screen, and what runs.
type First<'a> = (&'a str, &'a Environment);

fn print_lines(lines: &[RouteLine], (first, here): First<'_>, output: Output) -> Result<()> {
    if !output.is_screen() {
        return document(&documents::routes(here, lines), output);
    }
    print(&format!("{first}{}", screens::routes(lines, output.width())))
}

fn print_matrices(matrices: &[Matrix], (first, here): First<'_>, output: Output) -> Result<()> {
    if !output.is_screen() {
        return document(&documents::matrices(here, matrices), output);
    }
    let screens: Vec<String> =
        matrices.iter().map(|matrix| screens::matrix(matrix, output.width()) + "\n").collect();
    print(&format!("{first}{}", screens.concat()))
}
