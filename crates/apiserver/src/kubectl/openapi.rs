//! As much of an OpenAPI description as kubectl reads. No I/O.
//!
//! Before it applies an object, kubectl looks for one thing: whether patches of a kind support
//! `fieldValidation`. `kubectl explain` reads the schemas: they are those of kube-apiserver, as far as
//! the served kinds use them, from a file that a test compares with kube-apiserver. Strategic merge
//! patches are not listed: kubectl would compute them from the schemas, while it has the merge keys of
//! all served kinds built in.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use zonewise_common::fnv::fnv64;
use zonewise_common::media_type::{APPLY, JSON, JSON_PATCH, MERGE_PATCH};

use crate::kubectl::discovery::group_versions;
use crate::objects::kind::{KINDS, Kind};

/// All schemas by their names.
static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut text = String::new();
    let packed = &include_bytes!("../../schemas.json.gz")[..];
    // The file is a part of the program, and a test reads it.
    let read = GzDecoder::new(packed).read_to_string(&mut text);
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
});

/// A schema, and all that it refers to.
fn add_schema(name: &str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(name) {
        return;
    }
    let Some(schema) = SCHEMAS.get(name) else { return };
    schemas.insert(name.to_owned(), schema.clone());
    references(schema).iter().for_each(|name| add_schema(name, schemas));
}

/// The names of the schemas that a schema refers to.
fn references(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|path| path.strip_prefix(COMPONENTS));
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Where documents have their schemas.
const COMPONENTS: &str = "#/components/schemas/";

/// `/openapi/v2`.
pub(crate) fn v2() -> Value {
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for kind in &KINDS {
        definitions.insert(schema_name(kind), schema(kind));
        let patch = json!({
            "operationId": operation(kind), "produces": [JSON], "schemes": ["https"],
            "consumes": [JSON_PATCH, MERGE_PATCH],
            "parameters": parameters(false),
            "responses": {"200": {"description": "OK",
                "schema": {"$ref": format!("#/definitions/{}", schema_name(kind))}}},
            "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": identity(kind),
        });
        paths.insert(path(kind), json!({"patch": patch}));
    }
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions})
}

/// The media type of `/openapi/v2` that kubectl asks for.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2` as the protobuf message `openapi.v2.Document`, without schemas. kubectl reads it before it applies a
/// `kind: List`, and does not check objects whose schemas are not in it; this server checks them.
pub(crate) fn v2_protobuf() -> Vec<u8> {
    const SWAGGER: u8 = 1;
    const INFO: u8 = 2;
    let info = [text_field(1, b"Kubernetes"), text_field(2, b"1.36")].concat();
    [text_field(SWAGGER, b"2.0"), text_field(INFO, &info)].concat()
}

/// A protobuf field of bytes: number and wire type 2, length, bytes. For numbers below 16 and fewer than 128 bytes.
fn text_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    debug_assert!(number < 16 && length < 128, "both fit into one byte");
    [&[number << 3 | 2, length], bytes].concat()
}

/// `/openapi/v3`: the URLs of the documents.
pub(crate) fn v3_index() -> Value {
    let paths: Map<String, Value> = group_versions()
        .into_iter()
        .filter_map(|(group, version)| {
            let base = base_path(group, version);
            // Clients cache a document as long as its URL stays the same.
            let hash = fnv64(v3(group, version)?.to_string().as_bytes());
            let url = format!("/openapi/v3/{base}?hash={hash:016X}");
            Some((base, json!({"serverRelativeURL": url})))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`.
pub(crate) fn v3(group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in KINDS.iter().filter(|kind| kind.group == group && kind.version == version) {
        add_schema(&schema_name(kind), &mut schemas);
        let reference = json!({"schema": {"$ref": format!("{COMPONENTS}{}", schema_name(kind))}});
        let patch = json!({
            "operationId": operation(kind), "parameters": parameters(true),
            "requestBody": {"required": true, "content": {
                JSON_PATCH: {"schema": {"type": "object"}},
                MERGE_PATCH: {"schema": {"type": "object"}},
                APPLY: {"schema": {"type": "object"}},
            }},
            "responses": {"200": {"description": "OK", "content": {JSON: reference}}},
            "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": identity(kind),
        });
        paths.insert(path(kind), json!({"patch": patch}));
    }
    if paths.is_empty() {
        return None;
    }
    let components = json!({"schemas": schemas});
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": components}))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// `io.k8s.api.discovery.v1.EndpointSlice`.
fn schema_name(kind: &Kind) -> String {
    format!("io.k8s.api.{}.{}.{}", short_group(kind), kind.version, kind.kind)
}

/// The names of the schemas of all served kinds.
pub(crate) fn schema_names() -> Vec<String> {
    KINDS.iter().map(schema_name).collect()
}

/// `discovery` for `discovery.k8s.io`, `core` for the core group.
fn short_group(kind: &Kind) -> &'static str {
    match kind.group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    }
}

fn schema(kind: &Kind) -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
        "x-kubernetes-group-version-kind": [identity(kind)],
    })
}

fn base_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn path(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{}{namespace}/{}/{{name}}", base_path(kind.group, kind.version), kind.plural)
}

fn operation(kind: &Kind) -> String {
    format!("patch_{}_{}_{}", short_group(kind), kind.version, kind.kind)
}

/// The query parameters of a patch, in the notation of OpenAPI 3 or 2.
fn parameters(is_v3: bool) -> Vec<Value> {
    [
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    ]
    .into_iter()
    .map(|(name, of)| {
        if is_v3 {
            json!({"name": name, "in": "query", "schema": {"type": of, "uniqueItems": true}})
        } else {
            json!({"name": name, "in": "query", "type": of, "uniqueItems": true})
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_of_every_kind_support_field_validation() {
        for kind in &KINDS {
            let document = v3(kind.group, kind.version).unwrap();
            let patch = &document["paths"][path(kind)]["patch"];
            assert_eq!(patch["x-kubernetes-group-version-kind"], identity(kind));
            let known: Vec<_> =
                patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
            assert_eq!(known, ["dryRun", "fieldManager", "fieldValidation", "force"]);
            assert!(v2()["paths"].get(path(kind)).is_some());
        }
        assert_eq!(v3("batch", "v1"), None);
    }

    /// `kubectl explain` follows every reference.
    #[test]
    fn every_document_has_all_schemas_that_it_refers_to() {
        for kind in &KINDS {
            let document = v3(kind.group, kind.version).unwrap();
            let schemas = document["components"]["schemas"].as_object().unwrap();
            assert!(schemas.contains_key(&schema_name(kind)), "{kind:?}");
            let missing: Vec<&str> = references(&document)
                .into_iter()
                .filter(|name| !schemas.contains_key(*name))
                .collect();
            assert_eq!(missing, Vec::<&str>::new());
        }
    }

    #[test]
    fn the_message_without_schemas_has_title_and_version() {
        let expected = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.36";
        assert_eq!(v2_protobuf(), expected);
    }

    #[test]
    fn the_index_leads_to_every_document() {
        let index = v3_index();
        let paths: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
        assert_eq!(
            paths,
            [
                "api/v1",
                "apis/apps/v1",
                "apis/coordination.k8s.io/v1",
                "apis/discovery.k8s.io/v1",
                "apis/events.k8s.io/v1",
                "apis/networking.k8s.io/v1",
            ]
        );
        let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with("/openapi/v3/api/v1?hash="), "{url}");
    }
}
