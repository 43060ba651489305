//! The processes of a run, and what they run on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zonewise_cluster::lease::ElectionConfig;
use zonewise_nft::Network;
use zonewise_nft::errno::ENOENT;
use zonewise_nft::simulated::{Call, Process, SimulatedFault, SimulatedKernel};
use zonewise_proxy::config::{Config, Settings};
use zonewise_proxy::{Host, Timeline};
use zonewise_telemetry::shutdown::Shutdown;

use crate::history::History;
use crate::wire::{Endpoint, Wire};

/// The addresses of all Pods.
const PODS: &str = "10.244.0.0/16,fd00:244::/48";

/// A process that runs.
pub(crate) struct Running {
    endpoint: Endpoint,
    task: JoinHandle<()>,
    process: Option<Process>,
    /// Of a proxy.
    host: Option<Host>,
}

impl Running {
    /// Ends it in the middle of whatever it does.
    pub(crate) fn crash(self) {
        self.endpoint.end();
        self.task.abort();
        if let Some(process) = self.process {
            process.kill();
        }
    }
}

/// A place that a process runs in, and is started in again when it has ended.
pub(crate) struct Seat {
    /// `controller-1`, `proxy-a`.
    pub(crate) name: String,
    running: Option<Running>,
    /// When it is started, while it does not run.
    start_at: Instant,
    /// How often it was started.
    starts: u32,
}

impl Seat {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), running: None, start_at: Instant::now(), starts: 0 }
    }

    /// Ends the process; it is started again later.
    pub(crate) fn crash(&mut self, history: &History, pause: Duration) {
        if let Some(running) = self.running.take() {
            history.add(&running.endpoint.name, "crashes");
            running.crash();
            self.start_at = Instant::now() + pause;
        }
    }

    /// The name of the process that runs, or ran last.
    pub(crate) fn process(&self) -> String {
        format!("{}.{}", self.name, self.starts)
    }

    /// Starts the process if it is time to; true if it has.
    fn starts_now(&mut self, history: &History) -> bool {
        if let Some(running) = self.running.take_if(|running| running.task.is_finished()) {
            history.add(&running.endpoint.name, "has ended");
            running.crash();
            self.start_at = Instant::now() + Duration::from_secs(1);
        }
        let starts = self.running.is_none() && self.start_at <= Instant::now();
        self.starts += u32::from(starts);
        starts
    }
}

/// What goes wrong in a kernel.
#[derive(Default)]
pub(crate) struct KernelFaults {
    /// The share of calls that fail, and how.
    pub(crate) rate: f64,
    pub(crate) kinds: Vec<SimulatedFault>,
    /// The process ends before the call with this number, counted from now.
    pub(crate) kill_in: Option<u32>,
    /// The process was ended so.
    killed: bool,
}

impl KernelFaults {
    /// Ends all faults, but for a crash that is to come.
    pub(crate) fn end(&mut self) {
        (self.rate, self.kinds) = (0.0, Vec::new());
    }

    fn draw(&mut self, call: &Call<'_>) -> Option<SimulatedFault> {
        if let Some(calls) = &mut self.kill_in {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                self.kill_in = None;
                self.killed = true;
                return Some(SimulatedFault::Killed);
            }
        }
        if self.rate == 0.0 || fastrand::f64() >= self.rate {
            return None;
        }
        let drawn = fastrand::choice(&self.kinds).copied();
        drawn.filter(|fault| match fault {
            SimulatedFault::Interrupted => !call.is_commit(),
            // Of a flow, a kernel says so only if it is gone.
            SimulatedFault::Refused(ENOENT) => !call.is_conntrack(),
            _ => true,
        })
    }
}

/// A node: its kernel, and the proxy on it.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) address: IpAddr,
    addresses: Vec<IpAddr>,
    pub(crate) kernel: SimulatedKernel,
    /// Whether the kernel has tables with an owner that outlive their process.
    owners: bool,
    pub(crate) faults: Arc<Mutex<KernelFaults>>,
    pub(crate) proxy: Seat,
    /// A setting that rules depend on: a change of it replaces the tables.
    pub(crate) masquerade_all: bool,
}

