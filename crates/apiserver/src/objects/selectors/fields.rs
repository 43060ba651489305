//! Field selectors such as `status.phase=Running,spec.nodeName!=a`. Each kind supports a few
//! fields: those of the `AddFieldLabelConversionFunc` calls in kube-apiserver.

use serde_json::Value;

use crate::objects::kind::Kind;

/// One comparison of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    field: Field,
    equal: bool,
    value: String,
}

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    /// The first of these JSON pointers that leads to a value counts.
    pointers: &'static [&'static str],
    /// The value if none of them does.
    default: &'static str,
}

/// Name, pointers and default of a field.
type SupportedField = (&'static str, &'static [&'static str], &'static str);

const NAME: SupportedField = ("metadata.name", &["/metadata/name"], "");
const NAMESPACE: SupportedField = ("metadata.namespace", &["/metadata/namespace"], "");
const PODS: [SupportedField; 9] = [
    ("spec.nodeName", &["/spec/nodeName"], ""),
    ("spec.restartPolicy", &["/spec/restartPolicy"], ""),
    ("spec.schedulerName", &["/spec/schedulerName"], ""),
    ("spec.serviceAccountName", &["/spec/serviceAccountName"], ""),
    ("spec.hostNetwork", &["/spec/hostNetwork"], "false"),
    ("status.phase", &["/status/phase"], ""),
    ("status.podIP", &["/status/podIP"], ""),
    ("status.podIPs", &["/status/podIP"], ""),
    ("status.nominatedNodeName", &["/status/nominatedNodeName"], ""),
];
const SERVICES: [SupportedField; 2] =
    [("spec.clusterIP", &["/spec/clusterIP"], ""), ("spec.type", &["/spec/type"], "")];
const NODES: [SupportedField; 1] = [("spec.unschedulable", &["/spec/unschedulable"], "false")];
const NAMESPACES: [SupportedField; 1] = [("status.phase", &["/status/phase"], "")];
/// Fields of events in both API versions. A value is looked up under the names of both versions.
const EVENTS: [SupportedField; 18] = [
    ("involvedObject.kind", &["/involvedObject/kind"], ""),
    ("involvedObject.namespace", &["/involvedObject/namespace"], ""),
    ("involvedObject.name", &["/involvedObject/name"], ""),
    ("involvedObject.uid", &["/involvedObject/uid"], ""),
    ("involvedObject.apiVersion", &["/involvedObject/apiVersion"], ""),
    ("involvedObject.resourceVersion", &["/involvedObject/resourceVersion"], ""),
    ("involvedObject.fieldPath", &["/involvedObject/fieldPath"], ""),
    ("reportingComponent", &["/reportingComponent", "/reportingController"], ""),
    ("source", &["/source/component", "/reportingComponent"], ""),
    ("regarding.kind", &["/regarding/kind", "/involvedObject/kind"], ""),
    ("regarding.namespace", &["/regarding/namespace", "/involvedObject/namespace"], ""),
    ("regarding.name", &["/regarding/name", "/involvedObject/name"], ""),
    ("regarding.uid", &["/regarding/uid", "/involvedObject/uid"], ""),
    ("regarding.apiVersion", &["/regarding/apiVersion", "/involvedObject/apiVersion"], ""),
    (
        "regarding.resourceVersion",
        &["/regarding/resourceVersion", "/involvedObject/resourceVersion"],
        "",
    ),
    ("regarding.fieldPath", &["/regarding/fieldPath", "/involvedObject/fieldPath"], ""),
    ("reportingController", &["/reportingController", "/reportingComponent"], ""),
    ("reason", &["/reason"], ""),
];
const TYPE: SupportedField = ("type", &["/type"], "");

fn supported_fields(kind: &Kind) -> Vec<SupportedField> {
    let mut fields = vec![NAME];
    if kind.namespaced || !kind.group.is_empty() {
        fields.push(NAMESPACE);
    }
    match (kind.group, kind.plural) {
        ("", "pods") => fields.extend(PODS),
        ("", "services") => fields.extend(SERVICES),
        ("", "nodes") => fields.extend(NODES),
        ("", "namespaces") => fields.extend(NAMESPACES),
        (group, "events") => {
            let old = group.is_empty();
            let own = |name: &str| match name {
                "reason" => true,
                "reportingComponent" | "source" => old,
                "reportingController" => !old,
                other => other.starts_with("involvedObject.") == old,
            };
            fields.extend(EVENTS.into_iter().filter(|(name, ..)| own(name)));
            fields.push(TYPE);
        }
        _ => {}
    }
    fields
}

impl Field {
    fn of(kind: &Kind, name: &str) -> Result<Self, String> {
        let fields = supported_fields(kind);
        if let Some((_, pointers, default)) = fields.iter().find(|(known, ..)| *known == name) {
            return Ok(Self { pointers, default });
        }
        if fields.len() > 2 || !kind.namespaced && kind.group.is_empty() {
            return Err(format!("field label not supported: {name}"));
        }
        let known = "only \"metadata.name\", \"metadata.namespace\"";
        Err(format!("{name:?} is not a known field selector: {known}"))
    }
}

impl Term {
    pub(super) fn matches(&self, object: &Value) -> bool {
        let found = self.field.pointers.iter().find_map(|pointer| match object.pointer(pointer) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            other => other,
        });
        let same = match found {
            None => self.value == self.field.default,
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(whether)) => self.value == if *whether { "true" } else { "false" },
            Some(_) => false,
        };
        same == self.equal
    }
}

/// The terms of a selector, or what is wrong with it.
pub(super) fn parse(kind: &Kind, text: &str) -> Result<Vec<Term>, String> {
    let terms = split(text).into_iter().filter(|term| !term.is_empty());
    terms.map(|one| term(kind, text, one)).collect()
}

fn term(kind: &Kind, whole: &str, text: &str) -> Result<Term, String> {
    let (name, equal, value) = comparison(text)
        .ok_or_else(|| format!("invalid selector: '{whole}'; can't understand '{text}'"))?;
    let value = unescape(value).map_err(|why| format!("invalid field selector: {why}"))?;
    Ok(Term { field: Field::of(kind, name)?, equal, value })
}

/// Splits at commas, but not at `\,`.
fn split(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, one) in text.char_indices() {
        match one {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn comparison(text: &str) -> Option<(&str, bool, &str)> {
    let at = text.find('=')?;
    let (name, value) = (&text[..at], &text[at + 1..]);
    if let Some(name) = name.strip_suffix('!') {
        return Some((name, false, value));
    }
    Some((name, true, value.strip_prefix('=').unwrap_or(value)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut unescaped = String::new();
    let mut characters = value.chars();
    while let Some(one) = characters.next() {
        match one {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => unescaped.push(next),
                Some(next) => return Err(format!("invalid escape sequence: \\{next}")),
                None => return Err("invalid escape sequence: \\".into()),
            },
            '=' | ',' => {
                return Err(format!("unescaped character in value: {}", u32::from(one)));
            }
            other => unescaped.push(other),
        }
    }
    Ok(unescaped)
}
