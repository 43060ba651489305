//! A proxy whose API server goes back in time.

use std::net::SocketAddr;

use serde_json::json;
use zonewise_proxy::RunError;
use zonewise_testbed::{Cluster, User, objects};

use crate::common::LONG;
use crate::common::live::{LiveNetwork, LiveProxy, slice_of};
use crate::common::roles::apply_roles;

/// etcd is put back to an older state: what the proxy knows is newer than what there is. It ends by itself while its
/// rules stay, and after its restart it takes objects of lower versions than it had seen.
#[test]
fn e2_a_proxy_starts_anew_after_etcd_was_restored_from_a_backup() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let cluster = Cluster::start().await.unwrap();
        apply_roles(&cluster).await;
        let slice = |pod| slice_of("web", "web-1", &[pod], false);
        let mut service = objects::service("default", "web", "web");
        service["spec"].as_object_mut().unwrap().remove("selector");
        service["spec"]["clusterIP"] = json!("10.96.0.77");
        let web = SocketAddr::from(([10, 96, 0, 77], 80));
        cluster.create(&[network.n1_object(), service, slice(&network.here)]).await.unwrap();
        let proxy = LiveProxy::start_with(cluster.client(User::Proxy).unwrap());
        network.answers_at_last(web, "here").await;

        cluster.back_up_etcd().await.unwrap();
        cluster.update(&[slice(&network.there)]).await.unwrap();
        network.answers_at_last(web, "there").await;
        cluster.restore_etcd().await.unwrap();
        let ended = tokio::time::timeout(6 * LONG, proxy.ended()).await;
        assert!(matches!(ended, Ok(Err(RunError::Rewound))), "{ended:?}");
        assert_eq!(network.answer(web), "there", "the rules stay");

        let proxy = LiveProxy::start_with(cluster.client(User::Proxy).unwrap());
        network.answers_at_last(web, "here").await;
        cluster.update(&[slice(&network.there)]).await.unwrap();
        network.answers_at_last(web, "there").await;
        proxy.stop().await;
    });
}
