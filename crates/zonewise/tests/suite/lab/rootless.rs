//! The lab of a user who is not root: in a user namespace, where that is allowed; and what is said where it is not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use zonewise_lab::rights::{Facts, KernelChoice, Way, way};

use super::run::{PROGRAM, Running, scenario, text};

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Two Services' worth of connections for a few seconds.
const SHORT: &str = "
title: Short
cluster: {zones: [{name: a, nodes: 1}, {name: b, nodes: 1}]}
services:
  - name: web
    endpoints: {a: 2, b: 2}
    connections: 200
    annotations: {zonewise.dev/routing-preference: zonewise.dev/balanced}
acts:
  - title: Short
    measure: 3s
    expect: {inZone: {atLeast: 100%}, reason: [SharesBalanced]}
";

/// A place where a user who is not root can run the program, and write.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let permissions = std::fs::Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(permissions).tempdir().unwrap();
        std::fs::copy(PROGRAM, folder.path().join("zonewise")).unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        chown(folder.path().join("tmp"), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("zonewise")
    }

    /// The parent of the directories of the labs.
    fn labs(&self) -> PathBuf {
        self.folder.path().join(format!("tmp/zonewise-lab-{NOBODY}"))
    }

    fn set(&self, command: &mut Command) {
        command
            .current_dir("/")
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null());
    }

    /// The program as this user runs it.
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        self.set(&mut command);
        command
    }
}

/// The program as a user who is not root runs it, where user namespaces are forbidden: in one that allows no more of them.
pub(super) fn forbidden(arguments: &[&str]) -> Output {
    const FORBID: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$0\" \"$@\"";
    let home = Home::new();
    let mut command = Command::new("unshare");
    // Its user is root only once the ids are mapped, and has rights only after an `exec` then.
    let wait = ["--user", "sh", "-c", "echo made; read mapped; exec sh -c \"$@\"", "sh", FORBID];
    command.args(wait).arg(home.program()).args(arguments);
    home.set(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare is needed: apt-get install util-linux");
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut made = String::new();
    said.read_line(&mut made).unwrap();
    assert_eq!(made, "made\n", "the kernel makes no user namespace for root");
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{map}", child.id()), "0 0 65536").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    Output { stdout: rest, ..output }
}

/// What a user sees, from outside of the lab's namespaces: its summary, the page, the API server, `exec`.
#[test]
fn a_lab_without_root_is_reached_from_outside() {
    let home = Home::new();
    let file = scenario(SHORT);
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = ["lab", "--scenario", path, "--page", "127.0.0.1:0", "-o", "json"];
    let mut command = home.run(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let (kubeconfig, page, before) = come_up(&mut said);
    let running = Running { child, said };
    assert!(kubeconfig.starts_with(home.labs()), "{}", kubeconfig.display());

    let host = page.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<title>"), "{answer}");

    let asked = home
        .run(&["explain", "-o", "json", "--kubeconfig", kubeconfig.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        text(&asked.stdout).contains("\"service\": \"default/web\""),
        "{}",
        text(&asked.stderr)
    );

    let pid = running.child.id().to_string();
    let call = ["lab", "exec", "a", "--lab", &pid, "--", "curl", "-s", "http://web"];
    let mut called = home.run(&call).output().unwrap();
    // Rules come a moment after the cluster is up.
    for _ in 0..100 {
        if !called.stdout.is_empty() || !called.stderr.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        called = home.run(&call).output().unwrap();
    }
    let is_real = before.contains("in a user namespace of its own");
    if is_real {
        assert!(text(&called.stdout).starts_with("web-a-"), "{}", text(&called.stderr));
    } else {
        // A policy of this machine forbids user namespaces: it is named, and `exec` says what is missing.
        let Way::Memory(Some(obstacle)) = way(KernelChoice::Auto, &of_nobody(), None) else {
            panic!("nothing is known to forbid user namespaces: {before}");
        };
        assert!(before.contains(&obstacle.to_string()), "{before}");
        assert!(text(&called.stderr).contains("kernel in memory"), "{}", text(&called.stderr));
    }

    let (code, out, said) = running.end();
    let summary: Value = serde_json::from_str(out.as_str().unwrap()).unwrap();
    assert_eq!((code, &summary["held"]), (Some(0), &true.into()), "{summary:#} {said}");
    assert_eq!(summary["failed"], 0, "{summary:#}");
    assert_eq!(summary["kernel"], if is_real { "real" } else { "memory" });
    assert!(!kubeconfig.exists(), "nothing is left");
}

/// The facts of a process without rights on this machine.
fn of_nobody() -> Facts {
    Facts { privileged: false, root: false, ..Facts::read() }
}

/// Reads what a lab says until its page is up: the kubeconfig, the page, and everything.
fn come_up(said: &mut impl BufRead) -> (PathBuf, String, String) {
    let (mut all, mut kubeconfig) = (String::new(), None);
    loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "the lab ended before it was up: {all}");
        all += &line;
        if let Some((_, path)) = line.split_once("--kubeconfig=") {
            kubeconfig = path.split_whitespace().next().map(PathBuf::from);
        }
        if let Some((_, page)) = line.split_once("the page is at ") {
            return (kubeconfig.unwrap(), page.trim().to_owned(), all);
        }
    }
}

/// Everybody cleans up what is theirs.
#[test]
fn a_user_cleans_up_without_root() {
    let home = Home::new();
    let left = home.labs().join("4000001");
    std::fs::create_dir_all(&left).unwrap();
    for path in [home.labs(), left.clone()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let cleaned = home.run(&["lab", "clean"]).output().unwrap();
    let said = text(&cleaned.stdout);
    assert!(
        said.contains("removed the directory of the lab of process 4000001"),
        "{said} {}",
        text(&cleaned.stderr)
    );
    assert!(!left.exists());
    // Of nothing that runs, nothing is called.
    let called = home.run(&["lab", "exec", "a", "--lab", "1", "--", "true"]).output().unwrap();
    assert!(text(&called.stderr).contains("no lab runs in process 1"), "{}", text(&called.stderr));
}

/// The first look, where nothing is allowed: it plays, and one line says what forbids the real kernel, and how to get it.
#[test]
fn where_user_namespaces_are_forbidden_the_kernel_is_in_memory() {
    let file = scenario(SHORT);
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let path: &Path = file.path();
    let output = forbidden(&["lab", "--scenario", path.to_str().unwrap(), "-o", "json"]);
    let said = text(&output.stderr);
    let summary: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&summary["kernel"], &summary["held"]), (&"memory".into(), &true.into()), "{said}");
    let line = said.lines().find(|line| line.contains("in memory (simulated)")).unwrap_or_default();
    for part in [
        "because the setting user.max_user_namespaces=0 forbids",
        "; for this machine's kernel: sudo ",
    ] {
        assert!(line.contains(part), "{part}: {said}");
    }
}
