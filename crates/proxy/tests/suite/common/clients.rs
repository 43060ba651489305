//! Clients of session affinity, in the maps of the kernel.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_nft::{Batch, Bytes, Data, Element, Family, Socket, Verb};
use zonewise_proxy::testing::TABLE;

use super::nft;

pub(crate) fn sticky() -> Value {
    json!({"sessionAffinity": "ClientIP"})
}

/// The maps of clients, by name.
pub(crate) fn maps(namespace: &Namespace) -> Vec<String> {
    let listed = nft(namespace, &["list", "maps", "ip"]);
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("map "));
    let names = names.filter_map(|line| line.split(' ').next());
    names.filter(|name| name.starts_with("affinity-")).map(str::to_owned).collect()
}

/// How many clients a map has.
pub(crate) fn count(namespace: &Namespace, map: &str) -> usize {
    let mut keys = BTreeSet::new();
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let mut note = |seen: zonewise_nft::DumpedElement<'_>| {
            keys.insert(Bytes::from_slice(seen.key));
        };
        socket.dump(Family::Ip, TABLE, map, &mut note).unwrap();
    });
    keys.len()
}

/// Puts clients into a map, as packets from so many addresses would. The table has no owner, so that this test can.
pub(crate) fn fill(namespace: &Namespace, map: &str, clients: u32, at: IpAddr, endpoint: IpAddr) {
    let data = Bytes::new().address(endpoint).port(8080);
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let all: Vec<u32> = (0..clients).collect();
        for portion in all.chunks(5000) {
            let mut batch = Batch::new(TABLE);
            let mut elements = batch.elements(Verb::Add, Family::Ip, map);
            for number in portion {
                let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + number);
                let key = Bytes::new().address(client.into()).address(at).protocol(6).port(80);
                let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
                elements.push(&Element { timeout: Some(Duration::from_secs(9000)), ..element });
            }
            drop(elements);
            socket.commit(&batch).unwrap();
        }
    });
}
