//! Finds where the objects of a JSON text begin and end, without parsing it.
//!
//! ```text
//!  {"kind":"PodList","items":[ {…} , {…} ],"metadata":{}}
//!                             │└─┘   └─┘│               │
//!                    ListBegins  items  ListEnds   DocumentEnds
//! ```
//!
//! Each byte is looked at once. Only strings and the depth of brackets are tracked; the parser
//! decides later whether the text is valid JSON.

/// A position that the scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The byte after the bracket that opens the list.
    ListBegins,
    /// The first byte of an item.
    ItemBegins,
    /// The byte after an item.
    ItemEnds,
    /// The bracket that closes the list.
    ListEnds,
    /// The byte after the document.
    DocumentEnds,
}

/// A scan of one document. It can stop at any byte and continue when more bytes are there.
#[derive(Debug, Default)]
pub(super) struct Scan {
    depth: usize,
    string: bool,
    escaped: bool,
    key: Key,
    list: List,
    /// The depth of the list's items.
    level: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    NotYet,
    /// Before the first item, if there is any.
    First,
    Item,
    /// At the comma or the bracket after an item.
    Delimiter,
    /// After a comma.
    Next,
    Over,
}

/// Whether the last key of the outermost object is `items`.
#[derive(Clone, Copy, Debug, Default)]
enum Key {
    #[default]
    Other,
    /// The first so many letters of the key match.
    Letters(usize),
    Complete,
    /// The key and its colon were read.
    Value,
}

const ITEMS: &[u8] = b"items";

impl Scan {
    /// Continues at `at`. Returns the new position, the number of lines that ended, and what was
    /// found.
    pub(super) fn next(&mut self, bytes: &[u8], at: usize) -> (usize, usize, Option<Event>) {
        let (mut at, mut lines) = (at, 0);
        while let Some(&byte) = bytes.get(at) {
            if self.depth > self.level.max(1) {
                at = self.inside(bytes, at, &mut lines);
                continue;
            }
            lines += usize::from(byte == b'\n');
            if self.string {
                self.in_string(byte);
                at += 1;
                continue;
            }
            let event = self.outside(byte);
            let before = [Event::ItemBegins, Event::ItemEnds, Event::ListEnds];
            at += usize::from(!event.is_some_and(|event| before.contains(&event)));
            if event.is_some() {
                return (at, lines, event);
            }
        }
        (at, lines, None)
    }

    /// Skips to the end of a nested value, in which there is nothing to find: nearly all bytes.
    fn inside(&mut self, bytes: &[u8], mut at: usize, lines: &mut usize) -> usize {
        let (floor, mut depth, mut string) = (self.level.max(1), self.depth, self.string);
        at += usize::from(std::mem::take(&mut self.escaped));
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match (byte, string) {
                (b'\n', _) => *lines += 1,
                (b'"', _) => string = !string,
                (b'\\', true) if at == bytes.len() => self.escaped = true,
                (b'\\', true) => at += 1,
                (_, true) => at += plain(&bytes[at..]),
                (b'{' | b'[', _) => depth += 1,
                (b'}' | b']', _) => {
                    depth -= 1;
                    if depth == floor {
                        break;
                    }
                }
                _ => {}
            }
        }
        (self.depth, self.string) = (depth, string);
        at
    }

    fn in_string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.string = false,
            _ => {}
        }
        self.key = match self.key {
            Key::Letters(count) if byte == b'"' && count == ITEMS.len() => Key::Complete,
            Key::Letters(count) if ITEMS.get(count) == Some(&byte) => Key::Letters(count + 1),
            _ => Key::Other,
        };
    }

    fn outside(&mut self, byte: u8) -> Option<Event> {
        if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            return None;
        }
        if self.depth == self.level
            && let Some(event) = self.in_list(byte)
        {
            return Some(event);
        }
        match byte {
            b'"' => {
                self.string = true;
                let first = self.depth == 1 && self.list == List::NotYet;
                self.key = if first { Key::Letters(0) } else { Key::Other };
                None
            }
            b':' if matches!(self.key, Key::Complete) => {
                self.key = Key::Value;
                None
            }
            b'[' | b'{' => self.opens(byte),
            b']' | b'}' => self.closes(),
            _ => {
                self.key = Key::Other;
                None
            }
        }
    }

    /// Between the brackets of the list, outside of what an item contains.
    fn in_list(&mut self, byte: u8) -> Option<Event> {
        let (list, event) = match (self.list, byte) {
            (List::First | List::Delimiter, b']') => (List::Over, Some(Event::ListEnds)),
            (List::First | List::Next, _) => (List::Item, Some(Event::ItemBegins)),
            (List::Item, b',' | b']') => (List::Delimiter, Some(Event::ItemEnds)),
            (List::Delimiter, _) => (List::Next, None),
            (list, _) => (list, None),
        };
        self.list = list;
        event
    }

    fn opens(&mut self, byte: u8) -> Option<Event> {
        let outermost = self.depth == 0 || matches!((self.depth, self.key), (1, Key::Value));
        self.depth += 1;
        self.key = Key::Other;
        let begins = byte == b'[' && outermost && self.list == List::NotYet;
        begins.then(|| {
            (self.list, self.level) = (List::First, self.depth);
            Event::ListBegins
        })
    }

    fn closes(&mut self) -> Option<Event> {
        self.depth -= 1;
        self.key = Key::Other;
        (self.depth == 0).then_some(Event::DocumentEnds)
    }
}

