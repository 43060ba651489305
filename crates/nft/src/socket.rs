//! The nftables socket: commits batches and reads tables back.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::time::Duration;

use crate::abi;
use crate::batch::{Batch, TABLE_ATTRIBUTE, describe};
use crate::error::{CommitError, Refusal};
use crate::expression;
use crate::link::{Link, Received, is_acknowledgement};
use crate::parse::{Acknowledgement, Attribute, Attributes, Message, acknowledgement};
use crate::rule::Rule;
use crate::value::{Data, Family};
use crate::wire::{self, HEADER_LEN, Header};

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
    /// The netlink port id of the socket that owns it.
    pub owner: Option<u32>,
}

/// A chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainInfo {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: String,
    /// It is a base chain: attached to a hook.
    pub base: bool,
}

/// A named counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// Its name.
    pub name: String,
    /// The packets it has counted.
    pub packets: u64,
    /// The bytes it has counted.
    pub bytes: u64,
}

/// A set or map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetInfo {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: String,
    /// The length of a key in bytes.
    pub key_len: u32,
    /// The length of the data in bytes; 0 for sets and maps of counters, 16 for verdict maps.
    pub data_len: u32,
    /// The kernel's flags (`NFT_SET_…`).
    pub flags: u32,
    /// How many elements it can have; `None` without a limit.
    pub size: Option<u32>,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleInfo {
    /// The chain it is in.
    pub chain: String,
    /// The kernel's handle for it.
    pub handle: u64,
    /// Its comment.
    pub comment: String,
    /// The chains of its jump and goto statements, without those that verdict maps lead to.
    pub jumps_to: Vec<String>,
    /// How many expressions it has.
    pub expressions: usize,
}

/// An element as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpedElement<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The last key of its interval, in sets of intervals over several parts.
    pub key_end: Option<&'a [u8]>,
    /// Its data; `None` if that is a verdict other than those in [`Data`].
    pub data: Option<Data<'a>>,
    /// The time until the kernel removes it.
    pub expires: Option<Duration>,
    /// The packets it has counted.
    pub packets: Option<u64>,
    /// Its comment.
    pub comment: &'a str,
}

/// How often a list is read while other programs change tables.
const READ_AGAIN: usize = 10;

/// A netlink socket for nftables. Its methods block, but at most 30 seconds without a response.
#[derive(Debug)]
pub struct Socket {
    link: Link,
}

impl Socket {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no netfilter, or too many files are open.
    pub fn open() -> io::Result<Self> {
        Ok(Self::over(Link::open()?))
    }

    pub(crate) fn over(link: Link) -> Self {
        Self { link }
    }

