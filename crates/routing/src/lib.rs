//! Which endpoints this node uses for each port of each Service, and why.
//!
//! Pure functions: no I/O, no clock, no Kubernetes client. The proxy programs the kernel with the
//! result of [`route()`]; the commands `zonewise route` and `zonewise explain` print it.
//!
//! ```text
//!  JSON ─► ObjectReader ─► RoutedService, RoutedSlice    whatever depends on this node is decided
//!                               │
//!                               ▼
//!   subset   slices that this node consumes (labels for-zone, for-region)
//!   merge    endpoints of one port, each once, sorted
//!   route    node hints ─► zone shares ─► zone hints ─► any;  traffic policies
//!                               │
//!                               ▼
//!   Route    cluster, local, reachable, weights, mode, reason ─► Choice
//! ```

mod addresses;
mod claims;
mod frontend;
mod gates;
mod location;
mod merge;
mod net;
mod ownership;
mod reader;
mod route;
mod service;
pub mod shares;
mod slice;
mod slots;
mod subset;
mod target;
mod wire;
mod zones;

pub use addresses::AddressList;
pub use claims::{ClusterClaims, ServiceClaims};
pub use frontend::{Exposure, Frontend};
pub use gates::FeatureGates;
pub use location::NodeLocation;
pub use merge::{count_local_ready, merge};
pub use net::{Family, Protocol};
pub use ownership::{Claim, Ownership, Protected, Refusal};
pub use reader::{ObjectReader, ParsedSlice};
pub use route::{Mode, Route, RouteQuery, route, serving_targets};
pub use service::{RoutedService, ServicePort, TrafficPolicy};
pub use slice::{EndpointFlags, RoutedSlice, SliceEndpoint, SlicePort, Subset};
pub use slots::{Choice, Group, MAX_GROUP_TARGETS, MAX_GROUPS, RESOLUTIONS};
pub use subset::{consumed_slices, is_for_node, needs_other_subsets, uses_all_slices};
pub use target::Target;
pub use zones::ZoneId;
