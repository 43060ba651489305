//! Programs that the kernel runs for each message of a multicast group, before a socket gets a copy of it.
//!
//! ```text
//!  a flow ends ─► message ─► status? protocol? ─┬─► not wanted: neither copied nor kept, and nobody is woken
//!                                               └─► the socket's buffer
//! ```
//!
//! The language is that of the kernel's classic packet filter (`linux/filter.h`), with its two instructions that look for netlink
//! attributes. A message without an attribute that is looked for passes: who reads it looks again.

use socket2::SockFilter;

use crate::abi;

/// Where attributes begin: behind `struct nlmsghdr` and `struct nfgenmsg`.
const ATTRIBUTES: u32 = 20;
/// Where the value of an attribute begins.
const VALUE: u32 = 4;

/// What returns this takes the whole message.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// `struct sock_filter`: what to do, how far to jump if that is true or false, and an operand.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

/// A program, from its first instruction on.
pub(crate) struct Program(Vec<Instruction>);

impl Program {
    /// The program as a socket takes it.
    pub(crate) fn filters(&self) -> Vec<SockFilter> {
        let filter =
            |one: &Instruction| SockFilter::new(one.code, one.if_true, one.if_false, one.operand);
        self.0.iter().map(filter).collect()
    }
}

/// Messages about flows whose status has these bits, of those in the mask.
pub(crate) fn by_status(mask: u32, status: u32) -> Program {
    let mut program = status_is(mask, status);
    program.push(leave(PASS));
    Program(program)
}

/// The same, and of one protocol.
pub(crate) fn by_status_and_protocol(mask: u32, status: u32, protocol: u8) -> Program {
    let mut program = status_is(mask, status);
    program.extend(protocol_is(protocol));
    program.push(leave(PASS));
    Program(program)
}

/// Goes on where the status of a flow is the one that is wanted.
fn status_is(mask: u32, status: u32) -> Vec<Instruction> {
    let mut program = vec![load(ATTRIBUTES)];
    program.extend(find(abi::SKF_AD_NLATTR, abi::CTA_STATUS));
    program.push(instruction(abi::BPF_MISC | abi::BPF_TAX, 0));
    program.push(instruction(abi::BPF_LD | abi::BPF_W | abi::BPF_IND, VALUE));
    program.push(instruction(abi::BPF_ALU | abi::BPF_AND, mask));
    program.extend(unless_equal(status, DROP));
    program
}

/// Goes on where the protocol of a flow is the one that is wanted.
fn protocol_is(protocol: u8) -> Vec<Instruction> {
    let mut program = vec![load(ATTRIBUTES)];
    program.extend(find(abi::SKF_AD_NLATTR, abi::CTA_TUPLE_ORIG));
    program.extend(find(abi::SKF_AD_NLATTR_NEST, abi::CTA_TUPLE_PROTO));
    program.extend(find(abi::SKF_AD_NLATTR_NEST, abi::CTA_PROTO_NUM));
    program.push(instruction(abi::BPF_MISC | abi::BPF_TAX, 0));
    program.push(instruction(abi::BPF_LD | abi::BPF_B | abi::BPF_IND, VALUE));
    program.extend(unless_equal(protocol.into(), DROP));
    program
}

/// Looks for an attribute from the place in the accumulator on, or inside the attribute there. Its place is in the accumulator then;
/// a message without it passes.
fn find(how: u32, attribute: u16) -> [Instruction; 4] {
    [
        instruction(abi::BPF_LDX | abi::BPF_IMM, attribute.into()),
        instruction(abi::BPF_LD | abi::BPF_W | abi::BPF_ABS, abi::SKF_AD_OFF.wrapping_add(how)),
        jump_if_equal(0, 0, 1),
        leave(PASS),
    ]
}

/// Leaves with this unless the accumulator has the value.
fn unless_equal(value: u32, result: u32) -> [Instruction; 2] {
    [jump_if_equal(value, 1, 0), leave(result)]
}

fn jump_if_equal(operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code: abi::BPF_JMP | abi::BPF_JEQ, if_true, if_false, operand }
}

fn load(value: u32) -> Instruction {
    instruction(abi::BPF_LD | abi::BPF_IMM, value)
}

fn leave(result: u32) -> Instruction {
    instruction(abi::BPF_RET, result)
}

fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{self, Header};

    /// Runs a program over a message as the kernel does (`bpf_prog_run`; the two instructions about attributes are
    /// `bpf_skb_get_nlattr` and `bpf_skb_get_nlattr_nest` in
    /// <https://github.com/torvalds/linux/blob/v6.12/net/core/filter.c>). Returns how much of it is taken.
    fn run(Program(program): &Program, message: &[u8]) -> u32 {
        /// The place of an attribute between two places; 0 if there is none.
        fn attribute(message: &[u8], from: usize, to: usize, kind: u32) -> u32 {
            let mut at = from;
            while at + 4 <= to {
                let length = usize::from(u16::from_ne_bytes([message[at], message[at + 1]]));
                let found =
                    u16::from_ne_bytes([message[at + 2], message[at + 3]]) & abi::NLA_TYPE_MASK;
                if u32::from(found) == kind {
                    return at as u32;
                }
                at += length.next_multiple_of(abi::NLA_ALIGNTO).max(4);
            }
            0
        }
        const NLATTR: u32 = abi::SKF_AD_OFF + abi::SKF_AD_NLATTR;
        const NLATTR_NEST: u32 = abi::SKF_AD_OFF + abi::SKF_AD_NLATTR_NEST;
        let (mut a, mut x, mut next) = (0_u32, 0_u32, 0_usize);
        loop {
            let Instruction { code, if_true, if_false, operand: k } = program[next];
            next += 1;
            match (code & 0x07, code & !0x07) {
                (abi::BPF_LD, mode) if mode == abi::BPF_W | abi::BPF_IMM => a = k,
                (abi::BPF_LDX, mode) if mode == abi::BPF_W | abi::BPF_IMM => x = k,
                (abi::BPF_LD, mode) if mode == abi::BPF_W | abi::BPF_ABS && k == NLATTR => {
                    a = attribute(message, a as usize, message.len(), x);
                }
                (abi::BPF_LD, mode) if mode == abi::BPF_W | abi::BPF_ABS && k == NLATTR_NEST => {
                    let at = a as usize;
                    let length = usize::from(u16::from_ne_bytes([message[at], message[at + 1]]));
                    a = attribute(message, at + 4, at + length, x);
                }
                (abi::BPF_LD, mode) if mode == abi::BPF_W | abi::BPF_IND => {
                    let at = (x + k) as usize;
                    a = u32::from_be_bytes(*message[at..].first_chunk().unwrap());
                }
                (abi::BPF_LD, mode) if mode == abi::BPF_B | abi::BPF_IND => {
                    a = u32::from(message[(x + k) as usize]);
                }
                (abi::BPF_MISC, abi::BPF_TAX) => x = a,
                (abi::BPF_ALU, abi::BPF_AND) => a &= k,
                (abi::BPF_JMP, abi::BPF_JEQ) => {
                    next += usize::from(if a == k { if_true } else { if_false });
                }
                (abi::BPF_RET, 0) => return k,
                other => panic!("instruction {other:?} is unknown"),
            }
        }
    }

    fn message(status: Option<u32>, protocol: Option<u8>) -> Vec<u8> {
        let header = Header { kind: 0, flags: 0, sequence: 0, family: 2, resource: 0 };
        let mut out = Vec::new();
        wire::message(&mut out, header, |out| {
            wire::nest(out, abi::CTA_TUPLE_ORIG, |out| {
                wire::nest(out, abi::CTA_TUPLE_IP, |out| {
                    wire::bytes(out, abi::CTA_IP_V4_SRC, &[6; 4]);
                });
                if let Some(protocol) = protocol {
                    wire::nest(out, abi::CTA_TUPLE_PROTO, |out| {
                        wire::bytes(out, abi::CTA_PROTO_SRC_PORT, &[0, 6]);
                        wire::bytes(out, abi::CTA_PROTO_NUM, &[protocol]);
                    });
                }
            });
            if let Some(status) = status {
                wire::be32(out, abi::CTA_STATUS, status);
            }
        });
        out
    }

    #[test]
    fn the_kernel_keeps_back_what_is_not_wanted() {
        let (mask, wanted) = (0x0000_0124, 0x0000_0020);
        let (plain, tcp) = (by_status(mask, wanted), by_status_and_protocol(mask, wanted, 6));
        // Status, protocol; passes by status alone, and by both.
        let rows = [
            (Some(0x0000_0020), Some(6), true, true),
            (Some(0xffff_fe2b), Some(6), true, true),
            (Some(0x0000_0020), Some(17), true, false),
            (Some(0x0000_0024), Some(6), false, false),
            (Some(0x0000_0120), Some(6), false, false),
            (Some(0), Some(6), false, false),
            (None, Some(6), true, true),
            (None, Some(17), true, true),
            (Some(0x0000_0020), None, true, true),
            (Some(0), None, false, false),
        ];
        for (status, protocol, by_status, by_both) in rows {
            let message = message(status, protocol);
            let passes = |program: &Program| match run(program, &message) {
                u32::MAX => true,
                0 => false,
                cut => panic!("a message is cut to {cut} bytes"),
            };
            assert_eq!(
                (passes(&plain), passes(&tcp)),
                (by_status, by_both),
                "{status:?} {protocol:?}"
            );
        }
    }
}
