//! The same commands on a real API server, with the rights of those who only look.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Cluster, User, manifests};

use crate::observe::run::{Ran, program, run_on};

const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/observer/rbac.yaml");

/// Three zones, a Service in two namespaces.
async fn shop() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    let mut objects = manifests(ROLES).unwrap();
    objects.extend([namespace("shop"), namespace("other")]);
    for zone in ["a", "b", "c"] {
        objects.push(node(zone, zone, "4"));
    }
    for space in ["shop", "other"] {
        for (number, zone) in ["a", "b", "c", "a", "b", "c"].iter().enumerate() {
            let ip = format!("10.244.{}.{}", u8::from(space == "other"), number + 1);
            objects.push(pod(space, &format!("web-{number}"), "web", zone, &ip));
        }
        let mut service = service(space, "web", "web");
        service["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
        objects.push(service);
    }
    cluster.create(&objects).await.unwrap();
    cluster
}

fn live(cluster: &Cluster, arguments: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    program(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap().into()
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

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

/// Removes fields wherever they are.
fn without(document: &mut Value, fields: &[&str]) {
    match document {
        Value::Object(object) => {
            object.retain(|key, _| !fields.contains(&key.as_str()));
            object.values_mut().for_each(|value| without(value, fields));
        }
        Value::Array(array) => array.iter_mut().for_each(|value| without(value, fields)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_cluster_and_its_dump_give_the_same_answers() {
    let cluster = shop().await;
    let plugins = tempfile::tempdir().unwrap();
    let dump = ["get", "nodes,pods,services,endpointslices", "-A", "-o"];
    let yaml = kubectl(&cluster, plugins.path(), &[&dump[..], &["yaml"]].concat(), "").out;
    let as_json = kubectl(&cluster, plugins.path(), &[&dump[..], &["json"]].concat(), "").out;
    let commands: [&[&str]; 6] = [
        &["plan", "-o", "json"],
        &["plan", "-n", "shop", "-o", "json"],
        &["explain", "shop/web", "-o", "json", "--as-if", "controller,proxy"],
        &["explain", "web", "-n", "other", "-o", "json", "--as-if", "controller,proxy"],
        &["explain", "-o", "json", "--as-if", "controller,proxy"],
        &["route", "--node", "a", "-o", "json"],
    ];
    for command in commands {
        // A dump does not show what runs, and where it has no slices it may only lack them.
        let objects_only = |mut document: Value| {
            without(&mut document, &["environment", "verdict", "state"]);
            document
        };
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_not_allowed_is_said() {
    let cluster = shop().await;
    let missing = live(&cluster, &["explain", "shop/none"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("there is no Service shop/none"), "{}", missing.err);
    let misspelt = live(&cluster, &["explain", "shop/wbe"]);
    assert!(misspelt.err.contains("did you mean shop/web?"), "{}", misspelt.err);
    let kubeconfig = cluster.kubeconfig(User::Proxy).unwrap();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let strange = cluster.directory().join("strange.kubeconfig");
    std::fs::write(&strange, text.replace("token: \"", "token: \"not-")).unwrap();
    let unknown: Ran = program(&["explain", "--kubeconfig"]).arg(strange).output().unwrap().into();
    let place = "cannot read the cluster at https://127.0.0.1:";
    assert!(
        unknown.err.contains(place) && unknown.err.contains("(context `testbed`)"),
        "{}",
        unknown.err
    );
    assert!(
        unknown.err.contains("does not accept the credentials (401)")
            && !unknown.err.contains("RBAC"),
        "{}",
        unknown.err
    );
    let refused: Ran =
        program(&["explain", "--kubeconfig"]).arg(kubeconfig).output().unwrap().into();
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("not allowed (403)") && refused.err.contains("nodes"),
        "{}",
        refused.err
    );
    cluster.kill_apiserver().unwrap();
    let gone = live(&cluster, &["explain"]);
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("the API server is not available"), "{}", gone.err);
    let context = live(&cluster, &["explain", "--context", "elsewhere"]);
    assert!(
        context.code == 1 && context.err.contains("its contexts are testbed"),
        "{}",
        context.err
    );
}
