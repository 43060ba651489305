//! Which endpoints this node uses for each port of each Service, and why.
//!
//! Pure functions: no I/O, no clock, no Kubernetes client. The proxy programs the kernel with what
//! [`route`] says; `route` and `explain` print it.
//!
//! ```text
//!  bytes ─► Door ─► Service, Slice      small; everything about *this* node is already decided
//!                      │
//!                      ▼
//!   subset   slices this node consumes (labels for-zone, for-region)
//!   merge    endpoints of one port, each once, sorted
//!   route    node hints ─► zone shares ─► zone hints ─► any;  traffic policies
//!                      │
//!                      ▼
//!   Route    cluster, local, reachable, weights, mode, reason ─► slots
//! ```

mod door;
mod merge;
mod net;
mod packed;
mod place;
mod route;
mod service;
mod settings;
pub mod shares;
mod slice;
mod slots;
mod subset;
mod target;
mod wire;

pub use door::{Door, ZoneId};
pub use merge::{local_ready, merge};
pub use net::{Family, Protocol};
pub use packed::Packed;
pub use place::Place;
pub use route::{Mode, Question, Route, route, serving};
pub use service::{Policy, Service, ServicePort};
pub use settings::Settings;
pub use slice::{Endpoint, Marks, Port, Slice, Subset};
pub use slots::{MAX_SLOTS, slots};
pub use subset::{effective, never_subset, wanted};
pub use target::Target;
