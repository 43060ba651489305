//! Bytes come in, small structs leave.
//!
//! What is the same for all objects is decided here once: which node this is, and a short number
//! for each zone. An IPv4 endpoint of a slice then takes 8 bytes and no memory of its own.
//!
//! ```text
//!  {"addresses":["10.0.0.1"],"zone":"a","nodeName":"n1","hints":{…}}
//!                     │
//!                     ▼
//!  10.0.0.1, zone 1, ready + serving + local + hinted to my zone
//! ```
//!
//! A node that moves to another zone needs a new reader, and all slices must pass it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonewise_topology::reason::Reason;
use zonewise_topology::zone_shares::ZoneShares;

use crate::Name;
use crate::location::NodeLocation;
use crate::service::{self, RoutedService};
use crate::shares;
use crate::slice::{self, RoutedSlice, SlicePort};
use crate::wire::object;

/// A zone, by the number its reader gave it; 0 is no zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(u16);

impl ZoneId {
    /// No zone.
    pub const NONE: Self = Self(0);

    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Reads objects for one node.
#[derive(Debug)]
pub struct ObjectReader {
    location: NodeLocation,
    interner: Mutex<Interner>,
}

/// At most so many names and lists of ports are looked for; whoever has one keeps it.
const COMMON: usize = 1024;

/// What objects have in common: zones seen so far, names and lists of ports that many share, and the
/// last zone shares: the slices of a Service carry the same text, and its ports ask for the same shares
/// one after the other.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    ids: BTreeMap<Name, ZoneId>,
    zones: Vec<Name>,
    names: BTreeSet<Name>,
    ports: BTreeSet<Arc<[SlicePort]>>,
    text: Option<Arc<str>>,
    read: Option<(Arc<str>, Shares)>,
}

type Shares = Result<Arc<ZoneShares>, Reason>;

impl Interner {
    /// Zones beyond the last number count as no zone: traffic still flows, only not by zone.
    pub(crate) fn zone(&mut self, name: &str) -> ZoneId {
        if name.is_empty() {
            return ZoneId::NONE;
        }
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let Some(id) = u16::try_from(self.zones.len() + 1).ok().filter(|id| *id < u16::MAX) else {
            return ZoneId::NONE;
        };
        let name = Name::from(name);
        self.zones.push(Name::clone(&name));
        self.ids.insert(name, ZoneId(id));
        ZoneId(id)
    }

    /// A name that many objects share; none is the empty name.
    pub(crate) fn name(&mut self, text: Option<&str>) -> Name {
        let text = text.unwrap_or("");
        if let Some(known) = self.names.get(text) {
            return Name::clone(known);
        }
        let name = Name::from(text);
        keep(&mut self.names, Name::clone(&name));
        name
    }

    /// A list of ports that many slices share.
    pub(crate) fn ports(&mut self, list: Vec<SlicePort>) -> Arc<[SlicePort]> {
        if let Some(known) = self.ports.get(&*list) {
            return Arc::clone(known);
        }
        let list: Arc<[SlicePort]> = list.into();
        keep(&mut self.ports, Arc::clone(&list));
        list
    }

    /// The annotation's text, shared with the slice before if it is the same.
    pub(crate) fn shares(&mut self, text: &str) -> Arc<str> {
        match &self.text {
            Some(last) if **last == *text => Arc::clone(last),
            _ => Arc::clone(self.text.insert(text.into())),
        }
    }
}

fn keep<T: Ord>(all: &mut BTreeSet<T>, one: T) {
    if all.len() >= COMMON {
        all.clear();
    }
    all.insert(one);
}

impl ObjectReader {
    /// The reader of a node.
    pub fn new(location: NodeLocation) -> Self {
        Self { location: location.tidy(), interner: Mutex::default() }
    }

    /// The reader of the same node in another location; zones keep their numbers.
    pub fn relocated(&self, location: NodeLocation) -> Self {
        let interner = self.interner();
        let (ids, zones) = (interner.ids.clone(), interner.zones.clone());
        let known = Interner { ids, zones, ..Interner::default() };
        Self { location: location.tidy(), interner: Mutex::new(known) }
    }

    /// Who this node is.
    pub fn location(&self) -> &NodeLocation {
        &self.location
    }

    /// Reads an EndpointSlice. Endpoints and ports that cannot be used are left out; JSON of the
    /// wrong shape is an error.
    pub fn read_slice(&self, json: &str) -> Result<RoutedSlice, serde_json::Error> {
        let wire: slice::Wire<'_> = object(json)?;
        Ok(wire.read(&self.location, &mut self.interner()))
    }

    /// Reads a Service. Addresses and ports that cannot be used are left out; JSON of the wrong
    /// shape is an error.
    pub fn read_service(&self, json: &str) -> Result<RoutedService, serde_json::Error> {
        let wire: service::Wire<'_> = object(json)?;
        Ok(wire.read(&mut self.interner()))
    }

    /// The name of a zone; `None` for no zone.
    pub fn zone_name(&self, id: ZoneId) -> Option<Name> {
        let index = usize::from(id.0).checked_sub(1)?;
        self.interner().zones.get(index).cloned()
    }

    /// The number of a zone.
    pub fn zone_id(&self, name: &str) -> ZoneId {
        self.interner().zone(name)
    }

    /// Zone shares of an annotation, read again only when another one was asked for in between.
    pub(crate) fn shares(&self, text: &Arc<str>) -> Shares {
        let mut interner = self.interner();
        match &interner.read {
            Some((last, read)) if Arc::ptr_eq(last, text) => read.clone(),
            _ => {
                let read = shares::parse(text).map(Arc::new).map_err(|error| (&error).into());
                interner.read = Some((Arc::clone(text), read.clone()));
                read
            }
        }
    }

    /// Nothing panics while it is held, and a zone half entered does no harm.
    fn interner(&self) -> MutexGuard<'_, Interner> {
        self.interner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
