//! Heuristics of one's own in `plan` and `explain`: they predict what the controller does with the same
//! file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::run::{cluster, document, run_on};

const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// A configuration file with one heuristic, `example.com/mine`.
fn config(name: &str, definition: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let head = "apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\n";
    let text = format!("{head}heuristics:\n  - name: example.com/mine\n    {definition}\n");
    std::fs::write(&path, text).unwrap();
    path
}

/// Two endpoints in zone a, one in b.
fn asking(value: &str) -> Vec<Value> {
    cluster(&json!({ PREFERENCE: value }), &[("4", 2), ("4", 1)])
}

/// The zones that each endpoint of the planned slice is hinted to, its zone shares, and the reason.
fn planned(config: &Path, value: &str) -> (Vec<Value>, Value, Value) {
    let arguments = ["plan", "--explain", "--config", config.to_str().unwrap()];
    let plan = document(&arguments, &asking(value));
    let service = &plan["services"][0];
    let slice = &service["creates"][0];
    let endpoints = slice["endpoints"].as_array().unwrap();
    let hints = endpoints.iter().map(|endpoint| endpoint["hints"]["forZones"].clone()).collect();
    let shares = slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].clone();
    (hints, shares, service["explanation"]["reason"].clone())
}

#[test]
fn d17_plan_writes_what_an_expression_of_the_file_says() {
    let zone = |name: &str| json!([{ "name": name }]);
    let own = config("plan-own.yaml", "endpointZones: '[endpoint.zone]'");
    let hints = vec![zone("a"), zone("a"), zone("b")];
    assert_eq!(planned(&own, "example.com/mine"), (hints, json!(null), json!("ExpressionApplied")));

    let none = vec![json!(null); 3];
    let shares =
        config("plan-shares.yaml", "zoneShares: 'zones.map(z, z.name == zone.name ? 3 : 1)'");
    let (_, shares, reason) = planned(&shares, "example.com/mine");
    let shares: Value = serde_json::from_str(shares.as_str().unwrap()).unwrap();
    assert_eq!(shares["from"], json!({"a": {"a": 0.75, "b": 0.25}, "b": {"a": 0.25, "b": 0.75}}));
    assert_eq!(reason, "ExpressionApplied");

    let fails = config("plan-fails.yaml", "endpointZones: \"['nowhere']\"");
    let failed = (none.clone(), json!(null), json!("ExpressionFailed"));
    assert_eq!(planned(&fails, "example.com/mine"), failed);
    let unknown = (none, json!(null), json!("ClusterWide"));
    assert_eq!(planned(&own, "example.com/other"), unknown, "a name that the file does not define");
}

#[test]
fn d17_plan_names_the_place_of_what_is_wrong() {
    let wrong = config("plan-wrong.yaml", "endpointZones: '[endpoint.zome]'");
    let arguments = ["plan", "--config", wrong.to_str().unwrap(), "-f", "-"];
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": asking("example.com/mine")});
    let ran = run_on(&arguments, dump.to_string().as_bytes());
    assert!(ran.code != 0 && ran.out.is_empty(), "{}", ran.out);
    for expected in ["plan-wrong.yaml:4:5: heuristic `example.com/mine`", "unknown field `zome`"] {
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
}
