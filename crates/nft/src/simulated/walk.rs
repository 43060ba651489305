//! Walks a packet through the rules: once with random numbers that the caller draws, or once for every random number that
//! they draw. Then numbers for which the next lookup finds the same are walked once.
//!
//! Only what our rules consist of is known. Any other expression ends the walk with [`Destination::Unknown`], so that
//! a new kind of rule is noticed.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::tables::{Chain, Data, Set, Table, Tables, Verdict, expressions, number, text, verdict};
use crate::abi;
use crate::parse::{Attribute, Attributes};
use crate::value::{Bytes, Family, Parts};

/// The first packet of a connection, which comes in from outside of this machine.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Its protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Its destination port.
    pub port: u16,
    /// The addresses of this machine.
    pub local: BTreeSet<IpAddr>,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// Its destination is translated to this endpoint.
    Endpoint(SocketAddr),
    /// It is dropped.
    Dropped,
    /// It is rejected.
    Rejected,
    /// It stays as it is.
    Unchanged,
    /// A rule has an expression that is not known here.
    Unknown(String),
}

/// How a rule or chain ended.
enum Step {
    /// Go on with the next rule.
    Next,
    /// Leave this chain.
    Return,
    /// Leave the base chain.
    Accept,
    End(Destination),
}

pub(super) fn destinations(tables: &Tables, packet: &Packet) -> BTreeSet<Destination> {
    let mut found = BTreeSet::new();
    // Each entry is a list of the random numbers to draw, one after the other.
    let mut to_try = vec![Vec::new()];
    while let Some(choices) = to_try.pop() {
        let mut walk = Walk::new(packet, Draw::Listed { choices, drawn: 0, open: None });
        let destination = walk.all(tables);
        let Draw::Listed { choices, open, .. } = walk.draw else { continue };
        match open {
            None => drop(found.insert(destination)),
            Some(numbers) => to_try.extend(numbers.into_iter().map(|number| {
                let drawn = choices.iter().copied();
                drawn.chain([number]).collect()
            })),
        }
    }
    found
}

/// Where a packet goes if every random number is what `draw` returns for its modulus.
pub(super) fn destination(
    tables: &Tables,
    packet: &Packet,
    draw: &mut dyn FnMut(u32) -> u32,
) -> Destination {
    Walk::new(packet, Draw::From(draw)).all(tables)
}

/// Where random numbers come from.
enum Draw<'a> {
    From(&'a mut dyn FnMut(u32) -> u32),
    /// From a list, one after the other.
    Listed {
        choices: Vec<u32>,
        drawn: usize,
        /// The random numbers to go on with, where one was needed that is not in `choices`.
        open: Option<Vec<u32>>,
    },
}

struct Walk<'a> {
    packet: &'a Packet,
    draw: Draw<'a>,
    mark: u32,
    registers: [u8; 64],
}

impl<'a> Walk<'a> {
    const fn new(packet: &'a Packet, draw: Draw<'a>) -> Self {
        Self { packet, draw, mark: 0, registers: [0; 64] }
    }

    fn all(&mut self, tables: &Tables) -> Destination {
        for hook in [abi::NF_INET_PRE_ROUTING, abi::NF_INET_FORWARD] {
            for table in tables.of(Family::of(self.packet.destination)) {
                let base =
                    |chain: &&Chain| chain.base.as_ref().is_some_and(|base| base.hook == hook);
                let mut chains: Vec<&Chain> = table.chains.values().filter(base).collect();
                chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
                for chain in chains {
                    if let Step::End(end) = self.chain(table, chain) {
                        return end;
                    }
                }
            }
        }
        Destination::Unchanged
    }

    fn chain(&mut self, table: &Table, chain: &Chain) -> Step {
        for rule in &chain.rules {
            match self.rule(table, &rule.expressions) {
                Step::Next => {}
                Step::Return => return Step::Next,
                end => return end,
            }
            if matches!(self.draw, Draw::Listed { open: Some(_), .. }) {
                return Step::Accept;
            }
        }
        Step::Next
    }

