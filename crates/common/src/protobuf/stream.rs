//! Lists and watches in protobuf, cut into objects while they arrive: no more than one object of
//! them is held.
//!
//! ```text
//!  list    "k8s\0"  typeMeta  raw, n bytes { metadata  item  item  it…
//!                                                      │     │     └─ kept until the rest is there
//!                                                      ▼     ▼
//!                                                     take  take
//!
//!  watch   length  event  length  ev…        length: four bytes, the highest first
//! ```

use super::envelope::{MAGIC, no_magic, plain, type_meta, unknown};
use super::reader::{Error, Fields, Header, Value, header, truncated};

/// The most bytes that one object, or one event of a watch, may have. No object of Kubernetes comes near
/// it: etcd accepts 1.5 MiB by default.
pub const MAX_OBJECT_BYTES: usize = 64 << 20;

fn too_large(bytes: usize) -> Error {
    Error::new(format!("{bytes} bytes are announced for one object, which cannot be"))
}

/// Cuts one list into its items.
#[derive(Debug)]
pub struct ListCutter {
    /// The kind of the list, such as `PodList`.
    kind: String,
    /// What has arrived and is not yet a whole field.
    buffer: Vec<u8>,
    state: State,
    metadata: ListMetadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Magic,
    /// Among the fields of the envelope, before the list.
    Envelope,
    /// Among the fields of the list, of which so many bytes are still to come.
    List(usize),
    /// Among the fields of the envelope, after the list.
    After,
}

/// What a list says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMetadata {
    /// The version of the list.
    pub resource_version: String,
    /// The token that the next page is asked for with; empty on the last page.
    pub r#continue: String,
}

impl ListMetadata {
    /// Reads a `ListMeta`.
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut metadata = Self::default();
        for field in Fields::new(bytes) {
            match field? {
                (2, wire) => metadata.resource_version = wire.text()?.into(),
                (3, wire) => metadata.r#continue = wire.text()?.into(),
                _ => {}
            }
        }
        Ok(metadata)
    }
}

impl ListCutter {
    /// For a list of objects of this kind, such as `Pod`.
    pub fn new(kind: &str) -> Self {
        Self {
            kind: format!("{kind}List"),
            buffer: Vec::new(),
            state: State::Magic,
            metadata: ListMetadata::default(),
        }
    }

    /// The next bytes; every item that is whole by now is handed to `take`.
    ///
    /// # Errors
    /// If the bytes are not a list of this kind.
    pub fn feed(&mut self, chunk: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(chunk);
        let mut at = 0;
        while let Some(length) = self.step(&buffer[at..], &mut take)? {
            at += length;
        }
        buffer.drain(..at);
        self.buffer = buffer;
        Ok(())
    }

    /// What the list says about itself, once all bytes have been fed.
    ///
    /// # Errors
    /// If the list is not whole.
    pub fn finish(self) -> Result<ListMetadata, Error> {
        match (self.state, self.buffer.is_empty()) {
            (State::After, true) => Ok(self.metadata),
            _ => Err(Error::new("the list ends before all of it has arrived")),
        }
    }

