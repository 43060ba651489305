//! What objects are known by: names, namespace and name together, and unique ids.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// A string that many objects share, such as a namespace, a zone or the name of a port.
pub type Name = Arc<str>;

/// Namespace and name. The namespace is empty for objects that have none.
pub type Key = (Name, Name);

/// The namespace of the objects that zonewise keeps for itself.
pub const SYSTEM_NAMESPACE: &str = "zonewise-system";

/// The name of the controller's Deployment, Lease and role, and of the field manager of what it writes.
pub const CONTROLLER_NAME: &str = "zonewise-controller";
/// The name of the proxies' DaemonSet and role, and of the field manager of what they write.
pub const PROXY_NAME: &str = "zonewise-proxy";
/// The name of guard mode's role, its admission policy and webhook, and of the field manager of what it writes.
pub const GUARD_NAME: &str = "zonewise-guard";

/// An object with a namespace and a name.
pub trait Keyed {
    /// Its namespace and name.
    fn key(&self) -> Key;
}

/// `metadata.uid`: 16 bytes when it is a UUID (always, on a real API server), otherwise its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    /// A UUID that was written in its canonical form: hyphens and lower case.
    Uuid(Uuid),
    /// Any other text.
    Other(Box<str>),
}

impl Default for Uid {
    fn default() -> Self {
        Self::Other("".into())
    }
}

impl Uid {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Other(text) if text.is_empty())
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let canonical =
            |uuid: &Uuid| *uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *text;
        let uuid = Uuid::try_parse(text).ok().filter(canonical);
        uuid.map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Self::Other(text) => f.write_str(text),
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
            "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
            "{0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9}",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"), Uid::Uuid(_)));
    }

    #[test]
    fn uids_are_text_in_json() {
        for text in ["0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "svc-uid"] {
            let json = serde_json::json!(text);
            let uid: Uid = serde_json::from_value(json.clone()).unwrap();
            assert_eq!((&uid, uid.is_empty()), (&Uid::from(text), false));
            assert_eq!(serde_json::to_value(&uid).unwrap(), json);
        }
        assert!(Uid::default().is_empty() && Uid::from("").is_empty());
        let error = serde_json::from_str::<Uid>("1").unwrap_err().to_string();
        assert!(error.contains("expected a unique id"), "{error}");
    }
}
