//! Runs `zonewise check` on a cluster, and makes what it looks at.

use serde_json::{Value, json};
use zonewise_testbed::objects::pod;
use zonewise_testbed::{Cluster, User};

use crate::observe::run::{Ran, program};

pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn check(cluster: &Cluster, user: User, arguments: &[&str]) -> (i32, Value) {
    let mut command = program(&["check", "-o", "json"]);
    command.args(arguments).arg("--kubeconfig").arg(cluster.kubeconfig(user).unwrap());
    let ran: Ran = command.output().unwrap().into();
    let document = serde_json::from_str(&ran.out);
    (ran.code, document.unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err)))
}

pub(crate) fn not_passed(document: &Value) -> Vec<&Value> {
    let all = document["checks"].as_array().unwrap();
    all.iter().filter(|check| check["state"] != "passed").collect()
}

/// A Pod of kube-controller-manager, as kubeadm makes it.
pub(crate) fn manager(flags: &str) -> Value {
    let mut one = pod("kube-system", "kube-controller-manager-a", "none", "a", "192.0.2.1");
    one["metadata"]["labels"] = json!({"component": "kube-controller-manager"});
    one["spec"]["containers"][0]["command"] = json!(["kube-controller-manager", flags]);
    one
}

pub(crate) fn node_info(kernel: &str) -> Value {
    let mut info = json!({"kernelVersion": kernel, "operatingSystem": "linux"});
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "architecture",
    ] {
        info[field] = json!("x");
    }
    info
}
