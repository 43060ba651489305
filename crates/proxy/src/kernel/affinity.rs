//! Session affinity: the kernel remembers the endpoint of each client by itself, in a map per Service. This
//! removes clients whose endpoint is gone, and makes room where a map is nearly full.
//!
//! ```text
//!  a Service with a map has changed ─► queue ─┐
//!  every half minute: all maps ───────────────┴─► a map, read in portions ─┬─ endpoint gone ─► deleted by key
//!                                                 (a socket of its own)    └─ crowded ─► some are evicted
//! ```
//!
//! A portion is a few hundred clients. The sync loop applies changes in between, so that no change waits for a map
//! that clients have filled.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use zonewise_common::name::Key;
use zonewise_nft::{Batch, Bytes, Data, DumpedElement, Element, Family, Listing, Parts, Verb};
use zonewise_routing::{Frontend, Protocol};

use super::error_kind::ErrorKind;
use super::{Kernel, KernelError};
use crate::rules::TABLE;
use crate::rules::affinity::{AffinityMap, CLIENTS, PREFIX, SPEC};
use crate::rules::chains::Chain;
use crate::rules::entries::routing_family;

/// How many clients are deleted with one batch.
const PORTION: usize = 200;
/// From how many clients on room is made in a map, and how many stay.
const CROWDED: usize = CLIENTS as usize / 16 * 15;
const STAY: usize = CLIENTS as usize / 8 * 7;

/// How far the keeper has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All maps that had to be looked at are done.
    Done,
    /// There are more, in the regular round.
    More,
    /// There are more, of Services that have changed.
    MoreUrgent,
}

/// The maps that are to be looked at, and the one that is being read.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    changed: BTreeSet<Key>,
    regular: Vec<Key>,
    pass: Option<Pass>,
}

/// One reading of a Service's maps.
#[derive(Debug)]
struct Pass {
    map: AffinityMap,
    urgent: bool,
    families: Vec<Family>,
    reading: Option<(Family, Listing)>,
    /// The clients that stay, as far as they have been read.
    clients: Vec<Client>,
    /// Clients to be deleted.
    leaving: Vec<(Family, Bytes)>,
    /// What has been decided: frontends, whether the client is inside the cluster, endpoint.
    decided: BTreeMap<([Frontend; 2], bool, SocketAddr), bool>,
}

/// A client, as far as eviction is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    /// The network that it belongs to.
    network: u64,
    /// How long it is remembered without a further connection.
    expires: Duration,
    key: Bytes,
}

/// The maps of clients that these chains use.
pub(super) fn maps<'c>(
    chains: impl Iterator<Item = &'c (Family, Chain)>,
    family: Family,
) -> BTreeSet<AffinityMap> {
    chains.filter(|(of, _)| *of == family).filter_map(|(_, chain)| chain.affinity()).collect()
}

