//! Plans of writes: packing, hints, subsets, and what the reference was recorded to do.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod common;
mod demand;
mod evacuation;
mod failing;
mod guard;
mod hints;
mod incremental;
mod nulls;
mod packing;
mod recorded;
mod settling;
mod subsets;
mod switches;
mod weights;
