//! A transaction: messages one after the other in one buffer.
//!
//! ```text
//!   begin │ new table │ new set │ new elements │ new rule │ … │ end
//!         └────────────── Batch ─────────────────────────────┘
//! ```
//!
//! [`Socket::commit`](crate::Socket::commit) adds the begin and end messages. Messages are numbered from 1;
//! the kernel's errors carry these numbers.

use std::borrow::Cow;

use crate::abi;
use crate::expression;
use crate::parse::{Attribute, Message, Messages};
use crate::rule::Rule;
use crate::set::SetSpec;
use crate::value::{Data, Element, Family};
use crate::wire::{self, Header};

/// The netfilter hook that calls a base chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Hook {
    /// All incoming packets.
    Prerouting,
    /// Packets for this machine.
    Input,
    /// Packets that this machine forwards.
    Forward,
    /// Packets that this machine sends.
    Output,
    /// All outgoing packets.
    Postrouting,
}

/// The type of a base chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum ChainKind {
    /// Sees every packet.
    Filter,
    /// Sees the first packet of a connection, and may translate addresses.
    Nat,
}

/// How a chain is attached to a hook. Packets that reach its end are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseChain {
    /// Its type.
    pub kind: ChainKind,
    /// The hook that calls it.
    pub hook: Hook,
    /// Chains with lower priorities are called first.
    pub priority: i32,
}

/// Ownership of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableFlags {
    /// Only the socket that created or claimed it may change it.
    pub owner: bool,
    /// It outlives its owner's socket. Needs Linux 6.9.
    pub persist: bool,
}