    /// Walks through one rule: [`Step::Next`] when it does not match or has no verdict.
    fn rule(&mut self, table: &Table, list: &[u8]) -> Step {
        let all: Vec<_> = expressions(list).collect();
        for (at, &(name, data)) in all.iter().enumerate() {
            let matches = match name {
                "payload" => self.payload(data),
                "meta" => self.meta(data),
                "ct" => self.ct(data),
                "fib" => self.fib(data),
                "numgen" => self.draw(table, data, &all[at + 1..]),
                "bitwise" => self.bitwise(data),
                "cmp" => self.compare(data),
                "lookup" => match self.lookup(table, data) {
                    Ok(found) => found,
                    Err(verdict) => return self.verdict(table, &verdict),
                },
                "immediate" => {
                    let sent = data.get(abi::NFTA_IMMEDIATE_DATA).map(Attribute::nested);
                    match sent.and_then(verdict) {
                        Some(verdict) => return self.verdict(table, &verdict),
                        None => self.load_immediate(data),
                    }
                }
                "nat" => return Step::End(self.translated(data)),
                "reject" => return Step::End(Destination::Rejected),
                // They do not change where the packet goes.
                "counter" | "objref" | "dynset" | "masq" => Some(true),
                other => return Step::End(Destination::Unknown(other.to_owned())),
            };
            match matches {
                Some(true) => {}
                Some(false) => return Step::Next,
                None => return Step::End(Destination::Unknown(name.to_owned())),
            }
        }
        Step::Next
    }

    fn verdict(&mut self, table: &Table, verdict: &Verdict) -> Step {
        let chain = || table.chains.get(&verdict.chain);
        match verdict.code {
            abi::NF_DROP => Step::End(Destination::Dropped),
            abi::NF_ACCEPT => Step::Accept,
            abi::NFT_RETURN => Step::Return,
            abi::NFT_JUMP => chain().map_or(Step::Next, |chain| self.chain(table, chain)),
            abi::NFT_GOTO => match chain().map(|chain| self.chain(table, chain)) {
                // At the end of the other chain, this one is left as well.
                Some(Step::Next) | None => Step::Return,
                Some(end) => end,
            },
            _ => Step::End(Destination::Unknown(format!("verdict {}", verdict.code))),
        }
    }

    /// The place of a register of four bytes.
    fn register(number: u32) -> Option<usize> {
        let index = number.checked_sub(abi::NFT_REG32_00).filter(|index| *index < 16)?;
        usize::try_from(index).ok().map(|index| index * 4)
    }

    fn store(&mut self, data: Attributes<'_>, kind: u16, value: &[u8]) -> Option<bool> {
        let at = Self::register(number(data, kind)?)?;
        let padded = value.len().next_multiple_of(4);
        let place = self.registers.get_mut(at..at + padded)?;
        place.fill(0);
        place[..value.len()].copy_from_slice(value);
        Some(true)
    }

    fn read(&self, data: Attributes<'_>, kind: u16, length: usize) -> Option<&[u8]> {
        let at = Self::register(number(data, kind)?)?;
        self.registers.get(at..at + length)
    }

    fn payload(&mut self, data: Attributes<'_>) -> Option<bool> {
        let base = number(data, abi::NFTA_PAYLOAD_BASE)?;
        let offset = number(data, abi::NFTA_PAYLOAD_OFFSET)?;
        let packet = self.packet;
        let value = match (base, offset, packet.destination.is_ipv4()) {
            (abi::NFT_PAYLOAD_NETWORK_HEADER, 12, true)
            | (abi::NFT_PAYLOAD_NETWORK_HEADER, 8, false) => Bytes::new().address(packet.source),
            (abi::NFT_PAYLOAD_NETWORK_HEADER, 16, true)
            | (abi::NFT_PAYLOAD_NETWORK_HEADER, 24, false) => {
                Bytes::new().address(packet.destination)
            }
            (abi::NFT_PAYLOAD_TRANSPORT_HEADER, 2, _) => Bytes::new().port(packet.port),
            _ => return None,
        };
        self.store(data, abi::NFTA_PAYLOAD_DREG, value.as_slice())
    }

    fn meta(&mut self, data: Attributes<'_>) -> Option<bool> {
        let key = number(data, abi::NFTA_META_KEY)?;
        if data.get(abi::NFTA_META_SREG).is_some() {
            let value = self.read(data, abi::NFTA_META_SREG, 4)?.first_chunk().copied()?;
            self.mark = u32::from_ne_bytes(value);
            return (key == abi::NFT_META_MARK).then_some(true);
        }
        let mark = self.mark.to_ne_bytes();
        let protocol = [self.packet.protocol];
        let value: &[u8] = match key {
            abi::NFT_META_MARK => &mark,
            abi::NFT_META_L4PROTO => &protocol,
            abi::NFT_META_IIFNAME => b"eth0\0\0\0\0\0\0\0\0\0\0\0\0",
            _ => return None,
        };
        self.store(data, abi::NFTA_META_DREG, value)
    }

