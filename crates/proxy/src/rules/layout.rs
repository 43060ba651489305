//! What every table has, whatever Services there are: sets, base chains and the rules between them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zonewise_common::cidr::Cidr;
use zonewise_nft::{BaseChain, ChainKind, Family, FibAddress, Field, Hook, Rule, Statement};

use super::affinity::{self, AffinityMap};
use super::chains::{Chain, FrontendKind, by_weight, frontend, picks_by_weight, rule};
use super::counting;
use super::sets::Set;
use crate::config::CountBy;

/// What the fixed rules of a table depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The bit of the packet mark that asks for masquerading.
    pub mark: u32,
    /// Masquerade all ClusterIP traffic.
    pub masquerade_all: bool,
    /// How traffic of local Pods is recognised.
    pub local: LocalTraffic,
    /// Whether NodePorts are accepted on all local addresses, by `family_index`; otherwise on those
    /// in the set `nodeport-ips`.
    pub nodeports_everywhere: [bool; 2],
    /// Whether NodePorts are accepted on IPv4 loopback addresses too.
    pub localhost_nodeports: bool,
    /// What connections are counted by.
    pub count: CountBy,
}

/// How traffic of local Pods is recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalTraffic {
    /// Not at all.
    #[default]
    Unknown,
    /// By source range, at most one per family.
    Cidrs(Vec<Cidr>),
    /// By the bridge it comes from.
    Bridge(String),
    /// By the start of the name of the interface it comes from.
    Prefix(String),
}

/// Both families, in the order of `family_index`.
pub const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// The name of a family in metrics and on pages.
pub(crate) fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ip => "IPv4",
        Family::Ip6 => "IPv6",
    }
}

/// The family of an address.
pub(crate) fn family_of(address: &IpAddr) -> Family {
    if address.is_ipv4() { Family::Ip } else { Family::Ip6 }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mark: 1 << 14,
            masquerade_all: false,
            local: LocalTraffic::Unknown,
            nodeports_everywhere: [true; 2],
            localhost_nodeports: false,
            count: CountBy::default(),
        }
    }
}

impl Options {
    /// Matches traffic of local Pods, or with `negate` all other traffic; `None` where Pods are not
    /// recognised.
    pub fn from_pods(&self, family: Family, negate: bool) -> Option<Statement> {
        let interface = |name: &str, prefix| {
            Some(Statement::InputInterface { name: name.into(), prefix, negate })
        };
        match &self.local {
            LocalTraffic::Unknown => None,
            LocalTraffic::Cidrs(cidrs) => {
                let cidr = cidrs.iter().find(|cidr| family_of(&cidr.address()) == family)?;
                let (address, length) = (cidr.address(), cidr.length());
                Some(Statement::Prefix { field: Field::Saddr, address, length, negate })
            }
            LocalTraffic::Bridge(name) => interface(name, false),
            LocalTraffic::Prefix(name) => interface(name, true),
        }
    }

    /// Whether an address is known to be a Pod's: only ranges tell, interfaces do not.
    pub fn is_pod(&self, address: IpAddr) -> bool {
        matches!(&self.local, LocalTraffic::Cidrs(cidrs) if cidrs.iter().any(|cidr| cidr.contains(address)))
    }

    /// The sets of a table.
    pub fn sets(&self) -> impl Iterator<Item = Set> {
        let count = self.count;
        Set::ALL.iter().copied().filter(move |set| set.exists_with(count))
    }

