//! The schemas that `kubectl explain` shows are those of kube-apiserver, as far as the served kinds use them.
//! `UPDATE_SCHEMAS=1` writes the file anew.

use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use crate::requests::{Words, get};
use crate::servers::{Pair, Side};

/// What `kubectl explain` reads, and what a schema is identified by.
const KEPT: [&str; 12] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "description",
    "enum",
    "format",
    "items",
    "oneOf",
    "properties",
    "required",
    "type",
    "x-kubernetes-group-version-kind",
];

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schemas.json.gz")
}

async fn document(side: &Side, path: &str) -> Value {
    let answer = side.send(get("schemas", path).request(&Words::new())).await;
    serde_json::from_slice(answer.body()).unwrap()
}

/// Every schema of a server in the documents that the embedded one serves.
async fn schemas(pair: &Pair, side: &Side) -> Map<String, Value> {
    let index = document(&pair.embedded, "/openapi/v3").await;
    let mut all = Map::new();
    for path in index["paths"].as_object().unwrap().keys() {
        let served = document(side, &format!("/openapi/v3/{path}")).await;
        all.extend(served["components"]["schemas"].as_object().unwrap().clone());
    }
    all
}

/// The schemas of the served kinds, and those that they refer to.
fn used(all: &Map<String, Value>) -> Map<String, Value> {
    let mut used = Map::new();
    let mut due: Vec<String> = zonewise_apiserver::testing::schema_names();
    while let Some(name) = due.pop() {
        let schema = reduced(&all[&name], false);
        due.extend(references(&schema).into_iter().filter(|name| !used.contains_key(name)));
        used.insert(name, schema);
    }
    used
}

/// Without what `kubectl explain` does not read. Keys of `properties` are names of fields.
fn reduced(schema: &Value, names: bool) -> Value {
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| names || KEPT.contains(&key.as_str()));
            let reduce = |key: &String, value: &Value| match key.as_str() {
                "x-kubernetes-group-version-kind" => value.clone(),
                _ => reduced(value, !names && key == "properties"),
            };
            kept.map(|(key, value)| (key.clone(), reduce(key, value))).collect()
        }
        Value::Array(items) => items.iter().map(|item| reduced(item, false)).collect(),
        other => other.clone(),
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn stored() -> Map<String, Value> {
    let packed = std::fs::read(file()).unwrap();
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn schemas_are_those_of_kube_apiserver() {
    let pair = Pair::get();
    let real = used(&pair.run(schemas(pair, &pair.real)));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(Value::Object(real.clone()).to_string().as_bytes()).unwrap();
        std::fs::write(file(), packed.finish().unwrap()).unwrap();
    }
    assert_eq!(stored(), real, "UPDATE_SCHEMAS=1 writes {} anew", file().display());
}
