//! The node data plane: Services as kernel rules.
//!
//! ```text
//!  API server ─► watches ─► index ─► sync ─► routing (pure) ─► rules (pure) ─► kernel ─► packets
//!                           dirty            which endpoints    which elements   one batch
//!                           Services
//! ```
//!
//! * `watches`, `index`, `node`: the cluster as this node knows it.
//! * `proxy`: the sync loop, and the process around it; `timeline`: what its start spends time on.
//! * `rules`: what the kernel's tables hold, as data.
//! * `kernel`: the tables in the kernel, kept equal to that; `conntrack`: stale UDP flows.
//! * [`config`], [`features`], `setup`, `host`, `addresses`: configuration, kernel settings, the machine and its addresses.
//! * `health`, `metrics`, `table_metrics`, `routes_page`, `events`, `report`, `demand`: what others can see;
//!   `published`, `connections`: where they have it from without waiting for the kernel.
//! * [`other_proxies`]: finding and removing the rules of kube-proxy. [`dry_run`]: rules without a kernel.

mod addresses;
pub mod config;
mod connections;
mod conntrack;
mod demand;
pub mod dry_run;
mod events;
pub mod features;
mod health;
mod host;
mod index;
mod kernel;
mod metrics;
mod node;
pub mod other_proxies;
mod proxy;
mod published;
mod report;
mod routes_page;
mod rules;
mod setup;
mod table_metrics;
#[doc(hidden)]
pub mod testing;
mod timeline;
mod watches;

pub use host::Host;
pub use proxy::{RunError, run};
pub use setup::{Incomplete, Machine, SetupError};
pub use timeline::Timeline;
