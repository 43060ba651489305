//! Requests as rows of a table.
//!
//! A path starts with the plural of a kind (`services/web/status`), which is completed to a full
//! path, or with a slash, and is sent as it is. In paths and bodies `{ns}` is the namespace of the
//! group, and `{word}` is a value that `keep` took from an earlier answer.

use std::collections::BTreeMap;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use serde_json::Value;

use crate::protobuf;

/// Requests that run in a namespace of their own, one after the other.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

pub(crate) fn group(name: &'static str, steps: Vec<Step>) -> Group {
    Group { name, steps }
}

/// One request.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Values to keep for later requests: their words, and JSON pointers into the answer.
    pub(crate) kept: Vec<(&'static str, &'static str)>,
}

/// The kept values by their words.
pub(crate) type Words = BTreeMap<&'static str, String>;

impl Step {
    fn new(method: Method, name: impl Into<String>, path: impl Into<String>) -> Self {
        let (path, headers) = (path.into(), vec![("user-agent", "suite/1".to_owned())]);
        Self { name: name.into(), method, path, headers, body: Vec::new(), kept: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    /// A body of any media type.
    pub(crate) fn raw(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", kind)
    }

    fn json(self, body: &Value) -> Self {
        self.raw("application/json", body.to_string())
    }

    /// Keeps the value at `pointer` of the answer.
    pub(crate) fn keep(mut self, word: &'static str, pointer: &'static str) -> Self {
        self.kept.push((word, pointer));
        self
    }

    /// Asks for a table.
    pub(crate) fn table(self) -> Self {
        self.header(
            "accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,\
             application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        )
    }

    /// Whether it is a dry run.
    pub(crate) fn is_dry(&self) -> bool {
        self.path.contains("dryRun=All")
    }

    /// The text of the request: values in it are not replaced in the answers.
    pub(crate) fn text(&self, words: &Words) -> String {
        let body = String::from_utf8_lossy(&self.body);
        format!("{} {} {}", self.method, fill(&address(&self.path), words), fill(&body, words))
    }

    pub(crate) fn request(&self, words: &Words) -> Request<Vec<u8>> {
        let uri = fill(&address(&self.path), words);
        let mut builder = Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            builder = builder.header(*name, value);
        }
        // Only bodies that are text can have words to fill in.
        let body = match std::str::from_utf8(&self.body) {
            Ok(text) => fill(text, words).into_bytes(),
            Err(_) => self.body.clone(),
        };
        builder.body(body).unwrap()
    }
}

/// The same request in protobuf: the answer, unless the request asks for another form, and the body, if
/// it is an object that the types of Kubernetes can hold.
pub(crate) fn in_protobuf(mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
    let form = HeaderValue::from_static(protobuf::MEDIA_TYPE);
    request.headers_mut().entry(ACCEPT).or_insert_with(|| form.clone());
    let is_json =
        request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let Ok(mut object) = serde_json::from_slice::<Value>(request.body()) else { return request };
    if *request.method() == Method::DELETE && object["kind"].is_null() && object.is_object() {
        object["kind"] = "DeleteOptions".into();
        object["apiVersion"] = "v1".into();
    }
    if let Some(body) =
        protobuf::write(&object).filter(|_| is_json && *request.method() != Method::PATCH)
    {
        *request.body_mut() = body;
        request.headers_mut().insert(CONTENT_TYPE, form);
    }
    request
}

pub(crate) fn get(name: &str, path: &str) -> Step {
    Step::new(Method::GET, name, path)
}

pub(crate) fn post(name: &str, path: &str, body: Value) -> Step {
    Step::new(Method::POST, name, path).json(&body)
}

pub(crate) fn put(name: &str, path: &str, body: Value) -> Step {
    Step::new(Method::PUT, name, path).json(&body)
}

pub(crate) fn delete(name: &str, path: &str) -> Step {
    Step::new(Method::DELETE, name, path)
}

pub(crate) fn delete_with(name: &str, path: &str, options: Value) -> Step {
    Step::new(Method::DELETE, name, path).json(&options)
}

pub(crate) fn other(method: &str, name: &str, path: &str) -> Step {
    Step::new(method.parse().unwrap(), name, path)
}

pub(crate) fn json_patch(name: &str, path: &str, body: Value) -> Step {
    patched(name, path, "application/json-patch+json", &body)
}

pub(crate) fn merge_patch(name: &str, path: &str, body: Value) -> Step {
    patched(name, path, "application/merge-patch+json", &body)
}

pub(crate) fn strategic(name: &str, path: &str, body: Value) -> Step {
    patched(name, path, "application/strategic-merge-patch+json", &body)
}

/// Server-side apply; `path` has the query with the manager.
pub(crate) fn apply(name: &str, path: &str, body: Value) -> Step {
    patched(name, path, "application/apply-patch+yaml", &body)
}

fn patched(name: &str, path: &str, form: &str, body: &Value) -> Step {
    Step::new(Method::PATCH, name, path).raw(form, body.to_string())
}

const SERVED: [(&str, &str, bool); 12] = [
    ("configmaps", "/api/v1", true),
    ("pods", "/api/v1", true),
    ("services", "/api/v1", true),
    ("events", "/api/v1", true),
    ("nodes", "/api/v1", false),
    ("namespaces", "/api/v1", false),
    ("deployments", "/apis/apps/v1", true),
    ("replicasets", "/apis/apps/v1", true),
    ("leases", "/apis/coordination.k8s.io/v1", true),
    ("endpointslices", "/apis/discovery.k8s.io/v1", true),
    ("newevents", "/apis/events.k8s.io/v1", true),
    ("servicecidrs", "/apis/networking.k8s.io/v1", false),
];

/// The full path.
fn address(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (plural, rest) = path.split_at(end);
    let (_, api, namespaced) = SERVED.iter().find(|(known, ..)| *known == plural).unwrap();
    // `newevents` stands for events of the group events.k8s.io.
    let plural = plural.trim_start_matches("new");
    if *namespaced {
        format!("{api}/namespaces/{{ns}}/{plural}{rest}")
    } else {
        format!("{api}/{plural}{rest}")
    }
}

fn fill(text: &str, words: &Words) -> String {
    let mut text = text.to_owned();
    for (word, value) in words {
        text = text.replace(&format!("{{{word}}}"), value);
    }
    text
}
