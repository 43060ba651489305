//! A real kernel beside the one in memory: it gets the same batches, and has to answer the same.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use crate::link::{Link, Received, is_acknowledgement};
use crate::parse::{Message, Messages, acknowledgement};
use crate::socket::{RuleInfo, Socket};
use crate::value::Family;

/// Calls a function where the real kernel is: in a network namespace of its own.
type Inside = Box<dyn Fn(&mut (dyn FnMut() + Send)) + Send>;

/// A real kernel, with one socket for each socket of the kernel in memory.
pub(super) struct Mirror {
    inside: Inside,
    links: BTreeMap<u32, Link>,
    differences: Vec<String>,
}

impl Mirror {
    pub(super) fn new(inside: Inside) -> Self {
        Self { inside, links: BTreeMap::new(), differences: Vec::new() }
    }

    fn open(&self) -> io::Result<Link> {
        let mut link = None;
        (self.inside)(&mut || link = Some(Link::open()));
        link.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }

    pub(super) fn close(&mut self, port: u32) {
        self.links.remove(&port);
    }

    /// Sends a batch to the real kernel and compares its answer with that of the kernel in memory.
    pub(super) fn commit(&mut self, port: u32, batch: &[u8], answer: &[u8], what: &str) {
        let here = Messages(answer).find_map(|message| acknowledgement(&message));
        let here = here.map_or(0, |found| found.errno);
        match self.send(port, batch) {
            Ok(there) if there == here => {}
            there => {
                self.differences.push(format!("{what}: {here} here, {there:?} in a real kernel"));
            }
        }
    }

    /// The error number of the real kernel's answer.
    fn send(&mut self, port: u32, batch: &[u8]) -> io::Result<i32> {
        if !self.links.contains_key(&port) {
            let link = self.open()?;
            self.links.insert(port, link);
        }
        let link = self.links.get_mut(&port).ok_or(io::ErrorKind::NotFound)?;
        link.send(&[IoSlice::new(batch)])?;
        loop {
            match link.receive()? {
                Received::Messages(mut messages) => {
                    let found = messages.find(|message: &Message<'_>| is_acknowledgement(message));
                    if let Some(found) = found.and_then(|message| acknowledgement(&message)) {
                        return Ok(found.errno);
                    }
                }
                Received::Overrun => return Err(io::ErrorKind::OutOfMemory.into()),
                Received::Nothing => link.wait()?,
            }
        }
    }

    /// What differed so far, and what differs now between the tables.
    pub(super) fn differences(&mut self, here: &mut Socket) -> Vec<String> {
        let there = self.open().map(Socket::over).and_then(|mut there| contents(&mut there));
        let mut all = std::mem::take(&mut self.differences);
        match (contents(here), there) {
            (Ok(here), Ok(there)) => {
                let only = |these: &[String], those: &[String]| -> Vec<String> {
                    these.iter().filter(|line| !those.contains(line)).cloned().collect()
                };
                all.extend(only(&here, &there).iter().map(|line| format!("only here: {line}")));
                all.extend(only(&there, &here).iter().map(|line| format!("only there: {line}")));
            }
            (here, there) => all.push(format!("cannot read: {here:?}, {there:?}")),
        }
        all
    }
}

/// Everything in the tables that a socket can list, without what differs from kernel to kernel.
fn contents(socket: &mut Socket) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for table in socket.tables()? {
        let (family, name) = (table.family, table.name.as_str());
        lines.push(format!("{family} {name}: {:x} {}", table.flags, table.comment));
        for chain in socket.chains(family, name)? {
            lines.push(format!("{family} {name} {chain:?}"));
        }
        for rule in socket.rules(family, name)? {
            lines.push(format!("{family} {name} {:?}", RuleInfo { handle: 0, ..rule }));
        }
        let counters = socket.counters(family, name)?;
        lines.extend(
            counters.iter().map(|counter| format!("{family} {name} counter {}", counter.name)),
        );
        for set in socket.sets(family, name)? {
            lines.push(format!("{family} {name} {set:?}"));
            elements(socket, family, name, &set.name, &mut lines)?;
        }
    }
    lines.sort();
    Ok(lines)
}

fn elements(
    socket: &mut Socket,
    family: Family,
    table: &str,
    set: &str,
    lines: &mut Vec<String>,
) -> io::Result<()> {
    socket.dump(family, table, set, &mut |element| {
        let (key, end, data, comment) =
            (element.key, element.key_end, element.data, element.comment);
        lines.push(format!("{family} {table} {set} {key:02x?} {end:02x?} {data:02x?} {comment}"));
    })
}
