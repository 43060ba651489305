//! What traffic that crosses zones costs. Cloud providers bill it by the gigabyte.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::overview::Cost;

/// The price per gigabyte, and how much traffic Services have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    /// The price of a GB that crosses zones, both directions together.
    pub per_gb: f64,
    /// GB per month of each Service that is not in `bytes`; `None` if that is not known.
    pub gb: Option<f64>,
    /// Bytes per month, by Service.
    pub bytes: BTreeMap<String, f64>,
}

/// What the cost of a Service depends on. Traffic is billed where it crosses zones, also if the Service
/// asks for subsets of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crossing {
    /// The part of the traffic that stays in its zone now, if that is known.
    pub in_zone: Option<f64>,
    /// The largest part that could, without overload; absent without zones or endpoints.
    pub best: Option<f64>,
}

/// Why the file of `--bytes` cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{file}: line {line}: {message}")]
pub struct BytesError {
    file: String,
    line: usize,
    message: String,
}

/// Providers bill by decimal gigabytes.
const BYTES_PER_GB: f64 = 1e9;

impl Prices {
    /// Reads lines of `namespace/service,bytes`. A header line is skipped.
    ///
    /// # Errors
    /// Names the first line that cannot be used.
    pub fn read_bytes(file: &str, text: &str) -> Result<BTreeMap<String, f64>, BytesError> {
        let mut bytes = BTreeMap::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let line = line.trim_start_matches('\u{feff}');
            let wrong = |message: String| BytesError { file: file.into(), line: number, message };
            let (service, amount) = line.rsplit_once(',').ok_or_else(|| {
                wrong(format!("invalid line `{line}` (example: shop/web,1500000000)"))
            })?;
            let service = service.trim().trim_matches('"');
            let amount = amount.trim().trim_matches('"');
            match amount.parse::<f64>() {
                Ok(amount) if amount.is_finite() && amount >= 0.0 => {
                    *bytes.entry(service.to_owned()).or_default() += amount;
                }
                Err(_) if number == 1 && !service.contains('/') => {}
                _ => return Err(wrong(format!("invalid number of bytes `{amount}`"))),
            }
        }
        Ok(bytes)
    }

    /// The traffic of a Service in GB per month, if it is known.
    pub fn gb(&self, service: &str) -> Option<f64> {
        self.bytes.get(service).map(|bytes| bytes / BYTES_PER_GB).or(self.gb)
    }

    /// The cost of a Service; `None` if its traffic is not known, or how much of it stays in its zone, or could.
    pub fn cost(&self, service: &str, crossing: Crossing) -> Option<Cost> {
        let gb = self.gb(service)?;
        let paid = |part: f64| gb * (1.0 - part).max(0.0) * self.per_gb;
        let (now, best) = (crossing.in_zone?, crossing.best?);
        Some(Cost { gb, now: paid(now), best: paid(best.max(now)) })
    }
}
