//! The alert rules in `deploy/`, run by Prometheus' own tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use zonewise_testbed::installed;

const COMPONENTS: [&str; 2] = ["controller", "proxy"];

fn folder(component: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(component)
}

fn promtool(component: &str, arguments: &[&str]) {
    let program = installed("promtool").unwrap();
    let output =
        Command::new(program).args(arguments).current_dir(folder(component)).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{component}: {}", String::from_utf8_lossy(&said));
}

fn document(component: &str, file: &str) -> Value {
    let text = std::fs::read_to_string(folder(component).join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// The elements of a list in every element of a list that has it: tests of recorded figures are none of alerts.
fn all<'a>(outer: &'a Value, inner: &'a str) -> impl Iterator<Item = &'a Value> {
    outer.as_array().unwrap().iter().filter_map(move |one| one[inner].as_array()).flatten()
}

#[test]
fn b17_every_alert_fires_once_and_is_silent_once() {
    for component in COMPONENTS {
        promtool(component, &["check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"]);
        promtool(component, &["test", "rules", "alerts.test.yaml"]);
        let (rules, tests) =
            (document(component, "alerts.yaml"), document(component, "alerts.test.yaml"));
        let alerts: BTreeSet<&str> =
            all(&rules["groups"], "rules").filter_map(|rule| rule["alert"].as_str()).collect();
        assert!(!alerts.is_empty());
        for fires in [true, false] {
            let tested: BTreeSet<&str> = all(&tests["tests"], "alert_rule_test")
                .filter(|test| test["exp_alerts"].is_array() == fires)
                .filter_map(|test| test["alertname"].as_str())
                .collect();
            assert_eq!(tested, alerts, "{component}, alerts that fire: {fires}");
        }
    }
}
