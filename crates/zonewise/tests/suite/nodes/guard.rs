//! Guard mode on the nodes of a test: six servers in three zones, and what `explain --mode guard` expects of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use zonewise_netns::Namespace;
use zonewise_netns::traffic::probe_tcp;
use zonewise_testbed::{Cluster, Process, User, content_type_flag, eventually, manifests};

use super::{PROBE_TIMEOUT, repository};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
pub(crate) const ZONES: [(&str, &str); 3] = [("n1", "a"), ("n2", "b"), ("n3", "c")];
/// Four servers in zone a and one in b and c: `auto` gives one of a's to each of the others.
pub(crate) const SERVERS: [(&str, &str); 6] =
    [("n1", "a1"), ("n1", "a2"), ("n1", "a3"), ("n1", "a4"), ("n2", "b1"), ("n3", "c1")];

pub(crate) async fn apply(cluster: &Cluster) {
    for file in ["deploy/guard/crd.yaml", "deploy/guard/rbac.yaml"] {
        cluster.create(&manifests(repository(file)).unwrap()).await.unwrap();
    }
    eventually(|| async {
        cluster.list("ZoneAllocation", None).await.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
}

pub(crate) fn guard(cluster: &Cluster) -> Process {
    let kubeconfig = cluster.kubeconfig(User::Controller).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let form = content_type_flag();
    let mut flags = vec![
        "controller",
        "--mode=guard",
        &kubeconfig,
        "--leader-elect=false",
        "--metrics-address=127.0.0.1:0",
        "--health-address=127.0.0.1:0",
    ];
    flags.extend(form.as_deref());
    Process::spawn(Path::new(PROGRAM), &flags, &[], &cluster.log("guard")).unwrap()
}

/// The output of a command of ours that succeeds.
pub(crate) fn zonewise(cluster: &Cluster, arguments: &[&str]) -> String {
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let output =
        Command::new(PROGRAM).args(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The part of the traffic that `explain --mode guard` expects to stay in its zone.
pub(crate) fn expected(cluster: &Cluster) -> f64 {
    let arguments = ["explain", "default/web", "--mode", "guard", "-o", "json"];
    let document: Value = serde_json::from_str(&zonewise(cluster, &arguments)).unwrap();
    document["inZone"]["planned"].as_f64().unwrap()
}

/// The part of connections that stay in their zone, with as many from each zone.
pub(crate) fn measured(callers: &BTreeMap<&str, Namespace>, to: std::net::SocketAddr) -> f64 {
    const TRIES: usize = 300;
    let stays = |(zone, caller): (&&str, &Namespace)| {
        let answers = (0..TRIES).map(|_| probe_tcp(caller, to, PROBE_TIMEOUT).to_string());
        answers.filter(|server| server.starts_with(*zone)).count()
    };
    let stayed: usize = callers.iter().map(stays).sum();
    stayed as f64 / (TRIES * callers.len()) as f64
}
