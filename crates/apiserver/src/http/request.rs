//! What a request means: method, path and query in; kind, verb and options out. No I/O.
//!
//! ```text
//!  GET /api/v1/namespaces/shop/pods/cart/status?…
//!          └ group, version  └ namespace  └ name └ subresource
//!  GET with a name is `get`; without one it is `list`, or `watch` with watch=true.
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::kubectl::reviews::Review;
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

/// `FieldManagerMaxLength` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go>.
const MAX_FIELD_MANAGER: usize = 128;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Resource(ResourcePath),
    NonResource(NonResourceUrl),
}

/// A path to the objects of a kind, or to one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
}

impl ResourcePath {
    /// The name; empty if the path has none.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The key of the object in the store.
    pub(crate) fn key(&self) -> String {
        crate::store::key(self.namespace.as_deref(), self.name())
    }

    /// The beginning of the keys of all these objects in the store.
    pub(crate) fn prefix(&self) -> String {
        self.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default()
    }
}

/// A part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Binding,
    Scale,
}

/// A path that does not lead to objects: a "non-resource URL" in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NonResourceUrl {
    Health,
    Version,
    CoreVersions,
    Groups,
    Group(String),
    Resources(String, String),
    OpenApiV2,
    OpenApiV3,
    OpenApiV3Of(String, String),
    Review(Review),
    Faults,
}

/// The verb of a request, as in RBAC rules and audit logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// What a deletion does to the dependents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The query parameters, with the names that they have there unless noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) limit: i64,
    /// `continue`, which is a keyword of Rust.
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) watch: bool,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: String,
    pub(crate) force: Option<bool>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) include_object: String,
    pub(crate) pretty: Option<bool>,
}

/// What a path leads to, or 404.
pub(crate) fn route(path: &str) -> Result<Route, StatusError> {
    let missing = StatusError::no_such_path;
    // An escaped slash becomes a slash: no name contains one.
    let path = decode(path).ok_or_else(|| StatusError::bad_request("the path is not valid"))?;
    let mut segments: Vec<&str> = path.split('/').skip(1).collect();
    if segments.len() > 1 && segments.last() == Some(&"") {
        segments.pop();
    }
    if let Some(url) = non_resource(&segments) {
        return Ok(Route::NonResource(url));
    }
    if let Some(subresource) = of_kubelet(&segments) {
        return Err(StatusError::no_kubelet(subresource));
    }
    match &segments[..] {
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => None,
    }
    .map(Route::Resource)
    .ok_or_else(missing)
}

fn non_resource(segments: &[&str]) -> Option<NonResourceUrl> {
    Some(match segments {
        ["healthz" | "livez" | "readyz", ..] => NonResourceUrl::Health,
        ["version"] => NonResourceUrl::Version,
        ["api"] => NonResourceUrl::CoreVersions,
        ["apis"] => NonResourceUrl::Groups,
        ["api", version] => NonResourceUrl::Resources(String::new(), (*version).into()),
        ["apis", group] => NonResourceUrl::Group((*group).into()),
        ["apis", group, version] => NonResourceUrl::Resources((*group).into(), (*version).into()),
        ["openapi", "v2"] => NonResourceUrl::OpenApiV2,
        ["openapi", "v3"] => NonResourceUrl::OpenApiV3,
        ["openapi", "v3", "api", version] => {
            NonResourceUrl::OpenApiV3Of(String::new(), (*version).into())
        }
        ["openapi", "v3", "apis", group, version] => {
            NonResourceUrl::OpenApiV3Of((*group).into(), (*version).into())
        }
        ["apis", group, version, plural] => {
            NonResourceUrl::Review(Review::find(group, version, plural)?)
        }
        ["zonewise", "faults"] => NonResourceUrl::Faults,
        _ => return None,
    })
}

