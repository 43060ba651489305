//! Manifests and dumps, YAML or JSON, read as a stream.
//!
//! ```text
//!  bytes ─► chunks (one object each) ─► batch ─► parsed on all cores ─► items, in the file's order
//!           found without parsing      some MB
//! ```
//!
//! While a batch is parsed, the next one is read. Neither a file nor a list is ever in memory as a
//! whole, so that a dump can have any size.

mod block;
mod chunks;
mod fault;
mod json;
mod location;
mod object;
mod single;
mod type_meta;
mod yaml;

use std::io::Read;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value;
use zonewise_common::service_cidr::ServiceCidr;
use zonewise_inventory::evacuation::StoredEvacuation;
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

use crate::environment::Clue;
use chunks::{Batch, Chunk, End, Limits, Splitter};
pub use location::{InputError, SourceLocation};
use object::ObjectContext;
pub use single::item;

/// An object that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Node.
    Node(Node),
    /// A Pod.
    Pod(Pod),
    /// A Service.
    Service {
        /// What the controller needs of it.
        small: Service,
        /// Its JSON, with [`Options::keep_json`].
        json: Option<Box<str>>,
    },
    /// An EndpointSlice.
    Slice {
        /// What the controller needs of it.
        small: Slice,
        /// Its JSON, with [`Options::keep_json`].
        json: Option<Box<str>>,
    },
    /// A ServiceCIDR.
    ServiceCidr(ServiceCidr),
    /// A ZoneEvacuation.
    Evacuation(StoredEvacuation),
}

/// An object and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedObject {
    /// Where it stands.
    pub location: SourceLocation,
    /// The object. Without a namespace it is in `default`.
    pub object: Object,
}

impl LocatedObject {
    /// Whether it is a Service.
    pub fn is_service(&self) -> bool {
        matches!(self.object, Object::Service { .. })
    }
}

/// An object that cannot be used. Reading continues with the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it stands.
    pub location: SourceLocation,
    /// `Pod shop/web-1`, or as much of it as is known.
    pub subject: String,
    /// Cause and remedy.
    pub message: String,
}

/// An object of a file, or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An object that is used.
    Found(LocatedObject),
    /// An object that cannot be used.
    Fault(Fault),
    /// An object of a kind that is not used.
    Ignored {
        /// Its kind.
        kind: String,
        /// Annotations that do nothing there.
        misplaced: Option<Box<Misplaced>>,
    },
    /// An object that is not used for routing, and that says something about the programs that run.
    Clue {
        /// Its kind.
        kind: String,
        /// What it says.
        clue: Clue,
        /// What is wrong with it, if it cannot be used, or not all of it.
        fault: Option<Box<Fault>>,
    },
}

/// Annotations that request routing, on an object that is not a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Where the object stands.
    pub location: SourceLocation,
    /// `Deployment shop/web`.
    pub subject: String,
    /// The annotations.
    pub keys: Vec<String>,
}

/// What to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep the JSON of Services and slices, from which routes are computed.
    pub keep_json: bool,
}

/// Reads all of a source and passes every item to `take`, in the order of the file.
///
/// `progress` is called with the number of bytes read so far.
///
/// # Errors
/// If reading cannot continue. Items before that position have been passed to `take`.
pub fn read(
    file: &str,
    source: impl Read + Send,
    options: &Options,
    take: &mut dyn FnMut(Item),
    progress: &dyn Fn(u64),
) -> Result<(), InputError> {
    let file: Arc<str> = file.into();
    run(&file, Splitter::new(&file, source, Limits::default()), options, take, progress)
}

fn run(
    file: &Arc<str>,
    mut splitter: Splitter<impl Read + Send>,
    options: &Options,
    take: &mut dyn FnMut(Item),
    progress: &dyn Fn(u64),
) -> Result<(), InputError> {
    let mut batch = splitter.batch();
    loop {
        let more = matches!(batch.end, End::More);
        let (parsed, next) =
            rayon::join(|| parse(file, &batch, options), || more.then(|| splitter.batch()));
        deliver(file, &batch, options, parsed, take)?;
        progress(batch.read);
        match (batch.end, next) {
            (End::Error(error), _) => return Err(error),
            (_, Some(next)) => batch = next,
            (_, None) => return Ok(()),
        }
    }
}

