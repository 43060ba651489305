//! An object as the API server has sent it: JSON or protobuf. Both are decoded by the same structs.

use std::fmt;

use serde::Deserialize;

use crate::protobuf::decode::{Kind, decode};
use crate::protobuf::kinds::METADATA;
use crate::protobuf::reader::{self, Fields};

/// The bytes of one object.
#[derive(Clone, Copy, Debug)]
pub enum Encoded<'a> {
    /// JSON.
    Json(&'a str),
    /// Protobuf, without the envelope, and the table of its kind.
    Protobuf(&'static Kind, &'a [u8]),
}

/// Why an object cannot be decoded.
#[derive(Debug)]
pub enum DecodeError {
    /// The JSON is not valid, or has a value that the struct does not accept.
    Json(serde_json::Error),
    /// The same for protobuf.
    Protobuf(reader::Error),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::Protobuf(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl From<reader::Error> for DecodeError {
    fn from(error: reader::Error) -> Self {
        Self::Protobuf(error)
    }
}

impl<'a> Encoded<'a> {
    /// Decodes the object.
    ///
    /// # Errors
    /// If it is not valid, or has a value that the struct does not accept.
    pub fn decode<T: Deserialize<'a>>(self) -> Result<T, DecodeError> {
        match self {
            Self::Json(json) => Ok(serde_json::from_str(json)?),
            Self::Protobuf(kind, bytes) => Ok(decode(kind.fields, bytes)?),
        }
    }

    /// Decodes the metadata alone. In protobuf this succeeds even if the rest of the object is damaged.
    ///
    /// # Errors
    /// If there is no metadata, or it cannot be decoded.
    pub fn metadata<T: Deserialize<'a>>(self) -> Result<T, DecodeError> {
        #[derive(Deserialize)]
        struct WithMetadata<T> {
            metadata: T,
        }
        match self {
            Self::Json(json) => Ok(serde_json::from_str::<WithMetadata<T>>(json)?.metadata),
            Self::Protobuf(_, bytes) => {
                let metadata = Fields::new(bytes)
                    .find_map(|field| match field {
                        Ok((1, wire)) => Some(wire.bytes()),
                        Ok(_) => None,
                        Err(error) => Some(Err(error)),
                    })
                    .unwrap_or_else(|| Err(reader::Error::new("the object has no metadata")))?;
                Ok(decode(METADATA, metadata)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protobuf::kinds::POD;
    use crate::testing::protobuf::{bytes, encode};

    #[test]
    fn the_metadata_is_read_even_if_the_rest_is_damaged() {
        let pod = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
        let mut message = encode(POD.fields, &pod);
        let object = Encoded::Protobuf(&POD, &message);
        assert_eq!(object.metadata::<Value>().unwrap(), pod["metadata"]);
        assert_eq!(object.decode::<Value>().unwrap()["metadata"], pod["metadata"]);
        assert_eq!(Encoded::Json(&pod.to_string()).metadata::<Value>().unwrap(), pod["metadata"]);
        message.extend([0x12, 99]);
        let damaged = Encoded::Protobuf(&POD, &message);
        assert_eq!(damaged.metadata::<Value>().unwrap(), pod["metadata"]);
        let error = damaged.decode::<Value>().unwrap_err().to_string();
        assert_eq!(error, "the bytes end in the middle of a field");
        for rest in [Vec::new(), bytes(2, ""), vec![0x0a, 9]] {
            assert!(Encoded::Protobuf(&POD, &rest).metadata::<Value>().is_err());
        }
    }

    #[test]
    fn errors_of_either_form_say_what_is_wrong() {
        let json = Encoded::Json("{").decode::<Value>().unwrap_err().to_string();
        assert!(json.starts_with("EOF while parsing"), "{json}");
        let none = Encoded::Protobuf(&POD, &[]).metadata::<Value>().unwrap_err().to_string();
        assert_eq!(none, "the object has no metadata");
        assert!(Encoded::Json("{}").metadata::<Value>().is_err());
    }
}