/// The part of a Pod or Node that kube-apiserver asks the kubelet for.
fn of_kubelet<'a>(segments: &[&'a str]) -> Option<&'a str> {
    match segments {
        [
            "api",
            "v1",
            "namespaces",
            _,
            "pods",
            _,
            part @ ("log" | "exec" | "attach" | "portforward" | "proxy"),
            ..,
        ]
        | ["api", "v1", "nodes", _, part @ "proxy", ..] => Some(part),
        _ => None,
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Option<ResourcePath> {
    let (namespace, plural, rest) = match rest {
        ["namespaces", _, "status"] | ["namespaces"] | ["namespaces", _] => {
            (None, "namespaces", &rest[1..])
        }
        ["namespaces", namespace, plural, rest @ ..] => (Some(*namespace), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
        [] => return None,
    };
    let kind = Kind::find(group, version, plural)?;
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, "status"] if kind.has_status => (Some(*name), Some(Subresource::Status)),
        [name, "scale"] if kind.has_scale => (Some(*name), Some(Subresource::Scale)),
        [name, "binding"] if kind.plural == "pods" => (Some(*name), Some(Subresource::Binding)),
        _ => return None,
    };
    let fits = match namespace {
        Some(namespace) => kind.namespaced && !namespace.is_empty(),
        None => !kind.namespaced || name.is_none(),
    };
    let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
    fits.then_some(ResourcePath { kind, namespace, name, subresource })
}

/// The verb that a method means for a path.
pub(crate) fn verb(
    method: &Method,
    resource: &ResourcePath,
    options: &Options,
) -> Result<Verb, StatusError> {
    let in_one_scope = resource.namespace.is_some() || !resource.kind.namespaced;
    let is_namespace = resource.kind.plural == "namespaces";
    let verb = match (method.as_str(), resource.name.is_some(), resource.subresource) {
        ("POST", true, Some(Subresource::Binding)) => Verb::Create,
        (_, _, Some(Subresource::Binding)) => return Err(StatusError::method_not_allowed()),
        ("GET", true, _) => Verb::Get,
        ("GET", false, _) if options.watch => Verb::Watch,
        ("GET", false, _) => Verb::List,
        ("POST", false, _) if in_one_scope => Verb::Create,
        ("PUT", true, _) => Verb::Update,
        ("PATCH", true, _) => Verb::Patch,
        ("DELETE", true, None) => Verb::Delete,
        ("DELETE", false, _) if in_one_scope && !is_namespace => Verb::DeleteCollection,
        _ => return Err(StatusError::method_not_allowed()),
    };
    Ok(verb)
}

impl Options {
    /// From the query of a URL. If a parameter is repeated, the first one counts.
    pub(crate) fn parse(query: &str) -> Result<Self, StatusError> {
        let mut pairs = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(name), Some(value)) = (decode_query(name), decode_query(value)) {
                pairs.entry(name).or_insert(value);
            }
        }
        let text = |name: &str| pairs.get(name).cloned().unwrap_or_default();
        let flag = |name: &str| pairs.get(name).map(|value| is_true(value));
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: number(&text("limit"))?.unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            watch: flag("watch").unwrap_or(false),
            timeout_seconds: number(&text("timeoutSeconds"))?,
            allow_watch_bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: flag("sendInitialEvents"),
            dry_run: dry_run(&text("dryRun"))?,
            field_manager: text("fieldManager"),
            field_validation: text("fieldValidation"),
            force: flag("force"),
            propagation: propagation(&text("propagationPolicy"))?,
            grace_period_seconds: number(&text("gracePeriodSeconds"))?,
            include_object: text("includeObject"),
            pretty: flag("pretty"),
        })
    }

    /// Whether there are no selectors.
    pub(crate) fn selects_all(&self) -> bool {
        self.label_selector.is_empty() && self.field_selector.is_empty()
    }

    /// Checks the options of a list.
    pub(crate) fn check_list(&self) -> Result<(), StatusError> {
        let mut causes = self.check_match();
        if self.send_initial_events.is_some() {
            causes.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        refuse_options("ListOptions", &causes)
    }

    /// Checks the options of a write.
    pub(crate) fn check_write(&self, verb: Verb) -> Result<(), StatusError> {
        let options = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => return Ok(()),
        };
        let mut causes = Vec::new();
        if self.field_manager.len() > MAX_FIELD_MANAGER {
            causes.push(FieldError::too_long("fieldManager", MAX_FIELD_MANAGER));
        }
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&self.field_validation.as_str()) {
            let value = self.field_validation.as_str().into();
            causes.push(FieldError::unsupported("fieldValidation", &value, &known));
        }
        refuse_options(options, &causes)
    }

    fn check_match(&self) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        if self.resource_version_match.is_empty() {
            return Vec::new();
        }
        let mut causes = Vec::new();
        if self.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        if !self.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        if !["Exact", "NotOlderThan"].contains(&self.resource_version_match.as_str()) {
            let known = ["Exact", "NotOlderThan", ""];
            causes.push(FieldError::unsupported(
                field,
                &self.resource_version_match.as_str().into(),
                &known,
            ));
        }
        if self.resource_version_match == "Exact" && self.resource_version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(FieldError::forbidden(field, why));
        }
        causes
    }

    /// Checks the options of a watch.
    pub(crate) fn check_watch(&self) -> Result<(), StatusError> {
        let field = "resourceVersionMatch";
        let cause = match (self.send_initial_events, self.resource_version_match.as_str()) {
            (None, "") | (Some(_), "NotOlderThan") => None,
            (None, _) => Some(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (Some(_), _) => {
                Some("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
            }
        };
        let mut causes: Vec<FieldError> =
            cause.iter().map(|why| FieldError::forbidden(field, why)).collect();
        if !self.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        refuse_options("ListOptions", &causes)
    }
}

/// The error for options of this type, if there are causes.
pub(crate) fn refuse_options(
    options: &'static str,
    causes: &[FieldError],
) -> Result<(), StatusError> {
    if causes.is_empty() {
        return Ok(());
    }
    let kind = Kind { group: "meta.k8s.io", kind: options, ..Kind::DEFAULTS };
    Err(StatusError::invalid(&kind, "", causes))
}

fn dry_run(text: &str) -> Result<bool, StatusError> {
    if ["", "All"].contains(&text) {
        return Ok(!text.is_empty());
    }
    let cause = FieldError::unsupported("dryRun", &serde_json::json!([text]), &["All"]);
    refuse_options("CreateOptions", &[cause]).map(|()| false)
}

/// A propagation policy by its name; empty is none.
pub(crate) fn propagation(text: &str) -> Result<Option<Propagation>, StatusError> {
    Ok(Some(match text {
        "" => return Ok(None),
        "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        "Orphan" => Propagation::Orphan,
        _ => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            let cause = FieldError::unsupported("propagationPolicy", &text.into(), &known);
            return refuse_options("DeleteOptions", &[cause]).map(|()| None);
        }
    }))
}

