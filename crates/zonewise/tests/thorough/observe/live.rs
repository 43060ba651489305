//! The commands on a real API server beside kubectl: dumps that it makes, plans that it applies, and as its plugin.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use zonewise_testbed::{Cluster, User};

use crate::observe::run::{Ran, run_on};
use crate::observe::shop::{COMMANDS, json, live, objects_only, shop};

/// `kubectl` with our program as a plugin.
pub(crate) fn kubectl(cluster: &Cluster, plugins: &Path, arguments: &[&str], input: &str) -> Ran {
    use std::io::Write;
    let mut child = Command::new(cluster.program("kubectl"))
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap())
        .env("PATH", plugins)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_cluster_and_its_dump_give_the_same_answers() {
    let cluster = shop().await;
    let plugins = tempfile::tempdir().unwrap();
    let dump = ["get", "nodes,pods,services,endpointslices", "-A", "-o"];
    let yaml = kubectl(&cluster, plugins.path(), &[&dump[..], &["yaml"]].concat(), "").out;
    let as_json = kubectl(&cluster, plugins.path(), &[&dump[..], &["json"]].concat(), "").out;
    for command in COMMANDS {
        let answer = objects_only(json(&live(&cluster, command)));
        for dump in [&yaml, &as_json] {
            let offline = run_on(&[command, &["-f", "-"][..]].concat(), dump.as_bytes());
            assert_eq!(objects_only(json(&offline)), answer, "{command:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_plan_writes_the_api_server_takes_and_then_nothing_is_left_to_do() {
    let cluster = shop().await;
    let plugins = tempfile::tempdir().unwrap();
    let plan = live(&cluster, &["plan", "-o", "yaml"]);
    let apply = ["apply", "--server-side", "-f", "-"];
    let applied = kubectl(&cluster, plugins.path(), &apply, &plan.out);
    assert_eq!(applied.code, 0, "{}\n{}", applied.err, plan.out);
    let again = live(&cluster, &["plan"]);
    assert!(again.out.ends_with("0 to create, 0 to update, 0 to delete\n"), "{}", again.out);
    let matrix =
        json(&live(&cluster, &["route", "--matrix", "--service", "shop/web", "-o", "json"]));
    assert_eq!(matrix["matrices"][0]["inZone"], json!(1.0), "{matrix:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_plugin_of_kubectl() {
    let cluster = shop().await;
    let plugins = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_zonewise");
    std::os::unix::fs::symlink(program, plugins.path().join("kubectl-zonewise")).unwrap();
    let listed = kubectl(&cluster, plugins.path(), &["plugin", "list"], "");
    assert!(listed.out.contains("kubectl-zonewise"), "{}{}", listed.out, listed.err);
    let help = kubectl(&cluster, plugins.path(), &["zonewise", "--help"], "");
    assert!(help.out.contains("Usage: kubectl zonewise <COMMAND>"), "{}", help.out);
    let completer = plugins.path().join("kubectl_complete-zonewise");
    std::os::unix::fs::symlink(program, completer).unwrap();
    let completed = |words: &[&str]| {
        kubectl(&cluster, plugins.path(), &[&["__complete", "zonewise"], words].concat(), "").out
    };
    assert!(completed(&["expl"]).starts_with("explain\t"), "{}", completed(&["expl"]));
    assert_eq!(completed(&["explain", "-n", "shop", "w"]), "web\n:4\n");
    assert_eq!(completed(&["explain", "o"]), "other/web\n:4\n");
    let told = kubectl(&cluster, plugins.path(), &["zonewise", "explain", "web", "-n", "shop"], "");
    assert!(told.out.contains("HintsAssigned"), "{}{}", told.out, told.err);
}
