//! Command-line arguments that the controller and the proxy share.

use std::collections::BTreeMap;

use clap::ValueEnum;
use zonewise_telemetry::log::Format;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Parses feature gates: `Name=true,Name=false`.
pub(crate) fn gates(text: &str, known: &[&str]) -> Result<BTreeMap<String, bool>, String> {
    let wrong = |pair: &str| {
        format!(
            "invalid feature gate `{pair}`: use Name=true or Name=false; the gates are {}",
            known.join(", ")
        )
    };
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| wrong(pair))?;
            let value = value.trim().parse().map_err(|_| wrong(pair))?;
            Ok((name.trim().to_owned(), value))
        })
        .collect()
}
