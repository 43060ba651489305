//! Documents that kubectl asks for besides the objects themselves. Nothing here does I/O.
//!
//! ```text
//!  discovery   /api, /apis: which groups, versions and resources are served
//!  openapi     /openapi: schemas, for `kubectl explain` and before kubectl applies an object
//!  reviews     what a user may do
//!  table       the rows and columns of `kubectl get`
//! ```

pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod reviews;
pub(crate) mod table;