    /// A hash of all fixed parts of the tables. Tables in the kernel with another fingerprint are
    /// replaced, not repaired.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for family in FAMILIES {
            for (base, rules) in base_chains(family, self) {
                (base.name, base.chain.priority).hash(&mut hasher);
                rules.iter().for_each(|rule| rule.text(family).hash(&mut hasher));
            }
            for (name, rules) in fixed_chains(family, self) {
                name.hash(&mut hasher);
                rules.iter().for_each(|rule| rule.text(family).hash(&mut hasher));
            }
            for chain in samples() {
                let rules = chain.rules(family, self);
                rules.iter().for_each(|rule| rule.text(family).hash(&mut hasher));
            }
        }
        self.sets().for_each(|set| format!("{:?}", set.spec()).hash(&mut hasher));
        format!("{:?}", affinity::SPEC).hash(&mut hasher);
        if self.count == CountBy::Services {
            format!("{:?} {:?}", counting::SPEC, counting::rules("zone-")).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// One chain of each kind that comes and goes, for the fingerprint.
fn samples() -> impl Iterator<Item = Chain> {
    use super::chains::PickPolicy::{ClusterIp, External, Local, Plain};
    let kinds = [FrontendKind::Address, FrontendKind::NodePort];
    let map = AffinityMap::of("", "");
    let pick =
        move |policy, at, group| Chain::Pick { policy, at, sticky: Some(map), slots: 2, group };
    let policies = [ClusterIp, External, Plain, Local].into_iter();
    let picks = policies.flat_map(move |policy| {
        kinds.into_iter().flat_map(move |at| [0, 1].map(|group| pick(policy, at, group)))
    });
    picks.chain([Chain::Remember(1, map)])
}

/// A chain that a hook of the kernel enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedBaseChain {
    /// Its name.
    pub name: &'static str,
    /// Its hook and priority.
    pub chain: BaseChain,
}

/// The base chains with their rules. Hooks and priorities are those of kube-proxy
/// (`pkg/proxy/nftables/proxier.go`, `nftablesBaseChains`), because other programs rely on them.
pub(crate) fn base_chains(family: Family, options: &Options) -> Vec<(NamedBaseChain, Vec<Rule>)> {
    let base = |name, kind, hook, priority| NamedBaseChain {
        name,
        chain: BaseChain { kind, hook, priority },
    };
    let filter = |name, hook, priority| base(name, ChainKind::Filter, hook, priority);
    let nat = |name, hook, priority| base(name, ChainKind::Nat, hook, priority);
    let new =
        |chain: &'static str| rule([Statement::CtStateNew, Statement::Jump(chain.into())], "");
    let jump = |chain: &'static str| rule([Statement::Jump(chain.into())], "");
    // The endpoint is known, and the kernel has not confirmed the connection yet. That happens at the end of this hook, so
    // that what this machine sends to itself, which comes out of one hook and into the other, passes once.
    let chosen = || rule([Statement::CtBeginsDnat, Statement::Jump("chosen".into())], "");
    let mut before = Vec::new();
    if options.localhost_nodeports && family == Family::Ip {
        before.push(martians());
    }
    before.push(new("firewall"));
    let mut chains = vec![
        (filter("filter-prerouting", Hook::Prerouting, -110), before),
        (filter("filter-output-early", Hook::Output, -110), vec![new("firewall")]),
        // Endpoints on this machine itself, with its network, are reached by the input hook and not by postrouting.
        (
            filter("filter-input", Hook::Input, 0),
            vec![new("check-nodeports"), new("check-services"), chosen()],
        ),
        (
            filter("filter-forward", Hook::Forward, 0),
            vec![new("check-services"), new(CHECK_CLUSTER_IPS)],
        ),
        (
            filter("filter-output", Hook::Output, 0),
            vec![new("check-services"), new(CHECK_CLUSTER_IPS)],
        ),
        (nat("nat-prerouting", Hook::Prerouting, -100), vec![jump("services")]),
        (nat("nat-output", Hook::Output, -100), vec![jump("services")]),
    ];
    // Before the source is changed.
    chains.push((filter("filter-postrouting", Hook::Postrouting, 90), vec![chosen()]));
    chains.push((nat("nat-postrouting", Hook::Postrouting, 100), masquerading(options)));
    chains
}

/// Drops packets from other machines to a loopback address, which `route_localnet` would let in.
fn martians() -> Rule {
    let loopback = |field, negate| Statement::Prefix {
        field,
        address: Ipv4Addr::new(127, 0, 0, 0).into(),
        length: 8,
        negate,
    };
    rule(
        [
            Statement::CtStateNew,
            loopback(Field::Saddr, true),
            loopback(Field::Daddr, false),
            Statement::Drop,
        ],
        "loopback addresses are for loopback",
    )
}

fn masquerading(options: &Options) -> Vec<Rule> {
    let mark = options.mark;
    let pair = vec![Field::Saddr, Field::Daddr];
    let itself = Statement::InSet { fields: pair, set: Set::Hairpins.name().into(), negate: false };
    vec![
        rule(
            [Statement::HasMark(mark), Statement::ClearMark(mark), Statement::Masquerade],
            "marked on its way to an endpoint",
        ),
        rule([Statement::CtStatusDnat, itself, Statement::Masquerade], "an endpoint calls itself"),
    ]
}

