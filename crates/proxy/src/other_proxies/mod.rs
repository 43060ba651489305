//! Another kube-proxy on this node: finding its rules, and removing them.
//!
//! Two proxies translate the addresses of the same Services, and the rules that a packet meets first
//! decide: endpoints that only the other proxy knows are used, and our policies have no effect.
//!
//! ```text
//!   zonewise proxy               find ──► a warning for each ──► run beside it
//!
//!   zonewise proxy --take-over   find ──► our first sync ──► remove ──► run
//!                                         │                  │
//!        theirs translate ────────────────┼──────────────────┤
//!        ours translate                   └──────────────────┴────────────────►   no gap
//!
//!   zonewise proxy --cleanup     find ──► remove ──► remove_ours ──► exit
//! ```
//!
//! kube-proxy has to be stopped before: while it runs it writes its rules again. Connections that
//! exist keep their endpoint, because the kernel translates them by itself.
//!
//! | Mode of kube-proxy | Found by | Removed by us |
//! |---|---|---|
//! | nftables mode | tables `ip kube-proxy`, `ip6 kube-proxy` | yes: the table |
//! | iptables mode over nftables | chains `KUBE-…` in tables nat, filter, mangle | yes: those chains, and rules that lead to them |
//! | iptables mode, legacy | a legacy table nat, whose rules cannot be read here | no |
//! | IPVS mode | interface `kube-ipvs0` | no |
//!
//! What is not kube-proxy's stays: rules of other programs in the same tables, and the kubelet's chains
//! `KUBE-FIREWALL`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`. If rules of other programs send
//! packets to `KUBE-MARK-MASQ` to have them masqueraded, that chain and `KUBE-POSTROUTING` stay too:
//! these two do not translate Services.
//!
//! kube-proxy in iptables mode also accepts the packets that it forwards. Where the policy of `FORWARD`
//! is to drop, another program has to accept them from then on, as with kube-proxy's nftables mode.
//!
//! [`find`] reads names of tables and chains, [`remove`] reads the rules of the tables concerned, and
//! elements are never read. Everything happens in the network namespace of the calling thread.

mod remove;

use std::fmt;
use std::io;

use zonewise_nft::{Family, Socket};

pub use remove::{Removal, remove, remove_ours};

/// The table of kube-proxy's nftables mode (`kubeProxyTable` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/proxy/nftables/proxier.go>).
const TABLE: &str = "kube-proxy";
/// Where its iptables mode has chains.
const TABLES: [&str; 3] = ["nat", "filter", "mangle"];
/// The dummy interface of its IPVS mode.
const INTERFACE: &str = "kube-ipvs0";
/// Chains of its iptables mode.
const CHAINS: [&str; 8] = [
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-MARK-MASQ",
    "KUBE-NODEPORTS",
    "KUBE-POSTROUTING",
    "KUBE-PROXY-CANARY",
    "KUBE-PROXY-FIREWALL",
    "KUBE-SERVICES",
];
/// How the names of its chains for single Services and endpoints begin.
const PREFIXES: [&str; 5] = ["KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-SVC-", "KUBE-SVL-"];
/// Chains of its iptables mode that other programs use too. They do not translate Services.
const MASQUERADE_CHAINS: [&str; 2] = ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"];
/// How often to start again when another program changes the rules meanwhile.
const TRIES: usize = 32;

/// The rules of kube-proxy in one of its modes. As text: what was found, what it means, what to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OtherProxy {
    /// kube-proxy in nftables mode.
    Nftables {
        /// The family of its table.
        family: Family,
    },
    /// kube-proxy in iptables mode, by way of nftables.
    Iptables {
        /// The family of the table.
        family: Family,
        /// The table, `nat` for one.
        table: &'static str,
        /// How many of its chains there are.
        chains: usize,
    },
    /// Perhaps kube-proxy in iptables mode: a legacy table nat, whose rules cannot be read here.
    Legacy {
        /// The family of the table.
        family: Family,
    },
    /// kube-proxy in IPVS mode.
    Ipvs,
}

impl OtherProxy {
    /// Whether [`remove`] can remove it. The others need `kube-proxy --cleanup`.
    #[must_use]
    pub const fn is_removable(&self) -> bool {
        matches!(self, Self::Nftables { .. } | Self::Iptables { .. })
    }
}

impl fmt::Display for OtherProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MEANING: &str = "two proxies translate the addresses of the same Services, and the rules that a packet meets first decide";
        match self {
            Self::Nftables { family } => {
                write!(
                    f,
                    "rules of kube-proxy in nftables mode: table {family} {TABLE}; {MEANING}"
                )?;
            }
            Self::Iptables { family, table, chains } => write!(
                f,
                "rules of kube-proxy in iptables mode: chains KUBE-… in table {family} {table} \
                 ({chains}); {MEANING}"
            )?,
            Self::Legacy { family } => write!(
                f,
                "iptables-legacy has a table {family} nat, whose rules cannot be read here; if they are \
                 kube-proxy's, {MEANING}"
            )?,
            Self::Ipvs => {
                write!(f, "kube-proxy in IPVS mode: interface {INTERFACE}; {MEANING}")?;
            }
        }
        f.write_str(match self.is_removable() {
            true => {
                ": stop kube-proxy, then start `zonewise proxy --take-over` or run \
                 `kube-proxy --cleanup`"
            }
            false => ": stop kube-proxy and run `kube-proxy --cleanup`",
        })
    }
}

