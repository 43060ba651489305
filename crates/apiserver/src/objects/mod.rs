//! Kubernetes objects as JSON values: their kinds, and the rules that hold for each kind. Nothing here does I/O.
//!
//! ```text
//!  kind        the table of served kinds            selectors   label and field selectors
//!  strategy    defaults, validation, immutability   patch       JSON, merge and strategic merge patches
//!  allocation  cluster IPs and node ports           apply       server-side apply and managed fields
//!  syntax      how names and addresses are written  schema      merge rules that patch and apply share
//!  conversion  the two API versions of events       json        short ways to read JSON values
//! ```

pub(crate) mod allocation;
pub(crate) mod apply;
pub(crate) mod conversion;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod patch;
pub(crate) mod schema;
pub(crate) mod selectors;
pub(crate) mod strategy;
pub(crate) mod syntax;
