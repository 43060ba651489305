//! Rules as the kernel's expressions: small steps that load registers and compare, look up or act.
//!
//! ```text
//!   ip daddr . meta l4proto vmap @services
//!     = payload network+16, 4 bytes -> register 8 | meta l4proto -> register 9 | lookup 8 -> verdict
//! ```
//!
//! There are sixteen registers of four bytes, numbers 8 to 23. The parts of a key are loaded into
//! consecutive registers.

use std::net::IpAddr;
use std::time::Duration;

use crate::abi;
use crate::rule::{FibAddress, Field, Rule, Statement, is_whole, mask_address, masked};
use crate::value::{Bytes, Family};
use crate::wire;

/// The register that every key starts in.
const FIRST_REGISTER: u32 = abi::NFT_REG32_00;

/// Writes the expressions of a rule as list elements.
pub(crate) fn encode(out: &mut Vec<u8>, family: Family, rule: &Rule) {
    for statement in &rule.statements {
        Encoder { out, family }.statement(statement);
    }
}

/// The name and data of a counter expression that starts at zero.
pub(crate) fn counter_body(out: &mut Vec<u8>) {
    wire::string(out, abi::NFTA_EXPR_NAME, "counter");
    wire::nest(out, abi::NFTA_EXPR_DATA, |_| {});
}

/// A verdict with its chain, as the data of an element or of a rule.
pub(crate) fn verdict(out: &mut Vec<u8>, code: i32, chain: Option<&str>) {
    wire::nest(out, abi::NFTA_DATA_VERDICT, |out| {
        wire::be32(out, abi::NFTA_VERDICT_CODE, u32::from_ne_bytes(code.to_ne_bytes()));
        if let Some(chain) = chain {
            wire::string(out, abi::NFTA_VERDICT_CHAIN, chain);
        }
    });
}

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    family: Family,
}

