//! Declarations of sets and maps, with the types that `nft list` needs to print their elements.
//!
//! The kernel only uses the lengths. `nft` prints a key by its type number, which has six bits for each
//! part. A plain integer has no length of its own there: sets with one carry the description of an
//! expression of that type (`typeof`) in their user data.

use crate::abi;
use crate::expression;
use crate::value::Family;
use crate::wire;

/// The type of a part of a key or of data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Type {
    /// An address of the table's family.
    Address,
    /// A protocol number.
    Protocol,
    /// A port.
    Port,
    /// A number of four bytes in host byte order, such as a slot.
    Number,
    /// A verdict. Only as data, and alone.
    Verdict,
    /// A named counter. Only as data, and alone.
    Counter,
}

impl Type {
    /// Its length in bytes, without padding.
    #[must_use]
    pub const fn length(self, family: Family) -> usize {
        match self {
            Self::Address => family.address_len(),
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Number => 4,
            Self::Verdict | Self::Counter => 0,
        }
    }

    /// The type number of `nft`; verdicts have one of the kernel, counters have none.
    const fn number(self, family: Family) -> u32 {
        match (self, family) {
            (Self::Address, Family::Ip) => abi::TYPE_IPADDR,
            (Self::Address, Family::Ip6) => abi::TYPE_IP6ADDR,
            (Self::Protocol, _) => abi::TYPE_INET_PROTOCOL,
            (Self::Port, _) => abi::TYPE_INET_SERVICE,
            (Self::Number, _) => abi::TYPE_INTEGER,
            (Self::Verdict, _) => abi::NFT_DATA_VERDICT,
            (Self::Counter, _) => 0,
        }
    }

    /// The kind of object that data of this type names; `None` if elements hold the data themselves.
    const fn object_kind(self) -> Option<u32> {
        match self {
            Self::Counter => Some(abi::NFT_OBJECT_COUNTER),
            Self::Address | Self::Protocol | Self::Port | Self::Number | Self::Verdict => None,
        }
    }

    /// The byte order of a key that consists of this type alone.
    const fn byte_order(self) -> u32 {
        match self {
            Self::Address | Self::Port => abi::BYTEORDER_BIG_ENDIAN,
            Self::Protocol | Self::Number | Self::Verdict | Self::Counter => {
                abi::BYTEORDER_HOST_ENDIAN
            }
        }
    }
}

/// The properties of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's flags, one by one")]
pub struct SetFlags {
    /// Elements are intervals.
    pub interval: bool,
    /// Rules add elements to it.
    pub dynamic: bool,
    /// The kernel removes elements after their timeout.
    pub timeout: bool,
    /// Every element counts its packets.
    pub counter: bool,
}

/// A set or map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetSpec {
    /// Its name.
    pub name: &'static str,
    /// The parts of its key.
    pub key: &'static [Type],
    /// The parts of its data. Empty: a set. `[Verdict]`: a verdict map. `[Counter]`: a map of
    /// counters.
    pub data: &'static [Type],
    /// Its properties.
    pub flags: SetFlags,
    /// The most elements it may have.
    pub size: Option<u32>,
    /// A comment for `nft list`; may be empty.
    pub comment: &'static str,
}

impl SetSpec {
    /// The length of a key in bytes.
    #[must_use]
    pub fn key_len(&self, family: Family) -> usize {
        padded(self.key, family)
    }

    /// The kind of object that the data names; objects are named alone.
    fn object_kind(&self) -> Option<u32> {
        match self.data {
            [data] => data.object_kind(),
            [] | [_, _, ..] => None,
        }
    }

    fn is_interval_concat(&self) -> bool {
        self.flags.interval && self.key.len() > 1
    }

    fn kernel_flags(&self) -> u32 {
        let data = match (self.data, self.object_kind()) {
            ([], _) => 0,
            (_, Some(_)) => abi::NFT_SET_OBJECT,
            (_, None) => abi::NFT_SET_MAP,
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        // `counter` is no flag of the kernel: it is the set's expression.
        let SetFlags { interval, dynamic, timeout, counter: _ } = self.flags;
        data | flag(interval, abi::NFT_SET_INTERVAL)
            | flag(timeout, abi::NFT_SET_TIMEOUT)
            | flag(dynamic, abi::NFT_SET_EVAL)
            | flag(self.is_interval_concat(), abi::NFT_SET_CONCAT)
    }

    /// Writes the attributes that follow the set's name.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, family: Family, id: u32) {
        wire::be32(out, abi::NFTA_SET_FLAGS, self.kernel_flags());
        wire::be32(out, abi::NFTA_SET_KEY_TYPE, type_number(self.key, family));
        wire::be32(out, abi::NFTA_SET_KEY_LEN, length(self.key, family));
        match (self.data, self.object_kind()) {
            ([], _) => {}
            (_, Some(kind)) => wire::be32(out, abi::NFTA_SET_OBJ_TYPE, kind),
            (data, None) => {
                wire::be32(out, abi::NFTA_SET_DATA_TYPE, type_number(data, family));
                wire::be32(out, abi::NFTA_SET_DATA_LEN, length(data, family));
            }
        }
        wire::be32(out, abi::NFTA_SET_ID, id);
        self.describe(out, family);
        wire::bytes(out, abi::NFTA_SET_USERDATA, &self.user_data(family));
        if self.flags.counter {
            wire::nest(out, abi::NFTA_SET_EXPR, expression::counter_body);
        }
    }

