//! Writing netlink: messages and attributes, appended to one buffer.
//!
//! ```text
//!   message:    length(4) type(2) flags(2) sequence(4) port(4) | family(1) version(1) resource(2) | attributes
//!   attribute:  length(2) type(2) value, padded to four bytes; the value may be attributes again
//! ```

/// Request.
pub(crate) const REQUEST: u16 = 0x1;
/// An answer is wanted.
pub(crate) const ACK: u16 = 0x4;
/// Everything that fits, not one thing.
pub(crate) const DUMP: u16 = 0x300;
/// Make it if it is not there.
pub(crate) const CREATE: u16 = 0x400;
/// Behind what is there.
pub(crate) const APPEND: u16 = 0x800;

/// The message type with this number in the nftables subsystem.
pub(crate) const fn nft(number: u16) -> u16 {
    (10 << 8) | number
}

/// The header of a message and of netfilter behind it.
pub(crate) const HEADER: usize = 20;

const NESTED: u16 = 0x8000;

/// What a message starts with.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) family: u8,
    pub(crate) resource: u16,
}

/// Opens a message; returns where it starts.
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

/// Closes the message that starts there.
pub(crate) fn end(out: &mut [u8], at: usize) {
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_ne_bytes());
}

/// A whole message.
pub(crate) fn message(out: &mut Vec<u8>, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
    let at = start(out, header);
    body(out);
    end(out, at);
}

/// An attribute of bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let at = open(out, kind);
    out.extend_from_slice(value);
    close(out, at);
}

/// An attribute of text, ended by a zero.
pub(crate) fn string(out: &mut Vec<u8>, kind: u16, value: &str) {
    let at = open(out, kind);
    out.extend_from_slice(value.as_bytes());
    out.push(0);
    close(out, at);
}

/// A number in network order, as nearly all of netfilter wants them.
pub(crate) fn be32(out: &mut Vec<u8>, kind: u16, value: u32) {
    bytes(out, kind, &value.to_be_bytes());
}

/// A long number in network order.
pub(crate) fn be64(out: &mut Vec<u8>, kind: u16, value: u64) {
    bytes(out, kind, &value.to_be_bytes());
}

/// An attribute of attributes.
pub(crate) fn nest(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let at = open_nest(out, kind);
    body(out);
    close(out, at);
}

/// Opens an attribute of attributes; returns where it starts.
pub(crate) fn open_nest(out: &mut Vec<u8>, kind: u16) -> usize {
    open(out, kind | NESTED)
}

fn open(out: &mut Vec<u8>, kind: u16) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&kind.to_ne_bytes());
    at
}

/// Closes the attribute that starts there.
pub(crate) fn close(out: &mut Vec<u8>, at: usize) {
    let length = u16::try_from(out.len() - at).unwrap_or(u16::MAX);
    out[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    let padded = out.len().next_multiple_of(4);
    out.resize(padded, 0);
}

/// The longest comment: what `nft` itself allows, with the zero at its end.
const COMMENT: usize = 128;

/// A comment in the user data of an object, if there is any.
pub(crate) fn comment(out: &mut Vec<u8>, attribute: u16, kind: u8, text: &str) {
    if !text.is_empty() {
        let at = open(out, attribute);
        push_comment(out, kind, text);
        close(out, at);
    }
}

/// A comment as a piece of user data. Cut where it is too long, between characters.
pub(crate) fn push_comment(out: &mut Vec<u8>, kind: u8, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    let text = &text[..text.floor_char_boundary(COMMENT - 1)];
    out.push(kind);
    out.push(u8::try_from(text.len() + 1).unwrap_or(u8::MAX));
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}
