//! What the proxy needs of the kernel, found out by trying.
//!
//! Version numbers do not tell: distributions leave features out and bring others back to older kernels. Each
//! feature is part of a table that the kernel is asked to check, as `nft --check` does; nothing is changed.
//!
//! A check takes the kernel 10 to 20 ms, because undoing it waits until no CPU uses the rules. So what every supported
//! kernel has is tried at once, and one by one only if that fails.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use nix::errno::Errno;
pub use zonewise_nft::Network;
use zonewise_nft::conntrack::{Flow, Tuple};
use zonewise_nft::{
    BaseChain, Batch, ChainKind, CommitError, Family, FibAddress, Field, Hook, Rule, Socket,
    Statement, TableFlags,
};

use crate::rules::PROBE_TABLE;
use crate::rules::affinity;
use crate::rules::sets::Set;

/// A feature of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Whether no Service works without it.
    pub required: bool,
    /// What is different without it.
    pub without: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// A feature, and whether the kernel has it.
#[derive(Debug)]
pub struct ProbedFeature {
    /// The feature.
    pub feature: Feature,
    /// The kernel's error, if it does not.
    pub error: Option<String>,
}

impl fmt::Display for ProbedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Feature { name, without, remedy, .. } = self.feature;
        match &self.error {
            None => write!(f, "the kernel has {name}"),
            Some(error) => {
                write!(f, "the kernel does not have {name} ({error}): {without}; {remedy}")
            }
        }
    }
}

/// How a feature is tried.
enum Trial {
    /// The kernel checks a table with this in it.
    Table(fn(&mut Batch)),
    /// The kernel checks a table with these flags.
    Flags(TableFlags),
    /// The kernel is asked to delete a flow that does not exist.
    Flow,
}

const NOTHING_WORKS: &str = "no Service works";

const FEATURES: [(Feature, Trial); 9] = [
    (
        required(
            "nftables with maps and concatenated keys",
            "use Linux 5.13 or later, with nf_tables",
        ),
        Trial::Table(|batch| {
            batch.add_set(Family::Ip, Set::Services.spec());
            batch.add_set(Family::Ip, Set::Sources.spec());
        }),
    ),
    (
        required("random numbers in rules (numgen)", "load the module nft_numgen"),
        Trial::Table(|batch| {
            batch.add_set(Family::Ip, Set::Slots.spec());
            let fields = vec![Field::Daddr, Field::Protocol, Field::Dport, Field::Slot(2)];
            let map = Set::Slots.name().into();
            hooked(batch, ChainKind::Nat, Hook::Prerouting, [Statement::Dnat { fields, map }]);
        }),
    ),
    (
        required("masquerading", "load the modules nft_chain_nat, nft_nat and nft_masq"),
        Trial::Table(|batch| {
            hooked(batch, ChainKind::Nat, Hook::Postrouting, [Statement::Masquerade]);
        }),
    ),
    (
        required("connection tracking in rules", "load the modules nf_conntrack and nft_ct"),
        Trial::Table(|batch| {
            let rule = [Statement::CtStateNew, Statement::Drop];
            hooked(batch, ChainKind::Filter, Hook::Forward, rule);
        }),
    ),
    (
        required("rejecting packets", "load the modules nft_reject_ipv4 and nft_reject_ipv6"),
        Trial::Table(|batch| {
            hooked(batch, ChainKind::Filter, Hook::Input, [Statement::Reject]);
        }),
    ),
    (
        required(
            "lookups of local addresses (fib)",
            "load the modules nft_fib_ipv4 and nft_fib_ipv6",
        ),
        Trial::Table(|batch| {
            let local = Statement::FibLocal { address: FibAddress::Destination };
            hooked(batch, ChainKind::Filter, Hook::Prerouting, [local, Statement::Accept]);
        }),
    ),
    (
        required("maps that rules fill (session affinity)", "use Linux 5.13 or later"),
        Trial::Table(|batch| batch.add_set(Family::Ip, &affinity::SPEC)),
    ),
    (
        Feature {
            name: "tables with an owner that outlive it",
            required: false,
            without: "other programs can change the tables; the proxy looks twice a second and repairs them",
            remedy: "Linux 6.9 and later have them",
        },
        Trial::Flags(TableFlags { owner: true, persist: true }),
    ),
    (
        Feature {
            name: "connection tracking over netlink",
            required: false,
            without: "UDP clients stay with an endpoint that is gone until their flow times out",
            remedy: "load the module nf_conntrack_netlink",
        },
        Trial::Flow,
    ),
];

