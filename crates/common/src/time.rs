//! Timestamps in Kubernetes objects: RFC 3339 in UTC, whole seconds.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// Seconds since 1970 of a timestamp in an object; `None` for text that is no time. JSON has text, protobuf
/// the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seconds(pub Option<i64>);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Seconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time")
            }
            fn visit_str<E>(self, text: &str) -> Result<Seconds, E> {
                Ok(Seconds(seconds(Some(text))))
            }
            fn visit_i64<E>(self, seconds: i64) -> Result<Seconds, E> {
                Ok(Seconds(Some(seconds)))
            }
        }
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_str(Visit),
            false => deserializer.deserialize_i64(Visit),
        }
    }
}

/// Seconds since 1970 of a Kubernetes timestamp; `None` for text that is no time.
pub fn seconds(text: Option<&str>) -> Option<i64> {
    text?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// A Kubernetes timestamp.
pub fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc() {
        assert_eq!(seconds(Some("2026-01-02T03:04:05Z")), Some(1_767_323_045));
        assert_eq!(timestamp(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(seconds(Some("yesterday")), None);
    }

    #[test]
    fn objects_have_times_as_text() {
        let read = |json: &str| serde_json::from_str::<Seconds>(json);
        assert_eq!(read("\"2026-01-02T03:04:05Z\"").unwrap(), Seconds(Some(1_767_323_045)));
        assert_eq!(read("\"1969-12-31T23:59:59.5Z\"").unwrap(), Seconds(Some(0)));
        assert_eq!(read("\"yesterday\"").unwrap(), Seconds(None));
        assert!(read("5").unwrap_err().to_string().contains("expected a time"));
        assert_eq!((seconds(None), timestamp(i64::MAX)), (None, String::new()));
    }
}
