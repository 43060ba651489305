//! Numbers as people read them.

use std::fmt::Display;

/// `1 endpoint`, `2 endpoints`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    format!("{number} {noun}{}", plural(number == N::from(1)))
}

/// `1 input`, `1,024 inputs`.
pub fn grouped_count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), plural(number == 1))
}

fn plural(is_one: bool) -> &'static str {
    if is_one { "" } else { "s" }
}

/// `12,345`.
pub fn grouped(number: u64) -> String {
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

/// `97 %`. Halves are rounded away from 0.
pub fn percent(part: f64) -> String {
    // Adding 0 turns −0 into 0.
    format!("{:.0} %", (part * 100.0).round() + 0.0)
}

/// `97.3 %`, or a dash for nothing.
pub fn fine_percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), |part| format!("{:.1} %", part * 100.0 + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 1, 1024].map(|n: u64| counted(n, "node")),
            ["0 nodes", "1 node", "1024 nodes"]
        );
        assert_eq!([1, 1024].map(|n| grouped_count(n, "input")), ["1 input", "1,024 inputs"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let percents = [-0.0, -0.001, 0.004, 0.125, 0.135, 0.999, -0.5].map(percent);
        assert_eq!(percents, ["0 %", "0 %", "0 %", "13 %", "14 %", "100 %", "-50 %"]);
        assert_eq!([None, Some(-0.0), Some(0.9731)].map(fine_percent), ["-", "0.0 %", "97.3 %"]);
    }
}
