//! What happens in a run: Services and Pods come and go, things break and are repaired.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::Method;
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use zonewise_apiserver::{Config, Faults, InProcess};
use zonewise_common::name::SYSTEM_NAMESPACE;
use zonewise_nft::Family;
use zonewise_nft::conntrack::{Flow, Tuple};
use zonewise_nft::errno::{EBUSY, EINVAL, ENOBUFS, ENOENT, ENOMEM};
use zonewise_nft::simulated::{Destination, SimulatedFault};

use crate::history::History;
use crate::model::{LATEST, Model, Name, PodFacts, ServiceFacts};
use crate::objects::{self, PORT, Routing, Shape, TARGET_PORT};
use crate::processes::{Node, Seat, tend_controller};
use crate::rest;
use crate::run::{RealKernel, RunPlan};
use crate::wire::{ApiFaults, Wire};

/// The namespaces of tenants.
const TENANTS: [&str; 3] = ["bank", "evil", "shop"];
/// The names of Services.
const NAMES: [&str; 3] = ["api", "db", "web"];
/// How often processes are looked after.
const TICK: Duration = Duration::from_millis(250);
/// How long everything may take to settle when nothing happens any more. Services that the kernel has rejected are
/// tried again after a minute. Counters of zones that no slice names are removed by the second verification, at most two
/// minutes later.
const SETTLE: Duration = Duration::from_secs(200);
/// Nothing may have been written for this long.
const QUIET: Duration = Duration::from_secs(12);
/// How long a change may wait until `/healthz` says so (twice the sync period), and how long it takes to arrive.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(60 + 20);
/// The most Pods of a Service.
const MOST_PODS: usize = 6;

/// The run: the processes, what is known about them, and the random numbers that decide.
pub(crate) struct Driver {
    rng: Rng,
    pub(crate) wire: Wire,
    pub(crate) nodes: Vec<Node>,
    controllers: Vec<Seat>,
    next_pod: u16,
    /// Whether nodes have addresses of both families.
    ipv6: bool,
    /// How far the wall clock is ahead of the time that has passed.
    clock: Rc<Cell<SignedDuration>>,
}

/// What the driver can do, each as often as it is listed.
#[derive(Clone, Copy, Debug)]
enum Step {
    AddPod,
    RemovePod,
    FlipPod,
    AddService,
    RemoveService,
    ChangeRouting,
    Steal,
    Talk,
    MoveNode,
    FlipNode,
    JumpClock,
    CrashProxy,
    KillProxyInCall,
    CrashController,
    Partition,
    Webhook,
    Errors,
    ShortWatches,
    Stale,
    Compact,
    KernelFaults,
    FlushSet,
    ChangeConfig,
    Upgrade,
    StallKernel,
    Repair,
}

const STEPS: [(Step, u32); 26] = [
    (Step::AddPod, 12),
    (Step::RemovePod, 8),
    (Step::FlipPod, 6),
    (Step::AddService, 4),
    (Step::RemoveService, 2),
    (Step::ChangeRouting, 5),
    (Step::Steal, 2),
    (Step::Talk, 5),
    (Step::MoveNode, 2),
    (Step::FlipNode, 2),
    (Step::JumpClock, 2),
    (Step::CrashProxy, 3),
    (Step::KillProxyInCall, 3),
    (Step::CrashController, 2),
    (Step::Partition, 3),
    (Step::Webhook, 2),
    (Step::Errors, 2),
    (Step::ShortWatches, 2),
    (Step::Stale, 2),
    (Step::Compact, 2),
    (Step::KernelFaults, 4),
    (Step::FlushSet, 2),
    (Step::ChangeConfig, 2),
    (Step::Upgrade, 2),
    (Step::StallKernel, 1),
    (Step::Repair, 6),
];

