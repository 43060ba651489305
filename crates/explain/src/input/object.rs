//! Reads one object from its text.

use std::str::Utf8Error;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use zonewise_common::api_group::{DISCOVERY, NETWORKING, ZONEWISE};
use zonewise_common::service_cidr::ServiceCidr;
use zonewise_inventory::evacuation::{self, StoredEvacuation};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::routing_keys::{ROUTING_KEYS, is_routing_key};
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

use super::fault;
use super::location::{InputError, SourceLocation};
use super::type_meta::{TypeMeta, syntax};
use super::{Fault, Item, LocatedObject, Misplaced, Object, Options, chunks, json, yaml};
use crate::environment::Clue;

/// The kinds that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Pod,
    Service,
    Slice,
    ServiceCidr,
    Evacuation,
}

impl Kind {
    fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::ServiceCidr | Self::Evacuation)
    }
}

/// The kinds of lists of them.
const LISTS: [&str; 7] = [
    "List",
    "NodeList",
    "PodList",
    "ServiceList",
    "EndpointSliceList",
    "ServiceCIDRList",
    "ZoneEvacuationList",
];

/// The result of reading a chunk.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub(super) enum Read {
    One(Item),
    /// The items of a list that could not be split into chunks.
    Many(Vec<Item>),
    /// A document without content.
    Nothing,
}

/// What is known about an object before it is read.
#[derive(Debug)]
pub(super) struct ObjectContext<'a> {
    pub(super) location: SourceLocation,
    /// The type of its list, if it is an item of one.
    pub(super) list: Option<&'a TypeMeta>,
    pub(super) options: &'a Options,
}

/// The text of a chunk.
pub(super) fn text<'b>(bytes: &'b [u8], location: &SourceLocation) -> Result<&'b str, InputError> {
    std::str::from_utf8(bytes).map_err(|error: Utf8Error| {
        let line = chunks::lines(&bytes[..error.valid_up_to()]) + 1;
        let message = "this line is not UTF-8 text: is it a binary file?";
        InputError::NotText { location: location.at_line(line), message }
    })
}

