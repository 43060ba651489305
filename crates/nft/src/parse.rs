//! Reading netlink messages and attributes. Malformed bytes end the iteration; nothing panics.

use crate::abi;

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attribute<'a> {
    /// Its type, without flags.
    pub(crate) kind: u16,
    /// Its value, without padding.
    pub(crate) value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The attributes nested in its value.
    pub(crate) const fn nested(self) -> Attributes<'a> {
        Attributes(self.value)
    }

    /// Text up to the first NUL byte; invalid UTF-8 is replaced.
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(until_nul(self.value)).into_owned()
    }

    /// Text up to the first NUL byte, empty if it is not UTF-8.
    pub(crate) fn str(self) -> &'a str {
        std::str::from_utf8(until_nul(self.value)).unwrap_or_default()
    }

    /// A number in network byte order.
    pub(crate) fn be16(self) -> Option<u16> {
        self.value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// A number in network byte order.
    pub(crate) fn be32(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// A number in network byte order.
    pub(crate) fn be64(self) -> Option<u64> {
        self.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// A number in host byte order.
    pub(crate) fn ne32(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// The comment in user data, empty if there is none. `kind` is its type, which differs between
    /// kinds of objects (`NFTNL_UDATA_…_COMMENT`).
    pub(crate) fn comment(self, kind: u8) -> &'a str {
        comment(self.value, kind)
    }
}

/// The attributes in some bytes, in order. Ends at the first malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a type.
    pub(crate) fn get(mut self, kind: u16) -> Option<Attribute<'a>> {
        self.find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?) & abi::NLA_TYPE_MASK;
        let value = self.0.get(abi::NLA_HDRLEN..length)?;
        self.0 = self.0.get(length.next_multiple_of(abi::NLA_ALIGNTO)..).unwrap_or_default();
        Some(Attribute { kind, value })
    }
}

/// A netlink message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The address family in the netfilter header.
    pub(crate) fn family(&self) -> u8 {
        self.payload.first().copied().unwrap_or_default()
    }

    /// The attributes after the netfilter header.
    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.payload.get(abi::NFGENMSG_LEN..).unwrap_or_default())
    }
}

/// The messages in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<{ abi::NLMSG_HDRLEN }>()?;
        let length = u32::from_ne_bytes(*header.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        let payload = self.0.get(abi::NLMSG_HDRLEN..length)?;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload,
        };
        self.0 = self.0.get(length.next_multiple_of(abi::NLMSG_ALIGNTO)..).unwrap_or_default();
        Some(message)
    }
}

/// The kernel's acknowledgement of one message, which carries its error if there was one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledgement {
    /// Zero for success, otherwise the positive error number.
    pub(crate) errno: i32,
    /// The kernel's explanation; often empty.
    pub(crate) text: String,
    /// The offset of the attribute that caused the error.
    pub(crate) offset: Option<u32>,
}

/// Reads the payload of `NLMSG_ERROR`: an error number, the request (or only its header), attributes.
pub(crate) fn acknowledgement(message: &Message<'_>) -> Option<Acknowledgement> {
    const ERRNO_LEN: usize = size_of::<i32>();
    let payload = message.payload;
    let errno = i32::from_ne_bytes(*payload.first_chunk()?).checked_neg()?;
    let mut found = Acknowledgement { errno, text: String::new(), offset: None };
    if message.flags & abi::NLM_F_ACK_TLVS != 0 {
        let request = payload.get(ERRNO_LEN..)?;
        let request_len = if message.flags & abi::NLM_F_CAPPED != 0 {
            abi::NLMSG_HDRLEN
        } else {
            usize::try_from(u32::from_ne_bytes(*request.first_chunk()?)).ok()?
        };
        let start = request_len.next_multiple_of(abi::NLMSG_ALIGNTO);
        let attributes = Attributes(request.get(start..).unwrap_or_default());
        found.text =
            attributes.get(abi::NLMSGERR_ATTR_MSG).map(Attribute::text).unwrap_or_default();
        found.offset = attributes.get(abi::NLMSGERR_ATTR_OFFS).and_then(Attribute::ne32);
    }
    Some(found)
}

/// The comment in user data, which is a list of entries of type, length and value.
pub(crate) fn comment(mut data: &[u8], kind: u8) -> &str {
    while let [found, length, rest @ ..] = data {
        let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        if *found == kind {
            return std::str::from_utf8(until_nul(value)).unwrap_or_default();
        }
        data = rest;
    }
    ""
}

