//! The kernel's answers as bytes.

use std::collections::BTreeSet;

use crate::abi;
use crate::conntrack::{self, Flow};
use crate::parse::{Attribute, Message};
use crate::value::Family;
use crate::wire::{self, Header};

/// The acknowledgement of a message, with an error number or 0.
pub(super) fn acknowledgement(message: &Message<'_>, errno: i32) -> Vec<u8> {
    let mut out = Vec::new();
    raw_header(&mut out, abi::NLMSG_ERROR, abi::NLM_F_CAPPED, message.sequence);
    out.extend_from_slice(&(-errno).to_ne_bytes());
    // The header of the request.
    raw_header(&mut out, message.kind, message.flags, message.sequence);
    wire::end(&mut out, 0);
    out
}

fn raw_header(out: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32) {
    let length = u32::try_from(abi::NLMSG_HDRLEN).unwrap_or_default();
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// A dump: messages, then its end.
pub(super) struct Dump<'a> {
    request: &'a Message<'a>,
    out: Vec<u8>,
}

impl<'a> Dump<'a> {
    pub(super) fn of(request: &'a Message<'a>) -> Self {
        Self { request, out: Vec::new() }
    }

    /// Adds a message of nftables.
    pub(super) fn add(&mut self, kind: u16, family: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.add_of(abi::nfnl_message(abi::NFNL_SUBSYS_NFTABLES, kind), family, body);
    }

    fn add_of(&mut self, kind: u16, family: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let header =
            Header { kind, flags: 0, sequence: self.request.sequence, family, resource: 0 };
        wire::message(&mut self.out, header, body);
    }

    /// Ends it with an acknowledgement, as for a request that is no dump.
    pub(super) fn acknowledged(mut self) -> Vec<u8> {
        self.out.extend(acknowledgement(self.request, 0));
        self.out
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        let at = self.out.len();
        raw_header(&mut self.out, abi::NLMSG_DONE, 0, self.request.sequence);
        self.out.extend_from_slice(&0_i32.to_ne_bytes());
        wire::end(&mut self.out, at);
        self.out
    }
}

/// The answer with the flag that it is not consistent, on its last message.
pub(super) fn interrupted(mut answer: Vec<u8>) -> Vec<u8> {
    /// The end of a dump: its header and an error number.
    const DONE: usize = abi::NLMSG_HDRLEN + 4;
    const FLAGS: usize = 6;
    if let Some(at) = answer.len().checked_sub(DONE) {
        let flags = abi::NLM_F_DUMP_INTR.to_ne_bytes();
        answer[at + FLAGS..at + FLAGS + flags.len()].copy_from_slice(&flags);
    }
    answer
}

pub(super) fn generation(request: &Message<'_>, generation: u32) -> Vec<u8> {
    let mut dump = Dump::of(request);
    dump.add(abi::NFT_MSG_GETGEN, 0, |out| wire::be32(out, abi::NFTA_GEN_ID, generation));
    dump.out
}

/// The flows of the requested family.
pub(super) fn flows(request: &Message<'_>, flows: &BTreeSet<Flow>) -> Vec<u8> {
    let mut dump = Dump::of(request);
    let kind = abi::nfnl_message(abi::NFNL_SUBSYS_CTNETLINK, 0);
    for flow in flows {
        let family = Family::of(flow.original.src).number();
        if family == request.family() {
            dump.add_of(kind, family, |out| conntrack::encode_whole(out, flow));
        }
    }
    dump.end()
}

/// Whether a deletion is about this flow.
pub(super) fn is_about(message: &Message<'_>, flow: &Flow) -> bool {
    let attributes = message.attributes();
    let id = attributes.get(abi::CTA_ID).and_then(Attribute::be32);
    conntrack::original(attributes) == Some((flow.protocol, flow.original))
        && (id.is_none() || id == flow.id)
}
