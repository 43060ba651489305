//! Rules as typed statements, and the text `nft list` prints for them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use crate::value::Family;

/// A property of a packet or of its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Field {
    /// The source address.
    Saddr,
    /// The destination address.
    Daddr,
    /// The transport protocol.
    Protocol,
    /// The destination port.
    Dport,
    /// A random number below this one.
    Slot(u32),
    /// A random number of so many (`count`), the lowest of which is `first`.
    SlotFrom {
        /// How many numbers there are.
        count: u32,
        /// The lowest.
        first: u32,
    },
    /// This many leading bits of the source address.
    SaddrMasked(u8),
    /// The source address of the connection, before any translation.
    OriginalSaddr,
    /// The destination address of the connection, before any translation.
    OriginalDaddr,
    /// The destination port of the connection, before any translation.
    OriginalDport,
}

impl Field {
    /// Bytes it takes in a key, with padding.
    #[must_use]
    pub const fn padded_len(self, family: Family) -> usize {
        match self {
            Self::Saddr
            | Self::Daddr
            | Self::SaddrMasked(_)
            | Self::OriginalSaddr
            | Self::OriginalDaddr => family.address_len(),
            Self::Protocol
            | Self::Dport
            | Self::Slot(_)
            | Self::SlotFrom { .. }
            | Self::OriginalDport => 4,
        }
    }

    fn write(self, out: &mut String, family: Family) -> fmt::Result {
        match self {
            Self::Saddr => write!(out, "{family} saddr"),
            Self::Daddr => write!(out, "{family} daddr"),
            Self::Protocol => out.write_str("meta l4proto"),
            Self::Dport => out.write_str("th dport"),
            Self::Slot(modulus) => write!(out, "numgen random mod {modulus}"),
            Self::SlotFrom { count, first } => {
                write!(out, "numgen random mod {count} offset {first}")
            }
            Self::SaddrMasked(length) if is_whole(family, length) => Self::Saddr.write(out, family),
            Self::SaddrMasked(length) => {
                write!(out, "{family} saddr & {}", mask_address(family, length))
            }
            Self::OriginalSaddr => write!(out, "ct original {family} saddr"),
            Self::OriginalDaddr => write!(out, "ct original {family} daddr"),
            Self::OriginalDport => out.write_str("ct original proto-dst"),
        }
    }
}

