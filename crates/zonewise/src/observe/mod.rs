//! The commands that only read: `plan`, `route`, `explain`, `top`, `lint`, `check` and `reasons`; and `evacuate` and
//! `restore`, which write one object.
//!
//! ```text
//!  -f FILE…  ─► input ─┐
//!                      ├─► Snapshot ─► documents ─► table, json or yaml
//!  cluster   ─► live ──┘
//! ```

pub(crate) mod check;
pub(crate) mod evacuate;
pub(crate) mod explain;
pub(crate) mod lint;
mod measured;
pub(crate) mod plan;
pub(crate) mod prices;
pub(crate) mod reasons;
pub(crate) mod route;
pub(crate) mod source;
pub(crate) mod top;

use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use zonewise_explain::environment::Component;
use zonewise_explain::screens::{self, Width};
use zonewise_explain::{Depth, Environment, Planner, ProxyKind};
use zonewise_slices::service::Service;

use crate::args::Usage;
use crate::controller::{SliceFlags, configuration};
use crate::output::complain;

/// The format of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table
    Table,
    /// A table with more rows and columns: all heuristics, all endpoints
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Output {
    /// Whether it is for people.
    fn is_screen(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// How much is shown.
    fn width(self) -> Width {
        match columns() {
            _ if self == Self::Wide => Width::Wide,
            Some(columns) => Width::Columns(columns),
            None => Width::Usual,
        }
    }
}

/// The width of the terminal; otherwise what COLUMNS says. `None` if neither is known, as in a pipe: what is read by
/// programs is not shortened.
fn columns() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.map(|(width, _)| usize::from(width.0)).or_else(said).filter(|columns| *columns > 0)
}

/// The proxy that runs on the nodes.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ConsumerFlag {
    /// zonewise proxy
    Zonewise,
    /// kube-proxy
    KubeProxy,
    /// Cilium, with loadBalancer.serviceTopology
    Cilium,
}

impl From<ConsumerFlag> for ProxyKind {
    fn from(flag: ConsumerFlag) -> Self {
        match flag {
            ConsumerFlag::Zonewise => Self::Zonewise,
            ConsumerFlag::KubeProxy => Self::KubeProxy,
            ConsumerFlag::Cilium => Self::Cilium,
        }
    }
}

/// A part of zonewise that is to be taken as running.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AsIf {
    /// zonewise controller
    Controller,
    /// zonewise proxy on every node
    Proxy,
}

/// What is assumed to run, whatever is seen of the cluster.
#[derive(Args)]
pub(crate) struct AsIfFlags {
    /// Answer as if these parts of zonewise ran [default: what is seen of the cluster]
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',')]
    as_if: Vec<AsIf>,
}

impl AsIfFlags {
    fn assumed(&self) -> Vec<Component> {
        let component = |part: &AsIf| match part {
            AsIf::Controller => Component::Controller,
            AsIf::Proxy => Component::Proxy,
        };
        self.as_if.iter().map(component).collect()
    }
}

/// Flags for commands that show what the controller and the proxies would do.
#[derive(Args)]
pub(crate) struct ControllerFlags {
    /// Answer as if this proxy ran on every node [default: the proxies that are seen; for plans,
    /// zonewise, or kube-proxy with --compat upstream and --mode guard]
    #[arg(long, value_enum, value_name = "NAME")]
    consumer: Option<ConsumerFlag>,
    #[command(flatten)]
    as_if: AsIfFlags,
    /// Configuration file of the controller (ControllerConfiguration); flags take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    slices: SliceFlags,
}

impl ControllerFlags {
    /// What the flags say that runs.
    pub(crate) fn assumed(&self) -> Vec<Component> {
        let mut assumed = self.as_if.assumed();
        if self.consumer.is_some() && !assumed.contains(&Component::Proxy) {
            assumed.push(Component::Proxy);
        }
        assumed
    }

    /// Plans as that controller would. What runs in the cluster is not known yet.
    pub(crate) fn planner(self, depth: Depth) -> Result<Planner, Usage> {
        let config = configuration(self.config.as_deref(), self.slices)
            .map_err(|error| Usage(format!("{error:#}")))?;
        let other = config.settings.upstream || config.settings.guard;
        let usual = if other { ProxyKind::KubeProxy } else { ProxyKind::Zonewise };
        let proxy_kind = self.consumer.map_or(usual, Into::into);
        Ok(Planner {
            proxy_kind,
            environment: Environment::assumed(proxy_kind),
            settings: config.settings,
            missing_cpu: config.missing_cpu,
            depth,
        })
    }
}