/// Everything but `false` and `0` is true, as in `Convert_Slice_string_To_bool` of apimachinery.
fn is_true(text: &str) -> bool {
    !text.eq_ignore_ascii_case("false") && text != "0"
}

fn number(text: &str) -> Result<Option<i64>, StatusError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| StatusError::bad_request(not_a_number("ParseInt", text)))
}

/// What Go says of a text that is not a number.
pub(crate) fn not_a_number(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

fn decode_query(text: &str) -> Option<String> {
    decode(&text.replace('+', " "))
}

/// Resolves percent escapes; `None` if one is malformed, or if the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let malformed = |rest: &str| {
        let mut digits = rest.bytes().take(2).filter(u8::is_ascii_hexdigit);
        digits.next().is_none() || digits.next().is_none()
    };
    if text.split('%').skip(1).any(malformed) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(method: &str, path: &str, query: &str) -> String {
        let options = Options::parse(query).unwrap();
        let resource = match route(path) {
            Ok(Route::Resource(resource)) => resource,
            Ok(Route::NonResource(url)) => return format!("{url:?}"),
            Err(error) => return error.code.to_string(),
        };
        let verb = match verb(&method.parse().unwrap(), &resource, &options) {
            Ok(verb) => verb,
            Err(error) => return error.code.to_string(),
        };
        let ResourcePath { kind, namespace, name, subresource } = &resource;
        let mut text = format!("{verb:?} {}", kind.qualified());
        for part in [namespace, name].into_iter().flatten() {
            text.push_str(&format!(" {part}"));
        }
        subresource.iter().for_each(|part| text.push_str(&format!(" {part:?}")));
        text
    }

    #[test]
    fn paths_and_methods_mean_what_they_mean_in_kubernetes() {
        let rows = [
            ("GET", "/api/v1/pods", "", "List pods"),
            ("GET", "/api/v1/pods", "watch=true", "Watch pods"),
            ("GET", "/api/v1/pods", "watch=0", "List pods"),
            ("GET", "/api/v1/namespaces/shop/pods", "", "List pods shop"),
            ("GET", "/api/v1/namespaces/shop/pods/", "", "List pods shop"),
            ("GET", "/api/v1/namespaces/shop/pods/cart", "", "Get pods shop cart"),
            ("GET", "/api/v1/namespaces/shop/pods/c%61rt", "", "Get pods shop cart"),
            ("GET", "/api/v1/namespaces/shop/pods/cart/status", "", "Get pods shop cart Status"),
            ("PUT", "/api/v1/namespaces/shop/pods/cart/status", "", "Update pods shop cart Status"),
            (
                "POST",
                "/api/v1/namespaces/shop/pods/cart/binding",
                "",
                "Create pods shop cart Binding",
            ),
            ("GET", "/api/v1/namespaces/shop/pods/cart/binding", "", "405"),
            ("DELETE", "/api/v1/namespaces/shop/pods/cart/status", "", "405"),
            ("POST", "/api/v1/namespaces/shop/pods", "", "Create pods shop"),
            ("POST", "/api/v1/pods", "", "405"),
            ("DELETE", "/api/v1/namespaces/shop/pods", "", "DeleteCollection pods shop"),
            ("DELETE", "/api/v1/nodes", "", "DeleteCollection nodes"),
            ("DELETE", "/api/v1/namespaces", "", "405"),
            ("DELETE", "/api/v1/namespaces/shop", "", "Delete namespaces shop"),
            ("PATCH", "/api/v1/namespaces/shop/status", "", "Patch namespaces shop Status"),
            ("GET", "/api/v1/namespaces/shop/status", "", "Get namespaces shop Status"),
            ("GET", "/api/v1/namespaces", "", "List namespaces"),
            ("PUT", "/api/v1/nodes/a.b", "", "Update nodes a.b"),
            ("GET", "/api/v1/namespaces/shop/nodes", "", "404"),
            ("GET", "/api/v1/pods/cart", "", "404"),
            ("GET", "/api/v1/namespaces/shop/configmaps/c/status", "", "404"),
            ("GET", "/api/v2/pods", "", "404"),
            (
                "GET",
                "/apis/discovery.k8s.io/v1/endpointslices",
                "",
                "List endpointslices.discovery.k8s.io",
            ),
            ("GET", "/apis/discovery.k8s.io/v1", "", "Resources(\"discovery.k8s.io\", \"v1\")"),
            ("GET", "/apis/discovery.k8s.io/v1/namespaces/shop/pods", "", "404"),
            ("GET", "/api", "", "CoreVersions"),
            ("GET", "/apis/", "", "Groups"),
            ("GET", "/livez/ping", "", "Health"),
            ("GET", "/nowhere", "", "404"),
            ("GET", "/api/v1/namespaces/%zz/pods", "", "400"),
        ];
        for (method, path, query, expected) in rows {
            assert_eq!(meaning(method, path, query), expected, "{method} {path}?{query}");
        }
    }

    #[test]
    fn options_are_decoded_once() {
        let query = "labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx%252B&limit=5&\
                     continue=abc_-&resourceVersion=7&resourceVersionMatch=Exact&timeoutSeconds=3&\
                     allowWatchBookmarks=1&dryRun=All&fieldManager=me&force=false&\
                     propagationPolicy=Orphan&gracePeriodSeconds=0&sendInitialEvents=true";
        let expected = Options {
            label_selector: "a in (b,c)".into(),
            field_selector: "metadata.name=x%2B".into(),
            limit: 5,
            continue_token: "abc_-".into(),
            resource_version: "7".into(),
            resource_version_match: "Exact".into(),
            timeout_seconds: Some(3),
            allow_watch_bookmarks: true,
            send_initial_events: Some(true),
            dry_run: true,
            field_manager: "me".into(),
            force: Some(false),
            propagation: Some(Propagation::Orphan),
            grace_period_seconds: Some(0),
            ..Options::default()
        };
        assert_eq!(Options::parse(query).unwrap(), expected);
        assert_eq!(Options::parse("").unwrap(), Options::default());
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let parse = |query: &str| Options::parse(query).unwrap_err().to_string();
        assert_eq!(parse("limit=abc"), "strconv.ParseInt: parsing \"abc\": invalid syntax");
        assert_eq!(
            parse("dryRun=Some"),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
             supported values: \"All\""
        );
        let list =
            |query: &str| Options::parse(query).unwrap().check_list().unwrap_err().to_string();
        assert_eq!(
            list("resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
        let watch =
            |query: &str| Options::parse(query).unwrap().check_watch().unwrap_err().to_string();
        assert_eq!(
            watch("sendInitialEvents=true"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        );
    }
}
