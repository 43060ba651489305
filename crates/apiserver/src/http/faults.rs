//! Faults that can be switched on: what clients of a real cluster have to live with now and then.
//! Nothing here does I/O; random numbers come in as arguments.
//!
//! ```text
//!  latency=10ms..50ms   every request is delayed by a random time in this range
//!  errors=5%            this share of requests fails: 429, 500, 503, or no response at all
//!  drop-watches=10s     watches break off after about this time
//!  stale=2s             reads with resourceVersion=0 are this old, watch events this late
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use zonewise_common::duration::ConfigDuration;

use crate::status::StatusError;

/// The longest time of a fault: longer ones are mistakes, and some cannot be added to a clock.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);
const NAMES: &str = "latency, errors, drop-watches, stale";

/// The faults that are on; by default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The delay of every request.
    pub latency: Option<RangeInclusive<Duration>>,
    /// The share of requests that fail, from 0 to 1.
    pub errors: f64,
    /// After about how long watches break off.
    pub drop_watches: Option<Duration>,
    /// How old reads with `resourceVersion=0` are, and how late watches send events.
    pub stale: Option<Duration>,
}

/// A fault that cannot be parsed.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum FaultError {
    /// No `=`.
    #[error("`{0}` is not NAME=VALUE (example: latency=10ms..50ms; names: {NAMES})")]
    Form(String),
    /// A name that is not known.
    #[error("unknown fault `{0}` (names: {NAMES})")]
    Name(String),
    /// A value that does not fit the name.
    #[error("{name}: `{value}` is not {expected}")]
    Value {
        /// Which fault.
        name: String,
        /// The value.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedError {
    TooManyRequests,
    Internal,
    Unavailable,
    /// The connection is closed without a response.
    NoResponse,
}

impl InjectedError {
    /// The response; `None` if there is none.
    pub(crate) fn status_error(self) -> Option<StatusError> {
        let (code, reason, text) = match self {
            Self::TooManyRequests => {
                (429, "TooManyRequests", "too many requests, please try again later")
            }
            Self::Internal => {
                (500, "InternalError", "this error was injected by a fault of the server")
            }
            Self::Unavailable => {
                (503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            Self::NoResponse => return None,
        };
        let mut error = StatusError::injected(code, reason, text);
        if self == Self::TooManyRequests {
            error.details = Some(serde_json::json!({"retryAfterSeconds": 1}));
        }
        Some(error)
    }
}

impl Faults {
    /// Sets one fault from a text such as `errors=5%`; the value `off` switches it off.
    ///
    /// # Errors
    /// If the name is unknown or the value is not valid.
    pub fn with(self, text: &str) -> Result<Self, FaultError> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| FaultError::Form(text.to_owned()))?;
        self.set(name.trim(), value.trim())
    }

    fn set(mut self, name: &str, value: &str) -> Result<Self, FaultError> {
        let wrong = |expected| FaultError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let a_duration = "a duration up to 24h (example: 2s), or off";
        let span = || if value == "off" { Some(None) } else { duration(value).map(Some) };
        match name {
            "latency" if value == "off" => self.latency = None,
            "latency" => {
                let expected = "a duration or a range up to 24h (example: 10ms..50ms), or off";
                self.latency = Some(range(value).ok_or_else(|| wrong(expected))?);
            }
            "errors" if value == "off" => self.errors = 0.0,
            "errors" => {
                self.errors = percentage(value)
                    .ok_or_else(|| wrong("a percentage from 0% to 100%, or off"))?;
            }
            "drop-watches" => self.drop_watches = span().ok_or_else(|| wrong(a_duration))?,
            "stale" => self.stale = span().ok_or_else(|| wrong(a_duration))?,
            _ => return Err(FaultError::Name(name.to_owned())),
        }
        Ok(self)
    }

    /// From names and values, as `PUT /zonewise/faults` sends them; faults that are not named are
    /// off.
    pub(crate) fn from_map(map: &BTreeMap<String, String>) -> Result<Self, FaultError> {
        map.iter().try_fold(Self::default(), |faults, (name, value)| faults.set(name, value))
    }

