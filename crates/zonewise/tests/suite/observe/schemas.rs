//! Every document that a program can read validates against its JSON Schema in `docs/schemas`. The schemas are strict:
//! a field that they do not name is a failure, and so is one that is missing.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::observe::addresses::with_a_claim_on_anothers_address;
use crate::observe::answers::settled;
use crate::observe::run::{cluster, document, node, run};
use crate::observe::schema::{Schema, assert_valid, folder};

/// The document that a command prints; a finding of `lint` is no failure here.
fn printed(arguments: &[&str]) -> Value {
    let ran = run(&[arguments, &["-o", "json"]].concat());
    serde_json::from_str(&ran.out)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{}", ran.err))
}

const SHOP: [&str; 4] = ["-f", "examples/shop", "-f", "examples/shop-slices.yaml"];

/// Clusters in which every kind of advice, note and loss occurs.
fn clusters() -> Vec<Vec<Value>> {
    const AUTO: &str = "service.kubernetes.io/topology-mode";
    const PREFERENCE: &str = "zonewise.dev/routing-preference";
    const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
    let mut close = cluster(&json!({}), &[("4", 4), ("4", 1), ("4", 0)]);
    close[0]["spec"]["trafficDistribution"] = json!("PreferClose");
    let mut local = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3)]);
    local[0]["spec"]["internalTrafficPolicy"] = json!("Local");
    let mut headless = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3)]);
    headless[0]["spec"]["clusterIP"] = json!("None");
    headless[0]["spec"]["clusterIPs"] = json!(["None"]);
    let mut unlabelled = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3)]);
    let b = unlabelled.iter_mut().find(|one| one["metadata"]["name"] == "b");
    b.unwrap()["metadata"]["labels"] = json!({});
    // Slices that were written when the zones were alike.
    let mut older = settled(cluster(&json!({AUTO: "Auto"}), &[("10", 5), ("10", 5)]));
    for (name, cpu) in [("a", "12500m"), ("b", "7500m")] {
        let known = |one: &&mut Value| one["kind"] == "Node" && one["metadata"]["name"] == name;
        *older.iter_mut().find(known).unwrap() = node(name, name, cpu);
    }
    vec![
        cluster(&json!({}), &[("4", 2), ("4", 2), ("4", 2)]),
        cluster(&json!({AUTO: "Auto"}), &[("4", 2), ("4", 1), ("4", 1)]),
        cluster(&json!({AUTO: "Auto"}), &[("8", 2), ("8", 1), ("4", 0)]),
        cluster(&json!({AUTO: "auto", "zonewise.dev/balancd": "x"}), &[("4", 5), ("4", 5)]),
        cluster(&json!({AUTO: "Auto"}), &[("4", 4)]),
        cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3), ("4", 3)]),
        cluster(&json!({PREFERENCE: "zonewise.dev/balanced"}), &[("8", 1), ("4", 1), ("4", 1)]),
        cluster(&json!({SUBSETTING: "Auto"}), &[("4", 2), ("4", 2)]),
        cluster(&json!({SUBSETTING: "Region"}), &[("4", 2), ("4", 2)]),
        close,
        local,
        headless,
        unlabelled,
        older,
    ]
}