fn until_nul(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{self, Header};

    const HEADER: Header =
        Header { kind: abi::NLMSG_ERROR, flags: 0, sequence: 7, family: 10, resource: 0 };

    /// An acknowledgement with this error number, of a request with so many bytes, followed by attributes.
    fn answer(
        flags: u16,
        errno: i32,
        request: usize,
        attributes: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let at = wire::start(&mut out, Header { flags, ..HEADER });
        out.truncate(at + abi::NLMSG_HDRLEN);
        out.extend_from_slice(&(-errno).to_ne_bytes());
        let start = out.len();
        out.extend_from_slice(&u32::try_from(request).unwrap().to_ne_bytes());
        let kept = if flags & abi::NLM_F_CAPPED == 0 { request } else { abi::NLMSG_HDRLEN };
        out.resize(start + kept.next_multiple_of(4), 0xee);
        attributes(&mut out);
        wire::end(&mut out, at);
        out
    }

    fn read(bytes: &[u8]) -> Option<Acknowledgement> {
        acknowledgement(&Messages(bytes).next().unwrap())
    }

    #[test]
    fn a_refusal_carries_the_kernels_words_and_place() {
        let told = |out: &mut Vec<u8>| {
            wire::string(out, abi::NLMSGERR_ATTR_MSG, "no such chain");
            wire::bytes(out, abi::NLMSGERR_ATTR_OFFS, &36_u32.to_ne_bytes());
        };
        let full = Acknowledgement { errno: 2, text: "no such chain".into(), offset: Some(36) };
        let bare = Acknowledgement { errno: 2, text: String::new(), offset: None };
        const TLVS: u16 = abi::NLM_F_ACK_TLVS;
        assert_eq!(read(&answer(TLVS | abi::NLM_F_CAPPED, 2, 100, told)), Some(full.clone()));
        for request in [16, 37, 100] {
            assert_eq!(read(&answer(TLVS, 2, request, told)), Some(full.clone()), "{request}");
        }
        assert_eq!(
            read(&answer(abi::NLM_F_CAPPED, 2, 16, told)),
            Some(bare.clone()),
            "not announced"
        );
        assert_eq!(read(&answer(TLVS, 2, 16, |_| {})), Some(bare));
        let done = Acknowledgement { errno: 0, text: String::new(), offset: None };
        assert_eq!(read(&answer(abi::NLM_F_CAPPED, 0, 16, |_| {})), Some(done));
        assert_eq!(read(&answer(0, i32::MAX, 16, |_| {})).map(|one| one.errno), Some(i32::MAX));
    }

    #[test]
    fn messages_are_read_one_after_the_other() {
        let mut out = Vec::new();
        wire::message(&mut out, HEADER, |out| wire::string(out, 3, "abc"));
        wire::message(&mut out, Header { kind: 9, flags: 0x304, sequence: 8, ..HEADER }, |out| {
            wire::bytes(out, 2, &[1]);
            wire::nest(out, 5, |out| wire::be32(out, 1, 0x0102_0304));
        });
        let messages: Vec<Message<'_>> = Messages(&out).collect();
        let header = |one: &Message<'_>| (one.kind, one.flags, one.sequence, one.family());
        assert_eq!(
            messages.iter().map(header).collect::<Vec<_>>(),
            [(2, 0, 7, 10), (9, 0x304, 8, 10)]
        );
        let texts = messages[0].attributes().map(|one| (one.kind, one.text(), one.str()));
        assert_eq!(texts.collect::<Vec<_>>(), [(3, "abc".to_owned(), "abc")]);
        let last = messages[1].attributes();
        assert_eq!(
            last.map(|one| (one.kind, one.value.len())).collect::<Vec<_>>(),
            [(2, 1), (5, 8)]
        );
        let number = last.get(5).unwrap().nested().get(1).unwrap();
        assert_eq!(
            (number.be32(), number.be16(), number.be64()),
            (Some(0x0102_0304), Some(0x0102), None)
        );
        assert_eq!((number.ne32(), last.get(4)), (Some(u32::from_ne_bytes([1, 2, 3, 4])), None));
        // Cut anywhere, the first message is whole or there is none.
        for cut in 0..out.len() {
            let whole = Messages(&out[..cut]).count();
            assert_eq!(whole, usize::from(cut >= 28), "{cut}");
        }
    }

    #[test]
    fn malformed_attributes_end_the_list() {
        let mut out = Vec::new();
        wire::bytes(&mut out, 1, &[7; 5]);
        let whole = out.len();
        // A length below that of its header, and one beyond the end.
        for length in [0_u16, 3, 9] {
            out.truncate(whole);
            out.extend_from_slice(&length.to_ne_bytes());
            out.extend_from_slice(&[2, 0, 7, 7]);
            assert_eq!(Attributes(&out).map(|one| one.kind).collect::<Vec<_>>(), [1], "{length}");
        }
    }

    #[test]
    fn comments_are_found_among_other_entries() {
        let data = [0, 2, 1, 1, 7, 3, b'a', b'b', 0, 9, 0];
        assert_eq!((comment(&data, 7), comment(&data, 9), comment(&data, 8)), ("ab", "", ""));
        assert_eq!(
            (comment(&[7, 4, b'a'], 7), comment(&[7], 7), comment(&[7, 1, 0xff], 7)),
            ("", "", "")
        );
    }
}