    fn ct(&mut self, data: Attributes<'_>) -> Option<bool> {
        let packet = self.packet;
        let value = match number(data, abi::NFTA_CT_KEY)? {
            abi::NFT_CT_STATE => Bytes::new().number(abi::NF_CT_STATE_BIT_NEW),
            abi::NFT_CT_STATUS => Bytes::new().number(0),
            abi::NFT_CT_PROTO_DST => Bytes::new().port(packet.port),
            abi::NFT_CT_SRC_IP | abi::NFT_CT_SRC_IP6 => Bytes::new().address(packet.source),
            abi::NFT_CT_DST_IP | abi::NFT_CT_DST_IP6 => Bytes::new().address(packet.destination),
            _ => return None,
        };
        self.store(data, abi::NFTA_CT_DREG, value.as_slice())
    }

    /// The type of an address: of this machine, or of another.
    fn fib(&mut self, data: Attributes<'_>) -> Option<bool> {
        const RTN_UNICAST: u32 = 1;
        let flags = number(data, abi::NFTA_FIB_FLAGS)?;
        let address = match flags & abi::NFTA_FIB_F_SADDR != 0 {
            true => self.packet.source,
            false => self.packet.destination,
        };
        let kind = if self.packet.local.contains(&address) { abi::RTN_LOCAL } else { RTN_UNICAST };
        self.store(data, abi::NFTA_FIB_DREG, &kind.to_ne_bytes())
    }

