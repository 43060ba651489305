//! Removes rules: those of another proxy, and our own.
//!
//! ```text
//!   table nat      PREROUTING ── jump ──► KUBE-SERVICES ──► KUBE-SVC-…      one batch:
//!                      │        deleted       emptied, deleted             all or nothing
//!                      └─ rule of another program ──► stays
//! ```

use std::collections::BTreeSet;
use std::io;

use nix::errno::Errno;
use zonewise_nft::{Batch, CommitError, Family, RuleInfo, Socket, TableFlags, TableInfo};

use super::{MASQUERADE_CHAINS, OtherProxy, TABLE, TRIES, is_theirs, retry_interrupted};
use crate::rules;

/// What was removed, and what could not be removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Removal {
    /// What has been removed, a phrase for each table.
    pub removed: Vec<String>,
    /// What is still there, why, and what to do about it.
    pub problems: Vec<String>,
}

impl Removal {
    /// Both removals together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.removed.extend(other.removed);
        self.problems.extend(other.problems);
        self
    }

    fn failed(problem: String) -> Self {
        Self { removed: Vec::new(), problems: vec![problem] }
    }

    fn take(&mut self, what: &str, result: Result<Option<String>, RemoveError>) {
        match result {
            Ok(removed) => self.removed.extend(removed),
            Err(error) => self.problems.push(format!("cannot remove {what}: {error}")),
        }
    }
}

/// Why rules could not be removed.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("cannot read its rules: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] CommitError),
    #[error("a running process owns it (netlink port {0}): stop that `zonewise proxy` first")]
    Owned(u32),
}

impl RemoveError {
    fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Refused(error) if error.errno() == Some(errno as i32))
    }
}

/// Removes the rules of these proxies. An error in one table does not keep the others from being
/// removed, and rules that are gone already are not an error. Rules that are not
/// [removable](OtherProxy::is_removable) become a problem with what to do.
///
/// Call it when our own rules are in place, or when no rules are wanted at all.
#[must_use]
pub fn remove(which: &[OtherProxy]) -> Removal {
    let mut socket = match Socket::open() {
        Ok(socket) => socket,
        Err(error) => {
            return Removal::failed(format!(
                "cannot open a netlink socket to the kernel's rules: {error}"
            ));
        }
    };
    let mut removal = Removal::default();
    for other in which {
        match other {
            OtherProxy::Nftables { family } => {
                let what = format!("table {family} {TABLE}");
                removal.take(&what, delete_table(&mut socket, *family, TABLE, None));
            }
            OtherProxy::Iptables { family, table, .. } => {
                let what = format!("the chains of kube-proxy in table {family} {table}");
                removal.take(&what, delete_chains(&mut socket, *family, table));
            }
            OtherProxy::Legacy { .. } | OtherProxy::Ipvs => {
                removal.problems.push(other.to_string());
            }
        }
    }
    removal
}

/// Removes our own tables, also those that are still owned by a process that has ended. The table of a
/// running process is a problem and stays.
#[must_use]
pub fn remove_ours() -> Removal {
    let tables = Socket::open().and_then(|mut socket| {
        let tables = retry_interrupted(|| socket.tables())?;
        Ok((socket, tables))
    });
    let (mut socket, tables) = match tables {
        Ok(found) => found,
        Err(error) => return Removal::failed(format!("cannot read the kernel's tables: {error}")),
    };
    let mut removal = Removal::default();
    for table in tables.iter().filter(|table| table.name == rules::TABLE) {
        let what = format!("table {} {}", table.family, table.name);
        removal.take(&what, delete_ours(&mut socket, table));
    }
    removal
}

fn delete_ours(socket: &mut Socket, table: &TableInfo) -> Result<Option<String>, RemoveError> {
    let has = |flags: TableFlags| table.flags & flags.bits() != 0;
    let owner = has(TableFlags { owner: true, persist: false });
    let persist = has(TableFlags { owner: false, persist: true });
    match table.owner {
        Some(port) if port != 0 => Err(RemoveError::Owned(port)),
        // Only the owner may delete a table: this process becomes the owner first.
        _ if owner => {
            let claim = Some(TableFlags { owner, persist });
            delete_table(socket, table.family, rules::TABLE, claim)
        }
        _ => delete_table(socket, table.family, rules::TABLE, None),
    }
}

