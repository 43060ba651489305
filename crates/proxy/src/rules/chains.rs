//! The chains that come and go with what is in use: one per policy and slot count, one per affinity
//! timeout.

use std::fmt;
use std::time::Duration;

use zonewise_nft::{Family, Field, Rule, Statement};

use super::layout::Options;
use super::sets::Set;

/// How traffic to a frontend is treated before an endpoint is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A ClusterIP: what comes from outside the cluster is masqueraded.
    ClusterIp,
    /// From outside, any endpoint: all of it is masqueraded.
    External,
    /// From here although it is an outside address: nothing is masqueraded (or is marked already).
    Plain,
    /// From outside, endpoints of this node: the client's address stays.
    Local,
}

/// Where a frontend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// An address of the Service.
    Address,
    /// A port of the node.
    NodePort,
}

/// A chain that an element may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Picks one of `slots` endpoints.
    Pick {
        /// Before that.
        policy: Policy,
        /// Which map.
        at: At,
        /// Clients stay with an endpoint.
        sticky: bool,
        /// How many slots.
        slots: u32,
    },
    /// External policy Local: sorts traffic from here from traffic from outside.
    ExternalLocal(At),
    /// Remembers the endpoint of a client for so many seconds.
    Remember(u32),
    /// Says no.
    Reject,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: &At| if *at == At::NodePort { "nodeport-" } else { "" };
        match self {
            Self::Pick { policy, at: place, sticky, slots } => {
                let sticky = if *sticky { "sticky-" } else { "" };
                let policy = match policy {
                    Policy::ClusterIp => "clusterip",
                    Policy::External => "external",
                    Policy::Plain => "plain",
                    Policy::Local => "local",
                };
                write!(f, "{sticky}{}{policy}-{slots}", at(place))
            }
            Self::ExternalLocal(place) => write!(f, "{}external-local", at(place)),
            Self::Remember(seconds) => write!(f, "remember-{seconds}"),
            // `reject` itself is a word of the rule language.
            Self::Reject => f.write_str("refuse"),
        }
    }
}

impl Chain {
    /// Whether it is there whatever is in use.
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::ExternalLocal(_) | Self::Reject)
    }

    /// Its rules.
    pub fn rules(self, family: Family, options: &Options) -> Vec<Rule> {
        match self {
            Self::Pick { policy, at, sticky, slots } => {
                let mut rules = marks(policy, family, options);
                if sticky {
                    rules.push(rule(
                        [Statement::Dnat { fields: client(), map: Set::Affinity.name().into() }],
                        "stays with its endpoint",
                    ));
                }
                let mut fields = frontend(at);
                fields.push(Field::Slot(slots));
                let map = slot_map(policy, at).name().into();
                rules.push(rule([Statement::Dnat { fields, map }], "any of the slots"));
                rules
            }
            Self::ExternalLocal(at) => external_local(at, family, options),
            Self::Remember(seconds) => vec![rule(
                [Statement::Update {
                    map: Set::Affinity.name().into(),
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

/// A rule with a comment for people.
pub fn rule<const N: usize>(statements: [Statement; N], comment: &str) -> Rule {
    Rule { statements: statements.into(), comment: comment.into() }
}

/// The fields that identify a frontend.
pub fn frontend(at: At) -> Vec<Field> {
    match at {
        At::Address => vec![Field::Daddr, Field::Protocol, Field::Dport],
        At::NodePort => vec![Field::Protocol, Field::Dport],
    }
}

fn client() -> Vec<Field> {
    vec![Field::Saddr, Field::Daddr, Field::Protocol, Field::Dport]
}

/// The map that holds the slots.
pub fn slot_map(policy: Policy, at: At) -> Set {
    match (policy, at) {
        (Policy::Local, At::Address) => Set::LocalSlots,
        (Policy::Local, At::NodePort) => Set::NodePortLocalSlots,
        (_, At::Address) => Set::Slots,
        (_, At::NodePort) => Set::NodePortSlots,
    }
}

fn marks(policy: Policy, family: Family, options: &Options) -> Vec<Rule> {
    let mark = Statement::SetMark(options.mark);
    match policy {
        Policy::ClusterIp if options.masquerade_all => vec![rule([mark], "masquerade all")],
        Policy::ClusterIp => {
            let outside = options.from_here(family, true);
            let masquerade = |outside| rule([outside, mark], "masquerade what is not of a pod");
            outside.map(masquerade).into_iter().collect()
        }
        Policy::External => vec![rule([mark], "masquerade")],
        Policy::Plain | Policy::Local => Vec::new(),
    }
}

fn external_local(at: At, family: Family, options: &Options) -> Vec<Rule> {
    let (all, local) = match at {
        At::Address => (Set::ClusterPicks, Set::LocalPicks),
        At::NodePort => (Set::NodePortClusterPicks, Set::NodePortLocalPicks),
    };
    let to = |map: Set| Statement::Vmap { fields: frontend(at), map: map.name().into() };
    let from_node = || Statement::FibLocal { field: Field::Saddr };
    let from_pod = options.from_here(family, false);
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
        let pick = |policy, at, sticky| Chain::Pick { policy, at, sticky, slots: 3 }.to_string();
        assert_eq!(pick(Policy::ClusterIp, At::Address, false), "clusterip-3");
        assert_eq!(pick(Policy::Local, At::NodePort, true), "sticky-nodeport-local-3");
        assert_eq!(Chain::ExternalLocal(At::NodePort).to_string(), "nodeport-external-local");
        assert_eq!(Chain::Remember(10_800).to_string(), "remember-10800");
    }
}
