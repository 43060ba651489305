//! The Prometheus text format: lines, escapes, numbers.

use std::fmt::{self, Write};

use super::Kind;
use super::value::Snapshot;

/// A page of metrics while it is written.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn family<'a>(
        &'a mut self,
        name: &'a str,
        help: &'a str,
        kind: Kind,
        labels: &'a [String],
    ) -> FamilyText<'a> {
        FamilyText { page: &mut self.text, name, help, kind, labels, head_written: false }
    }
}

/// The lines of one metric. The head (`# HELP`, `# TYPE`) is written with the first sample, so that a
/// family without samples is left out.
pub(super) struct FamilyText<'a> {
    page: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: Kind,
    labels: &'a [String],
    head_written: bool,
}

impl FamilyText<'_> {
    pub(super) fn sample(&mut self, values: &[String], value: f64) {
        self.line("", values, None, value);
    }

    pub(super) fn histogram(&mut self, values: &[String], snapshot: &Snapshot<'_>) {
        let bounds = snapshot.bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, &count) in bounds.zip(&snapshot.cumulative) {
            self.line("_bucket", values, Some(bound), count as f64);
        }
        self.line("_sum", values, None, snapshot.sum);
        let count = snapshot.cumulative.last().copied().unwrap_or(0);
        self.line("_count", values, None, count as f64);
    }

    fn line(&mut self, suffix: &str, values: &[String], bound: Option<f64>, value: f64) {
        self.head();
        let name = self.name;
        let labels = Labels { names: self.labels, values, bound };
        push(self.page, format_args!("{name}{suffix}{labels} {}\n", Number(value)));
    }

    fn head(&mut self) {
        if !self.head_written {
            self.head_written = true;
            let (name, help, kind) =
                (self.name, Escaped { text: self.help, quotes: false }, self.kind);
            push(self.page, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        }
    }
}

fn push(page: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = page.write_fmt(line);
}

struct Labels<'a> {
    names: &'a [String],
    values: &'a [String],
    bound: Option<f64>,
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        for (name, value) in self.names.iter().zip(self.values) {
            write!(out, "{before}{name}=\"{}\"", Escaped { text: value, quotes: true })?;
            before = ',';
        }
        if let Some(bound) = self.bound {
            write!(out, "{before}le=\"{}\"", Number(bound))?;
            before = ',';
        }
        if before == ',' { out.write_char('}') } else { Ok(()) }
    }
}

/// Text with escapes. Quotes are escaped only in label values, which stand between quotes.
struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.chars().try_for_each(|character| match character {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '"' if self.quotes => out.write_str("\\\""),
            _ => out.write_char(character),
        })
    }
}

/// A number as Go prints it (`strconv.FormatFloat` with format 'g'): the fewest digits that read back the
/// same, with an exponent of at least two digits below 0.0001 and from a million up.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return out.write_str("NaN");
        }
        if value.is_infinite() {
            return out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        match exponent.parse().unwrap_or(0) {
            -4..6 => write!(out, "{value}"),
            exponent => write!(out, "{digits}e{exponent:+03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_prints_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000_001_234, "1.234e-06"),
            (123_456.0, "123456"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1.7e9, "1.7e+09"),
            (-1e21, "-1e+21"),
            (1e100, "1e+100"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(Number(value).to_string(), text);
        }
    }

    #[test]
    fn a_quote_is_escaped_between_quotes_only() {
        let text = "a\\b\n\"c\"";
        assert_eq!(Escaped { text, quotes: true }.to_string(), "a\\\\b\\n\\\"c\\\"");
        assert_eq!(Escaped { text, quotes: false }.to_string(), "a\\\\b\\n\"c\"");
    }
}
