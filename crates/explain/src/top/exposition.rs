//! Reads counters of pages of metrics in Prometheus' text format, as far as metrics of ours need it.

use std::collections::BTreeMap;

/// A line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// The largest number that a counter can have.
const MOST: f64 = u64::MAX as f64;

/// The lines of one counter. Lines that cannot be read, or that have a number no counter has, are left out: one proxy that
/// says `NaN` or `+Inf` would leave no figure of the others.
pub fn samples<'a>(page: &'a str, metric: &'a str) -> impl Iterator<Item = Sample> + 'a {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest.strip_prefix(' ')?),
        };
        let value: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        (0.0..=MOST).contains(&value).then_some(Sample { labels, value })
    })
}

/// The labels, and what comes after the closing brace.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.insert(name.trim().to_owned(), value);
        rest = after;
    }
}

/// The text until the closing quote, and what comes after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_metric_are_read() {
        let page = "# HELP m What it is\n# TYPE m counter\nm{a=\"1\",b=\"x\\\"y\\\\z\\n\"} 2\nm 3 1763430000\nmore{a=\"1\"} 4\n\
                    m{a=\"1\" 5\nm{a=\"} 6\nm{} 7.5e1\nm{a=\"b\"} word\n\
                    m NaN\nm +Inf\nm -1\nm 1e20\n";
        let found: Vec<_> = samples(page, "m").collect();
        let labelled = BTreeMap::from([
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), "x\"y\\z\n".to_owned()),
        ]);
        let expected = [(labelled, 2.0), (BTreeMap::new(), 3.0), (BTreeMap::new(), 75.0)];
        assert_eq!(found, expected.map(|(labels, value)| Sample { labels, value }));
    }
}
