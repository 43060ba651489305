//! Figures as the screen shows them.

use zonewise_topology::words::percent;

/// `97 %`, or a bound where the rounded figure would say nothing or everything and that is not so: `<1 %`.
pub(crate) fn percent_or_bound(part: f64) -> String {
    match (part * 100.0).round() {
        0.0 if part > 0.0 => "<1 %".into(),
        100.0 if part < 1.0 => ">99 %".into(),
        _ => percent(part),
    }
}

/// The same, or a dash for nothing.
pub(crate) fn maybe_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), percent_or_bound)
}

/// `412 ms`, `1.4 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 0.01 {
        format!("{:.1} ms", seconds * 1000.0)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.1} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let percents = [0.0, 0.001, 0.5, 0.999, 1.0, -0.0].map(percent_or_bound);
        assert_eq!(percents, ["0 %", "<1 %", "50 %", ">99 %", "100 %", "0 %"]);
        assert_eq!([None, Some(0.5)].map(maybe_percent), ["-", "50 %"]);
        assert_eq!([0.0042, 0.412, 1.44].map(seconds), ["4.2 ms", "412 ms", "1.4 s"]);
    }
}