/// The chains that are always there, with their rules.
pub(crate) fn fixed_chains(family: Family, options: &Options) -> Vec<(String, Vec<Rule>)> {
    let mut chains: Vec<(String, Vec<Rule>)> = vec![
        ("services".into(), services(family, options)),
        ("firewall".into(), firewall()),
        ("check-sources".into(), check_sources()),
        (
            "check-services".into(),
            vec![rule([to(FrontendKind::Address, Set::NoEndpoints)], "no endpoints")],
        ),
        ("check-nodeports".into(), check_nodeports(family, options)),
        ("chosen".into(), chosen(options)),
    ];
    if options.count == CountBy::Services {
        chains.push((COUNT.into(), count()));
    }
    for at in [FrontendKind::Address, FrontendKind::NodePort] {
        for (name, rules) in [by_weight(at), picks_by_weight(at, family, options)] {
            chains.push((name.into(), rules));
        }
    }
    let fixed = [
        Chain::Reject,
        Chain::ExternalLocal(FrontendKind::Address),
        Chain::ExternalLocal(FrontendKind::NodePort),
    ];
    chains.extend(fixed.map(|chain| (chain.to_string(), chain.rules(family, options))));
    chains
}

fn to(at: FrontendKind, map: Set) -> Statement {
    Statement::Vmap { fields: frontend(at), map: map.name().into() }
}

fn is_in(field: Field, set: Set) -> Statement {
    Statement::InSet { fields: vec![field], set: set.name().into(), negate: false }
}

/// The start of rules about NodePorts: matches addresses that accept them.
fn nodeport_addresses(family: Family, options: &Options) -> Vec<Statement> {
    let everywhere = options.nodeports_everywhere[family_index(family)];
    if !everywhere {
        return vec![is_in(Field::Daddr, Set::NodePortIps)];
    }
    vec![Statement::FibLocal { address: FibAddress::Destination }, loopback(family, true)]
}

fn loopback(family: Family, negate: bool) -> Statement {
    let (address, length): (IpAddr, u8) = match family {
        Family::Ip => (Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        Family::Ip6 => (Ipv6Addr::LOCALHOST.into(), 128),
    };
    Statement::Prefix { field: Field::Daddr, address, length, negate }
}

/// The index of a family in arrays of two.
pub(crate) fn family_index(family: Family) -> usize {
    usize::from(family == Family::Ip6)
}

/// Groups are drawn first, because every frontend is in `services` or `nodeports` as well: a packet that is on
/// its way while weights come or go finds its chain there.
fn services(family: Family, options: &Options) -> Vec<Rule> {
    let address = FrontendKind::Address;
    let addresses = "ClusterIPs, external and load balancer addresses";
    let mut rules = draw(&[], address, family, options);
    rules.push(rule([to(address, Set::Services)], addresses));
    rules.extend(nodeports(&nodeport_addresses(family, options), "NodePorts", family, options));
    if options.localhost_nodeports && family == Family::Ip {
        let on_loopback = [loopback(family, false)];
        rules.extend(nodeports(&on_loopback, "NodePorts on loopback", family, options));
    }
    rules
}

fn nodeports(
    on: &[Statement],
    comment: &'static str,
    family: Family,
    options: &Options,
) -> Vec<Rule> {
    let at = FrontendKind::NodePort;
    let mut rules = draw(on, at, family, options);
    let statements = on.iter().cloned().chain([to(at, Set::NodePorts)]).collect();
    rules.push(Rule { statements, comment: comment.into() });
    rules
}

/// The rules that lead frontends with weights to the chains that draw a group, on these addresses.
fn draw(on: &[Statement], at: FrontendKind, family: Family, options: &Options) -> Vec<Rule> {
    let (all, picks) = match at {
        FrontendKind::Address => (Set::Weighted, Set::WeightedPicks),
        FrontendKind::NodePort => (Set::NodePortWeighted, Set::NodePortWeightedPicks),
    };
    let via = |set: Set, chain: &'static str| {
        let known =
            Statement::InSet { fields: frontend(at), set: set.name().into(), negate: false };
        let statements = on.iter().cloned().chain([known, Statement::Jump(chain.into())]).collect();
        Rule { statements, comment: "endpoints with weights".into() }
    };
    vec![via(all, by_weight(at).0), via(picks, picks_by_weight(at, family, options).0)]
}

