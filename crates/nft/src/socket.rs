//! The way to the kernel's rules: commits batches, reads back what is there.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::time::Duration;

use crate::batch::{
    Batch, GET_CHAIN, GET_ELEMENT, GET_GENERATION, GET_OBJECT, GET_RULE, GET_SET, GET_TABLE,
    describe,
};
use crate::error::{CommitError, Refusal};
use crate::expression::{self, code};
use crate::link::{Link, Received, is_verdict};
use crate::parse::{Attribute, Attributes, Message, Verdict, verdict};
use crate::rule::Rule;
use crate::value::Family;
use crate::wire::{self, ACK, DUMP, HEADER, Header, REQUEST};

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableInfo {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: String,
    /// Its flags; see [`crate::TableFlags::bits`].
    pub flags: u32,
    /// Its comment.
    pub comment: String,
    /// The port number of the socket that owns it.
    pub owner: Option<u32>,
}

/// A chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainInfo {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: String,
    /// It hangs on a hook.
    pub base: bool,
}

/// A set or map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetInfo {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: String,
    /// Bytes of a key.
    pub key_len: u32,
    /// Bytes of data; 0 for sets and maps of counters, 16 for verdict maps.
    pub data_len: u32,
    /// The kernel's flags.
    pub flags: u32,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleInfo {
    /// The chain it is in.
    pub chain: String,
    /// The kernel's number for it.
    pub handle: u64,
    /// Its comment.
    pub comment: String,
    /// Chains it always leads to, not those that maps lead to.
    pub jumps_to: Vec<String>,
    /// How many expressions it has.
    pub expressions: usize,
}

