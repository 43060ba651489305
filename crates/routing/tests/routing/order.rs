//! Targets are sorted by the bytes of `ip:port`.

use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::json;
use zonewise_routing::{Family, Protocol, RoutedSlice, Target, merge};

use crate::common::reader;

fn targets(ips: &[IpAddr], ports: &[u16]) -> Vec<Target> {
    let reader = reader("a");
    let read = |family: &str, ip: &IpAddr, port: u16| {
        let slice = json!({
            "metadata": { "name": format!("{ip}-{port}") },
            "addressType": family,
            "ports": [{ "name": "http", "port": port }],
            "endpoints": [{ "addresses": [ip.to_string()] }],
        });
        reader.read_slice(&slice.to_string()).unwrap()
    };
    let slices: Vec<RoutedSlice> = ips
        .iter()
        .zip(ports)
        .map(|(ip, port)| read(if ip.is_ipv4() { "IPv4" } else { "IPv6" }, ip, *port))
        .collect();
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    Family::BOTH.iter().flat_map(|family| merge(&slices, *family, "http", Protocol::Tcp)).collect()
}

#[test]
fn the_end_of_a_number_counts() {
    let ips = ["10.0.1.1", "10.0.1.10", "10.0.1.2", "10.0.10.1", "10.0.1.1"];
    let ips = ips.map(|ip| ip.parse().unwrap());
    let sorted =
        targets(&ips, &[80, 80, 80, 80, 8]).iter().map(Target::to_string).collect::<Vec<_>>();
    let expected = ["10.0.1.10:80", "10.0.1.1:8", "10.0.1.1:80", "10.0.1.2:80", "10.0.10.1:80"];
    assert_eq!(sorted, expected);
}

/// Addresses that are close to each other, where the order is decided late.
fn address() -> impl Strategy<Value = IpAddr> {
    let octet = || prop_oneof![0u8..30, 95u8..=255, Just(100), Just(10)];
    let v4 = [octet(), octet(), octet(), octet()].prop_map(IpAddr::from);
    let group = || prop_oneof![Just(0u16), 0u16..40, any::<u16>()];
    let groups = [group(), group(), group(), group(), group(), group(), group(), group()];
    let v6 = groups.prop_map(|groups| IpAddr::from(groups).to_canonical());
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn the_order_is_that_of_the_text(
        ips in prop::collection::vec(address(), 2..12),
        ports in prop::collection::vec(prop_oneof![1u16..120, 1u16..=65535], 12),
    ) {
        let sorted = targets(&ips, &ports);
        let texts = |family: bool| -> Vec<String> {
            let mine = sorted.iter().filter(|target| target.address.is_ipv4() == family);
            mine.map(Target::to_string).collect()
        };
        for family in [true, false] {
            let mut expected = texts(family);
            expected.sort();
            expected.dedup();
            prop_assert_eq!(texts(family), expected);
        }
        for (one, other) in sorted.iter().zip(sorted.iter().skip(1)) {
            prop_assert_eq!(one.cmp(other), one.to_string().cmp(&other.to_string()));
        }
    }
}

#[test]
fn structs_stay_small() {
    assert!(size_of::<zonewise_routing::SliceEndpoint>() <= 20);
    assert!(size_of::<Target>() <= 24);
}
