//! Objects in protobuf, as Kubernetes itself reads and writes them: a program with its types, which
//! `scripts/reference` builds, converts between the two forms.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zonewise_testbed::program;

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The media type of watches.
pub(crate) const STREAM_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The running program. It ends with these tests, because its input ends then.
struct Converter {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Converter {
    fn start() -> Self {
        let mut command = Command::new(program("objects").unwrap());
        let child = command.arg("convert").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Child { stdin, stdout, .. } = child.unwrap();
        Self { input: stdin.unwrap(), output: BufReader::new(stdout.unwrap()) }
    }

    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.input, "{question}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

fn ask(question: &Value) -> Value {
    static CONVERTER: LazyLock<Mutex<Converter>> = LazyLock::new(|| Mutex::new(Converter::start()));
    CONVERTER.lock().unwrap_or_else(PoisonError::into_inner).ask(question)
}

/// What protobuf holds.
pub(crate) struct Read {
    /// In JSON.
    pub(crate) object: Value,
    /// Whether Kubernetes writes it in the same bytes.
    pub(crate) same: bool,
}

fn read_as(form: &str, bytes: &[u8]) -> Read {
    let mut answer = ask(&json!({form: STANDARD.encode(bytes)}));
    assert_eq!(answer["error"], Value::Null, "{bytes:x?}");
    Read { object: answer["object"].take(), same: answer["same"] == true }
}

/// An object in its envelope.
pub(crate) fn read(bytes: &[u8]) -> Read {
    read_as("protobuf", bytes)
}

/// An event of a watch, without the length of its frame.
pub(crate) fn read_frame(bytes: &[u8]) -> Read {
    read_as("frame", bytes)
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

/// An object in protobuf; `None` if the types of Kubernetes cannot hold all of it.
pub(crate) fn write(object: &Value) -> Option<Vec<u8>> {
    let answer = ask(&json!({"object": object}));
    Some(STANDARD.decode(answer["protobuf"].as_str()?).unwrap())
}

/// The table of fields in the embedded server is that of the types of Kubernetes. `UPDATE_SCHEMAS=1` writes
/// it anew.
#[test]
fn the_table_of_fields_is_that_of_kubernetes() {
    let output = Command::new(program("objects").unwrap()).arg("fields").output().unwrap();
    assert!(output.status.success());
    let fields = String::from_utf8(output.stdout).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/objects/protobuf/fields.txt");
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, fields).unwrap();
        return;
    }
    let table = std::fs::read_to_string(path).unwrap();
    assert!(
        table == fields,
        "the table of fields is out of date: run the tests with UPDATE_SCHEMAS=1"
    );
}
