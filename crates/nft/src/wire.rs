//! Writing netlink messages and attributes, appended to one buffer.
//!
//! ```text
//!   message:    length(4) type(2) flags(2) sequence(4) port(4) | family(1) version(1) resource(2) | attributes
//!   attribute:  length(2) type(2) value, padded to four bytes; the value may be attributes again
//! ```

use crate::abi;

/// Length of the netlink header and of the netfilter header after it.
pub(crate) const HEADER_LEN: usize = abi::NLMSG_HDRLEN + abi::NFGENMSG_LEN;

/// The fields of `struct nlmsghdr` and `struct nfgenmsg` that differ between messages.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    /// Subsystem and message type, see [`abi::nfnl_message`].
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) family: u8,
    pub(crate) resource: u16,
}

/// Starts a message; returns its position in the buffer.
pub(crate) fn start(out: &mut Vec<u8>, header: Header) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&header.kind.to_ne_bytes());
    out.extend_from_slice(&header.flags.to_ne_bytes());
    out.extend_from_slice(&header.sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[header.family, 0]);
    out.extend_from_slice(&header.resource.to_be_bytes());
    at
}

/// Ends the message that starts at a position: writes its length.
pub(crate) fn end(out: &mut [u8], at: usize) {
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_ne_bytes());
}

/// Writes a whole message.
pub(crate) fn message(out: &mut Vec<u8>, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
    let at = start(out, header);
    body(out);
    end(out, at);
}

/// Writes an attribute of bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let at = open(out, kind);
    out.extend_from_slice(value);
    close(out, at);
}

/// Writes an attribute of NUL-terminated text.
pub(crate) fn string(out: &mut Vec<u8>, kind: u16, value: &str) {
    let at = open(out, kind);
    out.extend_from_slice(value.as_bytes());
    out.push(0);
    close(out, at);
}

/// Writes a number in network byte order, as netfilter has nearly all of them.
pub(crate) fn be32(out: &mut Vec<u8>, kind: u16, value: u32) {
    bytes(out, kind, &value.to_be_bytes());
}

/// Writes a 64-bit number in network byte order.
pub(crate) fn be64(out: &mut Vec<u8>, kind: u16, value: u64) {
    bytes(out, kind, &value.to_be_bytes());
}

/// Writes bytes nested in `NFTA_DATA_VALUE`, as keys, data and operands are sent.
pub(crate) fn value(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nest(out, kind, |out| bytes(out, abi::NFTA_DATA_VALUE, value));
}

/// Writes an attribute that contains attributes.
pub(crate) fn nest(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let at = open_nest(out, kind);
    body(out);
    close(out, at);
}

/// Starts an attribute that contains attributes; returns its position in the buffer.
pub(crate) fn open_nest(out: &mut Vec<u8>, kind: u16) -> usize {
    open(out, kind | abi::NLA_F_NESTED)
}

fn open(out: &mut Vec<u8>, kind: u16) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&kind.to_ne_bytes());
    at
}

/// Ends the attribute that starts at a position: writes its length and the padding.
pub(crate) fn close(out: &mut Vec<u8>, at: usize) {
    let length = u16::try_from(out.len() - at).unwrap_or(u16::MAX);
    out[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    let padded = out.len().next_multiple_of(abi::NLA_ALIGNTO);
    out.resize(padded, 0);
}

/// Writes a comment as the user data of an object, unless it is empty.
pub(crate) fn comment(out: &mut Vec<u8>, attribute: u16, kind: u8, text: &str) {
    if !text.is_empty() {
        let at = open(out, attribute);
        push_comment(out, kind, text);
        close(out, at);
    }
}

/// Appends a comment as one entry of user data. Cuts it between characters if it is too long.
pub(crate) fn push_comment(out: &mut Vec<u8>, kind: u8, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    let text = &text[..text.floor_char_boundary(abi::NFTNL_UDATA_COMMENT_MAXLEN - 1)];
    out.push(kind);
    out.push(u8::try_from(text.len() + 1).unwrap_or(u8::MAX));
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}
