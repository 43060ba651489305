//! From bytes of a connection to operations, and back.
//!
//! ```text
//!  server          connections, tokens, bodies, responses      tls      the certificate
//!  request         method, path and query ─► what is meant     faults   errors and delays on purpose
//!  protobuf        request bodies that are not JSON or YAML    watch    responses that stay open
//!  representation  responses: objects, tables, metadata alone
//! ```

pub(crate) mod faults;
pub(crate) mod protobuf;
pub(crate) mod representation;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod watch;