fn delete_table(
    socket: &mut Socket,
    family: Family,
    table: &'static str,
    claim: Option<TableFlags>,
) -> Result<Option<String>, RemoveError> {
    let mut batch = Batch::new(table);
    if let Some(flags) = claim {
        batch.add_table(family, flags, "");
    }
    batch.delete_table(family);
    match socket.commit(&batch).map_err(RemoveError::from) {
        Ok(()) => Ok(Some(format!("table {family} {table}"))),
        Err(error) if error.is(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Starts again when the rules have changed between reading and deleting: the handles of rules are
/// valid only for the generation that was read.
fn delete_chains(
    socket: &mut Socket,
    family: Family,
    table: &'static str,
) -> Result<Option<String>, RemoveError> {
    let mut tries = 1;
    loop {
        match try_delete_chains(socket, family, table) {
            Err(error) if error.is(Errno::ERESTART) && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

fn try_delete_chains(
    socket: &mut Socket,
    family: Family,
    table: &'static str,
) -> Result<Option<String>, RemoveError> {
    let generation = socket.generation()?;
    let chains = retry_interrupted(|| socket.chains(family, table))?;
    let chains = chains.into_iter().map(|chain| chain.name).filter(|name| is_theirs(name));
    let plan =
        RemovalPlan::new(chains.collect(), &retry_interrupted(|| socket.rules(family, table))?);
    socket.commit_at(&plan.batch(family, table), generation)?;
    Ok(plan.text(family, table))
}

/// What is removed from a table of iptables mode.
#[derive(Debug, PartialEq, Eq)]
struct RemovalPlan {
    /// Chains of kube-proxy, with all of their rules.
    chains: BTreeSet<String>,
    /// Rules in other chains that lead to them: chain and handle.
    rules: Vec<(String, u64)>,
    /// Chains of other programs that use the masquerading chains, which stay then.
    users: BTreeSet<String>,
}

impl RemovalPlan {
    fn new(mut chains: BTreeSet<String>, rules: &[RuleInfo]) -> Self {
        let [mark, _] = MASQUERADE_CHAINS;
        let elsewhere = rules.iter().filter(|rule| !is_theirs(&rule.chain));
        let leads_to = |rule: &RuleInfo, chains: &BTreeSet<String>| {
            rule.jumps_to.iter().any(|name| chains.contains(name))
        };
        // kube-proxy uses its mark chain from its own chains only: rules elsewhere that use it belong to
        // other programs.
        let marks = |rule: &&RuleInfo| rule.jumps_to.iter().any(|name| name == mark);
        let users: BTreeSet<String> =
            elsewhere.clone().filter(marks).map(|rule| rule.chain.clone()).collect();
        if !users.is_empty() {
            chains.retain(|name| !MASQUERADE_CHAINS.contains(&&**name));
        }
        let rules = elsewhere.filter(|rule| leads_to(rule, &chains));
        let rules = rules.map(|rule| (rule.chain.clone(), rule.handle)).collect();
        Self { chains, rules, users }
    }

    /// First rules that lead to the chains, then their contents, then the chains: the kernel deletes no
    /// chain that a rule leads to.
    fn batch(&self, family: Family, table: &'static str) -> Batch {
        let mut batch = Batch::new(table);
        self.rules.iter().for_each(|(chain, handle)| batch.delete_rule(family, chain, *handle));
        self.chains.iter().for_each(|chain| batch.flush_chain(family, chain));
        self.chains.iter().for_each(|chain| batch.delete_chain(family, chain));
        batch
    }

    fn text(&self, family: Family, table: &str) -> Option<String> {
        let (chains, rules) = (self.chains.len(), self.rules.len());
        if chains == 0 {
            return None;
        }
        let mut text = format!(
            "table {family} {table}: chains of kube-proxy ({chains}), rules that led to them ({rules})"
        );
        if !self.users.is_empty() {
            let users: Vec<&str> = self.users.iter().map(String::as_str).collect();
            let users = users.join(", ");
            text += &format!("; {} stay for {users}", MASQUERADE_CHAINS.join(" and "));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(handle: u64, chain: &str, to: &str) -> RuleInfo {
        let jumps_to = to.split_whitespace().map(str::to_owned).collect();
        RuleInfo {
            chain: chain.to_owned(),
            handle,
            comment: String::new(),
            jumps_to,
            expressions: 1,
        }
    }

    fn names(text: &str) -> BTreeSet<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn plan(extra: Option<RuleInfo>) -> RemovalPlan {
        let chains = names("KUBE-MARK-MASQ KUBE-POSTROUTING KUBE-SERVICES KUBE-SVC-A");
        let mut rules = vec![
            rule(1, "PREROUTING", "KUBE-SERVICES"),
            rule(2, "PREROUTING", "MINE"),
            rule(3, "POSTROUTING", "KUBE-POSTROUTING"),
            rule(4, "KUBE-SERVICES", "KUBE-SVC-A"),
            rule(5, "KUBE-SVC-A", "KUBE-MARK-MASQ"),
            rule(6, "KUBE-FIREWALL", ""),
        ];
        rules.extend(extra);
        RemovalPlan::new(chains, &rules)
    }

    #[test]
    fn chains_go_with_the_rules_that_lead_to_them() {
        let plan = plan(None);
        let expected = RemovalPlan {
            chains: names("KUBE-MARK-MASQ KUBE-POSTROUTING KUBE-SERVICES KUBE-SVC-A"),
            rules: vec![("PREROUTING".into(), 1), ("POSTROUTING".into(), 3)],
            users: BTreeSet::new(),
        };
        assert_eq!(plan, expected);
        let text = "table ip nat: chains of kube-proxy (4), rules that led to them (2)";
        assert_eq!(plan.text(Family::Ip, "nat").as_deref(), Some(text));
    }

    #[test]
    fn what_masquerades_stays_for_others_who_use_it() {
        let plan = plan(Some(rule(7, "CNI-HOSTPORT-SETMARK", "KUBE-MARK-MASQ")));
        let expected = RemovalPlan {
            chains: names("KUBE-SERVICES KUBE-SVC-A"),
            rules: vec![("PREROUTING".into(), 1)],
            users: names("CNI-HOSTPORT-SETMARK"),
        };
        assert_eq!(plan, expected);
        let text = "table ip nat: chains of kube-proxy (2), rules that led to them (1); \
                    KUBE-MARK-MASQ and KUBE-POSTROUTING stay for CNI-HOSTPORT-SETMARK";
        assert_eq!(plan.text(Family::Ip, "nat").as_deref(), Some(text));
    }

    #[test]
    fn nothing_there_is_nothing_to_do() {
        let plan = RemovalPlan::new(BTreeSet::new(), &[rule(1, "PREROUTING", "MINE")]);
        assert!(plan.batch(Family::Ip, "nat").is_empty());
        assert_eq!(plan.text(Family::Ip, "nat"), None);
    }
}
