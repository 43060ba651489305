//! Rules as the kernel's expressions: small steps that load registers and compare, look up or act.
//!
//! ```text
//!   ip daddr . meta l4proto vmap @services
//!     = payload network+16, 4 bytes -> register 8 | meta l4proto -> register 9 | lookup 8 -> verdict
//! ```
//!
//! There are sixteen registers of four bytes, numbers 8 to 23. The parts of a key go into registers
//! side by side.

use std::net::IpAddr;

use crate::rule::{Field, Rule, Statement, is_whole, mask_address, masked};
use crate::value::{Bytes, Family};
use crate::wire;

const FIRST: u32 = 8;
const VERDICT: u32 = 0;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;

const META_MARK: u32 = 3;
const META_INPUT_NAME: u32 = 6;
const META_PROTOCOL: u32 = 16;

const CT_STATE: u32 = 0;
const CT_STATUS: u32 = 2;
const CT_DPORT: u32 = 12;

/// Writes the expressions of a rule as list elements.
pub(crate) fn encode(out: &mut Vec<u8>, family: Family, rule: &Rule) {
    for statement in &rule.statements {
        Encoder { out, family }.statement(statement);
    }
}

/// A counter with nothing counted, as name and data.
pub(crate) fn counter_body(out: &mut Vec<u8>) {
    wire::string(out, 1, "counter");
    wire::nest(out, 2, |_| {});
}

/// A verdict with its chain, as the data of an element or of a rule.
pub(crate) fn verdict(out: &mut Vec<u8>, code: i32, chain: Option<&str>) {
    wire::nest(out, 2, |out| {
        wire::be32(out, 1, u32::from_ne_bytes(code.to_ne_bytes()));
        if let Some(chain) = chain {
            wire::string(out, 2, chain);
        }
    });
}

/// Codes of verdicts.
pub(crate) mod code {
    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    pub(crate) const RETURN: i32 = -5;
}

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    family: Family,
}

