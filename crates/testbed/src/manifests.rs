//! The repository's own manifests, as objects.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::programs::repository;

/// Every document of a YAML file; a relative path starts at the root of the repository.
pub fn manifests(path: impl AsRef<Path>) -> Result<Vec<Value>> {
    let path = repository().join(path);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read the manifest {}", path.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("{} is not YAML", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
