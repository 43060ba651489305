//! The table of messages, from `fields.txt`, which a test compares with the types of Kubernetes.
//!
//! ```text
//!  core/v1.ServicePort      the Go package and the type
//!   1 name text             number, name in JSON, type; JSON leaves an empty one out
//!   3 port !int             JSON has it even if it is zero
//!   6 appProtocol *text     a pointer in Go: absent if there is none
//!   9 ports []Port          a list
//!   9 labels {}text         a map by name
//!   9 . Source              JSON has the fields of this message in the message around it
//! ```

use std::sync::LazyLock;

const FIELDS: &str = include_str!("fields.txt");

/// The type of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Text,
    /// Base64 in JSON.
    Bytes,
    Bool,
    Integer,
    /// A list of strings, which is a message of its own in protobuf.
    Texts,
    IntOrString,
    /// Whole seconds.
    Time,
    /// A time with microseconds.
    MicroTime,
    Quantity,
    /// `metav1.FieldsV1`: JSON as bytes.
    FieldsV1,
    Message(Message),
}

/// How often a value occurs, and what its zero value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// `omitempty` in Go: the zero value is in protobuf, but JSON leaves it out.
    Plain,
    /// The zero value is in both.
    Required,
    /// A pointer in Go: a zero value is kept.
    Optional,
    List,
    Map,
    /// A message whose fields JSON has in the message around it.
    Inline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) presence: Presence,
    pub(super) value_type: ValueType,
}

/// A message, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message(usize);

/// Names and fields of all messages, in the order of the names.
static MESSAGES: LazyLock<Vec<(&'static str, Vec<Field>)>> = LazyLock::new(|| {
    let mut messages: Vec<(&str, Vec<Field>)> = Vec::new();
    for line in FIELDS.lines() {
        match (messages.last_mut(), field(line)) {
            (Some((_, fields)), Some(field)) => fields.push(field),
            _ => messages.push((line, Vec::new())),
        }
    }
    messages
});

/// The names of all messages. They are looked up while the table is made.
static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| FIELDS.lines().filter(|line| !line.starts_with(' ')).collect());

impl Message {
    /// The message of a kind: that of its API group, or one of those that all groups share, such as
    /// `Status` and `DeleteOptions`.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
        let package = group.split('.').next().unwrap_or_default();
        Self::named(&format!("{package}/{version}.{kind}"))
            .or_else(|| Self::named(&format!("meta/v1.{kind}")))
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.binary_search(&name).ok().map(Self)
    }

    /// Its fields, in the order of their numbers.
    pub(super) fn fields(self) -> &'static [Field] {
        MESSAGES.get(self.0).map_or(&[], |(_, fields)| fields)
    }
}

fn field(line: &'static str) -> Option<Field> {
    let mut words = line.strip_prefix(' ')?.split(' ');
    let (number, name, rest) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    const SIGNS: [(&str, Presence); 4] = [
        ("!", Presence::Required),
        ("*", Presence::Optional),
        ("[]", Presence::List),
        ("{}", Presence::Map),
    ];
    let signed =
        SIGNS.iter().find_map(|(sign, presence)| Some((rest.strip_prefix(sign)?, *presence)));
    let (value, presence) = match signed {
        None if name == "." => (rest, Presence::Inline),
        None => (rest, Presence::Plain),
        Some(signed) => signed,
    };
    Some(Field { number, name, presence, value_type: value_type(value)? })
}

fn value_type(text: &str) -> Option<ValueType> {
    Some(match text {
        "text" => ValueType::Text,
        "bytes" => ValueType::Bytes,
        "bool" => ValueType::Bool,
        "int" => ValueType::Integer,
        "texts" => ValueType::Texts,
        "IntOrString" => ValueType::IntOrString,
        "Time" => ValueType::Time,
        "MicroTime" => ValueType::MicroTime,
        "Quantity" => ValueType::Quantity,
        "FieldsV1" => ValueType::FieldsV1,
        message => ValueType::Message(Message::named(message)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::kind::KINDS;

    #[test]
    fn every_line_is_a_message_or_a_field() {
        let names: Vec<&str> = MESSAGES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, *NAMES);
        assert!(names.is_sorted_by(|a, b| a < b));
        let is_ordered = |fields: &[Field]| fields.is_sorted_by(|a, b| a.number < b.number);
        assert!(MESSAGES.iter().all(|(_, fields)| is_ordered(fields)));
    }

    /// So a body cannot be nested deeper than the table, and reading it cannot exhaust the stack.
    #[test]
    fn no_message_contains_itself() {
        fn depth(message: Message, around: &[usize]) -> usize {
            assert!(!around.contains(&message.0), "{}", NAMES[message.0]);
            let around = [around, &[message.0]].concat();
            let below = message.fields().iter().filter_map(|field| match field.value_type {
                ValueType::Message(inner) => Some(depth(inner, &around)),
                _ => None,
            });
            below.max().unwrap_or(0) + 1
        }
        assert!((0..NAMES.len()).map(|at| depth(Message(at), &[])).max() < Some(20));
    }

    #[test]
    fn every_served_kind_has_a_message() {
        for kind in &KINDS {
            assert!(Message::of(&kind.api_version(), kind.kind).is_some(), "{}", kind.kind);
        }
        let rows = [
            ("v1", "Status", Some("meta/v1.Status")),
            ("events.k8s.io/v1", "Event", Some("events/v1.Event")),
            ("v1", "Else", None),
            ("apps/v2", "Deployment", None),
        ];
        for (api_version, kind, expected) in rows {
            let found = Message::of(api_version, kind).map(|message| NAMES[message.0]);
            assert_eq!(found, expected);
        }
    }
}
