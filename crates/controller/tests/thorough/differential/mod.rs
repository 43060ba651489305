//! Random changes, step by step, on two API servers: one with the reference controller, one with
//! ours in `--compat upstream`. After each step both must hold the same slices.
//!
//! ```text
//!            ┌─► API server ◄── kube-controller-manager ─┐
//!  step ─────┤                                           ├─ barrier, then compare ─► next step
//!            └─► API server ◄── ours ────────────────────┘
//! ```
//!
//! A step must be over on both sides before the next one begins, because what both do depends on what
//! they have seen together. [`sentinel`] tells when everything that was written has been noticed;
//! [`wanted`] makes the steps; [`compare`] says which facts have to be equal, and why not all of them.

mod compare;
mod sentinel;
mod wanted;

use std::time::{Duration, Instant};

use serde_json::Value;
use zonewise_testbed::objects::namespace;
use zonewise_testbed::{Cluster, Objects};

use crate::common::{Running, apply_roles, turn};
use compare::{State, difference};
use sentinel::Sentinel;
use wanted::{Action, Step, Wanted};

/// How many sequences run: 3, or 50 of the 20,000 cases that `make test-long` asks for.
fn sequences() -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u64>().ok());
    asked.map_or(3, |cases| (cases / 400).max(1))
}

/// How long nothing may change before two states are compared.
const QUIET: Duration = Duration::from_millis(150);
/// The reference tries again a Service whose Pods are on missing nodes, after 1, 2, 4 … seconds.
const TIMEOUT: Duration = Duration::from_secs(90);

/// One of the two API servers.
struct Twin {
    objects: Objects,
    sentinel: Sentinel,
}

impl Twin {
    async fn new(cluster: &Cluster) -> Self {
        let objects = cluster.objects().unwrap();
        let sentinel = Sentinel::new(&objects).await;
        Self { objects, sentinel }
    }

    /// Does something, and waits until the controller has noticed.
    async fn act(&mut self, action: &Action) {
        match action {
            Action::Create(all) => self.objects.create(all).await,
            Action::Update(all) | Action::UpdateCpu(all) => self.objects.update(all).await,
            Action::Delete(all) => self.objects.delete(all).await,
            Action::Terminate(all) => self.objects.terminate(all).await,
            Action::DeleteSlices(namespace, service) => {
                let slices = self.slices(namespace).await;
                let of = |slice: &Value| {
                    slice["metadata"]["labels"]["kubernetes.io/service-name"] == service.as_str()
                };
                self.objects.delete(&slices.into_iter().filter(of).collect::<Vec<_>>()).await
            }
        }
        .unwrap();
        self.sentinel.barrier(&self.objects, action.is_about_nodes()).await;
    }

    async fn slices(&self, namespace: &str) -> Vec<Value> {
        let mut slices = self.objects.list("EndpointSlice", Some(namespace)).await.unwrap();
        for slice in &mut slices {
            // The items of a list carry no kind.
            slice["kind"] = "EndpointSlice".into();
        }
        slices
    }

    /// The slices, when they have not changed for a while.
    async fn quiet(&self, namespace: &str) -> Vec<Value> {
        let mut before = self.slices(namespace).await;
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.slices(namespace).await;
            if now == before {
                return now;
            }
            before = now;
        }
    }

    async fn clean(&self, namespace: &str) {
        for kind in ["Service", "Pod", "EndpointSlice"] {
            let mut all = self.objects.list(kind, Some(namespace)).await.unwrap();
            all.iter_mut().for_each(|object| object["kind"] = kind.into());
            self.objects.delete(&all).await.unwrap();
        }
    }
}

/// Waits until both hold the same. Panics with the difference if they never do.
async fn wait_for_agreement(reference: &Twin, ours: &Twin, wanted: &Wanted) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let space = &wanted.namespace;
        let (theirs, ours) = tokio::join!(reference.quiet(space), ours.quiet(space));
        let (theirs, ours) = (State::new(&theirs, wanted), State::new(&ours, wanted));
        let wrong = difference(&theirs, &ours, wanted);
        if wrong.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{}\n{wrong}", wanted.log());
    }
}

async fn take(step: &Step, reference: &mut Twin, ours: &mut Twin, wanted: &Wanted) {
    for (number, action) in step.actions.iter().enumerate() {
        if number > 0 {
            // Nodes reach the reference's decisions by way of a queue of their own.
            tokio::join!(reference.quiet(&wanted.namespace), ours.quiet(&wanted.namespace));
        }
        tokio::join!(reference.act(action), ours.act(action));
    }
    wait_for_agreement(reference, ours, wanted).await;
}

/// One sequence of steps, with controllers that are started for it.
async fn sequence(seed: u64, reference: &Cluster, ours: &Cluster) {
    let mut wanted = Wanted::new(seed);
    let size = wanted.size;
    let (mut their_twin, mut our_twin) = (Twin::new(reference).await, Twin::new(ours).await);
    for twin in [&their_twin, &our_twin] {
        twin.objects.create(&[namespace(&wanted.namespace)]).await.unwrap();
        twin.objects.create(&wanted.all()).await.unwrap();
    }
    let manager =
        reference.controller_manager(&[&format!("--max-endpoints-per-slice={size}")]).unwrap();
    let lines = format!("compat: upstream\nmaxEndpointsPerSlice: {size}");
    let running = Running::start(ours, &lines).await;
    while let Some(step) = wanted.step() {
        take(&step, &mut their_twin, &mut our_twin, &wanted).await;
    }
    running.stop().await.unwrap();
    manager.stop().await.unwrap();
    for twin in [&their_twin, &our_twin] {
        twin.clean(&wanted.namespace).await;
        twin.objects.delete(&wanted.nodes()).await.unwrap();
        twin.sentinel.remove(&twin.objects).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_slices_as_the_reference_after_each_step() {
    let _turn = turn().await;
    let (reference, ours) = tokio::join!(Cluster::start(), Cluster::start());
    let (reference, ours) = (reference.unwrap(), ours.unwrap());
    apply_roles(&ours).await;
    for seed in 0..sequences() {
        sequence(seed, &reference, &ours).await;
    }
}
