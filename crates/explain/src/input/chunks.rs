//! Splits a stream of bytes into the texts of single objects.
//!
//! ```text
//!  bytes ─► documents ─► a list: one chunk per item; the text around the items is its outline
//!                     └► anything else: one chunk
//! ```
//!
//! A batch holds some megabytes of complete chunks. A document that is not too long is in one batch
//! as a whole, because some items can only be read with their document: they use YAML anchors of
//! another item, or the kind of the list comes after its items.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use zonewise_common::json_list;

use super::location::{InputError, SourceLocation};
use super::type_meta::TypeMeta;
use super::yaml;

/// Limits for what is in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The number of bytes that are read at once.
    pub(super) step: usize,
    /// A batch is closed when it has this many bytes,
    pub(super) batch: usize,
    /// unless it ends inside a list that has fewer bytes than this.
    pub(super) document: usize,
    /// The largest object, and the largest document that cannot be split.
    pub(super) object: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { step: 256 << 10, batch: 4 << 20, document: 16 << 20, object: 64 << 20 }
    }
}

/// Chunks that are parsed together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) documents: Vec<Document>,
    /// Bytes read so far, from the beginning of the file.
    pub(super) read: u64,
    pub(super) end: End,
}

/// What follows a batch.
#[derive(Debug)]
pub(super) enum End {
    More,
    Nothing,
    Error(InputError),
}

/// The text of one object.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Range<usize>,
    pub(super) line: usize,
    /// The index of its document in the batch.
    pub(super) document: usize,
    pub(super) item: Option<usize>,
}

/// A document of the file.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) number: usize,
    pub(super) line: usize,
    pub(super) json: bool,
    /// The type of a list, which its items may lack.
    pub(super) type_meta: TypeMeta,
    /// Its position in the batch, if it is in there as a whole.
    pub(super) whole: Option<Range<usize>>,
}

#[derive(Debug)]
enum Scan {
    Json(json_list::Scan),
    Yaml(yaml::Scan),
}

/// The document that is being read.
#[derive(Debug)]
struct Current {
    scan: Scan,
    document: Document,
    /// Where it begins, while its beginning is still in memory.
    start: Option<usize>,
    list: Option<List>,
}

/// A list that is being read.
#[derive(Debug)]
struct List {
    /// The text of the document without its items.
    outline: Vec<u8>,
    /// The number of lines before the items.
    lines: usize,
    items: usize,
    in_item: bool,
}

/// The beginning of something unfinished: an object, or the text after a list.
#[derive(Clone, Copy, Debug)]
struct Open {
    at: usize,
    line: usize,
}

/// Splits a source into batches.
pub(super) struct Splitter<R> {
    source: R,
    file: Arc<str>,
    limits: Limits,
    bytes: Vec<u8>,
    /// Everything before this position has been scanned.
    at: usize,
    /// There is no end of the line between `at` and this position.
    searched: usize,
    line: usize,
    open: Option<Open>,
    current: Option<Current>,
    chunks: Vec<Chunk>,
    documents: Vec<Document>,
    /// The number of documents so far.
    number: usize,
    read: u64,
    ended: bool,
}

impl<R: Read> Splitter<R> {
    pub(super) fn new(file: &Arc<str>, source: R, limits: Limits) -> Self {
        Self {
            source,
            file: Arc::clone(file),
            limits,
            bytes: Vec::new(),
            at: 0,
            searched: 0,
            line: 1,
            open: None,
            current: None,
            chunks: Vec::new(),
            documents: Vec::new(),
            number: 0,
            read: 0,
            ended: false,
        }
    }

    /// The next batch.
    pub(super) fn batch(&mut self) -> Batch {
        let end = loop {
            match self.scan() {
                Err(error) => break End::Error(error),
                Ok(()) if self.is_full() => break End::More,
                Ok(()) if self.ended => break self.finish().err().map_or(End::Nothing, End::Error),
                Ok(()) => {}
            }
            if let Err(error) = self.fill() {
                break End::Error(error);
            }
        };
        self.cut(end)
    }

    fn is_full(&self) -> bool {
        let goes_on = self.current.as_ref().filter(|current| current.list.is_some());
        let held = goes_on.and_then(|current| current.start);
        let short = held.is_some_and(|start| self.at - start < self.limits.document);
        !self.chunks.is_empty() && self.kept_from() >= self.limits.batch && !short
    }

    /// Where the next batch begins.
    fn kept_from(&self) -> usize {
        self.open.map_or(self.at, |open| open.at)
    }

