//! What the facts mean. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use zonewise_common::keys::PROXY;
use zonewise_common::name::{CONTROLLER_NAME, Name};

use super::facts::{Facts, Lease, ProxyConfig, Sight};
use super::proxies::{NodeProxies, ProxyKind};
use super::{Component, Decider, Environment, Finding, ProxyGroup, RunState, UNKNOWN};

/// What runs on these nodes, by what was seen. What is `assumed` counts as running, whatever was seen;
/// `proxy_kind` is the proxy that [`Component::Proxy`] stands for.
pub fn environment<'a>(
    facts: &Facts,
    nodes: impl Iterator<Item = &'a Name>,
    assumed: &[Component],
    proxy_kind: ProxyKind,
) -> Environment {
    let nodes: Vec<&Name> = nodes.collect();
    let (proxies, by_node) = if assumed.contains(&Component::Proxy) {
        assumed_proxies(nodes.len(), proxy_kind)
    } else {
        proxies(facts, &nodes)
    };
    let controller = if assumed.contains(&Component::Controller) {
        Finding { state: RunState::Assumed, evidence: "assumed".into() }
    } else {
        controller(facts)
    };
    Environment {
        source: facts.source,
        assumed: assumed.to_vec(),
        kubernetes: facts.version.clone(),
        decider: Decider::default(),
        controller,
        built_in_controller: built_in_controller(facts),
        proxies,
        nodes: nodes.len(),
        by_node,
    }
}

fn assumed_proxies(nodes: usize, kind: ProxyKind) -> (Vec<ProxyGroup>, NodeProxies) {
    let (proxy, evidence) = (kind.name(), "assumed".into());
    (vec![ProxyGroup { proxy, mode: None, nodes, evidence }], NodeProxies::all(kind))
}

fn controller(facts: &Facts) -> Finding {
    let find =
        |leases: &Vec<Lease>| leases.iter().find(|lease| &*lease.key.1 == CONTROLLER_NAME).cloned();
    let lease = match &facts.own_leases {
        Sight::Seen(leases) => Sight::Seen(find(leases)),
        Sight::Hidden(why) => Sight::Hidden(why.clone()),
    };
    elected(&lease, "zonewise-system/zonewise-controller", facts.now)
}

fn built_in_controller(facts: &Facts) -> Finding {
    elected(&facts.manager_lease, "kube-system/kube-controller-manager", facts.now)
}

/// Whether a program runs that holds a Lease while it leads.
fn elected(lease: &Sight<Option<Lease>>, name: &str, now: Option<Timestamp>) -> Finding {
    let (state, evidence) = match lease {
        Sight::Hidden(why) => (RunState::Unknown, why.clone()),
        Sight::Seen(None) => (RunState::NotFound, format!("there is no Lease {name}")),
        Sight::Seen(Some(lease)) => held(lease, name, now),
    };
    Finding { state, evidence }
}

fn held(lease: &Lease, name: &str, now: Option<Timestamp>) -> (RunState, String) {
    match age(lease, now) {
        None => (RunState::Unknown, format!("the Lease {name} does not say when it was renewed")),
        Some(_) if lease.holder.is_empty() => {
            (RunState::Stopped, format!("no process holds the Lease {name}"))
        }
        Some(Age::Current) => {
            (RunState::Running, format!("{} holds the Lease {name}", lease.holder))
        }
        Some(Age::Expired(for_long)) => {
            let seconds = for_long.as_secs();
            (RunState::Stopped, format!("the Lease {name} expired {seconds} seconds ago"))
        }
    }
}

impl Lease {
    /// Whether it is that of a proxy.
    pub(crate) fn is_proxy(&self) -> bool {
        self.component.as_deref() == Some(PROXY)
    }

    /// Whether it is valid at this time, as far as that is known.
    pub(crate) fn is_current(&self, now: Option<Timestamp>) -> bool {
        matches!(age(self, now), Some(Age::Current))
    }
}

enum Age {
    Current,
    Expired(SignedDuration),
}

/// Whether a Lease is valid; `None` if it does not say, or if the time is not known.
fn age(lease: &Lease, now: Option<Timestamp>) -> Option<Age> {
    let duration = SignedDuration::try_from(lease.duration?).ok()?;
    let end = lease.renewed?.checked_add(duration).ok()?;
    let now = now?;
    Some(if now < end { Age::Current } else { Age::Expired(now.duration_since(end)) })
}

/// What is known of the proxy of a node: its kind, or nothing; and what was seen.
type Seen = (Option<ProxyKind>, String);