impl TableFlags {
    /// The kernel's flags (`NFT_TABLE_F_…`).
    #[must_use]
    pub const fn bits(self) -> u32 {
        let owner = if self.owner { abi::NFT_TABLE_F_OWNER } else { 0 };
        let persist = if self.persist { abi::NFT_TABLE_F_PERSIST } else { 0 };
        owner | persist
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

/// A transaction on the tables of one name in both families.
#[derive(Clone, Debug)]
pub struct Batch {
    table: Cow<'static, str>,
    bytes: Vec<u8>,
    /// The position of the last message.
    last: usize,
    messages: u32,
}

impl Batch {
    /// An empty batch for a table.
    #[must_use]
    pub fn new(table: &'static str) -> Self {
        Self { table: Cow::Borrowed(table), bytes: Vec::new(), last: 0, messages: 0 }
    }

    /// Switches to another table for the messages that follow.
    pub fn in_table(&mut self, table: impl Into<Cow<'static, str>>) -> &mut Self {
        self.table = table.into();
        self
    }

    /// The length of all messages in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of messages.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Whether it has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = 0;
        self.messages = 0;
    }

    /// The bytes, and the position of the last message.
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
            kind: abi::nfnl_message(abi::NFNL_SUBSYS_NFTABLES, kind),
            flags: abi::NLM_F_REQUEST | flags,
            sequence: self.messages,
            family: family.number(),
            resource: 0,
        };
        self.last = wire::start(&mut self.bytes, header);
        wire::string(&mut self.bytes, TABLE_ATTRIBUTE, &self.table);
        self.last
    }

    fn message(&mut self, kind: u16, flags: u16, family: Family, body: impl FnOnce(&mut Vec<u8>)) {
        let at = self.start(kind, flags, family);
        body(&mut self.bytes);
        wire::end(&mut self.bytes, at);
    }

    /// Adds the table if it does not exist. With the owner flag, claims an existing table whose owner is
    /// gone. A table that never had an owner cannot get one (`EOPNOTSUPP`): delete it and add it
    /// again in one batch.
    pub fn add_table(&mut self, family: Family, flags: TableFlags, comment: &str) {
        self.message(abi::NFT_MSG_NEWTABLE, abi::NLM_F_CREATE, family, |out| {
            wire::be32(out, abi::NFTA_TABLE_FLAGS, flags.bits());
            let kind = abi::NFTNL_UDATA_TABLE_COMMENT;
            wire::comment(out, abi::NFTA_TABLE_USERDATA, kind, comment);
        });
    }

    /// Deletes the table with everything in it.
    pub fn delete_table(&mut self, family: Family) {
        self.message(abi::NFT_MSG_DELTABLE, 0, family, |_| {});
    }

    /// Adds a chain if it does not exist.
    pub fn add_chain(
        &mut self,
        family: Family,
        name: &str,
        base: Option<&BaseChain>,
        comment: &str,
    ) {
        self.message(abi::NFT_MSG_NEWCHAIN, abi::NLM_F_CREATE, family, |out| {
            wire::string(out, abi::NFTA_CHAIN_NAME, name);
            if let Some(base) = base {
                base_chain(out, base);
            }
            let kind = abi::NFTNL_UDATA_CHAIN_COMMENT;
            wire::comment(out, abi::NFTA_CHAIN_USERDATA, kind, comment);
        });
    }

    /// Deletes a chain with its rules. No rule or element may refer to it any more.
    pub fn delete_chain(&mut self, family: Family, name: &str) {
        self.message(abi::NFT_MSG_DELCHAIN, 0, family, |out| {
            wire::string(out, abi::NFTA_CHAIN_NAME, name);
        });
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, family: Family, name: &str) {
        self.message(abi::NFT_MSG_DELRULE, 0, family, |out| {
            wire::string(out, abi::NFTA_RULE_CHAIN, name);
        });
    }

    /// Deletes the rule with a handle, see [`crate::RuleInfo::handle`].
    pub fn delete_rule(&mut self, family: Family, chain: &str, handle: u64) {
        self.message(abi::NFT_MSG_DELRULE, 0, family, |out| {
            wire::string(out, abi::NFTA_RULE_CHAIN, chain);
            wire::be64(out, abi::NFTA_RULE_HANDLE, handle);
        });
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, family: Family, chain: &str, rule: &Rule) {
        let flags = abi::NLM_F_CREATE | abi::NLM_F_APPEND;
        self.message(abi::NFT_MSG_NEWRULE, flags, family, |out| {
            wire::string(out, abi::NFTA_RULE_CHAIN, chain);
            wire::nest(out, abi::NFTA_RULE_EXPRESSIONS, |out| {
                expression::encode(out, family, rule);
            });
            let kind = abi::NFTNL_UDATA_RULE_COMMENT;
            wire::comment(out, abi::NFTA_RULE_USERDATA, kind, &rule.comment);
        });
    }

    /// Adds a set or map if it does not exist.
    pub fn add_set(&mut self, family: Family, set: &SetSpec) {
        self.add_set_as(family, set, set.name);
    }

    /// Adds a set or map of this kind under another name, if it does not exist.
    pub fn add_set_as(&mut self, family: Family, set: &SetSpec, name: &str) {
        let id = self.messages + 1;
        self.message(abi::NFT_MSG_NEWSET, abi::NLM_F_CREATE, family, |out| {
            wire::string(out, abi::NFTA_SET_NAME, name);
            set.encode(out, family, id);
        });
    }

    /// Deletes a set or map. No rule may use it any more.
    pub fn delete_set(&mut self, family: Family, name: &str) {
        self.message(abi::NFT_MSG_DELSET, 0, family, |out| {
            wire::string(out, abi::NFTA_SET_NAME, name);
        });
    }

    /// Deletes all elements of a set or map.
    pub fn flush_set(&mut self, family: Family, name: &str) {
        self.message(abi::NFT_MSG_DELSETELEM, 0, family, |out| {
            wire::string(out, abi::NFTA_SET_ELEM_LIST_SET, name);
        });
    }

    /// Adds a named counter if it does not exist.
    pub fn add_counter(&mut self, family: Family, name: &str, comment: &str) {
        self.message(abi::NFT_MSG_NEWOBJ, abi::NLM_F_CREATE, family, |out| {
            wire::string(out, abi::NFTA_OBJ_NAME, name);
            wire::be32(out, abi::NFTA_OBJ_TYPE, abi::NFT_OBJECT_COUNTER);
            let kind = abi::NFTNL_UDATA_OBJ_COMMENT;
            wire::comment(out, abi::NFTA_OBJ_USERDATA, kind, comment);
            wire::nest(out, abi::NFTA_OBJ_DATA, |_| {});
        });
    }

    /// Deletes a named counter. No element may refer to it any more.
    pub fn delete_counter(&mut self, family: Family, name: &str) {
        self.message(abi::NFT_MSG_DELOBJ, 0, family, |out| {
            wire::string(out, abi::NFTA_OBJ_NAME, name);
            wire::be32(out, abi::NFTA_OBJ_TYPE, abi::NFT_OBJECT_COUNTER);
        });
    }

    /// Adds or deletes elements of a set or map: those that are pushed to the result.
    pub fn elements<'a>(&'a mut self, verb: Verb, family: Family, set: &'a str) -> Elements<'a> {
        Elements { batch: self, verb, family, set, open: None }
    }
}

/// The attribute with the table's name: the same number in every nftables message.
pub(crate) const TABLE_ATTRIBUTE: u16 = abi::NFTA_TABLE_NAME;
const _: () = assert!(
    TABLE_ATTRIBUTE == abi::NFTA_CHAIN_TABLE
        && TABLE_ATTRIBUTE == abi::NFTA_RULE_TABLE
        && TABLE_ATTRIBUTE == abi::NFTA_SET_TABLE
        && TABLE_ATTRIBUTE == abi::NFTA_SET_ELEM_LIST_TABLE
        && TABLE_ATTRIBUTE == abi::NFTA_OBJ_TABLE
);

