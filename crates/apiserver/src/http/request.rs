//! What a request means: method, path and query in, kind, verb and options out. Pure.
//!
//! ```text
//!  GET /api/v1/namespaces/shop/pods/cart/status?…
//!          └ group, version  └ namespace  └ name └ subresource     GET with a name: get; without: list, or watch
//! ```

use std::collections::BTreeMap;

use http::Method;

use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

const LONGEST_MANAGER: usize = 128;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(Resource),
    Page(Page),
}

/// Objects, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
}

impl Resource {
    /// The name; empty if there is none.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Where the object is stored.
    pub(crate) fn key(&self) -> String {
        crate::store::key(self.namespace.as_deref(), self.name())
    }

    /// How the keys of all these objects begin.
    pub(crate) fn prefix(&self) -> String {
        self.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default()
    }
}

/// A part of an object with a door of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Binding,
}

/// What is not about objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Health,
    Version,
    CoreVersions,
    Groups,
    Group(String),
    Resources(String, String),
    OpenApiV2,
    OpenApiV3,
    OpenApiV3Of(String, String),
    Faults,
}

/// What is to be done.
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

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What the query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) limit: i64,
    pub(crate) resume: String,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) watch: bool,
    pub(crate) timeout: Option<i64>,
    pub(crate) bookmarks: bool,
    pub(crate) initial: Option<bool>,
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) validation: String,
    pub(crate) force: Option<bool>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace: Option<i64>,
    pub(crate) include: String,
    pub(crate) pretty: Option<bool>,
}

/// The path: a target, or nothing is there.
pub(crate) fn target(path: &str) -> Result<Target, StatusError> {
    let missing = StatusError::no_such_page;
    // An escaped slash is a slash: no name has one.
    let path =
        decode(path.as_bytes()).ok_or_else(|| StatusError::bad_request("the path is not valid"))?;
    let mut segments: Vec<&str> = path.split('/').skip(1).collect();
    if segments.len() > 1 && segments.last() == Some(&"") {
        segments.pop();
    }
    if let Some(page) = page(&segments) {
        return Ok(Target::Page(page));
    }
    match &segments[..] {
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => None,
    }
    .map(Target::Resource)
    .ok_or_else(missing)
}

fn page(segments: &[&str]) -> Option<Page> {
    Some(match segments {
        ["healthz" | "livez" | "readyz", ..] => Page::Health,
        ["version"] => Page::Version,
        ["api"] => Page::CoreVersions,
        ["apis"] => Page::Groups,
        ["api", version] => Page::Resources(String::new(), (*version).into()),
        ["apis", group] => Page::Group((*group).into()),
        ["apis", group, version] => Page::Resources((*group).into(), (*version).into()),
        ["openapi", "v2"] => Page::OpenApiV2,
        ["openapi", "v3"] => Page::OpenApiV3,
        ["openapi", "v3", "api", version] => Page::OpenApiV3Of(String::new(), (*version).into()),
        ["openapi", "v3", "apis", group, version] => {
            Page::OpenApiV3Of((*group).into(), (*version).into())
        }
        ["zonewise", "faults"] => Page::Faults,
        _ => return None,
    })
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Option<Resource> {
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
        [name, "binding"] if kind.plural == "pods" => (Some(*name), Some(Subresource::Binding)),
        _ => return None,
    };
    let fits = match namespace {
        Some(namespace) => kind.namespaced && !namespace.is_empty(),
        None => !kind.namespaced || name.is_none(),
    };
    let own = |text: &str| text.to_owned();
    fits.then(|| Resource { kind, namespace: namespace.map(own), name: name.map(own), subresource })
}