    /// Handles what stands at the beginning of `bytes` and returns its length; `None` if it is not whole.
    fn step(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) -> Result<Option<usize>, Error> {
        match self.state {
            State::Magic if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) => Ok(None),
            State::Magic => {
                let _ = bytes.strip_prefix(MAGIC).ok_or_else(no_magic)?;
                self.state = State::Envelope;
                Ok(Some(MAGIC.len()))
            }
            State::List(0) => {
                self.state = State::After;
                Ok(Some(0))
            }
            State::List(left) => self.in_list(bytes, left, take),
            State::Envelope | State::After => self.in_envelope(bytes),
        }
    }

    fn in_envelope(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let Some(Header { number, value, begin, end }) = header(bytes)? else { return Ok(None) };
        if number == unknown::RAW && value == Value::Bytes && self.state == State::Envelope {
            self.state = State::List(end - begin);
            return Ok(Some(begin));
        }
        let Some(field) = whole(bytes, begin, end)? else { return Ok(None) };
        match (number, value) {
            (unknown::TYPE_META, Value::Bytes) => self.check_kind(type_meta(field)?.1)?,
            (unknown::CONTENT_ENCODING | unknown::CONTENT_TYPE, Value::Bytes) => plain(field)?,
            (unknown::RAW, _) => return Err(Error::new("the envelope does not hold one list")),
            _ => {}
        }
        Ok(Some(end))
    }

    fn in_list(
        &mut self,
        bytes: &[u8],
        left: usize,
        take: &mut impl FnMut(&[u8]),
    ) -> Result<Option<usize>, Error> {
        let Some(Header { number, value, begin, end }) = header(bytes)? else {
            return if bytes.len() < left { Ok(None) } else { Err(truncated()) };
        };
        if end > left {
            return Err(Error::new("an item is longer than the list that holds it"));
        }
        let Some(field) = whole(bytes, begin, end)? else { return Ok(None) };
        match (number, value) {
            (1, Value::Bytes) => {
                self.metadata =
                    ListMetadata::read(field).map_err(|error| error.within("metadata"))?;
            }
            (2, Value::Bytes) => take(field),
            _ => {}
        }
        self.state = State::List(left - end);
        Ok(Some(end))
    }

    fn check_kind(&self, kind: &str) -> Result<(), Error> {
        match kind == self.kind {
            true => Ok(()),
            false => Err(Error::new(format!("a {} was asked for and a {kind} came", self.kind))),
        }
    }
}

/// The value of a field, once all of it is there.
fn whole(bytes: &[u8], begin: usize, end: usize) -> Result<Option<&[u8]>, Error> {
    if end - begin > MAX_OBJECT_BYTES {
        return Err(too_large(end - begin));
    }
    Ok(bytes.get(begin..end))
}

/// Cuts a watch into the messages of its events.
#[derive(Debug, Default)]
pub struct FrameCutter {
    buffer: Vec<u8>,
}

