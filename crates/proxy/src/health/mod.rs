//! Health: what the proxy says of itself, and of Services to load balancers.
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

pub use listen::{BindError, Served, serve};
pub use pages::{HealthPages, MetricsPages};
pub use ports::{HealthPort, HealthPorts, PortError};
pub use status::{FamilyStatus, Health, Moment, Status, is_eligible};
