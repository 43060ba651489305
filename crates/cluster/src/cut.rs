//! A list cut into its items while it arrives: of a page of any size no more than one item is held.
//!
//! ```text
//!  chunks   {"metadata":{…},"items":[{…},{…},{…
//!                                     │   │   └─ kept until the rest of it is there
//!                                     ▼   ▼
//!  items                             take take            rest   {"metadata":{…},"items":[]}
//! ```
//!
//! Only strings, braces and brackets are looked at. Whether it is JSON is told by whoever reads the items
//! and the rest.

/// What a byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The list around the items.
    #[default]
    Rest,
    /// Commas and spaces between items.
    Between,
    /// An item.
    Item,
}

/// Cuts one list.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    rest: Vec<u8>,
    item: Vec<u8>,
    part: Part,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Cutter {
    /// The next bytes; every item that is whole by now is handed to `take`.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut take: impl FnMut(&[u8])) {
        let mut begin = 0;
        for (place, &byte) in chunk.iter().enumerate() {
            if self.in_string {
                self.string(byte);
                continue;
            }
            match (byte, self.part) {
                (b'"', _) => self.in_string = true,
                (b'{' | b'[', part) => {
                    self.depth += 1;
                    if part == Part::Rest && byte == b'[' && self.depth == 2 {
                        self.rest.extend_from_slice(&chunk[begin..=place]);
                        begin = place + 1;
                        self.part = if is_items(&self.rest) { Part::Between } else { Part::Rest };
                    } else if part == Part::Between {
                        begin = place;
                        self.part = Part::Item;
                    }
                }
                (b'}' | b']', part) => {
                    self.depth = self.depth.saturating_sub(1);
                    if part == Part::Item && self.depth == 2 {
                        self.hand_over(&chunk[begin..=place], &mut take);
                        self.part = Part::Between;
                    } else if part == Part::Between {
                        begin = place;
                        self.part = Part::Rest;
                    }
                }
                _ => {}
            }
        }
        match self.part {
            Part::Rest => self.rest.extend_from_slice(&chunk[begin..]),
            Part::Between => {}
            Part::Item => self.item.extend_from_slice(&chunk[begin..]),
        }
    }

    /// The list without its items.
    pub(crate) fn rest(self) -> Vec<u8> {
        self.rest
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn hand_over(&mut self, end: &[u8], mut take: impl FnMut(&[u8])) {
        if self.item.is_empty() {
            return take(end);
        }
        self.item.extend_from_slice(end);
        take(&self.item);
        self.item.clear();
    }
}

/// Whether the list that begins here is the one of the items.
fn is_items(rest: &[u8]) -> bool {
    let before = rest.strip_suffix(b"[").map(<[u8]>::trim_ascii_end);
    let name = before.and_then(|before| before.strip_suffix(b":")).map(<[u8]>::trim_ascii_end);
    name.is_some_and(|name| name.ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, size: usize) -> (Vec<String>, String) {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (mut cutter, mut items) = (Cutter::default(), Vec::new());
        for chunk in text.as_bytes().chunks(size) {
            cutter.feed(chunk, |item| items.push(text_of(item)));
        }
        (items, text_of(&cutter.rest()))
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
}
