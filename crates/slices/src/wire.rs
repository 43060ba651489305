//! Decoding Kubernetes JSON: what all kinds of objects have in common.
//!
//! Only the fields that are used are decoded. An absent field, `null` and an empty value mean the same.

use std::fmt;
use std::str::FromStr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::labels::{Labels, Name};

/// Decodes a value, with `null` as the default.
pub(crate) fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The metadata that Pods and Nodes need.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) namespace: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) uid: Uid,
    #[serde(deserialize_with = "lenient")]
    pub(crate) labels: Labels,
    pub(crate) creation_timestamp: Option<Box<str>>,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
}

/// A condition in a status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) r#type: Box<str>,
    pub(crate) status: Box<str>,
    pub(crate) last_transition_time: Option<Box<str>>,
}

/// The Ready condition, if there is one.
pub(crate) fn ready_condition(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| &*condition.r#type == "Ready")
}

/// Whether the Ready condition is True.
pub(crate) fn is_ready(conditions: &[Condition]) -> bool {
    ready_condition(conditions).is_some_and(|condition| &*condition.status == "True")
}

/// A Kubernetes timestamp in seconds since 1970; `None` if the text is not a time.
pub(crate) fn seconds(text: Option<&str>) -> Option<i64> {
    text?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// A Kubernetes timestamp from seconds since 1970.
pub fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// The uid of an object. API servers use UUIDs, which are stored in 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    /// A UUID in its canonical form.
    Uuid([u8; 16]),
    /// Any other text, as in hand-written manifests.
    Other(Box<str>),
}

impl Default for Uid {
    fn default() -> Self {
        Self::Other("".into())
    }
}

impl Uid {
    /// Whether it is empty, as on objects that are not stored yet.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Other(text) if text.is_empty())
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl FromStr for Uid {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

const HYPHENS: [usize; 4] = [8, 13, 18, 23];

fn uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || HYPHENS.iter().any(|&place| bytes[place] != b'-') {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digits = (0..36).filter(|place| !HYPHENS.contains(place)).map(|at| digit(bytes[at]));
    let mut id = [0; 16];
    for byte in &mut id {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    Some(id)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(text) => f.write_str(text),
            Self::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(index, byte)| {
                let hyphen = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
                write!(f, "{hyphen}{byte:02x}")
            }),
        }
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Uid;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a unique id")
            }
            fn visit_str<E>(self, text: &str) -> Result<Uid, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_read_back_as_they_were_written() {
        for text in [
            "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
            "svc-uid",
            "",
            "0A1B2C3D-4E5F-6071-8293-A4B5C6D7E8F9",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"), Uid::Uuid(_)));
    }

    #[test]
    fn times_are_whole_seconds_in_utc() {
        assert_eq!(seconds(Some("2026-01-02T03:04:05Z")), Some(1_767_323_045));
        assert_eq!(timestamp(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(seconds(Some("yesterday")), None);
    }
}
