//! Kubernetes objects in protobuf: read field by field, without a copy and without generated code, and written.
//!
//! ```text
//!  list     k8s\0 Unknown { typeMeta, raw: PodList { metadata, items ─────────┐
//!  watch    length WatchEvent { type, object: k8s\0 Unknown { raw ────────────┤
//!                                                                             ▼
//!                                          bytes of one object, and the table of its kind
//!                                                                             │ [`decode`]
//!                                                                             ▼
//!                                     any struct that serde can also read from the object's JSON
//! ```
//!
//! * [`reader`]: the fields of a message, by number and wire type.
//! * [`envelope`]: what the API puts around objects and watch events.
//! * [`stream`]: lists and watches, cut into objects while they arrive.
//! * [`kinds`]: the numbers and JSON names of the fields that any of our readers uses.
//! * [`leaf`]: messages that are one value in JSON, such as times.
//! * [`decode`]: serde's view of a message with such a table. Structs that are read from JSON are
//!   read from protobuf by the same code, so both forms give the same struct.
//! * [`encode`]: the way back, for objects that we write.
//!
//! Fields that are not in the tables are skipped, so a newer API server does not matter. The format is
//! described in
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding> and
//! <https://protobuf.dev/programming-guides/encoding/>.

pub mod decode;
pub mod encode;
pub mod envelope;
pub mod kinds;
pub mod leaf;
pub mod reader;
pub mod stream;

pub use crate::media_type::PROTOBUF as MEDIA_TYPE;