    /// The socket's netlink port id: [`TableInfo::owner`] of the tables it owns.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.link.port()
    }

    /// Applies a batch: all of it or nothing.
    ///
    /// # Errors
    /// The kernel refused a message, or the socket failed.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.commit_if(batch, None)
    }

    /// Applies a batch, unless any table has changed since that generation.
    ///
    /// # Errors
    /// As [`Socket::commit`]; `ERESTART` if a table has changed.
    pub fn commit_at(&mut self, batch: &Batch, generation: u32) -> Result<(), CommitError> {
        self.commit_if(batch, Some(generation))
    }

    /// Has the kernel check a batch, as `nft --check` does; nothing is changed.
    ///
    /// # Errors
    /// As [`Socket::commit`].
    pub fn check(&mut self, batch: &Batch) -> Result<(), CommitError> {
        // The kernel undoes a batch that does not end.
        self.send_batch(batch, None, &[])
    }

    fn commit_if(&mut self, batch: &Batch, generation: Option<u32>) -> Result<(), CommitError> {
        let end = delimiter(abi::NFNL_MSG_BATCH_END, batch.messages() + 1, None);
        self.send_batch(batch, generation, &end)
    }

    fn send_batch(
        &mut self,
        batch: &Batch,
        generation: Option<u32>,
        end: &[u8],
    ) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let (body, last) = batch.parts();
        let begin = delimiter(abi::NFNL_MSG_BATCH_BEGIN, 0, generation);
        // The kernel reports errors of every message, but success only for messages that request an
        // acknowledgement: here the last one does.
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&body[last..last + HEADER_LEN]);
        let flags = u16::from_ne_bytes([header[6], header[7]]) | abi::NLM_F_ACK;
        header[6..8].copy_from_slice(&flags.to_ne_bytes());
        let parts =
            [&begin, &body[..last], &header, &body[last + HEADER_LEN..], end].map(IoSlice::new);
        self.link.send(&parts).map_err(CommitError::io)?;
        let responses = self.responses(batch.messages()).map_err(CommitError::io)?;
        responses.into_result(batch)
    }

    /// The kernel's responses to a batch whose last message has this number.
    fn responses(&mut self, last: u32) -> io::Result<BatchResponses> {
        let mut responses = BatchResponses::default();
        loop {
            match self.link.receive()? {
                Received::Overrun => responses.overrun = true,
                Received::Messages(messages) => {
                    for message in messages.filter(is_acknowledgement) {
                        responses.add(&message, last);
                    }
                }
                // All responses have arrived before the sending call returns.
                Received::Nothing if responses.complete() => return Ok(responses),
                Received::Nothing => self.link.wait()?,
            }
        }
    }

    /// The generation of all tables: it changes with every commit of any program in this network
    /// namespace.
    ///
    /// # Errors
    /// The socket failed.
    pub fn generation(&mut self) -> io::Result<u32> {
        let request = self.get(abi::NFT_MSG_GETGEN, 0, None, |_| {});
        let mut generation = None;
        self.link.request(&request, &mut |message| {
            generation = message.attributes().get(abi::NFTA_GEN_ID).and_then(Attribute::be32);
        })?;
        let missing =
            || io::Error::new(io::ErrorKind::InvalidData, "the kernel sent no generation");
        generation.ok_or_else(missing)
    }

    /// All tables of both families.
    ///
    /// Like all lists of this socket it is read again while other programs change tables. After ten times it
    /// is taken as it is: their changes are most likely to tables of their own.
    ///
    /// # Errors
    /// The socket failed.
    pub fn tables(&mut self) -> io::Result<Vec<TableInfo>> {
        self.read_again(|socket, tables| {
            let request = socket.get(abi::NFT_MSG_GETTABLE, abi::NLM_F_DUMP, None, |_| {});
            socket.link.request(&request, &mut |message| tables.extend(table(message)))
        })
    }

    /// Reads a list, again if a table has changed meanwhile, but not for ever.
    fn read_again<T>(
        &mut self,
        mut read: impl FnMut(&mut Self, &mut Vec<T>) -> io::Result<()>,
    ) -> io::Result<Vec<T>> {
        let mut list = Vec::new();
        for _ in 0..READ_AGAIN {
            list.clear();
            match read(self, &mut list) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(|()| list),
            }
        }
        Ok(list)
    }

    /// The chains of a table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn chains(&mut self, family: Family, table: &str) -> io::Result<Vec<ChainInfo>> {
        self.list(abi::NFT_MSG_GETCHAIN, family, table, &mut |attributes| {
            Some(ChainInfo {
                name: text(attributes, abi::NFTA_CHAIN_NAME),
                comment: comment(
                    attributes,
                    abi::NFTA_CHAIN_USERDATA,
                    abi::NFTNL_UDATA_CHAIN_COMMENT,
                ),
                base: attributes.get(abi::NFTA_CHAIN_HOOK).is_some(),
            })
        })
    }

    /// The sets and maps of a table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn sets(&mut self, family: Family, table: &str) -> io::Result<Vec<SetInfo>> {
        self.list(abi::NFT_MSG_GETSET, family, table, &mut |attributes| {
            let number = |kind| attributes.get(kind).and_then(Attribute::be32).unwrap_or_default();
            Some(SetInfo {
                name: text(attributes, abi::NFTA_SET_NAME),
                comment: comment(attributes, abi::NFTA_SET_USERDATA, abi::NFTNL_UDATA_SET_COMMENT),
                key_len: number(abi::NFTA_SET_KEY_LEN),
                data_len: number(abi::NFTA_SET_DATA_LEN),
                flags: number(abi::NFTA_SET_FLAGS),
                size: nested(attributes, abi::NFTA_SET_DESC)
                    .get(abi::NFTA_SET_DESC_SIZE)
                    .and_then(Attribute::be32),
            })
        })
    }

    /// The rules of a table, chain by chain in order.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn rules(&mut self, family: Family, table: &str) -> io::Result<Vec<RuleInfo>> {
        self.list(abi::NFT_MSG_GETRULE, family, table, &mut |attributes| {
            let expressions = nested(attributes, abi::NFTA_RULE_EXPRESSIONS);
            let handle = attributes.get(abi::NFTA_RULE_HANDLE).and_then(Attribute::be64);
            Some(RuleInfo {
                chain: text(attributes, abi::NFTA_RULE_CHAIN),
                handle: handle.unwrap_or_default(),
                comment: comment(
                    attributes,
                    abi::NFTA_RULE_USERDATA,
                    abi::NFTNL_UDATA_RULE_COMMENT,
                ),
                jumps_to: expressions.filter_map(jump).collect(),
                expressions: expressions.count(),
            })
        })
    }

    /// The named counters of a table.
    ///
    /// # Errors
    /// As [`Socket::tables`].
    pub fn counters(&mut self, family: Family, table: &str) -> io::Result<Vec<CounterInfo>> {
        self.list(abi::NFT_MSG_GETOBJ, family, table, &mut |attributes| {
            let kind = attributes.get(abi::NFTA_OBJ_TYPE).and_then(Attribute::be32);
            let data = nested(attributes, abi::NFTA_OBJ_DATA);
            let number = |kind| data.get(kind).and_then(Attribute::be64).unwrap_or_default();
            (kind == Some(abi::NFT_OBJECT_COUNTER)).then(|| CounterInfo {
                name: text(attributes, abi::NFTA_OBJ_NAME),
                packets: number(abi::NFTA_COUNTER_PACKETS),
                bytes: number(abi::NFTA_COUNTER_BYTES),
            })
        })
    }

    /// Calls `each` for every element of a set or map while they are read. For every 32 KiB of output the
    /// kernel walks a hash set from its start: 12,500 elements take 20 ms, 100,000 more than a second.
    ///
    /// # Errors
    /// The set does not exist ([`io::ErrorKind::NotFound`]); a table changed during the dump
    /// ([`io::ErrorKind::Interrupted`]: discard what was read and read again); the socket failed.
    pub fn dump(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        each: &mut dyn FnMut(DumpedElement<'_>),
    ) -> io::Result<()> {
        let request = self.dump_request(family, table, set);
        self.link.request(&request, &mut |message| elements(message, each))
    }

    /// Begins to read a set or map in portions. The socket is for nothing else until the end.
    ///
    /// # Errors
    /// The socket failed.
    pub fn listing(mut self, family: Family, table: &str, set: &str) -> io::Result<Listing> {
        let request = self.dump_request(family, table, set);
        self.link.send(&[IoSlice::new(&request)])?;
        Ok(Listing { link: self.link })
    }

    fn dump_request(&mut self, family: Family, table: &str, set: &str) -> Vec<u8> {
        self.get(abi::NFT_MSG_GETSETELEM, abi::NLM_F_DUMP, Some(family), |out| {
            wire::string(out, abi::NFTA_SET_ELEM_LIST_TABLE, table);
            wire::string(out, abi::NFTA_SET_ELEM_LIST_SET, set);
        })
    }

    /// Looks elements up by their keys, and calls `each` for every one of them. Unlike [`Socket::dump`] this
    /// costs the same in a set of any size. The responses to more than a thousand may not fit into the
    /// socket's buffer.
    ///
    /// # Errors
    /// One of them does not exist, or the set ([`io::ErrorKind::NotFound`]); the socket failed.
    pub fn lookup<'k>(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        keys: impl Iterator<Item = (&'k [u8], Option<&'k [u8]>)>,
        each: &mut dyn FnMut(DumpedElement<'_>),
    ) -> io::Result<()> {
        let request = self.get(abi::NFT_MSG_GETSETELEM, abi::NLM_F_ACK, Some(family), |out| {
            wire::string(out, abi::NFTA_SET_ELEM_LIST_TABLE, table);
            wire::string(out, abi::NFTA_SET_ELEM_LIST_SET, set);
            wire::nest(out, abi::NFTA_SET_ELEM_LIST_ELEMENTS, |out| {
                for (key, key_end) in keys {
                    wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
                        wire::value(out, abi::NFTA_SET_ELEM_KEY, key);
                        if let Some(key_end) = key_end {
                            wire::value(out, abi::NFTA_SET_ELEM_KEY_END, key_end);
                        }
                    });
                }
            });
        });
        self.link.request(&request, &mut |message| elements(message, each))
    }

    /// Lists the objects of one kind in a table.
    fn list<T>(
        &mut self,
        kind: u16,
        family: Family,
        table: &str,
        each: &mut dyn FnMut(Attributes<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.read_again(|socket, list| {
            let request = socket.get(kind, abi::NLM_F_DUMP, Some(family), |out| {
                wire::string(out, TABLE_ATTRIBUTE, table);
            });
            socket.link.request(&request, &mut |message| {
                let attributes = message.attributes();
                let name = attributes.get(TABLE_ATTRIBUTE);
                if name.is_some_and(|name| name.str() == table)
                    && message.family() == family.number()
                {
                    list.extend(each(attributes));
                }
            })
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
            kind: abi::nfnl_message(abi::NFNL_SUBSYS_NFTABLES, kind),
            flags: abi::NLM_F_REQUEST | flags,
            sequence: self.link.next_sequence(),
            family: family.map_or(abi::NFPROTO_UNSPEC, Family::number),
            resource: 0,
        };
        let mut out = Vec::new();
        wire::message(&mut out, header, body);
        out
    }
}

/// A set or map that is read in portions: the kernel goes on with its walk whenever it is asked for more. What
/// changes meanwhile may be missing, or there twice.
#[derive(Debug)]
pub struct Listing {
    link: Link,
}

impl Listing {
    /// Calls `each` for the elements of the next portion, a few hundred; whether there are more.
    ///
    /// # Errors
    /// The set does not exist ([`io::ErrorKind::NotFound`]), or the socket failed.
    pub fn read(&mut self, each: &mut dyn FnMut(DumpedElement<'_>)) -> io::Result<bool> {
        self.link.portion(&mut |message| elements(message, each))
    }
}

/// Calls `each` for the elements in a message.
fn elements(message: &Message<'_>, each: &mut dyn FnMut(DumpedElement<'_>)) {
    for element in nested(message.attributes(), abi::NFTA_SET_ELEM_LIST_ELEMENTS) {
        each(dumped_element(element.nested()));
    }
}

/// The begin or end message of a batch.
fn delimiter(kind: u16, sequence: u32, generation: Option<u32>) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * HEADER_LEN);
    let header = Header {
        kind,
        flags: abi::NLM_F_REQUEST,
        sequence,
        family: abi::NFPROTO_UNSPEC,
        resource: abi::NFNL_SUBSYS_NFTABLES,
    };
    wire::message(&mut out, header, |out| {
        if let Some(generation) = generation {
            wire::be32(out, abi::NFNL_BATCH_GENID, generation);
        }
    });
    out
}

