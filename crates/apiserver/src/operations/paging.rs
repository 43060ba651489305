//! Lists: which version of the objects, and which page of it. Nothing here does I/O.
//!
//! ```text
//!  limit=2             a b │ c d e      continue = version 7, from c ─┐
//!  limit=2&continue=…      │ c d │ e    as it was at version 7 ◄──────┘
//! ```

use std::sync::Arc;
use zonewise_common::api_group::METADATA_V1;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::request::{Options, not_a_number};
use crate::objects::kind::GroupResource;
use crate::status::StatusError;
use crate::store::{Compacted, Object, Objects, Store, range};

/// The version of continue tokens, as in kube-apiserver
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/storage/continue.go>).
const TOKEN_VERSION: &str = METADATA_V1;
const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent \
    list result. You can start a new list without the continue parameter, or use the continue \
    token in this response to retrieve the remainder of the results. Continuing with the provided \
    token results in an inconsistent list - objects that were created, modified, or deleted \
    between the time the first chunk was returned and now may show up in the list.";

/// A list, or a page of one.
#[derive(Debug)]
pub(crate) struct ListPage {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) version: u64,
    pub(crate) continue_token: Option<String>,
    /// `remainingItemCount`, which lists with selectors do not have.
    pub(crate) remaining: Option<usize>,
}

impl ListPage {
    /// The list's metadata.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = serde_json::json!({"resourceVersion": self.version.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Where the next page begins, with the field names of kube-apiserver's tokens.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ContinueToken {
    /// [`TOKEN_VERSION`].
    v: String,
    /// The resourceVersion of the first page; -1 for the present state.
    rv: i64,
    /// The key to begin with, without the prefix of the namespace.
    start: String,
}

