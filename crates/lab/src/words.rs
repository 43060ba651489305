//! Numbers as people read them.

/// `97 %`. What rounds to nothing or to everything but is neither says so.
pub(crate) fn percent(part: f64) -> String {
    let rounded = (part * 100.0).round();
    match rounded {
        0.0 if part > 0.0 => "<1 %".into(),
        100.0 if part < 1.0 => ">99 %".into(),
        // Adding nothing makes a zero of minus zero.
        _ => format!("{:.0} %", rounded + 0.0),
    }
}

/// `97 %`, or a dash for nothing.
pub(crate) fn maybe_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), percent)
}

/// `97.3 %`, or a dash for nothing.
pub(crate) fn fine_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), |part| format!("{:.1} %", part * 100.0 + 0.0))
}

/// `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
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
        let percents = [0.0, 0.001, 0.5, 0.999, 1.0, -0.0].map(percent);
        assert_eq!(percents, ["0 %", "<1 %", "50 %", ">99 %", "100 %", "0 %"]);
        assert_eq!([None, Some(0.9731)].map(fine_percent), ["-", "97.3 %"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0042, 0.412, 1.44].map(seconds), ["4.2 ms", "412 ms", "1.4 s"]);
    }
}
