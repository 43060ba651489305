//! Another kube-proxy on this node: finding its rules, and removing them.
//!
//! Two proxies translate the same Services, and whichever the packet meets first wins: endpoints
//! that only one of them knows are used all the same, policies of the other do not count.
//!
//! ```text
//!   zonewise proxy               find ──► a warning for each rival ──► run beside it
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
//! | Rival | Seen by | Removed by us |
//! |---|---|---|
//! | nftables mode | tables `ip kube-proxy`, `ip6 kube-proxy` | yes: the table |
//! | iptables mode over nftables | chains `KUBE-…` in tables nat, filter, mangle | yes: those chains, and rules that lead to them |
//! | iptables mode, legacy | a table nat that nobody can look into | no |
//! | IPVS mode | interface `kube-ipvs0` | no |
//!
//! What is not kube-proxy's stays: rules of others in the same tables, and the kubelet's chains
//! `KUBE-FIREWALL`, `KUBE-KUBELET-CANARY` and `KUBE-IPTABLES-HINT`. If rules of others send packets
//! to `KUBE-MARK-MASQ` to have them masqueraded, that chain and `KUBE-POSTROUTING` stay too: the two
//! translate no Service.
//!
//! iptables mode also accepted what it forwarded. Where the policy of `FORWARD` is to drop, somebody
//! else has to accept it from then on, as with kube-proxy's own nftables mode.
//!
//! Names of tables and chains are read to find, rules of the tables concerned to remove; elements
//! never. Everything happens in the network namespace of the calling thread.

mod remove;

use std::fmt;
use std::io;

use zonewise_nft::{Family, Socket};

pub use remove::{Removal, remove, remove_ours};

/// The table of kube-proxy's nftables mode.
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
/// Chains that others use too. Alone they do nothing with Services.
const MARKS: [&str; 2] = ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"];
/// How often to start again when somebody changes the rules meanwhile.
const TRIES: usize = 32;

/// Rules of another kube-proxy. Its text says what was found, what it means and what to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rival {
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
    /// Perhaps kube-proxy in iptables mode: a legacy table nat. What is in it cannot be seen.
    Legacy {
        /// The family of the table.
        family: Family,
    },
    /// kube-proxy in IPVS mode.
    Ipvs,
}

impl Rival {
    /// [`remove`] can remove it. The others need `kube-proxy --cleanup`.
    #[must_use]
    pub const fn is_removable(&self) -> bool {
        matches!(self, Self::Nftables { .. } | Self::Iptables { .. })
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MEANING: &str = "two proxies translate the same Services, whichever comes first wins";
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
                "iptables-legacy has a table {family} nat, and it cannot be looked into; if it is \
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

/// Looks for rules of another kube-proxy, in the network namespace of this thread.
///
/// # Errors
/// The kernel cannot be read.
pub fn find() -> io::Result<Vec<Rival>> {
    let mut socket = Socket::open()?;
    let mut rivals = Vec::new();
    for table in patiently(|| socket.tables())? {
        let family = table.family;
        if table.name == TABLE {
            rivals.push(Rival::Nftables { family });
        }
        let known = TABLES.into_iter().find(|name| *name == table.name);
        if let Some(table) = known {
            rivals.extend(in_table(&mut socket, family, table)?);
        }
    }
    let legacy = |(family, file)| {
        let lists_nat = read(file).lines().any(|line| line == "nat");
        lists_nat.then_some(Rival::Legacy { family })
    };
    let files = [(Family::Ip, "ip_tables_names"), (Family::Ip6, "ip6_tables_names")];
    rivals.extend(files.into_iter().filter_map(legacy));
    rivals.extend(has_interface(&read("dev")).then_some(Rival::Ipvs));
    rivals.sort();
    Ok(rivals)
}

/// What iptables mode has in a table.
fn in_table(socket: &mut Socket, family: Family, table: &'static str) -> io::Result<Option<Rival>> {
    let all = patiently(|| socket.chains(family, table))?;
    let chains = all.iter().filter(|chain| is_theirs(&chain.name)).count();
    let only_marks = all.iter().filter(|chain| MARKS.contains(&&*chain.name)).count() == chains;
    Ok((!only_marks).then_some(Rival::Iptables { family, table, chains }))
}

/// A chain of kube-proxy's iptables mode.
fn is_theirs(chain: &str) -> bool {
    CHAINS.contains(&chain) || PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// A file about the network of this thread, not of the process. What is not there says nothing:
/// the kernel was built without it, or only root may read it.
fn read(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
}

fn has_interface(list: &str) -> bool {
    let names = list.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim()).any(|name| name == INTERFACE)
}

/// Reads again when somebody changed the rules meanwhile.
fn patiently<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
        assert_eq!(patiently(read).ok(), Some("read"));
        let mut reads = 0;
        let never = || {
            reads += 1;
            Err::<(), _>(interrupted())
        };
        assert!(patiently(never).is_err_and(|e| e.kind() == io::ErrorKind::Interrupted));
        assert_eq!(reads, TRIES);
    }

    #[test]
    fn the_text_says_what_it_means_and_what_to_do() {
        let family = Family::Ip6;
        let texts = [
            Rival::Nftables { family },
            Rival::Iptables { family, table: "nat", chains: 12 },
            Rival::Legacy { family },
            Rival::Ipvs,
        ]
        .map(|rival| rival.to_string());
        let meaning = "two proxies translate the same Services, whichever comes first wins";
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
                "iptables-legacy has a table ip6 nat, and it cannot be looked into; if it is \
                 kube-proxy's, {meaning}: {only_theirs}"
            ),
            format!("kube-proxy in IPVS mode: interface kube-ipvs0; {meaning}: {only_theirs}"),
        ];
        assert_eq!(texts, expected);
    }
}
