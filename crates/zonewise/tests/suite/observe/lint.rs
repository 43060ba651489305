//! `lint` finds what will have no effect, and says so to people and to programs. The page docs/lint.md shows the lines.

use serde_json::Value;

use crate::observe::run::{run, run_on};

const MANIFESTS: &str = "testdata/lint/manifests.yaml";

#[test]
fn d10_every_key_without_effect_is_found_at_its_place() {
    let ran = run(&["lint", "-f", MANIFESTS, "-o", "json"]);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let found = document["findings"].as_array().unwrap();
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    let rows: Vec<_> = found
        .iter()
        .map(|finding| {
            assert_eq!(finding["file"], MANIFESTS);
            let line = finding["line"].as_u64().unwrap();
            (line, text(finding, "object"), text(finding, "key"), text(finding, "reason"))
        })
        .collect();
    let row = |line: u64, object: &str, key: &str, reason: &str| {
        (line, object.to_owned(), key.to_owned(), reason.to_owned())
    };
    let (web, cart) = ("Service shop/web", "Service default/cart");
    let expected = [
        row(1, web, "zonewise.dev/padding", "ThresholdUnused"),
        row(1, web, "zonewise.dev/routing-prefrence", "KeyUnknown"),
        row(1, web, "service.kubernetes.io/topology-mode", "KeyIsLabel"),
        row(12, cart, "endpointslice.kubernetes.io/subsetting", "ChoiceOverridden"),
        row(12, cart, "zonewise.dev/routing-preference", "PreferenceUnknown"),
        row(22, "Deployment web", "service.kubernetes.io/topology-mode", "KeyNotOnService"),
    ];
    assert_eq!((rows, ran.code), (expected.to_vec(), 1));
}

#[test]
fn programs_get_a_log_of_code_scanning() {
    let ran = run(&["lint", "-f", MANIFESTS, "-o", "sarif"]);
    let log: Value = serde_json::from_str(&ran.out).unwrap();
    let run = &log["runs"][0];
    let rules: Vec<&Value> =
        run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|rule| &rule["id"]).collect();
    let results = run["results"].as_array().unwrap();
    assert_eq!((&log["version"], results.len(), rules.len()), (&Value::from("2.1.0"), 6, 6));
    assert!(results.iter().all(|result| rules.contains(&&result["ruleId"])), "{log}");
    let place = &results[3]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], MANIFESTS);
    assert_eq!(place["region"]["startLine"], 12);
}

#[test]
fn exit_codes_are_those_that_the_help_names() {
    const CLEAN: &str =
        "{kind: Service, apiVersion: v1, metadata: {name: web}, spec: {selector: {a: b}}}";
    // A Service that cannot be read, and one that asks in vain.
    const FAULTY: &str = "{kind: Service, apiVersion: v1, metadata: {name: web}, spec: {ports: 5}}
---
{kind: Service, apiVersion: v1, metadata: {name: web, namespace: shop, annotations: {zonewise.dev/padding: a}}}";
    let rows: [(&[&str], &str, i32, &str); 8] = [
        (&["lint", "-f", "-"], CLEAN, 0, "1 Service checked, nothing found"),
        (&["lint", "-f", MANIFESTS], "", 1, "6 findings in 2 Services"),
        (&["lint", "-f", "-"], "a: [", 1, "standard input: document 1, line 1"),
        (&["lint", "-f", "-"], FAULTY, 1, "1 object cannot be read"),
        (&["lint", "-f", "-", "--keep-going"], FAULTY, 1, "1 finding in 1 Service"),
        (&["lint", "-f", MANIFESTS, "-n", "default"], "", 1, "3 findings in 1 Service"),
        (&["lint", "-f", "no-such-file"], "", 1, "cannot read no-such-file"),
        (&["lint", "-f", "-", "-o", "xml"], "", 2, "sarif"),
    ];
    for (arguments, input, code, expected) in rows {
        let ran = run_on(arguments, input.as_bytes());
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
    let faulty = run_on(&["lint", "-f", "-"], FAULTY.as_bytes());
    assert!(faulty.out.contains("ThresholdUnused"), "the other object is checked: {}", faulty.out);
}
