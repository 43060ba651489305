//! Free ports on loopback.
//!
//! They are taken below the range from which the kernel gives ports to outgoing connections: a server that is
//! killed and started again on its port must not find a client's connection sitting on it.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Starts anywhere, so that processes seldom meet; counts up, so that one process never meets itself.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(random() >> 1));

/// A port that is free now. Another process may take it before its use, so callers try again.
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
