//! Lengths of time as `KubeProxyConfiguration` writes them: `24h0m0s`, `1h30m`, `10ms`, `0`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A length of time, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl TryFrom<String> for Span {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self::default());
        }
        let wrong =
            |_| format!("`{text}` is no length of time; write for example 10ms, 30s or 1h30m0s");
        let span: jiff::SignedDuration = text.parse().map_err(wrong)?;
        Duration::try_from(span).map(Self).map_err(|_| format!("`{text}` is negative"))
    }
}

/// `1h30m0s` from an hour on, `1m30s` from a minute on, then `1.5s`, `10ms`, `7µs`, `1ns`, `0s`.
impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (minutes, rest) = (self.0.as_secs() / 60, self.0.subsec_nanos());
        let seconds = fraction(self.0.as_secs() % 60, rest, 9);
        match (minutes / 60, minutes % 60) {
            (0, 0) if self.0.as_secs() > 0 || rest == 0 => write!(out, "{seconds}s"),
            (0, 0) if rest >= 1_000_000 => {
                let millis = fraction(u64::from(rest / 1_000_000), rest % 1_000_000, 6);
                write!(out, "{millis}ms")
            }
            (0, 0) if rest >= 1_000 => {
                write!(out, "{}µs", fraction(u64::from(rest / 1_000), rest % 1_000, 3))
            }
            (0, 0) => write!(out, "{rest}ns"),
            (0, minutes) => write!(out, "{minutes}m{seconds}s"),
            (hours, minutes) => write!(out, "{hours}h{minutes}m{seconds}s"),
        }
    }
}

/// `whole` and `part` of 10^`digits`, without zeros at the end.
fn fraction(whole: u64, part: u32, digits: usize) -> String {
    if part == 0 {
        return whole.to_string();
    }
    let part = format!("{part:0digits$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

/// In a file, zero stands for the default.
pub(super) fn zero_is_default<'de, D>(deserializer: D) -> Result<Option<Span>, D::Error>
where
    D: Deserializer<'de>,
{
    let span = Option::<Span>::deserialize(deserializer)?;
    Ok(span.filter(|span| !span.0.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written_as_the_reference_does() {
        let rows = [
            ("0", Duration::ZERO, "0s"),
            ("0s", Duration::ZERO, "0s"),
            ("24h0m0s", Duration::from_hours(24), "24h0m0s"),
            ("1h30m", Duration::from_mins(90), "1h30m0s"),
            ("15m", Duration::from_mins(15), "15m0s"),
            ("90s", Duration::from_secs(90), "1m30s"),
            ("1.5s", Duration::from_millis(1500), "1.5s"),
            ("10ms", Duration::from_millis(10), "10ms"),
            ("1h0m0.25s", Duration::from_millis(3_600_250), "1h0m0.25s"),
            ("1500us", Duration::from_micros(1500), "1.5ms"),
            ("7µs", Duration::from_micros(7), "7µs"),
            ("1ns", Duration::from_nanos(1), "1ns"),
        ];
        for (text, expected, written) in rows {
            let span: Span = text.parse().unwrap();
            assert_eq!((span, span.to_string()), (Span(expected), written.to_owned()), "{text}");
            assert_eq!(span.to_string().parse(), Ok(span), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for (text, expected) in [
            ("soon", "`soon` is no length of time; write for example 10ms"),
            ("", "`` is no length of time"),
            ("30", "`30` is no length of time"),
            ("-1s", "`-1s` is negative"),
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
