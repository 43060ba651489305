//! Starts `zonewise lab`, and reads its report.
#![allow(dead_code, reason = "every test target uses its part of this")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");

pub(super) fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that ends by itself, and what it says about itself.
pub(super) fn summary(arguments: &[&str]) -> Value {
    let output = lab(arguments).args(["-o", "json"]).output().unwrap();
    let said = text(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {said}", text(&output.stdout)));
    assert!(output.status.success(), "{summary:#} {said}");
    summary
}

/// The acts of the story, each with whether it held, and the connections that failed.
pub(super) fn outline(summary: &Value) -> Value {
    let acts = summary["acts"].as_array().unwrap().iter();
    let acts: Vec<&Value> = acts.map(|act| &act["title"]).collect();
    json!({"acts": acts, "held": summary["held"], "failed": summary["failed"]})
}

pub(super) fn story() -> Value {
    json!({
        "acts": [
            "No topology", "Topology-mode Auto", "Balanced", "A zone loses its endpoints",
            "A zone goes away", "And comes back", "Rolling update", "Pods come up one by one",
        ],
        "held": true,
        "failed": 0,
    })
}

pub(super) struct Running {
    pub(super) child: Child,
    pub(super) said: BufReader<std::process::ChildStderr>,
}

impl Running {
    /// Starts a lab with one long act, and waits until its cluster is up.
    pub(super) fn start(scenario: &Path) -> (Self, PathBuf) {
        let mut command = lab(&["--scenario", scenario.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("--kubeconfig=") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the lab ended before it was up");
        }
        let (_, path) = line.split_once("--kubeconfig=").unwrap();
        let path = PathBuf::from(path.split_whitespace().next().unwrap());
        (Self { child, said }, path)
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub(super) fn end(mut self) -> (Option<i32>, Value, String) {
        let (mut out, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), json!(out), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) const LONG: &str = "
title: Long
cluster: {zones: [{name: a, nodes: 1}, {name: b, nodes: 1}]}
services: [{name: web, endpoints: {a: 2, b: 2}, connections: 100}]
acts: [{title: Long, measure: 10m}]
";

pub(super) fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}