/// How many bytes of a string can be skipped.
fn plain(bytes: &[u8]) -> usize {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
    bytes.iter().position(special).unwrap_or(bytes.len())
}

/// The text without white space between its tokens. It must be valid JSON.
pub(super) fn compact(text: &str) -> Box<str> {
    let (mut string, mut escaped) = (false, false);
    let kept = |c: &char| {
        let blank = !string && matches!(c, ' ' | '\n' | '\r' | '\t');
        string ^= *c == '"' && !escaped;
        escaped = string && *c == '\\' && !escaped;
        !blank
    };
    text.chars().filter(kept).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<(usize, Event)> {
        let (mut scan, mut at, mut found) = (Scan::default(), 0, Vec::new());
        while let (next, _, Some(event)) = scan.next(text.as_bytes(), at) {
            found.push((next, event));
            at = next;
            if event == Event::DocumentEnds {
                break;
            }
        }
        found
    }

    #[test]
    fn lists_and_their_items_are_found_and_nothing_else() {
        use Event::{DocumentEnds, ItemBegins, ItemEnds, ListBegins, ListEnds};
        let rows: [(&str, &[(usize, Event)]); 7] = [
            (r#"{"a":[1]}"#, &[(9, DocumentEnds)]),
            (r#"{"a":{"items":[1]}}"#, &[(19, DocumentEnds)]),
            (r#"{"a":"items","b":[1]}"#, &[(21, DocumentEnds)]),
            (r#"{"items":null,"b":[]}"#, &[(21, DocumentEnds)]),
            (r#"{"items":[]}"#, &[(10, ListBegins), (10, ListEnds), (12, DocumentEnds)]),
            (
                r#"{"items":[{"a":"]"},2 ]}"#,
                &[
                    (10, ListBegins),
                    (10, ItemBegins),
                    (19, ItemEnds),
                    (20, ItemBegins),
                    (22, ItemEnds),
                    (22, ListEnds),
                    (24, DocumentEnds),
                ],
            ),
            (
                r#"["\"]"]"#,
                &[
                    (1, ListBegins),
                    (1, ItemBegins),
                    (6, ItemEnds),
                    (6, ListEnds),
                    (7, DocumentEnds),
                ],
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(events(text), expected, "{text}");
        }
    }

    #[test]
    fn blanks_go_and_strings_stay() {
        let text = "{ \"a b\" : [ 1 ,\n\t\"\\\" \\\\\" , \"x y\" ] }";
        assert_eq!(&*compact(text), r#"{"a b":[1,"\" \\","x y"]}"#);
    }
}
