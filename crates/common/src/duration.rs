//! Durations in configuration files and on command lines, as Kubernetes writes them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// A duration that is never negative: `24h0m0s`, `1h30m`, `10ms`, `0`.
///
/// It is printed as Go's `time.Duration` is, which is how Kubernetes prints its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ConfigDuration(pub Duration);

impl TryFrom<String> for ConfigDuration {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ConfigDuration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // The only number that needs no unit.
        if text == "0" {
            return Ok(Self::default());
        }
        let duration: jiff::SignedDuration = text
            .parse()
            .map_err(|_| format!("`{text}` is not a duration (examples: 500ms, 30s, 1h30m)"))?;
        Duration::try_from(duration)
            .map(Self)
            .map_err(|_| format!("`{text}` is negative (examples of durations: 500ms, 30s, 1h30m)"))
    }
}

/// `1h30m0s` from an hour on, `1m30s` from a minute on, then `1.5s`, `10ms`, `7µs`, `1ns`, `0s`.
impl fmt::Display for ConfigDuration {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_the_reference_does() {
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
            let read: ConfigDuration = text.parse().unwrap();
            assert_eq!(read, ConfigDuration(expected), "{text}");
            assert_eq!(read.to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(read), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for (text, expected) in [
            ("soon", "`soon` is not a duration (examples: 500ms, 30s, 1h30m)"),
            ("", "`` is not a duration"),
            ("30", "`30` is not a duration"),
            ("-1s", "`-1s` is negative"),
        ] {
            let error = text.parse::<ConfigDuration>().unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn units_change_where_the_next_one_is_whole() {
        let nanos = |nanos: u64| ConfigDuration(Duration::from_nanos(nanos)).to_string();
        let rows = [
            (999, "999ns"),
            (1_000, "1µs"),
            (999_999, "999.999µs"),
            (1_000_000, "1ms"),
            (999_999_999, "999.999999ms"),
            (1_000_000_000, "1s"),
            (59_999_999_999, "59.999999999s"),
            (60_000_000_000, "1m0s"),
            (3_599_000_000_000, "59m59s"),
            (3_600_000_000_000, "1h0m0s"),
            (90_061_000_000_000, "25h1m1s"),
            (60_000_000_001, "1m0.000000001s"),
        ];
        for (value, expected) in rows {
            assert_eq!(nanos(value), expected);
        }
        let read = serde_json::from_str::<ConfigDuration>("\"1h\"").unwrap();
        assert_eq!(read.0, Duration::from_hours(1));
        assert!(serde_json::from_str::<ConfigDuration>("\"soon\"").is_err());
    }
}