/// The verb that a method means here.
pub(crate) fn verb(
    method: &Method,
    resource: &Resource,
    options: &Options,
) -> Result<Verb, StatusError> {
    let placed = resource.namespace.is_some() || !resource.kind.namespaced;
    let is_namespace = resource.kind.plural == "namespaces";
    let verb = match (method.as_str(), resource.name.is_some(), resource.subresource) {
        ("POST", true, Some(Subresource::Binding)) => Verb::Create,
        (_, _, Some(Subresource::Binding)) => return Err(StatusError::method_not_allowed()),
        ("GET", true, _) => Verb::Get,
        ("GET", false, _) if options.watch => Verb::Watch,
        ("GET", false, _) => Verb::List,
        ("POST", false, _) if placed => Verb::Create,
        ("PUT", true, _) => Verb::Update,
        ("PATCH", true, _) => Verb::Patch,
        ("DELETE", true, None) => Verb::Delete,
        ("DELETE", false, _) if placed && !is_namespace => Verb::DeleteCollection,
        _ => return Err(StatusError::method_not_allowed()),
    };
    Ok(verb)
}

impl Options {
    /// From the text after the question mark.
    pub(crate) fn parse(query: &str) -> Result<Self, StatusError> {
        let mut pairs = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(name), Some(value)) = (decode_query(name), decode_query(value)) {
                pairs.entry(name).or_insert(value);
            }
        }
        let text = |name: &str| pairs.get(name).cloned().unwrap_or_default();
        let flag = |name: &str| pairs.get(name).map(|value| truth(value));
        Ok(Self {
            labels: text("labelSelector"),
            fields: text("fieldSelector"),
            limit: number(&text("limit"))?.unwrap_or(0),
            resume: text("continue"),
            version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            watch: flag("watch").unwrap_or(false),
            timeout: number(&text("timeoutSeconds"))?,
            bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            initial: flag("sendInitialEvents"),
            dry_run: dry_run(&text("dryRun"))?,
            manager: text("fieldManager"),
            validation: text("fieldValidation"),
            force: flag("force"),
            propagation: propagation(&text("propagationPolicy"))?,
            grace: number(&text("gracePeriodSeconds"))?,
            include: text("includeObject"),
            pretty: flag("pretty"),
        })
    }

    /// Whether nothing is selected, so that everything is.
    pub(crate) fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the options of a list fit together.
    pub(crate) fn check_list(&self) -> Result<(), StatusError> {
        let mut causes = self.check_match();
        if self.initial.is_some() {
            causes.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        refuse("ListOptions", &causes)
    }

    /// Whether the options of a write fit together.
    pub(crate) fn check_write(&self, verb: Verb) -> Result<(), StatusError> {
        let options = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => return Ok(()),
        };
        let mut causes = Vec::new();
        if self.manager.len() > LONGEST_MANAGER {
            causes.push(FieldError::too_long("fieldManager", LONGEST_MANAGER));
        }
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&self.validation.as_str()) {
            let value = self.validation.as_str().into();
            causes.push(FieldError::unsupported("fieldValidation", &value, &known));
        }
        refuse(options, &causes)
    }

    fn check_match(&self) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        if self.version_match.is_empty() {
            return Vec::new();
        }
        let mut causes = Vec::new();
        if self.version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        if !self.resume.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        if !["Exact", "NotOlderThan"].contains(&self.version_match.as_str()) {
            let known = ["Exact", "NotOlderThan", ""];
            causes.push(FieldError::unsupported(
                field,
                &self.version_match.as_str().into(),
                &known,
            ));
        }
        if self.version_match == "Exact" && self.version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(FieldError::forbidden(field, why));
        }
        causes
    }

    /// Whether the options of a watch fit together.
    pub(crate) fn check_watch(&self) -> Result<(), StatusError> {
        let field = "resourceVersionMatch";
        let cause = match (self.initial, self.version_match.as_str()) {
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
        if !self.resume.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(FieldError::forbidden(field, why));
        }
        refuse("ListOptions", &causes)
    }
}

/// Refuses options, if there is a cause.
pub(crate) fn refuse(options: &'static str, causes: &[FieldError]) -> Result<(), StatusError> {
    if causes.is_empty() {
        return Ok(());
    }
    let kind = Kind {
        group: "meta.k8s.io",
        version: "v1",
        kind: options,
        plural: options,
        singular: options,
        short: &[],
        namespaced: false,
        has_status: false,
        has_generation: false,
        stored_as: None,
    };
    Err(StatusError::invalid(&kind, "", causes))
}

