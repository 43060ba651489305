//! Tables for `kubectl get`. Pure.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;

/// What of each object goes along with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

/// A `meta.k8s.io/v1` Table of these objects, columns as kubectl knows them (wide ones with priority 1).
///
/// `metadata` is the list's: resourceVersion, continue, remainingItemCount. Watches send tables of one row;
/// `columns` says whether the column definitions go along.
pub fn table(
    kind: &Kind,
    objects: &[&Value],
    metadata: Value,
    include: Include,
    columns: bool,
    now: Timestamp,
) -> Value {
    let _ = (kind, objects, include, columns, now);
    serde_json::json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "rows": []})
}
