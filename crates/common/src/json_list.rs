//! Lists of Kubernetes objects in JSON, cut into their items while they are read, so that no list is
//! ever in memory as a whole.
//!
//! ```text
//!  {"kind":"PodList","items":[ {…} , {…} ],"metadata":{}}
//!                             │└─┘   └─┘│               │
//!                    ListBegins  items  ListEnds   DocumentEnds
//! ```
//!
//! [`Scan`] finds where items begin and end, [`Cutter`] hands them over one by one. Every byte is
//! looked at once, and strings and depth are all that is understood: whether the text is JSON is for
//! the parser of the items and of the rest to say.

/// What a scan comes across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
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

/// A scan of one document, which can stop and go on at any byte.
#[derive(Debug, Default)]
pub struct Scan {
    depth: usize,
    string: bool,
    escaped: bool,
    key: Key,
    list: List,
    /// The depth at which the list's items stand.
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
    /// So many of its letters are right.
    Letters(usize),
    Whole,
    /// The colon was there.
    Value,
}

const ITEMS: &[u8] = b"items";

impl Scan {
    /// Goes on from `at`. Returns how far it came, how many lines ended on the way, and what it met.
    pub fn next(&mut self, bytes: &[u8], at: usize) -> (usize, usize, Option<Event>) {
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

    /// Goes on to the end of what no event can come from: nearly all bytes.
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
            Key::Letters(count) if byte == b'"' && count == ITEMS.len() => Key::Whole,
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
            b':' if matches!(self.key, Key::Whole) => {
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
        // A bracket too many does not make the scan fail: the parser will say so.
        self.depth = self.depth.saturating_sub(1);
        self.key = Key::Other;
        (self.depth == 0).then_some(Event::DocumentEnds)
    }
}

/// How many bytes of a string need no look.
fn plain(bytes: &[u8]) -> usize {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
    bytes.iter().position(special).unwrap_or(bytes.len())
}

/// Cuts one list that arrives in chunks, and holds no more than one item of it.
///
/// ```text
///  chunks   {"metadata":{…},"items":[{…},{…},{…
///                                     │   │   └─ kept until the rest of it is there
///                                     ▼   ▼
///  items                             take take            rest   {"metadata":{…},"items":[]}
/// ```
#[derive(Debug, Default)]
pub struct Cutter {
    scan: Scan,
    part: Part,
    rest: Vec<u8>,
    item: Vec<u8>,
}

/// What a byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The list around the items.
    #[default]
    Rest,
    /// Commas and blanks between items.
    Between,
    /// An item.
    Item,
    /// After the document, where nothing is expected.
    After,
}

impl Cutter {
    /// The next bytes; every item that is whole by now is handed to `take`.
    pub fn feed(&mut self, chunk: &[u8], mut take: impl FnMut(&[u8])) {
        let (mut begin, mut at) = (0, 0);
        while self.part != Part::After
            && let (next, _, Some(event)) = self.scan.next(chunk, at)
        {
            at = next;
            if event == Event::ItemEnds {
                self.hand_over(&chunk[begin..at], &mut take);
            } else {
                self.keep(&chunk[begin..at]);
            }
            begin = at;
            self.part = match event {
                Event::ListBegins | Event::ItemEnds => Part::Between,
                Event::ItemBegins => Part::Item,
                Event::ListEnds => Part::Rest,
                Event::DocumentEnds => Part::After,
            };
        }
        self.keep(&chunk[begin..]);
    }

    /// The list without its items, as far as it has arrived.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// An item that lies in one chunk is not copied.
    fn hand_over(&mut self, end: &[u8], mut take: impl FnMut(&[u8])) {
        if self.item.is_empty() {
            return take(end.trim_ascii_end());
        }
        self.item.extend_from_slice(end);
        take(self.item.trim_ascii_end());
        self.item.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        match self.part {
            Part::Rest | Part::After => self.rest.extend_from_slice(bytes),
            Part::Between => {}
            Part::Item => self.item.extend_from_slice(bytes),
        }
    }
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

    /// Found by fuzzing: brackets after the end of a document made items depend on how it was divided into packets.
    #[test]
    fn nothing_is_looked_for_after_the_document() {
        let text = r#"{"items":[{"a":1}}]} {"b":[2,3],"#;
        let whole = cut(text, text.len());
        for size in 1..text.len() {
            assert_eq!(cut(text, size), whole, "in packets of {size} bytes");
        }
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

    fn cut(text: &str, size: usize) -> (Vec<String>, String) {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (mut cutter, mut items) = (Cutter::default(), Vec::new());
        for chunk in text.as_bytes().chunks(size) {
            cutter.feed(chunk, |item| items.push(text_of(item)));
        }
        (items, text_of(cutter.rest()))
    }

    #[test]
    fn a_list_is_the_same_however_it_arrives() {
        let cases: [(&str, &[&str], &str); 6] = [
            (
                r#"{"kind":"L","metadata":{"a":[1]},"items":[{"a":{"b":[]}} , {"c":"d"}],"x":[[2]]}"#,
                &[r#"{"a":{"b":[]}}"#, r#"{"c":"d"}"#],
                r#"{"kind":"L","metadata":{"a":[1]},"items":[],"x":[[2]]}"#,
            ),
            (
                r#"{"items" : [{"a":"}]\"\\","ä":"[{"}]}"#,
                &[r#"{"a":"}]\"\\","ä":"[{"}"#],
                r#"{"items" : []}"#,
            ),
            (r#"{"items":[]}"#, &[], r#"{"items":[]}"#),
            (r#"{"items":null}"#, &[], r#"{"items":null}"#),
            (r#"{"metadata":{"items":[{}]}}"#, &[], r#"{"metadata":{"items":[{}]}}"#),
            // Half a list leaves a rest that is none.
            (r#"{"items":[{"a":1},{"b""#, &[r#"{"a":1}"#], r#"{"items":["#),
        ];
        for (text, items, rest) in cases {
            for size in 1..=text.len() {
                let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
                assert_eq!(cut(text, size), (items, rest.to_owned()), "{text} by {size}");
            }
        }
    }

    /// Readers tell people the line of a mistake.
    #[test]
    fn lines_are_counted_wherever_they_end() {
        let text = "\n{\n\"kind\":\n\"L\",\"items\":[\n{\n\"a\":\n[\n1]\n}\n,\n{\"b\":\"x\\n\"}\n]\n,\"c\":{\n\"d\":[\n]}\n}";
        let (mut scan, mut at, mut lines) = (Scan::default(), 0, 0);
        loop {
            let (next, ended, event) = scan.next(text.as_bytes(), at);
            lines += ended;
            assert_eq!(lines, text[..next].matches('\n').count(), "{:?}", &text[..next]);
            at = next;
            if event.is_none_or(|event| event == Event::DocumentEnds) {
                break;
            }
        }
        assert_eq!(at, text.len());
    }
}