impl FrameCutter {
    /// The next bytes; every event that is whole by now is handed to `take`.
    ///
    /// # Errors
    /// If an event is announced that cannot be one; errors of `take`, after which nothing more may be fed.
    pub fn feed<E: From<Error>>(
        &mut self,
        chunk: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        while let Some((length, rest)) = self.buffer[at..].split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > MAX_OBJECT_BYTES {
                return Err(too_large(length).into());
            }
            let Some(event) = rest.get(..length) else { break };
            take(event)?;
            at += 4 + length;
        }
        self.buffer.drain(..at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::protobuf::{bytes, envelope, frame, int};

    type Cut = Result<(Vec<Vec<u8>>, ListMetadata), Error>;

    fn cut(message: &[u8], size: usize) -> Cut {
        let (mut cutter, mut items) = (ListCutter::new("Pod"), Vec::new());
        for chunk in message.chunks(size) {
            cutter.feed(chunk, |item| items.push(item.to_vec()))?;
        }
        Ok((items, cutter.finish()?))
    }

    fn list(items: &[&str]) -> Vec<u8> {
        let metadata = [bytes(1, ""), bytes(2, "12"), bytes(3, "next"), int(4, 7)].concat();
        let items = items.iter().map(|item| bytes(2, item));
        [bytes(1, metadata), int(9, 1)].into_iter().chain(items).flatten().collect()
    }

    #[test]
    fn a_list_is_the_same_however_it_arrives() {
        let long = "x".repeat(300);
        let metadata = ListMetadata { resource_version: "12".into(), r#continue: "next".into() };
        for items in [&[][..], &["", "a", &long, "b"]] {
            let message = envelope("v1", "PodList", &list(items));
            let expected: Vec<Vec<u8>> =
                items.iter().map(|item| item.as_bytes().to_vec()).collect();
            for size in 1..=message.len() {
                assert_eq!(cut(&message, size), Ok((expected.clone(), metadata.clone())), "{size}");
            }
        }
        let empty = envelope("v1", "PodList", &[]);
        assert_eq!(cut(&empty, 3), Ok((Vec::new(), ListMetadata::default())));
    }

    #[test]
    fn a_list_that_is_cut_off_at_any_byte_is_no_list() {
        let message = envelope("v1", "PodList", &list(&["a", "b"]));
        // The last fields of the envelope are empty and follow the list, two bytes each.
        for length in (0..message.len()).filter(|length| *length != message.len() - 2) {
            let result = cut(&message[..length], 5);
            let whole = length == message.len() - 4;
            assert_eq!(result.is_ok(), whole, "{length} of {}: {result:?}", message.len());
        }
    }

    #[test]
    fn what_is_no_list_of_the_kind_is_refused() {
        let prefix = [MAGIC, &[0x12]].concat();
        let large =
            [&prefix[..], &[0xff, 0xff, 0xff, 0xff, 0x0f, 0x12, 0xfe, 0xff, 0xff, 0xff, 0x0e]];
        let inner = [&prefix[..], &[4, 0x12, 9, 0, 0]].concat();
        let open = [&prefix[..], &[2, 0x12, 0x80]].concat();
        let twice = [MAGIC, &[0x12, 0, 0x12, 0]].concat();
        let zipped = [MAGIC, &bytes(3, "gzip")].concat();
        let rows = [
            (zipped, "the object in the envelope is encoded once more"),
            (b"{\"kind\":\"PodList\"}".to_vec(), "the bytes do not begin with"),
            (envelope("v1", "Status", &[]), "a PodList was asked for and a Status came"),
            (inner, "an item is longer than the list that holds it"),
            (open, "the bytes end in the middle of a field"),
            (twice, "the envelope does not hold one list"),
            (large.concat(), "4026531838 bytes are announced for one object, which cannot be"),
        ];
        for (message, expected) in rows {
            let error = cut(&message, 4).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error} instead of {expected}");
        }
    }

    fn frames(message: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Error> {
        let (mut cutter, mut events) = (FrameCutter::default(), Vec::new());
        for chunk in message.chunks(size) {
            let mut take = |event: &[u8]| {
                events.push(event.to_vec());
                Ok::<_, Error>(())
            };
            cutter.feed(chunk, &mut take)?;
        }
        Ok(events)
    }

    #[test]
    fn a_watch_is_the_same_however_it_arrives() {
        let events = [b"a".to_vec(), Vec::new(), vec![7; 300]];
        let mut message: Vec<u8> = events.iter().flat_map(|event| frame(event)).collect();
        message.extend([0, 0, 0, 9, 1]);
        for size in 1..=message.len() {
            assert_eq!(frames(&message, size), Ok(events.to_vec()), "{size}");
        }
        let error = frames(&[0xff, 0xff, 0xff, 0xff], 4).unwrap_err().to_string();
        assert_eq!(error, "4294967295 bytes are announced for one object, which cannot be");
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_alike_however_they_arrive(
            message in vec(any::<u8>(), 0..200),
            list_begins in any::<bool>(),
            size in 1_usize..50,
        ) {
            let begin = if list_begins { [MAGIC, &[0x12, 150, 1]].concat() } else { Vec::new() };
            let message = [begin, message].concat();
            prop_assert_eq!(cut(&message, size).ok(), cut(&message, message.len().max(1)).ok());
            prop_assert_eq!(frames(&message, size).ok(), frames(&message, message.len().max(1)).ok());
        }
    }

    #[test]
    fn an_object_may_have_so_many_bytes_and_no_more() {
        let most = u32::try_from(MAX_OBJECT_BYTES).unwrap();
        let announced = |bytes: u32| frames(&bytes.to_be_bytes(), 4);
        assert_eq!(announced(most), Ok(Vec::new()), "it may still come");
        let expected = format!("{} bytes are announced for one object, which cannot be", most + 1);
        assert_eq!(announced(most + 1).unwrap_err().to_string(), expected);
        assert!(whole(&[], 5, 5 + MAX_OBJECT_BYTES).is_ok_and(|value| value.is_none()));
        assert_eq!(whole(&[], 5, 6 + MAX_OBJECT_BYTES).unwrap_err().to_string(), expected);
    }
}
