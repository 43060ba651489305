//! A fast reader for the simple YAML that kubectl writes.
//!
//! It reads block maps and lists, scalars on one line and literal blocks. For anything else it
//! returns `None`, and the full parser reads the whole text, which also reports what is wrong. If
//! it returns a value, the full parser would return the same; a test checks that.

use serde_json::{Map, Value};

/// Deeper texts are left to the full parser.
const DEPTH: usize = 48;

/// The value of a text, if it is simple enough.
pub(super) fn read(text: &str) -> Option<Value> {
    if text.bytes().any(is_odd) {
        return None;
    }
    let mut reader = Reader { lines: text.lines().collect(), at: 0, inline: None, depth: 0 };
    let first = reader.peek()?;
    let value = reader.node(first.indent)?;
    reader.peek().is_none().then_some(value)
}

/// Control characters, and the first bytes of characters that can end a line in YAML.
fn is_odd(byte: u8) -> bool {
    byte < b' ' && byte != b'\n' || matches!(byte, 0x7f | 0xc2 | 0xe2 | 0xef)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
    /// The rest of the line at `at`, after a dash.
    inline: Option<Line<'a>>,
    depth: usize,
}

#[derive(Clone, Copy)]
struct Line<'a> {
    indent: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn new(line: &'a str) -> Self {
        let text = line.trim_start_matches(' ');
        Self { indent: line.len() - text.len(), text: text.trim_end_matches(' ') }
    }
}

impl<'a> Reader<'a> {
    /// The next line that is not blank; `None` at the end.
    fn peek(&mut self) -> Option<Line<'a>> {
        if self.inline.is_some() {
            return self.inline;
        }
        loop {
            let line = Line::new(self.lines.get(self.at)?);
            if !line.text.is_empty() {
                return Some(line);
            }
            self.at += 1;
        }
    }

    fn consume(&mut self) {
        self.inline = None;
        self.at += 1;
    }

    fn node(&mut self, indent: usize) -> Option<Value> {
        if self.depth == DEPTH {
            return None;
        }
        self.depth += 1;
        let value =
            if self.peek()?.text.starts_with("- ") { self.list(indent) } else { self.map(indent) };
        self.depth -= 1;
        value
    }

    fn map(&mut self, indent: usize) -> Option<Value> {
        let mut map = Map::new();
        while let Some(line) = self.peek().filter(|line| line.indent >= indent) {
            if line.indent > indent {
                return None;
            }
            let (key, rest) = key(line.text)?;
            self.consume();
            let value = self.value(rest, indent, true)?;
            if map.insert(key.to_owned(), value).is_some() {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, indent: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.indent >= indent) {
            let Some(rest) = line.text.strip_prefix("- ") else {
                // A key after a list with the same indentation.
                return (line.indent == indent).then_some(Value::Array(items));
            };
            if line.indent > indent || rest.starts_with(' ') {
                return None;
            }
            items.push(if key(rest).is_some() {
                self.inline = Some(Line { indent: indent + 2, text: rest });
                self.node(indent + 2)?
            } else {
                self.consume();
                self.value(rest, indent, false)?
            });
        }
        Some(Value::Array(items))
    }

    /// The value after a key or a dash.
    fn value(&mut self, text: &'a str, indent: usize, keyed: bool) -> Option<Value> {
        match text {
            "" => {
                let next = self.peek();
                let below = next.filter(|next| {
                    let listed = keyed && next.indent == indent && next.text.starts_with("- ");
                    next.indent > indent || listed
                });
                below.map_or(Some(Value::Null), |next| self.node(next.indent))
            }
            "{}" => Some(Value::Object(Map::new())),
            "[]" => Some(Value::Array(Vec::new())),
            "|" | "|-" => self.literal(indent, text == "|"),
            _ => scalar(text),
        }
    }

    /// A literal block: all lines up to the next one that is not indented.
    fn literal(&mut self, indent: usize, newline: bool) -> Option<Value> {
        let rest = self.lines.get(self.at..)?;
        let margin = Line::new(rest.first()?).indent;
        // Empty lines at the beginning and end have special rules: left to the full parser.
        if margin <= indent || Line::new(rest[0]).text.is_empty() {
            return None;
        }
        let inside = |line: &&&str| line.trim().is_empty() || Line::new(line).indent >= margin;
        let count = rest.iter().take_while(inside).count();
        let lines: Vec<&str> =
            rest[..count].iter().map(|line| line.get(margin..).unwrap_or_default()).collect();
        let text = lines.join("\n");
        let text = text.trim_end_matches('\n');
        if lines.last()?.trim().is_empty() || text.is_empty() {
            return None;
        }
        self.at += count;
        Some(Value::String(if newline { format!("{text}\n") } else { text.to_owned() }))
    }
}

