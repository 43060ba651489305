//! kube-proxy's DaemonSet on a real API server: kept away from labelled nodes, and made what it was, by the commands of
//! docs/proxy.md and of the chart's notes, word for word.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use zonewise_testbed::{Cluster, User};

use super::chart::PLACE;
use super::install::{cluster, run_helm};
use crate::observe::run::{Ran, root};

/// Runs a command line as an administrator, in a folder of its own.
fn shell(cluster: &Cluster, folder: &Path, command: &str) -> String {
    let programs = cluster.program("kubectl").parent().unwrap().display().to_string();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir(folder);
    shell.env("PATH", format!("{programs}:/usr/bin:/bin"));
    shell.env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap());
    let ran: Ran = shell.output().unwrap().into();
    assert_eq!(ran.code, 0, "{command}: {}", ran.err);
    ran.out
}

/// The one command of a text that has all of these words. Its first line begins with `prompt`, the others are indented more.
fn command_of(text: &str, prompt: &str, words: &[&str]) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().collect();
    let starts = (0..lines.len()).filter(|at| lines[*at].trim_start().starts_with(prompt));
    let commands = starts.map(|at| {
        let more = lines[at + 1..].iter().take_while(|line| indent(line) > indent(lines[at]));
        let first = lines[at].trim_start().trim_start_matches("$ ").to_owned();
        more.fold(first, |all, line| format!("{all}\n{line}"))
    });
    let mut found: Vec<String> =
        commands.filter(|command| words.iter().all(|word| command.contains(word))).collect();
    assert_eq!(found.len(), 1, "{words:?}: {found:?}");
    found.remove(0)
}

/// A term of an affinity, as managed clusters have it.
fn term(key: &str) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["virtual"]}]})
}

fn kube_proxy(terms: &[Value]) -> Value {
    let labels = json!({"k8s-app": "kube-proxy"});
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let mut pod = json!({"containers": [{"name": "kube-proxy", "image": "kube-proxy:v1.36.4"}]});
    if !terms.is_empty() {
        pod["affinity"] = json!({"nodeAffinity": required});
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "kube-system", "name": "kube-proxy"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

fn spec(cluster: &Cluster, folder: &Path) -> Value {
    let get = "kubectl -n kube-system get daemonset kube-proxy -o json";
    serde_json::from_str::<Value>(&shell(cluster, folder, get)).unwrap()["spec"].take()
}

/// That kube-proxy keeps the terms that it had, each with one more expression, and is not restarted.
fn is_kept_away(spec: &Value, before: &[Value]) {
    let affinity = &spec["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let ours = json!({"key": "zonewise.dev/proxy", "operator": "DoesNotExist"});
    let with_ours = |term: &Value| {
        let mut expressions = term["matchExpressions"].as_array().unwrap().clone();
        expressions.push(ours.clone());
        json!({"matchExpressions": expressions})
    };
    let expected: Vec<Value> = match before {
        [] => vec![json!({"matchExpressions": [ours]})],
        before => before.iter().map(with_ours).collect(),
    };
    assert_eq!(*terms, Value::from(expected));
    assert_eq!(spec["updateStrategy"], json!({"type": "OnDelete"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_proxy_is_kept_away_and_made_what_it_was_by_the_commands_of_the_page() {
    let cluster = cluster().await;
    let page = fs::read_to_string(root().join("docs/proxy.md")).unwrap();
    let one = |words: &[&str]| command_of(&page, "$ kubectl", words);
    let rows = [
        (vec![], one(&["patch daemonset kube-proxy --type merge"])),
        (vec![term("type")], one(&["patch daemonset kube-proxy --type json", "\"add\""])),
    ];
    for (terms, patch) in rows {
        let folder = tempfile::tempdir().unwrap();
        let run = |command: &str| shell(&cluster, folder.path(), command);
        run(&format!("kubectl create -f - <<'X'\n{}\nX", kube_proxy(&terms)));
        let before = spec(&cluster, folder.path());
        run(&one(&["get daemonset kube-proxy -o yaml", ">kube-proxy.yaml"]));
        let printed = run(&one(&["get daemonset kube-proxy", "jsonpath"]));
        assert_eq!(printed.contains("nodeSelectorTerms"), !terms.is_empty(), "{printed}");
        run(&patch);
        is_kept_away(&spec(&cluster, folder.path()), &terms);
        run(&one(&["replace -f kube-proxy.yaml"]));
        assert_eq!(spec(&cluster, folder.path()), before);

        // Back from proxy.nodes=all, where the DaemonSet was deleted.
        run("kubectl -n kube-system delete daemonset kube-proxy");
        let (kind, rest) = patch.split_once("--type ").unwrap().1.split_once(" -p ").unwrap();
        let create = one(&["patch --local -f kube-proxy.yaml"]);
        run(&create.replace("--type … -p '…'", &format!("--type {kind} -p {rest}")));
        is_kept_away(&spec(&cluster, folder.path()), &terms);
        run(&one(&["replace -f kube-proxy.yaml"]));
        assert_eq!(spec(&cluster, folder.path()), before);
        run("kubectl -n kube-system delete daemonset kube-proxy");
    }
}

/// The chart sees which of the two commands the cluster needs, and whether it was run.
#[tokio::test(flavor = "multi_thread")]
async fn the_notes_of_the_chart_have_the_command_for_the_cluster() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &str| shell(&cluster, folder.path(), command);
    let values = [&["proxy.mode=replace"], &PLACE[..]].concat().join(",");
    let notes = |values: &str| {
        let arguments = ["upgrade", "--install", "zonewise", "deploy/chart", "--set", values];
        let ran = run_helm(&cluster, &arguments);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    for terms in [vec![], vec![term("type")], vec![term("type"), term("pool")]] {
        run(&format!("kubectl create -f - <<'X'\n{}\nX", kube_proxy(&terms)));
        let printed = notes(&values);
        run(&command_of(&printed, "kubectl", &["get daemonset kube-proxy"]));
        run(&command_of(&printed, "kubectl", &["patch daemonset kube-proxy"]));
        is_kept_away(&spec(&cluster, folder.path()), &terms);
        let printed = notes(&values);
        assert!(!printed.contains("patch daemonset kube-proxy"), "{printed}");
        assert!(printed.contains("kubectl label node NODE zonewise.dev/proxy=yes"), "{printed}");
        run("kubectl -n kube-system delete daemonset kube-proxy");
    }
    let printed = notes(&format!("{values},proxy.nodes=all"));
    for words in ["delete daemonset kube-proxy", "rollout restart daemonset zonewise-proxy"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}
