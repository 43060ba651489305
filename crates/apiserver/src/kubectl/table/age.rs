//! Ages as kubectl shows them: `5s`, `2m3s`, `3h`, `2d`. The steps are those of `HumanDuration` in
//! apimachinery (pkg/util/duration).

use jiff::Timestamp;
use serde_json::Value;

/// How long ago a time was.
pub(super) fn since(time: Option<&Value>, now: Timestamp) -> String {
    let then = time.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    match then {
        Some(then) => duration(now.duration_since(then).as_secs()),
        None => "<unknown>".into(),
    }
}

fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two_units(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two_units(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

fn two_units(large: i64, of: &str, small: i64, of_small: &str) -> String {
    if small == 0 { format!("{large}{of}") } else { format!("{large}{of}{small}{of_small}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_in_kubernetes() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 86400;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * MINUTE + 59, "179m"),
            (180 * MINUTE, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + 5 * HOUR, "7d5h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (3000 * DAY, "8y"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }
}