impl ObjectContext<'_> {
    /// An object that is not a list can have a field `items` too. What is in there is ignored, with
    /// the kind of that object.
    fn inside(&self) -> Option<Item> {
        let kind = self.list?.kind.as_deref().filter(|kind| !kind.ends_with("List"))?;
        Some(Item::Ignored { kind: kind.to_owned(), misplaced: None })
    }

    /// An object of a kind that is not used for routing: with what it says about the programs that run,
    /// or with the annotations in it that only Services can have.
    fn ignored(&self, kind: String, value: &Value) -> Item {
        if let Some(clue) = Clue::of(&kind, value) {
            let fault = clue.problem().map(|message| {
                let (location, subject) = (self.location.clone(), self.subject(value));
                Box::new(Fault { location, subject, message })
            });
            return Item::Clue { kind, clue, fault };
        }
        let annotations = value["metadata"]["annotations"].as_object();
        let keys: Vec<String> = annotations
            .into_iter()
            .flat_map(|annotations| annotations.keys())
            .filter(|key| is_routing_key(key))
            .cloned()
            .collect();
        let misplaced = (!keys.is_empty()).then(|| {
            let (location, subject) = (self.location.clone(), self.subject(value));
            Box::new(Misplaced { location, subject, keys })
        });
        Item::Ignored { kind, misplaced }
    }

    /// Reads a text that begins like JSON.
    pub(super) fn json(&self, text: &str) -> Result<Read, InputError> {
        if is_flow(text) {
            let value = yaml::parse(text);
            return value
                .map_or_else(|problem| self.problem(problem), |value| Ok(self.value(value)));
        }
        let type_meta = TypeMeta::of_json(text);
        let Some(Handling::Kind(kind)) = self.handling(&type_meta).ok() else {
            return self.untyped(&type_meta, text);
        };
        match typed_text(kind, text) {
            Ok(object) if is_complete(&object) => {
                Ok(Read::One(self.found(object, || json::compact(text))))
            }
            Ok(_) => parsed(text, &self.location).map(|value| self.value(value)),
            Err(error) if error.is_data() => {
                let line = error.line();
                parsed(text, &self.location).map(|value| Read::One(self.refuse(kind, &value, line)))
            }
            Err(error) => Err(self.syntax(&error)),
        }
    }

    /// Reads an object that is not used, a list that could not be split, or a faulty object.
    fn untyped(&self, type_meta: &TypeMeta, text: &str) -> Result<Read, InputError> {
        match self.handling(type_meta) {
            Ok(Handling::Other(kind))
                if Clue::is_kind(&kind) || ROUTING_KEYS.iter().any(|key| text.contains(key)) =>
            {
                parsed(text, &self.location).map(|value| Read::One(self.ignored(kind, &value)))
            }
            // It is not used, but text that follows it without a separator must be reported.
            Ok(Handling::Other(kind)) => parsed::<IgnoredAny>(text, &self.location)
                .map(|IgnoredAny| Read::One(Item::Ignored { kind, misplaced: None })),
            _ => parsed(text, &self.location).map(|value| self.value(value)),
        }
    }

    fn syntax(&self, error: &serde_json::Error) -> InputError {
        InputError::Syntax { location: self.location.at_line(error.line()), message: syntax(error) }
    }

    /// Turns a problem of the YAML parser into a fault of this object, or an error of the file.
    pub(super) fn problem(&self, problem: yaml::Problem) -> Result<Read, InputError> {
        let location = self.location.at_line(problem.line);
        if problem.harmless {
            let (subject, message) = ("object".to_owned(), problem.message);
            return Ok(Read::One(Item::Fault(Fault { location, subject, message })));
        }
        Err(InputError::Syntax { location, message: problem.message })
    }

    /// Reads a parsed value.
    pub(super) fn value(&self, value: Value) -> Read {
        let type_meta = TypeMeta::of(&value);
        match self.handling(&type_meta) {
            _ if value.is_null() && self.list.is_none() => Read::Nothing,
            _ if !(value.is_object() || value.is_array() && self.list.is_none()) => {
                let fault = "this is not an object: an object has `kind` and `metadata`";
                Read::One(self.inside().unwrap_or_else(|| self.fault(&value, fault)))
            }
            Ok(Handling::Kind(kind)) => Read::One(self.typed(kind, value)),
            Ok(Handling::Other(kind)) => Read::One(self.ignored(kind, &value)),
            Ok(Handling::List) => self.items(&type_meta, value),
            Err(_) if value.is_array() => self.items(&type_meta, value),
            Err(message) => Read::One(self.fault(&value, &message)),
        }
    }

    /// The items of a list that was parsed as a whole.
    fn items(&self, type_meta: &TypeMeta, mut value: Value) -> Read {
        let items = match value.get_mut("items").map(Value::take) {
            None if value.is_array() => Some(value),
            items => items,
        };
        let kind = type_meta.kind.as_deref().unwrap_or_default();
        let list = serde_json::json!({"kind": kind});
        let Some(items) = items else {
            // There are kinds whose names end in `List` that are not lists.
            return Read::One(if LISTS.contains(&kind) {
                self.fault(&list, "a list needs `items`")
            } else {
                Item::Ignored { kind: kind.to_owned(), misplaced: None }
            });
        };
        match items {
            Value::Null => Read::Nothing,
            Value::Array(items) => {
                let one = |(index, value)| {
                    let location =
                        SourceLocation { item: Some(index + 1), ..self.location.clone() };
                    let context =
                        ObjectContext { location, list: Some(type_meta), options: self.options };
                    match context.value(value) {
                        Read::One(item) => Some(item),
                        Read::Many(_) | Read::Nothing => None,
                    }
                };
                Read::Many(items.into_iter().enumerate().filter_map(one).collect())
            }
            _ => Read::One(self.fault(&list, "`items` of a list must be a list")),
        }
    }

    fn typed(&self, kind: Kind, mut value: Value) -> Item {
        let namespace = &value["metadata"]["namespace"];
        let absent = namespace.is_null() || namespace.as_str() == Some("");
        if absent && kind.is_namespaced() && value["metadata"].is_object() {
            value["metadata"]["namespace"] = "default".into();
        }
        match typed(kind, &value) {
            Ok(object) if is_complete(&object) => {
                self.found(object, || value.to_string().into_boxed_str())
            }
            Ok(_) => self.fault(&value, "it has no name: set `metadata.name`"),
            Err(_) => self.refuse(kind, &value, 1),
        }
    }

    fn found(&self, mut object: Object, text: impl Fn() -> Box<str>) -> Item {
        if self.options.keep_json
            && let Object::Service { json, .. } | Object::Slice { json, .. } = &mut object
        {
            *json = Some(text());
        }
        Item::Found(LocatedObject { location: self.location.clone(), object })
    }

    /// An object with a field of the wrong type.
    fn refuse(&self, kind: Kind, value: &Value, line: usize) -> Item {
        let message = fault::message(value, |text| typed_text(kind, text).err());
        let subject = self.subject(value);
        Item::Fault(Fault { location: self.location.at_line(line), subject, message })
    }

    fn fault(&self, value: &Value, message: &str) -> Item {
        let (subject, message) = (self.subject(value), message.to_owned());
        Item::Fault(Fault { location: self.location.clone(), subject, message })
    }

    fn subject(&self, value: &Value) -> String {
        let type_meta = TypeMeta::of(value);
        let kind =
            self.list.map_or_else(|| type_meta.clone(), |list| type_meta.clone().or(list)).kind;
        fault::subject(kind.as_deref(), value)
    }

    /// What to do with an object, by its kind and version. The error says what it lacks.
    fn handling(&self, type_meta: &TypeMeta) -> Result<Handling, String> {
        let type_meta =
            self.list.map_or_else(|| type_meta.clone(), |list| type_meta.clone().or(list));
        let Some(kind) = type_meta.kind else {
            return Err(match self.list {
                Some(_) => "it has no `kind`, and its list has none before its items: add `kind` and `apiVersion`",
                None => "it has no `kind`: add `kind` and `apiVersion`",
            }
            .to_owned());
        };
        let (known, group) = match &*kind {
            "Node" => (Kind::Node, ""),
            "Pod" => (Kind::Pod, ""),
            "Service" => (Kind::Service, ""),
            "EndpointSlice" => (Kind::Slice, DISCOVERY),
            "ServiceCIDR" => (Kind::ServiceCidr, NETWORKING),
            evacuation::KIND => (Kind::Evacuation, ZONEWISE),
            list if LISTS.contains(&list) && self.list.is_some() => {
                return Err("a list inside a list is not read: take it out".to_owned());
            }
            list if list.ends_with("List") && self.list.is_none() => return Ok(Handling::List),
            _ => return Ok(Handling::Other(kind.into())),
        };
        let version = type_meta.api_version.as_deref().unwrap_or_default();
        let (own, number) = version.rsplit_once('/').unwrap_or(("", version));
        match (own == group, number) {
            (_, "") => Err("it has no `apiVersion`: add it".to_owned()),
            (true, "v1alpha1") if known == Kind::Evacuation => Ok(Handling::Kind(known)),
            (true, "v1") if known != Kind::Evacuation => Ok(Handling::Kind(known)),
            // Kubernetes 1.31 and 1.32 have them in this version, with the same fields.
            (true, "v1beta1") if known == Kind::ServiceCidr => Ok(Handling::Kind(known)),
            (true, _) => Err(other_version(known, version)),
            // Other API groups have such kinds too: Knative has Services.
            (false, _) => Ok(Handling::Other(kind.into())),
        }
    }
}

