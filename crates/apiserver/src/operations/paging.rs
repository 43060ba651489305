//! Lists: which version, which part of it. Pure.
//!
//! ```text
//!  limit=2             a b │ c d e      continue = version 7, from c ─┐
//!  limit=2&continue=…      │ c d │ e    as it was at version 7 ◄──────┘
//! ```

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::request::{Options, not_a_number};
use crate::status::StatusError;
use crate::store::{Forgotten, Object, Objects, Room, Store, range};

const FORM: &str = "meta.k8s.io/v1";
const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) version: u64,
    pub(crate) resume: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl Part {
    /// The list's metadata.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = serde_json::json!({"resourceVersion": self.version.to_string()});
        if let Some(resume) = &self.resume {
            metadata["continue"] = resume.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn encode(version: i64, start: &str) -> String {
        let token = Self { v: FORM.into(), rv: version, start: start.into() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, StatusError> {
        let wrong = |why: &str| {
            StatusError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| wrong(&error.to_string()))?;
        let token: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?;
        if token.v != FORM {
            let why = format!("server does not recognize this encoded version {:?}", token.v);
            return Err(wrong(&why));
        }
        if token.rv == 0 {
            return Err(wrong("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(wrong("encoded start key empty (version meta.k8s.io/v1)"));
        }
        Ok(token)
    }
}

/// Which state of the world a list shows.
#[derive(Debug, PartialEq, Eq)]
struct View {
    /// `None`: the present.
    version: Option<u64>,
    from: Option<String>,
    limit: usize,
}

/// A number that `resourceVersion` may be; empty is 0.
pub(crate) fn version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let why =
        || format!("resourceVersion: Invalid value: {text:?}: {}", not_a_number("ParseUint", text));
    text.parse().map_err(|_| why())
}

/// Refuses versions that have not come yet.
pub(crate) fn not_ahead(version: u64, current: u64) -> Result<(), StatusError> {
    if version <= current {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    Err(StatusError::too_large_version(message))
}

fn view(options: &Options, current: u64) -> Result<View, StatusError> {
    let limit = usize::try_from(options.limit).unwrap_or(0);
    let asked = version(&options.version)
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    if !options.resume.is_empty() {
        let token = Token::decode(&options.resume)?;
        if asked > 0 {
            let why = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(why));
        }
        let version = u64::try_from(token.rv).ok();
        not_ahead(version.unwrap_or(0), current)?;
        return Ok(View { version, from: Some(token.start), limit });
    }
    not_ahead(asked, current)?;
    // Any state will do for version 0, and it comes whole.
    let limit = if options.version == "0" { 0 } else { limit };
    let exact = match options.version_match.as_str() {
        "Exact" => true,
        "NotOlderThan" => false,
        _ => asked > 0 && limit > 0,
    };
    Ok(View { version: exact.then_some(asked), from: None, limit })
}

/// Whether a list may show an older state than the present.
pub(crate) fn may_be_stale(options: &Options) -> bool {
    options.version == "0" && options.resume.is_empty()
}

/// The part of the objects under a prefix that is asked for. `past` is the version to show to whom any will do.
pub(crate) fn list(
    store: &Store,
    (room, prefix): (Room, &str),
    options: &Options,
    past: Option<u64>,
    selects: impl Fn(&Object) -> bool,
) -> Result<Part, StatusError> {
    options.check_list()?;
    let mut view = view(options, store.version())?;
    if may_be_stale(options) {
        view.version = past;
    }
    let version = view.version.unwrap_or(store.version());
    let objects = store.at(room, version).map_err(|Forgotten(_)| match &view.from {
        Some(start) => StatusError::expired_continue(INCONSISTENT, Token::encode(-1, start)),
        None => StatusError::expired(EXPIRED),
    })?;
    Ok(cut(&objects, prefix, &view, version, options.selects_all(), selects))
}

fn cut(
    objects: &Objects,
    prefix: &str,
    view: &View,
    version: u64,
    selects_all: bool,
    selects: impl Fn(&Object) -> bool,
) -> Part {
    let from = view.from.as_ref().map(|start| format!("{prefix}{start}"));
    let mut rest = range(objects, prefix, from.as_deref()).filter(|(_, object)| selects(object));
    let limit = if view.limit == 0 { usize::MAX } else { view.limit };
    let part: Vec<_> = rest.by_ref().take(limit).collect();
    let remaining = if part.len() == limit { rest.count() } else { 0 };
    let last = part.last().filter(|_| remaining > 0).map(|(key, _)| {
        let version = i64::try_from(version).unwrap_or(-1);
        Token::encode(version, &format!("{}\0", &key[prefix.len()..]))
    });
    Part {
        objects: part.into_iter().map(|(_, object)| Arc::clone(object)).collect(),
        version,
        remaining: (last.is_some() && selects_all).then_some(remaining),
        resume: last,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    const PODS: Room = ("", "pods");

    fn store() -> Store {
        let mut store = Store::new(100, 1);
        for key in ["x/a", "x/b", "x/c", "x/d", "y/e"] {
            store.put(PODS, key, json!({"metadata": {"name": key}}), Instant::now());
        }
        store
    }

    fn listed(store: &Store, prefix: &str, query: &str) -> Result<Part, StatusError> {
        list(store, (PODS, prefix), &Options::parse(query)?, None, |_| true)
    }

    fn names(part: &Part) -> Vec<&str> {
        part.objects.iter().map(|object| object.meta("name")).collect()
    }

    #[test]
    fn later_parts_are_of_the_version_of_the_first() {
        let mut store = store();
        let first = listed(&store, "x/", "limit=2").unwrap();
        assert_eq!(names(&first), ["x/a", "x/b"]);
        assert_eq!((first.version, first.remaining), (6, Some(2)));
        store.remove(PODS, "x/c", Instant::now());
        store.put(PODS, "x/bb", json!({"metadata": {"name": "x/bb"}}), Instant::now());
        let resume = first.resume.unwrap();
        let second = listed(&store, "x/", &format!("limit=2&continue={resume}")).unwrap();
        assert_eq!(names(&second), ["x/c", "x/d"]);
        assert_eq!((second.version, second.remaining, second.resume), (6, None, None));
        store.compact();
        let error = listed(&store, "x/", &format!("limit=2&continue={resume}")).unwrap_err();
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (410, "Expired", INCONSISTENT)
        );
        let rest = listed(&store, "x/", &format!("continue={}", error.resume.unwrap())).unwrap();
        assert_eq!(names(&rest), ["x/bb", "x/d"]);
    }

    #[test]
    fn versions_are_met_as_kubernetes_meets_them() {
        let mut store = store();
        let rows = [
            ("", Ok(5)),
            ("resourceVersion=0&limit=2", Ok(5)),
            ("resourceVersion=3", Ok(5)),
            ("resourceVersion=3&resourceVersionMatch=NotOlderThan", Ok(5)),
            ("resourceVersion=3&resourceVersionMatch=Exact", Ok(2)),
            ("resourceVersion=3&limit=9", Ok(2)),
            ("resourceVersion=7", Err((504, "Timeout: Too large resource version: 7, current: 6"))),
            (
                "resourceVersion=x",
                Err((
                    400,
                    "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \
                     \"x\": invalid syntax",
                )),
            ),
            (
                "resourceVersion=1&continue=!",
                Err((
                    400,
                    "invalid continue token: continue key is not valid: Invalid symbol 33, offset 0.",
                )),
            ),
        ];
        let told = |store: &Store, query: &str| match listed(store, "", query) {
            Ok(part) => Ok(part.objects.len()),
            Err(error) => Err((error.code, error.message)),
        };
        for (query, expected) in rows {
            assert_eq!(
                told(&store, query),
                expected.map_err(|(code, text)| (code, text.to_owned())),
                "{query}"
            );
        }
        store.compact();
        let old = told(&store, "resourceVersion=3&resourceVersionMatch=Exact");
        assert_eq!(old, Err((410, EXPIRED.to_owned())));
    }

    #[test]
    fn what_is_left_is_not_counted_where_something_is_selected() {
        let options = Options::parse("limit=1&labelSelector=a").unwrap();
        let part = list(&store(), (PODS, ""), &options, None, |_| true).unwrap();
        assert_eq!((part.objects.len(), part.remaining, part.resume.is_some()), (1, None, true));
    }
}
