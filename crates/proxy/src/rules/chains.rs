//! The chains that elements lead to. Those with a number come and go with what is in use: one per
//! policy, number of slots and group; where there is session affinity, for each Service.

use std::fmt;
use std::time::Duration;

use zonewise_nft::{Family, FibAddress, Field, Rule, Statement};
use zonewise_routing::{MAX_GROUP_TARGETS, MAX_GROUPS, RESOLUTIONS};

use super::affinity::AffinityMap;
use super::layout::Options;
use super::sets::Set;

/// How traffic to a frontend is treated before an endpoint is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PickPolicy {
    /// A ClusterIP: traffic from outside the cluster is masqueraded.
    ClusterIp,
    /// An external address, any endpoint: all traffic is masqueraded.
    External,
    /// An external address with external policy Local, from this node or its Pods: any endpoint,
    /// and nothing is masqueraded here (the node's own traffic is marked already).
    Plain,
    /// An external address with external policy Local, from elsewhere: endpoints of this node, and
    /// the client's address stays.
    Local,
}

/// How packets find a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// By an address of the Service.
    Address,
    /// By a port of the node.
    NodePort,
}

/// A chain that an element may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Picks one of `slots` endpoints.
    Pick {
        /// What happens before that.
        policy: PickPolicy,
        /// Decides which map holds the slots.
        at: FrontendKind,
        /// Where clients stay with their endpoint: the map that remembers it.
        sticky: Option<AffinityMap>,
        /// How many slots there are.
        slots: u32,
        /// Which group of endpoints they belong to. Without weights there is one, number 0.
        group: u16,
    },
    /// External policy Local: leads traffic of this node and its Pods to any endpoint, other traffic
    /// to endpoints of this node.
    ExternalLocal(FrontendKind),
    /// Remembers the endpoint of a client for so many seconds, in this map.
    Remember(u32, AffinityMap),
    /// Rejects the packet.
    Reject,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = |at: &FrontendKind| match at {
            FrontendKind::Address => "",
            FrontendKind::NodePort => "nodeport-",
        };
        match self {
            Self::Pick { policy, at, sticky, slots, group } => {
                let prefix =
                    format!("{}{}", if sticky.is_some() { "sticky-" } else { "" }, prefix(at));
                let policy = match policy {
                    PickPolicy::ClusterIp => "clusterip",
                    PickPolicy::External => "external",
                    PickPolicy::Plain => "plain",
                    PickPolicy::Local => "local",
                };
                write!(f, "{prefix}{policy}-{slots}")?;
                if *group > 0 {
                    write!(f, "-group-{group}")?;
                }
                sticky.map_or(Ok(()), |map| write!(f, "-{map}"))
            }
            Self::ExternalLocal(at) => write!(f, "{}external-local", prefix(at)),
            Self::Remember(seconds, map) => write!(f, "remember-{seconds}-{map}"),
            // `reject` is a keyword of nft and cannot name a chain.
            Self::Reject => f.write_str("refuse"),
        }
    }
}

impl Chain {
    /// Whether every table has it, whatever is in use.
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::ExternalLocal(_) | Self::Reject)
    }

    /// The map of clients that its rules use.
    pub(crate) fn affinity(self) -> Option<AffinityMap> {
        match self {
            Self::Pick { sticky, .. } => sticky,
            Self::Remember(_, map) => Some(map),
            Self::ExternalLocal(_) | Self::Reject => None,
        }
    }

    /// Its rules.
    pub fn rules(self, family: Family, options: &Options) -> Vec<Rule> {
        match self {
            Self::Pick { policy, at, sticky, slots, group } => {
                let mut rules = marks(policy, family, options);
                if let Some(map) = sticky {
                    rules.push(rule(
                        [Statement::Dnat { fields: client(), map: map.to_string().into() }],
                        "stays with its endpoint",
                    ));
                }
                let mut fields = frontend(at);
                fields.push(match group {
                    0 => Field::Slot(slots),
                    _ => Field::SlotFrom { count: slots, first: first_slot(group) },
                });
                let map = slot_map(policy, at).name().into();
                rules.push(rule([Statement::Dnat { fields, map }], "any of the slots"));
                rules
            }
            Self::ExternalLocal(at) => external_local(at, family, options),
            Self::Remember(seconds, map) => vec![rule(
                [Statement::Update {
                    map: map.to_string().into(),
                    key: vec![
                        Field::OriginalSaddr,
                        Field::OriginalDaddr,
                        Field::Protocol,
                        Field::OriginalDport,
                    ],
                    timeout: Duration::from_secs(u64::from(seconds)),
                    data: vec![Field::Daddr, Field::Dport],
                }],
                "the endpoint of this client",
            )],
            Self::Reject => vec![rule([Statement::Reject], "")],
        }
    }
}

/// The first slot of a group: groups start at millions, so that a slot shows its group, and so that Services
/// with groups of the same size share a chain.
pub(crate) const fn first_slot(group: u16) -> u32 {
    const _: () = assert!(MAX_GROUP_TARGETS * (MAX_GROUPS + 1) < u32::MAX as usize);
    group as u32 * MAX_GROUP_TARGETS as u32
}

/// A rule with a comment that `nft list` shows.
pub(crate) fn rule<const N: usize>(statements: [Statement; N], comment: &str) -> Rule {
    Rule { statements: statements.into(), comment: comment.into() }
}

/// The fields that identify a frontend.
pub(crate) fn frontend(at: FrontendKind) -> Vec<Field> {
    match at {
        FrontendKind::Address => vec![Field::Daddr, Field::Protocol, Field::Dport],
        FrontendKind::NodePort => vec![Field::Protocol, Field::Dport],
    }
}

