//! The tables in the kernel, kept equal to what is desired.
//!
//! ```text
//!            no table ──► build    sets, elements in portions, hooks last; or ahead: while they arrive
//!  start ─┬─ ours ──────► repair     read it, write the difference
//!         └─ another ───► replace  delete and build in one batch
//!
//!         A table that the kernel refuses is checked with fewer and fewer Services until those at fault
//!         are known; the old one works until the new one is in its place.
//!
//!  change ──► delta ──► one batch ──► rejected? halve the Services until the bad one is alone
//!                │
//!                └─ slots that become unused: removed a second later, packets may be on their way to them
//! ```
//!
//! What is in the kernel is known, so that nothing is listed to make a change. It is read at the start,
//! once a minute, and when something seems wrong.

mod affinity;
mod ahead;
mod build;
mod encode;
mod error_kind;
mod handle;
mod repair;
mod verify;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_nft::{Batch, CommitError, Family, Network, Socket, TableFlags};
use zonewise_routing::{Frontend, ZoneId};

use crate::config::CountBy;
use crate::published::Published;
use crate::rules::chains::Chain;
use crate::rules::delta::{Delta, ElementId};
use crate::rules::desired::Desired;
use crate::rules::entries::{NodeSettings, ProgrammedService, Value};
use crate::rules::layout::{self, CHECK_CLUSTER_IPS, Options};
use crate::rules::{PROBE_TABLE, TABLE};

use affinity::Keeper;
pub use affinity::Kept;
use encode::Prepared;
pub(crate) use encode::counter_name;
use error_kind::{ErrorKind, is_about_content};
pub use handle::KernelHandle;
pub use repair::Repaired;
pub use verify::Verification;

