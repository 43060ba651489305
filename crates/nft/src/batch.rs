//! A transaction in the making: messages side by side in one buffer.
//!
//! ```text
//!   begin │ new table │ new set │ new elements │ new rule │ … │ end
//!         └────────────── Batch ─────────────────────────────┘
//! ```
//!
//! Begin and end are added when it is committed. Messages are numbered from 1, which is how the
//! kernel's complaints find their way back.

use std::borrow::Cow;

use crate::expression;
use crate::parse::{Attribute, Message, Messages};
use crate::rule::Rule;
use crate::set::SetSpec;
use crate::value::{Data, Element, Family};
use crate::wire::{self, APPEND, CREATE, Header, REQUEST};

pub(crate) const NEW_TABLE: u16 = 0;
pub(crate) const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
pub(crate) const GET_CHAIN: u16 = 4;
const DELETE_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
pub(crate) const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
pub(crate) const GET_SET: u16 = 10;
const DELETE_SET: u16 = 11;
const NEW_ELEMENT: u16 = 12;
pub(crate) const GET_ELEMENT: u16 = 13;
const DELETE_ELEMENT: u16 = 14;
pub(crate) const GET_GENERATION: u16 = 16;
const NEW_OBJECT: u16 = 18;
pub(crate) const GET_OBJECT: u16 = 19;
const DELETE_OBJECT: u16 = 20;

/// Where a chain is called from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Hook {
    /// Everything that comes in.
    Prerouting,
    /// What is for this machine.
    Input,
    /// What passes through.
    Forward,
    /// What this machine sends.
    Output,
    /// Everything that goes out.
    Postrouting,
}

/// What a base chain is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum ChainKind {
    /// Sees every packet.
    Filter,
    /// Sees the first packet of a connection, and may translate addresses.
    Nat,
}

/// How a chain hangs on a hook. Packets that reach its end are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseChain {
    /// What it is for.
    pub kind: ChainKind,
    /// Where it is called from.
    pub hook: Hook,
    /// Lower ones are called first.
    pub priority: i32,
}

/// Who may change a table, and how long it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableFlags {
    /// Only the socket that made or claimed it may change it.
    pub owner: bool,
    /// It outlives its owner's socket. Kernels before 6.9 do not know this.
    pub persist: bool,
}

impl TableFlags {
    /// The kernel's number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        (if self.owner { 2 } else { 0 }) | (if self.persist { 4 } else { 0 })
    }
}

/// What to do with elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Add them.
    Add,
    /// Delete them.
    Delete,
}

/// A transaction on one table name, in both families.
#[derive(Clone, Debug)]
pub struct Batch {
    table: Cow<'static, str>,
    bytes: Vec<u8>,
    /// Where the last message starts.
    last: usize,
    messages: u32,
}

impl Batch {
    /// Nothing yet, on that table.
    #[must_use]
    pub fn new(table: &'static str) -> Self {
        Self { table: Cow::Borrowed(table), bytes: Vec::new(), last: 0, messages: 0 }
    }

    /// What follows is about another table.
    pub fn in_table(&mut self, table: impl Into<Cow<'static, str>>) -> &mut Self {
        self.table = table.into();
        self
    }