    /// Draws a random number, before these expressions.
    fn draw(
        &mut self,
        table: &Table,
        data: Attributes<'_>,
        rest: &[(&str, Attributes<'_>)],
    ) -> Option<bool> {
        let known = match &mut self.draw {
            Draw::From(draw) => Some(draw(number(data, abi::NFTA_NG_MODULUS)?)),
            Draw::Listed { choices, drawn, .. } => {
                *drawn += 1;
                choices.get(*drawn - 1).copied()
            }
        };
        if let Some(choice) = known {
            return self.store_drawn(data, choice);
        }
        let numbers = self.different(table, data, rest)?;
        if let Draw::Listed { open, .. } = &mut self.draw {
            *open = Some(numbers);
        }
        Some(false)
    }

    fn store_drawn(&mut self, data: Attributes<'_>, choice: u32) -> Option<bool> {
        let offset = number(data, abi::NFTA_NG_OFFSET).unwrap_or_default();
        self.store(data, abi::NFTA_NG_DREG, &(choice + offset).to_ne_bytes())
    }

    /// One random number for each thing that the next lookup can find.
    fn different(
        &mut self,
        table: &Table,
        data: Attributes<'_>,
        rest: &[(&str, Attributes<'_>)],
    ) -> Option<Vec<u32>> {
        let before = self.registers;
        let mut found: Vec<(Option<Data>, u32)> = Vec::new();
        for choice in 0..number(data, abi::NFTA_NG_MODULUS)? {
            self.store_drawn(data, choice)?;
            let next = self.next_lookup(table, rest)?;
            if !found.iter().any(|(known, _)| *known == next) {
                found.push((next, choice));
            }
            self.registers = before;
        }
        Some(found.into_iter().map(|(_, choice)| choice).collect())
    }

    /// What the next lookup finds, with the loads before it.
    fn next_lookup(
        &mut self,
        table: &Table,
        rest: &[(&str, Attributes<'_>)],
    ) -> Option<Option<Data>> {
        for &(name, data) in rest {
            match name {
                "payload" => self.payload(data)?,
                "meta" => self.meta(data)?,
                "ct" => self.ct(data)?,
                "lookup" => {
                    let (set, key) = self.looked_up(table, data)?;
                    return Some(find(set, key).cloned());
                }
                _ => return None,
            };
        }
        None
    }

    fn bitwise(&mut self, data: Attributes<'_>) -> Option<bool> {
        let value = |kind| Some(data.get(kind)?.nested().get(abi::NFTA_DATA_VALUE)?.value);
        let (mask, xor) = (value(abi::NFTA_BITWISE_MASK)?, value(abi::NFTA_BITWISE_XOR)?);
        let source = self.read(data, abi::NFTA_BITWISE_SREG, mask.len())?;
        let result: Vec<u8> = source
            .iter()
            .zip(mask)
            .zip(xor)
            .map(|((byte, mask), xor)| (byte & mask) ^ xor)
            .collect();
        self.store(data, abi::NFTA_BITWISE_DREG, &result)
    }

    fn compare(&self, data: Attributes<'_>) -> Option<bool> {
        let value = data.get(abi::NFTA_CMP_DATA)?.nested().get(abi::NFTA_DATA_VALUE)?.value;
        let same = self.read(data, abi::NFTA_CMP_SREG, value.len())? == value;
        match number(data, abi::NFTA_CMP_OP)? {
            abi::NFT_CMP_EQ => Some(same),
            abi::NFT_CMP_NEQ => Some(!same),
            _ => None,
        }
    }

    fn load_immediate(&mut self, data: Attributes<'_>) -> Option<bool> {
        let value = data.get(abi::NFTA_IMMEDIATE_DATA)?.nested().get(abi::NFTA_DATA_VALUE)?.value;
        self.store(data, abi::NFTA_IMMEDIATE_DREG, value)
    }

    /// Looks a key up; the error is the verdict of a verdict map.
    fn lookup(&mut self, table: &Table, data: Attributes<'_>) -> Result<Option<bool>, Verdict> {
        let Some((set, key)) = self.looked_up(table, data) else { return Ok(None) };
        let inverted =
            number(data, abi::NFTA_LOOKUP_FLAGS).unwrap_or_default() & abi::NFT_LOOKUP_F_INV != 0;
        let found = find(set, key);
        let into = number(data, abi::NFTA_LOOKUP_DREG);
        match (found, into) {
            (None, _) => Ok(Some(inverted)),
            (Some(_), None) => Ok(Some(!inverted)),
            (Some(Data::Verdict(verdict)), Some(_)) => Err(verdict.clone()),
            (Some(Data::Value(value)), Some(_)) => {
                Ok(self.store(data, abi::NFTA_LOOKUP_DREG, &value.clone()))
            }
            (Some(_), Some(_)) => Ok(None),
        }
    }

    /// The set that a lookup is about, and the key.
    fn looked_up<'t>(&self, table: &'t Table, data: Attributes<'_>) -> Option<(&'t Set, &[u8])> {
        let set = table.sets.get(&text(data, abi::NFTA_LOOKUP_SET))?;
        let length = usize::try_from(set.key_len).ok()?;
        Some((set, self.read(data, abi::NFTA_LOOKUP_SREG, length)?))
    }

    fn translated(&self, data: Attributes<'_>) -> Destination {
        let unknown = || Destination::Unknown("nat".to_owned());
        let family = Family::of(self.packet.destination);
        let address = self.read(data, abi::NFTA_NAT_REG_ADDR_MIN, family.address_len());
        let port = self.read(data, abi::NFTA_NAT_REG_PROTO_MIN, 4);
        let address = address.and_then(|address| Parts(address).address(family));
        let port = port.and_then(|port| Parts(port).port());
        match address.zip(port) {
            Some((address, port)) => Destination::Endpoint(SocketAddr::new(address, port)),
            None => unknown(),
        }
    }
}

/// The data of the element that a key is in.
fn find<'s>(set: &'s Set, key: &[u8]) -> Option<&'s Data> {
    if set.flags & abi::NFT_SET_INTERVAL == 0 {
        return set.elements.get(&(key.to_vec(), false)).map(|element| &element.data);
    }
    if set.flags & abi::NFT_SET_CONCAT != 0 {
        let within = |(from, to): (&[u8], &[u8])| {
            let mut words = key.chunks(4).zip(from.chunks(4).zip(to.chunks(4)));
            words.all(|(word, (from, to))| (from..=to).contains(&word))
        };
        let found = set
            .elements
            .iter()
            .find(|((from, _), element)| within((from, element.end.as_deref().unwrap_or(from))));
        return found.map(|(_, element)| &element.data);
    }
    // The last boundary up to the key: the start of an interval, the end of one, or both.
    let ((at, _), _) = set.elements.range(..=(key.to_vec(), true)).next_back()?;
    set.elements.get(&(at.clone(), false)).map(|element| &element.data)
}
