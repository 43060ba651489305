//! The heuristics of a configuration file, for commands that need nothing else of it.
//!
//! ```yaml
//! apiVersion: config.zonewise.dev/v1alpha1
//! kind: ControllerConfiguration
//! heuristics:
//!   - name: example.com/own-zone
//!     endpointZones: "[endpoint.zone]"
//! ```
//!
//! All other fields are the controller's business and are not looked at.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use zonewise_topology::expression::{Definition, Library};

const API_VERSION: &str = "config.zonewise.dev/v1alpha1";
const KIND: &str = "ControllerConfiguration";

/// More is no configuration that a person wrote.
const MAX_BYTES: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    heuristics: Option<Vec<Spanned<Definition>>>,
}

/// The built-in heuristics and those of a file, if one is given.
pub(crate) fn library(path: Option<&Path>) -> Result<Library> {
    match path {
        Some(path) => parse(&path.display().to_string(), &read(path)?),
        None => Ok(Library::default()),
    }
}

fn read(path: &Path) -> Result<String> {
    let name = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > MAX_BYTES {
        bail!("{name}: more than {MAX_BYTES} bytes; this is no configuration");
    }
    Ok(text)
}

fn parse(file: &str, text: &str) -> Result<Library> {
    let document: Document = serde_saphyr::from_str(text).map_err(|error| {
        let plain = error.without_snippet().to_string();
        let message = plain.lines().next().unwrap_or_default();
        // Line and column stand in front already.
        let message = message.split(" at line ").next().unwrap_or(message);
        anyhow!("{}: {message}", place(file, error.location()))
    })?;
    let (version, kind) = (document.api_version.as_deref(), document.kind.as_deref());
    if version != Some(API_VERSION) || kind != Some(KIND) {
        bail!("{file}: expected apiVersion {API_VERSION} and kind {KIND}");
    }
    let found = document.heuristics.unwrap_or_default();
    let definitions: Vec<Definition> = found.iter().map(|item| item.value.clone()).collect();
    Library::new(&definitions).map_err(|error| {
        let location = found.get(error.index).map(|item| item.referenced);
        anyhow!("{}: {error}", place(file, location))
    })
}

fn place(file: &str, location: Option<Location>) -> String {
    match location {
        Some(at) => format!("{file}:{}:{}", at.line(), at.column()),
        None => file.to_owned(),
    }
}
