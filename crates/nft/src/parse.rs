//! Reading netlink. Bytes that make no sense end the reading; nothing panics.

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its value, without padding.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The attributes inside.
    #[must_use]
    pub const fn nested(self) -> Attributes<'a> {
        Attributes(self.value)
    }

    /// Text up to the first zero; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(self) -> String {
        String::from_utf8_lossy(until_zero(self.value)).into_owned()
    }

    /// Text up to the first zero, empty if it is not UTF-8.
    #[must_use]
    pub fn str(self) -> &'a str {
        std::str::from_utf8(until_zero(self.value)).unwrap_or_default()
    }

    /// A number in network order.
    #[must_use]
    pub fn be16(self) -> Option<u16> {
        self.value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// A number in network order.
    #[must_use]
    pub fn be32(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// A number in network order.
    #[must_use]
    pub fn be64(self) -> Option<u64> {
        self.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// A number in the order of this machine.
    #[must_use]
    pub fn ne32(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// The comment in user data, empty if there is none.
    #[must_use]
    pub fn comment(self, kind: u8) -> &'a str {
        comment(self.value, kind)
    }
}

/// The attributes in some bytes, in order. Ends where they stop making sense.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a type.
    #[must_use]
    pub fn get(mut self, kind: u16) -> Option<Attribute<'a>> {
        self.find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?) & 0x3fff;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, value })
    }
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The family in netfilter's header.
    pub(crate) fn family(&self) -> u8 {
        self.payload.first().copied().unwrap_or_default()
    }

    /// The attributes behind netfilter's header.
    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.payload.get(4..).unwrap_or_default())
    }
}

/// The messages in what one read returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<16>()?;
        let length = u32::from_ne_bytes(*header.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        let payload = self.0.get(16..length)?;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload,
        };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// The kernel's verdict on one message: an error, or an acknowledgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// Zero for an acknowledgement, else the positive error number.
    pub(crate) errno: i32,
    /// What the kernel says in words.
    pub(crate) text: String,
    /// Which byte of the message it dislikes.
    pub(crate) offset: Option<u32>,
}

/// Reads the payload of an error message.
pub(crate) fn verdict(message: &Message<'_>) -> Option<Verdict> {
    const CAPPED: u16 = 0x100;
    const HAS_WORDS: u16 = 0x200;
    let payload = message.payload;
    let errno = i32::from_ne_bytes(*payload.first_chunk()?).checked_neg()?;
    let mut verdict = Verdict { errno, text: String::new(), offset: None };
    if message.flags & HAS_WORDS != 0 {
        let quoted = u32::from_ne_bytes(*payload.get(4..)?.first_chunk()?);
        let skip = if message.flags & CAPPED != 0 { 20 } else { usize::try_from(quoted).ok()? + 4 };
        let words = Attributes(payload.get(skip.next_multiple_of(4)..).unwrap_or_default());
        verdict.text = words.get(1).map(Attribute::text).unwrap_or_default();
        verdict.offset = words.get(2).and_then(Attribute::ne32);
    }
    Some(verdict)
}

/// A comment in user data: pieces of type, length, value.
pub(crate) fn comment(mut data: &[u8], kind: u8) -> &str {
    while let [found, length, rest @ ..] = data {
        let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        if *found == kind {
            return std::str::from_utf8(until_zero(value)).unwrap_or_default();
        }
        data = rest;
    }
    ""
}

fn until_zero(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}