/// What a map was seen to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeenData<'a> {
    /// Nothing: it is a set.
    None,
    /// Bytes.
    Value(&'a [u8]),
    /// A verdict: the kernel's code, and its chain, which may be empty. Code 0 is drop, -4 goto.
    Verdict(i32, &'a str),
    /// An object with that name.
    Object(&'a str),
}

/// An element as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The last key of its interval, in sets of intervals over several parts.
    pub key_end: Option<&'a [u8]>,
    /// It only says that an interval ended before it, in sets of intervals of addresses.
    pub is_interval_end: bool,
    /// What the map says.
    pub data: SeenData<'a>,
    /// How long it still has.
    pub expires: Option<Duration>,
    /// Packets it counted.
    pub packets: Option<u64>,
    /// Its comment.
    pub comment: &'a str,
}

/// A socket for nftables. Blocks, but never longer than 30 seconds without an answer.
#[derive(Debug)]
pub struct Socket {
    link: Link,
}

impl Socket {
    /// Opens one in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no netfilter, or too many files are open.
    pub fn open() -> io::Result<Self> {
        Ok(Self { link: Link::open()? })
    }

    /// The number by which the kernel knows this socket: the owner of the tables it owns.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.link.port()
    }

    /// Applies a batch: all of it or nothing.
    ///
    /// # Errors
    /// The kernel refused a message, or the socket failed.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.commit_begun(batch, None)
    }

    /// Applies a batch, unless the rules have changed since that generation.
    ///
    /// # Errors
    /// As [`Socket::commit`]; error number 85 when the rules have changed.
    pub fn commit_at(&mut self, batch: &Batch, generation: u32) -> Result<(), CommitError> {
        self.commit_begun(batch, Some(generation))
    }

    fn commit_begun(&mut self, batch: &Batch, generation: Option<u32>) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let (body, last) = batch.parts();
        let begin = border(0x10, 0, generation);
        let end = border(0x11, batch.messages() + 1, None);
        // Errors come for any message, success only where it is asked for: at the last.
        let mut header = [0; HEADER];
        header.copy_from_slice(&body[last..last + HEADER]);
        let flags = u16::from_ne_bytes([header[6], header[7]]) | ACK;
        header[6..8].copy_from_slice(&flags.to_ne_bytes());
        let parts =
            [&begin, &body[..last], &header, &body[last + HEADER..], &end].map(IoSlice::new);
        self.link.send(&parts).map_err(CommitError::io)?;
        let answers = self.verdicts(batch.messages()).map_err(CommitError::io)?;
        judge(batch, answers)
    }

    /// What the kernel says about a batch whose last message has that number.
    fn verdicts(&mut self, last: u32) -> io::Result<Answers> {
        let mut answers = Answers::default();
        loop {
            match self.link.receive()? {
                Received::Overrun => answers.overrun = true,
                Received::Messages(messages) => {
                    for message in messages.filter(is_verdict) {
                        answers.add(&message, last);
                    }
                }
                // All answers are there before the sending call returns.
                Received::Nothing if answers.complete() => return Ok(answers),
                Received::Nothing => self.link.wait()?,
            }
        }
    }

    /// The generation of the rules: it changes with every commit of anybody in this namespace.
    ///
    /// # Errors
    /// The socket failed.
    pub fn generation(&mut self) -> io::Result<u32> {
        let request = self.get(GET_GENERATION, 0, None, |_| {});
        let mut generation = None;
        self.link.request(&request, &mut |message| {
            generation = message.attributes().get(1).and_then(Attribute::be32);
        })?;
        generation.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no generation"))
    }

    /// All tables of either family.
    ///
    /// # Errors
    /// The socket failed, or the rules changed meanwhile ([`io::ErrorKind::Interrupted`]).
    pub fn tables(&mut self) -> io::Result<Vec<TableInfo>> {
        let request = self.get(GET_TABLE, DUMP, None, |_| {});
        let mut tables = Vec::new();
        self.link.request(&request, &mut |message| tables.extend(table(message)))?;
        Ok(tables)
    }

    /// The chains of a table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn chains(&mut self, family: Family, table: &str) -> io::Result<Vec<ChainInfo>> {
        let mut chains = Vec::new();
        self.list(GET_CHAIN, family, table, &mut |attributes| {
            chains.push(ChainInfo {
                name: text(attributes, 3),
                comment: comment(attributes, 12, 0).to_owned(),
                base: attributes.get(4).is_some(),
            });
        })?;
        Ok(chains)
    }

    /// The sets and maps of a table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn sets(&mut self, family: Family, table: &str) -> io::Result<Vec<SetInfo>> {
        let mut sets = Vec::new();
        self.list(GET_SET, family, table, &mut |attributes| {
            let number = |kind| attributes.get(kind).and_then(Attribute::be32).unwrap_or_default();
            sets.push(SetInfo {
                name: text(attributes, 2),
                comment: comment(attributes, 13, 7).to_owned(),
                key_len: number(5),
                data_len: number(7),
                flags: number(3),
            });
        })?;
        Ok(sets)
    }

    /// The rules of a table, chain by chain in order.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn rules(&mut self, family: Family, table: &str) -> io::Result<Vec<RuleInfo>> {
        let mut rules = Vec::new();
        self.list(GET_RULE, family, table, &mut |attributes| {
            let expressions = attributes.get(4).map_or(Attributes(&[]), Attribute::nested);
            rules.push(RuleInfo {
                chain: text(attributes, 2),
                handle: attributes.get(3).and_then(Attribute::be64).unwrap_or_default(),
                comment: comment(attributes, 7, 0).to_owned(),
                jumps_to: expressions.filter_map(jump).collect(),
                expressions: expressions.count(),
            });
        })?;
        Ok(rules)
    }

    /// The named counters of a table: name, packets, bytes.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn counters(&mut self, family: Family, table: &str) -> io::Result<Vec<(String, u64, u64)>> {
        const COUNTER: u32 = 1;
        let mut counters = Vec::new();
        self.list(GET_OBJECT, family, table, &mut |attributes| {
            if attributes.get(3).and_then(Attribute::be32) == Some(COUNTER) {
                let data = attributes.get(4).map_or(Attributes(&[]), Attribute::nested);
                let number = |kind| data.get(kind).and_then(Attribute::be64).unwrap_or_default();
                counters.push((text(attributes, 2), number(2), number(1)));
            }
        })?;
        Ok(counters)
    }

    /// Hands every element of a set or map to `each`, as they come. The kernel walks a hash from
    /// its start for every 32 KiB it gives: 12,500 elements take 20 ms, 100,000 more than a second.
    ///
    /// # Errors
    /// The set is not there ([`io::ErrorKind::NotFound`]); the rules changed meanwhile
    /// ([`io::ErrorKind::Interrupted`]: forget what was seen and read again); the socket failed.
    pub fn dump(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        each: &mut dyn FnMut(Seen<'_>),
    ) -> io::Result<()> {
        let request = self.get(GET_ELEMENT, DUMP, Some(family), |out| {
            wire::string(out, 1, table);
            wire::string(out, 2, set);
        });
        self.link.request(&request, &mut |message| {
            let elements = message.attributes().get(3).map(Attribute::nested);
            for element in elements.into_iter().flatten() {
                each(seen(element.nested()));
            }
        })
    }

    /// Lists what a table has of one kind.
    fn list(
        &mut self,
        kind: u16,
        family: Family,
        table: &str,
        each: &mut dyn FnMut(Attributes<'_>),
    ) -> io::Result<()> {
        let request = self.get(kind, DUMP, Some(family), |out| wire::string(out, 1, table));
        self.link.request(&request, &mut |message| {
            let attributes = message.attributes();
            let of_table = attributes.get(1).is_some_and(|name| name.str() == table);
            if of_table && message.family() == family.number() {
                each(attributes);
            }
        })
    }

    fn get(
        &mut self,
        kind: u16,
        flags: u16,
        family: Option<Family>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let header = Header {
            kind: wire::nft(kind),
            flags: REQUEST | flags,
            sequence: self.link.next_sequence(),
            family: family.map_or(0, Family::number),
            resource: 0,
        };
        let mut out = Vec::new();
        wire::message(&mut out, header, body);
        out
    }
}

/// The begin or the end of a batch.
fn border(kind: u16, sequence: u32, generation: Option<u32>) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * HEADER);
    let header = Header { kind, flags: REQUEST, sequence, family: 0, resource: 10 };
    wire::message(&mut out, header, |out| {
        if let Some(generation) = generation {
            wire::be32(out, 1, generation);
        }
    });
    out
}