    /// Closes the batch. What is unfinished goes into the next one.
    fn cut(&mut self, end: End) -> Batch {
        let from = self.kept_from();
        let rest = self.bytes.split_off(from);
        self.at -= from;
        self.searched = self.searched.saturating_sub(from);
        if let Some(open) = &mut self.open {
            open.at = 0;
        }
        let mut documents = std::mem::take(&mut self.documents);
        if let Some(current) = &mut self.current {
            current.start = current.start.and_then(|start| start.checked_sub(from));
            self.documents.extend(current.list.is_some().then(|| current.document.clone()));
        }
        documents.shrink_to_fit();
        Batch {
            bytes: std::mem::replace(&mut self.bytes, rest),
            chunks: std::mem::take(&mut self.chunks),
            documents,
            read: self.read,
            end,
        }
    }

    fn fill(&mut self) -> Result<(), InputError> {
        if self.bytes.len() - self.kept_from() > self.limits.object {
            let location = self.location();
            return Err(InputError::TooLarge { location, limit: self.limits.object });
        }
        let step = self.limits.step;
        let mut next = self.source.by_ref().take(step as u64);
        let count = next.read_to_end(&mut self.bytes).map_err(|source| {
            let file = Arc::clone(&self.file);
            InputError::Unreadable { file, source }
        })?;
        self.read += count as u64;
        self.ended = count < step;
        Ok(())
    }

    /// Scans all bytes that were read.
    fn scan(&mut self) -> Result<(), InputError> {
        loop {
            let moved = match self.current.as_ref().map(|current| &current.scan) {
                None => self.between()?,
                Some(Scan::Json(_)) => self.json()?,
                Some(Scan::Yaml(_)) => self.yaml()?,
            };
            if !moved {
                return Ok(());
            }
        }
    }

    /// Skips what is between documents. Returns `false` if more bytes are needed.
    fn between(&mut self) -> Result<bool, InputError> {
        let rest = &self.bytes[self.at..];
        let indent = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        let text = &rest[indent..];
        let decided = matches!(text, [b'\n' | b'{' | b'[', ..] | [_, _, _, _, ..]) || self.ended;
        match text {
            _ if !decided || text.is_empty() => return Ok(false),
            [b'\n', ..] => {
                self.at += indent + 1;
                self.line += 1;
            }
            [b'{' | b'[', ..] => {
                self.begin(self.at + indent, Scan::Json(json_list::Scan::default()));
            }
            [b'#' | b'%', ..] => {
                let Some(end) = self.line_end() else { return Ok(false) };
                self.at = end;
            }
            [0xef, 0xbb, 0xbf, ..] => self.at += indent + 3,
            _ if self.number == 0 => match not_text(text) {
                Some(message) => {
                    return Err(InputError::NotText { location: self.location(), message });
                }
                None => self.marker_or_yaml(indent),
            },
            _ => self.marker_or_yaml(indent),
        }
        Ok(true)
    }

    fn marker_or_yaml(&mut self, indent: usize) {
        let start = &self.bytes[self.at..];
        if indent == 0 && yaml::is_marker(&start[..start.len().min(4)]) {
            self.at += 3;
        } else {
            self.begin(self.at, Scan::Yaml(yaml::Scan::default()));
        }
    }

    fn begin(&mut self, at: usize, scan: Scan) {
        self.at = at;
        self.number += 1;
        self.open = Some(Open { at, line: self.line });
        let document = Document {
            number: self.number,
            line: self.line,
            json: matches!(scan, Scan::Json(_)),
            type_meta: TypeMeta::default(),
            whole: None,
        };
        self.current = Some(Current { scan, document, start: Some(at), list: None });
    }

    fn json(&mut self) -> Result<bool, InputError> {
        let Some(Current { scan: Scan::Json(scan), .. }) = &mut self.current else {
            return Ok(false);
        };
        let (at, lines, event) = scan.next(&self.bytes, self.at);
        self.at = at;
        self.line += lines;
        match event {
            None => return Ok(false),
            Some(json_list::Event::ListBegins) => self.list_begins(),
            Some(json_list::Event::ItemBegins) => self.item_begins(),
            Some(json_list::Event::ItemEnds) => self.item_ends(),
            Some(json_list::Event::ListEnds) => self.list_ends(),
            Some(json_list::Event::DocumentEnds) => self.document_ends()?,
        }
        Ok(true)
    }

    fn yaml(&mut self) -> Result<bool, InputError> {
        let Some(end) = self.line_end() else { return Ok(false) };
        let Some(Current { scan: Scan::Yaml(scan), list, .. }) = &mut self.current else {
            return Ok(false);
        };
        let line = &self.bytes[self.at..end];
        if yaml::is_marker(line) {
            self.document_ends()?;
            return Ok(true);
        }
        match (scan.next(line), list.is_some()) {
            (yaml::Line::Inside, _) => {}
            (yaml::Line::Item, false) => {
                self.list_begins();
                self.item_begins();
            }
            (yaml::Line::Item, true) => {
                self.item_ends();
                self.item_begins();
            }
            (yaml::Line::ListEnds, _) => {
                self.item_ends();
                self.list_ends();
            }
        }
        self.at = (end + 1).min(self.bytes.len());
        self.line += 1;
        Ok(true)
    }

