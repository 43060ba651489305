//! Running the program, and objects to run it on.
#![allow(dead_code, reason = "every test target uses its part of this")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// What came of a run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// True if as many cases are asked for as `make test-all` does.
pub(crate) fn is_thorough() -> bool {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u32>().ok());
    cases.is_some_and(|cases| cases >= 1_000)
}

/// The program, started in the repository, without a cluster to find.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonewise"));
    command.current_dir(root()).args(arguments);
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("COLUMNS", "100");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    program(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Runs with a text on standard input.
pub(crate) fn run_on(arguments: &[&str], input: &[u8]) -> Ran {
    run_with(arguments, input, &[])
}

/// The same with other variables of the environment.
pub(crate) fn run_with(arguments: &[&str], input: &[u8], variables: &[(&str, &str)]) -> Ran {
    let mut child = program(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that stops reading is no failure here: what it says is looked at.
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// Runs on objects and reads the document.
pub(crate) fn document(arguments: &[&str], objects: &[Value]) -> Value {
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut all = vec!["-o", "json", "-f", "-"];
    all.splice(0..0, arguments.iter().copied());
    let ran = run_on(&all, dump.as_bytes());
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// A ready worker node.
pub(crate) fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A ready Pod of the Service `shop/web`.
pub(crate) fn pod(number: usize, node: &str) -> Value {
    let ip = format!("10.244.{}.{}", number / 250, number % 250 + 1);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number:03}"), "namespace": "shop", "uid": format!("pod-{number}"), "labels": {"app": "web"}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The Service `shop/web`.
pub(crate) fn service(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web-uid", "annotations": annotations},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

/// Nodes `a`, `b`, … of these cores, one per zone, and so many Pods on each.
pub(crate) fn cluster(annotations: &Value, zones: &[(&str, usize)]) -> Vec<Value> {
    let mut objects = vec![service(annotations)];
    let mut number = 0;
    for (zone, (cpu, pods)) in ["a", "b", "c", "d", "e"].iter().zip(zones) {
        objects.push(node(zone, zone, cpu));
        for _ in 0..*pods {
            objects.push(pod(number, zone));
            number += 1;
        }
    }
    objects
}