const fn required(name: &'static str, remedy: &'static str) -> Feature {
    Feature { name, required: true, without: NOTHING_WORKS, remedy }
}

/// Adds a base chain with this rule.
fn hooked<const N: usize>(
    batch: &mut Batch,
    kind: ChainKind,
    hook: Hook,
    statements: [Statement; N],
) {
    let base = BaseChain { kind, hook, priority: 0 };
    // The trials differ in their hooks or in their kinds.
    let name = format!("probe-{kind:?}-{hook:?}");
    batch.add_chain(Family::Ip, &name, Some(&base), "");
    batch.add_rule(Family::Ip, &name, &Rule::new(statements));
}

/// Tries all features.
///
/// # Errors
/// If netlink does not work at all, or this process may not change tables.
pub fn probe(network: &Network) -> io::Result<Vec<ProbedFeature>> {
    let mut socket = network.socket()?;
    let mut found = Vec::new();
    let tables = FEATURES.iter().filter_map(|(_, trial)| match trial {
        Trial::Table(add) => Some(*add),
        Trial::Flags(_) | Trial::Flow => None,
    });
    let has_tables = check(&mut socket, TableFlags::default(), tables).is_ok();
    for (feature, trial) in FEATURES {
        let result = match trial {
            Trial::Table(_) if has_tables => Ok(()),
            Trial::Table(add) => check(&mut socket, TableFlags::default(), [add]),
            Trial::Flags(flags) => check(&mut socket, flags, []),
            Trial::Flow => network.conntrack()?.delete(&no_flow()),
        };
        let error = match result {
            Ok(()) => None,
            Err(error) if is_missing(&error) => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        found.push(ProbedFeature { feature, error });
    }
    Ok(found)
}

/// Has the kernel check a table with all of this in it.
fn check(
    socket: &mut Socket,
    flags: TableFlags,
    all: impl IntoIterator<Item = fn(&mut Batch)>,
) -> io::Result<()> {
    let mut batch = Batch::new(PROBE_TABLE);
    batch.add_table(Family::Ip, flags, "");
    all.into_iter().for_each(|add| add(&mut batch));
    socket.check(&batch).map_err(|error: CommitError| {
        let errno = error.errno();
        error
            .source
            .or_else(|| errno.map(io::Error::from_raw_os_error))
            .unwrap_or_else(|| io::Error::other("the kernel does not say why"))
    })
}

/// Whether the kernel says that it does not know something.
fn is_missing(error: &io::Error) -> bool {
    use Errno::{EAFNOSUPPORT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT};
    let known = error.raw_os_error().map(Errno::from_raw);
    known.is_some_and(|errno| {
        [ENOENT, EOPNOTSUPP, EINVAL, EPROTONOSUPPORT, EAFNOSUPPORT].contains(&errno)
    })
}

/// A flow that cannot exist: no machine has the address 0.0.0.0.
fn no_flow() -> Flow {
    let unused = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let tuple = Tuple { src: unused, dst: unused, sport: 1, dport: 1 };
    Flow {
        protocol: 17,
        original: tuple,
        reply: tuple,
        destination_translated: false,
        id: None,
        zone: 0,
    }
}

/// Logs what the kernel does not have.
pub(crate) fn report(network: &Network) {
    match probe(network) {
        Ok(all) => all.iter().filter(|found| found.error.is_some()).for_each(ProbedFeature::log),
        Err(error) => tracing::warn!(%error, "cannot find out what the kernel has"),
    }
}

impl ProbedFeature {
    fn log(&self) {
        if self.feature.required {
            tracing::error!("{self}");
        } else {
            tracing::warn!("{self}");
        }
    }
}