fn proxies(facts: &Facts, nodes: &[&Name]) -> (Vec<ProxyGroup>, NodeProxies) {
    let mut groups: BTreeMap<(Option<ProxyKind>, String), usize> = BTreeMap::new();
    let mut by_node = BTreeMap::new();
    let view = ProxyFacts::of(facts);
    for node in nodes {
        let (kind, evidence) = view.on(node);
        *groups.entry((kind, evidence)).or_default() += 1;
        by_node.insert(Name::clone(node), kind);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // Known proxies come first.
    groups.sort_by_key(|((kind, _), _)| kind.is_none());
    let group = |((kind, evidence), nodes): ((Option<ProxyKind>, String), usize)| ProxyGroup {
        proxy: kind.map_or(UNKNOWN, ProxyKind::name),
        mode: view.mode(kind),
        nodes,
        evidence,
    };
    (groups.into_iter().map(group).collect(), NodeProxies::of_nodes(by_node))
}

/// The facts about proxies, by node.
struct ProxyFacts<'a> {
    /// Whether the Lease of zonewise's proxy on the node is valid.
    own: BTreeMap<&'a str, bool>,
    kube_proxy: Vec<&'a str>,
    cilium: Vec<&'a str>,
    /// What Cilium does, by its settings: `Some(None)` if it leaves Services to kube-proxy.
    cilium_kind: Option<Option<ProxyKind>>,
    mode: Option<&'a str>,
    /// Why nothing more is known.
    hidden: Option<&'a str>,
}

impl<'a> ProxyFacts<'a> {
    fn of(facts: &'a Facts) -> Self {
        let leases = facts.own_leases.seen().into_iter().flatten();
        let own = leases.filter(|lease| lease.is_proxy());
        let on = |cilium: bool| {
            let pods = facts.proxy_pods.seen().into_iter().flatten();
            let mut nodes: Vec<&str> =
                pods.filter(|pod| pod.cilium == cilium).map(|pod| &*pod.node).collect();
            nodes.sort_unstable();
            nodes
        };
        Self {
            own: own.map(|lease| (&*lease.holder, lease.is_current(facts.now))).collect(),
            kube_proxy: on(false),
            cilium: on(true),
            cilium_kind: facts.configs.iter().find_map(cilium_kind),
            mode: facts.configs.iter().find_map(mode),
            hidden: match &facts.proxy_pods {
                Sight::Hidden(why) => Some(why),
                Sight::Seen(_) => None,
            },
        }
    }

    fn mode(&self, kind: Option<ProxyKind>) -> Option<String> {
        self.mode.filter(|_| kind == Some(ProxyKind::KubeProxy)).map(str::to_owned)
    }

    /// The proxy of a node.
    fn on(&self, node: &str) -> Seen {
        let kube_proxy = self.kube_proxy.binary_search(&node).is_ok();
        let cilium = self.cilium.binary_search(&node).is_ok();
        let own = self.own.get(node).copied();
        let replacement = self.cilium_kind.filter(|_| cilium);
        let unknown = |why: &str| (None, why.to_owned());
        match (own, replacement) {
            (Some(true), _) if kube_proxy => unknown("zonewise proxy and kube-proxy both run"),
            (Some(true), Some(Some(_))) => unknown("zonewise proxy and Cilium both run"),
            (_, None) if cilium => {
                unknown("Cilium runs, but its ConfigMap cilium-config cannot be seen")
            }
            (Some(true), _) => (Some(ProxyKind::Zonewise), "a Lease of zonewise proxy".into()),
            (_, Some(Some(_))) if kube_proxy => {
                unknown("kube-proxy and Cilium in its place both run")
            }
            (_, Some(Some(kind))) => (Some(kind), "a Pod and the ConfigMap of Cilium".into()),
            _ if kube_proxy => (Some(ProxyKind::KubeProxy), "a Pod of kube-proxy".into()),
            (Some(false), _) => unknown("the Lease of zonewise proxy has expired"),
            _ => unknown(self.hidden.unwrap_or(
                "there is no Lease of zonewise proxy and no Pod of kube-proxy or Cilium",
            )),
        }
    }
}

fn cilium_kind(config: &ProxyConfig) -> Option<Option<ProxyKind>> {
    match config {
        ProxyConfig::Cilium { replaces_kube_proxy: false, .. } => Some(None),
        ProxyConfig::Cilium { topology: true, .. } => Some(Some(ProxyKind::Cilium)),
        ProxyConfig::Cilium { topology: false, .. } => Some(Some(ProxyKind::CiliumPlain)),
        ProxyConfig::KubeProxy { .. } => None,
    }
}

