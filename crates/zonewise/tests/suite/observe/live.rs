//! The same commands on a real API server, with the rights of those who only look.

use std::net::TcpListener;

use serde_json::json;
use zonewise_testbed::User;

use crate::observe::run::{Ran, program, run_on};
use crate::observe::shop::{COMMANDS, json as read, live, objects_only, shop};

/// The cluster's objects in a file give the same answers as the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_cluster_and_a_file_of_its_objects_give_the_same_answers() {
    let cluster = shop().await;
    let mut items = Vec::new();
    for kind in ["Node", "Pod", "Service", "EndpointSlice"] {
        let version = if kind == "EndpointSlice" { "discovery.k8s.io/v1" } else { "v1" };
        for mut object in cluster.list(kind, None).await.unwrap() {
            object["kind"] = json!(kind);
            object["apiVersion"] = json!(version);
            items.push(object);
        }
    }
    let file = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    for command in COMMANDS {
        let answer = objects_only(read(&live(&cluster, command)));
        let offline = run_on(&[command, &["-f", "-"][..]].concat(), file.as_bytes());
        assert_eq!(objects_only(read(&offline)), answer, "{command:?}");
    }
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
    // Nobody listens any more where the API server was.
    let port = |port: u16| format!("https://127.0.0.1:{port}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = std::fs::read_to_string(cluster.kubeconfig(User::Observer).unwrap()).unwrap();
    let closed = cluster.directory().join("closed.kubeconfig");
    std::fs::write(&closed, text.replace(&port(cluster.port()), &port(free))).unwrap();
    let gone: Ran = program(&["explain", "--kubeconfig"]).arg(closed).output().unwrap().into();
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("the API server is not available"), "{}", gone.err);
    let context = live(&cluster, &["explain", "--context", "elsewhere"]);
    assert!(
        context.code == 1 && context.err.contains("its contexts are testbed"),
        "{}",
        context.err
    );
}
