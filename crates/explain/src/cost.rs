//! What traffic that crosses zones costs. Cloud providers bill it by the gigabyte.
//!
//! Amounts come from the user, or are measured. What is measured in a window is projected to a month.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::overview::Cost;
use crate::tariffs::Tariff;

/// The price per gigabyte, and how much traffic Services have.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// What is paid. All that crosses zones is priced as traffic between zones of a region.
    pub tariff: Tariff,
    /// GB per month of each Service that is not in `bytes`; `None` if that is not known.
    pub gb: Option<f64>,
    /// Bytes per month, by Service.
    pub bytes: BTreeMap<String, f64>,
    /// What was measured, where it was. It wins.
    pub measured: Measured,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Bytes per second and the part that stays in its zone, by Service.
    pub services: BTreeMap<String, (f64, f64)>,
    /// The time that it was measured over, in seconds.
    pub seconds: f64,
}

/// The seconds of a month: a twelfth of 365.25 days.
pub(crate) const SECONDS_PER_MONTH: f64 = 2_629_800.0;

/// A tariff, and the regions of zones.
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing {
    /// The tariff.
    pub tariff: Tariff,
    /// The region of each zone.
    pub regions: BTreeMap<Box<str>, Box<str>>,
}

impl Pricing {
    /// The price of a gigabyte from a zone to a zone. Zones whose regions are not known are taken for those of one region.
    pub fn per_gb(&self, from: &str, to: &str) -> f64 {
        let region = |zone: &str| self.regions.get(zone);
        match (region(from), region(to)) {
            _ if from == to => self.tariff.same_zone,
            (Some(from), Some(to)) if from != to => self.tariff.cross_region,
            _ => self.tariff.cross_zone,
        }
    }

    /// What so many bytes per second cost in a month.
    pub(crate) fn per_month(&self, from: &str, to: &str, bytes: f64) -> f64 {
        self.per_gb(from, to) * bytes * SECONDS_PER_MONTH / self.tariff.bytes_per_gb
    }
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

/// A line of a file that cannot be used, and why.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{file}: line {line}: {message}")]
pub struct LineError {
    file: String,
    line: usize,
    message: String,
}

impl LineError {
    pub(crate) fn new(file: &str, line: usize, message: String) -> Self {
        Self { file: file.into(), line, message }
    }
}

impl Prices {
    /// Prices by a tariff; how much traffic there is, is not known yet.
    pub fn new(tariff: Tariff) -> Self {
        Self { tariff, gb: None, bytes: BTreeMap::new(), measured: Measured::default() }
    }

    /// Reads lines of `namespace/service,bytes`. A header line is skipped.
    ///
    /// # Errors
    /// Names the first line that cannot be used.
    pub fn read_bytes(file: &str, text: &str) -> Result<BTreeMap<String, f64>, LineError> {
        let mut bytes = BTreeMap::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let line = line.trim_start_matches('\u{feff}');
            let wrong = |message| LineError::new(file, number, message);
            let (service, amount) = line.rsplit_once(',').ok_or_else(|| {
                wrong(format!(
                    "`{line}` is not a Service and a number of bytes (example: shop/web,1500000000)"
                ))
            })?;
            let service = service.trim().trim_matches('"');
            let amount = amount.trim().trim_matches('"');
            match amount.parse::<f64>() {
                Ok(amount) if amount.is_finite() && amount >= 0.0 => {
                    *bytes.entry(service.to_owned()).or_default() += amount;
                }
                Err(_) if number == 1 && !service.contains('/') => {}
                _ => {
                    return Err(wrong(format!(
                        "`{amount}` is not a number of bytes (example: 1500000000)"
                    )));
                }
            }
        }
        Ok(bytes)
    }

    /// The traffic of a Service in GB per month, if it is known.
    pub fn gb(&self, service: &str) -> Option<f64> {
        let measured = self.measured.services.get(service);
        let measured = measured.map(|(bytes, _)| bytes * SECONDS_PER_MONTH);
        let bytes = measured.or_else(|| self.bytes.get(service).copied());
        bytes.map(|bytes| bytes / self.tariff.bytes_per_gb).or(self.gb)
    }

    /// The cost of a Service; `None` if its traffic is not known, or how much of it stays in its zone, or could.
    pub fn cost(&self, service: &str, crossing: Crossing) -> Option<Cost> {
        let gb = self.gb(service)?;
        let paid = |part: f64| gb * (1.0 - part).max(0.0) * self.tariff.cross_zone;
        let measured = self.measured.services.get(service).map(|(_, in_zone)| *in_zone);
        let (now, best) = (measured.or(crossing.in_zone)?, crossing.best?);
        Some(Cost { gb, now: paid(now), best: paid(best.max(now)) })
    }
}