/// Standard output. Colours are removed if it does not support them.
type Out = BufWriter<anstream::AutoStream<std::io::StdoutLock<'static>>>;

fn out() -> Out {
    BufWriter::new(anstream::AutoStream::auto(std::io::stdout().lock()))
}

/// Writes text for people or programs.
fn print(text: &str) -> Result<()> {
    let mut out = out();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Answers again and again, and prints what differs from the answer before. A failure after the first answer may pass.
fn again_and_again(period: Duration, answer: impl Fn() -> Result<String>) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    let mut shown = String::new();
    loop {
        match answer() {
            Ok(text) if text == shown => {}
            Ok(text) => {
                let before = if shown.is_empty() { "" } else { "\n" };
                print(&format!("{}{text}", if terminal { CLEAR } else { before }))?;
                shown = text;
            }
            Err(error) if shown.is_empty() => return Err(error),
            Err(error) => complain(&format!("warning: {error:#}; trying again")),
        }
        std::thread::sleep(period);
    }
}

/// A document as JSON or YAML.
fn rendered<T: Serialize>(value: &T, output: Output) -> Result<String> {
    Ok(match output {
        Output::Yaml => screens::yaml(value)?,
        Output::Json | Output::Table | Output::Wide => serde_json::to_string_pretty(value)? + "\n",
    })
}

/// Writes a document as JSON or YAML.
fn document<T: Serialize>(value: &T, output: Output) -> Result<()> {
    print(&rendered(value, output)?)
}

/// A Service as given on the command line: `name`, `namespace/name`, or as kubectl names it, `svc/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceName {
    namespace: Option<String>,
    name: String,
}

/// How kubectl writes the kind before the name. A namespace of such a name has to be given with -n.
const KINDS: [&str; 3] = ["svc/", "service/", "services/"];

impl std::str::FromStr for ServiceName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid Service `{text}`: use NAMESPACE/NAME, NAME or svc/NAME");
        let without_kind = KINDS.iter().find_map(|kind| text.strip_prefix(kind));
        let (namespace, name) = match without_kind.unwrap_or(text).split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, without_kind.unwrap_or(text)),
        };
        let fine = |part: &str| !part.is_empty() && !part.contains(['/', ' ', '?', '#', '%']);
        let name = Some(name).filter(|name| fine(name)).ok_or_else(wrong)?;
        let namespace = namespace.map(|part| if fine(part) { Ok(part) } else { Err(wrong()) });
        Ok(Self { namespace: namespace.transpose()?.map(Into::into), name: name.into() })
    }
}

/// Why the controller writes no slices for a Service.
fn not_ours(service: &Service) -> &'static str {
    if service.external_name { "is of type ExternalName" } else { "has no selector" }
}

/// The Service of the API server. Every cluster has it, and nobody expects anything of it.
const API_SERVER: &str = "default/kubernetes";

/// The Services whose slices the controller writes. Prints a warning with the number of others.
fn ours(services: &[Arc<Service>]) -> Vec<Arc<Service>> {
    let (ours, mut others): (Vec<_>, Vec<_>) =
        services.iter().map(Arc::clone).partition(|service| service.is_ours());
    others.retain(|service| service.key() != API_SERVER);
    if !others.is_empty() {
        complain(&format!(
            "warning: {} without a selector or of type ExternalName left out: the controller writes \
             no EndpointSlices for them",
            screens::counted(others.len(), "Service")
        ));
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_as_kubectl_names_them() {
        let cases = [
            ("web", Some((None, "web"))),
            ("shop/web", Some((Some("shop"), "web"))),
            ("svc/web", Some((None, "web"))),
            ("service/web", Some((None, "web"))),
            ("services/web", Some((None, "web"))),
            ("svc/shop/web", Some((Some("shop"), "web"))),
            ("svc/", None),
            ("", None),
            ("a/b/c", None),
            ("/web", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(namespace, name): (Option<&str>, &str)| ServiceName {
                namespace: namespace.map(Into::into),
                name: name.into(),
            });
            assert_eq!(text.parse::<ServiceName>().ok(), expected, "{text}");
        }
    }
}
