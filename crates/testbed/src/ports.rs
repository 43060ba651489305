//! Free ports on loopback.
//!
//! They are below the range that the kernel uses for outgoing connections (`ip_local_port_range`, from 32768), so
//! that no client's connection occupies the port of a server that is killed and started again.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Starts at a random port, so that processes seldom collide, and counts up, so that one process never collides with
/// itself.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(random() >> 1));

/// A port that is free now. Another process may take it before it is used, so callers have to try again.
pub(crate) fn free() -> Result<u16> {
    (0..COUNT)
        .filter_map(|_| u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(COUNT)).ok())
        .map(|offset| FIRST + offset)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port on 127.0.0.1 from 12000 to 31999")
}

/// Unpredictable enough for names, ports and the tokens of a server that lives for seconds.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