impl Kernel {
    /// Adds the maps that these chains use and that are not there yet.
    pub(super) fn new_affinity_maps<'c>(
        &self,
        batch: &mut Batch,
        chains: impl Iterator<Item = &'c (Family, Chain)>,
    ) {
        let used = chains.filter_map(|(family, chain)| Some((*family, chain.affinity()?)));
        let used: BTreeSet<(Family, AffinityMap)> = used.collect();
        if used.is_empty() {
            return;
        }
        for &family in &self.families {
            let there = maps(self.chains.keys(), family);
            let of_family = used.iter().filter(|(of, map)| *of == family && !there.contains(map));
            of_family.for_each(|(_, map)| batch.add_set_as(family, &SPEC, &map.to_string()));
        }
    }

    /// Adds maps that are missing, and notes those that belong to no Service. Returns how many were missing.
    pub(super) fn repair_affinity_maps(
        &mut self,
        batch: &mut Batch,
        uses: &BTreeMap<(Family, Chain), i64>,
    ) -> Result<usize, KernelError> {
        let mut added = 0;
        let mut unknown = Vec::new();
        for family in self.families.clone() {
            let wanted: BTreeSet<String> =
                maps(uses.keys(), family).iter().map(ToString::to_string).collect();
            let sets = self.socket.sets(family, TABLE)?.into_iter().map(|set| set.name);
            let there: BTreeSet<String> = sets.filter(|name| name.starts_with(PREFIX)).collect();
            for name in wanted.difference(&there) {
                batch.add_set_as(family, &SPEC, name);
                added += 1;
            }
            unknown.extend(there.difference(&wanted).map(|name| (family, name.clone())));
        }
        self.unknown_maps = unknown;
        Ok(added)
    }

    /// Maps that no chain in use refers to any more.
    pub(super) fn unused_affinity_maps(&mut self) -> Vec<(Family, String)> {
        let mut unused = Vec::new();
        for &family in &self.families {
            let used = self.chains.iter().filter(|(_, uses)| **uses > 0).map(|(chain, _)| chain);
            let used = maps(used, family);
            let all = maps(self.chains.keys(), family);
            unused.extend(all.difference(&used).map(|map| (family, map.to_string())));
        }
        let known = |(of, name): &(Family, String)| {
            maps(self.chains.keys(), *of).iter().any(|map| map.to_string() == *name)
        };
        let unknown = std::mem::take(&mut self.unknown_maps).into_iter();
        unused.extend(unknown.filter(|map| !known(map)));
        unused
    }

    /// Clients of these Services may have an endpoint that is gone.
    pub(super) fn look_at_clients_of(&mut self, services: &BTreeSet<Key>) {
        let there: BTreeSet<AffinityMap> =
            self.families.iter().flat_map(|family| maps(self.chains.keys(), *family)).collect();
        if there.is_empty() {
            return;
        }
        let has_map = |key: &&Key| there.contains(&AffinityMap::of(&key.0, &key.1));
        self.keeper.changed.extend(services.iter().filter(has_map).cloned());
    }

    /// Whether clients of Services that have changed wait to be looked at.
    pub fn has_urgent_clients(&self) -> bool {
        !self.keeper.changed.is_empty() || self.keeper.pass.as_ref().is_some_and(|pass| pass.urgent)
    }

    /// Begins a regular round: all maps are to be looked at.
    pub fn look_at_all_clients(&mut self) {
        let sticky = self.desired.services().iter();
        let sticky = sticky.filter(|(_, known)| known.service.affinity_seconds.is_some());
        self.keeper.regular = sticky.map(|(key, _)| key.clone()).collect();
    }

    /// Goes on removing clients whose endpoint is gone or not for them any more, whose Service no longer has
    /// session affinity, or that do not fit, for about this long.
    ///
    /// # Errors
    /// If the kernel cannot be read, or refuses to delete clients. What was begun is given up.
    pub fn keep_clients(&mut self, budget: Duration) -> Result<Kept, KernelError> {
        let began = Instant::now();
        loop {
            let Some(mut pass) = self.keeper.pass.take().or_else(|| self.next_pass()) else {
                return Ok(Kept::Done);
            };
            if self.go_on(&mut pass)? {
                self.keeper.pass = Some(pass);
            }
            if began.elapsed() >= budget {
                return Ok(match self.has_urgent_clients() {
                    true => Kept::MoreUrgent,
                    false => Kept::More,
                });
            }
        }
    }

    fn next_pass(&mut self) -> Option<Pass> {
        let (key, urgent) = match self.keeper.changed.pop_first() {
            Some(key) => (key, true),
            None => (self.keeper.regular.pop()?, false),
        };
        let map = AffinityMap::of(&key.0, &key.1);
        let has_map = |family: &Family| maps(self.chains.keys(), *family).contains(&map);
        Some(Pass {
            map,
            urgent,
            families: self.families.iter().copied().filter(has_map).collect(),
            reading: None,
            clients: Vec::new(),
            leaving: Vec::new(),
            decided: BTreeMap::new(),
        })
    }

    /// Reads or deletes a portion; whether there is more to do in this pass. Nothing is deleted while a map is
    /// read: the kernel finds the place where it stopped by counting, and would leave clients out.
    fn go_on(&mut self, pass: &mut Pass) -> Result<bool, KernelError> {
        if let Some((family, listing)) = pass.reading.take() {
            return self.read_portion(pass, family, listing).map(|()| true);
        }
        if !pass.leaving.is_empty() {
            let rest = pass.leaving.len().saturating_sub(PORTION);
            let portion = pass.leaving.split_off(rest);
            return self.forget(&pass.map.to_string(), &portion).map(|()| true);
        }
        let Some(family) = pass.families.pop() else { return Ok(false) };
        let listing = self.network.socket()?.listing(family, TABLE, &pass.map.to_string())?;
        pass.reading = Some((family, listing));
        Ok(true)
    }

    fn read_portion(
        &self,
        pass: &mut Pass,
        family: Family,
        mut listing: Listing,
    ) -> Result<(), KernelError> {
        match listing.read(&mut |seen| self.judge(pass, family, &seen)) {
            Ok(true) => pass.reading = Some((family, listing)),
            Ok(false) => {
                let evicted = evicted(std::mem::take(&mut pass.clients));
                pass.leaving.extend(evicted.into_iter().map(|key| (family, key)));
            }
            // The Service has lost its map meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Decides whether a client stays.
    fn judge(&self, pass: &mut Pass, family: Family, seen: &DumpedElement<'_>) {
        let key = Bytes::from_slice(seen.key);
        let Some(known) = remembered(family, seen) else {
            pass.leaving.push((family, key));
            return;
        };
        let own = self.desired.node().addresses.contains(&Some(known.client));
        let inside = own || self.options.is_pod(known.client);
        let case = (known.frontends, inside, known.endpoint);
        let decide = || self.desired.is_sticky_to(&case.0, inside, known.endpoint);
        if *pass.decided.entry(case).or_insert_with(decide) {
            let expires = seen.expires.unwrap_or_default();
            pass.clients.push(Client { network: network(known.client), expires, key });
        } else {
            pass.leaving.push((family, key));
        }
    }

    /// Deletes clients. If one of them has timed out meanwhile the kernel refuses the batch as a whole: then in
    /// halves.
    pub(super) fn forget(
        &mut self,
        map: &str,
        clients: &[(Family, Bytes)],
    ) -> Result<(), KernelError> {
        let mut batch = Batch::new(TABLE);
        for part in clients.chunk_by(|(one, _), (other, _)| one == other) {
            let mut elements = batch.elements(Verb::Delete, part[0].0, map);
            part.iter().for_each(|(_, key)| elements.push(&Element::key(key.as_slice())));
        }
        match self.send(&batch) {
            Err(error) if ErrorKind::of(&error) == ErrorKind::OutOfSync => match clients.len() {
                0 | 1 => Ok(()),
                several => {
                    let (first, second) = clients.split_at(several / 2);
                    self.forget(map, first)?;
                    self.forget(map, second)
                }
            },
            result => result,
        }
    }
}

/// Who has to leave a map that is nearly full: of the networks that have most clients in it those whose time
/// is over first, so that a network that fills the map loses its own clients and not those of others.
fn evicted(mut clients: Vec<Client>) -> Vec<Bytes> {
    if clients.len() < CROWDED {
        return Vec::new();
    }
    clients.sort_unstable_by(|one, other| {
        one.network.cmp(&other.network).then(other.expires.cmp(&one.expires))
    });
    let by_network = clients.chunk_by(|one, other| one.network == other.network);
    let ranked = by_network.flat_map(|network| (0_usize..).zip(network));
    let mut ranked: Vec<(usize, &Client)> = ranked.collect();
    ranked.sort_by(|(rank, one), (other_rank, other)| {
        other_rank.cmp(rank).then(one.expires.cmp(&other.expires))
    });
    let leaving = ranked.len().saturating_sub(STAY);
    ranked[..leaving].iter().map(|(_, client)| client.key).collect()
}

/// The network of a client: what is usually given to one user or site.
fn network(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(address) => u64::from(u32::from(address) >> 8),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// A client that the kernel remembers.
struct Remembered {
    client: IpAddr,
    /// The frontends that it may have used, the most specific first.
    frontends: [Frontend; 2],
    /// The endpoint that it stays with.
    endpoint: SocketAddr,
}

fn remembered(family: Family, seen: &DumpedElement<'_>) -> Option<Remembered> {
    let mut key = Parts(seen.key);
    let client = key.address(family)?;
    let (address, protocol, port) = (key.address(family)?, key.protocol()?, key.port()?);
    let Some(Data::Value(data)) = seen.data else { return None };
    let mut data = Parts(data);
    let endpoint = SocketAddr::new(data.address(family)?, data.port()?);
    let protocol = Protocol::of_number(protocol)?;
    let family = routing_family(family);
    let at = |address| Frontend { address, family, protocol, port };
    Some(Remembered { client, frontends: [at(Some(address)), at(None)], endpoint })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32, network: u64, seconds: u64) -> Client {
        Client { network, expires: Duration::from_secs(seconds), key: Bytes::new().number(number) }
    }

    #[test]
    fn a_network_that_fills_a_map_loses_its_own_clients() {
        let few = (0..1000).map(|number| client(number, u64::from(number), 1));
        let many = (1000..CLIENTS).map(|number| client(number, 1 << 40, u64::from(number)));
        let evicted: BTreeSet<Bytes> = evicted(few.chain(many).collect()).into_iter().collect();
        let oldest = (1000..).take(CLIENTS as usize - STAY);
        let expected: BTreeSet<Bytes> = oldest.map(|number| Bytes::new().number(number)).collect();
        assert_eq!(evicted, expected);
    }

    #[test]
    fn among_networks_of_one_client_the_oldest_leave() {
        let clients =
            (0..CLIENTS).map(|number| client(number, u64::from(number), u64::from(number)));
        let evicted: BTreeSet<Bytes> = evicted(clients.collect()).into_iter().collect();
        let oldest = (0..).take(CLIENTS as usize - STAY);
        let expected: BTreeSet<Bytes> = oldest.map(|number| Bytes::new().number(number)).collect();
        assert_eq!(evicted, expected);
    }

    #[test]
    fn where_there_is_room_nobody_leaves() {
        let clients = (0..CROWDED as u32 - 1).map(|number| client(number, 1, 1));
        assert_eq!(evicted(clients.collect()), []);
    }
}