/// The document of each command, with the name of its schema.
fn documents() -> Vec<(&'static str, Value)> {
    let of_shop = |arguments: &[&str]| printed(&[arguments, &SHOP[..]].concat());
    let mut all = vec![
        ("plan", of_shop(&["plan"])),
        ("plan", of_shop(&["plan", "--explain"])),
        ("plan", printed(&["plan", "-f", "examples/shop"])),
        ("overview", of_shop(&["explain"])),
        ("overview", of_shop(&["explain", "--cost-per-gb", "1", "--gb", "1"])),
        ("routes", of_shop(&["route", "--node", "a1"])),
        ("routes", of_shop(&["route", "--from", "nowhere"])),
        ("matrices", of_shop(&["route", "--matrix"])),
        ("evacuation-check", of_shop(&["evacuate", "eu-a"])),
        ("evacuation-check", of_shop(&["evacuate", "eu-a", "--limit", "10000"])),
        ("findings", printed(&["lint", "-f", "testdata/lint"])),
        ("findings", printed(&["lint", "-f", "examples/shop"])),
        ("reasons", printed(&["reasons"])),
        ("reasons", printed(&["reasons", "ClusterWide"])),
        (
            "simulation",
            printed(&["simulate", "--zones", "2", "--nodes", "0..2", "--endpoints", "0..3"]),
        ),
        (
            "simulation-rows",
            printed(&[
                "simulate",
                "--rows",
                "--zones",
                "2",
                "--nodes",
                "0..2",
                "--endpoints",
                "0..3",
            ]),
        ),
        ("timeline", printed(&["simulate", "timeline", "--scenario", "node-loss"])),
        ("lab-summary", printed(&["lab", "--scenario", "tiny-service", "--duration", "5s"])),
    ];
    // Two nodes of a zone that do not do the same.
    let mut same_node = cluster(&json!({}), &[("4", 1), ("4", 1)]);
    same_node[0]["spec"]["trafficDistribution"] = json!("PreferSameNode");
    same_node.push(node("a2", "a", "4"));
    all.push(("matrices", document(&["route", "--matrix"], &settled(same_node))));
    let only_there = cluster(&json!({}), &[("4", 2), ("4", 0)]);
    all.push(("evacuation-check", document(&["evacuate", "a"], &only_there)));
    all.extend(with_dropped_traffic());
    let refused = ["route", "--from", "a", "--as-if", "proxy"];
    all.push(("routes", document(&refused, &with_a_claim_on_anothers_address())));
    for service in ["cart", "dns", "legacy", "search", "typo", "web"] {
        let name = format!("shop/{service}");
        all.push(("explanation", of_shop(&["explain", &name])));
        all.push(("explanation", of_shop(&["explain", &name, "--cost-per-gb", "1", "--gb", "1"])));
    }
    let measured = with_demand();
    all.push(("explanation", document(&["explain", "shop/web"], &measured)));
    all.push(("plan", document(&["plan", "--explain"], &measured)));
    all.push(("routes", document(&["route", "--from", "a", "--as-if", "proxy"], &measured)));
    let weighted = with_weights();
    all.push(("explanation", document(&["explain", "shop/web"], &weighted)));
    all.push(("plan", document(&["plan", "--explain"], &weighted)));
    all.extend(clusters().iter().flat_map(|objects| of_cluster(objects)));
    all
}

/// What the commands say of one of the clusters, also with other settings.
fn of_cluster(objects: &[Value]) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    all.push(("explanation", document(&["explain", "shop/web"], objects)));
    let gate_off = ["explain", "shop/web", "--feature-gates", "TopologyAwareHints=false"];
    all.push(("explanation", document(&gate_off, objects)));
    all.push((
        "explanation",
        document(&["explain", "web", "-n", "shop", "--compat", "upstream"], objects),
    ));
    all.push(("overview", document(&["explain"], objects)));
    all.push(("plan", document(&["plan", "--explain"], objects)));
    all.push(("plan", document(&["plan", "--compat", "upstream"], objects)));
    all.push(("plan", document(&["plan", "--mode", "guard"], objects)));
    let gate_off = ["plan", "--explain", "--feature-gates", "TopologyAwareHints=false"];
    all.push(("plan", document(&gate_off, objects)));
    all
}

/// A Service whose shares are on the way to what was measured.
fn with_demand() -> Vec<Value> {
    let annotations = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/demand": "measured",
    });
    let mut objects = cluster(&annotations, &[("4", 2), ("4", 2)]);
    let web = json!({"s": [500_000, 500_000], "n": [700, 300], "m": true, "r": 6.5, "a": 3});
    let at = 1_763_430_000_000_u64;
    let state = json!({"v": 1, "at": at, "zones": ["a", "b"], "services": {"shop/web": web}});
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": state.to_string()},
    }));
    settled(objects)
}