fn mode(config: &ProxyConfig) -> Option<&str> {
    match config {
        ProxyConfig::KubeProxy { mode } if !mode.is_empty() => Some(mode),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use zonewise_slices::pod::Pod;

    use super::super::facts::Clue;
    use super::*;

    /// Facts of a live cluster where everything may be read, and nothing is there.
    fn empty() -> Facts {
        Facts {
            now: "2026-01-01T12:00:00Z".parse().ok(),
            version: Some("v1.36.4".into()),
            own_leases: Sight::Seen(Vec::new()),
            manager_lease: Sight::Seen(None),
            proxy_pods: Sight::Seen(Vec::new()),
            ..Facts::of_cluster()
        }
    }

    fn lease(namespace: &str, name: &str, holder: &str, renewed: &str) -> Value {
        let labels = if name.contains("proxy") {
            json!({"zonewise.dev/component": "proxy"})
        } else {
            json!({})
        };
        json!({
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        })
    }

    const FRESH: &str = "2026-01-01T11:59:50.000000Z";
    const OLD: &str = "2026-01-01T11:58:00.000000Z";

    fn with(objects: &[Value]) -> Facts {
        let mut facts = empty();
        for object in objects {
            match object["kind"].as_str() {
                Some("Pod") => {
                    facts.add_pod(&serde_json::from_value::<Pod>(object.clone()).unwrap());
                }
                Some(kind) => facts.add(Clue::of(kind, object).unwrap()),
                None => facts.add(Clue::of("Lease", object).unwrap()),
            }
        }
        facts.now = empty().now;
        facts
    }

    fn own(name: &str, holder: &str, renewed: &str) -> Value {
        lease("zonewise-system", name, holder, renewed)
    }

    fn pod(app: &str, node: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"namespace": "kube-system", "name": format!("{app}-{node}"), "labels": {"k8s-app": app}},
            "spec": {"nodeName": node},
        })
    }

    fn config(name: &str, data: &Value) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": name}, "data": data})
    }

    fn on(facts: &Facts, nodes: &[&str], assumed: &[Component]) -> Environment {
        let nodes: Vec<Name> = nodes.iter().map(|name| Name::from(*name)).collect();
        environment(facts, nodes.iter(), assumed, ProxyKind::Zonewise)
    }

    #[test]
    fn whether_our_controller_runs_is_what_its_lease_says() {
        let name = "zonewise-controller";
        for (objects, state) in [
            (vec![own(name, "me", FRESH)], RunState::Running),
            (vec![own(name, "me", OLD)], RunState::Stopped),
            (vec![own(name, "", FRESH)], RunState::Stopped),
            (vec![own(name, "me", "noon")], RunState::Unknown),
            (vec![own("other", "me", FRESH)], RunState::NotFound),
            (vec![lease("elsewhere", name, "me", FRESH)], RunState::NotFound),
            (vec![], RunState::NotFound),
        ] {
            let found = on(&with(&objects), &["a"], &[]);
            assert_eq!(found.controller.state, state, "{objects:?}");
            assert_eq!(found.has_controller(), state == RunState::Running);
        }
        let hidden = Sight::Hidden("not allowed".to_owned());
        let found = on(&Facts { own_leases: hidden, ..empty() }, &["a"], &[]).controller;
        let unknown = Finding { state: RunState::Unknown, evidence: "not allowed".into() };
        assert_eq!(found, unknown);
        let assumed = on(&empty(), &["a"], &[Component::Controller]);
        assert_eq!(assumed.controller.state, RunState::Assumed);
        assert!(assumed.has_controller());
    }

    #[test]
    fn whether_the_built_in_controller_runs_is_what_its_lease_says() {
        let (space, name) = ("kube-system", "kube-controller-manager");
        for (objects, state) in [
            (vec![lease(space, name, "node_1", FRESH)], RunState::Running),
            (vec![lease(space, name, "node_1", OLD)], RunState::Stopped),
            (vec![], RunState::NotFound),
        ] {
            assert_eq!(on(&with(&objects), &["a"], &[]).built_in_controller.state, state);
        }
        let hidden = Sight::Hidden("not allowed".to_owned());
        let facts = Facts { manager_lease: hidden, ..empty() };
        assert_eq!(on(&facts, &["a"], &[]).built_in_controller.state, RunState::Unknown);
    }

    #[test]
    fn the_proxy_of_a_node_is_the_one_that_was_seen_on_it() {
        let ours = || own("zonewise-proxy-a", "a", FRESH);
        let replacing = |topology: &str| {
            let data =
                json!({"kube-proxy-replacement": "true", "enable-service-topology": topology});
            config("cilium-config", &data)
        };
        let beside = || config("cilium-config", &json!({"kube-proxy-replacement": "false"}));
        for (objects, kind) in [
            (vec![], None),
            (vec![ours()], Some(ProxyKind::Zonewise)),
            (vec![own("zonewise-proxy-a", "a", OLD)], None),
            (vec![own("zonewise-proxy-b", "b", FRESH)], None),
            (vec![pod("kube-proxy", "a")], Some(ProxyKind::KubeProxy)),
            (vec![pod("kube-proxy", "b")], None),
            (
                vec![pod("kube-proxy", "a"), own("zonewise-proxy-a", "a", OLD)],
                Some(ProxyKind::KubeProxy),
            ),
            (vec![pod("kube-proxy", "a"), ours()], None),
            (vec![pod("cilium", "a")], None),
            (vec![pod("cilium", "a"), replacing("true")], Some(ProxyKind::Cilium)),
            (vec![pod("cilium", "a"), replacing("false")], Some(ProxyKind::CiliumPlain)),
            (vec![pod("cilium", "a"), beside()], None),
            (
                vec![pod("cilium", "a"), beside(), pod("kube-proxy", "a")],
                Some(ProxyKind::KubeProxy),
            ),
            (vec![pod("cilium", "a"), beside(), ours()], Some(ProxyKind::Zonewise)),
            (vec![pod("cilium", "a"), replacing("true"), pod("kube-proxy", "a")], None),
            (vec![pod("cilium", "a"), replacing("true"), ours()], None),
            // Cilium may route Services as well: it is not known what it does.
            (vec![pod("cilium", "a"), ours()], None),
            (vec![pod("cilium", "a"), pod("kube-proxy", "a")], None),
            (vec![pod("coredns", "a")], None),
        ] {
            let found = on(&with(&objects), &["a"], &[]);
            assert_eq!(found.by_node.of("a"), kind, "{objects:?}");
            let name = kind.map_or(UNKNOWN, ProxyKind::name);
            assert_eq!((found.proxies[0].proxy, found.proxies[0].nodes), (name, 1), "{objects:?}");
        }
    }

    #[test]
    fn nodes_are_counted_by_proxy_and_the_mode_is_kube_proxy_s() {
        for (text, mode) in [
            ("kind: KubeProxyConfiguration\nmode: nftables\n", Some("nftables")),
            ("mode: \"ipvs\" # fast\n", Some("ipvs")),
            ("mode: \"\"\n", None),
            ("bindAddress: 0.0.0.0\n", None),
        ] {
            let objects = [
                own("zonewise-proxy-a", "a", FRESH),
                pod("kube-proxy", "b"),
                pod("kube-proxy", "c"),
                config("kube-proxy", &json!({"config.conf": text})),
            ];
            let found = on(&with(&objects), &["a", "b", "c", "d"], &[]);
            let groups: Vec<(&str, Option<&str>, usize)> = found
                .proxies
                .iter()
                .map(|group| (group.proxy, group.mode.as_deref(), group.nodes))
                .collect();
            let expected =
                vec![("zonewise proxy", None, 1), ("kube-proxy", mode, 2), ("unknown", None, 1)];
            assert_eq!(groups, expected);
        }
    }

    #[test]
    fn files_without_a_trace_say_nothing_about_what_runs() {
        let found = on(&Facts::default(), &["a", "b"], &[]);
        assert_eq!(found.controller.state, RunState::Unknown);
        assert_eq!(found.built_in_controller.state, RunState::Unknown);
        assert_eq!(found.by_node.of("a"), None);
        assert_eq!(found.summary(), "zonewise controller unknown; unknown proxy on 2 of 2 nodes");
        let assumed = on(&Facts::default(), &["a", "b"], &[Component::Proxy]);
        assert_eq!(assumed.by_node.of("a"), Some(ProxyKind::Zonewise));
    }

    #[test]
    fn the_leases_of_a_file_are_as_old_as_its_newest_one() {
        let mut facts = Facts::default();
        facts.add(Clue::of("Lease", &own("zonewise-controller", "me", OLD)).unwrap());
        let found = on(&facts, &["a"], &[]);
        assert_eq!(found.controller.state, RunState::Running);
        assert_eq!(found.built_in_controller.state, RunState::Unknown);
        facts.add(Clue::of("Lease", &lease("kube-node-lease", "b", "b", FRESH)).unwrap());
        let found = on(&facts, &["a"], &[]);
        assert_eq!(found.controller.state, RunState::Stopped);
        assert_eq!(found.built_in_controller.state, RunState::NotFound);
    }

    #[test]
    fn one_line_says_everything() {
        let objects = [
            pod("kube-proxy", "a"),
            config("kube-proxy", &json!({"config.conf": "mode: iptables\n"})),
            lease("kube-system", "kube-controller-manager", "m", FRESH),
        ];
        assert_eq!(
            on(&with(&objects), &["a"], &[]).summary(),
            "zonewise controller not found; kube-proxy (iptables) on 1 of 1 nodes; \
             kube-controller-manager running; Kubernetes v1.36.4"
        );
    }
}
