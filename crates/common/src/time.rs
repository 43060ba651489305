//! Timestamps in Kubernetes objects: RFC 3339 in UTC, whole seconds.

/// Seconds since 1970 of a Kubernetes timestamp; `None` for text that is no time.
pub fn seconds(text: Option<&str>) -> Option<i64> {
    text?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// A Kubernetes timestamp.
pub fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc() {
        assert_eq!(seconds(Some("2026-01-02T03:04:05Z")), Some(1_767_323_045));
        assert_eq!(timestamp(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(seconds(Some("yesterday")), None);
    }
}