/// Describes what a message of a batch does, for errors.
pub(crate) fn describe(message: &Message<'_>) -> String {
    let name = |kind| message.attributes().get(kind).map(Attribute::text).unwrap_or_default();
    let one_rule = message.attributes().get(abi::NFTA_RULE_HANDLE).is_some();
    let (what, inner) = match abi::nfnl_msg_type(message.kind) {
        abi::NFT_MSG_NEWTABLE => ("add table", None),
        abi::NFT_MSG_DELTABLE => ("delete table", None),
        abi::NFT_MSG_NEWCHAIN => ("add chain", Some(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_DELCHAIN => ("delete chain", Some(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_NEWRULE => ("add rule in chain", Some(abi::NFTA_RULE_CHAIN)),
        abi::NFT_MSG_DELRULE if one_rule => ("delete a rule of chain", Some(abi::NFTA_RULE_CHAIN)),
        abi::NFT_MSG_DELRULE => ("delete the rules of chain", Some(abi::NFTA_RULE_CHAIN)),
        abi::NFT_MSG_NEWSET => ("add set", Some(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_DELSET => ("delete set", Some(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_NEWSETELEM => ("add elements to set", Some(abi::NFTA_SET_ELEM_LIST_SET)),
        abi::NFT_MSG_DELSETELEM => ("delete elements of set", Some(abi::NFTA_SET_ELEM_LIST_SET)),
        abi::NFT_MSG_NEWOBJ => ("add counter", Some(abi::NFTA_OBJ_NAME)),
        abi::NFT_MSG_DELOBJ => ("delete counter", Some(abi::NFTA_OBJ_NAME)),
        // A batch has no other messages.
        _ => ("unknown message for table", None),
    };
    let family = Family::from_number(message.family());
    let family = family.map(|family| family.to_string()).unwrap_or_default();
    let inner = inner.map(name).unwrap_or_default();
    format!("{what} {family} {} {inner}", name(TABLE_ATTRIBUTE)).trim_end().to_owned()
}

fn base_chain(out: &mut Vec<u8>, base: &BaseChain) {
    let hook = match base.hook {
        Hook::Prerouting => abi::NF_INET_PRE_ROUTING,
        Hook::Input => abi::NF_INET_LOCAL_IN,
        Hook::Forward => abi::NF_INET_FORWARD,
        Hook::Output => abi::NF_INET_LOCAL_OUT,
        Hook::Postrouting => abi::NF_INET_POST_ROUTING,
    };
    let kind = match base.kind {
        ChainKind::Filter => "filter",
        ChainKind::Nat => "nat",
    };
    wire::nest(out, abi::NFTA_CHAIN_HOOK, |out| {
        wire::be32(out, abi::NFTA_HOOK_HOOKNUM, hook);
        wire::bytes(out, abi::NFTA_HOOK_PRIORITY, &base.priority.to_be_bytes());
    });
    wire::bytes(out, abi::NFTA_CHAIN_POLICY, &abi::NF_ACCEPT.to_be_bytes());
    wire::string(out, abi::NFTA_CHAIN_TYPE, kind);
}

/// Writes elements into a batch. Starts a new message before the list's attribute exceeds the 64 KiB
/// that its 16-bit length allows. Dropping it ends the message.
#[derive(Debug)]
pub struct Elements<'a> {
    batch: &'a mut Batch,
    verb: Verb,
    family: Family,
    set: &'a str,
    /// The message that is being written.
    open: Option<OpenMessage>,
}

/// Positions of an unfinished message and of its list of elements.
#[derive(Debug)]
struct OpenMessage {
    message: usize,
    list: usize,
}

/// The longest list of elements in bytes, below the 65,535 that fit into the length of an attribute (`nla_len` of
/// `struct nlattr` in <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netlink.h>).
const MAX_LIST_LEN: usize = 65_000;

impl Elements<'_> {
    /// Writes one more element.
    pub fn push(&mut self, element: &Element<'_>) {
        self.make_room(size_at_most(element));
        let out = &mut self.batch.bytes;
        let verb = self.verb;
        let single = element.key_end.filter(|end| end.len() == self.family.address_len());
        match single {
            Some(end) => {
                wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
                    write_element(out, verb, element, None);
                });
                write_interval_end(out, end);
            }
            None => wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
                write_element(out, verb, element, element.key_end);
            }),
        }
    }

    fn make_room(&mut self, size: usize) {
        if let Some(open) = &self.open
            && self.batch.bytes.len() - open.list + size > MAX_LIST_LEN
        {
            self.close();
        }
        if self.open.is_none() {
            let (kind, flags) = match self.verb {
                Verb::Add => (abi::NFT_MSG_NEWSETELEM, abi::NLM_F_CREATE),
                Verb::Delete => (abi::NFT_MSG_DELSETELEM, 0),
            };
            let message = self.batch.start(kind, flags, self.family);
            let out = &mut self.batch.bytes;
            wire::string(out, abi::NFTA_SET_ELEM_LIST_SET, self.set);
            let list = wire::open_nest(out, abi::NFTA_SET_ELEM_LIST_ELEMENTS);
            self.open = Some(OpenMessage { message, list });
        }
    }

    fn close(&mut self) {
        if let Some(OpenMessage { message, list }) = self.open.take() {
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

/// An upper bound for the length of an element in bytes.
fn size_at_most(element: &Element<'_>) -> usize {
    /// All attribute headers and fixed values of an element.
    const ATTRIBUTES: usize = 128;
    let data = match element.data {
        Data::None | Data::Drop => 0,
        Data::Value(value) => value.len(),
        Data::Goto(name) | Data::Object(name) => name.len(),
    };
    let end = element.key_end.map_or(0, <[u8]>::len);
    ATTRIBUTES
        + element.key.len()
        + 2 * end
        + data
        + element.comment.len().min(abi::NFTNL_UDATA_COMMENT_MAXLEN)
}

fn write_element(out: &mut Vec<u8>, verb: Verb, element: &Element<'_>, end: Option<&[u8]>) {
    wire::value(out, abi::NFTA_SET_ELEM_KEY, element.key);
    if let Some(end) = end {
        wire::value(out, abi::NFTA_SET_ELEM_KEY_END, end);
    }
    if verb == Verb::Delete {
        return;
    }
    match element.data {
        Data::None => {}
        Data::Value(value) => wire::value(out, abi::NFTA_SET_ELEM_DATA, value),
        Data::Drop => wire::nest(out, abi::NFTA_SET_ELEM_DATA, |out| {
            expression::verdict(out, abi::NF_DROP, None);
        }),
        Data::Goto(chain) => wire::nest(out, abi::NFTA_SET_ELEM_DATA, |out| {
            expression::verdict(out, abi::NFT_GOTO, Some(chain));
        }),
        Data::Object(name) => wire::string(out, abi::NFTA_SET_ELEM_OBJREF, name),
    }
    if let Some(timeout) = element.timeout {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        wire::be64(out, abi::NFTA_SET_ELEM_TIMEOUT, milliseconds);
    }
    let kind = abi::NFTNL_UDATA_SET_ELEM_COMMENT;
    wire::comment(out, abi::NFTA_SET_ELEM_USERDATA, kind, element.comment);
}

/// Writes the end of an interval of single addresses. Such an interval is two elements: its first
/// address, and the address after its last one with a flag. An interval up to the last address of the
/// family has no end element.
fn write_interval_end(out: &mut Vec<u8>, last: &[u8]) {
    let mut after = last.to_vec();
    let carry = after.iter_mut().rev().fold(true, |carry, byte| {
        let (next, over) = byte.overflowing_add(u8::from(carry));
        *byte = next;
        over
    });
    if !carry {
        wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
            wire::be32(out, abi::NFTA_SET_ELEM_FLAGS, abi::NFT_SET_ELEM_INTERVAL_END);
            wire::value(out, abi::NFTA_SET_ELEM_KEY, &after);
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
            let list = message.attributes().get(abi::NFTA_SET_ELEM_LIST_ELEMENTS).unwrap();
            assert!(list.value.len() <= MAX_LIST_LEN, "{}", list.value.len());
            list.nested().count()
        });
        assert_eq!(lists.sum::<usize>(), 1000);
    }

    #[test]
    fn an_interval_ends_after_its_last_address() {
        let mut batch = Batch::new("t");
        let ends = [[10, 0, 255, 255], [255, 255, 255, 255]];
        for end in &ends {
            let interval = Element { key_end: Some(end), ..Element::key(&[10, 0, 0, 0]) };
            batch.elements(Verb::Add, Family::Ip, "s").push(&interval);
        }
        let keys = batch.numbered().map(|(_, message)| {
            let list = message.attributes().get(abi::NFTA_SET_ELEM_LIST_ELEMENTS).unwrap().nested();
            let key = |element: Attribute<'_>| {
                let key = element.nested().get(abi::NFTA_SET_ELEM_KEY).unwrap().nested();
                key.get(abi::NFTA_DATA_VALUE).unwrap().value.to_vec()
            };
            list.map(key).collect::<Vec<_>>()
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