    /// Bytes so far.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Messages so far.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = 0;
        self.messages = 0;
    }

    /// The bytes, and where the last message starts.
    pub(crate) fn parts(&self) -> (&[u8], usize) {
        (&self.bytes, self.last)
    }

    /// The messages, numbered from 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, Message<'_>)> {
        (1..).zip(Messages(&self.bytes))
    }

    fn start(&mut self, kind: u16, flags: u16, family: Family) -> usize {
        self.messages += 1;
        let header = Header {
            kind: wire::nft(kind),
            flags: REQUEST | flags,
            sequence: self.messages,
            family: family.number(),
            resource: 0,
        };
        self.last = wire::start(&mut self.bytes, header);
        wire::string(&mut self.bytes, 1, &self.table);
        self.last
    }

    fn message(
        &mut self,
        (kind, flags): (u16, u16),
        family: Family,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let at = self.start(kind, flags, family);
        body(&mut self.bytes);
        wire::end(&mut self.bytes, at);
    }

    /// Adds the table if it is not there. With the owner flag, claims one whose owner is gone. One
    /// that never had an owner cannot get one (error number 95): delete it and add it again, in
    /// one batch.
    pub fn add_table(&mut self, family: Family, flags: TableFlags, comment: &str) {
        self.message((NEW_TABLE, CREATE), family, |out| {
            wire::be32(out, 2, flags.bits());
            wire::comment(out, 6, 0, comment);
        });
    }

    /// Deletes the table with all that is in it.
    pub fn delete_table(&mut self, family: Family) {
        self.message((DELETE_TABLE, 0), family, |_| {});
    }

    /// Adds a chain if it is not there.
    pub fn add_chain(
        &mut self,
        family: Family,
        name: &str,
        base: Option<&BaseChain>,
        comment: &str,
    ) {
        self.message((NEW_CHAIN, CREATE), family, |out| {
            wire::string(out, 3, name);
            if let Some(base) = base {
                base_chain(out, base);
            }
            wire::comment(out, 12, 0, comment);
        });
    }

    /// Deletes a chain with its rules. Nothing may lead to it any more.
    pub fn delete_chain(&mut self, family: Family, name: &str) {
        self.message((DELETE_CHAIN, 0), family, |out| wire::string(out, 3, name));
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, family: Family, name: &str) {
        self.message((DELETE_RULE, 0), family, |out| wire::string(out, 2, name));
    }

    /// Deletes the rule with that number, as [`crate::RuleInfo::handle`] says it.
    pub fn delete_rule(&mut self, family: Family, chain: &str, handle: u64) {
        self.message((DELETE_RULE, 0), family, |out| {
            wire::string(out, 2, chain);
            wire::be64(out, 3, handle);
        });
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, family: Family, chain: &str, rule: &Rule) {
        self.message((NEW_RULE, CREATE | APPEND), family, |out| {
            wire::string(out, 2, chain);
            wire::nest(out, 4, |out| expression::encode(out, family, rule));
            wire::comment(out, 7, 0, &rule.comment);
        });
    }

    /// Adds a set or map if it is not there.
    pub fn add_set(&mut self, family: Family, set: &SetSpec) {
        let id = self.messages + 1;
        self.message((NEW_SET, CREATE), family, |out| set.encode(out, family, id));
    }

    /// Deletes a set or map. No rule may use it any more.
    pub fn delete_set(&mut self, family: Family, name: &str) {
        self.message((DELETE_SET, 0), family, |out| wire::string(out, 2, name));
    }

    /// Deletes all elements of a set or map.
    pub fn flush_set(&mut self, family: Family, name: &str) {
        self.message((DELETE_ELEMENT, 0), family, |out| wire::string(out, 2, name));
    }

    /// Adds a named counter if it is not there.
    pub fn add_counter(&mut self, family: Family, name: &str, comment: &str) {
        self.message((NEW_OBJECT, CREATE), family, |out| {
            wire::string(out, 2, name);
            wire::be32(out, 3, 1);
            wire::comment(out, 8, 0, comment);
            wire::nest(out, 4, |_| {});
        });
    }

    /// Deletes a named counter. No element may name it any more.
    pub fn delete_counter(&mut self, family: Family, name: &str) {
        self.message((DELETE_OBJECT, 0), family, |out| {
            wire::string(out, 2, name);
            wire::be32(out, 3, 1);
        });
    }

    /// Adds or deletes elements of a set or map: as many as are pushed.
    pub fn elements<'a>(&'a mut self, verb: Verb, family: Family, set: &'a str) -> Elements<'a> {
        Elements { batch: self, verb, family, set, open: None }
    }
}

