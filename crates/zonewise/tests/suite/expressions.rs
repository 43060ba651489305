//! D17: heuristics of one's own, from a configuration file to a score.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use zonewise_topology::heuristics;

/// Nodes and endpoints per zone: the input that the documentation speaks of.
const INPUT: &str = "name,a,b,c\nrow,1 4,1 2,1 0\n";

fn simulate(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zonewise"))
        .arg("simulate")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever refuses the arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(INPUT.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A configuration file with this content.
fn config(name: &str, content: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn with_heuristics(list: &str) -> String {
    format!("apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\n{list}")
}

/// The only YAML block of the page on heuristics.
fn documented(file: &str) -> PathBuf {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/heuristics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    config(file, block)
}

/// The row that a heuristic of a file gives: its reason and its groups.
fn row(config: &Path, heuristic: &str) -> (Value, Value) {
    let config = config.to_str().unwrap();
    let arguments =
        ["--config", config, "--heuristic", heuristic, "--dataset", "-", "-o", "json", "--rows"];
    let output = simulate(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &document["rows"][0];
    (row["reason"]["code"].clone(), row["groups"].clone())
}

#[test]
fn d17_the_documented_examples_do_what_the_page_says() {
    let file = documented("examples.yaml");
    let (reason, groups) = row(&file, "example.com/cover-empty-zones");
    assert_eq!(reason, "ExpressionApplied");
    assert_eq!(
        groups,
        json!([
            {"label": "b", "endpoints": {"b": 2}, "weights": {"b": 1.0}},
            {"label": "shared-a-c", "endpoints": {"a": 4}, "weights": {"a": 1.0, "c": 1.0}},
        ])
    );
    let (reason, groups) = row(&file, "example.com/half");
    assert_eq!(reason, "ExpressionApplied");
    let part =
        |group: &Value, zone: &str, size: f64| group["weights"][zone].as_f64().unwrap() * size;
    let sent: Vec<[f64; 2]> = ["a", "b", "c"]
        .map(|zone| [part(&groups[0], zone, 4.0), part(&groups[1], zone, 2.0)])
        .into();
    let expected = [[5.0 / 6.0, 1.0 / 6.0], [1.0 / 3.0, 2.0 / 3.0], [2.0 / 3.0, 1.0 / 3.0]];
    for (sent, expected) in sent.iter().flatten().zip(expected.iter().flatten()) {
        assert!((sent - expected).abs() < 1e-12, "{sent} {expected}");
    }
}

#[test]
fn d17_custom_heuristics_stand_beside_the_built_in() {
    let file = documented("beside.yaml");
    let file = file.to_str().unwrap();
    let all = simulate(&["--config", file, "--dataset", "-", "-o", "csv"]);
    let lines: Vec<&str> = text(&all.stdout).lines().collect();
    let built_in = heuristics::names();
    assert_eq!(lines.len(), 1 + built_in.len() + 2, "{}", text(&all.stderr));
    let first = lines[1 + built_in.len()];
    assert!(first.starts_with("example.com/cover-empty-zones,1,"), "{first}");
    let timeline =
        simulate(&["timeline", "--config", file, "--heuristic", "example.com/half", "-o", "csv"]);
    assert!(timeline.status.success(), "{}", text(&timeline.stderr));
    let unknown = simulate(&["--config", file, "--heuristic", "example.com/cover-empty-zone"]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = text(&unknown.stderr);
    let expected = format!(
        "error: unknown heuristic `example.com/cover-empty-zone`; known are {}, example.com/cover-empty-zones, \
         example.com/half\n",
        built_in.join(", ")
    );
    assert_eq!(message, expected);
}

/// Other fields are the controller's; a file without heuristics adds none.
#[test]
fn d17_other_fields_are_not_looked_at() {
    for list in
        ["maxEndpointsPerSlice: 50\nleaderElection: {leaderElect: false}\n", "heuristics:\n"]
    {
        let file = config("others.yaml", &with_heuristics(list));
        let output = simulate(&["--config", file.to_str().unwrap(), "--dataset", "-", "-o", "csv"]);
        let lines = text(&output.stdout).lines().count();
        assert_eq!(lines, 1 + heuristics::names().len(), "{}", text(&output.stderr));
    }
}

#[test]
fn d17_what_is_wrong_is_named_with_file_line_and_column() {
    let wrong_expression = "heuristics:\n  - name: example.com/good\n    endpointZones: \"[endpoint.zone]\"\n  \
                            - name: example.com/bad\n    zoneShares: |\n      zones.map(z,\n        z.endpoint)\n";
    let rows = [
        (
            with_heuristics(wrong_expression),
            "wrong.yaml:6:5: heuristic `example.com/bad`, zoneShares, line 2, column 5: unknown field \
             `endpoint`; a zone has name, index, share, nodes, endpoints, expected\n  |   z.endpoint)\n  |     ^\n",
        ),
        (
            with_heuristics("heuristics:\n  - name: example.com/bad\n"),
            "wrong.yaml:4:5: heuristic `example.com/bad`: set exactly one of endpointZones and zoneShares\n",
        ),
        (
            with_heuristics("heuristics:\n  - name: a/b\n    endpointzones: x\n"),
            "wrong.yaml:5:5: unknown field",
        ),
        (with_heuristics("heuristics: [\n"), "wrong.yaml:"),
        (
            "apiVersion: v1\nkind: ConfigMap\n".to_owned(),
            "wrong.yaml: expected apiVersion config.zonewise.dev/v1alpha1 and kind ControllerConfiguration, \
             found v1 and ConfigMap\n",
        ),
        ("#".repeat(1 << 21), "wrong.yaml: larger than 1048576 bytes: not a configuration file\n"),
    ];
    for (content, expected) in rows {
        let file = config("wrong.yaml", &content);
        let output = simulate(&["--config", file.to_str().unwrap(), "--dataset", "-"]);
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{message}");
        assert_eq!(text(&output.stdout), "");
    }
    let absent = simulate(&["--config", "nowhere.yaml"]);
    assert!(text(&absent.stderr).starts_with("error: cannot read nowhere.yaml: "));
}