fn firewall() -> Vec<Rule> {
    let guarded = Statement::InSet {
        fields: frontend(FrontendKind::Address),
        set: Set::Guarded.name().into(),
        negate: false,
    };
    vec![rule([guarded, Statement::Jump("check-sources".into())], "not for everybody")]
}

fn check_sources() -> Vec<Rule> {
    let mut fields = frontend(FrontendKind::Address);
    fields.push(Field::Saddr);
    let allowed = Statement::InSet { fields, set: Set::Sources.name().into(), negate: false };
    vec![rule([allowed, Statement::Return], "may use it"), rule([Statement::Drop], "may not")]
}

fn check_nodeports(family: Family, options: &Options) -> Vec<Rule> {
    let mut statements = nodeport_addresses(family, options);
    // Packets in the input hook have a local destination already.
    statements.retain(|statement| !matches!(statement, Statement::FibLocal { .. }));
    statements.push(to(FrontendKind::NodePort, Set::NoEndpointsNodePorts));
    vec![Rule { statements, comment: "no endpoints".into() }]
}

/// The chain that rejects or drops packets to ClusterIPs which no Service port has.
pub(crate) const CHECK_CLUSTER_IPS: &str = "check-cluster-ips";

/// The rules of [`CHECK_CLUSTER_IPS`], which follow the ServiceCIDRs.
pub(crate) fn check_cluster_ips(family: Family, service_cidrs: &[Cidr]) -> Vec<Rule> {
    let unknown_port = [is_in(Field::Daddr, Set::ClusterIps), Statement::Reject];
    let unused = |range: &Cidr| {
        let (address, length) = (range.address(), range.length());
        let inside = Statement::Prefix { field: Field::Daddr, address, length, negate: false };
        rule([inside, Statement::Drop], "a ClusterIP that no Service has")
    };
    let mut rules = vec![rule(unknown_port, "a ClusterIP, but no port of it")];
    let of_family = |range: &&Cidr| family_of(&range.address()) == family;
    rules.extend(service_cidrs.iter().filter(of_family).map(unused));
    rules
}

/// The chain that leads to the chain of the endpoint's zone. One of its own, because elements of verdict maps do not
/// come back to the chain that looks them up.
const COUNT: &str = "count";

fn count() -> Vec<Rule> {
    let map = Set::EndpointZoneChains.name().into();
    vec![rule([Statement::Vmap { fields: vec![Field::Daddr], map }], "by zone and Service")]
}

/// The chain for new connections whose endpoint has just been chosen.
fn chosen(options: &Options) -> Vec<Rule> {
    let original = |at| match at {
        FrontendKind::Address => vec![Field::OriginalDaddr, Field::Protocol, Field::OriginalDport],
        FrontendKind::NodePort => vec![Field::Protocol, Field::OriginalDport],
    };
    let remembered = |at, map: Set| {
        rule([Statement::Vmap { fields: original(at), map: map.name().into() }], "session affinity")
    };
    let mut rules = Vec::new();
    match options.count {
        CountBy::None => {}
        CountBy::Zones => {
            let map = Set::EndpointZones.name().into();
            rules.push(rule([Statement::CountByMap { fields: vec![Field::Daddr], map }], "counts"));
        }
        CountBy::Services => rules.push(rule([Statement::Jump(COUNT.into())], "counts")),
    }
    rules.push(remembered(FrontendKind::Address, Set::Sticky));
    rules.push(remembered(FrontendKind::NodePort, Set::StickyNodePorts));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_follows_what_is_fixed() {
        let usual = Options::default();
        assert_eq!(usual.fingerprint(), Options::default().fingerprint());
        let others = [
            Options { mark: 1 << 15, ..Options::default() },
            Options { masquerade_all: true, ..Options::default() },
            Options { localhost_nodeports: true, ..Options::default() },
            Options { nodeports_everywhere: [false, true], ..Options::default() },
            Options { count: CountBy::None, ..Options::default() },
            Options { local: LocalTraffic::Bridge("cni0".into()), ..Options::default() },
        ];
        for other in others {
            assert_ne!(other.fingerprint(), usual.fingerprint(), "{other:?}");
        }
    }
}
