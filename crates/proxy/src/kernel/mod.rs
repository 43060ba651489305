//! The tables in the kernel, kept equal to what is desired.
//!
//! ```text
//!            no table ──► build    sets, elements in portions, hooks last
//!  start ─┬─ ours ──────► mend     read it, write the difference
//!         └─ another ───► replace  delete and build in one batch
//!
//!  change ──► delta ──► one batch ──► refused? halve the Services until the bad one stands alone
//!                │
//!                └─ slots that shrink: removed a moment later, packets may be on their way to them
//! ```
//!
//! Nothing is listed to make a change: what is in the kernel is known. It is read back at start, now
//! and then, and when something seems wrong.

mod affinity;
mod encode;
mod mend;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_nft::{Batch, CommitError, Family, Socket, TableFlags};
use zonewise_routing::ZoneId;

use crate::rules::TABLE;
use crate::rules::chains::Chain;
use crate::rules::delta::{Delta, Place};
use crate::rules::desired::Desired;
use crate::rules::entries::{Node, Programmed, Value};
use crate::rules::layout::{self, Options, STRAYS};

pub use encode::counter_name;
pub use mend::{Counted, Mended};
use trouble::Trouble;

/// Why the kernel could not be brought to the desired state.
#[derive(Debug, Error)]
pub enum KernelError {
    /// A batch was refused.
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

/// A Service that the kernel would not take.
#[derive(Debug)]
pub struct Rejected {
    /// The Service.
    pub service: Key,
    /// What the kernel said.
    pub error: KernelError,
}

/// A change to a Service: what it is to be, or `None` when it is gone.
pub type Update = (Key, Option<Programmed>);

/// How the tables were found at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There were none.
    Nothing,
    /// Ours, to be mended.
    Ours,
    /// Of another version or other options: replaced.
    Other,
}

/// Resolves zones to names, for counters.
pub type ZoneNames = Box<dyn Fn(ZoneId) -> String + Send + Sync>;

/// The tables.
pub struct Kernel {
    socket: Socket,
    options: Options,
    families: Vec<Family>,
    ranges: Vec<Cidr>,
    desired: Desired,
    zone_names: ZoneNames,
    /// Chains in the kernel that come and go, and how many elements lead there.
    chains: BTreeMap<(Family, Chain), i64>,
    /// Elements still in the kernel that no new packet reaches.
    pending: BTreeMap<Place, Value>,
    /// Counters in the kernel.
    counters: BTreeSet<(Family, ZoneId)>,
    /// Chains of nobody, to be removed once nothing can lead there.
    forgotten: Vec<(Family, String)>,
    /// The kernel lets nobody else change the tables.
    owned: bool,
    /// Whether the kernel knows owners that outlive their process; tried once.
    knows_owners: Option<bool>,
    /// Our last generation, where known.
    generation: u32,
    batches: u64,
}

/// What there should be of everything that elements lead to, counted in one pass.
#[derive(Debug, Default)]
struct Census {
    elements: usize,
    /// Chains that come and go, and how many elements lead there.
    chains: BTreeMap<(Family, Chain), i64>,
    /// Zones with a counter.
    zones: BTreeSet<(Family, ZoneId)>,
}

/// Tables up to this many elements are read back and mended. Reading takes the kernel time that grows
/// with the square of the size: larger ones are written again, in one batch, in less time.
const READABLE: usize = 30_000;

/// Elements encoded at a time, so that memory stays small.
const PORTION: usize = 4 << 10;