impl Node {
    pub(crate) fn new(wire: &Wire, number: u8, owners: bool, ipv6: bool) -> Self {
        let zone = ["a", "b", "c"][usize::from(number) % 3].to_owned();
        let name = format!("node-{zone}");
        let address = IpAddr::V4(Ipv4Addr::new(192, 168, 0, number + 1));
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), address];
        if ipv6 {
            let last = u16::from(number) + 1;
            addresses.push(IpAddr::V6(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, last)));
        }
        let kernel = SimulatedKernel::new(owners);
        let faults = Arc::new(Mutex::new(KernelFaults::default()));
        connect(&kernel, &faults, wire, &name);
        let proxy = Seat::new(&format!("proxy-{zone}"));
        Self {
            name,
            zone,
            address,
            addresses,
            kernel,
            owners,
            faults,
            proxy,
            masquerade_all: false,
        }
    }

    /// Starts the proxy if it is time to.
    pub(crate) fn tend(&mut self, wire: &Wire) {
        if std::mem::take(&mut self.faults.lock().killed) {
            self.proxy.crash(&wire.history, Duration::from_millis(500));
        }
        if self.proxy.starts_now(&wire.history) {
            let name = self.proxy.process();
            self.proxy.running = Some(self.start(wire, &name, &self.kernel));
        }
    }

    /// Starts a proxy of this node on a kernel.
    fn start(&self, wire: &Wire, name: &str, kernel: &SimulatedKernel) -> Running {
        wire.history.add(name, "starts");
        let (endpoint, process) = (Endpoint::new(wire, name), kernel.process());
        let host = Host::simulated(Network::simulated(process.clone()), &self.addresses);
        let (client, config) = (endpoint.client(), self.config());
        let (history, name) = (wire.history.clone(), name.to_owned());
        let machine = host.clone();
        let task = tokio::spawn(async move {
            let ended = zonewise_proxy::run(
                machine,
                client,
                config,
                false,
                Timeline::default(),
                Shutdown::manual(),
            )
            .await;
            history.add(&name, &format!("ends: {ended:?}"));
        });
        Running { endpoint, task, process: Some(process), host: Some(host) }
    }

    /// The status code of the proxy's `/healthz`; `None` while it does not run, or has only begun to.
    pub(crate) fn healthz(&self) -> Option<u16> {
        self.proxy.running.as_ref()?.host.as_ref()?.healthz()
    }

    fn config(&self) -> Config {
        let settings = Settings {
            node_name: Some(self.name.clone()),
            cluster_cidr: Some(PODS.into()),
            masquerade_all: Some(self.masquerade_all),
            ..Settings::default()
        };
        let config = settings.resolve(&self.name).expect("the settings are valid");
        Config { healthz: None, metrics: None, ..config }
    }

    /// A proxy of this node on a kernel without tables.
    pub(crate) fn fresh(&self, wire: &Wire) -> Fresh {
        let kernel = SimulatedKernel::new(self.owners);
        let running = self.start(wire, &format!("fresh-{}", self.zone), &kernel);
        Fresh { kernel, running }
    }
}

/// A proxy that has started on a kernel without tables.
pub(crate) struct Fresh {
    kernel: SimulatedKernel,
    running: Running,
}

impl Fresh {
    /// Ends it; returns what it has made of the kernel.
    pub(crate) fn listing(self) -> Vec<String> {
        let listing = self.kernel.listing();
        self.running.crash();
        listing
    }
}

/// Lets the history and the model see what happens in a kernel, and faults happen.
fn connect(kernel: &SimulatedKernel, faults: &Arc<Mutex<KernelFaults>>, wire: &Wire, node: &str) {
    let (faults, history, name) = (Arc::clone(faults), wire.history.clone(), node.to_owned());
    kernel.set_hook(move |call| {
        let fault = faults.lock().draw(call);
        if call.is_commit() || fault.is_some() {
            let fault = fault.map(|fault| format!(": {fault:?}")).unwrap_or_default();
            history.add(&name, &format!("kernel: {}{fault}", call.description()));
        }
        fault
    });
    let (model, name) = (Arc::clone(&wire.model), node.to_owned());
    kernel.set_observer(move |rules| model.lock().look(&name, rules));
}

/// Starts a controller if it is time to.
pub(crate) fn tend_controller(seat: &mut Seat, wire: &Wire) {
    if seat.starts_now(&wire.history) {
        seat.running = Some(start_controller(&seat.process(), wire));
    }
}

fn start_controller(name: &str, wire: &Wire) -> Running {
    wire.history.add(name, "starts");
    let endpoint = Endpoint::new(wire, name);
    let mut config =
        zonewise_controller::config::File::default().resolve(name).expect("defaults are valid");
    config.health_address = (Ipv4Addr::LOCALHOST, 0).into();
    config.metrics_address = (Ipv4Addr::LOCALHOST, 0).into();
    config.lease = Some(ElectionConfig::new(name));
    let client = endpoint.client();
    let (history, name) = (wire.history.clone(), name.to_owned());
    let task = tokio::spawn(async move {
        let ended = zonewise_controller::run(client, config, Shutdown::manual()).await;
        history.add(&name, &format!("ends: {ended:?}"));
    });
    Running { endpoint, task, process: None, host: None }
}
