//! Children end with their parent, also when nobody could clean up.
#![allow(clippy::print_stdout, reason = "the parent tells its child by standard output")]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use zonewise_testbed::Process;

/// Set in the parent that will be killed: this test, run again.
const PARENT: &str = "ZONEWISE_TESTBED_PARENT";

#[test]
fn a_killed_parent_leaves_no_child() {
    if env::var_os(PARENT).is_some() {
        return parent();
    }
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["orphans::a_killed_parent_leaves_no_child", "--exact", "--nocapture"])
        .env(PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = lines.find_map(|line| line.strip_prefix("child ").map(str::to_owned)).unwrap();
    let child = Path::new("/proc").join(pid);
    assert!(child.exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    while child.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn parent() {
    let child = Process::spawn(Path::new("/bin/sleep"), &["600"], &[], Path::new("/dev/null"));
    println!("\nchild {}", child.as_ref().unwrap().pid());
    std::thread::sleep(Duration::from_secs(600));
}