    /// Writes the size, and for intervals over several parts the length of each part.
    fn describe(&self, out: &mut Vec<u8>, family: Family) {
        if self.size.is_none() && !self.is_interval_concat() {
            return;
        }
        wire::nest(out, abi::NFTA_SET_DESC, |out| {
            if let Some(size) = self.size {
                wire::be32(out, abi::NFTA_SET_DESC_SIZE, size);
            }
            if self.is_interval_concat() {
                wire::nest(out, abi::NFTA_SET_DESC_CONCAT, |out| self.describe_parts(out, family));
            }
        });
    }

    fn describe_parts(&self, out: &mut Vec<u8>, family: Family) {
        for part in self.key {
            let length = u32::try_from(part.length(family)).unwrap_or_default();
            wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
                wire::be32(out, abi::NFTA_SET_FIELD_LEN, length);
            });
        }
    }

    /// The user data that the kernel stores for `nft`: byte order, `typeof` if needed, comment.
    fn user_data(&self, family: Family) -> Vec<u8> {
        let byte_order = match self.key {
            [key] => key.byte_order(),
            [] | [_, _, ..] => abi::BYTEORDER_INVALID,
        };
        let mut out = Vec::new();
        number_entry(&mut out, abi::NFTNL_UDATA_SET_KEYBYTEORDER, byte_order);
        if self.key.contains(&Type::Number) {
            entry(&mut out, abi::NFTNL_UDATA_SET_KEY_TYPEOF, &type_of(self.key, family));
            if !self.data.is_empty() && self.object_kind().is_none() {
                entry(&mut out, abi::NFTNL_UDATA_SET_DATA_TYPEOF, &type_of(self.data, family));
            }
        }
        if !self.comment.is_empty() {
            wire::push_comment(&mut out, abi::NFTNL_UDATA_SET_COMMENT, self.comment);
        }
        out
    }
}

fn padded(parts: &[Type], family: Family) -> usize {
    match parts {
        [part] => part.length(family),
        parts => parts.iter().map(|part| part.length(family).next_multiple_of(4)).sum(),
    }
}

fn length(parts: &[Type], family: Family) -> u32 {
    u32::try_from(padded(parts, family)).unwrap_or_default()
}

fn type_number(parts: &[Type], family: Family) -> u32 {
    match parts {
        [part] => part.number(family),
        parts => parts.iter().fold(0, |sum, part| (sum << abi::TYPE_BITS) | part.number(family)),
    }
}

/// Appends an entry of user data: type, length, value.
fn entry(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(value);
}

fn number_entry(out: &mut Vec<u8>, kind: u8, value: u32) {
    entry(out, kind, &value.to_ne_bytes());
}

/// The description of an expression for `nft`: its kind, and the entries that this kind needs.
fn describe_expression(kind: u32, entries: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    number_entry(&mut out, abi::NFTNL_UDATA_SET_TYPEOF_EXPR, kind);
    entry(&mut out, abi::NFTNL_UDATA_SET_TYPEOF_DATA, entries);
    out
}

/// The description of an expression whose entries are numbers.
fn describe_simple_expression(kind: u32, numbers: &[u32]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (index, number) in (0..).zip(numbers) {
        number_entry(&mut entries, index, *number);
    }
    describe_expression(kind, &entries)
}

/// The description of an expression with these types.
fn type_of(parts: &[Type], family: Family) -> Vec<u8> {
    if let [part] = parts {
        return type_of_part(*part, family);
    }
    let mut entries = Vec::new();
    for (index, part) in (0..).zip(parts) {
        entry(&mut entries, index, &type_of_part(*part, family));
    }
    describe_expression(abi::EXPR_CONCAT, &entries)
}

fn type_of_part(part: Type, family: Family) -> Vec<u8> {
    /// Each rule has a modulus of its own; the type of the expression does not depend on it.
    const ANY_MODULUS: u32 = 65536;
    let (kind, numbers): (u32, &[u32]) = match (part, family) {
        (Type::Address, Family::Ip) => (abi::EXPR_PAYLOAD, &[abi::PROTO_DESC_IP, abi::IPHDR_DADDR]),
        (Type::Address, Family::Ip6) => {
            (abi::EXPR_PAYLOAD, &[abi::PROTO_DESC_IP6, abi::IP6HDR_DADDR])
        }
        (Type::Protocol, _) => (abi::EXPR_META, &[abi::NFT_META_L4PROTO]),
        (Type::Port, _) => (abi::EXPR_PAYLOAD, &[abi::PROTO_DESC_TH, abi::THDR_DPORT]),
        (Type::Verdict, _) => (abi::EXPR_VERDICT, &[]),
        (Type::Number | Type::Counter, _) => {
            (abi::EXPR_NUMGEN, &[abi::NFT_NG_RANDOM, ANY_MODULUS, 0])
        }
    };
    describe_simple_expression(kind, numbers)
}
