//! Session affinity: the kernel remembers the endpoint of each client by itself. Entries whose endpoint
//! is gone are removed here.

use std::net::{IpAddr, SocketAddr};

use zonewise_nft::{Batch, Bytes, Data, DumpedElement, Family, Parts, Verb};
use zonewise_routing::{Frontend, Protocol};

use super::encode::{self, Names};
use super::error_kind::ErrorKind;
use super::{Kernel, KernelError};
use crate::rules::TABLE;
use crate::rules::delta::ElementId;
use crate::rules::entries::{Value, routing_family};
use crate::rules::sets::Set;

impl Kernel {
    /// Removes clients whose endpoint is gone or not for them any more, or whose Service no longer has
    /// session affinity.
    pub fn purge_affinity(&mut self) -> Result<usize, KernelError> {
        let mut stale: Vec<ElementId> = Vec::new();
        let set = Set::Affinity;
        for family in self.families.clone() {
            let (desired, options) = (&self.desired, &self.options);
            let inside =
                |client| options.is_pod(client) || desired.node().addresses.contains(&Some(client));
            self.socket.dump(family, TABLE, set.name(), &mut |seen: DumpedElement<'_>| {
                let keeps = remembered(family, &seen).is_some_and(|known| {
                    desired.is_sticky_to(&known.frontends, inside(known.client), known.endpoint)
                });
                if !keeps {
                    stale.push(ElementId { family, set, key: Bytes::from_slice(seen.key) });
                }
            })?;
        }
        if stale.is_empty() {
            return Ok(0);
        }
        let mut batch = Batch::new(TABLE);
        let items = stale.iter().map(|id| (*id, &Value::Present));
        encode::write(&mut batch, &Names::default(), Verb::Delete, items);
        match self.send(&batch) {
            // One of them timed out meanwhile, so that the batch failed as a whole. The others time out
            // too, or are removed the next time.
            Err(error) if ErrorKind::of(&error) == ErrorKind::OutOfSync => Ok(0),
            result => result.map(|()| stale.len()),
        }
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
