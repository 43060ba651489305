//! Weights of five thousand Services.

use fastrand::Rng;
use serde_json::{Value, json};
use zonewise_netns::Namespace;

use crate::common::objects::{annotated, service, slice, with};
use crate::common::weighted::{SHARES, chain_names, members, shares, tables};

/// One Service of any size and kind.
fn varied(rng: &mut Rng, number: u16) -> (Value, Value) {
    let [high, low] = number.to_be_bytes();
    let name = format!("s{number}");
    let object = service(&name, &[&format!("10.96.{high}.{low}")]);
    let changes = match rng.u8(..10) {
        0 => json!({"type": "NodePort", "ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30_000 + number % 2_700}]}),
        1 => json!({"externalIPs": [format!("198.51.{high}.{low}")]}),
        2 => {
            json!({"externalIPs": [format!("198.51.{high}.{low}")], "type": "NodePort", "externalTrafficPolicy": "Local",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30_000 + number % 2_700}]})
        }
        3 => json!({"sessionAffinity": "ClientIP"}),
        _ => json!({}),
    };
    let most = [3, 3, 6, 10, 20, 60][rng.usize(..6)];
    let counts = [rng.u32(1..=most), rng.u32(0..=most), rng.u32(0..=most)];
    let zone = |n| {
        if n < counts[0] {
            "a"
        } else if n < counts[0] + counts[1] {
            "b"
        } else {
            "c"
        }
    };
    let all = members(u32::from(number) * 256, counts.iter().sum(), zone);
    let object_slice = slice(&name, &format!("{name}-1"), &all);
    let asked = counts.map(|count| if count == 0 { 0 } else { rng.u32(50..1_000) });
    let millionths = |part: u32| u64::from(part) * 1_000_000 / u64::from(asked.iter().sum::<u32>());
    let [_, b, c] = asked.map(millionths);
    let parts = [1_000_000 - b - c, b, c].map(|part| part as f64 / 1e6);
    let annotation = shares(counts, parts);
    (with(object, changes), annotated(object_slice, SHARES, &annotation))
}

/// The number of chains follows the numbers of endpoints per zone, not the number of Services.
#[test]
fn five_thousand_services_with_weights_share_their_chains() {
    let namespace = Namespace::new("varied").unwrap();
    let mut tables = tables(&namespace);
    let mut rng = Rng::with_seed(16);
    let mut chains = Vec::new();
    for thousand in 0..5_u16 {
        for number in thousand * 1_000..(thousand + 1) * 1_000 {
            let (object, members) = varied(&mut rng, number);
            tables.service(&object).slice(&members);
        }
        tables.sync();
        // Services with session affinity have chains of their own.
        let shared = chain_names(&namespace).into_iter().filter(|name| !name.contains("affinity-"));
        chains.push(shared.collect::<Vec<String>>());
    }
    let counts: Vec<usize> = chains.iter().map(Vec::len).collect();
    eprintln!("1,000 to 5,000 Services of up to 180 endpoints: {counts:?} chains");
    // Policies and kinds of address by up to 60 endpoints, in each of three groups.
    assert!(counts[4] < 1_500, "{counts:?}");
    for group in ["clusterip-20-group-1", "clusterip-20-group-2", "external-3-group-1"] {
        assert!(chains[4].iter().any(|name| name == group), "{group} is not in {:?}", chains[4]);
    }
}