/// A Service whose endpoints count for the CPU that their Pods request.
fn with_weights() -> Vec<Value> {
    let annotations = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/endpoint-weight": "cpu-request",
    });
    let mut objects = cluster(&annotations, &[("4", 1), ("4", 1)]);
    for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        pod["spec"]["containers"] =
            json!([{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]);
    }
    objects
}

/// Documents about nodes that drop traffic, also that of a Service whose slices others write.
fn with_dropped_traffic() -> Vec<(&'static str, Value)> {
    let mut local = cluster(&json!({}), &[("4", 1), ("4", 0)]);
    local[0]["spec"]["internalTrafficPolicy"] = json!("Local");
    local.push(node("a2", "a", "4"));
    let mut local = settled(local);
    let mut all = vec![("matrices", document(&["route", "--matrix", "--as-if", "proxy"], &local))];
    let unmanaged = ["explain", "shop/web", "--as-if", "proxy"];
    local[0]["spec"]["selector"] = Value::Null;
    all.push(("unmanaged-explanation", document(&unmanaged, &local)));
    all.push(("overview", document(&["explain"], &local)));
    local[0]["spec"]["type"] = json!("ExternalName");
    all.push(("unmanaged-explanation", document(&["explain", "shop/web"], &local)));
    all
}

static DOCUMENTS: LazyLock<Vec<(&'static str, Value)>> = LazyLock::new(documents);

/// Documents that only a live cluster gives; their own tests validate them.
const LIVE: [&str; 2] = ["checks", "top"];

#[test]
fn every_document_validates_against_its_schema() {
    let documents = &*DOCUMENTS;
    for (name, document) in documents {
        assert_valid(name, document);
    }
    let names = documents.iter().map(|(name, _)| *name).chain(LIVE);
    let used: BTreeSet<String> = names.map(|name| format!("{name}.schema.json")).collect();
    let files = std::fs::read_dir(folder()).unwrap();
    let there: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, used, "a schema without a document, or the other way round");
}

/// What no test reaches could be anything: every field of every schema occurs in some document.
#[test]
fn every_field_of_a_schema_occurs() {
    let documents = &*DOCUMENTS;
    let names: BTreeSet<&str> = documents.iter().map(|(name, _)| *name).collect();
    for name in names {
        let mut fields = BTreeSet::new();
        documents.iter().filter(|(of, _)| *of == name).for_each(|(_, one)| keys(one, &mut fields));
        let mut described = BTreeSet::new();
        described_fields(&Schema::read(name).root, &mut described);
        let missing: Vec<&String> = described.difference(&fields).collect();
        assert!(missing.is_empty(), "{name}: no document has {missing:?}");
    }
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

fn described_fields(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            let properties = object.get("properties").and_then(Value::as_object);
            found.extend(properties.into_iter().flat_map(Map::keys).cloned());
            object.values().for_each(|value| described_fields(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| described_fields(value, found)),
        _ => {}
    }
}

/// The validator itself: a document with any field too many, missing or of another type is refused.
#[test]
fn a_changed_document_is_refused() {
    let schema = Schema::read("explanation");
    let fine = printed(&["explain", "shop/web", "-f", "examples/shop"]);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = fine.clone();
        change(&mut document);
        schema.faults(&document)
    };
    assert_eq!(changed(&|_| ()), Vec::<String>::new());
    assert_eq!(changed(&|one| one["more"] = json!(1)), ["$.more: not in the schema"]);
    assert_eq!(changed(&|one| one["reason"] = json!("no code")).len(), 1);
    assert_eq!(changed(&|one| one["zones"][0]["nodes"] = json!("2")).len(), 1);
    assert_eq!(changed(&|one| one["zones"][0]["nodes"] = json!(-2)).len(), 1);
    assert_eq!(changed(&|one| one["outcome"] = json!("in force")).len(), 1);
    assert_eq!(changed(&|one| one["apiVersion"] = json!("output.zonewise.dev/v2")).len(), 1);
    let kind = changed(&|one| one["changes"][0]["steps"][0]["kind"] = json!("pray"));
    assert!(!kind.is_empty());
    let gone = changed(&|one| {
        one.as_object_mut().unwrap().remove("inZone");
    });
    assert_eq!(gone, ["$.inZone: missing"]);
}
