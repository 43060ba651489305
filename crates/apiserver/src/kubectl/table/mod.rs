//! Tables for `kubectl get`. No I/O.
//!
//! ```text
//!  objects ─► cells (one function per kind: cells.rs, pods.rs) ─► rows
//!  kind ────► columns (columns.rs)
//! ```

use jiff::Timestamp;
use serde_json::{Value, json};
use zonewise_common::api_group::METADATA_V1;

use crate::objects::kind::Kind;

mod age;
mod cells;
mod columns;
mod pods;

/// How much of each object is in its row: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

/// A `meta.k8s.io/v1` Table of these objects. Columns for `-o wide` have priority 1.
///
/// `metadata` is that of the list. Watches send tables of one row; `columns` says whether the table
/// has column definitions, which only the first one of a watch has.
pub(crate) fn table(
    kind: &Kind,
    objects: &[&Value],
    metadata: Value,
    include: Include,
    columns: bool,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects.iter().map(|one| row(kind, one, include, now)).collect();
    let definitions = if columns { columns::definitions(kind) } else { Value::Null };
    let mut table = json!({
        "kind": "Table", "apiVersion": METADATA_V1, "columnDefinitions": definitions,
    });
    table["metadata"] = metadata;
    table["rows"] = rows.into();
    table
}

fn row(kind: &Kind, object: &Value, include: Include, now: Timestamp) -> Value {
    let mut row = json!({"cells": cells::cells(kind, object, now)});
    if kind.kind == "Pod"
        && let Some(condition) = pods::completed(object)
    {
        row["conditions"] = json!([condition]);
    }
    match include {
        Include::None => row["object"] = Value::Null,
        Include::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": METADATA_V1,
                "metadata": object["metadata"],
            });
        }
        Include::Object => row["object"] = object.clone(),
    }
    row
}

#[cfg(test)]
mod tests;
