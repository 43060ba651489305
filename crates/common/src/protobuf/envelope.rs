//! What the API puts around objects: `runtime.Unknown` with a prefix, and `WatchEvent`.
//!
//! ```text
//!  "k8s\0"  Unknown { typeMeta { apiVersion, kind }  raw  contentEncoding  contentType }
//!                                                     └── the object's own message
//! ```

use super::reader::{Error, Fields};

/// The first bytes of everything that the API encodes in protobuf.
pub const MAGIC: &[u8] = b"k8s\0";

/// The fields of `k8s.io.apimachinery.pkg.runtime.Unknown`.
pub(super) mod unknown {
    pub(in super::super) const TYPE_META: u32 = 1;
    pub(in super::super) const RAW: u32 = 2;
    pub(in super::super) const CONTENT_ENCODING: u32 = 3;
    pub(in super::super) const CONTENT_TYPE: u32 = 4;
}

/// An object in its envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its API version.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its own message.
    pub object: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    ///
    /// # Errors
    /// If the bytes are none, or hold an object in another encoding.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let unknown = bytes.strip_prefix(MAGIC).ok_or_else(no_magic)?;
        let mut envelope = Self::default();
        for field in Fields::new(unknown) {
            match field? {
                (unknown::TYPE_META, wire) => {
                    (envelope.api_version, envelope.kind) = type_meta(wire.bytes()?)?;
                }
                (unknown::RAW, wire) => envelope.object = wire.bytes()?,
                (unknown::CONTENT_ENCODING | unknown::CONTENT_TYPE, wire) => plain(wire.bytes()?)?,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

pub(super) fn no_magic() -> Error {
    Error::new("the bytes do not begin with \"k8s\\0\", as everything does that the API sends")
}

/// Refuses the encodings that the envelope allows and API servers do not use.
pub(super) fn plain(encoding: &[u8]) -> Result<(), Error> {
    match encoding.is_empty() {
        true => Ok(()),
        false => Err(Error::new("the object in the envelope is encoded once more")),
    }
}

/// The API version and kind of a `runtime.TypeMeta`.
pub(super) fn type_meta(bytes: &[u8]) -> Result<(&str, &str), Error> {
    let (mut api_version, mut kind) = ("", "");
    for field in Fields::new(bytes) {
        match field? {
            (1, wire) => api_version = wire.text()?,
            (2, wire) => kind = wire.text()?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub event_type: &'a str,
    /// The object that it is about; a Status for `ERROR`.
    pub envelope: Envelope<'a>,
}

impl<'a> WatchEvent<'a> {
    /// Reads the message of one frame.
    ///
    /// # Errors
    /// If it is not a watch event.
    pub fn read(frame: &'a [u8]) -> Result<Self, Error> {
        let (mut event_type, mut object) = ("", &[][..]);
        for field in Fields::new(frame) {
            match field? {
                (1, wire) => event_type = wire.text()?,
                (2, wire) => object = raw_extension(wire.bytes()?)?,
                _ => {}
            }
        }
        Ok(Self { event_type, envelope: Envelope::open(object)? })
    }
}

/// The bytes of a `runtime.RawExtension`.
fn raw_extension(bytes: &[u8]) -> Result<&[u8], Error> {
    let mut raw = &[][..];
    for field in Fields::new(bytes) {
        if let (1, wire) = field? {
            raw = wire.bytes()?;
        }
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::protobuf::{bytes, envelope, int};

    #[test]
    fn an_envelope_names_the_kind_and_holds_the_object() {
        let pod = envelope("v1", "Pod", &int(9, 1));
        let object = &int(9, 1)[..];
        let expected = Envelope { api_version: "v1", kind: "Pod", object };
        assert_eq!(Envelope::open(&pod), Ok(expected));
        let event = [bytes(1, "ADDED"), bytes(2, bytes(1, &pod)), int(3, 5)].concat();
        let expected = WatchEvent { event_type: "ADDED", envelope: expected };
        assert_eq!(WatchEvent::read(&event), Ok(expected));
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let encoded = [MAGIC.to_vec(), bytes(2, "x"), bytes(3, "gzip")].concat();
        let json = [MAGIC.to_vec(), bytes(2, "{}"), bytes(4, "application/json")].concat();
        let prefix = "the bytes do not begin with";
        let rows = [
            (Vec::new(), prefix),
            (b"{}".to_vec(), prefix),
            (b"k8s".to_vec(), prefix),
            (encoded, "the object in the envelope is encoded once more"),
            (json, "the object in the envelope is encoded once more"),
            ([MAGIC, &[0x0a, 9]].concat(), "the bytes end in the middle of a field"),
        ];
        for (bytes, expected) in rows {
            let error = Envelope::open(&bytes).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