impl Driver {
    pub(crate) fn new(
        seed: u64,
        history: History,
        kernels: Vec<RealKernel>,
        clock: Rc<Cell<SignedDuration>>,
    ) -> Self {
        let mut rng = Rng::with_seed(seed);
        let server = InProcess::start(Config { workloads: false, ..Config::default() });
        let wire = Wire {
            server: server.expect("the API server starts"),
            faults: Arc::new(Mutex::new(ApiFaults::default())),
            model: Arc::new(Mutex::new(Model::new(history.clone()))),
            history,
        };
        let (owners, ipv6) = (rng.u8(0..4) > 0 || !kernels.is_empty(), rng.u8(0..4) == 0);
        let nodes: Vec<Node> =
            (0..3).map(|number| Node::new(&wire, number, owners, ipv6)).collect();
        for (node, real) in nodes.iter().zip(kernels) {
            node.kernel.mirror(real);
        }
        let controllers = ["controller-1", "controller-2"].map(Seat::new).into();
        Self { rng, wire, nodes, controllers, next_pod: 1, ipv6, clock }
    }

    /// Runs to the end, or to the first violation, which is returned.
    pub(crate) async fn drive(mut self, plan: RunPlan) -> Option<String> {
        self.begin().await;
        self.pass(Duration::from_secs(3)).await;
        for _ in 0..plan.steps {
            if self.violation().is_some() {
                return self.violation();
            }
            let step = self.choose();
            self.act(step).await;
            let pause = Duration::from_millis(self.rng.u64(0..4000));
            self.pass(pause).await;
        }
        self.repair();
        self.say("nothing happens from now on");
        self.come_to_rest().await;
        self.compare_kernels();
        self.violation()
    }

    /// Real kernels, where there are some beside those in memory, have answered the same.
    fn compare_kernels(&self) {
        for node in &self.nodes {
            for difference in node.kernel.differences() {
                let text =
                    format!("the kernel of {} is not as a real one: {difference}", node.name);
                self.wire.model.lock().violated(text);
            }
        }
    }

    /// Waits until all is as it should be; it is a violation if that takes too long.
    async fn come_to_rest(&mut self) {
        let latest = Instant::now() + SETTLE;
        let compared = self.a_node();
        while self.violation().is_none() {
            let before = self.wire.model.lock().activity();
            self.pass(QUIET).await;
            let Some(problem) = rest::problem(self, &before, &self.nodes[compared]).await else {
                return;
            };
            if Instant::now() > latest {
                self.wire.model.lock().violated(format!("at rest: {problem}"));
            }
        }
    }

    fn violation(&self) -> Option<String> {
        self.wire.model.lock().violation().map(str::to_owned)
    }

    fn say(&self, what: &str) {
        self.wire.history.add("driver", what);
    }

    /// The cluster before anything happens.
    async fn begin(&mut self) {
        for name in TENANTS.into_iter().chain([SYSTEM_NAMESPACE]) {
            self.write(Method::POST, "/api/v1/namespaces", &objects::namespace(name)).await;
        }
        for node in &self.nodes {
            let object = objects::node(&node.name, &node.zone, node.address);
            self.write(Method::POST, "/api/v1/nodes", &object).await;
        }
        for _ in 0..3 {
            self.act(Step::AddService).await;
            self.act(Step::AddPod).await;
            self.act(Step::AddPod).await;
        }
    }

    async fn write(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let (code, answer) = self.wire.ask(method.clone(), path, body).await;
        if (200..300).contains(&code) {
            return Some(answer);
        }
        self.say(&format!("{method} {path} → {code} {}", answer["message"]));
        None
    }

