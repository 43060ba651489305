//! `status.phase=Running,spec.nodeName!=a`: only the fields that each kind offers.

use serde_json::Value;

use crate::objects::kind::Kind;

/// One comparison of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    field: Field,
    equal: bool,
    value: String,
}

/// Where a field is: the first of these places that has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    places: &'static [&'static str],
    otherwise: &'static str,
}

type Offer = (&'static str, &'static [&'static str], &'static str);

const NAME: Offer = ("metadata.name", &["/metadata/name"], "");
const NAMESPACE: Offer = ("metadata.namespace", &["/metadata/namespace"], "");
const PODS: [Offer; 9] = [
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
const SERVICES: [Offer; 2] =
    [("spec.clusterIP", &["/spec/clusterIP"], ""), ("spec.type", &["/spec/type"], "")];
const NODES: [Offer; 1] = [("spec.unschedulable", &["/spec/unschedulable"], "false")];
const NAMESPACES: [Offer; 1] = [("status.phase", &["/status/phase"], "")];
/// Events have two doors and one store: a field is looked for under both names.
const EVENTS: [Offer; 18] = [
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
const TYPE: Offer = ("type", &["/type"], "");

fn offered(kind: &Kind) -> Vec<Offer> {
    let mut offers = vec![NAME];
    if kind.namespaced || !kind.group.is_empty() {
        offers.push(NAMESPACE);
    }
    match (kind.group, kind.plural) {
        ("", "pods") => offers.extend(PODS),
        ("", "services") => offers.extend(SERVICES),
        ("", "nodes") => offers.extend(NODES),
        ("", "namespaces") => offers.extend(NAMESPACES),
        (group, "events") => {
            let old = group.is_empty();
            let own = |name: &str| match name {
                "reason" => true,
                "reportingComponent" | "source" => old,
                "reportingController" => !old,
                other => other.starts_with("involvedObject.") == old,
            };
            offers.extend(EVENTS.into_iter().filter(|(name, ..)| own(name)));
            offers.push(TYPE);
        }
        _ => {}
    }
    offers
}

impl Field {
    fn of(kind: &Kind, name: &str) -> Result<Self, String> {
        let offers = offered(kind);
        if let Some((_, places, otherwise)) = offers.iter().find(|(known, ..)| *known == name) {
            return Ok(Self { places, otherwise });
        }
        if offers.len() > 2 || !kind.namespaced && kind.group.is_empty() {
            return Err(format!("field label not supported: {name}"));
        }
        let known = "only \"metadata.name\", \"metadata.namespace\"";
        Err(format!("{name:?} is not a known field selector: {known}"))
    }
}

impl Term {
    pub(super) fn holds(&self, object: &Value) -> bool {
        let found = self.field.places.iter().find_map(|place| match object.pointer(place) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            other => other,
        });
        let same = match found {
            None => self.value == self.field.otherwise,
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(whether)) => self.value == if *whether { "true" } else { "false" },
            Some(_) => false,
        };
        same == self.equal
    }
}

/// The comparisons of a selector, or what is wrong with it.
pub(super) fn parse(kind: &Kind, text: &str) -> Result<Vec<Term>, String> {
    let terms = split(text).into_iter().filter(|term| !term.is_empty());
    terms.map(|one| term(kind, text, one)).collect()
}

fn term(kind: &Kind, whole: &str, text: &str) -> Result<Term, String> {
    let (name, equal, value) = comparison(text)
        .ok_or_else(|| format!("invalid selector: '{whole}'; can't understand '{text}'"))?;
    let value = plain(value).map_err(|why| format!("invalid field selector: {why}"))?;
    Ok(Term { field: Field::of(kind, name)?, equal, value })
}

/// Cut at commas, but not at `\,`.
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

fn plain(value: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut characters = value.chars();
    while let Some(one) = characters.next() {
        match one {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => return Err(format!("invalid escape sequence: \\{next}")),
                None => return Err("invalid escape sequence: \\".into()),
            },
            '=' | ',' => {
                return Err(format!("unescaped character in value: {}", u32::from(one)));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}
