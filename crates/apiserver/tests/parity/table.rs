//! Objects in protobuf on their way: media types, frames of watches, and the table of all fields.

use serde_json::Value;

use crate::protobuf::read_frame;

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The table of fields in the embedded server.
pub(crate) const TABLE: &str = include_str!("../../src/objects/protobuf/fields.txt");

/// The media type of watches.
pub(crate) const STREAM_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// What protobuf holds.
pub(crate) struct Read {
    /// In JSON.
    pub(crate) object: Value,
    /// Whether Kubernetes writes it in the same bytes.
    pub(crate) same: bool,
}

/// The first frame of a watch without its length, and the bytes after it; `None` if it is not complete.
pub(crate) fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).unwrap())
}

/// All events of a watch that has ended.
pub(crate) fn read_frames(mut bytes: &[u8]) -> Read {
    let (mut events, mut all_same) = (Vec::new(), true);
    while let Some((frame, rest)) = split_frame(bytes) {
        let Read { object, same } = read_frame(frame);
        events.push(object);
        all_same &= same;
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the watch ends inside of a frame: {bytes:x?}");
    Read { object: events.into(), same: all_same }
}

/// The lines of a message in the table of fields: number, name in JSON, and type with its sign.
pub(crate) fn lines_of(message: &str) -> Vec<[&'static str; 3]> {
    let lines = TABLE.lines().skip_while(|line| *line != message).skip(1);
    let words =
        |line: &'static str| line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
    lines.take_while(|line| line.starts_with(' ')).map(words).collect()
}