/// What a message does, in words.
pub(crate) fn describe(message: &Message<'_>) -> String {
    let name = |kind| message.attributes().get(kind).map(Attribute::text).unwrap_or_default();
    let (what, inner) = match message.kind & 0xff {
        NEW_TABLE => ("add table", None),
        DELETE_TABLE => ("delete table", None),
        NEW_CHAIN => ("add chain", Some(3)),
        DELETE_CHAIN => ("delete chain", Some(3)),
        NEW_RULE => ("add rule in chain", Some(2)),
        DELETE_RULE if message.attributes().get(3).is_some() => ("delete a rule of chain", Some(2)),
        DELETE_RULE => ("delete the rules of chain", Some(2)),
        NEW_SET => ("add set", Some(2)),
        DELETE_SET => ("delete set", Some(2)),
        NEW_ELEMENT => ("add elements to set", Some(2)),
        DELETE_ELEMENT => ("delete elements of set", Some(2)),
        NEW_OBJECT => ("add counter", Some(2)),
        _ => ("delete counter", Some(2)),
    };
    let family = Family::from_number(message.family());
    let family = family.map(|family| family.to_string()).unwrap_or_default();
    let inner = inner.map(name).unwrap_or_default();
    format!("{what} {family} {} {inner}", name(1)).trim_end().to_owned()
}

fn base_chain(out: &mut Vec<u8>, base: &BaseChain) {
    const ACCEPT: u32 = 1;
    let hook = match base.hook {
        Hook::Prerouting => 0,
        Hook::Input => 1,
        Hook::Forward => 2,
        Hook::Output => 3,
        Hook::Postrouting => 4,
    };
    wire::nest(out, 4, |out| {
        wire::be32(out, 1, hook);
        wire::bytes(out, 2, &base.priority.to_be_bytes());
    });
    wire::be32(out, 5, ACCEPT);
    wire::string(out, 7, if base.kind == ChainKind::Nat { "nat" } else { "filter" });
}

/// Elements on their way into a batch. Starts a new message before an attribute grows too long for
/// its length of two bytes. Dropping it closes the message.
#[derive(Debug)]
pub struct Elements<'a> {
    batch: &'a mut Batch,
    verb: Verb,
    family: Family,
    set: &'a str,
    /// Where the open message and its list start.
    open: Option<(usize, usize)>,
}

/// The longest list of elements.
const LIST: usize = 65_000;

impl Elements<'_> {
    /// One more.
    pub fn push(&mut self, element: &Element<'_>) {
        self.make_room(size_at_most(element));
        let out = &mut self.batch.bytes;
        let verb = self.verb;
        let single = element.key_end.filter(|end| end.len() == self.family.address_len());
        match single {
            Some(end) => {
                wire::nest(out, 1, |out| write_element(out, verb, element, None));
                write_interval_end(out, end);
            }
            None => wire::nest(out, 1, |out| write_element(out, verb, element, element.key_end)),
        }
    }

    fn make_room(&mut self, size: usize) {
        if let Some((_, list)) = self.open
            && self.batch.bytes.len() - list + size > LIST
        {
            self.close();
        }
        if self.open.is_none() {
            let (kind, flags) = match self.verb {
                Verb::Add => (NEW_ELEMENT, CREATE),
                Verb::Delete => (DELETE_ELEMENT, 0),
            };
            let message = self.batch.start(kind, flags, self.family);
            wire::string(&mut self.batch.bytes, 2, self.set);
            self.open = Some((message, wire::open_nest(&mut self.batch.bytes, 3)));
        }
    }

    fn close(&mut self) {
        if let Some((message, list)) = self.open.take() {
            wire::close(&mut self.batch.bytes, list);
            wire::end(&mut self.batch.bytes, message);
        }
    }
}

impl Drop for Elements<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// A bound for the bytes an element takes.
fn size_at_most(element: &Element<'_>) -> usize {
    const ATTRIBUTES: usize = 128;
    let data = match element.data {
        Data::None | Data::Drop => 0,
        Data::Value(value) => value.len(),
        Data::Goto(name) | Data::Object(name) => name.len(),
    };
    let end = element.key_end.map_or(0, <[u8]>::len);
    ATTRIBUTES + element.key.len() + 2 * end + data + element.comment.len().min(ATTRIBUTES)
}

