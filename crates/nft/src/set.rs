//! Declarations of sets and maps, with the types that `nft list` needs to print their elements.
//!
//! The kernel only wants lengths. `nft` finds out how to print a key from a number of six bits per
//! part, and where a part is a plain integer without a length of its own, from a description of an
//! expression with that type (`typeof`) in the user data.

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
    /// A number of four bytes in the order of this machine: a slot.
    Number,
    /// Data only, and alone: what to do with the packet.
    Verdict,
    /// Data only, and alone: a named counter.
    Counter,
}

impl Type {
    /// Bytes it takes, without padding.
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

    /// What `nft` calls it.
    const fn number(self, family: Family) -> u32 {
        match (self, family) {
            (Self::Address, Family::Ip) => 7,
            (Self::Address, Family::Ip6) => 8,
            (Self::Protocol, _) => 12,
            (Self::Port, _) => 13,
            (Self::Number, _) => 4,
            (Self::Verdict, _) => 0xffff_ff00,
            (Self::Counter, _) => 0,
        }
    }
}

/// What kind of set it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's flags, one by one")]
pub struct SetFlags {
    /// Elements are intervals.
    pub interval: bool,
    /// Rules add elements.
    pub dynamic: bool,
    /// Elements leave by themselves.
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
    /// What kind of set it is.
    pub flags: SetFlags,
    /// The most elements it may have.
    pub size: Option<u32>,
    /// For people; may be empty.
    pub comment: &'static str,
}

const INTERVAL: u32 = 0x4;
const MAP: u32 = 0x8;
const TIMEOUT: u32 = 0x10;
const DYNAMIC: u32 = 0x20;
const OBJECT: u32 = 0x40;
const CONCAT: u32 = 0x80;

impl SetSpec {
    /// Bytes of a key in that family.
    #[must_use]
    pub fn key_len(&self, family: Family) -> usize {
        padded(self.key, family)
    }

    fn is_interval_concat(&self) -> bool {
        self.flags.interval && self.key.len() > 1
    }

    fn kernel_flags(&self) -> u32 {
        let data = match self.data {
            [] => 0,
            [Type::Counter] => OBJECT,
            _ => MAP,
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        data | flag(self.flags.interval, INTERVAL)
            | flag(self.flags.timeout, TIMEOUT)
            | flag(self.flags.dynamic, DYNAMIC)
            | flag(self.is_interval_concat(), CONCAT)
    }

    /// The attributes of the message behind the table's name.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, family: Family, id: u32) {
        wire::string(out, 2, self.name);
        wire::be32(out, 3, self.kernel_flags());
        wire::be32(out, 4, numbers(self.key, family));
        wire::be32(out, 5, length(self.key, family));
        match self.data {
            [] => {}
            [Type::Counter] => wire::be32(out, 15, 1),
            data => {
                wire::be32(out, 6, numbers(data, family));
                wire::be32(out, 7, length(data, family));
            }
        }
        wire::be32(out, 10, id);
        self.describe(out, family);
        let user = self.user_data(family);
        wire::bytes(out, 13, &user);
        if self.flags.counter {
            wire::nest(out, 17, expression::counter_body);
        }
    }

    /// The size, and for intervals over several parts the length of each.
    fn describe(&self, out: &mut Vec<u8>, family: Family) {
        if self.size.is_none() && !self.is_interval_concat() {
            return;
        }
        wire::nest(out, 9, |out| {
            if let Some(size) = self.size {
                wire::be32(out, 1, size);
            }
            if self.is_interval_concat() {
                wire::nest(out, 2, |out| self.describe_parts(out, family));
            }
        });
    }

    fn describe_parts(&self, out: &mut Vec<u8>, family: Family) {
        for part in self.key {
            let length = u32::try_from(part.length(family)).unwrap_or_default();
            wire::nest(out, 1, |out| wire::be32(out, 1, length));
        }
    }

    /// What the kernel keeps for `nft`: byte order, `typeof` where it is needed, the comment.
    fn user_data(&self, family: Family) -> Vec<u8> {
        const KEY_BYTE_ORDER: u8 = 0;
        const KEY_TYPEOF: u8 = 3;
        const DATA_TYPEOF: u8 = 4;
        const COMMENT: u8 = 7;
        let order = match self.key {
            [Type::Address | Type::Port] => 2,
            [_] => 1,
            _ => 0,
        };
        let mut out = Vec::new();
        piece(&mut out, KEY_BYTE_ORDER, &u32::to_ne_bytes(order));
        if self.key.contains(&Type::Number) {
            piece(&mut out, KEY_TYPEOF, &type_of(self.key, family));
            if !matches!(self.data, [] | [Type::Verdict | Type::Counter]) {
                piece(&mut out, DATA_TYPEOF, &type_of(self.data, family));
            }
        }
        if !self.comment.is_empty() {
            wire::push_comment(&mut out, COMMENT, self.comment);
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

fn numbers(parts: &[Type], family: Family) -> u32 {
    match parts {
        [part] => part.number(family),
        parts => parts.iter().fold(0, |sum, part| (sum << 6) | part.number(family)),
    }
}

/// A piece of user data.
fn piece(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(value);
}

fn number_piece(out: &mut Vec<u8>, kind: u8, value: u32) {
    piece(out, kind, &value.to_ne_bytes());
}

/// A description of an expression: its kind, and what that kind needs.
fn expression_of(kind: u32, details: &[u32]) -> Vec<u8> {
    let mut inner = Vec::new();
    for (index, detail) in (0..).zip(details) {
        number_piece(&mut inner, index, *detail);
    }
    let mut out = Vec::new();
    number_piece(&mut out, 0, kind);
    piece(&mut out, 1, &inner);
    out
}

/// An expression of these types, in the words of `nft`.
fn type_of(parts: &[Type], family: Family) -> Vec<u8> {
    const CONCATENATION: u32 = 13;
    let mut pieces: Vec<Vec<u8>> = parts.iter().map(|part| type_of_part(*part, family)).collect();
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut inner = Vec::new();
    for (index, part) in (0..).zip(&pieces) {
        piece(&mut inner, index, part);
    }
    let mut out = Vec::new();
    number_piece(&mut out, 0, CONCATENATION);
    piece(&mut out, 1, &inner);
    out
}

fn type_of_part(part: Type, family: Family) -> Vec<u8> {
    const PAYLOAD: u32 = 7;
    const META: u32 = 9;
    const NUMGEN: u32 = 23;
    // The modulus is each rule's own; here it only stands for a number.
    const ANY_MODULUS: u32 = 65536;
    match (part, family) {
        (Type::Address, Family::Ip) => expression_of(PAYLOAD, &[12, 12]),
        (Type::Address, Family::Ip6) => expression_of(PAYLOAD, &[13, 9]),
        (Type::Protocol, _) => expression_of(META, &[16]),
        (Type::Port, _) => expression_of(PAYLOAD, &[11, 2]),
        (Type::Number | Type::Verdict | Type::Counter, _) => {
            expression_of(NUMGEN, &[1, ANY_MODULUS, 0])
        }
    }
}
