//! A snapshot of cluster objects in; plans, routes and explanations out.
//!
//! It runs the functions of the controller and of the proxy on the snapshot. What is explained is
//! therefore what these programs do.
//!
//! ```text
//!  files, dumps ─► input ─┐
//!                         ├─► Snapshot ─┬─► ControllerView ─► plan, suggestions, margin
//!  API server ───► live ──┘             └─► ProxyView ──────► routes, matrices
//!                                                                   │
//!                                            documents (JSON, YAML) ◄┴► screens
//! ```

mod change;
pub mod check;
mod cost;
mod cpu_use;
pub mod demand;
pub mod documents;
pub mod environment;
mod evacuation;
mod explanation;
mod failing;
mod ignored;
mod improvements;
pub mod input;
pub mod lint;
pub mod live;
mod margin;
mod matrix;
mod now;
mod overview;
mod plan;
mod proxy_view;
mod route;
pub mod screens;
mod service_kind;
mod service_snapshot;
mod shell_quote;
mod slice_names;
mod snapshot;
mod suggestions;
mod tariffs;
pub mod top;
mod unmanaged;
mod verdict;
pub mod what_if;

pub use cost::{Crossing, LineError, Measured, Prices, Pricing};
pub use environment::{Environment, ProxyKind};
pub use evacuation::{EvacuationCheck, ServiceCheck, evacuation_check};
pub use explanation::{Depth, Explanation, Note, explain};
pub use matrix::{Matrix, Row, location_in, matrices, matrices_of_nodes};
pub use overview::{Cost, ServiceOverview, SortBy, overview, sort};
pub use plan::{Planner, ServicePlan};
pub use route::{RefusedFrontend, RouteLine, name_demand, route_lines};
pub use service_kind::ServiceKind;
pub use shell_quote::shell_quote;
pub use snapshot::{Concerned, Remarks, Snapshot, SnapshotBuilder};
pub use tariffs::{LIST_PRICES, Tariff};
pub use unmanaged::{Unmanaged, unmanaged};
pub use verdict::{State, Verdict};

/// What the tests of this crate need and no other crate uses.
#[doc(hidden)]
pub mod testing {
    pub use crate::change::{Change, ControllerView};
    pub use crate::service_snapshot::ServiceSnapshot;
    pub use crate::suggestions::suggestions;
}
