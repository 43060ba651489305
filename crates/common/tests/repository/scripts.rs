//! The scripts behind the Makefile. Some of them run rarely, and a slip in one would be found late.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::{files, has_extension, read, root};

fn is_bash(path: &Path) -> bool {
    has_extension(path, "bash") || read(path).starts_with("#!/usr/bin/env bash")
}

#[test]
fn every_script_can_be_parsed() {
    let scripts: Vec<PathBuf> =
        files(Path::new("scripts")).into_iter().filter(|path| is_bash(path)).collect();
    assert!(scripts.len() > 10, "only these were found: {scripts:?}");
    for script in scripts {
        let output = Command::new("bash").arg("-n").arg(root().join(script)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