    /// Lets time pass; starts processes that are due, and looks at the rules.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            for seat in &mut self.controllers {
                tend_controller(seat, &self.wire);
            }
            for node in &mut self.nodes {
                node.tend(&self.wire);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            sleep(left.min(TICK)).await;
        }
        self.look();
    }

    fn look(&self) {
        for node in &self.nodes {
            node.kernel.look(|rules| self.wire.model.lock().look(&node.name, rules));
        }
    }

    fn choose(&mut self) -> Step {
        let all: u32 = STEPS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.u32(0..all);
        for (step, weight) in STEPS {
            if at < weight {
                return step;
            }
            at -= weight;
        }
        Step::Repair
    }

    async fn act(&mut self, step: Step) {
        match step {
            Step::AddPod => self.add_pod().await,
            Step::RemovePod => self.remove_pod().await,
            Step::FlipPod => self.flip_pod().await,
            Step::AddService => self.add_service().await,
            Step::RemoveService => self.remove_service().await,
            Step::ChangeRouting => self.change_routing().await,
            Step::Steal => self.steal().await,
            Step::Talk => self.talk(),
            Step::MoveNode => self.move_node().await,
            Step::FlipNode => self.flip_node().await,
            Step::JumpClock => self.jump_clock(),
            Step::Repair => self.repair(),
            Step::Compact => {
                self.say("the API server forgets its history");
                self.wire.server.compact();
            }
            Step::ChangeConfig => self.change_config(),
            Step::Upgrade => self.upgrade(),
            Step::StallKernel => self.stall_kernel().await,
            Step::CrashProxy | Step::KillProxyInCall | Step::CrashController => self.crash(step),
            Step::FlushSet | Step::KernelFaults => self.break_kernel(step),
            Step::Partition | Step::Webhook | Step::Errors | Step::ShortWatches | Step::Stale => {
                self.break_api(step);
            }
        }
    }

    // === Services and Pods ===

    fn a_service(&mut self) -> Option<Name> {
        let names: Vec<Name> = self.wire.model.lock().services.keys().cloned().collect();
        self.rng.choice(names)
    }

    async fn add_service(&mut self) {
        let tenant = ["bank", "shop"][self.rng.usize(0..2)];
        let name = NAMES[self.rng.usize(0..NAMES.len())];
        let routing = Routing::ALL[self.rng.usize(0..Routing::ALL.len())];
        let shape = Shape {
            udp: self.rng.u8(0..3) == 0,
            affinity: self.rng.u8(0..4) == 0,
            dual_stack: self.ipv6 && self.rng.bool(),
        };
        self.create_service(tenant, name, &objects::service(name, routing, shape), shape).await;
    }

    async fn create_service(&self, tenant: &str, name: &str, object: &Value, shape: Shape) {
        let key = (tenant.to_owned(), name.to_owned());
        if self.wire.model.lock().services.contains_key(&key) {
            return;
        }
        let path = format!("/api/v1/namespaces/{tenant}/services");
        let Some(made) = self.write(Method::POST, &path, object).await else { return };
        let addresses = made["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let addresses: Vec<IpAddr> =
            addresses.filter_map(|text| text.as_str()?.parse().ok()).collect();
        let routing = &object["metadata"]["annotations"];
        self.say(&format!("Service {tenant}/{name} at {addresses:?}, {shape:?}, {routing}"));
        self.wire.model.lock().services.insert(key, ServiceFacts { addresses, shape });
    }

    async fn remove_service(&mut self) {
        let Some((tenant, name)) = self.a_service() else { return };
        self.say(&format!("Service {tenant}/{name} is deleted"));
        let path = format!("/api/v1/namespaces/{tenant}/services/{name}");
        self.wire.model.lock().remove_service(&(tenant, name));
        self.write(Method::DELETE, &path, &Value::Null).await;
    }

    async fn change_routing(&mut self) {
        let Some((tenant, name)) = self.a_service() else { return };
        let routing = Routing::ALL[self.rng.usize(0..Routing::ALL.len())];
        self.say(&format!("Service {tenant}/{name} asks for {routing:?}"));
        let patch = json!({
            "metadata": {"annotations": routing.annotations()},
            "spec": {"trafficDistribution": routing.distribution()},
        });
        let path = format!("/api/v1/namespaces/{tenant}/services/{name}");
        self.write(Method::PATCH, &path, &patch).await;
    }

    /// A Service of another tenant claims the address of one.
    async fn steal(&mut self) {
        let Some(victim) = self.a_service() else { return };
        let facts = self.wire.model.lock().services.get(&victim).cloned();
        let Some(address) = facts.and_then(|facts| facts.addresses.first().copied()) else {
            return;
        };
        let name = NAMES[self.rng.usize(0..NAMES.len())];
        self.say(&format!("evil/{name} claims {address} of {}/{}", victim.0, victim.1));
        self.create_service("evil", name, &objects::thief(name, address), Shape::default()).await;
        self.create_pod(("evil".to_owned(), name.to_owned())).await;
    }

    async fn add_pod(&mut self) {
        let Some(service) = self.a_service() else { return };
        let pods = self
            .wire
            .model
            .lock()
            .pods
            .values()
            .filter(|pod| !pod.deleted && pod.service == service)
            .count();
        if pods < MOST_PODS {
            self.create_pod(service).await;
        }
    }

    async fn create_pod(&mut self, service: Name) {
        let number = self.next_pod;
        self.next_pod += 1;
        let [high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(10, 244, high, low);
        let (tenant, app) = service.clone();
        let name = format!("{app}-{number}");
        let node = &self.nodes[self.rng.usize(0..self.nodes.len())];
        self.say(&format!("Pod {tenant}/{name} at {address} on {}", node.name));
        let path = format!("/api/v1/namespaces/{tenant}/pods");
        self.write(Method::POST, &path, &objects::pod(&name, &app, &node.name)).await;
        let facts = PodFacts {
            name: (tenant, name),
            service,
            ready_since: None,
            left: Some(Instant::now()),
            deleted: false,
        };
        self.wire.model.lock().pods.insert(address, facts);
        self.set_ready(address, true).await;
    }

    async fn set_ready(&self, address: Ipv4Addr, ready: bool) {
        let name = {
            let mut model = self.wire.model.lock();
            let Some(pod) = model.pods.get_mut(&address) else { return };
            let now = Instant::now();
            (pod.ready_since, pod.left) = if ready { (Some(now), None) } else { (None, Some(now)) };
            pod.name.clone()
        };
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", name.0, name.1);
        self.write(Method::PATCH, &path, &objects::pod_status(address, ready)).await;
    }

    fn a_pod(&mut self) -> Option<(Ipv4Addr, PodFacts)> {
        let model = self.wire.model.lock();
        let here = model.pods.iter().filter(|(_, pod)| !pod.deleted);
        let here: Vec<(Ipv4Addr, PodFacts)> =
            here.map(|(address, pod)| (*address, pod.clone())).collect();
        drop(model);
        self.rng.choice(here)
    }

    async fn flip_pod(&mut self) {
        let Some((address, pod)) = self.a_pod() else { return };
        let ready = pod.ready_since.is_none();
        self.say(&format!("Pod {}/{} is ready: {ready}", pod.name.0, pod.name.1));
        self.set_ready(address, ready).await;
    }

    async fn remove_pod(&mut self) {
        let Some((address, pod)) = self.a_pod() else { return };
        self.say(&format!("Pod {}/{} is deleted", pod.name.0, pod.name.1));
        if let Some(pod) = self.wire.model.lock().pods.get_mut(&address) {
            (pod.ready_since, pod.left, pod.deleted) = (None, Some(Instant::now()), true);
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.name.0, pod.name.1);
        self.write(Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await;
    }

    /// A client sends packets to a Service by UDP. The kernel remembers where it sent the first one.
    fn talk(&mut self) {
        let services = self.wire.model.lock().services.clone();
        let by_udp = services.into_iter().filter(|(_, facts)| facts.shape.udp);
        let Some((name, facts)) = self.rng.choice(by_udp.collect::<Vec<_>>()) else { return };
        let (at, port) = (self.a_node(), self.rng.u16(1024..));
        let node = &self.nodes[at];
        let Some(packet) = self.rng.choice(facts.packets().collect::<Vec<_>>()) else { return };
        let found = node.kernel.look(|rules| rules.destinations(&packet));
        let Some(Destination::Endpoint(endpoint)) = self.rng.choice(found) else { return };
        node.kernel.add_flow(Flow {
            protocol: facts.shape.number(),
            original: Tuple {
                src: packet.source,
                dst: packet.destination,
                sport: port,
                dport: PORT,
            },
            reply: Tuple {
                src: endpoint.ip(),
                dst: packet.source,
                sport: TARGET_PORT,
                dport: port,
            },
            destination_translated: true,
            id: None,
            zone: 0,
        });
        self.say(&format!("on {}, a flow to {}/{} goes to {endpoint}", node.name, name.0, name.1));
    }

    // === nodes and clocks ===

    async fn move_node(&mut self) {
        let (at, zone) = (self.a_node(), ["a", "b", "c", "d"][self.rng.usize(0..4)]);
        let node = self.nodes[at].name.clone();
        self.say(&format!("{node} moves to zone {zone}"));
        self.write(Method::PATCH, &format!("/api/v1/nodes/{node}"), &objects::node_in(zone)).await;
    }

    async fn flip_node(&mut self) {
        let (at, ready) = (self.a_node(), self.rng.bool());
        let node = self.nodes[at].name.clone();
        self.say(&format!("{node} is ready: {ready}"));
        let path = format!("/api/v1/nodes/{node}/status");
        self.write(Method::PATCH, &path, &objects::node_status(ready)).await;
    }

    /// The wall clock of all processes is set, forward or back.
    fn jump_clock(&mut self) {
        let seconds = self.rng.i64(-7200..7200);
        self.say(&format!("the clock is set by {seconds} s"));
        self.clock.set(self.clock.get() + SignedDuration::from_secs(seconds));
    }

    // === faults ===

    fn a_node(&mut self) -> usize {
        self.rng.usize(0..self.nodes.len())
    }

    fn broken(&self) {
        self.wire.model.lock().calm_since = None;
    }

    fn crash(&mut self, step: Step) {
        self.broken();
        let pause = Duration::from_millis(self.rng.u64(100..5000));
        match step {
            Step::CrashController => {
                let at = self.rng.usize(0..self.controllers.len());
                self.controllers[at].crash(&self.wire.history, pause);
            }
            Step::KillProxyInCall => {
                let (at, calls) = (self.a_node(), self.rng.u32(1..12));
                self.say(&format!("{} is to end in call {calls}", self.nodes[at].proxy.process()));
                self.nodes[at].faults.lock().kill_in = Some(calls);
            }
            _ => {
                let at = self.a_node();
                self.nodes[at].proxy.crash(&self.wire.history, pause);
            }
        }
    }

    /// A setting that the tables depend on changes, with a restart.
    fn change_config(&mut self) {
        let at = self.a_node();
        let node = &mut self.nodes[at];
        node.masquerade_all = !node.masquerade_all;
        let text = format!("{} gets masqueradeAll: {}", node.proxy.process(), node.masquerade_all);
        node.proxy.crash(&self.wire.history, Duration::from_millis(100));
        self.say(&text);
    }

    /// Another version of the proxy starts: what it finds has the layout of the one before.
    fn upgrade(&mut self) {
        let at = self.a_node();
        let node = &mut self.nodes[at];
        node.proxy.crash(&self.wire.history, Duration::from_millis(100));
        let aged = [Family::Ip, Family::Ip6].map(|family| {
            node.kernel.age_table(family, "zonewise", "Services, kept by zonewise proxy; layout 1")
        });
        let text = format!("another version starts on {}; it finds tables: {aged:?}", node.name);
        self.say(&text);
    }

    /// The kernel of a node carries out nothing for longer than `/healthz` tolerates. While rules are wrong for that
    /// reason, `/healthz` says so.
    async fn stall_kernel(&mut self) {
        self.repair();
        self.pass(LATEST).await;
        let at = self.a_node();
        if self.nodes[at].healthz() != Some(200)
            || rest::wrong_rules(self, &self.nodes[at]).is_some()
        {
            return;
        }
        let fault = [
            SimulatedFault::Refused(EBUSY),
            SimulatedFault::Refused(ENOMEM),
            SimulatedFault::NotSent(ENOBUFS),
        ];
        let fault = fault[self.rng.usize(0..3)];
        self.say(&format!("the kernel of {} carries out nothing: {fault:?}", self.nodes[at].name));
        self.broken();
        {
            let mut faults = self.nodes[at].faults.lock();
            (faults.rate, faults.kinds) = (1.0, vec![fault]);
        }
        self.flip_pod().await;
        self.pass(UNHEALTHY_AFTER).await;
        let node = &self.nodes[at];
        if let Some(wrong) = rest::wrong_rules(self, node).filter(|_| node.healthz() == Some(200)) {
            let text = format!("/healthz on {} answers 200 although {wrong}", node.name);
            self.wire.model.lock().violated(text);
        }
        self.repair();
    }

    fn break_kernel(&mut self, step: Step) {
        self.broken();
        let at = self.a_node();
        let name = self.nodes[at].name.clone();
        if matches!(step, Step::FlushSet) {
            // A table with an owner lets nobody do this, and the proxy looks at elements once a minute.
            let set = ["affinity", "connections"][self.rng.usize(0..2)];
            let removed = self.nodes[at].kernel.flush_set(Family::Ip, "zonewise", set);
            self.say(&format!("another program removes {removed} elements of {set} on {name}"));
            return;
        }
        let kinds = [
            SimulatedFault::Refused(ENOMEM),
            SimulatedFault::Refused(EBUSY),
            SimulatedFault::Refused(ENOENT),
            SimulatedFault::Refused(EINVAL),
            SimulatedFault::AnswerLost,
            SimulatedFault::NotSent(ENOBUFS),
            SimulatedFault::Interrupted,
        ];
        let count = self.rng.usize(1..4);
        let kinds: Vec<SimulatedFault> =
            (0..count).map(|_| kinds[self.rng.usize(0..kinds.len())]).collect();
        let rate = [0.1, 0.3, 0.6][self.rng.usize(0..3)];
        self.say(&format!("the kernel of {name} fails in {rate} of calls: {kinds:?}"));
        let mut faults = self.nodes[at].faults.lock();
        (faults.rate, faults.kinds) = (rate, kinds);
    }

    fn break_api(&mut self, step: Step) {
        self.broken();
        let processes: Vec<String> = self
            .controllers
            .iter()
            .chain(self.nodes.iter().map(|node| &node.proxy))
            .map(Seat::process)
            .collect();
        let process = processes[self.rng.usize(0..processes.len())].clone();
        let tenant = TENANTS[self.rng.usize(0..TENANTS.len())];
        let hangs = self.rng.bool();
        let time = Duration::from_millis(self.rng.u64(100..8000));
        let mut faults = self.wire.faults.lock();
        let text = match step {
            Step::Partition => {
                faults.cut.insert(process.clone());
                format!("{process} cannot reach the API server")
            }
            Step::Webhook if hangs => {
                faults.hanging.insert(tenant.to_owned());
                format!("a webhook of {tenant} hangs")
            }
            Step::Webhook => {
                faults.broken.insert(tenant.to_owned());
                format!("a webhook of {tenant} fails")
            }
            Step::Errors => {
                faults.errors = 0.2;
                "one in five requests fails".to_owned()
            }
            Step::ShortWatches => {
                faults.short_watches = Some(time);
                format!("watches end within {time:?}")
            }
            _ => {
                self.wire.server.set_faults(Faults { stale: Some(time), ..Faults::default() });
                format!("reads and watches are {time:?} late")
            }
        };
        drop(faults);
        self.say(&text);
    }

    /// Ends all faults.
    fn repair(&mut self) {
        self.say("everything is repaired");
        *self.wire.faults.lock() = ApiFaults::default();
        self.wire.server.set_faults(Faults::default());
        for node in &self.nodes {
            node.faults.lock().end();
        }
        self.wire.model.lock().calm_since = Some(Instant::now());
    }
}