impl Encoder<'_> {
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CtStateNew => self.ct_flag(CT_STATE, 0x8),
            Statement::CtStatusDnat => self.ct_flag(CT_STATUS, 0x20),
            Statement::Prefix { field, address, length, negate } => {
                self.prefix(*field, *address, *length, *negate);
            }
            Statement::InputInterface { name, prefix, negate } => {
                self.interface(name, *prefix, *negate);
            }
            Statement::FibLocal { field } => self.fib_local(*field),
            Statement::SetMark(bits) => self.change_mark(!bits, *bits),
            Statement::ClearMark(bits) => self.change_mark(u32::MAX, *bits),
            Statement::HasMark(bits) => {
                self.meta(META_MARK, FIRST);
                self.any_bit(*bits);
            }
            Statement::Masquerade => {
                const FULLY_RANDOM: u32 = 0x10;
                self.expression("masq", |out| wire::be32(out, 1, FULLY_RANDOM));
            }
            Statement::Reject => self.reject(),
            Statement::Drop => self.verdict(code::DROP, None),
            Statement::Accept => self.verdict(code::ACCEPT, None),
            Statement::Return => self.verdict(code::RETURN, None),
            Statement::Jump(chain) => self.verdict(code::JUMP, Some(chain)),
            Statement::Goto(chain) => self.verdict(code::GOTO, Some(chain)),
            Statement::Counter => wire::nest(self.out, 1, counter_body),
            _ => self.lookups(statement),
        }
    }

    fn lookups(&mut self, statement: &Statement) {
        match statement {
            Statement::InSet { fields, set, negate } => {
                self.load(fields, FIRST);
                self.lookup(set, None, *negate);
            }
            Statement::Vmap { fields, map } => {
                self.load(fields, FIRST);
                self.lookup(map, Some(VERDICT), false);
            }
            Statement::Dnat { fields, map } => {
                self.load(fields, FIRST);
                self.lookup(map, Some(FIRST), false);
                self.dnat();
            }
            Statement::CountByMap { fields, map } => {
                self.load(fields, FIRST);
                self.expression("objref", |out| {
                    wire::be32(out, 3, FIRST);
                    wire::string(out, 4, map);
                });
            }
            Statement::Update { map, key, timeout, data } => {
                let behind = self.load(key, FIRST);
                self.load(data, behind);
                let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let data = (!data.is_empty()).then_some(behind);
                self.update(map, data, milliseconds);
            }
            _ => {}
        }
    }

    fn expression(&mut self, name: &str, body: impl FnOnce(&mut Vec<u8>)) {
        wire::nest(self.out, 1, |out| {
            wire::string(out, 1, name);
            wire::nest(out, 2, body);
        });
    }

    /// Loads fields side by side; returns the register behind them.
    fn load(&mut self, fields: &[Field], mut register: u32) -> u32 {
        for field in fields {
            self.load_one(*field, register);
            let words = field.padded_len(self.family) / 4;
            register += u32::try_from(words).unwrap_or_default();
        }
        register
    }

    fn load_one(&mut self, field: Field, register: u32) {
        let (saddr, daddr) = match self.family {
            Family::Ip => (12, 16),
            Family::Ip6 => (8, 24),
        };
        let (ct_saddr, ct_daddr) = match self.family {
            Family::Ip => (19, 20),
            Family::Ip6 => (21, 22),
        };
        match field {
            Field::Saddr => self.network_header(saddr, register),
            Field::Daddr => self.network_header(daddr, register),
            Field::Protocol => self.meta(META_PROTOCOL, register),
            Field::Dport => self.payload([2, 2, 2], register),
            Field::Slot(modulus) => self.random(modulus, register),
            Field::SaddrMasked(length) if is_whole(self.family, length) => {
                self.network_header(saddr, register);
            }
            Field::SaddrMasked(length) => {
                self.network_header(saddr, register);
                let mask = Bytes::new().address(mask_address(self.family, length));
                self.bitwise(register, mask.as_slice(), &[]);
            }
            Field::OriginalSaddr => self.ct_original(ct_saddr, register),
            Field::OriginalDaddr => self.ct_original(ct_daddr, register),
            Field::OriginalDport => self.ct_original(CT_DPORT, register),
        }
    }

    fn network_header(&mut self, offset: u32, register: u32) {
        let length = u32::try_from(self.family.address_len()).unwrap_or_default();
        self.payload([1, offset, length], register);
    }

    /// Base (1 network, 2 transport header), offset and length.
    fn payload(&mut self, [base, offset, length]: [u32; 3], register: u32) {
        self.expression("payload", |out| {
            wire::be32(out, 1, register);
            wire::be32(out, 2, base);
            wire::be32(out, 3, offset);
            wire::be32(out, 4, length);
        });
    }

    fn meta(&mut self, key: u32, register: u32) {
        self.expression("meta", |out| {
            wire::be32(out, 2, key);
            wire::be32(out, 1, register);
        });
    }

    fn ct_original(&mut self, key: u32, register: u32) {
        self.expression("ct", |out| {
            wire::be32(out, 2, key);
            wire::be32(out, 1, register);
            wire::bytes(out, 3, &[0]);
        });
    }

    fn random(&mut self, modulus: u32, register: u32) {
        const RANDOM: u32 = 1;
        self.expression("numgen", |out| {
            wire::be32(out, 1, register);
            wire::be32(out, 2, modulus);
            wire::be32(out, 3, RANDOM);
            wire::be32(out, 4, 0);
        });
    }

    /// `register = (register & mask) ^ xor`; no xor: zeros.
    fn bitwise(&mut self, register: u32, mask: &[u8], xor: &[u8]) {
        let zeros = Bytes::from_slice(&[0; Bytes::MAX][..mask.len().min(Bytes::MAX)]);
        let xor = if xor.is_empty() { zeros.as_slice() } else { xor };
        self.expression("bitwise", |out| {
            wire::be32(out, 1, register);
            wire::be32(out, 2, register);
            wire::be32(out, 3, u32::try_from(mask.len()).unwrap_or_default());
            wire::nest(out, 4, |out| wire::bytes(out, 1, mask));
            wire::nest(out, 5, |out| wire::bytes(out, 1, xor));
        });
    }

    fn compare(&mut self, operator: u32, value: &[u8]) {
        self.expression("cmp", |out| {
            wire::be32(out, 1, FIRST);
            wire::be32(out, 2, operator);
            wire::nest(out, 3, |out| wire::bytes(out, 1, value));
        });
    }

    /// One of the bits is set in the first register.
    fn any_bit(&mut self, bits: u32) {
        self.bitwise(FIRST, &bits.to_ne_bytes(), &[]);
        self.compare(DIFFERENT, &[0; 4]);
    }

    fn ct_flag(&mut self, key: u32, bit: u32) {
        self.expression("ct", |out| {
            wire::be32(out, 2, key);
            wire::be32(out, 1, FIRST);
        });
        self.any_bit(bit);
    }

    fn prefix(&mut self, field: Field, address: IpAddr, length: u8, negate: bool) {
        self.load_one(field, FIRST);
        let family = Family::of(address);
        if !is_whole(family, length) {
            let mask = Bytes::new().address(mask_address(family, length));
            self.bitwise(FIRST, mask.as_slice(), &[]);
        }
        let network = Bytes::new().address(masked(address, length));
        self.compare(operator(negate), network.as_slice());
    }

    fn interface(&mut self, name: &str, prefix: bool, negate: bool) {
        const NAME: usize = 16;
        self.meta(META_INPUT_NAME, FIRST);
        let mut padded = [0; NAME];
        let length = name.len().min(NAME - 1);
        padded[..length].copy_from_slice(&name.as_bytes()[..length]);
        let value = if prefix { &padded[..length] } else { &padded[..] };
        self.compare(operator(negate), value);
    }

    fn fib_local(&mut self, field: Field) {
        const ADDRESS_TYPE: u32 = 3;
        const LOCAL: u32 = 2;
        let which = if field == Field::Saddr { 1 } else { 2 };
        self.expression("fib", |out| {
            wire::be32(out, 3, which);
            wire::be32(out, 2, ADDRESS_TYPE);
            wire::be32(out, 1, FIRST);
        });
        self.compare(EQUAL, &LOCAL.to_ne_bytes());
    }

    fn change_mark(&mut self, mask: u32, xor: u32) {
        self.meta(META_MARK, FIRST);
        self.bitwise(FIRST, &mask.to_ne_bytes(), &xor.to_ne_bytes());
        self.expression("meta", |out| {
            wire::be32(out, 2, META_MARK);
            wire::be32(out, 3, FIRST);
        });
    }

    fn reject(&mut self) {
        // "Port unreachable" in either family.
        let code = match self.family {
            Family::Ip => 3,
            Family::Ip6 => 4,
        };
        self.expression("reject", |out| {
            wire::be32(out, 1, 0);
            wire::bytes(out, 2, &[code]);
        });
    }

    fn verdict(&mut self, code: i32, chain: Option<&str>) {
        self.expression("immediate", |out| {
            wire::be32(out, 1, VERDICT);
            wire::nest(out, 2, |out| verdict(out, code, chain));
        });
    }

    fn lookup(&mut self, set: &str, into: Option<u32>, negate: bool) {
        self.expression("lookup", |out| {
            wire::string(out, 1, set);
            wire::be32(out, 2, FIRST);
            if let Some(into) = into {
                wire::be32(out, 3, into);
            }
            if negate {
                wire::be32(out, 5, 1);
            }
        });
    }

    /// To the address in the first registers and the port behind it.
    fn dnat(&mut self) {
        const DESTINATION: u32 = 1;
        let family = self.family;
        let port = FIRST + u32::try_from(family.address_len() / 4).unwrap_or_default();
        self.expression("nat", |out| {
            wire::be32(out, 1, DESTINATION);
            wire::be32(out, 2, u32::from(family.number()));
            wire::be32(out, 3, FIRST);
            wire::be32(out, 5, port);
        });
    }

    fn update(&mut self, set: &str, data: Option<u32>, milliseconds: u64) {
        const UPDATE: u32 = 1;
        self.expression("dynset", |out| {
            wire::string(out, 1, set);
            wire::be32(out, 3, UPDATE);
            wire::be32(out, 4, FIRST);
            if let Some(data) = data {
                wire::be32(out, 5, data);
            }
            if milliseconds > 0 {
                wire::be64(out, 6, milliseconds);
            }
        });
    }
}

const fn operator(negate: bool) -> u32 {
    if negate { DIFFERENT } else { EQUAL }
}