/// The kernel's responses to a batch.
#[derive(Default)]
struct BatchResponses {
    /// The first error of each message, by the message's number.
    refused: BTreeMap<u32, Acknowledgement>,
    acknowledged: bool,
    overrun: bool,
}

impl BatchResponses {
    fn add(&mut self, message: &Message<'_>, last: u32) {
        let Some(found) = acknowledgement(message) else { return };
        if found.errno != 0 {
            self.refused.entry(message.sequence).or_insert(found);
        } else if message.sequence == last {
            self.acknowledged = true;
        }
    }

    fn complete(&self) -> bool {
        self.acknowledged || self.overrun || !self.refused.is_empty()
    }

    fn into_result(self, batch: &Batch) -> Result<(), CommitError> {
        if self.refused.is_empty() {
            if self.acknowledged {
                return Ok(());
            }
            let lost = "responses of the kernel were lost: its receive buffer was full";
            return Err(CommitError::io(io::Error::new(io::ErrorKind::UnexpectedEof, lost)));
        }
        let mut messages = batch.numbered();
        let mut what = |number: u32| {
            let message = messages.find(|(found, _)| number > 0 && *found == number);
            message.map_or_else(|| "the batch as a whole".to_owned(), |(_, found)| describe(&found))
        };
        let refusal = |(message, found): (u32, Acknowledgement)| {
            let Acknowledgement { errno, text, offset } = found;
            Refusal { message, what: what(message), errno, text, offset }
        };
        let refused = self.refused.into_iter().map(refusal).collect();
        Err(CommitError { refused, source: None })
    }
}

