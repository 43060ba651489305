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

/// Messages about flows whose status has these bits, of those in the mask.
pub(crate) fn by_status(mask: u32, status: u32) -> Vec<SockFilter> {
    let mut program = status_is(mask, status);
    program.push(leave(PASS));
    program
}

/// The same, and of one protocol.
pub(crate) fn by_status_and_protocol(mask: u32, status: u32, protocol: u8) -> Vec<SockFilter> {
    let mut program = status_is(mask, status);
    program.extend(protocol_is(protocol));
    program.push(leave(PASS));
    program
}

/// Goes on where the status of a flow is the one that is wanted.
fn status_is(mask: u32, status: u32) -> Vec<SockFilter> {
    let mut program = vec![load(ATTRIBUTES)];
    program.extend(find(abi::SKF_AD_NLATTR, abi::CTA_STATUS));
    program.push(instruction(abi::BPF_MISC | abi::BPF_TAX, 0));
    program.push(instruction(abi::BPF_LD | abi::BPF_W | abi::BPF_IND, VALUE));
    program.push(instruction(abi::BPF_ALU | abi::BPF_AND, mask));
    program.extend(unless_equal(status, DROP));
    program
}

/// Goes on where the protocol of a flow is the one that is wanted.
fn protocol_is(protocol: u8) -> Vec<SockFilter> {
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
fn find(how: u32, attribute: u16) -> [SockFilter; 4] {
    [
        instruction(abi::BPF_LDX | abi::BPF_IMM, attribute.into()),
        instruction(abi::BPF_LD | abi::BPF_W | abi::BPF_ABS, abi::SKF_AD_OFF.wrapping_add(how)),
        SockFilter::new(abi::BPF_JMP | abi::BPF_JEQ, 0, 1, 0),
        leave(PASS),
    ]
}

/// Leaves with this unless the accumulator has the value.
fn unless_equal(value: u32, result: u32) -> [SockFilter; 2] {
    [SockFilter::new(abi::BPF_JMP | abi::BPF_JEQ, 1, 0, value), leave(result)]
}

fn load(value: u32) -> SockFilter {
    instruction(abi::BPF_LD | abi::BPF_IMM, value)
}

fn leave(result: u32) -> SockFilter {
    instruction(abi::BPF_RET, result)
}

fn instruction(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}