/// A key and the text after its colon.
fn key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').filter(|(key, _)| !key.contains('\\'))?,
        None => text.split_at(text.find(|c: char| !is_key(c))?),
    };
    let rest = rest.strip_prefix(':')?;
    let value = rest.trim_start_matches(' ');
    let separated = rest.is_empty() || value.len() < rest.len();
    let plain = !key.is_empty() && !key.starts_with(['-', '.']) && !is_word(key);
    (separated && (plain || text.starts_with('"'))).then_some((key, value))
}

fn is_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

/// Whether a word is not a string in YAML, in any spelling.
fn is_word(text: &str) -> bool {
    let words = ["true", "false", "null", "nan", "inf", "infinity"];
    words.iter().any(|word| text.trim_start_matches(['-', '.']).eq_ignore_ascii_case(word))
}

fn scalar(text: &str) -> Option<Value> {
    let string = |text: &str| Some(Value::String(text.to_owned()));
    match text.as_bytes() {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') && !inner.contains(&b'"') => {
            string(&text[1..text.len() - 1])
        }
        // Escape sequences of JSON mean the same in YAML.
        [b'"', .., b'"'] => serde_json::from_str(text).ok().map(Value::String),
        [b'\'', _, ..] => single_quoted(text).map(Value::String),
        _ if text.contains(": ") || text.contains(" #") || text.ends_with(':') => None,
        b"true" => Some(Value::Bool(true)),
        b"false" => Some(Value::Bool(false)),
        b"null" => Some(Value::Null),
        _ if is_word(text) => None,
        [b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'_' | b'$' | b'(', ..] => string(text),
        [b'-', b'-' | b'a'..=b'z' | b'A'..=b'Z', ..] if text != "---" => string(text),
        [b'0'..=b'9', ..] => number_or_text(text),
        _ => None,
    }
}

fn single_quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let lone = inner.replace("''", "").contains('\'');
    (!lone).then(|| inner.replace("''", "'"))
}

/// Text that begins with a digit: a whole number, or a string that no YAML parser takes for a number.
fn number_or_text(text: &str) -> Option<Value> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && text.len() <= 18 && (text == "0" || !text.starts_with('0')) {
        return text.parse::<u64>().ok().map(Value::from);
    }
    let count = |c: char| text.matches(c).count();
    let numeric = |c: char| match text.as_bytes()[0] {
        b'0' => c.is_ascii_hexdigit() || "xXoObB._+-:".contains(c),
        _ => c.is_ascii_digit() || "eE._+-:".contains(c),
    };
    let surely = !digits && (count('.') > 1 || count('-') > 1 || !text.chars().all(numeric));
    surely.then(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::yaml;
    use super::*;

    #[test]
    fn what_kubectl_writes_is_read_here() {
        let rows = [
            "a: b\n",
            "a: 1\nb: \"1\"\nc: true\nd: null\ne: {}\nf: []\ng:\nh: 10.0.0.1\n",
            "a:\n- b: c\n  d:\n  - e\n  - --f=g\n- h: 100m\ni: 2026-01-02T03:04:05Z\n",
            "a: |\n  x: y\n\n   # z\n  - w\nb: |-\n  one\nc: 'it''s'\n",
            "u: 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9\nv: 12345678-1234-1234-1234-123456789012\n",
            "a: \"x\\n\\\"y\\\"\"\n",
            "- a:\n    b: 5d4f8c7b9\n  c: http://x:80/\n",
        ];
        for text in rows {
            assert_eq!(read(text).as_ref(), yaml::parse::<Value>(text).ok().as_ref(), "{text}");
            assert!(read(text).is_some(), "{text}");
        }
    }

    const PARTS: [&str; 46] = [
        "a", "b", ": ", ":", "\n", "\n", "\n  ", "\n    ", "\n- ", "\n  - ", "- ", " ", "  ", "1",
        "0", "0x", "1e5", ".", "-", "--x", "\"", "\"x\"", "'", "'y'", "''", "\\", "\\n", "{}",
        "[]", "|", "|-", "|\n  ", "#", " #", "true", "null", "~", "yes", "&x ", "*x", "!t ", "?",
        "/c", "a: 1\n", "b:\n", "ü",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 16))]
        #[test]
        fn where_it_gives_a_value_the_parser_gives_the_same(
            parts in proptest::collection::vec(0usize..PARTS.len(), 0..14),
        ) {
            let text: String = parts.into_iter().map(|part| PARTS[part]).collect();
            if let Some(value) = read(&text) {
                let slow = yaml::parse::<Value>(&text);
                prop_assert_eq!(Some(&value), slow.as_ref().ok(), "{:?} {:?}", text, slow);
            }
        }

        #[test]
        fn scalars_are_the_parsers(text in "[-+0-9a-fA-FxotruelsnyTZ.:_ /]{1,12}") {
            let text = format!("k: {text}\n");
            if let Some(value) = read(&text) {
                let slow = yaml::parse::<Value>(&text);
                prop_assert_eq!(Some(&value), slow.as_ref().ok(), "{:?} {:?}", text, slow);
            }
        }
    }
}
