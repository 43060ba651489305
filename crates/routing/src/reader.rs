//! Reads Services and EndpointSlices, for one node.
//!
//! Whatever depends on the node is decided while an object is read: whether an endpoint runs on
//! this node, and whether it is hinted to this node or its zone. Zones are replaced by numbers. An
//! IPv4 endpoint then takes 8 bytes and no allocation of its own.
//!
//! ```text
//!  {"addresses":["10.0.0.1"],"zone":"a","nodeName":"n1","hints":{…}}
//!                     │
//!                     ▼
//!  10.0.0.1, zone 1, ready + serving + local + hinted to my zone
//! ```
//!
//! When the node's zone or region changes, a new reader is needed and all slices must be read again.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::Name;
use zonewise_topology::reason::Reason;
use zonewise_topology::zone_shares::ZoneShares;

use crate::location::NodeLocation;
use crate::service::{self, RoutedService};
use crate::shares;
use crate::slice::{self, RoutedSlice, SlicePort};
use crate::wire::object;
use crate::zones::{ZoneId, Zones};

/// Reads objects as one node sees them.
#[derive(Debug)]
pub struct ObjectReader {
    location: NodeLocation,
    interner: Mutex<Interner>,
}

/// Names and port lists that are remembered for sharing. When there are more, all are forgotten and
/// sharing starts again; objects that hold one keep it.
const MAX_INTERNED: usize = 1024;

/// Values that many objects have in common are stored once and shared.
///
/// Zone shares are remembered only for the last annotation: the slices of a Service come one after
/// the other and carry the same text, and its ports are routed one after the other.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    pub(crate) zones: Zones,
    names: BTreeSet<Name>,
    ports: BTreeSet<Arc<[SlicePort]>>,
    last_text: Option<Arc<str>>,
    last_parsed: Option<(Arc<str>, ParsedShares)>,
}

type ParsedShares = Result<Arc<ZoneShares>, Reason>;

impl Interner {
    /// A shared copy of a name; `None` becomes the empty name.
    pub(crate) fn name(&mut self, text: Option<&str>) -> Name {
        let text = text.unwrap_or("");
        if let Some(known) = self.names.get(text) {
            return Name::clone(known);
        }
        let name = Name::from(text);
        keep(&mut self.names, Name::clone(&name));
        name
    }

    /// A shared copy of a list of ports.
    pub(crate) fn ports(&mut self, list: Vec<SlicePort>) -> Arc<[SlicePort]> {
        if let Some(known) = self.ports.get(&*list) {
            return Arc::clone(known);
        }
        let list: Arc<[SlicePort]> = list.into();
        keep(&mut self.ports, Arc::clone(&list));
        list
    }

    /// The text of the zone-shares annotation, shared with the slice read before if it is equal.
    pub(crate) fn shares(&mut self, text: &str) -> Arc<str> {
        match &self.last_text {
            Some(last) if **last == *text => Arc::clone(last),
            _ => Arc::clone(self.last_text.insert(text.into())),
        }
    }
}

/// An EndpointSlice that is parsed, and not yet read for a node.
pub struct ParsedSlice<'a>(slice::Wire<'a>);

impl<'a> ParsedSlice<'a> {
    /// Parses an EndpointSlice.
    ///
    /// # Errors
    /// If the JSON is not valid or has a value of the wrong type.
    pub fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        object(json).map(Self)
    }
}

fn keep<T: Ord>(all: &mut BTreeSet<T>, one: T) {
    if all.len() >= MAX_INTERNED {
        all.clear();
    }
    all.insert(one);
}

impl ObjectReader {
    /// A reader for a node.
    pub fn new(location: NodeLocation) -> Self {
        Self { location: location.normalized(), interner: Mutex::default() }
    }

    /// A reader for another place: the same node after its zone or region has changed, or another node.
    /// Zones keep their numbers, and the last zone shares are remembered.
    pub fn relocated(&self, location: NodeLocation) -> Self {
        let interner = self.interner();
        let (last_text, last_parsed) = (interner.last_text.clone(), interner.last_parsed.clone());
        let zones = interner.zones.clone();
        let known = Interner { zones, last_text, last_parsed, ..Interner::default() };
        Self { location: location.normalized(), interner: Mutex::new(known) }
    }

    /// The node that this reader reads for.
    pub fn location(&self) -> &NodeLocation {
        &self.location
    }

    /// Reads an EndpointSlice from JSON. Endpoints and ports that cannot be used are left out.
    ///
    /// # Errors
    /// If the JSON is not valid or has a value of the wrong type.
    pub fn read_slice(&self, json: &str) -> Result<RoutedSlice, serde_json::Error> {
        Ok(self.read_parsed(&ParsedSlice::parse(json)?))
    }

    /// The same in the form that the API server has sent.
    ///
    /// # Errors
    /// If the object is not valid or has a value of the wrong type.
    pub fn decode_slice(&self, slice: Encoded<'_>) -> Result<RoutedSlice, DecodeError> {
        match slice {
            Encoded::Json(json) => Ok(self.read_slice(json)?),
            Encoded::Protobuf(..) => Ok(self.read_parsed(&ParsedSlice(slice.decode()?))),
        }
    }

    /// The same for a slice that has been parsed: readers of many nodes read it without parsing it again.
    pub fn read_parsed(&self, slice: &ParsedSlice<'_>) -> RoutedSlice {
        slice.0.read(&self.location, &mut self.interner())
    }

    /// Reads a Service from JSON. Addresses and ports that cannot be used are left out.
    ///
    /// # Errors
    /// If the JSON is not valid or has a value of the wrong type.
    pub fn read_service(&self, json: &str) -> Result<RoutedService, serde_json::Error> {
        let wire: service::Wire<'_> = object(json)?;
        Ok(wire.read(&mut self.interner()))
    }

    /// The same in the form that the API server has sent.
    ///
    /// # Errors
    /// If the object is not valid or has a value of the wrong type.
    pub fn decode_service(&self, service: Encoded<'_>) -> Result<RoutedService, DecodeError> {
        match service {
            Encoded::Json(json) => Ok(self.read_service(json)?),
            Encoded::Protobuf(..) => {
                Ok(service.decode::<service::Wire<'_>>()?.read(&mut self.interner()))
            }
        }
    }

    /// The name of a zone; `None` for [`ZoneId::NONE`].
    pub fn zone_name(&self, id: ZoneId) -> Option<Name> {
        self.interner().zones.name(id)
    }

    /// Zones that are not in `used`, and that nothing which was read since the last call has named.
    pub fn unused_zones(&self, used: &BTreeSet<ZoneId>) -> BTreeSet<ZoneId> {
        self.interner().zones.unused(used)
    }

    /// Gives the numbers of zones back, but for those that something which was read meanwhile has named.
    pub fn forget_zones(&self, zones: &BTreeSet<ZoneId>) {
        self.interner().zones.forget(zones);
    }

    /// Parses the text of a zone-shares annotation. The last result is remembered.
    pub(crate) fn shares(&self, text: &Arc<str>) -> ParsedShares {
        let mut interner = self.interner();
        match &interner.last_parsed {
            Some((last, read)) if Arc::ptr_eq(last, text) => read.clone(),
            _ => {
                let read = shares::parse(text).map(Arc::new).map_err(|error| (&error).into());
                interner.last_parsed = Some((Arc::clone(text), read.clone()));
                read
            }
        }
    }

    fn interner(&self) -> MutexGuard<'_, Interner> {
        self.interner.lock()
    }
}