fn nested(attributes: Attributes<'_>, kind: u16) -> Attributes<'_> {
    attributes.get(kind).map_or(Attributes(&[]), Attribute::nested)
}

fn text(attributes: Attributes<'_>, kind: u16) -> String {
    attributes.get(kind).map(Attribute::text).unwrap_or_default()
}

fn comment(attributes: Attributes<'_>, user_data: u16, kind: u8) -> String {
    comment_str(attributes, user_data, kind).to_owned()
}

fn comment_str(attributes: Attributes<'_>, user_data: u16, kind: u8) -> &str {
    attributes.get(user_data).map(|data| data.comment(kind)).unwrap_or_default()
}

fn table(message: &Message<'_>) -> Option<TableInfo> {
    let attributes = message.attributes();
    let number = |kind| attributes.get(kind).and_then(Attribute::be32);
    Some(TableInfo {
        family: Family::from_number(message.family())?,
        name: text(attributes, abi::NFTA_TABLE_NAME),
        flags: number(abi::NFTA_TABLE_FLAGS).unwrap_or_default(),
        comment: comment(attributes, abi::NFTA_TABLE_USERDATA, abi::NFTNL_UDATA_TABLE_COMMENT),
        owner: number(abi::NFTA_TABLE_OWNER),
    })
}

impl Rule {
    /// The rule as [`Socket::rules`] would list it, with handle 0.
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

/// The chain of an expression that jumps or goes to one.
fn jump(expression: Attribute<'_>) -> Option<String> {
    let expression = expression.nested();
    if expression.get(abi::NFTA_EXPR_NAME)?.str() != "immediate" {
        return None;
    }
    let immediate = expression.get(abi::NFTA_EXPR_DATA)?.nested();
    let verdict = verdict(immediate.get(abi::NFTA_IMMEDIATE_DATA)?.nested())?;
    matches!(verdict.code, abi::NFT_JUMP | abi::NFT_GOTO).then(|| verdict.chain.to_owned())
}

struct ElementVerdict<'a> {
    code: i32,
    /// Empty unless the verdict leads to a chain.
    chain: &'a str,
}

fn verdict(data: Attributes<'_>) -> Option<ElementVerdict<'_>> {
    let verdict = data.get(abi::NFTA_DATA_VERDICT)?.nested();
    let code = verdict.get(abi::NFTA_VERDICT_CODE)?.value.first_chunk()?;
    let chain = verdict.get(abi::NFTA_VERDICT_CHAIN).map(Attribute::str).unwrap_or_default();
    Some(ElementVerdict { code: i32::from_be_bytes(*code), chain })
}

fn dumped_element(element: Attributes<'_>) -> DumpedElement<'_> {
    let value = |kind| Some(element.get(kind)?.nested().get(abi::NFTA_DATA_VALUE)?.value);
    let expires = element.get(abi::NFTA_SET_ELEM_EXPIRATION).and_then(Attribute::be64);
    DumpedElement {
        key: value(abi::NFTA_SET_ELEM_KEY).unwrap_or_default(),
        key_end: value(abi::NFTA_SET_ELEM_KEY_END),
        data: dumped_data(element),
        expires: expires.map(Duration::from_millis),
        packets: packets(element),
        comment: comment_str(
            element,
            abi::NFTA_SET_ELEM_USERDATA,
            abi::NFTNL_UDATA_SET_ELEM_COMMENT,
        ),
    }
}

fn dumped_data(element: Attributes<'_>) -> Option<Data<'_>> {
    if let Some(object) = element.get(abi::NFTA_SET_ELEM_OBJREF) {
        return Some(Data::Object(object.str()));
    }
    let data = nested(element, abi::NFTA_SET_ELEM_DATA);
    match verdict(data) {
        Some(ElementVerdict { code: abi::NF_DROP, .. }) => Some(Data::Drop),
        Some(ElementVerdict { code: abi::NFT_GOTO, chain }) => Some(Data::Goto(chain)),
        Some(_) => None,
        None => Some(data.get(abi::NFTA_DATA_VALUE).map_or(Data::None, |v| Data::Value(v.value))),
    }
}

/// The packets of the first counter among an element's expressions.
fn packets(element: Attributes<'_>) -> Option<u64> {
    // The kernel lists one expression by itself, and several as a list.
    let single = element.get(abi::NFTA_SET_ELEM_EXPR);
    let list = nested(element, abi::NFTA_SET_ELEM_EXPRESSIONS);
    let is_counter = |expression: &Attributes<'_>| {
        expression.get(abi::NFTA_EXPR_NAME).is_some_and(|name| name.str() == "counter")
    };
    let counter = single.into_iter().chain(list).map(Attribute::nested).find(is_counter)?;
    counter.get(abi::NFTA_EXPR_DATA)?.nested().get(abi::NFTA_COUNTER_PACKETS)?.be64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse::Messages;

    proptest! {
        #[test]
        fn malformed_responses_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = acknowledgement(&message);
                let _ = table(&message);
            }
            let attributes = Attributes(&bytes);
            let _ = dumped_element(attributes);
            let _ = comment_str(attributes, abi::NFTA_SET_ELEM_USERDATA, 0);
            for attribute in attributes {
                let _ = jump(attribute);
                let _ = (attribute.text(), attribute.be16(), attribute.be64(), attribute.ne32());
            }
            let _ = crate::parse::comment(&bytes, 0);
        }
    }
}