/// What came back for a batch.
#[derive(Default)]
struct Answers {
    refused: BTreeMap<u32, Verdict>,
    acknowledged: bool,
    overrun: bool,
}

impl Answers {
    fn add(&mut self, message: &Message<'_>, last: u32) {
        let Some(verdict) = verdict(message) else { return };
        if verdict.errno != 0 {
            self.refused.entry(message.sequence).or_insert(verdict);
        } else if message.sequence == last {
            self.acknowledged = true;
        }
    }

    fn complete(&self) -> bool {
        self.acknowledged || self.overrun || !self.refused.is_empty()
    }
}

fn judge(batch: &Batch, answers: Answers) -> Result<(), CommitError> {
    if answers.refused.is_empty() {
        if answers.acknowledged {
            return Ok(());
        }
        let lost = io::Error::new(io::ErrorKind::UnexpectedEof, "answers of the kernel were lost");
        return Err(CommitError::io(lost));
    }
    let mut refused: Vec<Refusal> = answers.refused.into_iter().map(refusal).collect();
    let mut messages = batch.numbered();
    for refusal in refused.iter_mut().filter(|refusal| refusal.message > 0) {
        if let Some((_, message)) = messages.find(|(number, _)| *number == refusal.message) {
            refusal.what = describe(&message);
        }
    }
    Err(CommitError { refused, source: None })
}

fn refusal((message, verdict): (u32, Verdict)) -> Refusal {
    let Verdict { errno, text, offset } = verdict;
    Refusal { message, what: "the batch as a whole".to_owned(), errno, text, offset }
}

fn text(attributes: Attributes<'_>, kind: u16) -> String {
    attributes.get(kind).map(Attribute::text).unwrap_or_default()
}

