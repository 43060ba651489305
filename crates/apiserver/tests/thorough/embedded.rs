//! The reference controller on the embedded server.

use std::time::Duration;

use serde_json::Value;
use zonewise_testbed::{Objects, Process, objects, program};

use crate::protobuf;
use crate::servers::Scratch;

/// What the reference controller has to endure, one after the other.
const FAULTS: [&str; 4] = ["latency=0ms..1ms", "drop-watches=200ms", "errors=20%", "stale=1s"];

/// kube-controller-manager, with the informers of client-go: they list and watch, and list again when
/// their watches break or their versions are forgotten. It reads and writes protobuf unless it is told
/// otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn the_reference_controller_works_on_the_embedded_server() {
    for form in [protobuf::MEDIA_TYPE, "application/json"] {
        reference_controller(form).await;
    }
}

async fn reference_controller(form: &str) {
    let scratch = Scratch::start().await;
    let program = program("kube-controller-manager").unwrap();
    let flags = [
        &format!("--kubeconfig={}", scratch.side.kubeconfig.display()),
        "--controllers=endpointslice-controller",
        "--leader-elect=false",
        "--secure-port=0",
        &format!("--kube-api-content-type={form}"),
    ];
    let log = scratch.side.kubeconfig.with_extension("log");
    let mut manager = Process::spawn(&program, &flags, &[], &log).unwrap();
    let objects = Objects::new(scratch.side.client.clone());
    objects.create(&[objects::node("a1", "a", "4")]).await.unwrap();
    objects.create(&[objects::service("default", "web", "web")]).await.unwrap();
    let pods: Vec<Value> = (1..=4)
        .map(|n| objects::pod("default", &format!("web-{n}"), "web", "a1", &format!("10.4.0.{n}")))
        .collect();
    for (number, (pod, faults)) in pods.iter().zip(FAULTS).enumerate() {
        objects.create(std::slice::from_ref(pod)).await.unwrap();
        scratch.server.set_faults(faults.parse().unwrap());
        has_addresses(&objects, &mut manager, number + 1).await;
        scratch.server.set_faults(Default::default());
        scratch.server.compact();
    }
    objects.delete(&pods[1..]).await.unwrap();
    has_addresses(&objects, &mut manager, 1).await;
    manager.stop().await.unwrap();
    scratch.server.stop().await;
}

/// Waits until so many endpoints are in the slices of the Service.
async fn has_addresses(objects: &Objects, manager: &mut Process, count: usize) {
    for _ in 0..1_200 {
        manager.check().unwrap();
        // Faults concern this client as well.
        let slices = objects.list("EndpointSlice", Some("default")).await.unwrap_or_default();
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array());
        if endpoints.map(Vec::len).sum::<usize>() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("there were never {count} endpoints");
}
