//! Health: of the proxy itself, and of Services for load balancers.
//!
//! ```text
//!  sync loop ─ queued, updated ─► Health ◄─ node_seen ─ watch of the Node
//!                                   │
//!       10256 /healthz /livez ◄─────┤ status(now)
//!       healthCheckNodePorts  ◄─────┘ and ready endpoints on this node   (ports)
//!       10249 /metrics /proxyMode /configz /routes …                     (pages)
//! ```

mod listen;
mod pages;
mod ports;
mod status;

pub use listen::serve;
pub(crate) use listen::{BindError, Served, serve_by};
pub use pages::{HealthPages, MetricsPages};
pub use ports::{HealthPort, HealthPorts, PortError};
pub(crate) use status::is_eligible;
pub use status::{Health, Moment};
