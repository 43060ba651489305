//! What runs in a cluster, by own reading of the Leases, Pods and ConfigMaps, and where traffic goes with it.

use std::collections::BTreeMap;

use serde_json::Value;
use zonewise_explain::environment::Component;

use super::documents::Cluster;
use super::fields::Report;
use super::figures::{By, Matrix, Node, PROXIES, Proxy, World, gated, mixed_matrix};
use super::screens::{plain, text};

/// What runs, as far as it can be seen.
pub(crate) struct Here {
    /// zonewise's controller, and the built-in one: `running`, `assumed`, `stopped`, `notFound`, `unknown`.
    pub(crate) controller: &'static str,
    pub(crate) built_in: &'static str,
    /// The proxy of each node, as an index of [`PROXIES`]; `None` where it is not known.
    pub(crate) proxies: BTreeMap<String, Option<usize>>,
    /// zonewise's proxy with feature gates off, if flags say so.
    pub(crate) flags: Option<Proxy>,
    /// Whether the decisions of the built-in controller are told.
    pub(crate) tells_built_in: bool,
}

/// Where traffic goes now.
pub(crate) enum Now {
    Known(Matrix),
    /// It depends on what is not known.
    Unknown(Vec<Matrix>),
    /// No node counts.
    NoSender,
    /// No slice is stored, or no proxy routes the Service.
    Nowhere,
}

impl Now {
    pub(crate) fn matrix(&self) -> Option<&Matrix> {
        match self {
            Self::Known(matrix) => Some(matrix),
            Self::Unknown(_) | Self::NoSender | Self::Nowhere => None,
        }
    }

    pub(crate) fn in_zone(&self) -> Option<f64> {
        self.matrix().and_then(|matrix| matrix.in_zone)
    }
}

impl Here {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let world = World::of(cluster);
        let flags = cluster.proxy_gates_off.as_deref().map(gated);
        let nodes = || world.nodes.iter().map(|node| node.name.clone());
        let Some(assumed) = &cluster.here else {
            return Self {
                controller: "assumed",
                built_in: "unknown",
                proxies: nodes().map(|node| (node, Some(0))).collect(),
                flags,
                tells_built_in: false,
            };
        };
        let proxy = |node: String| {
            let known =
                if assumed.contains(&Component::Proxy) { Some(0) } else { on(cluster, &node) };
            (node, known)
        };
        let controller = match assumed.contains(&Component::Controller) {
            true => "assumed",
            false => elected(cluster, "zonewise-system", "zonewise-controller"),
        };
        Self {
            controller,
            built_in: elected(cluster, "kube-system", "kube-controller-manager"),
            proxies: nodes().map(proxy).collect(),
            flags,
            tells_built_in: cluster.upstream,
        }
    }

    pub(crate) fn has_controller(&self) -> bool {
        ["running", "assumed"].contains(&self.controller)
    }

    /// Whether zonewise's proxy is known to run on every node.
    pub(crate) fn has_proxy(&self) -> bool {
        self.proxies.values().all(|proxy| *proxy == Some(0))
    }

    /// Where the traffic of the Service goes now.
    pub(crate) fn now(&self, world: &World<'_>, family: &str, by: By) -> Now {
        let is_routed = world.routed_families().iter().any(|one| one == family);
        if !is_routed || !world.has_slices() {
            return Now::Nowhere;
        }
        if world.counted(by).is_empty() {
            return Now::NoSender;
        }
        let known = self.proxies.values().all(Option::is_some);
        let tried = if known { 1 } else { PROXIES.len() };
        let mut all: Vec<Matrix> = (0..tried)
            .map(|other| {
                let of = |node: &Node| PROXIES[self.proxies[&node.name].unwrap_or(other)];
                mixed_matrix(world, family, &of, by)
            })
            .collect();
        if all.iter().all(|one| one.is_like(&all[0])) {
            return Now::Known(all.swap_remove(0));
        }
        Now::Unknown(all)
    }

    /// The proxy that `route` shows for a node: by flags, as it was seen, otherwise zonewise's.
    pub(crate) fn shown(&self, node: &Node) -> Proxy {
        self.flags.unwrap_or_else(|| PROXIES[self.proxies[&node.name].unwrap_or(0)])
    }
}

fn leases(cluster: &Cluster) -> impl Iterator<Item = &Value> {
    cluster.objects.iter().filter(|one| one["kind"] == "Lease")
}

