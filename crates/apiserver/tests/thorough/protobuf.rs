//! Objects in protobuf, as Kubernetes itself reads and writes them: a program with its types, which
//! `scripts/reference` builds, converts between the two forms.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zonewise_testbed::program;

pub(crate) use crate::table::{MEDIA_TYPE, Read, STREAM_TYPE, read_frames, split_frame};
use crate::table::{TABLE, lines_of};

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

/// An object in protobuf; `None` if the types of Kubernetes cannot hold all of it.
pub(crate) fn write(object: &Value) -> Option<Vec<u8>> {
    let answer = ask(&json!({"object": object}));
    Some(STANDARD.decode(answer["protobuf"].as_str()?).unwrap())
}

/// [`TABLE`] is that of the types of Kubernetes. `UPDATE_SCHEMAS=1` writes
/// it anew.
#[test]
fn the_table_of_fields_is_that_of_kubernetes() {
    let output = Command::new(program("objects").unwrap()).arg("fields").output().unwrap();
    assert!(output.status.success());
    let fields = String::from_utf8(output.stdout).unwrap();
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/objects/protobuf/fields.txt");
        std::fs::write(path, fields).unwrap();
        return;
    }
    assert!(
        TABLE == fields,
        "the table of fields is out of date: run the tests with UPDATE_SCHEMAS=1"
    );
}

/// The kinds of what requests and answers hold.
const KINDS: [(&str, &str); 19] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("authentication.k8s.io/v1", "SelfSubjectReview"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
    ("autoscaling/v1", "Scale"),
    ("coordination.k8s.io/v1", "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("events.k8s.io/v1", "Event"),
    ("networking.k8s.io/v1", "ServiceCIDR"),
    ("v1", "Binding"),
    ("v1", "ConfigMap"),
    ("v1", "DeleteOptions"),
    ("v1", "Event"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "Status"),
];

/// Random objects of each kind, of the fields that the table has.
struct RandomObjects {
    random: fastrand::Rng,
}

impl RandomObjects {
    /// Each field is set with this probability, and those of messages inside with a smaller one.
    fn object(&mut self, (api_version, kind): (&str, &str), likely: f64) -> Value {
        let package = match api_version.split_once('/') {
            None => "core".to_owned(),
            Some((group, _)) => group.split('.').next().unwrap().to_owned(),
        };
        let own = format!("{package}/v1.{kind}");
        let shared = format!("meta/v1.{kind}");
        let known = TABLE.lines().any(|line| line == own);
        let mut object = self.message(if known { &own } else { &shared }, likely);
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        object
    }

    fn message(&mut self, name: &str, likely: f64) -> Value {
        let mut object = json!({});
        for [_, field, value_type] in lines_of(name) {
            if field == "." {
                let inside = self.message(value_type, likely);
                object.as_object_mut().unwrap().extend(inside.as_object().unwrap().clone());
            } else if self.random.f64() < likely {
                object[field] = self.field(value_type, likely * 0.8);
            }
        }
        object
    }

    fn field(&mut self, value_type: &str, likely: f64) -> Value {
        let count = self.random.usize(0..3);
        if let Some(item) = value_type.strip_prefix("[]") {
            return (0..count).map(|_| self.value(item, likely)).collect();
        }
        if let Some(item) = value_type.strip_prefix("{}") {
            let entries =
                (0..count).map(|n| (format!("{}-{n}", count - n), self.value(item, likely)));
            return Value::Object(entries.collect());
        }
        self.value(value_type.trim_start_matches(['!', '*']), likely)
    }

    fn value(&mut self, value_type: &str, likely: f64) -> Value {
        let numbers = [0, 1, -1, 127, 128, i64::from(i32::MIN), i64::from(i32::MAX)];
        let texts = ["", "a", "web", "n\u{e4}h", "8080", "\u{2603} and\nmore", &"x".repeat(200)]
            .map(str::to_owned);
        match value_type {
            "text" => self.one_of(&texts),
            "bytes" => STANDARD.encode(&texts[self.random.usize(0..texts.len())]).into(),
            "bool" => self.random.bool().into(),
            "int" => self.one_of(&numbers),
            "texts" => (0..2).map(|_| self.one_of(&texts)).collect(),
            "IntOrString" if self.random.bool() => self.one_of(&texts),
            "IntOrString" => self.one_of(&numbers),
            "Time" => self.one_of(&[
                "1969-12-31T23:59:59Z",
                "2026-01-02T03:04:05Z",
                "2999-12-31T23:59:59Z",
            ]),
            "MicroTime" => {
                self.one_of(&["1969-12-31T23:59:58.900000Z", "2026-01-02T03:04:05.000001Z"])
            }
            "Quantity" => self.one_of(&["0", "1", "250m", "16Gi", "1500m", "12e6"]),
            "FieldsV1" => self.one_of(&[json!({}), json!({"f:spec": {".": {}, "f:a": {}}})]),
            message => self.message(message, likely),
        }
    }

    fn one_of<T: Clone + Into<Value>>(&mut self, values: &[T]) -> Value {
        values[self.random.usize(0..values.len())].clone().into()
    }
}

/// Every kind with no field, with all fields and with random ones.
#[test]
fn random_objects_have_the_same_bytes_as_in_kubernetes() {
    let mut objects = RandomObjects { random: fastrand::Rng::with_seed(17) };
    for kind in KINDS {
        for likely in [0.0, 2.0].into_iter().chain([0.6; 150]) {
            let object = objects.object(kind, likely);
            let expected = write(&object).unwrap_or_else(|| panic!("no {kind:?}: {object}"));
            let written = zonewise_apiserver::testing::to_protobuf(&object).unwrap();
            assert_eq!(STANDARD.encode(&written), STANDARD.encode(&expected), "{object}");
            let read = zonewise_apiserver::testing::from_protobuf(&expected).unwrap();
            let again = zonewise_apiserver::testing::to_protobuf(&read).unwrap();
            assert!(again == expected, "{object}\nwas read as\n{read}");
        }
    }
}
