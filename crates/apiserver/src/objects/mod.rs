//! Kubernetes objects as JSON values: their kinds, and the rules that hold for each kind. Nothing
//! here does I/O.
//!
//! ```text
//!  kind        the table of served kinds
//!  strategy    defaults, validation and immutable fields of each kind
//!  allocation  cluster IPs and node ports of Services
//!  types       fields whose types are checked
//!  syntax      how names, labels and addresses are written
//!  conversion  the two API versions of events
//!  selectors   label and field selectors
//!  patch       JSON, merge and strategic merge patches
//!  apply       server-side apply and managed fields
//!  schema      the merge rules that patch and apply share
//!  protobuf    objects in protobuf, and the table of their fields
//!  json        short ways to read and change JSON values
//! ```

pub(crate) mod allocation;
pub(crate) mod apply;
pub(crate) mod conversion;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod patch;
pub(crate) mod protobuf;
pub(crate) mod schema;
pub(crate) mod selectors;
pub(crate) mod strategy;
pub(crate) mod syntax;
pub(crate) mod types;
