//! Quantities of Kubernetes, such as `500m` or `1.5`, in thousandths.

use serde::Deserialize;

/// A quantity. API servers send text; manifests written by hand may contain a number.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Quantity {
    Text(Box<str>),
    Number(f64),
}

impl Quantity {
    /// In thousandths, rounded up. `None` if it is not a quantity, is negative, or does not fit into 64 bits.
    pub(crate) fn milli(&self) -> Option<u64> {
        match self {
            Self::Text(text) => milli(text),
            Self::Number(number) => milli(&number.to_string()),
        }
    }
}

/// Parses a Kubernetes quantity into thousandths, rounded up. `None` if the text is not a quantity, is
/// negative, or does not fit into 64 bits.
fn milli(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (mantissa, decimals) = (format!("{whole}{fraction}"), fraction.len());
    let mantissa: u128 = mantissa.trim_start_matches('0').parse().or_else(zero_if_empty).ok()?;
    scaled(mantissa, decimals, suffix)
}

fn zero_if_empty(error: std::num::ParseIntError) -> Result<u128, std::num::ParseIntError> {
    match error.kind() {
        std::num::IntErrorKind::Empty => Ok(0),
        _ => Err(error),
    }
}

/// `mantissa / 10^decimals` with a suffix of Kubernetes quantities, in thousandths, rounded up.
fn scaled(mantissa: u128, decimals: usize, suffix: &str) -> Option<u64> {
    let (binary, exponent) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        other => (0, other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
    };
    let decimals = i32::try_from(decimals).ok()?;
    let power = exponent.checked_add(3)?.checked_sub(decimals)?;
    let value = mantissa.checked_mul(1 << binary)?;
    let ten = |power: i32| 10u128.checked_pow(power.unsigned_abs());
    let value = match power {
        ..0 => ten(power).map_or(u128::from(value > 0), |divisor| value.div_ceil(divisor)),
        _ => value.checked_mul(ten(power)?)?,
    };
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn b3_quantities_are_thousandths_rounded_up() {
        let rows = [
            ("4", Some(4000)),
            ("3920m", Some(3920)),
            ("1.5", Some(1500)),
            (".5", Some(500)),
            ("0", Some(0)),
            ("100u", Some(1)),
            ("1n", Some(1)),
            ("2k", Some(2_000_000)),
            ("1e3", Some(1_000_000)),
            ("15e-1", Some(1500)),
            ("1Ki", Some(1_024_000)),
            ("0.0001", Some(1)),
            ("1e-400", Some(1)),
            ("1e400", None),
            ("99999999999999999999999999999999999999999", None),
            ("-1", None),
            ("1.2.3", None),
            ("many", None),
            ("", None),
            ("e3", None),
        ];
        for (text, expected) in rows {
            assert_eq!(milli(text), expected, "{text:?}");
        }
    }
}