fn client() -> Vec<Field> {
    vec![Field::Saddr, Field::Daddr, Field::Protocol, Field::Dport]
}

/// The chains that draw a group of endpoints by weight, and come back if that is the largest one.
pub(crate) fn by_weight(at: FrontendKind) -> (&'static str, Vec<Rule>) {
    let name = match at {
        FrontendKind::Address => "by-weight",
        FrontendKind::NodePort => "nodeport-by-weight",
    };
    // Numbers of different resolutions do not overlap, and a frontend has those of one.
    let draw = |resolution| {
        let mut fields = frontend(at);
        fields.push(Field::SlotFrom { count: resolution, first: resolution });
        let map = group_map(at).name().into();
        rule([Statement::Vmap { fields, map }], "a group by its weight")
    };
    (name, RESOLUTIONS.map(draw).into())
}

/// The chains that do so for traffic of this node and its Pods to a frontend with external policy Local.
pub(crate) fn picks_by_weight(
    at: FrontendKind,
    family: Family,
    options: &Options,
) -> (&'static str, Vec<Rule>) {
    let name = match at {
        FrontendKind::Address => "picks-by-weight",
        FrontendKind::NodePort => "nodeport-picks-by-weight",
    };
    let draw = || Statement::Jump(by_weight(at).0.into());
    let from_node = || Statement::FibLocal { address: FibAddress::Source };
    let from_pod = options.from_pods(family, false);
    let mut rules: Vec<Rule> =
        from_pod.map(|from_pod| rule([from_pod, draw()], "pods")).into_iter().collect();
    rules.push(rule([from_node(), Statement::SetMark(options.mark)], "masquerade the node's own"));
    rules.push(rule([from_node(), draw()], "the node"));
    (name, rules)
}

/// The map that holds the slots.
pub(crate) fn slot_map(policy: PickPolicy, at: FrontendKind) -> Set {
    match (policy, at) {
        (PickPolicy::Local, FrontendKind::Address) => Set::LocalSlots,
        (PickPolicy::Local, FrontendKind::NodePort) => Set::NodePortLocalSlots,
        (_, FrontendKind::Address) => Set::Slots,
        (_, FrontendKind::NodePort) => Set::NodePortSlots,
    }
}

/// The map that holds the numbers of groups.
pub(crate) fn group_map(at: FrontendKind) -> Set {
    match at {
        FrontendKind::Address => Set::Groups,
        FrontendKind::NodePort => Set::NodePortGroups,
    }
}

/// The sets of frontends where a group is drawn first: addresses, and NodePorts.
pub(crate) fn weighted_sets(policy: PickPolicy) -> [Set; 2] {
    match policy {
        PickPolicy::Plain => [Set::WeightedPicks, Set::NodePortWeightedPicks],
        PickPolicy::ClusterIp | PickPolicy::External | PickPolicy::Local => {
            [Set::Weighted, Set::NodePortWeighted]
        }
    }
}

fn marks(policy: PickPolicy, family: Family, options: &Options) -> Vec<Rule> {
    let mark = Statement::SetMark(options.mark);
    match policy {
        PickPolicy::ClusterIp if options.masquerade_all => vec![rule([mark], "masquerade all")],
        PickPolicy::ClusterIp => {
            let outside = options.from_pods(family, true);
            let masquerade = |outside| rule([outside, mark], "masquerade what is not of a pod");
            outside.map(masquerade).into_iter().collect()
        }
        PickPolicy::External => vec![rule([mark], "masquerade")],
        PickPolicy::Plain | PickPolicy::Local => Vec::new(),
    }
}

fn external_local(at: FrontendKind, family: Family, options: &Options) -> Vec<Rule> {
    let (all, local) = match at {
        FrontendKind::Address => (Set::ClusterPicks, Set::LocalPicks),
        FrontendKind::NodePort => (Set::NodePortClusterPicks, Set::NodePortLocalPicks),
    };
    let to = |map: Set| Statement::Vmap { fields: frontend(at), map: map.name().into() };
    let from_node = || Statement::FibLocal { address: FibAddress::Source };
    let from_pod = options.from_pods(family, false);
    let mut rules: Vec<Rule> = from_pod
        .map(|from_pod| rule([from_pod, to(all)], "pods reach every endpoint"))
        .into_iter()
        .collect();
    rules.push(rule([from_node(), Statement::SetMark(options.mark)], "masquerade the node's own"));
    rules.push(rule([from_node(), to(all)], "the node reaches every endpoint"));
    rules.push(rule([to(local)], "others reach endpoints of this node"));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_chain_does() {
        let map = AffinityMap::of("shop", "front");
        let pick =
            |policy, at, sticky| Chain::Pick { policy, at, sticky, slots: 3, group: 0 }.to_string();
        assert_eq!(pick(PickPolicy::ClusterIp, FrontendKind::Address, None), "clusterip-3");
        assert_eq!(
            pick(PickPolicy::Local, FrontendKind::NodePort, Some(map)),
            format!("sticky-nodeport-local-3-{map}")
        );
        let (policy, at) = (PickPolicy::ClusterIp, FrontendKind::Address);
        let group = Chain::Pick { policy, at, sticky: None, slots: 3, group: 2 };
        assert_eq!(group.to_string(), "clusterip-3-group-2");
        let rules = group.rules(Family::Ip, &Options::default());
        let drawn = "ip daddr . meta l4proto . th dport . numgen random mod 3 offset 2000000";
        assert!(rules.last().unwrap().text(Family::Ip).contains(drawn));
        assert_eq!(
            Chain::ExternalLocal(FrontendKind::NodePort).to_string(),
            "nodeport-external-local"
        );
        let remember = Chain::Remember(10_800, map);
        assert_eq!(remember.to_string(), format!("remember-10800-{map}"));
    }
}
