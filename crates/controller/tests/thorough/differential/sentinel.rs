//! Tells when a controller has noticed all that was written before.
//!
//! A watch delivers the changes of a kind in their order. So a Service, a Pod and a Node of our own
//! are changed last. When the marks of all three are in the slice of that Service, the changes before
//! them are in the controller's cache and in its queue.

use std::time::Duration;

use serde_json::{Value, json};
use zonewise_testbed::Objects;
use zonewise_testbed::objects::{namespace, node, pod, service, set_ready};

const NAME: &str = "sentinel";
const ZONE: &str = "topology.kubernetes.io/zone";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often the marks are looked for before the Service is changed again.
const ATTEMPTS_PER_TOUCH: usize = 5;
/// Two minutes: more than a controller needs for its start on a busy machine.
const ATTEMPTS: usize = 2_400;

pub(super) struct Sentinel {
    node: Value,
    pod: Value,
    service: Value,
    round: usize,
}

impl Sentinel {
    /// Creates the objects.
    pub(super) async fn new(objects: &Objects) -> Self {
        let mut node = node(NAME, "round-0", "1");
        // A node of the control plane does not count for hints.
        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
        let pod = pod(NAME, NAME, NAME, NAME, "10.5.0.1");
        let service = service(NAME, NAME, NAME);
        if objects.get("Namespace", None, NAME).await.unwrap().is_none() {
            objects.create(&[namespace(NAME)]).await.unwrap();
        }
        objects.create(&[node.clone(), pod.clone(), service.clone()]).await.unwrap();
        Self { node, pod, service, round: 0 }
    }

    /// Leaves the marks of a new round, and waits for them. `nodes` asks for a mark in the watch of
    /// nodes too; it is a change of zone, upon which the reference looks at all nodes again.
    pub(super) async fn barrier(&mut self, objects: &Objects, nodes: bool) {
        self.round += 1;
        let is_ready = self.round.is_multiple_of(2);
        set_ready(&mut self.pod, is_ready);
        objects.update(std::slice::from_ref(&self.pod)).await.unwrap();
        if nodes {
            self.node["metadata"]["labels"][ZONE] = format!("round-{}", self.round).into();
            objects.update(std::slice::from_ref(&self.node)).await.unwrap();
        }
        let expected =
            json!([self.round.to_string(), is_ready, self.node["metadata"]["labels"][ZONE]]);
        let mut seen = Value::Null;
        for attempt in 0..ATTEMPTS {
            // A change of a node's zone alone makes the reference look at no Service. So the Service
            // is changed again, in case it was looked at before the node had been noticed.
            if attempt % ATTEMPTS_PER_TOUCH == 0 {
                self.touch(objects, attempt).await;
            }
            let slices = objects.list("EndpointSlice", Some(NAME)).await.unwrap();
            seen = slices.first().map_or(Value::Null, marks);
            if seen == expected {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        panic!("the controller has seen {seen} and not {expected}");
    }

    async fn touch(&mut self, objects: &Objects, attempt: usize) {
        self.service["metadata"]["labels"] =
            json!({ "round": self.round.to_string(), "attempt": attempt.to_string() });
        objects.update(std::slice::from_ref(&self.service)).await.unwrap();
    }

    /// Deletes the objects, and the slice of the Service.
    pub(super) async fn remove(&self, objects: &Objects) {
        let mut slices = objects.list("EndpointSlice", Some(NAME)).await.unwrap();
        slices.iter_mut().for_each(|slice| slice["kind"] = "EndpointSlice".into());
        let own = [&self.node, &self.pod, &self.service];
        let all: Vec<Value> = own.into_iter().cloned().chain(slices).collect();
        objects.delete(&all).await.unwrap();
    }
}

/// What a slice shows of the Service, of the Pod and of the Node.
fn marks(slice: &Value) -> Value {
    let endpoint = &slice["endpoints"][0];
    json!([slice["metadata"]["labels"]["round"], endpoint["conditions"]["ready"], endpoint["zone"]])
}
