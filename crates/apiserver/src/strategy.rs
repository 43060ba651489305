//! What becomes of an object on its way into the store: defaults, checks, what may not change. Pure.

use serde_json::Value;

use crate::kind::Kind;
use crate::problem::Problem;

/// The door an object comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The object itself: its status stays as it was.
    Main,
    /// `/status`: everything else stays as it was.
    Status,
}

/// Gives defaults, keeps what this door does not write, checks the rest.
///
/// `metadata` that the server owns (uid, resourceVersion, creationTimestamp, generation, managedFields,
/// deletionTimestamp, selfLink) is the store's business, not ours.
pub fn prepare(
    kind: &Kind,
    door: Door,
    stored: Option<&Value>,
    object: &mut Value,
) -> Result<(), Problem> {
    let _ = (kind, door, stored, object);
    Ok(())
}
