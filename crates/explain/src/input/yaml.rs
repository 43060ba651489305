//! Finds the items of a YAML list without parsing it, and parses YAML.
//!
//! ```text
//!  apiVersion: v1        header
//!  items:
//!  - kind: Pod           item 1     whatever belongs to an item is indented deeper than its dash
//!    metadata: …
//!  - kind: Pod           item 2
//!  kind: List            tail
//! ```
//!
//! Each line is looked at once, and only its beginning.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Error;

use super::block;

/// What a line means for the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It belongs to what comes before it.
    Inside,
    /// It begins an item of the list.
    Item,
    /// It is the first one after the list.
    ListEnds,
}

/// A scan of one document.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The indentation of the outermost keys.
    root: Option<usize>,
    list: List,
}

#[derive(Debug, Default)]
enum List {
    #[default]
    NotYet,
    /// After the line `items:`.
    Key,
    /// Its items begin with a dash at this indentation.
    Items(usize),
    Over,
}

impl Scan {
    /// Looks at the next line, which must not be a document marker.
    pub(super) fn next(&mut self, line: &[u8]) -> Line {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        let text = &line[indent..];
        if is_blank(text) || text.first() == Some(&b'\t') {
            return Line::Inside;
        }
        let root = *self.root.get_or_insert(indent);
        let dash = text[0] == b'-' && text.get(1).is_none_or(u8::is_ascii_whitespace);
        let (list, kind) = match self.list {
            List::NotYet if indent == root && is_items(text) => (List::Key, Line::Inside),
            List::Key if dash && indent >= root => (List::Items(indent), Line::Item),
            // `items` is not a list, or it is empty.
            List::Key => (List::Over, Line::Inside),
            List::Items(own) if indent > own => return Line::Inside,
            List::Items(own) if indent == own && dash => (List::Items(own), Line::Item),
            List::Items(_) => (List::Over, Line::ListEnds),
            List::NotYet | List::Over => return Line::Inside,
        };
        self.list = list;
        kind
    }
}

/// Whether a text is empty apart from white space and a comment.
fn is_blank(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start(), [] | [b'#', ..])
}

/// Whether it is the key `items` with its value on a later line.
fn is_items(text: &[u8]) -> bool {
    let keys: [&[u8]; 3] = [b"items", b"\"items\"", b"'items'"];
    let rest = keys.iter().find_map(|key| text.strip_prefix(*key));
    let rest = rest.and_then(|rest| rest.trim_ascii_start().strip_prefix(b":"));
    rest.is_some_and(|rest| {
        is_blank(rest) && rest.first().is_none_or(|byte| byte.is_ascii_whitespace())
    })
}

/// Whether a line separates documents.
pub(super) fn is_marker(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"---").or_else(|| line.strip_prefix(b"..."));
    rest.is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

/// Why a text could not be parsed.
#[derive(Debug)]
pub(super) struct Problem {
    /// The line of the text, from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) message: String,
    /// The text is valid YAML; only this object cannot be used.
    pub(super) harmless: bool,
    /// It refers to an anchor that is elsewhere.
    pub(super) anchor: bool,
}

/// Parses a document, with the fast reader if it is simple enough.
pub(super) fn value(text: &str) -> Result<Value, Problem> {
    block::read(text).map_or_else(|| parse(text), Ok)
}

/// Parses the only item of a list.
pub(super) fn first(text: &str) -> Result<Value, Problem> {
    match block::read(text) {
        Some(Value::Array(mut items)) if items.len() == 1 => Ok(items.swap_remove(0)),
        _ => parse(text).map(|(value,): (Value,)| value),
    }
}

/// The parser calls itself for each level of nesting. At the deepest that is allowed, this is enough for a program
/// that is compiled without optimisation; the stack of a thread (2 MiB) is not.
const ENOUGH_STACK: usize = 7 << 20;

/// Parses one document with the full parser, by the core schema of YAML 1.2.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    // Aliases may expand a text, but only in proportion to its length.
    let most = 250_000 + text.len();
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: most,
            max_events: 3 * most,
            max_depth: 128,
            enforce_alias_anchor_ratio: false,
        },
    };
    let parse = || serde_saphyr::from_str_with_options(text, options);
    stacker::maybe_grow(ENOUGH_STACK, ENOUGH_STACK, parse).map_err(|error| problem(&error))
}

fn problem(error: &Error) -> Problem {
    let line = error.location().and_then(|at| usize::try_from(at.line()).ok()).unwrap_or(1).max(1);
    let (message, harmless, anchor) = match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            (format!("`{key}` is set twice: remove one of them"), true, false)
        }
        Error::UnknownAnchor { .. } => {
            ("the alias refers to an anchor that does not exist".to_owned(), false, true)
        }
        Error::Budget { .. } => {
            ("nested too deeply, or its aliases make it too large".to_owned(), false, false)
        }
        other => {
            let text = other.to_string();
            let text = text.split(" at line ").next().unwrap_or_default();
            (format!("this is not YAML: {text}"), false, false)
        }
    };
    Problem { line, message, harmless, anchor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_follow_the_core_schema() {
        let rows = [
            ("true", "true"),
            ("yes", "\"yes\""),
            ("on", "\"on\""),
            ("~", "null"),
            ("", "null"),
            ("0x10", "16"),
            ("0o14", "12"),
            ("1.50", "1.5"),
            ("'1'", "\"1\""),
            ("!!str 1", "\"1\""),
            ("12:30:45", "\"12:30:45\""),
            ("2026-01-02T03:04:05Z", "\"2026-01-02T03:04:05Z\""),
            ("99999999999999999999999", "1e+23"),
        ];
        for (text, expected) in rows {
            let value: Value = parse(text).unwrap();
            assert_eq!(value.to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn items_are_found_by_their_dashes_alone() {
        use Line::{Inside as I, Item, ListEnds};
        let rows: [(&str, &[Line]); 7] = [
            ("items:\n- a: 1\n  b:\n  - c\n- d", &[I, Item, I, I, Item]),
            (
                "kind: List\nitems: # all\n\n  # one\n  - a\n  - b\nx: 1",
                &[I, I, I, I, Item, Item, ListEnds],
            ),
            ("items:\n- a\n# items:\nkind: List\n- b", &[I, Item, I, ListEnds, I]),
            ("items: []\n- a", &[I, I]),
            ("items:\nkind: x\n- a", &[I, I, I]),
            ("a:\n  items:\n  - b", &[I, I, I]),
            ("items:\n-a", &[I, I]),
        ];
        for (text, expected) in rows {
            let mut scan = Scan::default();
            let found: Vec<_> = text.lines().map(|line| scan.next(line.as_bytes())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
