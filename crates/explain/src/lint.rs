//! What manifests ask for and will not get: keys and values that are misspelt, that another key overrides, or that stand
//! where they do nothing.
//!
//! ```text
//!  input ─► items ─┬─ Service ─► requested routing ─► its notes ─┐
//!                  └─ any other kind with such a key ────────────┴─► findings ─► lines, JSON, SARIF
//! ```

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};
use zonewise_slices::requested::{RequestNote, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_topology::reason::Code;

use crate::ignored;
use crate::input::{Item, LocatedObject, Object, SourceLocation};
use crate::screens::clean;

/// What a path in a URI cannot contain as it is.
const NOT_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// A key that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file; absent for a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The first line of the object in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// `Service shop/web`.
    pub object: String,
    /// The annotation, label or field.
    pub key: String,
    /// Its value; absent on objects of other kinds than Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why it has no effect.
    pub reason: Code,
    /// The reason as a sentence, with what was probably meant.
    pub sentence: String,
    /// Commands that correct it on a cluster.
    pub commands: Vec<String>,
}

/// The findings in an item of a file.
pub fn findings(item: &Item, settings: &Settings) -> Vec<Finding> {
    match item {
        Item::Found(LocatedObject { location, object: Object::Service { small, .. } }) => {
            of_service(small, settings).into_iter().map(|finding| finding.at(location)).collect()
        }
        Item::Ignored { misplaced: Some(misplaced), .. } => {
            let finding = |key: &String| misplaced_key(&misplaced.subject, key);
            misplaced.keys.iter().map(|key| finding(key).at(&misplaced.location)).collect()
        }
        Item::Found(_) | Item::Fault(_) | Item::Ignored { .. } | Item::Clue { .. } => Vec::new(),
    }
}

/// The findings about a Service.
pub fn of_service(service: &Service, settings: &Settings) -> Vec<Finding> {
    let requested = requested_routing(service, settings);
    let finding = |note: &RequestNote| Finding {
        file: None,
        line: None,
        object: format!("Service {}", service.key()),
        key: note.source.to_string(),
        value: Some(note.value.clone()),
        reason: note.reason.code(),
        sentence: requested.sentence(note),
        commands: ignored::commands(note, service),
    };
    requested.notes.iter().map(finding).collect()
}

fn misplaced_key(subject: &str, key: &str) -> Finding {
    let entry = Code::KeyNotOnService.entry();
    Finding {
        file: None,
        line: None,
        object: subject.to_owned(),
        key: key.to_owned(),
        value: None,
        reason: entry.code,
        sentence: format!("{}; {}", entry.sentence, entry.remedy),
        commands: Vec::new(),
    }
}

impl Finding {
    fn at(self, location: &SourceLocation) -> Self {
        Self { file: Some(location.file.to_string()), line: Some(location.line), ..self }
    }

    /// One line in the form that editors and CI systems recognise: `file:line: …`.
    pub fn to_line(&self) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}: ", clean(file)),
            _ => String::new(),
        };
        let (object, setting) = (clean(&self.object), clean(&self.setting()));
        format!("{place}{object}: {setting}: {} [{}]", clean(&self.sentence), self.reason)
    }

    /// `key = value`.
    fn setting(&self) -> String {
        match &self.value {
            Some(value) => format!("{} = {value}", self.key),
            None => self.key.clone(),
        }
    }
}

/// A log in the Static Analysis Results Interchange Format 2.1.0
/// (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>).
pub fn sarif(findings: &[Finding]) -> Value {
    let mut codes: Vec<Code> = findings.iter().map(|finding| finding.reason).collect();
    codes.sort_unstable();
    codes.dedup();
    let rule = |code: &Code| {
        let entry = code.entry();
        json!({
            "id": code.to_string(),
            "shortDescription": {"text": entry.sentence},
            "help": {"text": entry.remedy},
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "zonewise",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().map(rule).collect::<Vec<_>>(),
            }},
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn result(finding: &Finding) -> Value {
    let location = |file: &String| {
        let region = json!({"startLine": finding.line.unwrap_or(1)});
        let uri = utf8_percent_encode(file, NOT_IN_PATHS).to_string();
        json!({"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}})
    };
    json!({
        "ruleId": finding.reason.to_string(),
        "level": "warning",
        "message": {"text": format!("{}: {}: {}", finding.object, finding.setting(), finding.sentence)},
        "locations": finding.file.iter().map(location).collect::<Vec<_>>(),
    })
}
