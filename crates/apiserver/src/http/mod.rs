//! From bytes of a connection to operations, and back.
//!
//! ```text
//!  server          connections, tokens, bodies, responses
//!  tls             the certificate of the server
//!  faults          errors and delays that can be switched on
//!  request         method, path and query: what a request means
//!  representation  response bodies: objects, tables, metadata alone
//!  watch           responses that stay open
//! ```

pub(crate) mod faults;
pub(crate) mod representation;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod tls;
pub(crate) mod watch;