/// Looks for rules of kube-proxy, in the network namespace of this thread.
///
/// # Errors
/// If the kernel's tables cannot be read.
pub fn find() -> io::Result<Vec<OtherProxy>> {
    let mut socket = Socket::open()?;
    let mut found = Vec::new();
    for table in retry_interrupted(|| socket.tables())? {
        let family = table.family;
        if table.name == TABLE {
            found.push(OtherProxy::Nftables { family });
        }
        let known = TABLES.into_iter().find(|name| *name == table.name);
        if let Some(table) = known {
            found.extend(in_table(&mut socket, family, table)?);
        }
    }
    let legacy = |(family, file)| {
        let lists_nat = read(file).lines().any(|line| line == "nat");
        lists_nat.then_some(OtherProxy::Legacy { family })
    };
    let files = [(Family::Ip, "ip_tables_names"), (Family::Ip6, "ip6_tables_names")];
    found.extend(files.into_iter().filter_map(legacy));
    found.extend(has_interface(&read("dev")).then_some(OtherProxy::Ipvs));
    found.sort();
    Ok(found)
}

/// The chains of iptables mode in a table.
fn in_table(
    socket: &mut Socket,
    family: Family,
    table: &'static str,
) -> io::Result<Option<OtherProxy>> {
    let all = retry_interrupted(|| socket.chains(family, table))?;
    let chains = all.iter().filter(|chain| is_theirs(&chain.name)).count();
    let only_masquerade =
        all.iter().filter(|chain| MASQUERADE_CHAINS.contains(&&*chain.name)).count() == chains;
    Ok((!only_masquerade).then_some(OtherProxy::Iptables { family, table, chains }))
}

/// Whether a chain is of kube-proxy's iptables mode.
fn is_theirs(chain: &str) -> bool {
    CHAINS.contains(&chain) || PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// Reads a file of `/proc` about the network namespace of this thread, not of the process. Empty if it
/// does not exist or cannot be read: the kernel was built without it, or only root may read it.
fn read(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
}

fn has_interface(list: &str) -> bool {
    let names = list.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim()).any(|name| name == INTERFACE)
}

/// Reads again while the kernel says that another program has changed the rules meanwhile.
fn retry_interrupted<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 1;
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_kube_proxy_and_chains_of_others() {
        let theirs = "KUBE-SERVICES KUBE-NODEPORTS KUBE-POSTROUTING KUBE-MARK-MASQ KUBE-FORWARD \
                      KUBE-PROXY-CANARY KUBE-EXTERNAL-SERVICES KUBE-PROXY-FIREWALL \
                      KUBE-SVC-NPX46M4PTMTKRN6Y KUBE-SVL-A KUBE-SEP-A KUBE-FW-A KUBE-EXT-A";
        for name in theirs.split_whitespace() {
            assert!(is_theirs(name), "{name}");
        }
        let others = "PREROUTING KUBE-FIREWALL KUBE-KUBELET-CANARY KUBE-IPTABLES-HINT KUBE-MARK-DROP \
                      KUBE-ROUTER-SERVICES KUBE-POD-FW-A KUBE-NWPLCY-A KUBE-SERVICES-MINE kube-services";
        for name in others.split_whitespace() {
            assert!(!is_theirs(name), "{name}");
        }
    }

    #[test]
    fn the_interface_of_ipvs_mode() {
        let head = "Inter-|   Receive\n face |bytes\n    lo: 0 0\n";
        assert!(!has_interface(head));
        assert!(!has_interface(&format!("{head}kube-ipvs01: 0 0\nxkube-ipvs0: 0 0\n")));
        assert!(has_interface(&format!("{head}kube-ipvs0: 0 0\n")));
        assert!(has_interface(&format!("{head}  kube-ipvs0:12 0\n")));
    }

    #[test]
    fn what_is_interrupted_is_read_again_but_not_for_ever() {
        let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
        let mut left = 3;
        let read = || {
            left -= 1;
            if left == 0 { Ok("read") } else { Err(interrupted()) }
        };
        assert_eq!(retry_interrupted(read).ok(), Some("read"));
        let mut reads = 0;
        let never = || {
            reads += 1;
            Err::<(), _>(interrupted())
        };
        assert!(retry_interrupted(never).is_err_and(|e| e.kind() == io::ErrorKind::Interrupted));
        assert_eq!(reads, TRIES);
    }

    #[test]
    fn the_text_says_what_it_means_and_what_to_do() {
        let family = Family::Ip6;
        let texts = [
            OtherProxy::Nftables { family },
            OtherProxy::Iptables { family, table: "nat", chains: 12 },
            OtherProxy::Legacy { family },
            OtherProxy::Ipvs,
        ]
        .map(|other| other.to_string());
        let meaning = "two proxies translate the addresses of the same Services, and the rules that a packet meets first decide";
        let ours = "stop kube-proxy, then start `zonewise proxy --take-over` or run \
                    `kube-proxy --cleanup`";
        let only_theirs = "stop kube-proxy and run `kube-proxy --cleanup`";
        let expected = [
            format!(
                "rules of kube-proxy in nftables mode: table ip6 kube-proxy; {meaning}: {ours}"
            ),
            format!(
                "rules of kube-proxy in iptables mode: chains KUBE-… in table ip6 nat (12); \
                 {meaning}: {ours}"
            ),
            format!(
                "iptables-legacy has a table ip6 nat, whose rules cannot be read here; if they are \
                 kube-proxy's, {meaning}: {only_theirs}"
            ),
            format!("kube-proxy in IPVS mode: interface kube-ipvs0; {meaning}: {only_theirs}"),
        ];
        assert_eq!(texts, expected);
    }
}
