//! What routes Services on each node, and which network plugin there is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use zonewise_common::keys::NODE_PROXY;
use zonewise_common::name::Name;

use super::{
    Check, CheckState, Part, PodSight, Sights, Stage, Subject, WorkloadSight, listed, version,
};
use crate::environment::{ProxyKind, Sight, environment};
use crate::screens::counted;

const ROUTES: Subject = Subject(Part::Proxies, "service-proxy");
const VERSIONS: Subject = Subject(Part::Proxies, "kube-proxy-version");
const NETWORK: Subject = Subject(Part::Proxies, "network-plugin");

/// kube-proxy may be so many minor versions older than the API server.
const ALLOWED_SKEW: u32 = 3;

pub(super) fn checks(sights: &Sights, stage: Stage) -> Vec<Check> {
    let mut checks = vec![service_proxy(sights)];
    checks.extend(kube_proxy_versions(sights));
    checks.push(network(sights, stage));
    checks
}

/// Which proxy each node has.
fn service_proxy(sights: &Sights) -> Check {
    if let Sight::Hidden(why) = &sights.nodes {
        return ROUTES.unknown(why);
    }
    let names: Vec<Name> = sights.nodes().iter().map(|one| Name::clone(&one.node.name)).collect();
    let seen = environment(&sights.facts, names.iter(), &[], ProxyKind::Zonewise);
    let both = with_two(sights);
    if let Some(name) = beside(sights).filter(|_| !both.is_empty()) {
        return ROUTES.passed(format!(
            "zonewise proxy runs beside kube-proxy on {}, for Services with the label \
             service.kubernetes.io/service-proxy-name: {name}",
            counted(both.len(), "node")
        ));
    }
    if !both.is_empty() {
        let nodes: Vec<&str> = both.iter().copied().collect();
        let label = format!("kubectl label node {} {NODE_PROXY}=yes --overwrite", nodes.join(" "));
        return ROUTES
            .failed(
                format!(
                    "zonewise proxy and kube-proxy both run on {}: the rules that were loaded last decide",
                    listed(both)
                ),
                "keep kube-proxy away from nodes that have zonewise proxy (docs/proxy.md#replacing-kube-proxy)",
            )
            .with(keep_away(sights).into_iter().chain([label]));
    }
    let state = if seen.all_proxies_known() { CheckState::Passed } else { CheckState::Unknown };
    let groups: Vec<String> = seen.proxies.iter().map(described).collect();
    let found = groups.join("; ");
    match (state, seen.only_proxy()) {
        (_, Some(ProxyKind::CiliumPlain)) => ROUTES
            .warning(
                format!("{found}: hints have no effect"),
                "let Cilium follow hints, with loadBalancer.serviceTopology=true in its chart",
            )
            .with(["helm upgrade cilium cilium/cilium -n kube-system --reuse-values --set loadBalancer.serviceTopology=true"]),
        (CheckState::Passed, _) => ROUTES.passed(found),
        _ if unserved(sights) => ROUTES.failed(
            format!("no proxy was seen on any node: {found}"),
            "Services work on a node only while a proxy runs there: start kube-proxy, or install the chart with \
             proxy.mode=replace",
        ),
        _ => ROUTES.unknown(found),
    }
}

/// Saves kube-proxy's DaemonSet, and keeps it away from labelled nodes. A merge would replace terms that its affinity
/// has already, so each of them gets the expression. Nothing, where they have it.
fn keep_away(sights: &Sights) -> Vec<String> {
    const SAVE: &str = "kubectl -n kube-system get daemonset kube-proxy -o yaml | sed -E '/^  (creationTimestamp|resourceVersion|uid):/d' >kube-proxy.yaml";
    let sets = sights.daemon_sets.seen().into_iter().flatten();
    let mut kube_proxy = sets.filter(|set| set.is("kube-system", "kube-proxy"));
    let terms = kube_proxy.next().map_or(&[][..], |set| &set.node_terms);
    let expression = json!({"key": NODE_PROXY, "operator": "DoesNotExist"});
    if terms.iter().any(|term| term.to_string().contains(NODE_PROXY)) {
        return Vec::new();
    }
    let (kind, patch) = if terms.is_empty() {
        let terms = json!([{"matchExpressions": [expression]}]);
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let template = json!({"spec": {"affinity": {"nodeAffinity": required}}});
        let strategy = json!({"type": "OnDelete", "rollingUpdate": null});
        ("merge", json!({"spec": {"updateStrategy": strategy, "template": template}}))
    } else {
        let strategy =
            json!({"op": "replace", "path": "/spec/updateStrategy", "value": {"type": "OnDelete"}});
        let added = (0..terms.len()).map(|number| {
            json!({"op": "add", "path": format!("{TERMS}/{number}/matchExpressions/-"), "value": expression})
        });
        ("json", std::iter::once(strategy).chain(added).collect())
    };
    let patch =
        format!("kubectl -n kube-system patch daemonset kube-proxy --type {kind} -p '{patch}'");
    vec![SAVE.to_owned(), patch]
}

/// Where a DaemonSet has the terms of its node affinity.
const TERMS: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

