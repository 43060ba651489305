//! The proxy against an API server: its watches decide what it knows, and packets show it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::net::SocketAddr;

use serde_json::{Value, json};
use zonewise_testbed::eventually;

use crate::common::live::{Api, LiveNetwork, LiveProxy, slice_of};
use crate::common::objects::labelled;
use crate::health::ask;

const HEADLESS: &str = "service.kubernetes.io/headless";

/// A slice that gets the label of headless Services is not for proxies: no list brings it back.
#[test]
fn c8_a_slice_that_becomes_headless_stays_away() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        api.objects.create(&[network.n1_object()]).await.unwrap();
        let web = api.add_service("web").await;
        let slice = slice_of("web", "web-1", &[&network.here]);
        api.objects.create(std::slice::from_ref(&slice)).await.unwrap();
        let proxy = LiveProxy::start(&api);
        network.answers_at_last(web, "here").await;

        api.objects.update(&[labelled(slice.clone(), HEADLESS, "")]).await.unwrap();
        network.answers_at_last(web, "refused").await;
        // When a later change is in the kernel, whatever followed the label is there as well.
        let marker = api.add_service("marker").await;
        api.objects.create(&[slice_of("marker", "marker-1", &[&network.there])]).await.unwrap();
        network.answers_at_last(marker, "there").await;
        let answers: Vec<String> = (0..20).map(|_| network.answer(web)).collect();
        assert_eq!(answers, vec!["refused"; 20]);

        api.objects.update(&[slice]).await.unwrap();
        network.answers_at_last(web, "here").await;
        proxy.stop().await;
    });
}

/// The body of `/healthz`, once the server listens.
async fn healthz() -> Value {
    let address = SocketAddr::from(([127, 0, 0, 1], 10256));
    let (_, body) =
        eventually(async || ask(address, "GET", "/healthz").await.ok_or("no answer".to_owned()))
            .await;
    serde_json::from_str(&body).unwrap()
}

/// What a proxy waits for at its start is on `/healthz`, with what to do about it.
#[test]
fn a_proxy_without_its_node_says_what_it_waits_for() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        let proxy = LiveProxy::start(&api);
        let waits_for = async |expected: &str| {
            eventually(async || {
                let body = healthz().await;
                let said = body["waitingFor"].as_str().unwrap_or("nothing");
                if said.contains(expected) { Ok(()) } else { Err(format!("{expected}: {body}")) }
            })
            .await;
        };
        waits_for("has no Node n1; start the kubelet of this node, or set --node-name").await;
        let mut node = network.n1_object();
        let addresses = node["status"]["addresses"].take();
        api.objects.create(std::slice::from_ref(&node)).await.unwrap();
        waits_for("Node n1 has no address in status.addresses").await;
        node["status"]["addresses"] = addresses;
        api.objects.update_status(&[node]).await.unwrap();
        waits_for("nothing").await;
        eventually(async || match healthz().await {
            body if body["nodeEligible"] == json!(true) => Ok(()),
            body => Err(body.to_string()),
        })
        .await;
        proxy.stop().await;
    });
}
