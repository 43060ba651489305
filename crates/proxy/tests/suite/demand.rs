//! `--demand-address`: what was counted by Service, for those whom the API server allows to read it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use http::Request;
use kube::{Client, Config as ClientConfig};
use serde_json::json;
use zonewise_common::proxy_report::{DemandServer, ProxyReport};
use zonewise_demand::report::{Counts, Report};
use zonewise_proxy::Timeline;
use zonewise_proxy::config::{Config, CountBy};
use zonewise_testbed::{Cluster, User, eventually, manifests, objects};

use crate::common::live::{LiveNetwork, LiveProxy, slice_of};
use crate::common::roles::apply_roles;

const AUDIENCE: &str = "zonewise-demand";

/// The rights of `deploy/demand/rbac.yaml`, and service accounts to ask as.
async fn apply_demand_roles(cluster: &Cluster) {
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/demand/rbac.yaml");
    cluster.create(&manifests(roles).unwrap()).await.unwrap();
    let accounts = ["zonewise-controller", "zonewise-observer"].map(|name| {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "zonewise-system"},
        })
    });
    cluster.create(&accounts).await.unwrap();
}

/// The answer to a question with this token: status and body.
async fn ask(to: SocketAddr, token: Option<&str>) -> (u16, String) {
    let mut config = ClientConfig::new(format!("https://{to}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info = serde_json::from_value(json!({ "token": token })).unwrap();
    let client = Client::try_from(config).unwrap();
    let request = Request::get("/demand").body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Where the Lease of the proxy says that it serves what it has counted.
async fn in_lease(cluster: &Cluster) -> DemandServer {
    let name = ProxyReport::lease("n1").1;
    eventually(async || {
        let objects = cluster.objects().unwrap();
        let lease = objects.get("Lease", Some("zonewise-system"), &name).await.unwrap();
        let lease = lease.ok_or("no Lease")?;
        let report: ProxyReport = serde_json::from_value(lease.clone()).unwrap();
        report.demand.ok_or_else(|| lease.to_string())
    })
    .await
}

#[test]
fn counts_by_service_are_served_to_those_who_may_read_them() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let cluster = Cluster::start().await.unwrap();
        apply_roles(&cluster).await;
        apply_demand_roles(&cluster).await;
        let mut service = objects::service("default", "web", "web");
        service["spec"].as_object_mut().unwrap().remove("selector");
        service["spec"]["clusterIP"] = json!("10.96.0.77");
        let web = SocketAddr::from(([10, 96, 0, 77], 80));
        let slice = slice_of("web", "web-1", &[&network.there], false);
        cluster.create(&[network.n1_object(), service, slice]).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 10274));
        let config = Config {
            bind_hard_fail: true,
            count: CountBy::Services,
            demand: Some(address),
            ..Config::new("n1")
        };
        let client = cluster.client(User::Proxy).unwrap();
        let proxy = LiveProxy::run(client, config, Timeline::default());
        network.answers_at_last(web, "there").await;
        assert_eq!(in_lease(&cluster).await.port, 10274);

        let of = async |user, audience| cluster.account_token(user, audience).await.unwrap();
        let good = of(User::Controller, AUDIENCE).await;
        let rows = [
            (None, 401),
            (Some("nonsense".to_owned()), 401),
            (Some(of(User::Controller, "https://kubernetes.default.svc").await), 401),
            (Some(of(User::Observer, AUDIENCE).await), 403),
        ];
        for (token, expected) in rows {
            let (status, body) = ask(address, token.as_deref()).await;
            assert_eq!(status, expected, "{token:?}: {body}");
        }
        let report = async || -> Result<Report, String> {
            let (status, body) = ask(address, Some(&good)).await;
            assert_eq!(status, 200, "{body}");
            Report::read(body.as_bytes()).map_err(|error| error.to_string())
        };
        let connections = |report: &Report| {
            let zones = report.services.get("default/web").cloned().unwrap_or_default();
            zones.into_iter().map(|(zone, counts)| (zone, counts.connections)).collect()
        };
        let before: BTreeMap<Box<str>, u64> = connections(&report().await.unwrap());
        for _ in 0..20 {
            assert_eq!(network.answer(web), "there");
        }
        let expected = BTreeMap::from([("b".into(), before.get("b").unwrap_or(&0) + 20)]);
        let last = eventually(async || {
            let report = report().await?;
            let found: BTreeMap<Box<str>, u64> = connections(&report);
            if found == expected { Ok(report) } else { Err(format!("{found:?}")) }
        })
        .await;
        assert_eq!((&*last.node, &*last.zone, last.unassigned), ("n1", "a", 0));
        assert_eq!(last.services.len(), 1, "{last:?}");
        let counts: Vec<Counts> = last.services["default/web"].values().copied().collect();
        assert_eq!((counts[0].bytes_to, counts[0].bytes_from), (0, 0), "bytes are not counted");
        proxy.stop().await;
    });
}