    /// Where the line at `at` ends, if that is known.
    fn line_end(&mut self) -> Option<usize> {
        let from = self.searched.max(self.at);
        let found = self.bytes[from..].iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.bytes.len(), |found| from + found);
        let last = (self.ended && self.at < self.bytes.len()).then_some(self.bytes.len());
        found.map(|found| from + found).or(last)
    }

    // === Common to both formats ===

    fn list_begins(&mut self) {
        let (Some(current), Some(open)) = (&mut self.current, self.open.take()) else { return };
        let outline = self.bytes[open.at..self.at].to_vec();
        current.document.type_meta = TypeMeta::of_beginning(&outline, current.document.json);
        self.documents.push(current.document.clone());
        let lines = lines(&outline);
        current.list = Some(List { outline, lines, items: 0, in_item: false });
    }

    fn item_begins(&mut self) {
        self.open = Some(Open { at: self.at, line: self.line });
        if let Some(list) = self.current.as_mut().and_then(|current| current.list.as_mut()) {
            list.items += 1;
            list.in_item = true;
        }
    }

    fn item_ends(&mut self) {
        let list = self.current.as_mut().and_then(|current| current.list.as_mut());
        let (Some(list), Some(open)) = (list, self.open.take()) else { return };
        list.in_item = false;
        let item = Some(list.items);
        self.push(open, item);
    }

    fn list_ends(&mut self) {
        self.open = Some(Open { at: self.at, line: self.line });
    }

    fn document_ends(&mut self) -> Result<(), InputError> {
        let list = self.current.as_ref().and_then(|current| current.list.as_ref());
        if list.is_some_and(|list| list.in_item) {
            self.item_ends();
        }
        let Some(Current { document, start, list, .. }) = self.current.take() else {
            return Ok(());
        };
        let open = self.open.take();
        let whole = start.map(|start| start..self.at);
        let Some(list) = list else {
            self.documents.push(Document { whole, ..document });
            open.into_iter().for_each(|open| self.push(open, None));
            return Ok(());
        };
        let tail = open.unwrap_or(Open { at: self.at, line: self.line });
        let type_meta = self.close_list(&document, list, tail)?;
        if let Some(listed) = self.documents.last_mut() {
            *listed = Document { whole, type_meta, ..document };
        }
        Ok(())
    }

    /// Checks the text around the items.
    fn close_list(
        &self,
        document: &Document,
        mut list: List,
        tail: Open,
    ) -> Result<TypeMeta, InputError> {
        list.outline.extend_from_slice(&self.bytes[tail.at..self.at]);
        TypeMeta::of_outline(&list.outline, document.json).map_err(|(line, message)| {
            let line = match line.checked_sub(list.lines + 1) {
                Some(after) => tail.line + after,
                None => document.line + line - 1,
            };
            let file = Arc::clone(&self.file);
            let location = SourceLocation { file, document: document.number, item: None, line };
            InputError::Syntax { location, message }
        })
    }

    fn push(&mut self, open: Open, item: Option<usize>) {
        self.chunks.push(Chunk {
            bytes: open.at..self.at,
            line: open.line,
            document: self.documents.len() - 1,
            item,
        });
    }

    /// Finishes at the end of the file.
    fn finish(&mut self) -> Result<(), InputError> {
        match &self.current {
            Some(Current { scan: Scan::Json(_), .. }) => {
                Err(InputError::Truncated { location: self.location() })
            }
            Some(_) => self.document_ends(),
            None => Ok(()),
        }
    }

    /// The position of the unfinished object.
    fn location(&self) -> SourceLocation {
        let current = self.current.as_ref();
        let list = current.and_then(|current| current.list.as_ref());
        let document = current.map_or(self.line, |current| current.document.line);
        SourceLocation {
            file: Arc::clone(&self.file),
            document: self.number.max(1),
            item: list.filter(|list| list.in_item).map(|list| list.items),
            line: self.open.map_or(document, |open| open.line),
        }
    }
}

/// The number of line ends in a text.
pub(super) fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// What to do about a file that is not text.
fn not_text(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("this is gzip: unpack it first, for instance with `gunzip`"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Some("this is UTF-16: save it as UTF-8, in PowerShell with `Out-File -Encoding utf8`")
        }
        _ => None,
    }
}
