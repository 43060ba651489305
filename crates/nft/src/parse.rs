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
