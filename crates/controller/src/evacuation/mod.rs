//! Empties zones as ZoneEvacuations ask for it (docs/evacuate.md).
//!
//! ```text
//!  ZoneEvacuation ─► watch ─► StoredEvacuations ─► Nodes with the zones that are being emptied ─► queue ─► syncs
//!        ▲                         │
//!        │ status                  ▼ every second, and at every change, in the leading replica
//!        └──────────────────── course (pure) ◄── survey: what it means for each Service (slices::evacuation)
//!                                            ◄── failing: connections that fail, as the proxies report them (demand)
//! ```
//!
//! The status is written before anything else happens, and what is in force is read from it alone. So every replica
//! plans by the same percentage, and one that takes over goes on where the last one has stopped. Syncs wait for the first
//! list of ZoneEvacuations: a controller that starts must not give a zone its traffic back.
//!
//! In guard mode and with `--compat upstream` ZoneEvacuations are not looked at: the conditions of endpoints are the
//! built-in controller's there.

mod course;
mod drive;
mod failing;
mod follow;

pub use zonewise_inventory::evacuation::{
    EvacuationSpec, EvacuationStatus, LIMIT_PERCENT, Phase, StoredEvacuation, ask, object_name,
    stored,
};

pub(crate) use drive::Driver;
pub(crate) use follow::{EvacuationFollower, StoredEvacuations};
