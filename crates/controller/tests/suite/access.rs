//! Who may read the metrics.

use std::net::SocketAddr;

use http::Request;
use kube::{Client, Config as ClientConfig};
use serde_json::json;
use zonewise_controller::config::Config;
use zonewise_telemetry::tls::Certificate;
use zonewise_testbed::{User, eventually};

use crate::common::{Running, config, own_cluster};

/// The answer of a server that has made its certificate itself: status and body.
pub(crate) async fn ask(address: SocketAddr, path: &str, token: Option<&str>) -> (u16, String) {
    let mut config = ClientConfig::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    // One answer is asked for: otherwise the client asks for minutes again where that is 503.
    config.default_retry = false;
    config.auth_info = serde_json::from_value(json!({ "token": token })).unwrap();
    let client = Client::try_from(config).unwrap();
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_beyond_loopback_need_a_token_that_may_read_them() {
    let _turn = crate::common::turn().await;
    let cluster = own_cluster().await;
    let account = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "zonewise-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "zonewise-observer", "namespace": "zonewise-system"}],
    });
    cluster.create(&[account]).await.unwrap();
    // As on an address beyond loopback, on which tests do not listen.
    let config = Config { metrics_certificate: Some(Certificate::SelfSigned), ..config("") };
    let running = Running::run(&cluster.kubeconfig(User::Controller).unwrap(), config).await;
    let healthy = || async {
        let page = running.page("/readyz").await.map_err(|error| error.to_string())?;
        if page == "ok" { Ok(()) } else { Err(page) }
    };
    eventually(healthy).await;

    let (status, body) = ask(running.metrics, "/metrics", None).await;
    assert_eq!((status, body.starts_with("a bearer token is needed")), (401, true), "{body}");
    let (status, body) = ask(running.metrics, "/metrics", Some("wrong")).await;
    assert_eq!((status, body.contains("does not accept the token")), (401, true), "{body}");
    let (status, body) = ask(running.metrics, "/metrics", Some(cluster.token(User::Proxy))).await;
    let refused = format!("{:?} may not get /metrics", User::Proxy.name());
    assert_eq!((status, body.starts_with(&refused)), (403, true), "{body}");
    let reader = Some(cluster.token(User::Observer));
    let (status, body) = ask(running.metrics, "/metrics", reader).await;
    assert_eq!((status, body.contains("\nzonewise_leader ")), (200, true), "{body}");
    assert_eq!(ask(running.metrics, "/other", reader).await.0, 404);
    assert_eq!(
        ask(running.metrics, "/other", None).await.0,
        404,
        "nothing that a token could open"
    );

    // What cannot be decided is refused. (The answer for Admin is not known yet.)
    cluster.kill_apiserver().unwrap();
    let (status, body) = ask(running.metrics, "/metrics", Some(cluster.token(User::Admin))).await;
    assert_eq!((status, body.contains("cannot be asked")), (503, true), "{body}");
    assert_eq!(running.page("/livez").await.unwrap(), "ok");
    healthy().await.unwrap();
    cluster.start_apiserver().await.unwrap();
    eventually(|| async {
        let (status, body) =
            ask(running.metrics, "/metrics", Some(cluster.token(User::Admin))).await;
        if status == 200 { Ok(()) } else { Err(body) }
    })
    .await;
    running.stop().await.unwrap();
}
