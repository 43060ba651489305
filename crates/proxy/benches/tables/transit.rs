//! The memory that a change needs on its way to the kernel: the peak of the process while many elements change at
//! once, above what it holds before.

use anyhow::{Context, Result};
use serde_json::json;

use crate::Row;
use crate::node::{ENDPOINTS, Node};

pub(crate) fn measure(scale: u32) -> Result<Vec<Row>> {
    let mut node = Node::new()?;
    for number in 0..scale {
        node.add(number, &json!({}))?;
    }
    node.sync()?;
    for number in 0..scale {
        node.listen(number, 9090)?;
    }
    let updates = node.updates();
    // The peak starts again from here.
    std::fs::write("/proc/self/clear_refs", "5").context("the peak cannot be reset")?;
    let before = kibibytes("VmRSS")?;
    node.apply(updates)?;
    let peak = kibibytes("VmHWM")?;
    let changed = u64::from(scale * ENDPOINTS);
    let each = (peak - before) * 1024 / changed;
    let name = format!("{changed} elements changed at once: memory on their way, each");
    Ok(vec![Row::new(name, format!("{each} bytes"))])
}

/// A figure of this process in `/proc`.
fn kibibytes(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("/proc/self/status has no {field}"))
}