impl Encoder<'_> {
    /// Without a catch-all arm: a new statement must not compile before it is encoded.
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CtStateNew => self.ct_flag(abi::NFT_CT_STATE, abi::NF_CT_STATE_BIT_NEW),
            Statement::CtStatusDnat => self.ct_flag(abi::NFT_CT_STATUS, abi::IPS_DST_NAT),
            Statement::CtBeginsDnat => self.ct_begins_dnat(),
            Statement::InSet { fields, set, negate } => {
                self.load(fields, FIRST_REGISTER);
                self.lookup(set, None, *negate);
            }
            Statement::Prefix { field, address, length, negate } => {
                self.prefix(*field, *address, *length, *negate);
            }
            Statement::InputInterface { name, prefix, negate } => {
                self.interface(name, *prefix, *negate);
            }
            Statement::FibLocal { address } => self.fib_local(*address),
            Statement::SetMark(bits) => self.change_mark(!bits, *bits),
            Statement::ClearMark(bits) => self.change_mark(u32::MAX, *bits),
            Statement::HasMark(bits) => {
                self.meta(abi::NFT_META_MARK, FIRST_REGISTER);
                self.any_bit(*bits);
            }
            Statement::Vmap { fields, map } => {
                self.load(fields, FIRST_REGISTER);
                self.lookup(map, Some(abi::NFT_REG_VERDICT), false);
            }
            Statement::Dnat { fields, map } => {
                self.load(fields, FIRST_REGISTER);
                self.lookup(map, Some(FIRST_REGISTER), false);
                self.dnat();
            }
            Statement::Masquerade => self.masquerade(),
            Statement::Reject => self.reject(),
            Statement::Drop => self.verdict(abi::NF_DROP, None),
            Statement::Accept => self.verdict(abi::NF_ACCEPT, None),
            Statement::Return => self.verdict(abi::NFT_RETURN, None),
            Statement::Jump(chain) => self.verdict(abi::NFT_JUMP, Some(chain)),
            Statement::Goto(chain) => self.verdict(abi::NFT_GOTO, Some(chain)),
            Statement::Counter => wire::nest(self.out, abi::NFTA_LIST_ELEM, counter_body),
            Statement::CountIn(counter) => self.count_in(counter),
            Statement::CountByMap { fields, map } => {
                self.load(fields, FIRST_REGISTER);
                self.count_by_map(map);
            }
            Statement::Update { map, key, timeout, data } => {
                let data_register = self.load(key, FIRST_REGISTER);
                self.load(data, data_register);
                let data_register = (!data.is_empty()).then_some(data_register);
                self.update(map, data_register, *timeout);
            }
        }
    }

    fn expression(&mut self, name: &str, body: impl FnOnce(&mut Vec<u8>)) {
        wire::nest(self.out, abi::NFTA_LIST_ELEM, |out| {
            wire::string(out, abi::NFTA_EXPR_NAME, name);
            wire::nest(out, abi::NFTA_EXPR_DATA, body);
        });
    }

    /// Loads fields into consecutive registers; returns the next free register.
    fn load(&mut self, fields: &[Field], mut register: u32) -> u32 {
        for field in fields {
            self.load_one(*field, register);
            let words = field.padded_len(self.family) / 4;
            register += u32::try_from(words).unwrap_or_default();
        }
        register
    }

    fn load_one(&mut self, field: Field, register: u32) {
        // Offsets of the addresses in the IPv4 and IPv6 header.
        let (saddr, daddr) = match self.family {
            Family::Ip => (12, 16),
            Family::Ip6 => (8, 24),
        };
        let (ct_saddr, ct_daddr) = match self.family {
            Family::Ip => (abi::NFT_CT_SRC_IP, abi::NFT_CT_DST_IP),
            Family::Ip6 => (abi::NFT_CT_SRC_IP6, abi::NFT_CT_DST_IP6),
        };
        match field {
            Field::Saddr => self.network_header(saddr, register),
            Field::Daddr => self.network_header(daddr, register),
            Field::Protocol => self.meta(abi::NFT_META_L4PROTO, register),
            // TCP, UDP and SCTP have the destination port in bytes 2 and 3.
            Field::Dport => self.payload(abi::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, register),
            Field::Slot(modulus) => self.random(modulus, 0, register),
            Field::SlotFrom { count, first } => self.random(count, first, register),
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
            Field::OriginalDport => self.ct_original(abi::NFT_CT_PROTO_DST, register),
        }
    }

    fn network_header(&mut self, offset: u32, register: u32) {
        let length = u32::try_from(self.family.address_len()).unwrap_or_default();
        self.payload(abi::NFT_PAYLOAD_NETWORK_HEADER, offset, length, register);
    }

    fn payload(&mut self, base: u32, offset: u32, length: u32, register: u32) {
        self.expression("payload", |out| {
            wire::be32(out, abi::NFTA_PAYLOAD_DREG, register);
            wire::be32(out, abi::NFTA_PAYLOAD_BASE, base);
            wire::be32(out, abi::NFTA_PAYLOAD_OFFSET, offset);
            wire::be32(out, abi::NFTA_PAYLOAD_LEN, length);
        });
    }

    fn meta(&mut self, key: u32, register: u32) {
        self.expression("meta", |out| {
            wire::be32(out, abi::NFTA_META_KEY, key);
            wire::be32(out, abi::NFTA_META_DREG, register);
        });
    }

    fn ct_original(&mut self, key: u32, register: u32) {
        self.expression("ct", |out| {
            wire::be32(out, abi::NFTA_CT_KEY, key);
            wire::be32(out, abi::NFTA_CT_DREG, register);
            wire::bytes(out, abi::NFTA_CT_DIRECTION, &[abi::IP_CT_DIR_ORIGINAL]);
        });
    }

    fn random(&mut self, modulus: u32, offset: u32, register: u32) {
        self.expression("numgen", |out| {
            wire::be32(out, abi::NFTA_NG_DREG, register);
            wire::be32(out, abi::NFTA_NG_MODULUS, modulus);
            wire::be32(out, abi::NFTA_NG_TYPE, abi::NFT_NG_RANDOM);
            wire::be32(out, abi::NFTA_NG_OFFSET, offset);
        });
    }

    /// `register = (register & mask) ^ xor`; an empty `xor` stands for zeros.
    fn bitwise(&mut self, register: u32, mask: &[u8], xor: &[u8]) {
        let zeros = Bytes::from_slice(&[0; Bytes::MAX][..mask.len().min(Bytes::MAX)]);
        let xor = if xor.is_empty() { zeros.as_slice() } else { xor };
        self.expression("bitwise", |out| {
            wire::be32(out, abi::NFTA_BITWISE_SREG, register);
            wire::be32(out, abi::NFTA_BITWISE_DREG, register);
            let length = u32::try_from(mask.len()).unwrap_or_default();
            wire::be32(out, abi::NFTA_BITWISE_LEN, length);
            wire::value(out, abi::NFTA_BITWISE_MASK, mask);
            wire::value(out, abi::NFTA_BITWISE_XOR, xor);
        });
    }

    fn compare(&mut self, operator: u32, value: &[u8]) {
        self.expression("cmp", |out| {
            wire::be32(out, abi::NFTA_CMP_SREG, FIRST_REGISTER);
            wire::be32(out, abi::NFTA_CMP_OP, operator);
            wire::value(out, abi::NFTA_CMP_DATA, value);
        });
    }

    /// Matches if one of the bits is set in the first register.
    fn any_bit(&mut self, bits: u32) {
        self.bitwise(FIRST_REGISTER, &bits.to_ne_bytes(), &[]);
        self.compare(abi::NFT_CMP_NEQ, &[0; 4]);
    }

    fn ct(&mut self, key: u32) {
        self.expression("ct", |out| {
            wire::be32(out, abi::NFTA_CT_KEY, key);
            wire::be32(out, abi::NFTA_CT_DREG, FIRST_REGISTER);
        });
    }

    fn ct_flag(&mut self, key: u32, bit: u32) {
        self.ct(key);
        self.any_bit(bit);
    }

    /// Matches if the destination is translated and the connection is not confirmed.
    fn ct_begins_dnat(&mut self) {
        self.ct(abi::NFT_CT_STATUS);
        let both = abi::IPS_CONFIRMED | abi::IPS_DST_NAT;
        self.bitwise(FIRST_REGISTER, &both.to_ne_bytes(), &[]);
        self.compare(abi::NFT_CMP_EQ, &abi::IPS_DST_NAT.to_ne_bytes());
    }

    fn prefix(&mut self, field: Field, address: IpAddr, length: u8, negate: bool) {
        self.load_one(field, FIRST_REGISTER);
        let family = Family::of(address);
        if !is_whole(family, length) {
            let mask = Bytes::new().address(mask_address(family, length));
            self.bitwise(FIRST_REGISTER, mask.as_slice(), &[]);
        }
        let network = Bytes::new().address(masked(address, length));
        self.compare(operator(negate), network.as_slice());
    }

    fn interface(&mut self, name: &str, prefix: bool, negate: bool) {
        self.meta(abi::NFT_META_IIFNAME, FIRST_REGISTER);
        let mut padded = [0; abi::IFNAMSIZ];
        let length = name.len().min(abi::IFNAMSIZ - 1);
        padded[..length].copy_from_slice(&name.as_bytes()[..length]);
        let value = if prefix { &padded[..length] } else { &padded[..] };
        self.compare(operator(negate), value);
    }

    fn fib_local(&mut self, address: FibAddress) {
        let flags = match address {
            FibAddress::Source => abi::NFTA_FIB_F_SADDR,
            FibAddress::Destination => abi::NFTA_FIB_F_DADDR,
        };
        self.expression("fib", |out| {
            wire::be32(out, abi::NFTA_FIB_FLAGS, flags);
            wire::be32(out, abi::NFTA_FIB_RESULT, abi::NFT_FIB_RESULT_ADDRTYPE);
            wire::be32(out, abi::NFTA_FIB_DREG, FIRST_REGISTER);
        });
        self.compare(abi::NFT_CMP_EQ, &abi::RTN_LOCAL.to_ne_bytes());
    }

    fn change_mark(&mut self, mask: u32, xor: u32) {
        self.meta(abi::NFT_META_MARK, FIRST_REGISTER);
        self.bitwise(FIRST_REGISTER, &mask.to_ne_bytes(), &xor.to_ne_bytes());
        self.expression("meta", |out| {
            wire::be32(out, abi::NFTA_META_KEY, abi::NFT_META_MARK);
            wire::be32(out, abi::NFTA_META_SREG, FIRST_REGISTER);
        });
    }

    fn masquerade(&mut self) {
        self.expression("masq", |out| {
            wire::be32(out, abi::NFTA_MASQ_FLAGS, abi::NF_NAT_RANGE_PROTO_RANDOM_FULLY);
        });
    }

    fn reject(&mut self) {
        let code = match self.family {
            Family::Ip => abi::ICMP_PORT_UNREACH,
            Family::Ip6 => abi::ICMPV6_PORT_UNREACH,
        };
        self.expression("reject", |out| {
            wire::be32(out, abi::NFTA_REJECT_TYPE, abi::NFT_REJECT_ICMP_UNREACH);
            wire::bytes(out, abi::NFTA_REJECT_ICMP_CODE, &[code]);
        });
    }

    fn verdict(&mut self, code: i32, chain: Option<&str>) {
        self.expression("immediate", |out| {
            wire::be32(out, abi::NFTA_IMMEDIATE_DREG, abi::NFT_REG_VERDICT);
            wire::nest(out, abi::NFTA_IMMEDIATE_DATA, |out| verdict(out, code, chain));
        });
    }

    /// Looks the key up in a set; with a register, in a map whose data goes into that register.
    fn lookup(&mut self, set: &str, data_register: Option<u32>, negate: bool) {
        self.expression("lookup", |out| {
            wire::string(out, abi::NFTA_LOOKUP_SET, set);
            wire::be32(out, abi::NFTA_LOOKUP_SREG, FIRST_REGISTER);
            if let Some(register) = data_register {
                wire::be32(out, abi::NFTA_LOOKUP_DREG, register);
            }
            if negate {
                wire::be32(out, abi::NFTA_LOOKUP_FLAGS, abi::NFT_LOOKUP_F_INV);
            }
        });
    }

    /// Translates to the address in the first registers and the port in the register after it.
    fn dnat(&mut self) {
        let family = self.family;
        let port = FIRST_REGISTER + u32::try_from(family.address_len() / 4).unwrap_or_default();
        self.expression("nat", |out| {
            wire::be32(out, abi::NFTA_NAT_TYPE, abi::NFT_NAT_DNAT);
            wire::be32(out, abi::NFTA_NAT_FAMILY, u32::from(family.number()));
            wire::be32(out, abi::NFTA_NAT_REG_ADDR_MIN, FIRST_REGISTER);
            wire::be32(out, abi::NFTA_NAT_REG_PROTO_MIN, port);
        });
    }

    fn count_in(&mut self, counter: &str) {
        self.expression("objref", |out| {
            wire::be32(out, abi::NFTA_OBJREF_IMM_TYPE, abi::NFT_OBJECT_COUNTER);
            wire::string(out, abi::NFTA_OBJREF_IMM_NAME, counter);
        });
    }

    fn count_by_map(&mut self, map: &str) {
        self.expression("objref", |out| {
            wire::be32(out, abi::NFTA_OBJREF_SET_SREG, FIRST_REGISTER);
            wire::string(out, abi::NFTA_OBJREF_SET_NAME, map);
        });
    }

    fn update(&mut self, set: &str, data_register: Option<u32>, timeout: Duration) {
        self.expression("dynset", |out| {
            wire::string(out, abi::NFTA_DYNSET_SET_NAME, set);
            wire::be32(out, abi::NFTA_DYNSET_OP, abi::NFT_DYNSET_OP_UPDATE);
            wire::be32(out, abi::NFTA_DYNSET_SREG_KEY, FIRST_REGISTER);
            if let Some(register) = data_register {
                wire::be32(out, abi::NFTA_DYNSET_SREG_DATA, register);
            }
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            if milliseconds > 0 {
                wire::be64(out, abi::NFTA_DYNSET_TIMEOUT, milliseconds);
            }
        });
    }
}

