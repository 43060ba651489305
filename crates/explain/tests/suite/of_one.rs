//! A copy of a snapshot with one Service: everything that is said of it is the same, and others are not named.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_explain::{Snapshot, SnapshotBuilder, documents, location_in, matrices, route_lines};
use zonewise_routing::FeatureGates;
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use crate::common::{planner, read};

fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"], "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// The shop of the examples, and a Service that asks for an address that another one has.
fn snapshot() -> Snapshot {
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let mut builder = SnapshotBuilder::default();
    let shop = std::fs::read_dir(examples.join("shop")).unwrap();
    let mut files: Vec<_> = shop.map(|file| file.unwrap().path()).collect();
    files.push(examples.join("shop-slices.yaml"));
    files.sort();
    for file in files {
        read(&mut builder, &std::fs::read(file).unwrap());
    }
    let external = json!({"externalIPs": ["203.0.113.7"], "selector": {"app": "x"}});
    let hidden = service("secret", "hidden", &external);
    let mut curious = service("shop", "curious", &external);
    curious["spec"]["clusterIP"] = json!("10.96.7.8");
    curious["spec"]["clusterIPs"] = json!(["10.96.7.8"]);
    read(
        &mut builder,
        json!({"apiVersion": "v1", "kind": "List", "items": [hidden, curious]})
            .to_string()
            .as_bytes(),
    );
    builder.finish(MissingCpu::Refuse).0
}

/// Everything that is said of a Service.
fn said(snapshot: &Snapshot, service: &Arc<Service>) -> Value {
    let planner = planner();
    let here = &planner.environment;
    let explained = documents::explained(snapshot, service, &planner, None).unwrap();
    let plan = service.is_ours().then(|| planner.plan(snapshot, service).unwrap());
    let view = snapshot.proxy_view(service);
    let (gates, from) = (FeatureGates::default(), location_in(snapshot.nodes(), "eu-a"));
    json!([
        explained.document(here),
        plan,
        matrices(&view, &snapshot.senders(service), &gates).unwrap(),
        route_lines(&view, &from, &gates).unwrap(),
    ])
}

#[test]
fn what_is_said_of_a_service_does_not_depend_on_the_others_being_there() {
    let all = snapshot();
    let services: Vec<Arc<Service>> = all.services().map(Arc::clone).collect();
    assert_eq!(services.len(), 8);
    for service in services {
        let one = all.of_one(&service, |_| true);
        assert_eq!(one.services().count(), 1);
        assert_eq!(said(&one, &service), said(&all, &service), "{}", service.key());
    }
}

#[test]
fn a_service_of_a_namespace_that_may_not_be_seen_is_not_named() {
    let all = snapshot();
    let curious = all.service(&("shop".into(), "curious".into())).unwrap();
    let told = |may_be_named: fn(&str) -> bool| {
        said(&all.of_one(&curious, may_be_named), &curious).to_string()
    };
    let everything = told(|_| true);
    assert!(everything.contains("Service secret/hidden has this address and port"), "{everything}");
    let shop = told(|namespace| namespace == "shop");
    assert!(shop.contains("a Service of another namespace has this address and port"), "{shop}");
    assert!(!shop.contains("secret") && !shop.contains("hidden"), "{shop}");
}
