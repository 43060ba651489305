//! The head of documents that programs read (`-o json`, `-o yaml`).

use serde::Serialize;

/// The version of all documents. It changes with the meaning of any field; new fields alone do not change it.
/// `docs/schemas` has a JSON Schema for each kind of document.
pub const API_VERSION: &str = "output.zonewise.dev/v1";

/// A document with its version and kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: T,
}

impl<T> Document<T> {
    /// A document of this kind.
    pub fn new(kind: &'static str, content: T) -> Self {
        Self { api_version: API_VERSION, kind, content }
    }
}
