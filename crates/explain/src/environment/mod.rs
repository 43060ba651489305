//! What runs in the cluster: zonewise's controller and proxies, kube-controller-manager, and the proxy of
//! each node.
//!
//! ```text
//!  API server ─► live::facts ─┐
//!                             ├─► Facts ─► environment() ─► Environment ─► verdict of each Service
//!  files ─► SnapshotBuilder ──┘   what     what that means,
//!                                 was seen pure
//! ```
//!
//! Only what was seen is stated. Where nothing was seen, or reading was not allowed, the answer is
//! "unknown".

mod decide;
mod facts;
mod proxies;

use serde::Serialize;

pub use decide::environment;
pub(crate) use facts::MANAGER;
pub use facts::{
    Clue, FactSource, Facts, Lease, ProxyConfig, ProxyPod, Sight, StoredDemand, ZoneDemand,
};
pub use proxies::{NodeProxies, ProxyKind};

/// What runs in the cluster, as far as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Whether a cluster or files were read.
    pub source: FactSource,
    /// What is assumed to run because a flag says so.
    pub assumed: Vec<Component>,
    /// The version of the API server; absent if it is not known.
    pub kubernetes: Option<String>,
    /// The controller whose decisions are shown.
    pub decider: Decider,
    /// zonewise's controller.
    pub controller: Finding,
    /// kube-controller-manager, whose EndpointSlice controller writes slices unless it was turned off.
    pub built_in_controller: Finding,
    /// The proxies, each with the number of nodes that it runs on.
    pub proxies: Vec<ProxyGroup>,
    /// The number of nodes.
    pub nodes: usize,
    /// The proxy of each node.
    #[serde(skip)]
    pub by_node: NodeProxies,
}

/// A controller that writes slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Decider {
    /// zonewise's.
    #[default]
    Zonewise,
    /// The one in kube-controller-manager.
    BuiltIn,
}

impl Decider {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zonewise => "zonewise's controller",
            Self::BuiltIn => "the built-in controller",
        }
    }
}

/// A part of zonewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Component {
    /// `zonewise controller`.
    Controller,
    /// `zonewise proxy` on every node.
    Proxy,
}

impl Component {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Proxy => "proxy",
        }
    }
}

/// Whether a program runs, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Whether it runs.
    pub state: RunState,
    /// What was seen, or why nothing could be seen.
    pub evidence: String,
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RunState {
    /// It runs.
    Running,
    /// A flag says that it is to be taken as running.
    Assumed,
    /// It ran, and has stopped.
    Stopped,
    /// There is no trace of it where it leaves one.
    NotFound,
    /// It cannot be found out.
    Unknown,
}

impl RunState {
    /// Whether it runs, or is assumed to.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Assumed)
    }

    /// The state in a word or two.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Assumed => "assumed",
            Self::Stopped => "stopped",
            Self::NotFound => "not found",
            Self::Unknown => "unknown",
        }
    }
}

/// The nodes with one kind of proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyGroup {
    /// `zonewise proxy`, `kube-proxy`, `Cilium`, `Cilium without serviceTopology`, or `unknown`.
    pub proxy: &'static str,
    /// The mode of kube-proxy, by its ConfigMap; absent if it is not known.
    pub mode: Option<String>,
    /// On how many nodes.
    pub nodes: usize,
    /// What was seen, or why nothing could be seen.
    pub evidence: String,
}

impl Environment {
    /// Whether zonewise's controller runs.
    pub fn has_controller(&self) -> bool {
        self.controller.state.is_running()
    }

    /// Whether the controller runs whose decisions are shown.
    pub fn has_decider(&self) -> bool {
        match self.decider {
            Decider::Zonewise => self.has_controller(),
            Decider::BuiltIn => self.built_in_controller.state.is_running(),
        }
    }

    /// The number of nodes with a kind of proxy.
    pub fn nodes_with(&self, kind: ProxyKind) -> usize {
        let groups = self.proxies.iter().filter(|group| group.proxy == kind.name());
        groups.map(|group| group.nodes).sum()
    }

    /// The proxy of all nodes; `None` if they have several, or if one is not known.
    pub fn only_proxy(&self) -> Option<ProxyKind> {
        match self.proxies.as_slice() {
            [only] => ProxyKind::named(only.proxy),
            _ => None,
        }
    }

    /// Whether the proxy of every node is known.
    pub fn all_proxies_known(&self) -> bool {
        self.proxies.iter().all(|group| ProxyKind::named(group.proxy).is_some())
    }

    /// zonewise runs: its controller, and one kind of proxy on every node.
    pub fn assumed(proxy_kind: ProxyKind) -> Self {
        let assumed = [Component::Controller, Component::Proxy];
        environment(&Facts::default(), std::iter::empty(), &assumed, proxy_kind)
    }

    /// Everything in one line.
    pub fn summary(&self) -> String {
        let mut parts = vec![
            format!("zonewise controller {}", self.controller.state.word()),
            self.proxy_summary(),
        ];
        if self.built_in_controller.state != RunState::Unknown {
            let word = self.built_in_controller.state.word();
            parts.push(format!("kube-controller-manager {word}"));
        }
        parts.extend(self.kubernetes.iter().map(|version| format!("Kubernetes {version}")));
        parts.join("; ")
    }

    fn proxy_summary(&self) -> String {
        if self.proxies.is_empty() {
            return "proxies unknown".into();
        }
        // Groups can differ in what was seen alone.
        let same = |one: &&ProxyGroup, other: &&ProxyGroup| one.proxy == other.proxy;
        let all: Vec<&ProxyGroup> = self.proxies.iter().collect();
        let group = |groups: &[&ProxyGroup]| {
            let first = groups[0];
            let mode = first.mode.as_ref().map_or_else(String::new, |mode| format!(" ({mode})"));
            let nodes: usize = groups.iter().map(|group| group.nodes).sum();
            format!("{}{mode} on {nodes} of {} nodes", first.proxy_of_nodes(), self.nodes)
        };
        all.chunk_by(same).map(group).collect::<Vec<_>>().join(", ")
    }
}

impl ProxyGroup {
    fn proxy_of_nodes(&self) -> &'static str {
        if self.proxy == UNKNOWN { "unknown proxy" } else { self.proxy }
    }
}

/// The name of a proxy that is not known.
const UNKNOWN: &str = "unknown";
