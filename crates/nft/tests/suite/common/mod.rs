//! A fresh network namespace for each test, and the `nft` program in it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use zonewise_nft::Family;

pub(crate) use crate::everything::{address, service};

/// Runs a test in its own network namespace, which ends with it. Needs root.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root: a network namespace each");
        loopback_up();
        test()
    });
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Brings up the loopback interface of this namespace.
fn loopback_up() {
    use netlink_sys::protocols::NETLINK_ROUTE;
    let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let mut message = vec![0; 32];
    message[0..4].copy_from_slice(&32_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&16_u16.to_ne_bytes()); // new link
    message[6..8].copy_from_slice(&0x5_u16.to_ne_bytes()); // request, acknowledge
    message[20..24].copy_from_slice(&1_u32.to_ne_bytes()); // interface 1
    message[24..28].copy_from_slice(&1_u32.to_ne_bytes()); // up
    message[28..32].copy_from_slice(&1_u32.to_ne_bytes()); // of the flags, only this one
    let kernel = netlink_sys::SocketAddr::new(0, 0);
    socket.send_to(&message, &kernel, 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    assert_eq!(answer[16..20], [0; 4], "loopback stays down");
}

/// What `nft` prints; fails if it fails or complains.
pub(crate) fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output();
    let output = output.expect("the nft program is missing: apt-get install nftables");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {arguments:?}: {} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The rules of a chain as `nft` lists them, without what packets change.
pub(crate) fn listed_rules(family: Family, table: &str, chain: &str) -> Vec<String> {
    let text = nft(&["list", "chain", &family.to_string(), table, chain]);
    let rules = text.lines().filter(|line| line.starts_with("\t\t") && !line.contains(" hook "));
    rules.map(|line| line.trim().replace("counter packets 0 bytes 0", "counter")).collect()
}

/// What `nft -j` says about a table: a list of objects.
pub(crate) fn listed_json(family: Family, table: &str) -> Vec<serde_json::Value> {
    let text = nft(&["-j", "list", "table", &family.to_string(), table]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["nftables"].as_array().unwrap().clone()
}

/// The object of a kind with a name.
pub(crate) fn find<'a>(
    list: &'a [serde_json::Value],
    kind: &str,
    name: &str,
) -> &'a serde_json::Value {
    let found = list.iter().map(|object| &object[kind]).find(|object| object["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name} in {list:#?}"))
}