fn write_element(out: &mut Vec<u8>, verb: Verb, element: &Element<'_>, end: Option<&[u8]>) {
    wire::nest(out, 1, |out| wire::bytes(out, 1, element.key));
    if let Some(end) = end {
        wire::nest(out, 10, |out| wire::bytes(out, 1, end));
    }
    if verb == Verb::Delete {
        return;
    }
    match element.data {
        Data::None => {}
        Data::Value(value) => wire::nest(out, 2, |out| wire::bytes(out, 1, value)),
        Data::Drop => {
            wire::nest(out, 2, |out| expression::verdict(out, expression::code::DROP, None));
        }
        Data::Goto(chain) => {
            let code = expression::code::GOTO;
            wire::nest(out, 2, |out| expression::verdict(out, code, Some(chain)));
        }
        Data::Object(name) => wire::string(out, 9, name),
    }
    if let Some(timeout) = element.timeout {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        wire::be64(out, 4, milliseconds);
    }
    wire::comment(out, 6, 0, element.comment);
}

/// In sets of single addresses an interval is two elements: its first, and the one behind its last
/// with a flag. The interval up to the last address of all has no end.
fn write_interval_end(out: &mut Vec<u8>, last: &[u8]) {
    const END: u32 = 1;
    let mut behind = last.to_vec();
    let carry = behind.iter_mut().rev().fold(true, |carry, byte| {
        let (next, over) = byte.overflowing_add(u8::from(carry));
        *byte = next;
        over
    });
    if !carry {
        wire::nest(out, 1, |out| {
            wire::be32(out, 3, END);
            wire::nest(out, 1, |out| wire::bytes(out, 1, &behind));
        });
    }
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rule::{Field, Statement};
    use crate::set::{SetFlags, Type};
    use crate::value::Bytes;

    fn hex(bytes: &[u8]) -> Vec<String> {
        let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.chunks(4).map(word).collect()
    }

    /// One word of four bytes in each column, as `nft --debug=mnl` shows them.
    fn golden(batch: &Batch, expected: &str) {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(hex(&batch.bytes), expected);
    }

    #[test]
    fn a_table_with_owner_and_comment() {
        let mut batch = Batch::new("zw");
        batch.add_table(Family::Ip6, TableFlags { owner: true, persist: true }, "hi");
        golden(
            &batch,
            "30000000 000a0104 01000000 00000000 0a000000
             07000100 7a770000
             08000200 00000006
             09000600 00036869 00000000",
        );
    }

    #[test]
    fn one_rule_or_all_rules_of_a_chain_deleted() {
        let mut batch = Batch::new("t");
        batch.delete_rule(Family::Ip, "c", 7);
        batch.flush_chain(Family::Ip, "c");
        golden(
            &batch,
            "30000000 080a0100 01000000 00000000 02000000
             06000100 74000000
             06000200 63000000
             0c000300 00000000 00000007
             24000000 080a0100 02000000 00000000 02000000
             06000100 74000000
             06000200 63000000",
        );
        let words: Vec<String> = batch.numbered().map(|(_, message)| describe(&message)).collect();
        assert_eq!(words, ["delete a rule of chain ip t c", "delete the rules of chain ip t c"]);
    }

    #[test]
    fn elements_of_a_slot_map() {
        let mut batch = Batch::new("t");
        let key = Bytes::new().address([10, 0, 0, 1].into()).protocol(6).port(80).number(2);
        let data = Bytes::new().address([10, 1, 1, 1].into()).port(8080);
        let pair = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
        let timeout = Some(Duration::from_secs(1));
        let element = Element { timeout, comment: "w", ..pair };
        batch.elements(Verb::Add, Family::Ip, "s").push(&element);
        golden(
            &batch,
            "68000000 0c0a0104 01000000 00000000 02000000
             06000100 74000000
             06000200 73000000
             44000380
             40000180
             18000180 14000100 0a000001 06000000 00500000 02000000
             10000280 0c000100 0a010101 1f900000
             0c000400 00000000 000003e8
             08000600 00027700",
        );
    }

    #[test]
    fn a_rule_that_looks_up_a_verdict() {
        let mut batch = Batch::new("t");
        let fields = vec![Field::Protocol, Field::Dport];
        let rule = Rule::new([Statement::Vmap { fields, map: "m".into() }]);
        batch.add_rule(Family::Ip, "c", &rule);
        golden(
            &batch,
            "ac000000 060a010c 01000000 00000000 02000000
             06000100 74000000
             06000200 63000000
             88000480
             24000180 09000100 6d657461 00000000
                      14000280 08000200 00000010 08000100 00000008
             34000180 0c000100 7061796c 6f616400
                      24000280 08000100 00000009 08000200 00000002 08000300 00000002
                               08000400 00000002
             2c000180 0b000100 6c6f6f6b 75700000
                      1c000280 06000100 6d000000 08000200 00000008 08000300 00000000",
        );
    }

    #[test]
    fn a_set_with_its_types() {
        let mut batch = Batch::new("t");
        let flags = SetFlags { dynamic: true, timeout: true, ..SetFlags::default() };
        batch.add_set(
            Family::Ip,
            &SetSpec {
                name: "s",
                key: &[Type::Address, Type::Protocol, Type::Port],
                data: &[Type::Verdict],
                flags,
                size: Some(9),
                comment: "",
            },
        );
        golden(
            &batch,
            "6c000000 090a0104 01000000 00000000 02000000
             06000100 74000000
             06000200 73000000
             08000300 00000038
             08000400 0000730d
             08000500 0000000c
             08000600 ffffff00
             08000700 00000000
             08000a00 00000001
             0c000980 08000100 00000009
             0a000d00 00040000 00000000",
        );
    }

    #[test]
    fn lists_of_elements_stay_below_their_limit() {
        let mut batch = Batch::new("t");
        let name = "n".repeat(250);
        let mut elements = batch.elements(Verb::Add, Family::Ip, "s");
        for n in 0..1000_u32 {
            let key = Bytes::new().number(n);
            let comment = &name[..usize::try_from(n).unwrap() % 128];
            let pair = Element::pair(key.as_slice(), Data::Goto(&name));
            elements.push(&Element { comment, ..pair });
        }
        drop(elements);
        let lists = batch.numbered().map(|(_, message)| {
            let list = message.attributes().get(3).unwrap();
            assert!(list.value.len() <= LIST, "{}", list.value.len());
            list.nested().count()
        });
        assert_eq!(lists.sum::<usize>(), 1000);
    }

    #[test]
    fn an_interval_ends_behind_its_last_address() {
        let mut batch = Batch::new("t");
        let ends = [[10, 0, 255, 255], [255, 255, 255, 255]];
        for end in &ends {
            let interval = Element { key_end: Some(end), ..Element::key(&[10, 0, 0, 0]) };
            batch.elements(Verb::Add, Family::Ip, "s").push(&interval);
        }
        let keys = batch.numbered().map(|(_, message)| {
            let list = message.attributes().get(3).unwrap().nested();
            list.map(|e| e.nested().get(1).unwrap().nested().get(1).unwrap().value.to_vec())
                .collect::<Vec<_>>()
        });
        let expected = [vec![vec![10, 0, 0, 0], vec![10, 1, 0, 0]], vec![vec![10, 0, 0, 0]]];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn long_comments_are_cut_between_characters() {
        let mut out = Vec::new();
        wire::push_comment(&mut out, 0, &"ä".repeat(100));
        assert_eq!(crate::parse::comment(&out, 0), "ä".repeat(63));
        out.clear();
        wire::push_comment(&mut out, 7, "a\0b");
        assert_eq!((crate::parse::comment(&out, 7), crate::parse::comment(&out, 0)), ("a", ""));
    }
}