const fn operator(negate: bool) -> u32 {
    if negate { abi::NFT_CMP_NEQ } else { abi::NFT_CMP_EQ }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Attributes;

    /// The kernel compares 16 bytes, the last of which is always zero.
    #[test]
    fn a_name_that_is_too_long_is_cut_as_the_kernel_cuts_it() {
        let compared = |name: &str, prefix| {
            let (name, negate) = (name.to_owned(), false);
            let mut out = Vec::new();
            let rule = Rule::new([Statement::InputInterface { name, prefix, negate }]);
            encode(&mut out, Family::Ip, &rule);
            let last = Attributes(&out).last().unwrap().nested();
            let data = last.get(abi::NFTA_EXPR_DATA).unwrap().nested();
            let value = data.get(abi::NFTA_CMP_DATA).unwrap().nested();
            value.get(abi::NFTA_DATA_VALUE).unwrap().value.to_vec()
        };
        assert_eq!(compared("abcdefghijklmno", false), b"abcdefghijklmno\0");
        assert_eq!(compared("abcdefghijklmnopqrst", false), b"abcdefghijklmno\0");
        assert_eq!(compared("abcdefghijklmnopqrst", true), b"abcdefghijklmno");
        assert_eq!(compared("cni", false), b"cni\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(compared("cni", true), b"cni");
    }
}
