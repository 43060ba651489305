//! The fields of a protobuf message, in the order of its bytes.

use std::borrow::Cow;
use std::fmt;

/// Why bytes cannot be read, and in which field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The names of the fields around the cause, such as `spec.ports`; empty if it is in none that is known.
    path: String,
    cause: Cow<'static, str>,
}

impl Error {
    /// An error with this cause.
    pub fn new(cause: impl Into<Cow<'static, str>>) -> Self {
        Self { path: String::new(), cause: cause.into() }
    }

    /// The same error, in a field of this name.
    #[must_use]
    pub(super) fn within(mut self, field: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.path.insert_str(0, &format!("{field}{dot}"));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.cause)
    }
}

impl std::error::Error for Error {}

/// The error of a message that is shorter than its fields say.
pub fn truncated() -> Error {
    Error::new("the bytes end in the middle of a field")
}

/// The value of a field, as the wire shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A number, a bool or an enum.
    Varint(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which no field of the API has that we read.
    Fixed,
}

impl<'a> Wire<'a> {
    /// A number. Negative ones are sent as 64-bit numbers in two's complement.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn integer(self) -> Result<i64, Error> {
        match self {
            Self::Varint(number) => Ok(number.cast_signed()),
            _ => Err(Error::new("a field that should be a number is something else")),
        }
    }

    /// A string, bytes or a message, as bytes.
    ///
    /// # Errors
    /// If the field is something else.
    pub fn bytes(self) -> Result<&'a [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::new("a field that should be a string or a message is something else")),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// If the field is something else, or not UTF-8.
    pub fn text(self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::new("a string is not UTF-8"))
    }
}

/// The fields of a message. The first error ends the iteration.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn read(&mut self) -> Result<(u32, Wire<'a>), Error> {
        let Header { number, value, begin, end } = header(self.0)?.ok_or_else(truncated)?;
        let (field, rest) = self.0.split_at_checked(end).ok_or_else(truncated)?;
        self.0 = rest;
        let wire = match value {
            Value::Varint(number) => Wire::Varint(number),
            Value::Bytes => Wire::Bytes(&field[begin..]),
            Value::Fixed => Wire::Fixed,
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// What stands before the value of a field.
pub(super) struct Header {
    pub(super) number: u32,
    pub(super) value: Value,
    /// Where the value begins.
    pub(super) begin: usize,
    /// Where the field ends, which may be after the bytes that are there.
    pub(super) end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Varint(u64),
    Bytes,
    Fixed,
}

/// The header of the field at the beginning of `bytes`; `None` if they end within it.
#[inline]
pub(super) fn header(bytes: &[u8]) -> Result<Option<Header>, Error> {
    let Some((key, begin)) = varint(bytes)? else { return Ok(None) };
    let (value, begin, length) = match key & 7 {
        0 => {
            let Some((number, length)) = varint(&bytes[begin..])? else { return Ok(None) };
            (Value::Varint(number), begin, length)
        }
        1 => (Value::Fixed, begin, 8),
        2 => {
            let Some((length, digits)) = varint(&bytes[begin..])? else { return Ok(None) };
            let length = usize::try_from(length).map_err(|_| truncated())?;
            (Value::Bytes, begin + digits, length)
        }
        5 => (Value::Fixed, begin, 4),
        // 3 and 4 are groups, which proto2 has given up and the API never had.
        _ => return Err(Error::new("a field has a wire type that the API does not use")),
    };
    let end = begin.checked_add(length).ok_or_else(truncated)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
    let number = number.ok_or_else(|| Error::new("a field has a number that is not allowed"))?;
    Ok(Some(Header { number, value, begin, end }))
}

/// The number at the beginning of `bytes` and its length; `None` if they end within it. Each byte holds
/// seven bits, the lowest first.
#[inline]
fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Error> {
    match bytes {
        [byte @ 0..0x80, ..] => Ok(Some((u64::from(*byte), 1))),
        _ => long_varint(bytes),
    }
}

fn long_varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Error> {
    let mut number = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let (bits, shift) = (u64::from(byte & 0x7f), 7 * index);
        if bits << shift >> shift != bits {
            return Err(Error::new("a number has more than 64 bits"));
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(Some((number, index + 1)));
        }
    }
    if bytes.len() < 10 { Ok(None) } else { Err(Error::new("a number has more than 64 bits")) }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::protobuf::{bytes, fixed, int};

    fn read(message: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Error> {
        Fields::new(message).collect()
    }

    #[test]
    fn fields_are_read_in_the_order_of_the_bytes() {
        let message =
            [int(1, 0), int(1, u64::MAX), bytes(536_870_911, "ä"), fixed(7, 4), fixed(7, 8)];
        let expected = [
            (1, Wire::Varint(0)),
            (1, Wire::Varint(u64::MAX)),
            (536_870_911, Wire::Bytes("ä".as_bytes())),
            (7, Wire::Fixed),
            (7, Wire::Fixed),
        ];
        assert_eq!(read(&message.concat()).unwrap(), expected);
        assert_eq!(Wire::Varint(u64::MAX).integer(), Ok(-1));
        assert_eq!(Wire::Bytes(b"a").text(), Ok("a"));
    }

    #[test]
    fn malformed_messages_are_refused_with_the_cause() {
        let large = "a number has more than 64 bits";
        let ends = "the bytes end in the middle of a field";
        let number = "a field has a number that is not allowed";
        let group = "a field has a wire type that the API does not use";
        let rows: [(&[u8], &str); 15] = [
            (&[0x80], ends),
            (&[0x08], ends),
            (&[0x08, 0xff], ends),
            (&[0x0a], ends),
            (&[0x0a, 2, 0], ends),
            (&[0x0d, 0, 0, 0], ends),
            (&[0x09, 0, 0, 0, 0, 0, 0, 0], ends),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], ends),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], large),
            (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], large),
            (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], large),
            (&[0x00, 0], number),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0], number),
            (&[0x0b, 0x0c], group),
            (&[0x0f], group),
        ];
        for (message, expected) in rows {
            assert_eq!(read(message).unwrap_err().to_string(), expected, "{message:?}");
        }
        assert_eq!(Wire::Bytes(&[0xff]).text().unwrap_err().to_string(), "a string is not UTF-8");
        let wrong = [Wire::Fixed.integer().map(drop), Wire::Varint(1).bytes().map(drop)];
        assert!(wrong.iter().all(Result::is_err));
    }

    #[test]
    fn errors_name_the_field() {
        let error = truncated().within("ports").within("spec");
        assert_eq!(error.to_string(), "spec.ports: the bytes end in the middle of a field");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in vec((1_u32..1 << 29, any::<u64>()), 0..8),
            texts in vec((1_u32..1 << 29, vec(any::<u8>(), 0..300)), 0..8),
        ) {
            let written = numbers.iter().map(|(field, number)| int(*field, *number));
            let written: Vec<u8> =
                written.chain(texts.iter().map(|(field, text)| bytes(*field, text))).flatten().collect();
            let numbers = numbers.iter().map(|(field, number)| (*field, Wire::Varint(*number)));
            let expected = numbers.chain(texts.iter().map(|(field, text)| (*field, Wire::Bytes(text))));
            prop_assert_eq!(read(&written).unwrap(), expected.collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_fields_or_an_error(message in vec(any::<u8>(), 0..200)) {
            let _ = read(&message);
        }
    }
}