/// The result of parsing a chunk.
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
enum Parsed {
    Read(Result<object::Read, InputError>),
    /// An item of a YAML list that refers to an anchor elsewhere in its document.
    NeedsDocument(yaml::Problem),
}

/// The smallest number of chunks that a thread takes at a time.
const MIN_CHUNKS: usize = 8;

fn parse(file: &Arc<str>, batch: &Batch, options: &Options) -> Vec<Parsed> {
    let chunks = batch.chunks.par_iter().with_min_len(MIN_CHUNKS);
    chunks.map(|chunk| parse_one(file, batch, chunk, options)).collect()
}

fn context<'a>(
    file: &Arc<str>,
    batch: &'a Batch,
    chunk: &Chunk,
    options: &'a Options,
) -> ObjectContext<'a> {
    let document = &batch.documents[chunk.document];
    let (file, item, line) = (Arc::clone(file), chunk.item, chunk.line);
    let location = SourceLocation { file, document: document.number, item, line };
    ObjectContext { location, list: item.map(|_| &document.type_meta), options }
}

fn parse_one(file: &Arc<str>, batch: &Batch, chunk: &Chunk, options: &Options) -> Parsed {
    let context = context(file, batch, chunk, options);
    let text = match object::text(&batch.bytes[chunk.bytes.clone()], &context.location) {
        Ok(text) => text,
        Err(error) => return Parsed::Read(Err(error)),
    };
    if batch.documents[chunk.document].json {
        return Parsed::Read(context.json(text));
    }
    // An item still has its dash: it is a list with one element.
    let value = match chunk.item {
        Some(_) => yaml::first(text),
        None => yaml::value(text),
    };
    match value {
        Ok(value) => Parsed::Read(Ok(context.value(value))),
        Err(problem) if chunk.item.is_some() && !problem.harmless => Parsed::NeedsDocument(problem),
        Err(problem) => Parsed::Read(context.problem(problem)),
    }
}

fn deliver(
    file: &Arc<str>,
    batch: &Batch,
    options: &Options,
    parsed: Vec<Parsed>,
    take: &mut dyn FnMut(Item),
) -> Result<(), InputError> {
    let mut whole = WholeDocument::default();
    for (chunk, parsed) in batch.chunks.iter().zip(parsed) {
        let read = match parsed {
            Parsed::Read(read) => read?,
            Parsed::NeedsDocument(problem) => {
                let context = context(file, batch, chunk, options);
                match whole.item(batch, chunk, &problem, &context.location)? {
                    Some(value) => context.value(value),
                    None => context.problem(problem)?,
                }
            }
        };
        match read {
            object::Read::One(item) => take(item),
            object::Read::Many(items) => items.into_iter().for_each(&mut *take),
            object::Read::Nothing => {}
        }
    }
    Ok(())
}

/// The items of a YAML document that was parsed as a whole, for items that refer to an anchor
/// elsewhere in it.
#[derive(Default)]
struct WholeDocument {
    document: Option<usize>,
    items: Vec<Value>,
}

