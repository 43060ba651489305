//! The node data plane: Services as kernel rules.
//!
//! ```text
//!  API server ─► watches ─► index ─► sync ─► routing (pure) ─► rules (pure) ─► kernel ─► packets
//!                           dirty            which endpoints    which elements   one batch
//!                           Services
//! ```

pub mod addresses;
pub mod config;
pub mod conntrack;
pub mod dry_run;
pub mod health;
pub mod index;
pub mod kernel;
pub mod metrics;
pub mod node;
pub mod page;
pub mod proxy;
pub mod report;
pub mod rivals;
pub mod rules;
pub mod setup;
pub mod tell;
pub mod watches;

pub use proxy::{RunError, run};