    /// Names and values of the faults that are on.
    pub(crate) fn to_map(&self) -> BTreeMap<&'static str, String> {
        let latency = self.latency.as_ref().map(|range| match (range.start(), range.end()) {
            (start, end) if start == end => format!("{start:?}"),
            (start, end) => format!("{start:?}..{end:?}"),
        });
        let errors = (self.errors > 0.0).then(|| format!("{}%", self.errors * 100.0));
        let span = |span: Option<Duration>| span.map(|span| format!("{span:?}"));
        let all = [
            ("latency", latency),
            ("errors", errors),
            ("drop-watches", span(self.drop_watches)),
            ("stale", span(self.stale)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// How long a request waits; `random` is from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn delay(&self, random: f64) -> Duration {
        let Some(range) = &self.latency else { return Duration::ZERO };
        let [start, end] = [range.start(), range.end()].map(|span| *span.min(&MAX_TIME));
        start + end.saturating_sub(start).mul_f64(random)
    }

    /// Whether and how a request fails; `random` is from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn injected_error(&self, random: f64) -> Option<InjectedError> {
        let kinds = [
            InjectedError::TooManyRequests,
            InjectedError::Internal,
            InjectedError::Unavailable,
            InjectedError::NoResponse,
        ];
        if random >= self.errors {
            return None;
        }
        // Each kind of error takes a quarter of the numbers below `errors`.
        let quarter = random / self.errors * 4.0;
        kinds
            .into_iter()
            .enumerate()
            .find(|(index, _)| quarter < *index as f64 + 1.0)
            .map(|(_, kind)| kind)
    }

    /// How long a watch lives: from half to one and a half of the given time.
    pub(crate) fn watch_lifetime(&self, random: f64) -> Option<Duration> {
        self.drop_watches.map(|span| span.min(MAX_TIME).mul_f64(0.5 + random))
    }
}

impl FromStr for Faults {
    type Err = FaultError;

    /// Several faults, separated by commas.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        parts.into_iter().try_fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.to_map().iter().map(|(name, value)| format!("{name}={value}")).collect();
        out.write_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(",") })
    }
}

fn duration(text: &str) -> Option<Duration> {
    let ConfigDuration(duration) = text.parse().ok()?;
    (duration <= MAX_TIME).then_some(duration)
}

fn range(text: &str) -> Option<RangeInclusive<Duration>> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from, to) = (duration(from.trim())?, duration(to.trim())?);
    (from <= to).then_some(from..=to)
}

fn percentage(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn faults_are_read_and_shown() {
        let faults: Faults =
            "latency=10ms..50ms, errors=5%, drop-watches=10s, stale=2s".parse().unwrap();
        let expected = Faults {
            latency: Some(MS * 10..=MS * 50),
            errors: 0.05,
            drop_watches: Some(Duration::from_secs(10)),
            stale: Some(Duration::from_secs(2)),
        };
        assert_eq!(faults, expected);
        assert_eq!(faults.to_string(), "drop-watches=10s,errors=5%,latency=10ms..50ms,stale=2s");
        assert_eq!(faults.to_string().parse(), Ok(expected));
        assert_eq!(Faults::default().to_string(), "none");
        assert_eq!(faults.with("stale=off").unwrap().stale, None);
    }

    #[test]
    fn errors_name_what_is_expected() {
        let rows = [
            (
                "errors",
                "`errors` is not NAME=VALUE (example: latency=10ms..50ms; names: latency, errors, \
                 drop-watches, stale)",
            ),
            ("colour=red", "unknown fault `colour` (names: latency, errors, drop-watches, stale)"),
            ("errors=5", "errors: `5` is not a percentage from 0% to 100%, or off"),
            ("errors=101%", "errors: `101%` is not a percentage from 0% to 100%, or off"),
            (
                "latency=50ms..10ms",
                "latency: `50ms..10ms` is not a duration or a range up to 24h (example: \
                 10ms..50ms), or off",
            ),
            ("stale=-1s", "stale: `-1s` is not a duration up to 24h (example: 2s), or off"),
            ("stale=1e19s", "stale: `1e19s` is not a duration up to 24h (example: 2s), or off"),
            (
                "drop-watches=25h",
                "drop-watches: `25h` is not a duration up to 24h (example: 2s), or off",
            ),
            (
                "latency=1s..1e19s",
                "latency: `1s..1e19s` is not a duration or a range up to 24h (example: \
                 10ms..50ms), or off",
            ),
            (
                "drop-watches=10",
                "drop-watches: `10` is not a duration up to 24h (example: 2s), or off",
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(Faults::default().with(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_random_number_decides() {
        let faults: Faults = "latency=10ms..50ms,errors=40%,drop-watches=10s".parse().unwrap();
        assert_eq!(faults.delay(0.0), MS * 10);
        assert_eq!(faults.delay(0.5), MS * 30);
        assert_eq!(faults.watch_lifetime(0.5), Some(Duration::from_secs(10)));
        let errors = [0.05, 0.15, 0.25, 0.35, 0.4, 0.9].map(|random| faults.injected_error(random));
        let [too_many, internal, unavailable, no_response] = [
            InjectedError::TooManyRequests,
            InjectedError::Internal,
            InjectedError::Unavailable,
            InjectedError::NoResponse,
        ]
        .map(Some);
        assert_eq!(errors, [too_many, internal, unavailable, no_response, None, None]);
        assert_eq!(Faults::default().injected_error(0.0), None);
    }
}