impl WholeDocument {
    /// An item that could not be parsed alone. `None` if its document does not help either.
    fn item(
        &mut self,
        batch: &Batch,
        chunk: &Chunk,
        problem: &yaml::Problem,
        location: &SourceLocation,
    ) -> Result<Option<Value>, InputError> {
        let document = &batch.documents[chunk.document];
        let Some(range) = &document.whole else {
            let message = "the alias refers to an anchor elsewhere in a document that is too long \
                           for that: convert it to JSON";
            let location = location.at_line(problem.line);
            let refused = InputError::Syntax { location, message: message.to_owned() };
            return if problem.anchor { Err(refused) } else { Ok(None) };
        };
        if self.document != Some(document.number) {
            let start = SourceLocation { item: None, line: document.line, ..location.clone() };
            let text = object::text(&batch.bytes[range.clone()], &start)?;
            let mut value: Value = yaml::parse(text).map_err(|problem| {
                let location =
                    SourceLocation { item: location.item, ..start.at_line(problem.line) };
                InputError::Syntax { location, message: problem.message }
            })?;
            self.document = Some(document.number);
            self.items = match value.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
        }
        let index = chunk.item.map_or(0, |item| item - 1);
        Ok(self.items.get_mut(index).map(Value::take))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = concat!(
        "\u{feff}# a dump\r\n---\nitems:\n",
        "- {apiVersion: v1, kind: Pod, metadata: &m {name: a}}\n",
        "- apiVersion: v1\n  kind: Pod\n  metadata: *m\n",
        "kind: List\n--- # next\n",
        "{\"items\":[{\"metadata\":{\"name\":\"b\"}}, {\"metadata\":{\"name\":\"ü \\\" ]\"}}],\n",
        " \"kind\":\"NodeList\",\"apiVersion\":\"v1\"}\n",
        "{\"kind\":\"ConfigMap\"}\n...\n---\napiVersion: v1\nkind: Node\nmetadata:\n  name: c\n",
        "---\nkind: Pod\n"
    );

    fn items(text: &str, limits: Limits) -> (Vec<Item>, Option<String>) {
        let (file, mut items): (Arc<str>, _) = ("f".into(), Vec::new());
        let splitter = Splitter::new(&file, text.as_bytes(), limits);
        let end = run(&file, splitter, &Options::default(), &mut |item| items.push(item), &|_| ());
        (items, end.err().map(|error| error.to_string()))
    }

    proptest! {
        #[test]
        fn how_bytes_arrive_changes_nothing(step in 1usize..60, batch in 1usize..400) {
            let limits = Limits { step, batch, ..Limits::default() };
            let (expected, end) = items(TEXT, Limits::default());
            prop_assert_eq!(expected.len(), 7);
            prop_assert_eq!(items(TEXT, limits), (expected, end));
        }

        #[test]
        fn how_batches_are_cut_changes_nothing_but_what_needs_its_document(
            step in 1usize..60, batch in 1usize..400, document in 0usize..400,
        ) {
            let text = "apiVersion: v1\nkind: PodList\nitems:\n".to_owned()
                + &(0..20).map(|n| format!("- metadata:\n    name: p{n}\n")).collect::<String>();
            let limits = Limits { step, batch, document, ..Limits::default() };
            prop_assert_eq!(items(&text, limits), items(&text, Limits::default()));
        }
    }

    /// Produces a list of Pods without having all of its text in memory.
    struct Endless {
        left: usize,
        text: Vec<u8>,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.text.is_empty() && self.left > 0 {
                self.left -= 1;
                let filler = "x".repeat(3000);
                let delimiter = if self.left == 0 { "]}" } else { "," };
                self.text = format!(
                    r#"{{"metadata":{{"name":"p{}","annotations":{{"a":"{filler}"}}}}}}{delimiter}"#,
                    self.left
                )
                .into_bytes();
            }
            let count = buffer.len().min(self.text.len());
            buffer[..count].copy_from_slice(&self.text[..count]);
            self.text.drain(..count);
            Ok(count)
        }
    }

    #[test]
    fn a_long_list_is_never_in_memory_as_a_whole() {
        let text = br#"{"kind":"PodList","apiVersion":"v1","items":["#.to_vec();
        let limits =
            Limits { step: 8 << 10, batch: 64 << 10, document: 256 << 10, ..Limits::default() };
        let mut splitter = Splitter::new(&"f".into(), Endless { left: 5000, text }, limits);
        let (mut longest, mut chunks) = (0, 0);
        loop {
            let batch = splitter.batch();
            longest = longest.max(batch.bytes.len());
            chunks += batch.chunks.len();
            match batch.end {
                End::More => {}
                End::Nothing => break,
                End::Error(error) => panic!("{error}"),
            }
        }
        assert_eq!(chunks, 5000);
        let most = limits.document + limits.batch + limits.step;
        assert!(longest <= most, "{longest} bytes in one batch, {most} allowed");
    }

    #[test]
    fn an_alias_across_items_needs_a_document_that_is_not_too_long() {
        let long = Limits { step: 16, batch: 16, document: 16, ..Limits::default() };
        let (found, end) = items(TEXT, long);
        assert_eq!(found.len(), 1);
        let message = "f: document 1, item 2, line 7: the alias refers to an anchor elsewhere in a \
                       document that is too long for that: convert it to JSON";
        assert_eq!(end.as_deref(), Some(message));
    }

    #[test]
    fn an_object_that_no_server_would_store_is_refused() {
        let small = Limits { step: 16, object: 100, ..Limits::default() };
        let text = format!("{{}}\n{{\"a\":\"{}\"}}", "x".repeat(200));
        let message = "f: document 2, line 2: this object is larger than 100 bytes; an API server \
                       stores 1.5 MB at most";
        assert_eq!(items(&text, small).1.as_deref(), Some(message));
    }
}