/// An address of a packet that the routing tables (FIB) are asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FibAddress {
    /// Where the packet comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A piece of a rule: a condition or an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// Matches the first packet of a connection.
    CtStateNew,
    /// Matches if the connection's destination was translated.
    CtStatusDnat,
    /// Matches the one packet of a translated connection with which the kernel comes to know it, before the end of the
    /// last hook. Unlike with [`Statement::CtStateNew`], a packet that is sent again does not match, nor does a second
    /// one before the answer.
    CtBeginsDnat,
    /// Matches if the fields together are an element of a set.
    InSet {
        /// The key.
        fields: Vec<Field>,
        /// The set's name.
        set: Cow<'static, str>,
        /// Match if they are not in the set.
        negate: bool,
    },
    /// Matches if an address field lies in a network of the table's family.
    Prefix {
        /// `Saddr`, `Daddr`, `OriginalSaddr` or `OriginalDaddr`.
        field: Field,
        /// The network's address.
        address: IpAddr,
        /// Its prefix length.
        length: u8,
        /// Match if it lies outside.
        negate: bool,
    },
    /// Matches the interface that the packet arrived on.
    InputInterface {
        /// Its name, at most 15 bytes.
        name: String,
        /// Match every name that starts with `name`.
        prefix: bool,
        /// Match any other interface.
        negate: bool,
    },
    /// Matches if the address belongs to this machine.
    FibLocal {
        /// Which one.
        address: FibAddress,
    },
    /// Sets these bits of the packet's mark.
    SetMark(u32),
    /// Matches if one of these bits of the packet's mark is set.
    HasMark(u32),
    /// Inverts these bits of the packet's mark; after `HasMark` of one bit this clears it.
    ClearMark(u32),
    /// Applies the verdict that the map has for these fields; without one, continues with the next
    /// statement.
    Vmap {
        /// The key.
        fields: Vec<Field>,
        /// The verdict map.
        map: Cow<'static, str>,
    },
    /// Translates the destination to the address and port that the map has for these fields.
    Dnat {
        /// The key.
        fields: Vec<Field>,
        /// The map to address and port.
        map: Cow<'static, str>,
    },
    /// Translates the source to this machine's address and a random port.
    Masquerade,
    /// Rejects the packet with ICMP "port unreachable".
    Reject,
    /// Drops the packet.
    Drop,
    /// Lets the packet pass this hook.
    Accept,
    /// Returns to the calling chain.
    Return,
    /// Continues in a chain, and here after it.
    Jump(Cow<'static, str>),
    /// Continues in a chain, without coming back here.
    Goto(Cow<'static, str>),
    /// Counts packets and bytes of this rule.
    Counter,
    /// Counts in a named counter.
    CountIn(Cow<'static, str>),
    /// Counts in the named counter that the map has for these fields.
    CountByMap {
        /// The key.
        fields: Vec<Field>,
        /// The map of counters.
        map: Cow<'static, str>,
    },
    /// Adds an element to a dynamic set or map, or restarts its timeout. Where elements of the set count, this one does.
    Update {
        /// The set or map.
        map: Cow<'static, str>,
        /// The key.
        key: Vec<Field>,
        /// After this time without an update the element is removed; zero: it stays.
        timeout: Duration,
        /// The data of a map's element; empty for a set.
        data: Vec<Field>,
    },
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// Conditions and actions, in order.
    pub statements: Vec<Statement>,
    /// A comment for `nft list`; may be empty.
    pub comment: String,
}

impl Rule {
    /// A rule without a comment.
    #[must_use]
    pub fn new(statements: impl Into<Vec<Statement>>) -> Self {
        Self { statements: statements.into(), comment: String::new() }
    }

    /// The same with a comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = comment.into();
        self
    }

    /// The rule as `nft list` prints it.
    #[must_use]
    pub fn text(&self, family: Family) -> String {
        let mut out = String::new();
        for statement in &self.statements {
            if !out.is_empty() {
                out.push(' ');
            }
            // Writing to a String never fails.
            let _ = statement.write(&mut out, family);
        }
        if !self.comment.is_empty() {
            let _ = write!(out, " comment \"{}\"", self.comment);
        }
        out
    }
}

impl Statement {
    /// Without a catch-all arm: a new statement must not compile before it has a text.
    fn write(&self, out: &mut String, family: Family) -> fmt::Result {
        match self {
            Self::CtStateNew => out.write_str("ct state new"),
            Self::CtStatusDnat => out.write_str("ct status dnat"),
            Self::CtBeginsDnat => out.write_str("ct status dnat / confirmed,dnat"),
            Self::SetMark(bits) => write!(out, "meta mark set meta mark | {bits:#010x}"),
            Self::HasMark(bits) => write!(out, "meta mark & {bits:#010x} != 0x00000000"),
            Self::ClearMark(bits) => write!(out, "meta mark set meta mark ^ {bits:#010x}"),
            Self::Masquerade => out.write_str("masquerade fully-random"),
            Self::Reject => out.write_str("reject"),
            Self::Drop => out.write_str("drop"),
            Self::Accept => out.write_str("accept"),
            Self::Return => out.write_str("return"),
            Self::Jump(chain) => write!(out, "jump {chain}"),
            Self::Goto(chain) => write!(out, "goto {chain}"),
            Self::Counter => out.write_str("counter"),
            Self::InputInterface { name, prefix, negate } => {
                write!(out, "iifname {}\"{name}{}\"", not(*negate), if *prefix { "*" } else { "" })
            }
            Self::FibLocal { address } => {
                let selector = match address {
                    FibAddress::Source => "saddr",
                    FibAddress::Destination => "daddr",
                };
                write!(out, "fib {selector} type local")
            }
            Self::Prefix { field, address, length, negate } => {
                field.write(out, family)?;
                write!(out, " {}{}", not(*negate), network(*address, *length))
            }
            Self::InSet { fields, set, negate } => {
                write_fields(out, family, fields)?;
                write!(out, " {}@{set}", not(*negate))
            }
            Self::Vmap { fields, map } => {
                write_fields(out, family, fields)?;
                write!(out, " vmap @{map}")
            }
            Self::Dnat { fields, map } => {
                write!(out, "dnat {family} to ")?;
                write_fields(out, family, fields)?;
                write!(out, " map @{map}")
            }
            Self::CountIn(counter) => write!(out, "counter name \"{counter}\""),
            Self::CountByMap { fields, map } => {
                out.write_str("counter name ")?;
                write_fields(out, family, fields)?;
                write!(out, " map @{map}")
            }
            Self::Update { map, key, timeout, data } => {
                write!(out, "update @{map} {{ ")?;
                write_fields(out, family, key)?;
                if !timeout.is_zero() {
                    write!(out, " timeout {}", time(*timeout))?;
                }
                if !data.is_empty() {
                    out.write_str(" : ")?;
                    write_fields(out, family, data)?;
                }
                out.write_str(" }")
            }
        }
    }
}

fn not(negate: bool) -> &'static str {
    if negate { "!= " } else { "" }
}

fn write_fields(out: &mut String, family: Family, fields: &[Field]) -> fmt::Result {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.write_str(" . ")?;
        }
        field.write(out, family)?;
    }
    Ok(())
}

/// A network in CIDR notation; a single address without its prefix length.
fn network(address: IpAddr, length: u8) -> String {
    let family = Family::of(address);
    if is_whole(family, length) {
        return address.to_string();
    }
    format!("{}/{length}", masked(address, length))
}

/// Whether a prefix of this length is the whole address.
pub(crate) fn is_whole(family: Family, length: u8) -> bool {
    usize::from(length) >= family.address_len() * 8
}

/// The network address: the leading bits of an address.
pub(crate) fn masked(address: IpAddr, length: u8) -> IpAddr {
    match (address, mask_address(Family::of(address), length)) {
        (IpAddr::V4(address), IpAddr::V4(mask)) => IpAddr::V4(address & mask),
        (IpAddr::V6(address), IpAddr::V6(mask)) => IpAddr::V6(address & mask),
        (address, _) => address,
    }
}

/// The netmask of a prefix length.
pub(crate) fn mask_address(family: Family, length: u8) -> IpAddr {
    let length = u32::from(length);
    match family {
        Family::Ip => {
            let host = u32::MAX.checked_shr(length).unwrap_or_default();
            IpAddr::V4((!host).into())
        }
        Family::Ip6 => {
            let host = u128::MAX.checked_shr(length).unwrap_or_default();
            IpAddr::V6((!host).into())
        }
    }
}

/// A duration in the units that `nft` prints: `1d2h3m4s5ms`.
fn time(time: Duration) -> String {
    let mut rest = time.as_millis();
    let mut out = String::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")]
    {
        if rest >= unit {
            let _ = write!(out, "{}{name}", rest / unit);
            rest %= unit;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}
