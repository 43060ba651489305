//! Messages of the API that are one value in JSON.

use jiff::Timestamp;

use super::reader::{Error, Fields};

/// `intstr.IntOrString`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// A number.
    Int(i64),
    /// A string.
    String(&'a str),
}

impl<'a> IntOrString<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// If it is not such a message.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let (mut kind, mut number, mut text) = (0, 0, "");
        for field in Fields::new(bytes) {
            match field? {
                (1, wire) => kind = wire.integer()?,
                (2, wire) => number = wire.integer()?,
                (3, wire) => text = wire.text()?,
                _ => {}
            }
        }
        match kind {
            0 => Ok(Self::Int(number)),
            1 => Ok(Self::String(text)),
            _ => Err(Error::new("a value is neither a number nor a string")),
        }
    }
}

/// The text of a `resource.Quantity`.
///
/// # Errors
/// If the bytes are not such a message.
pub fn quantity(bytes: &[u8]) -> Result<&str, Error> {
    let mut text = "0";
    for field in Fields::new(bytes) {
        if let (1, wire) = field? {
            text = wire.text()?;
        }
    }
    Ok(text)
}

/// `metav1.Time` or `metav1.MicroTime`. The message can hold times that JSON has no text for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Since 1970.
    seconds: i64,
    /// After the second, below a thousand million.
    nanoseconds: i64,
}

impl Time {
    /// The beginning of the year 0, the first one that RFC 3339 has.
    const FIRST: i64 = -62_167_219_200;

    /// Reads the message.
    ///
    /// # Errors
    /// If it is not such a message.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (mut seconds, mut nanoseconds) = (0_i64, 0_i64);
        for field in Fields::new(bytes) {
            match field? {
                (1, wire) => seconds = wire.integer()?,
                (2, wire) => nanoseconds = wire.integer()?,
                _ => {}
            }
        }
        // As Go's `time.Unix` does it.
        let second = 1_000_000_000;
        let seconds = seconds.saturating_add(nanoseconds.div_euclid(second));
        Ok(Self { seconds, nanoseconds: nanoseconds.rem_euclid(second) })
    }

    /// The time in whole microseconds; `None` for one that the text of a Kubernetes object cannot express either.
    pub fn timestamp(self) -> Option<Timestamp> {
        let whole = Timestamp::from_second(self.seconds).ok()?;
        let after = jiff::SignedDuration::from_micros(self.nanoseconds / 1000);
        whole.checked_add(after).ok().filter(|_| self.seconds >= Self::FIRST)
    }

    /// The text in JSON, with so many digits after the second; text that is no time for one that is out of range.
    pub fn text(self, digits: usize) -> String {
        match self.timestamp() {
            Some(time) => format!("{time:.digits$}"),
            None => format!("{} s since 1970, which is out of range", self.seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::protobuf::int;
    use crate::time::seconds;

    fn time(seconds: i64, nanoseconds: i64) -> Time {
        let message = [int(1, seconds.cast_unsigned()), int(2, nanoseconds.cast_unsigned())];
        Time::read(&message.concat()).unwrap()
    }

    #[test]
    fn times_are_what_go_writes_for_them() {
        let rows = [
            (0, 0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
            (1, 999_999_999, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.999999Z"),
            (-1, 250_000_000, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.250000Z"),
            (1, 1_500_000_000, "1970-01-01T00:00:02Z", "1970-01-01T00:00:02.500000Z"),
            (1, -1, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.999999Z"),
            (-62_167_219_200, 0, "0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z"),
        ];
        for (seconds, nanoseconds, whole, micro) in rows {
            let time = time(seconds, nanoseconds);
            assert_eq!((&*time.text(0), &*time.text(6)), (whole, micro));
        }
    }

    #[test]
    fn a_time_out_of_range_is_no_time_as_in_json() {
        let rows = [
            (253_402_300_800, "10000-01-01T00:00:00Z"),
            (-62_167_219_201, "-0001-12-31T23:59:59Z"),
            (i64::MAX, "292277026596-12-04T15:30:07Z"),
            (i64::MIN, "-292277022657-01-27T08:29:52Z"),
        ];
        for (number, text) in rows {
            let time = time(number, 999_999_999);
            assert_eq!((time.timestamp(), seconds(Some(text))), (None, None), "{text}");
            assert_eq!(seconds(Some(&time.text(0))), None, "{}", time.text(0));
        }
        assert_eq!(time(i64::MAX, 1_000_000_000).timestamp(), None);
    }
}