impl ContinueToken {
    fn encode(version: i64, start: &str) -> String {
        let token = Self { v: TOKEN_VERSION.into(), rv: version, start: start.into() };
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
        if token.v != TOKEN_VERSION {
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

/// What a list shows.
#[derive(Debug, PartialEq, Eq)]
struct View {
    /// `None`: the present state.
    version: Option<u64>,
    from: Option<String>,
    /// 0: no limit.
    limit: usize,
}

/// The number in `resourceVersion`; empty is 0.
pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let why =
        || format!("resourceVersion: Invalid value: {text:?}: {}", not_a_number("ParseUint", text));
    text.parse().map_err(|_| why())
}

/// Refuses versions that do not exist yet.
pub(crate) fn check_not_ahead(version: u64, current: u64) -> Result<(), StatusError> {
    if version <= current {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    Err(StatusError::too_large_version(message))
}

fn view(options: &Options, current: u64) -> Result<View, StatusError> {
    let limit = usize::try_from(options.limit).unwrap_or(0);
    let asked = parse_version(&options.resource_version)
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    if !options.continue_token.is_empty() {
        let token = ContinueToken::decode(&options.continue_token)?;
        if asked > 0 {
            let why = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(why));
        }
        let version = u64::try_from(token.rv).ok();
        check_not_ahead(version.unwrap_or(0), current)?;
        return Ok(View { version, from: Some(token.start), limit });
    }
    check_not_ahead(asked, current)?;
    // With version 0, kube-apiserver answers from its cache and ignores the limit.
    let limit = if options.resource_version == "0" { 0 } else { limit };
    let exact = match options.resource_version_match.as_str() {
        "Exact" => true,
        "NotOlderThan" => false,
        _ => asked > 0 && limit > 0,
    };
    Ok(View { version: exact.then_some(asked), from: None, limit })
}

/// Whether a list may show an older state than the present.
pub(crate) fn may_be_stale(options: &Options) -> bool {
    options.resource_version == "0" && options.continue_token.is_empty()
}

/// The objects of a resource whose keys begin with a prefix.
#[derive(Clone, Copy)]
pub(crate) struct KeyRange<'a> {
    pub(crate) resource: GroupResource,
    /// `namespace/`, or empty for all namespaces.
    pub(crate) prefix: &'a str,
}

/// The page that the options ask for. Lists that may be stale show `stale_version`, if there is
/// one.
pub(crate) fn list(
    store: &Store,
    range: KeyRange<'_>,
    options: &Options,
    stale_version: Option<u64>,
    selects: impl Fn(&Object) -> bool,
) -> Result<ListPage, StatusError> {
    options.check_list()?;
    let mut view = view(options, store.version())?;
    if may_be_stale(options) {
        view.version = stale_version;
    }
    let version = view.version.unwrap_or(store.version());
    let objects =
        store.snapshot(range.resource, version).map_err(|Compacted(_)| match &view.from {
            Some(start) => {
                StatusError::expired_continue(INCONSISTENT, ContinueToken::encode(-1, start))
            }
            None => StatusError::expired(EXPIRED),
        })?;
    Ok(page(&objects, range.prefix, &view, version, options.selects_all(), selects))
}

fn page(
    objects: &Objects,
    prefix: &str,
    view: &View,
    version: u64,
    selects_all: bool,
    selects: impl Fn(&Object) -> bool,
) -> ListPage {
    let from = view.from.as_ref().map(|start| format!("{prefix}{start}"));
    let mut rest = range(objects, prefix, from.as_deref()).filter(|(_, object)| selects(object));
    let limit = if view.limit == 0 { usize::MAX } else { view.limit };
    let page: Vec<_> = rest.by_ref().take(limit).collect();
    let remaining = if page.len() == limit { rest.count() } else { 0 };
    let next = page.last().filter(|_| remaining > 0).map(|(key, _)| {
        let version = i64::try_from(version).unwrap_or(-1);
        ContinueToken::encode(version, &format!("{}\0", &key[prefix.len()..]))
    });
    ListPage {
        objects: page.into_iter().map(|(_, object)| Arc::clone(object)).collect(),
        version,
        remaining: (next.is_some() && selects_all).then_some(remaining),
        continue_token: next,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use serde_json::json;

    use super::*;

    const PODS: GroupResource = ("", "pods");

    fn store() -> Store {
        let mut store = Store::new(100, 1);
        for key in ["x/a", "x/b", "x/c", "x/d", "y/e"] {
            store.put(PODS, key, json!({"metadata": {"name": key}}), Instant::now());
        }
        store
    }

    fn listed(store: &Store, prefix: &str, query: &str) -> Result<ListPage, StatusError> {
        let range = KeyRange { resource: PODS, prefix };
        list(store, range, &Options::parse(query)?, None, |_| true)
    }

    fn names(page: &ListPage) -> Vec<&str> {
        page.objects.iter().map(|object| object.meta("name")).collect()
    }

    #[test]
    fn later_pages_have_the_version_of_the_first() {
        let mut store = store();
        let first = listed(&store, "x/", "limit=2").unwrap();
        assert_eq!(names(&first), ["x/a", "x/b"]);
        assert_eq!((first.version, first.remaining), (6, Some(2)));
        store.remove(PODS, "x/c", Instant::now());
        store.put(PODS, "x/bb", json!({"metadata": {"name": "x/bb"}}), Instant::now());
        let resume = first.continue_token.unwrap();
        let second = listed(&store, "x/", &format!("limit=2&continue={resume}")).unwrap();
        assert_eq!(names(&second), ["x/c", "x/d"]);
        assert_eq!((second.version, second.remaining, second.continue_token), (6, None, None));
        store.compact();
        let error = listed(&store, "x/", &format!("limit=2&continue={resume}")).unwrap_err();
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (410, "Expired", INCONSISTENT)
        );
        let rest =
            listed(&store, "x/", &format!("continue={}", error.continue_token.unwrap())).unwrap();
        assert_eq!(names(&rest), ["x/bb", "x/d"]);
    }

    #[test]
    fn versions_mean_what_they_mean_in_kubernetes() {
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
                    "invalid resource version: resourceVersion: Invalid value: \"x\": \
                     strconv.ParseUint: parsing \"x\": invalid syntax",
                )),
            ),
            (
                "resourceVersion=1&continue=!",
                Err((
                    400,
                    "invalid continue token: continue key is not valid: Invalid symbol 33, offset \
                     0.",
                )),
            ),
        ];
        let outcome = |store: &Store, query: &str| match listed(store, "", query) {
            Ok(page) => Ok(page.objects.len()),
            Err(error) => Err((error.code, error.message)),
        };
        for (query, expected) in rows {
            assert_eq!(
                outcome(&store, query),
                expected.map_err(|(code, text)| (code, text.to_owned())),
                "{query}"
            );
        }
        store.compact();
        let old = outcome(&store, "resourceVersion=3&resourceVersionMatch=Exact");
        assert_eq!(old, Err((410, EXPIRED.to_owned())));
    }

    #[test]
    fn remaining_items_are_not_counted_with_a_selector() {
        let options = Options::parse("limit=1&labelSelector=a").unwrap();
        let page =
            list(&store(), KeyRange { resource: PODS, prefix: "" }, &options, None, |_| true)
                .unwrap();
        assert_eq!(
            (page.objects.len(), page.remaining, page.continue_token.is_some()),
            (1, None, true)
        );
    }
}