/// Why the kernel could not be brought to the desired state.
#[derive(Debug, Error)]
pub enum KernelError {
    /// A batch was rejected.
    #[error(transparent)]
    Refused(#[from] CommitError),
    /// The kernel could not be read.
    #[error("cannot read the kernel's tables: {0}")]
    Read(#[source] std::io::Error),
}

impl From<std::io::Error> for KernelError {
    fn from(error: std::io::Error) -> Self {
        Self::Read(error)
    }
}

/// A Service that the kernel rejects.
#[derive(Debug)]
pub struct Rejected {
    /// The Service.
    pub service: Key,
    /// The kernel's error.
    pub error: KernelError,
}

/// A change of a Service: its new state, or `None` when it is gone.
pub(crate) type Update = (Key, Option<ProgrammedService>);

/// The tables that were found at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundTables {
    /// None.
    Nothing,
    /// Ours, with the same fingerprint: kept and repaired.
    Ours,
    /// Ours, of another version or with other options: replaced.
    Other,
}

/// Names of zones, for their counters.
pub(crate) type ZoneNames = Box<dyn Fn(ZoneId) -> String + Send + Sync>;

/// The tables in the kernel, and what is known of them.
pub struct Kernel {
    socket: Socket,
    options: Options,
    families: Vec<Family>,
    service_cidrs: Vec<Cidr>,
    desired: Desired,
    zone_names: ZoneNames,
    /// Chains in the kernel that come and go, and how many elements lead to each.
    chains: BTreeMap<(Family, Chain), i64>,
    /// Elements in the kernel that are not desired any more and that no new packet reaches.
    unused_elements: BTreeMap<ElementId, Value>,
    /// Zones with a counter in the kernel, and what belongs to it where Services are counted.
    counters: BTreeSet<(Family, ZoneId)>,
    /// Chains in the kernel that are not ours, to be removed once nothing can lead to them.
    unknown_chains: Vec<(Family, String)>,
    /// Whether the kernel keeps other programs from changing the tables.
    owned: bool,
    /// Whether the kernel has tables with an owner that outlive their process (Linux 6.9); `None` until
    /// it has been tried.
    supports_owners: Option<bool>,
    /// The generation of the ruleset after our last batch, where tables have no owner: another one
    /// means that some program has changed some table.
    generation: u32,
    /// What is in the kernel may be something else than what is known here: an answer was lost, or a comparison could
    /// not be finished. Changes are differences to what is known, so the tables are compared before the next one.
    out_of_sync: bool,
    /// How many batches the kernel has accepted.
    batches: u64,
    /// What the pages show.
    published: Arc<Published>,
    /// Where further sockets lead.
    network: Network,
    /// Looks after the clients that the kernel remembers for session affinity.
    keeper: Keeper,
    /// Maps of clients in the kernel that belong to no Service, to be removed with the chains that use them.
    unknown_maps: Vec<(Family, String)>,
}

/// Tables up to this many elements are read back and repaired. Reading takes the kernel time that grows
/// with the square of the size: larger ones are written again, in one batch, in less time.
const READABLE: usize = 30_000;

/// How often the kernel has to refuse the tables with one Service, and to accept them without any in between, before
/// that Service is said to be at fault.
const REFUSALS: usize = 3;

impl Kernel {
    /// Opens a netlink socket; changes nothing.
    pub fn open(
        network: &Network,
        options: Options,
        families: Vec<Family>,
        node: NodeSettings,
        zone_names: ZoneNames,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            socket: network.socket()?,
            options,
            families,
            service_cidrs: Vec::new(),
            desired: Desired::new(node),
            zone_names,
            chains: BTreeMap::new(),
            unused_elements: BTreeMap::new(),
            counters: BTreeSet::new(),
            unknown_chains: Vec::new(),
            owned: false,
            supports_owners: None,
            generation: 0,
            out_of_sync: false,
            batches: 0,
            published: Arc::default(),
            network: network.clone(),
            keeper: Keeper::default(),
            unknown_maps: Vec::new(),
        })
    }

    /// Makes tables without an owner, as on kernels before 6.9.
    pub fn without_owner(&mut self) {
        self.supports_owners = Some(false);
    }

    /// Sets the addresses that accept NodePorts, before the tables are written.
    #[must_use]
    pub fn with_nodeport_ips(mut self, addresses: Vec<std::net::IpAddr>) -> Self {
        self.desired.set_nodeport_ips(addresses, &mut Delta::default());
        self
    }

    /// Shows what changes on these pages.
    #[must_use]
    pub fn publishing(mut self, published: Arc<Published>) -> Self {
        self.published = published;
        if self.options.count == CountBy::Services {
            self.published.keep_owners();
        }
        self
    }

    /// Shows the pages what has changed.
    fn publish(&mut self) {
        let touched = self.desired.take_touched();
        self.look_at_clients_of(&touched);
        self.published.update(&self.desired, touched);
        self.published.add_zones(self.named_zones());
    }

    /// What should be in the kernel.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Whether an address and port is that of a Service, or can become that of one.
    pub(crate) fn is_for_services(&self, frontend: &Frontend) -> bool {
        let in_range = |address| self.service_cidrs.iter().any(|range| range.contains(address));
        self.desired.ownership().owner(frontend).is_some() || frontend.address.is_some_and(in_range)
    }

    /// Whether the kernel keeps other programs from changing the tables.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// How many batches the kernel has accepted.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// How many elements and chains can be removed by [`Self::remove_unused`].
    pub fn unused(&self) -> usize {
        let unused = self.chains.values().filter(|uses| **uses <= 0).count();
        self.unused_elements.len() + unused + self.unknown_chains.len() + self.unknown_maps.len()
    }

    /// Whether another program has removed the tables or changed their chains. Cheap while no program
    /// has changed any table. Elements are compared by [`Self::restore`] only.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        if self.owned {
            return Ok(false);
        }
        let generation = self.socket.generation()?;
        if std::mem::replace(&mut self.generation, generation) == generation {
            return Ok(false);
        }
        Ok(!self.has_all_chains()?)
    }

    /// Writes the tables with these Services, whatever was there before.
    pub fn start(
        &mut self,
        updates: Vec<Update>,
        service_cidrs: Vec<Cidr>,
    ) -> Result<(FoundTables, Vec<Rejected>), KernelError> {
        let started = self.start_with(updates, service_cidrs)?;
        self.published.forget_others(&self.desired);
        self.publish();
        self.begin_counting()?;
        Ok(started)
    }

    fn start_with(
        &mut self,
        updates: Vec<Update>,
        service_cidrs: Vec<Cidr>,
    ) -> Result<(FoundTables, Vec<Rejected>), KernelError> {
        self.service_cidrs = service_cidrs;
        self.put_services(updates);
        let found = self.find_tables()?;
        match self.establish(found) {
            Ok(()) => Ok((found, Vec::new())),
            Err(error) if ErrorKind::of(&error) != ErrorKind::Other => {
                tracing::warn!(%error, "the kernel rejects the tables: writing them anew, without the Services that it rejects");
                Ok((found, self.replace_tables()?))
            }
            Err(error) => Err(error),
        }
    }

    fn establish(&mut self, found: FoundTables) -> Result<(), KernelError> {
        match found {
            FoundTables::Nothing | FoundTables::Other => self.build(),
            FoundTables::Ours => {
                self.claim()?;
                let census = self.census();
                match census.elements <= READABLE {
                    true => self.repair_to(census).map(drop),
                    false => self.refill(census),
                }
            }
        }
    }

    /// Writes the tables anew, without the Services that the kernel rejects. These are found by having it check
    /// the tables without changing anything, with more and more Services, so that what is there works
    /// until all other Services are in its place.
    fn replace_tables(&mut self) -> Result<Vec<Rejected>, KernelError> {
        let all = self.take_services(self.desired.services().keys().cloned().collect());
        // Without any Service: if the kernel rejects that, the fault is not a Service's.
        self.check_build()?;
        let mut rejected = Vec::new();
        self.add_accepted(all, &mut rejected)?;
        self.build()?;
        Ok(rejected)
    }

    /// Adds those of these Services to the desired ones that the kernel accepts together with them.
    fn add_accepted(
        &mut self,
        mut updates: Vec<Update>,
        rejected: &mut Vec<Rejected>,
    ) -> Result<(), KernelError> {
        let Some(mut error) = self.refusal_of(&mut updates)? else { return Ok(()) };
        if updates.len() > 1 {
            let second = updates.split_off(updates.len() / 2);
            self.add_accepted(updates, rejected)?;
            return self.add_accepted(second, rejected);
        }
        // A kernel that is short of memory refuses now this, now that: a Service is at fault if it is refused again and
        // again while the tables without it are accepted.
        for _ in 1..REFUSALS {
            self.check_build()?;
            let Some(again) = self.refusal_of(&mut updates)? else { return Ok(()) };
            error = again;
        }
        rejected.extend(updates.pop().map(|(service, _)| Rejected { service, error }));
        Ok(())
    }

    /// Has the kernel check the tables with these Services besides the desired ones. They become desired if it accepts
    /// them; if not, they stay in `updates`, and its reason is returned.
    ///
    /// # Errors
    /// If the check failed for a reason that says nothing about the Services.
    fn refusal_of(
        &mut self,
        updates: &mut Vec<Update>,
    ) -> Result<Option<KernelError>, KernelError> {
        let keys = updates.iter().map(|(key, _)| key.clone()).collect();
        self.put_services(std::mem::take(updates));
        match self.check_build() {
            Ok(()) => Ok(None),
            Err(error) if is_about_content(&error) => {
                *updates = self.take_services(keys);
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    fn put_services(&mut self, updates: Vec<Update>) {
        for (key, programmed) in updates {
            self.desired.replace(&key, programmed, None);
        }
    }

    fn take_services(&mut self, keys: Vec<Key>) -> Vec<Update> {
        let take = |key: Key| {
            let programmed = self.desired.replace(&key, None, None);
            (key, programmed)
        };
        keys.into_iter().map(take).collect()
    }

    /// Changes Services, in one batch if the kernel accepts all of them. Otherwise those it accepts are
    /// changed, and the others are returned. On an error nothing has changed, unless it is not known what the tables
    /// hold: then the changes stay desired, and the next repair writes them.
    pub fn apply(&mut self, updates: Vec<Update>) -> Result<Vec<Rejected>, KernelError> {
        let result = self.apply_all(updates);
        self.publish();
        result
    }

    fn apply_all(&mut self, updates: Vec<Update>) -> Result<Vec<Rejected>, KernelError> {
        if self.out_of_sync {
            return self.restore_with(updates);
        }
        let Err((error, updates)) = self.attempt(updates) else { return Ok(Vec::new()) };
        match ErrorKind::of(&error) {
            ErrorKind::OutOfSync => {
                tracing::warn!(%error, "the kernel's tables are not as they were left: comparing and repairing them");
                self.restore_with(updates)
            }
            ErrorKind::Invalid | ErrorKind::Unsupported => self.halve(updates, error),
            ErrorKind::Other => Err(error),
        }
    }

    /// Brings tables of which it is not known what they hold to the state with these updates, in one step. They may
    /// hold it already, and going back first would take rules from Services for a moment.
    fn restore_with(&mut self, updates: Vec<Update>) -> Result<Vec<Rejected>, KernelError> {
        let before = self.exchange(updates, None);
        let Err(error) = self.restore() else { return Ok(Vec::new()) };
        if !is_about_content(&error) {
            return Err(error);
        }
        let updates = self.exchange(before, None);
        if let Err(error) = self.restore() {
            self.exchange(updates, None);
            return Err(error);
        }
        match self.attempt(updates) {
            Ok(()) => Ok(Vec::new()),
            Err((error, updates)) => self.halve(updates, error),
        }
    }

    /// Tries all updates in one batch, and returns them when the kernel rejects it.
    fn attempt(&mut self, updates: Vec<Update>) -> Result<(), (KernelError, Vec<Update>)> {
        let mut delta = Delta::default();
        let before = self.exchange(updates, Some(&mut delta));
        let Err(error) = self.commit(&delta) else { return Ok(()) };
        Err((error, self.exchange(before, None)))
    }

    /// Changes what the tables should hold. Exchanging what is returned undoes it.
    fn exchange(&mut self, updates: Vec<Update>, mut delta: Option<&mut Delta>) -> Vec<Update> {
        let mut before: Vec<Update> = Vec::with_capacity(updates.len());
        for (key, programmed) in updates {
            let old = self.desired.replace(&key, programmed, delta.as_deref_mut());
            before.push((key, old));
        }
        before.reverse();
        before
    }

    /// Finds the Services that the kernel rejects; applies the others.
    fn halve(
        &mut self,
        mut updates: Vec<Update>,
        error: KernelError,
    ) -> Result<Vec<Rejected>, KernelError> {
        match ErrorKind::of(&error) {
            ErrorKind::Other => return Err(error),
            // They may be in the tables already: the next repair writes them, or finds them there.
            ErrorKind::OutOfSync => {
                self.out_of_sync = true;
                self.exchange(updates, None);
                return Err(error);
            }
            ErrorKind::Invalid | ErrorKind::Unsupported => {}
        }
        if updates.len() <= 1 {
            self.check_kernel()?;
            let rejected = updates.pop().map(|(service, _)| Rejected { service, error });
            return Ok(rejected.into_iter().collect());
        }
        let second = updates.split_off(updates.len() / 2);
        let mut rejected = Vec::new();
        for half in [updates, second] {
            if let Err((error, half)) = self.attempt(half) {
                rejected.extend(self.halve(half, error)?);
            }
        }
        Ok(rejected)
    }

    /// Fails if the kernel carries out nothing at all, not even the smallest batch: then what it has rejected is not
    /// at fault.
    fn check_kernel(&mut self) -> Result<(), KernelError> {
        let mut smallest = Batch::new(PROBE_TABLE);
        smallest.add_table(Family::Ip, TableFlags::default(), "");
        Ok(self.socket.check(&smallest)?)
    }

    /// Compares the tables with what they should be and repairs them, or writes them if they are gone.
    pub fn restore(&mut self) -> Result<Repaired, KernelError> {
        self.out_of_sync = true;
        let repaired = match self.find_tables()? {
            FoundTables::Ours => self.repair()?,
            FoundTables::Nothing | FoundTables::Other => {
                self.build()?;
                Repaired { chains: self.chains.len(), ..Repaired::default() }
            }
        };
        self.out_of_sync = false;
        Ok(repaired)
    }

    /// Sets the addresses that accept NodePorts, where not all local ones do.
    pub fn set_nodeport_ips(
        &mut self,
        addresses: Vec<std::net::IpAddr>,
    ) -> Result<(), KernelError> {
        let mut delta = Delta::default();
        self.desired.set_nodeport_ips(addresses, &mut delta);
        self.commit_or_repair(&delta)
    }

    /// Sets what the elements of all Services depend on.
    pub fn set_node(&mut self, node: NodeSettings) -> Result<(), KernelError> {
        let mut delta = Delta::default();
        self.desired.set_node(node, &mut delta);
        let result = self.commit_or_repair(&delta);
        self.publish();
        result
    }

    /// Sets the ranges that ClusterIPs come from.
    pub fn set_service_cidrs(&mut self, cidrs: Vec<Cidr>) -> Result<(), KernelError> {
        self.service_cidrs = cidrs;
        let mut batch = Batch::new(TABLE);
        for &family in &self.families {
            batch.flush_chain(family, CHECK_CLUSTER_IPS);
            for rule in layout::check_cluster_ips(family, &self.service_cidrs) {
                batch.add_rule(family, CHECK_CLUSTER_IPS, &rule);
            }
        }
        self.send(&batch)
    }

    /// Removes elements and chains that nothing leads to any more. If it is not known what the tables hold they are
    /// compared first: a change whose answer was lost may use them again.
    pub fn remove_unused(&mut self) -> Result<(), KernelError> {
        if self.out_of_sync {
            self.restore()?;
        }
        let batch = self.encode_unused();
        if !batch.is_empty() {
            self.send(&batch)?;
        }
        self.unused_elements.clear();
        // In a batch of their own: kernels before 6.2 still count elements that the same batch deletes.
        let unused = self.chains.iter().filter(|(_, uses)| **uses <= 0);
        let unused = unused.map(|((family, chain), _)| (*family, chain.to_string()));
        let unknown_chains = std::mem::take(&mut self.unknown_chains);
        // A chain may have come into use since.
        let unknown_chains = unknown_chains.into_iter().filter(|chain| !self.is_known(chain));
        let gone: Vec<(Family, String)> = unused.chain(unknown_chains).collect();
        let maps = self.unused_affinity_maps();
        if gone.is_empty() && maps.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(TABLE);
        for (family, chain) in &gone {
            batch.delete_chain(*family, chain);
        }
        for (family, map) in &maps {
            batch.delete_set(*family, map);
        }
        self.send(&batch)?;
        self.chains.retain(|_, uses| *uses > 0);
        Ok(())
    }

    fn is_known(&self, (family, name): &(Family, String)) -> bool {
        self.chains.keys().any(|(of, chain)| of == family && chain.to_string() == *name)
            || self.zone_chains(*family, &self.counters).any(|(chain, _)| chain == *name)
    }

    fn commit(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let prepared = self.prepare(delta);
        self.send_prepared(prepared)
    }

    fn send_prepared(&mut self, prepared: Prepared) -> Result<(), KernelError> {
        if !prepared.ahead.is_empty() {
            self.send(&prepared.ahead)?;
            self.accepted_ahead(&prepared);
        }
        if !prepared.batch.is_empty() {
            self.send(&prepared.batch)?;
        }
        self.accepted(prepared);
        Ok(())
    }

    /// For changes that are not undone when the kernel rejects them: the tables are repaired then.
    fn commit_or_repair(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let Err(error) = self.commit(delta) else { return Ok(()) };
        tracing::warn!(%error, "the kernel rejects a change: comparing and repairing the tables");
        self.restore().map(drop)
    }

    fn send(&mut self, batch: &Batch) -> Result<(), KernelError> {
        if let Err(error) = self.socket.commit(batch) {
            self.out_of_sync |= error.is_unknown();
            return Err(error.into());
        }
        self.batches += 1;
        self.published.set_batches(self.batches);
        if !self.owned {
            self.generation = self.socket.generation().unwrap_or(0);
        }
        Ok(())
    }

    /// The comment of our tables: a sentence for `nft list`, and the fingerprint for the next start of
    /// the proxy.
    fn comment(&self) -> String {
        format!("Services, kept by zonewise proxy; layout {:016x}", self.options.fingerprint())
    }

    /// Which tables of our name the kernel has.
    fn find_tables(&mut self) -> Result<FoundTables, KernelError> {
        let comment = self.comment();
        let tables = self.socket.tables()?;
        let ours: Vec<_> = tables.iter().filter(|table| table.name == TABLE).collect();
        if ours.is_empty() {
            return Ok(FoundTables::Nothing);
        }
        let same =
            ours.len() == self.families.len() && ours.iter().all(|table| table.comment == comment);
        Ok(if same { FoundTables::Ours } else { FoundTables::Other })
    }

    /// Becomes the owner of tables that an earlier process has left.
    fn claim(&mut self) -> Result<(), KernelError> {
        self.owned = self.probe_ownership()?;
        let flags = TableFlags { owner: self.owned, persist: self.owned };
        let mut batch = Batch::new(TABLE);
        self.families.iter().for_each(|&family| batch.add_table(family, flags, &self.comment()));
        self.send(&batch)
    }

    /// Whether the kernel has tables with an owner that outlive their process: tried once, on a table
    /// of its own.
    fn probe_ownership(&mut self) -> Result<bool, KernelError> {
        if let Some(known) = self.supports_owners {
            return Ok(known);
        }
        let mut batch = Batch::new(PROBE_TABLE);
        batch.add_table(Family::Ip, TableFlags { owner: true, persist: true }, "");
        batch.delete_table(Family::Ip);
        let known = match self.send(&batch) {
            Ok(()) => true,
            Err(error) if ErrorKind::of(&error) == ErrorKind::Unsupported => false,
            Err(error) => return Err(error),
        };
        self.supports_owners = Some(known);
        Ok(known)
    }
}