fn dry_run(text: &str) -> Result<bool, StatusError> {
    if ["", "All"].contains(&text) {
        return Ok(!text.is_empty());
    }
    let cause = FieldError::unsupported("dryRun", &serde_json::json!([text]), &["All"]);
    refuse("CreateOptions", &[cause]).map(|()| false)
}

/// A policy by its name; empty is none.
pub(crate) fn propagation(text: &str) -> Result<Option<Propagation>, StatusError> {
    Ok(Some(match text {
        "" => return Ok(None),
        "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        "Orphan" => Propagation::Orphan,
        _ => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            let cause = FieldError::unsupported("propagationPolicy", &text.into(), &known);
            return refuse("DeleteOptions", &[cause]).map(|()| None);
        }
    }))
}

/// Everything but `false` and `0` is true, as Kubernetes reads it.
fn truth(text: &str) -> bool {
    !text.eq_ignore_ascii_case("false") && text != "0"
}

fn number(text: &str) -> Result<Option<i64>, StatusError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| StatusError::bad_request(not_a_number("ParseInt", text));
    text.parse().map(Some).map_err(wrong)
}

/// What Kubernetes says of a text that is no number.
pub(crate) fn not_a_number(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

fn decode_query(text: &str) -> Option<String> {
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    decode(&spaced)
}

fn decode(mut rest: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(rest.len());
    loop {
        rest = match rest {
            [] => return String::from_utf8(bytes).ok(),
            [b'%', high, low, rest @ ..] => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
                bytes.push(digit(*high)? * 16 + digit(*low)?);
                rest
            }
            [b'%', ..] => return None,
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, path: &str, query: &str) -> String {
        let options = Options::parse(query).unwrap();
        let resource = match target(path) {
            Ok(Target::Resource(resource)) => resource,
            Ok(Target::Page(page)) => return format!("{page:?}"),
            Err(error) => return error.code.to_string(),
        };
        let verb = match verb(&method.parse().unwrap(), &resource, &options) {
            Ok(verb) => verb,
            Err(error) => return error.code.to_string(),
        };
        let Resource { kind, namespace, name, subresource } = &resource;
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
            assert_eq!(told(method, path, query), expected, "{method} {path}?{query}");
        }
    }

    #[test]
    fn options_are_decoded_once() {
        let query = "labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx%252B&limit=5&continue=abc_-&\
                     resourceVersion=7&resourceVersionMatch=Exact&timeoutSeconds=3&allowWatchBookmarks=1&dryRun=All&\
                     fieldManager=me&force=false&propagationPolicy=Orphan&gracePeriodSeconds=0&sendInitialEvents=true";
        let expected = Options {
            labels: "a in (b,c)".into(),
            fields: "metadata.name=x%2B".into(),
            limit: 5,
            resume: "abc_-".into(),
            version: "7".into(),
            version_match: "Exact".into(),
            timeout: Some(3),
            bookmarks: true,
            initial: Some(true),
            dry_run: true,
            manager: "me".into(),
            force: Some(false),
            propagation: Some(Propagation::Orphan),
            grace: Some(0),
            ..Options::default()
        };
        assert_eq!(Options::parse(query).unwrap(), expected);
        assert_eq!(Options::parse("").unwrap(), Options::default());
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let parse = |query: &str| Options::parse(query).unwrap_err().to_string();
        assert_eq!(parse("limit=abc"), "strconv.ParseInt: parsing \"abc\": invalid syntax");
        assert_eq!(
            parse("dryRun=Some"),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        let list =
            |query: &str| Options::parse(query).unwrap().check_list().unwrap_err().to_string();
        assert_eq!(
            list("resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is \
             forbidden unless resourceVersion is provided"
        );
        let watch =
            |query: &str| Options::parse(query).unwrap().check_watch().unwrap_err().to_string();
        assert_eq!(
            watch("sendInitialEvents=true"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires \
             setting resourceVersionMatch to NotOlderThan"
        );
    }
}