fn comment(attributes: Attributes<'_>, user_data: u16, kind: u8) -> &str {
    attributes.get(user_data).map(|data| data.comment(kind)).unwrap_or_default()
}

fn table(message: &Message<'_>) -> Option<TableInfo> {
    let attributes = message.attributes();
    let number = |kind| attributes.get(kind).and_then(Attribute::be32);
    Some(TableInfo {
        family: Family::from_number(message.family())?,
        name: text(attributes, 1),
        flags: number(2).unwrap_or_default(),
        comment: comment(attributes, 6, 0).to_owned(),
        owner: number(7),
    })
}

/// The chain an expression always leads to.
impl Rule {
    /// How the kernel would describe it; a rule that is not there has no handle.
    #[must_use]
    pub fn info(&self, family: Family, chain: &str) -> RuleInfo {
        let mut bytes = Vec::new();
        expression::encode(&mut bytes, family, self);
        RuleInfo {
            chain: chain.to_owned(),
            handle: 0,
            comment: self.comment.clone(),
            jumps_to: Attributes(&bytes).filter_map(jump).collect(),
            expressions: Attributes(&bytes).count(),
        }
    }
}

fn jump(expression: Attribute<'_>) -> Option<String> {
    let expression = expression.nested();
    if expression.get(1)?.str() != "immediate" {
        return None;
    }
    let data = expression.get(2)?.nested().get(2)?.nested();
    match verdict_of(data)? {
        (code::JUMP | code::GOTO, chain) => Some(chain.to_owned()),
        _ => None,
    }
}

fn verdict_of(data: Attributes<'_>) -> Option<(i32, &str)> {
    let verdict = data.get(2)?.nested();
    let code = i32::from_be_bytes(*verdict.get(1)?.value.first_chunk()?);
    Some((code, verdict.get(2).map(Attribute::str).unwrap_or_default()))
}

fn seen(element: Attributes<'_>) -> Seen<'_> {
    const END: u32 = 1;
    let value = |kind| Some(element.get(kind)?.nested().get(1)?.value);
    let flags = element.get(3).and_then(Attribute::be32).unwrap_or_default();
    Seen {
        key: value(1).unwrap_or_default(),
        key_end: value(10),
        is_interval_end: flags & END != 0,
        data: seen_data(element),
        expires: element.get(5).and_then(Attribute::be64).map(Duration::from_millis),
        packets: packets(element),
        comment: comment(element, 6, 0),
    }
}

fn seen_data(element: Attributes<'_>) -> SeenData<'_> {
    if let Some(object) = element.get(9) {
        return SeenData::Object(object.str());
    }
    let Some(data) = element.get(2).map(Attribute::nested) else { return SeenData::None };
    if let Some((code, chain)) = verdict_of(data) {
        return SeenData::Verdict(code, chain);
    }
    data.get(1).map_or(SeenData::None, |value| SeenData::Value(value.value))
}

/// The packets of the first counter among an element's expressions.
fn packets(element: Attributes<'_>) -> Option<u64> {
    let single = element.get(7);
    let list = element.get(11).map(Attribute::nested).into_iter().flatten();
    let counter = single.into_iter().chain(list).map(Attribute::nested);
    let mut counter =
        counter.filter(|counter| counter.get(1).is_some_and(|n| n.str() == "counter"));
    counter.next()?.get(2)?.nested().get(2)?.be64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse::Messages;

    proptest! {
        /// Whatever the kernel might send, reading it ends and does not panic.
        #[test]
        fn malformed_answers_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = verdict(&message);
                let _ = table(&message);
            }
            let attributes = Attributes(&bytes);
            let _ = seen(attributes);
            let _ = comment(attributes, 6, 0);
            for attribute in attributes {
                let _ = jump(attribute);
                let _ = (attribute.text(), attribute.be16(), attribute.be64(), attribute.ne32());
            }
            let _ = crate::parse::comment(&bytes, 0);
        }
    }
}
