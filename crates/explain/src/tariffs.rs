//! What providers ask for a gigabyte, as a table that users can edit.
//!
//! ```text
//! provider,same_zone,cross_zone,cross_region,bytes_per_gb
//! aws,0,0.02,0.02,1073741824
//! ```
//!
//! The list prices are such a table too ([`LIST_PRICES`]), so whoever has other prices starts from it.

use crate::cost::LineError;

/// What a provider asks for a gigabyte, both directions together.
#[derive(Clone, Debug, PartialEq)]
pub struct Tariff {
    /// The name of the provider, or of whatever a user calls these prices.
    pub name: Box<str>,
    /// Within a zone.
    pub same_zone: f64,
    /// Between zones of a region.
    pub cross_zone: f64,
    /// Between regions.
    pub cross_region: f64,
    /// How many bytes are billed as a gigabyte: some providers count 2³⁰, some 10⁹.
    pub bytes_per_gb: f64,
}

/// List prices in dollars. They change, and differ between regions: docs/cost.md says how to give your own.
pub const LIST_PRICES: &str = include_str!("tariffs.csv");

/// A gigabyte where nobody says what it is.
const DECIMAL_GB: f64 = 1e9;

/// An example of a line, for messages.
const EXAMPLE: &str = "mine,0,0.02,0.05,1000000000";

impl Tariff {
    /// The same price for whatever crosses zones, by decimal gigabytes.
    pub fn flat(per_gb: f64) -> Self {
        Self {
            name: "given".into(),
            same_zone: 0.0,
            cross_zone: per_gb,
            cross_region: per_gb,
            bytes_per_gb: DECIMAL_GB,
        }
    }

    /// Reads a table of prices. Empty lines, lines that begin with `#` and a header line are skipped.
    ///
    /// # Errors
    /// Names the first line that cannot be used, or says that there is none.
    pub fn read(file: &str, text: &str) -> Result<Vec<Self>, LineError> {
        let mut tariffs = Vec::<Self>::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() || line.starts_with('#') || line.starts_with("provider,") {
                continue;
            }
            let wrong = |message| LineError::new(file, index + 1, message);
            let tariff = Self::of_line(line).map_err(wrong)?;
            if tariffs.iter().any(|other| other.name == tariff.name) {
                return Err(wrong(format!("the prices of `{}` are there twice", tariff.name)));
            }
            tariffs.push(tariff);
        }
        if tariffs.is_empty() {
            return Err(LineError::new(file, 1, format!("no prices (example: {EXAMPLE})")));
        }
        Ok(tariffs)
    }

    fn of_line(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> =
            line.split(',').map(|field| field.trim().trim_matches('"')).collect();
        let (name, prices, bytes) = match *fields {
            [name, a, b, c] => (name, [a, b, c], None),
            [name, a, b, c, bytes] => (name, [a, b, c], Some(bytes)),
            _ => {
                return Err(format!(
                    "{} fields, where a name, three prices and perhaps the bytes of a GB are needed (example: {EXAMPLE})",
                    fields.len()
                ));
            }
        };
        if name.is_empty() {
            return Err(format!("the name of the provider is missing (example: {EXAMPLE})"));
        }
        let [same_zone, cross_zone, cross_region] = prices.map(price);
        Ok(Self {
            name: name.into(),
            same_zone: same_zone?,
            cross_zone: cross_zone?,
            cross_region: cross_region?,
            bytes_per_gb: bytes.map_or(Ok(DECIMAL_GB), bytes_of_gb)?,
        })
    }
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| format!("invalid price `{text}`: use a number of at least 0"))
}

fn bytes_of_gb(text: &str) -> Result<f64, String> {
    let bytes = text.parse::<f64>().ok().filter(|bytes| bytes.is_finite() && *bytes >= 1.0);
    bytes.ok_or_else(|| format!("invalid bytes of a GB `{text}`: use 1000000000 or 1073741824"))
}