impl Kernel {
    /// Opens the way to the kernel; changes nothing.
    pub fn open(
        options: Options,
        families: Vec<Family>,
        node: Node,
        zone_names: ZoneNames,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            socket: Socket::open()?,
            options,
            families,
            ranges: Vec::new(),
            desired: Desired::new(node),
            zone_names,
            chains: BTreeMap::new(),
            pending: BTreeMap::new(),
            counters: BTreeSet::new(),
            forgotten: Vec::new(),
            owned: false,
            knows_owners: None,
            generation: 0,
            batches: 0,
        })
    }

    /// Does without owners, as kernels before 6.9 have to.
    pub fn do_without_owner(&mut self) {
        self.knows_owners = Some(false);
    }

    /// The addresses that accept NodePorts from the start on.
    #[must_use]
    pub fn with_nodeport_ips(mut self, addresses: Vec<std::net::IpAddr>) -> Self {
        self.desired.set_nodeport_ips(addresses, &mut Delta::default());
        self
    }

    /// What should be in the kernel.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The kernel keeps others from changing the tables.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// How many batches the kernel has taken.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Elements waiting for their removal.
    pub fn pending(&self) -> usize {
        let unused = self.chains.values().filter(|uses| **uses <= 0).count();
        self.pending.len() + unused + self.forgotten.len()
    }

    /// Whether somebody has taken the tables or their chains away. Cheap while nobody has touched
    /// any table; elements are compared by [`Self::restore`].
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
        Ok(!self.has_its_chains()?)
    }

    /// Brings the tables into being with these Services, whatever was there before.
    pub fn start(
        &mut self,
        updates: Vec<Update>,
        ranges: Vec<Cidr>,
    ) -> Result<(Found, Vec<Rejected>), KernelError> {
        self.ranges = ranges;
        for (key, programmed) in updates {
            self.desired.replace(&key, programmed, None);
        }
        let found = self.look()?;
        match self.establish(found) {
            Ok(()) => Ok((found, Vec::new())),
            // Somebody's element, then: first the table without any, then the Services.
            Err(error) if Trouble::of(&error) != Trouble::Other => {
                tracing::warn!(%error, "the kernel refused the table: trying Service by Service");
                Ok((found, self.one_by_one()?))
            }
            Err(error) => Err(error),
        }
    }

    fn establish(&mut self, found: Found) -> Result<(), KernelError> {
        match found {
            Found::Nothing | Found::Other => self.build(),
            Found::Ours => {
                self.claim()?;
                let census = self.census();
                match census.elements <= READABLE {
                    true => self.mend_to(census).map(drop),
                    false => self.refill(census),
                }
            }
        }
    }

    fn one_by_one(&mut self) -> Result<Vec<Rejected>, KernelError> {
        let keys: Vec<Key> = self.desired.services().keys().cloned().collect();
        let take = |desired: &mut Desired, key: Key| {
            let programmed = desired.replace(&key, None, None);
            (key, programmed)
        };
        let updates: Vec<Update> =
            keys.into_iter().map(|key| take(&mut self.desired, key)).collect();
        self.build()?;
        self.apply(updates)
    }

    /// Changes Services. The kernel takes all of them in one batch, or those it does not refuse.
    /// On an error nothing has changed.
    pub fn apply(&mut self, updates: Vec<Update>) -> Result<Vec<Rejected>, KernelError> {
        let Err((error, updates)) = self.attempt(updates) else { return Ok(Vec::new()) };
        match Trouble::of(&error) {
            // Somebody has changed what was there: put that right first.
            Trouble::Surprise => {
                tracing::warn!(%error, "our tables are not what they were: mending them");
                self.restore()?;
                match self.attempt(updates) {
                    Ok(()) => Ok(Vec::new()),
                    Err((error, updates)) => self.halve(updates, error),
                }
            }
            Trouble::Content | Trouble::Unsupported => self.halve(updates, error),
            Trouble::Other => Err(error),
        }
    }

    /// Tries all of it; gives it back when the kernel has refused.
    fn attempt(&mut self, updates: Vec<Update>) -> Result<(), (KernelError, Vec<Update>)> {
        let mut delta = Delta::default();
        let mut before: Vec<Update> = Vec::with_capacity(updates.len());
        for (key, programmed) in updates {
            let old = self.desired.replace(&key, programmed, Some(&mut delta));
            before.push((key, old));
        }
        let Err(error) = self.commit(&delta) else { return Ok(()) };
        let mut after: Vec<Update> = Vec::with_capacity(before.len());
        for (key, old) in before.into_iter().rev() {
            let new = self.desired.replace(&key, old, None);
            after.push((key, new));
        }
        after.reverse();
        Err((error, after))
    }

    /// Finds the Services that the kernel refuses; the others go in.
    fn halve(
        &mut self,
        mut updates: Vec<Update>,
        error: KernelError,
    ) -> Result<Vec<Rejected>, KernelError> {
        if Trouble::of(&error) == Trouble::Other {
            return Err(error);
        }
        if updates.len() <= 1 {
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

    /// Makes the tables what they should be, whatever has happened to them.
    pub fn restore(&mut self) -> Result<Mended, KernelError> {
        if self.look()? == Found::Ours {
            return self.mend();
        }
        self.build()?;
        Ok(Mended { chains: self.chains.len(), ..Mended::default() })
    }

    /// The addresses that accept NodePorts, where not all local ones do.
    pub fn set_nodeport_ips(
        &mut self,
        addresses: Vec<std::net::IpAddr>,
    ) -> Result<(), KernelError> {
        let mut delta = Delta::default();
        self.desired.set_nodeport_ips(addresses, &mut delta);
        self.commit_or_mend(&delta)
    }

    /// What Services do not decide about themselves.
    pub fn set_node(&mut self, node: Node) -> Result<(), KernelError> {
        let mut delta = Delta::default();
        self.desired.set_node(node, &mut delta);
        self.commit_or_mend(&delta)
    }

    /// The ranges that ClusterIPs come from.
    pub fn set_ranges(&mut self, ranges: Vec<Cidr>) -> Result<(), KernelError> {
        self.ranges = ranges;
        let mut batch = Batch::new(TABLE);
        for &family in &self.families {
            batch.flush_chain(family, STRAYS);
            for rule in layout::strays(family, &self.ranges) {
                batch.add_rule(family, STRAYS, &rule);
            }
        }
        self.send(&batch)
    }

    /// Removes what nothing leads to any more.
    pub fn sweep(&mut self) -> Result<(), KernelError> {
        let batch = self.encode_pending();
        if !batch.is_empty() {
            self.send(&batch)?;
        }
        self.pending.clear();
        // In a commit of its own: kernels before 6.2 learn late that an element is gone.
        let unused = self.chains.iter().filter(|(_, uses)| **uses <= 0);
        let unused = unused.map(|((family, chain), _)| (*family, chain.to_string()));
        let forgotten = std::mem::take(&mut self.forgotten);
        // Somebody may have begun to use it since.
        let forgotten = forgotten.into_iter().filter(|chain| !self.is_known(chain));
        let gone: Vec<(Family, String)> = unused.chain(forgotten).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(TABLE);
        for (family, chain) in &gone {
            batch.delete_chain(*family, chain);
        }
        self.send(&batch)?;
        self.chains.retain(|_, uses| *uses > 0);
        Ok(())
    }

    fn is_known(&self, (family, name): &(Family, String)) -> bool {
        self.chains.keys().any(|(of, chain)| of == family && chain.to_string() == *name)
    }

    fn commit(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let prepared = self.prepare(delta);
        if !prepared.batch.is_empty() {
            self.send(&prepared.batch)?;
        }
        self.settle(prepared);
        Ok(())
    }

    /// For changes that are not taken back: what is desired has gone ahead, the kernel is to follow.
    fn commit_or_mend(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let Err(error) = self.commit(delta) else { return Ok(()) };
        tracing::warn!(%error, "a change was refused: mending the tables");
        self.restore().map(drop)
    }

    fn send(&mut self, batch: &Batch) -> Result<(), KernelError> {
        self.socket.commit(batch)?;
        self.batches += 1;
        if !self.owned {
            self.generation = self.socket.generation().unwrap_or(0);
        }
        Ok(())
    }

    /// Writes everything from nothing. Hooks come last: until then no packet sees the table.
    /// What is there already goes in the same batch.
    fn build(&mut self) -> Result<(), KernelError> {
        self.pending.clear();
        let census = self.census();
        (self.chains, self.counters) = (census.chains, census.zones);
        let mut batch = Batch::new(TABLE);
        let old = self.socket.tables()?.into_iter().filter(|table| table.name == TABLE);
        old.for_each(|table| batch.delete_table(table.family));
        let replace = !batch.is_empty();
        self.owned = self.probe_ownership()?;
        self.frame(&mut batch);
        let mut portion = Vec::new();
        let mut failed = None;
        let (socket, families, zones) = (&mut self.socket, &self.families, &self.zone_names);
        self.desired.each(|entry| {
            if failed.is_some() || !families.contains(&entry.family) {
                return;
            }
            portion.push(entry);
            // A replacement has to be one batch; a first table may come in portions.
            if portion.len() >= PORTION {
                encode::all(&mut batch, &mut portion, zones);
                if !replace {
                    failed = socket.commit(&batch).err();
                    batch.clear();
                }
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        encode::all(&mut batch, &mut portion, &self.zone_names);
        self.hooks(&mut batch);
        self.send(&batch)
    }

    /// Writes all elements again, and nothing else: what clients stay with is kept.
    fn refill(&mut self, census: Census) -> Result<(), KernelError> {
        let mut batch = Batch::new(TABLE);
        (_, self.forgotten) = self.mend_chains(&mut batch, &census.chains)?;
        self.mend_counters(&mut batch, census.zones)?;
        for &family in &self.families {
            let sets = self.options.sets().filter(|set| !set.learned());
            sets.for_each(|set| batch.flush_set(family, set.name()));
        }
        let mut portion = Vec::new();
        let (families, zones) = (&self.families, &self.zone_names);
        self.desired.each(|entry| {
            if families.contains(&entry.family) {
                portion.push(entry);
            }
            if portion.len() >= PORTION {
                encode::all(&mut batch, &mut portion, zones);
            }
        });
        encode::all(&mut batch, &mut portion, &self.zone_names);
        self.send(&batch)?;
        self.pending.clear();
        self.chains = census.chains;
        self.purge_affinity().map(drop)
    }

    fn frame(&self, batch: &mut Batch) {
        let flags = TableFlags { owner: self.owned, persist: self.owned };
        for &family in &self.families {
            batch.add_table(family, flags, &self.comment());
            self.options.sets().for_each(|set| batch.add_set(family, set.spec()));
            let fixed = layout::fixed_chains(family, &self.options);
            let strays = (STRAYS.to_owned(), layout::strays(family, &self.ranges));
            let used = self.chains.keys().filter(|(of, chain)| *of == family && !chain.is_fixed());
            let used =
                used.map(|(_, chain)| (chain.to_string(), chain.rules(family, &self.options)));
            let chains: Vec<_> = fixed.into_iter().chain([strays]).chain(used).collect();
            chains.iter().for_each(|(name, _)| batch.add_chain(family, name, None, ""));
            for (name, rules) in &chains {
                rules.iter().for_each(|rule| batch.add_rule(family, name, rule));
            }
            for (_, zone) in self.counters.iter().filter(|(of, _)| *of == family) {
                batch.add_counter(family, &counter_name(&(self.zone_names)(*zone)), "");
            }
        }
    }

    fn hooks(&self, batch: &mut Batch) {
        for &family in &self.families {
            for (base, rules) in layout::base_chains(family, &self.options) {
                batch.add_chain(family, base.name, Some(&base.chain), "");
                rules.iter().for_each(|rule| batch.add_rule(family, base.name, rule));
            }
        }
    }

    /// The table's comment: people read the first half, the next start of this program the second.
    fn comment(&self) -> String {
        format!("Services, kept by zonewise proxy; layout {:016x}", self.options.fingerprint())
    }

    fn census(&self) -> Census {
        let mut census = Census::default();
        self.desired.each(|entry| {
            if !self.families.contains(&entry.family) {
                return;
            }
            census.elements += 1;
            match entry.value {
                Value::Chain(chain, _) if !chain.is_fixed() => {
                    *census.chains.entry((entry.family, chain)).or_insert(0) += 1;
                }
                Value::Zone(zone) => drop(census.zones.insert((entry.family, zone))),
                _ => {}
            }
        });
        census
    }

    /// What is there under our name.
    fn look(&mut self) -> Result<Found, KernelError> {
        let comment = self.comment();
        let tables = self.socket.tables()?;
        let ours: Vec<_> = tables.iter().filter(|table| table.name == TABLE).collect();
        if ours.is_empty() {
            return Ok(Found::Nothing);
        }
        let same =
            ours.len() == self.families.len() && ours.iter().all(|table| table.comment == comment);
        Ok(if same { Found::Ours } else { Found::Other })
    }

    /// Becomes the owner of tables that an earlier process left.
    fn claim(&mut self) -> Result<(), KernelError> {
        self.owned = self.probe_ownership()?;
        let flags = TableFlags { owner: self.owned, persist: self.owned };
        let mut batch = Batch::new(TABLE);
        self.families.iter().for_each(|&family| batch.add_table(family, flags, &self.comment()));
        self.send(&batch)
    }

    /// Whether the kernel knows owners that outlive their process: tried on a table of no use.
    fn probe_ownership(&mut self) -> Result<bool, KernelError> {
        if let Some(known) = self.knows_owners {
            return Ok(known);
        }
        let mut batch = Batch::new("zonewise-probe");
        batch.add_table(Family::Ip, TableFlags { owner: true, persist: true }, "");
        batch.delete_table(Family::Ip);
        let known = match self.send(&batch) {
            Ok(()) => true,
            Err(error) if Trouble::of(&error) == Trouble::Unsupported => false,
            Err(error) => return Err(error),
        };
        self.knows_owners = Some(known);
        Ok(known)
    }
}