#[derive(Debug)]
enum Handling {
    Kind(Kind),
    List,
    Other(String),
}

fn other_version(kind: Kind, version: &str) -> String {
    let resource = match kind {
        Kind::Node => "nodes",
        Kind::Pod => "pods -A",
        Kind::Service => "services -A",
        Kind::Slice => "endpointslices.v1.discovery.k8s.io -A",
        Kind::ServiceCidr => "servicecidrs.v1.networking.k8s.io",
        Kind::Evacuation => "zoneevacuations.v1alpha1.zonewise.dev",
    };
    format!("version {version} is not read: fetch it again with `kubectl get {resource} -o json`")
}

/// Whether a text is YAML in flow style, which looks like JSON but has keys without quotes.
fn is_flow(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix(['{', '[']).map(str::trim_start);
    let bare = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '#' | '_' | '*' | '&' | '!');
    text.trim_start().starts_with('{') && inner.is_some_and(|inner| inner.starts_with(bare))
}

fn parsed<'a, T: Deserialize<'a>>(
    text: &'a str,
    location: &SourceLocation,
) -> Result<T, InputError> {
    serde_json::from_str(text).map_err(|error| {
        let message = syntax(&error);
        InputError::Syntax { location: location.at_line(error.line()), message }
    })
}

fn typed_text(kind: Kind, text: &str) -> Result<Object, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let object = typed(kind, &mut parser)?;
    parser.end()?;
    Ok(object)
}

fn typed<'de, D: Deserializer<'de>>(kind: Kind, from: D) -> Result<Object, D::Error> {
    Ok(match kind {
        Kind::Node => Object::Node(Node::deserialize(from)?),
        Kind::Pod => Object::Pod(Pod::deserialize(from)?),
        Kind::Service => Object::Service { small: Service::deserialize(from)?, json: None },
        Kind::Slice => Object::Slice { small: Slice::deserialize(from)?, json: None },
        Kind::ServiceCidr => Object::ServiceCidr(ServiceCidr::deserialize(from)?),
        Kind::Evacuation => Object::Evacuation(StoredEvacuation::deserialize(from)?),
    })
}

/// Whether it has a name, and a namespace if its kind has one.
fn is_complete(object: &Object) -> bool {
    let (namespace, name) = match object {
        Object::Node(node) => ("-", &*node.name),
        Object::Pod(pod) => (&*pod.namespace, &*pod.name),
        Object::Service { small, .. } => (&*small.namespace, &*small.name),
        Object::Slice { small, .. } => (&*small.namespace, small.name()),
        Object::ServiceCidr(service_cidr) => ("-", &*service_cidr.name),
        Object::Evacuation(evacuation) => ("-", &**evacuation.name()),
    };
    !namespace.is_empty() && !name.is_empty()
}
