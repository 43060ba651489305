//! Which endpoints should serve which zones, and why.
//!
//! Pure functions: no I/O, no clock, no Kubernetes client. The controller, the proxy, the
//! simulator, `plan`, `route` and `explain` all call the same code, so that what is explained is
//! what happened.
//!
//! ```text
//!  capacity    Nodes ─► part of the traffic each zone sends, and which nodes did not count
//!  region      that, and endpoints per zone: what a heuristic sees
//!  heuristics  Region (+ what is in force) ─► Allocation + Reason        one file each
//!  expression  the same, written by users in a configuration file
//!  allocation  groups of endpoints and the zones that consume them
//!  hints       Allocation ─► a group for every single endpoint, with few changes
//!  traffic     Allocation ─► in-zone part, overload per endpoint
//!  settling    what is in force against a fresh decision
//!  zone_shares Allocation ⇄ annotation text
//!  reason      why, as a code with its arithmetic
//!  explanation all of it in one document
//!  words       numbers as people read them
//! ```

pub mod allocation;
pub mod capacity;
pub mod explanation;
pub mod expression;
pub mod heuristic;
pub mod heuristics;
pub mod hints;
mod number;
mod queue;
pub mod reason;
pub mod region;
pub mod settling;
pub mod threshold;
pub mod traffic;
pub mod words;
pub mod zone_shares;
