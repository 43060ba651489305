//! Services as kernel data: what the tables hold, computed without touching the kernel.
//!
//! ```text
//!            Service + Route                     (per Service: `ProgrammedService`)
//!                  │ entries: one element per frontend, slot, …
//!                  ▼
//!  Desired ── before/after ──► Delta ──► batch      (a change costs what it changes)
//!     │
//!     └── every element: verification, dry run
//! ```
//!
//! The number of chains depends on the kinds of policy, the slot counts and the affinity timeouts in
//! use, never on the number of Services or endpoints; Services with session affinity have chains of their own. A packet's way:
//!
//! ```text
//!  @weighted? ─► by-weight ─ daddr . proto . port . random ─► @groups ─► a chain for N slots of a group; else:
//!
//!  prerouting, output ─► services ─ daddr . proto . port ─► @services ─► a policy's chain for N slots
//!                           │                                              │ daddr . proto . port . random mod N
//!                           └─ local address ─ proto . port ─► @nodeports   └─► @slots ─► dnat endpoint . port
//!
//!  a policy's chain:  clusterip-N         marks traffic from outside the cluster, picks
//!                     external-N          marks everything, picks
//!                     external-local      from this node or its Pods: plain-N   else: local-N (endpoints of this node)
//!                     sticky-…            first looks for the client in the Service's own map
//! ```

pub(crate) mod affinity;
pub(crate) mod budget;
pub(crate) mod chains;
pub(crate) mod counting;
pub(crate) mod delta;
pub(crate) mod desired;
pub(crate) mod entries;
pub(crate) mod layout;
pub(crate) mod sets;
pub mod text;

/// The name of our tables, `ip zonewise` and `ip6 zonewise`.
pub const TABLE: &str = "zonewise";
/// The name of the tables with which it is tried what the kernel can do.
pub(crate) const PROBE_TABLE: &str = "zonewise-probe";