fn described(group: &crate::environment::ProxyGroup) -> String {
    let mode = group.mode.as_ref().map_or_else(String::new, |mode| format!(" ({mode})"));
    format!("{}{mode} on {}: {}", group.proxy, counted(group.nodes, "node"), group.evidence)
}

/// Whether everything that would show a proxy may be read, and none is there.
fn unserved(sights: &Sights) -> bool {
    let facts = &sights.facts;
    let pods = facts.proxy_pods.seen().is_some_and(Vec::is_empty);
    let leases = sights.reports.seen().is_some_and(Vec::is_empty);
    let others = sights
        .daemon_sets
        .seen()
        .is_some_and(|all| all.iter().all(|one| plugin(one).is_none_or(|(_, routes)| !routes)));
    pods && leases && others && !sights.nodes().is_empty()
}

/// The name that the proxy takes Services by, if it runs beside kube-proxy.
fn beside(sights: &Sights) -> Option<&str> {
    sights.proxy()?.argument("--proxy-name").filter(|name| !name.is_empty())
}

/// The nodes on which both kube-proxy and zonewise proxy run.
fn with_two(sights: &Sights) -> BTreeSet<&str> {
    let pods = sights.facts.proxy_pods.seen().into_iter().flatten();
    let kube_proxy: BTreeSet<&str> = pods.filter(|pod| !pod.cilium).map(|pod| &*pod.node).collect();
    let leases = sights.facts.own_leases.seen().into_iter().flatten();
    let ours = leases.filter(|lease| lease.is_proxy() && lease.is_current(sights.facts.now));
    ours.map(|lease| &*lease.holder).filter(|node| kube_proxy.contains(node)).collect()
}

/// kube-proxy's versions beside the API server's.
fn kube_proxy_versions(sights: &Sights) -> Option<Check> {
    let pods = sights.system_pods.seen()?;
    let is_kube_proxy =
        |pod: &&PodSight| pod.has("k8s-app", "kube-proxy") || pod.has("component", "kube-proxy");
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pod in pods.iter().filter(is_kube_proxy) {
        nodes.entry(pod.version()).or_default().push(&pod.node);
    }
    let server = sights.facts.version.as_deref().and_then(version)?;
    let out_of_step = |found: (u32, u32)| found > server || found.1 + ALLOWED_SKEW < server.1;
    let bad: Vec<(&str, &Vec<&str>)> = nodes
        .iter()
        .filter(|(tag, _)| version(tag).is_some_and(out_of_step))
        .map(|(tag, on)| (*tag, on))
        .collect();
    if nodes.is_empty() {
        return None;
    }
    if let Some((tag, on)) = bad.first() {
        return Some(VERSIONS.warning(
            format!(
                "kube-proxy {tag} on {} cannot be applied to an API server {}.{}",
                listed(on.iter().copied()),
                server.0,
                server.1
            ),
            "let kube-proxy be of the API server's version, or at most three minor versions older",
        ));
    }
    let each: Vec<String> =
        nodes.iter().map(|(tag, on)| format!("{tag} on {}", counted(on.len(), "node"))).collect();
    Some(VERSIONS.passed(format!("kube-proxy {}", each.join(", "))))
}

/// Network plugins by the name of their DaemonSet, and whether they route Services by themselves.
const PLUGINS: [(&str, &str, bool); 14] = [
    ("anetd", "GKE Dataplane V2", true),
    ("antrea-agent", "Antrea", true),
    ("aws-node", "Amazon VPC CNI", false),
    ("azure-cni", "Azure CNI", false),
    ("azure-cns", "Azure CNI", false),
    ("calico-node", "Calico", false),
    ("canal", "Canal", false),
    ("cilium", "Cilium", false),
    ("kindnet", "kindnet", false),
    ("kube-flannel", "Flannel", false),
    ("kube-flannel-ds", "Flannel", false),
    ("kube-router", "kube-router", true),
    ("ovnkube-node", "OVN-Kubernetes", true),
    ("weave-net", "Weave Net", false),
];

fn plugin(set: &WorkloadSight) -> Option<(&'static str, bool)> {
    let found = PLUGINS.iter().find(|(name, ..)| *name == set.name)?;
    Some((found.1, found.2))
}

/// Which network plugin there is. Cilium's part in routing Services is told by [`service_proxy`].
fn network(sights: &Sights, stage: Stage) -> Check {
    let sets = match &sights.daemon_sets {
        Sight::Hidden(why) => return NETWORK.unknown(why),
        Sight::Seen(sets) => sets,
    };
    let found: Vec<(&WorkloadSight, &str, bool)> = sets
        .iter()
        .filter_map(|set| plugin(set).map(|(name, routes)| (set, name, routes)))
        .collect();
    // What routes Services matters more than what connects Pods.
    let Some((set, name, routes)) = found.iter().find(|(.., routes)| *routes).or(found.first())
    else {
        return NETWORK.unknown("no DaemonSet of a network plugin that is known here");
    };
    let place = format!("{name} (DaemonSet {}/{})", set.namespace, set.name);
    if !*routes || (stage == Stage::After && sights.proxy().is_none()) {
        return NETWORK.passed(place);
    }
    NETWORK.warning(
        format!("{place} routes Services by itself, in place of kube-proxy"),
        format!(
            "leave proxy.mode=none, and turn {name}'s own routing of Services off before you change that"
        ),
    )
}