/// Seconds of the day at which a Lease was renewed.
fn renewed(lease: &Value) -> u32 {
    let time = &lease["spec"]["renewTime"].as_str().unwrap()[11..19];
    let parts: Vec<u32> = time.split(':').map(|part| part.parse().unwrap()).collect();
    (parts[0] * 60 + parts[1]) * 60 + parts[2]
}

/// Whether somebody holds a Lease, by the newest renewal of any.
fn is_valid(cluster: &Cluster, lease: &Value) -> bool {
    let now = leases(cluster).map(renewed).max().unwrap();
    lease["spec"]["holderIdentity"].is_string() && now < renewed(lease) + 15
}

/// Whether a program runs that holds a Lease. Its absence means something only where Leases of its
/// namespace, or of several ones, are in the dump.
fn elected(cluster: &Cluster, namespace: &str, name: &str) -> &'static str {
    let space = |lease: &Value| text(&lease["metadata"]["namespace"]);
    let mut spaces: Vec<String> = leases(cluster).map(space).collect();
    spaces.sort();
    spaces.dedup();
    let found = leases(cluster)
        .find(|lease| space(lease) == namespace && lease["metadata"]["name"] == name);
    match found {
        Some(lease) if is_valid(cluster, lease) => "running",
        Some(_) => "stopped",
        None if spaces.len() > 1 || spaces.iter().any(|one| one == namespace) => "notFound",
        None => "unknown",
    }
}

/// The only program on a node that can route Services; `None` if there is none, or several, or if it is
/// not known what one of them does.
fn on(cluster: &Cluster, node: &str) -> Option<usize> {
    let has_pod = |app: &str| {
        cluster.objects.iter().any(|one| {
            one["kind"] == "Pod"
                && one["metadata"]["labels"]["k8s-app"] == app
                && one["spec"]["nodeName"] == node
        })
    };
    let own =
        leases(cluster).find(|lease| lease["metadata"]["name"] == format!("zonewise-proxy-{node}"));
    let settings =
        cluster.objects.iter().find(|one| one["kind"] == "ConfigMap").map(|one| &one["data"]);
    let mut found = Vec::new();
    if own.is_some_and(|lease| is_valid(cluster, lease)) {
        found.push(0);
    }
    if has_pod("kube-proxy") {
        found.push(1);
    }
    if has_pod("cilium") {
        let settings = settings?;
        if settings["kube-proxy-replacement"] == "true" {
            found.push(if settings["enable-service-topology"] == "true" { 2 } else { 3 });
        }
    }
    if found.len() == 1 { found.pop() } else { None }
}

/// Checks what is said of the programs that run.
pub(crate) fn check(report: &mut Report, cluster: &Cluster, here: &Here) {
    if cluster.here.is_none() {
        return;
    }
    let (said, line) = cluster.environment();
    report.document("environment", &said);
    report.equal("environment.source", &said["source"], "files");
    report.equal("environment.kubernetes", &said["kubernetes"], Value::Null);
    let decider = if here.tells_built_in { "builtIn" } else { "zonewise" };
    report.equal("environment.decider", &said["decider"], decider);
    let states = [("controller", here.controller), ("builtInController", here.built_in)];
    for (key, state) in states {
        report.equal(&format!("environment.{key}.state"), &said[key]["state"], state);
    }
    let mut truth: BTreeMap<&str, u64> = BTreeMap::new();
    for proxy in here.proxies.values() {
        *truth.entry(proxy.map_or("unknown", |index| PROXIES[index].name)).or_default() += 1;
    }
    let mut told: BTreeMap<&str, u64> = BTreeMap::new();
    let groups = said["proxies"].as_array().unwrap();
    for group in groups {
        *told.entry(group["proxy"].as_str().unwrap()).or_default() +=
            group["nodes"].as_u64().unwrap();
    }
    let why = format!("{told:?}, the truth is {truth:?}");
    report.holds("environment.proxies[].proxy", told == truth, &why);
    report.checks("environment.proxies[].nodes");
    report.checks("environment.proxies[].mode");
    report.equal("environment.nodes", &said["nodes"], here.proxies.len());
    report.covers("environment.assumed");
    let line = plain(&line);
    for (name, nodes) in truth {
        let name = if name == "unknown" { "unknown proxy" } else { name };
        let shown = format!("{name} on {nodes} of {} nodes", said["nodes"]);
        report.holds("environment screen", line.contains(&shown), &line);
    }
}
