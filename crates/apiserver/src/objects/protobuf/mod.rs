//! Objects in protobuf: request bodies are read to JSON, and responses are written from it. Nothing
//! here does I/O.
//!
//! ```text
//!  fields.txt ─► table: the messages of all kinds, their fields by number, JSON name and type
//!                  │
//!                  ├─► read    k8s\0 Unknown { typeMeta, raw } ─► JSON
//!                  └─► write   JSON ─► k8s\0 Unknown { typeMeta, raw }; lists; frames of watches
//! ```
//!
//! Both directions follow the same table, and write as Kubernetes does: fields in the order of their
//! numbers, maps in the order of their keys, and zero values of all fields that are no pointers in Go.

mod read;
mod table;
mod write;

pub(crate) use zonewise_common::protobuf::MEDIA_TYPE;

pub(crate) use read::decode;
pub(crate) use write::{encode, envelope, frame, list, message};
