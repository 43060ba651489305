//! The shell: watches in, kernel out.
//!
//! ```text
//!  something changed ─► wait a moment for more ─► sync: dirty Services ─► routes ─► kernel
//!                                                  │                                 │
//!   every half second: is the table still there?   │      latencies, health ports, stale flows,
//!   now and then: is it what it should be?         │      affinity, what is applied ◄┘
//!   a moment later: remove what nothing leads to   └─ failed: everything stays as it was, again soon
//! ```

mod care;
mod settle;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{Instant, Interval, sleep, sleep_until};
use zonewise_cluster::watch::Backoff;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_nft::Family;
use zonewise_routing::{self as routing, RouteQuery, route};
use zonewise_telemetry::metrics::{self, MetricError, Registry};
use zonewise_telemetry::shutdown::Shutdown;

use crate::addresses::{self, NodeIps, NodePorts};
use crate::config::{Config, DetectLocal};
use crate::health::{
    BindError, Health, HealthPages, HealthPort, HealthPorts, MetricsPages, Moment, serve,
};
use crate::index::Index;
use crate::kernel::{Kernel, KernelError, Update};
use crate::metrics::Metrics;
use crate::node::Node;
use crate::page;
use crate::report::Applied;
use crate::rivals::{self, Rival};
use crate::rules::entries::{self, Portion, Programmed};
use crate::rules::layout::{self, Count, FAMILIES, Local, Options};
use crate::setup::Machine;
use crate::tell::Teller;
use crate::watches::{Known, Watches};

/// Why the proxy ended, or could not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A server could not start.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// Two metrics have one name.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The kernel is out of reach.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Pods were to be recognised by the node's ranges, and it has none.
    #[error(
        "the node has no spec.podCIDRs, which --detect-local-mode=NodeCIDR needs: let the controller manager allocate \
         them (--allocate-node-cidrs), or choose another mode"
    )]
    NoPodCidrs,
}

/// How often the kernel is asked whether our tables are still there.
const POLL: Duration = Duration::from_millis(500);
/// How long after their last use elements are removed.
const SWEEP: Duration = Duration::from_secs(1);
/// How long the node's ranges are waited for.
const POD_CIDRS: Duration = Duration::from_secs(300);
/// How long the node's addresses are waited for.
const ADDRESSES: Duration = Duration::from_secs(30);
/// The machine's addresses are looked at this often: NodePorts follow them.
const ADDRESSES_AGAIN: Duration = Duration::from_secs(5);
/// Rejected Services are tried again this often.
const AGAIN: Duration = Duration::from_secs(60);

/// Runs until shutdown. Leaves the rules in place.
///
/// # Errors
/// If it cannot start.
pub async fn run(
    client: Client,
    config: Config,
    take_over: bool,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let rivals = find_rivals(take_over);
    // Registered before it can come.
    let asked = signal(SignalKind::user_defined1()).ok();
    let registry = Registry::default();
    metrics::process(&registry, env!("CARGO_PKG_VERSION"))?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let health = Health::new(config.sync_period);
    let known = Known::new(&config.node_name, config.routing, Arc::clone(&metrics));
    let kernel: Arc<Mutex<Option<Kernel>>> = Arc::default();
    page::gauges(&registry, &kernel, &known)?;
    let servers = servers(&config, &health, registry, &kernel, &known).await?;
    let started = jiff::Timestamp::now().as_microsecond();
    let mut watches =
        Watches::start(&client, &known, &config.node_name, config.proxy_name.as_deref());
    let work = async {
        wait_for_node(&config, &known).await?;
        let location = known.reader().location().clone();
        watches.follow_location(known.node().map_or(location, |node| node.location()));
        complete(&known).await;
        let (applied, _) = watch::channel(Applied::default());
        let reporting = tokio::spawn(crate::report::run(
            client.clone(),
            Node { name: config.node_name.as_str().into(), ..known.node().unwrap_or_default() },
            applied.subscribe(),
        ));
        let ports = HealthPorts::new(health.clone());
        let mut proxy = Proxy {
            config: &config,
            known: Arc::clone(&known),
            metrics,
            health,
            ports,
            kernel,
            nodeports: BTreeMap::new(),
            ranges: Vec::new(),
            health_services: BTreeMap::new(),
            rejected: BTreeMap::new(),
            started,
            sweep_at: None,
            verify_at: Instant::now() + config.verify_period,
            applied,
            rivals: if take_over { rivals } else { Vec::new() },
            asked,
            teller: Teller::new(client.clone()),
            has_ipv6: Machine::default().has_ipv6(),
            synced_at: Instant::now(),
            in_force: Options::default(),
        };
        let result = proxy.work(&mut watches).await;
        reporting.abort();
        result
    };
    let result = tokio::select! {
        () = shutdown.wait() => Ok(()),
        result = work => result,
    };
    watches.stop();
    for server in servers {
        server.stop().await;
    }
    result
}

type SharedKernel = Arc<Mutex<Option<Kernel>>>;

async fn servers(
    config: &Config,
    health: &Health,
    registry: Registry,
    kernel: &SharedKernel,
    known: &Arc<Known>,
) -> Result<Vec<crate::health::Served>, RunError> {
    let hard = config.bind_hard_fail;
    let mut servers = Vec::new();
    let pages = HealthPages::new(health.clone(), &registry)?;
    if let Some(address) = config.healthz {
        servers.push(serve("health checks", address, hard, pages).await?);
    }
    if let Some(address) = config.metrics {
        let (kernel, known) = (Arc::clone(kernel), Arc::clone(known));
        let pages = MetricsPages::new(registry, config.configz())
            .with("/routes", move || page::routes(&kernel, &known));
        servers.push(serve("metrics", address, hard, pages).await?);
    }
    Ok(servers)
}

/// Waits for the node and, where needed, what it has to say.
async fn wait_for_node(config: &Config, known: &Known) -> Result<(), RunError> {
    let needs_cidrs = config.detect_local == DetectLocal::NodeCidr;
    let begun = Instant::now();
    loop {
        if known.knows_node() {
            let node = known.node().unwrap_or_default();
            let waited = begun.elapsed();
            let settled =
                if needs_cidrs { !node.pod_cidrs.is_empty() } else { !node.addresses.is_empty() };
            if settled {
                return Ok(());
            }
            if needs_cidrs && waited > POD_CIDRS {
                return Err(RunError::NoPodCidrs);
            }
            if !needs_cidrs && waited > ADDRESSES {
                tracing::warn!(
                    node = config.node_name,
                    "the node is not known to the API server, or has no address: going on without (is --node-name right?)"
                );
                return Ok(());
            }
        }
        tokio::select! {
            () = known.changed.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

async fn complete(known: &Known) {
    while !known.is_complete() {
        tokio::select! {
            () = known.changed.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

struct Proxy<'a> {
    config: &'a Config,
    known: Arc<Known>,
    metrics: Arc<Metrics>,
    health: Health,
    ports: HealthPorts,
    kernel: SharedKernel,
    nodeports: BTreeMap<routing::Family, NodePorts>,
    ranges: Vec<Cidr>,
    health_services: BTreeMap<(String, String), HealthPort>,
    /// Services that the kernel refuses, and why.
    rejected: BTreeMap<Key, String>,
    started: i64,
    sweep_at: Option<Instant>,
    verify_at: Instant,
    applied: watch::Sender<Applied>,
    /// Whose rules go once ours are in place.
    rivals: Vec<Rival>,
    asked: Option<Signal>,
    teller: Teller,
    has_ipv6: bool,
    synced_at: Instant,
    /// What the rules in the kernel depend on.
    in_force: Options,
}

/// Another proxy's rules, said aloud.
fn find_rivals(take_over: bool) -> Vec<Rival> {
    let found = rivals::find().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look for rules of another proxy");
        Vec::new()
    });
    for rival in &found {
        tracing::warn!(take_over, "{rival}");
    }
    found
}

/// Holds the kernel; nobody else keeps it across an await either.
fn locked(kernel: &SharedKernel) -> MutexGuard<'_, Option<Kernel>> {
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy<'_> {
    async fn work(&mut self, watches: &mut Watches) -> Result<(), RunError> {
        let mut backoff = Backoff::default();
        self.families().for_each(|family| {
            self.health.updated(entries::routing_family(family), Moment::now());
        });
        self.begin().await;
        let mut poll = tokio::time::interval(POLL);
        let mut again = tokio::time::interval_at(Instant::now() + AGAIN, AGAIN);
        let mut moved = tokio::time::interval(ADDRESSES_AGAIN);
        loop {
            if !self.wait([&mut poll, &mut again, &mut moved]).await {
                continue;
            }
            self.queued();
            // At once after a pause; then what comes in the meantime is gathered.
            sleep_until(self.synced_at + self.config.min_sync_period).await;
            self.follow_node(watches);
            let result = self.sync().await;
            self.synced_at = Instant::now();
            match result {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    self.failed(&error);
                    sleep(backoff.next()).await;
                    self.known.changed.notify_one();
                }
            }
        }
    }

    /// Brings the tables into being, however often it takes.
    async fn begin(&mut self) {
        let mut backoff = Backoff::default();
        self.queued();
        while let Err(error) = self.start().await {
            self.failed(&error);
            sleep(backoff.next()).await;
        }
    }

    /// The machine's addresses or the node's ranges may be others by now. Where rules depend on that
    /// and not only elements, the tables are replaced, in one batch.
    async fn follow_machine(&mut self) {
        if self.options() == self.in_force {
            match self.set_nodeports() {
                Ok(true) => self.open_health_ports().await,
                Ok(false) => {}
                Err(error) => self.failed(&error),
            }
            return;
        }
        tracing::info!("addresses of this node have changed: the tables are written anew");
        // Its socket owns the tables: they are free for the next one then, and stay.
        *locked(&self.kernel) = None;
        self.begin().await;
    }

    /// Waits for something to do and does what is small; true if Services are to be synced.
    async fn wait(&mut self, [poll, again, moved]: [&mut Interval; 3]) -> bool {
        let (sweep_at, verify_at) = (self.sweep_at, self.verify_at);
        let swept = async {
            match sweep_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.known.changed.notified() => return true,
            () = swept => self.sweep(),
            _ = poll.tick() => self.look(),
            _ = moved.tick() => self.follow_machine().await,
            () = sleep_until(verify_at) => self.verify(),
            Some(()) = async { self.asked.as_mut()?.recv().await } => self.verify(),
            _ = again.tick() => {
                let rejected: Vec<Key> = self.rejected.keys().cloned().collect();
                self.known.index().mark(rejected);
                return !self.rejected.is_empty();
            }
        }
        false
    }

    fn queued(&self) {
        let now = jiff::Timestamp::now().as_millisecond() as f64 / 1000.0;
        for family in self.families() {
            self.health.queued(entries::routing_family(family), Moment::now());
            self.metrics.queued.with([name(family)]).set(now);
        }
    }

    fn failed(&self, error: &KernelError) {
        tracing::error!(%error, "the kernel does not take the rules; what is there stays, and it is tried again");
        self.families().for_each(|family| self.metrics.failures.with([name(family)]).inc());
    }

    fn families(&self) -> impl Iterator<Item = Family> + use<> {
        let six = self.has_ipv6;
        FAMILIES.into_iter().filter(move |family| *family == Family::Ip || six)
    }

    // === the first sync ===

    async fn start(&mut self) -> Result<(), KernelError> {
        let began = Instant::now();
        let work = self.known.index().take();
        self.metrics.taken();
        self.health.node_seen(self.known.node().is_some_and(|node| node.eligible));
        let options = self.options();
        self.in_force = options.clone();
        let node = node(self.config, &self.node_ips());
        self.ranges = self.wanted_ranges();
        let all: Vec<Key> = self.known.index().services().keys().cloned().collect();
        let updates = self.updates(all.iter());
        let known = Arc::clone(&self.known);
        let names = Box::new(move |zone| {
            known.reader().zone_name(zone).map_or_else(String::new, |name| name.to_string())
        });
        let services = updates.len();
        let (nodeports, _) = self.find_nodeports();
        let result = block_in_place(|| {
            let kernel = Kernel::open(options, self.families().collect(), node, names)?;
            let mut kernel = kernel.with_nodeport_ips(listed(&nodeports));
            let (found, rejected) = kernel.start(updates, self.ranges.clone())?;
            Ok((kernel, found, rejected))
        });
        let (kernel, found, rejected) = match result {
            Ok(started) => started,
            Err(error) => {
                self.known.index().mark(work.services);
                return Err(error);
            }
        };
        tracing::info!(services, ?found, owned = kernel.is_owned(), took = ?began.elapsed(), "rules are in place");
        *locked(&self.kernel) = Some(kernel);
        self.nodeports = nodeports;
        self.settle(&work, rejected, began, true).await;
        self.take_over();
        Ok(())
    }

    fn options(&self) -> Options {
        let node = self.known.node().unwrap_or_default();
        let (nodeports, warnings) = self.find_nodeports();
        if self.nodeports != nodeports {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        let of = |family| nodeports.get(&family).cloned().unwrap_or(NodePorts::All);
        options(self.config, &node, &routing::Family::BOTH.map(of))
    }

    /// Ours are in place: theirs may go.
    fn take_over(&mut self) {
        if self.rivals.is_empty() {
            return;
        }
        let removal = block_in_place(|| rivals::remove(&std::mem::take(&mut self.rivals)));
        removal.removed.iter().for_each(|what| tracing::info!(what, "removed"));
        removal.problems.iter().for_each(|problem| tracing::error!("{problem}"));
    }

    fn node_ips(&self) -> NodeIps {
        let node = self.known.node().unwrap_or_default();
        let pairs: Vec<(&str, &str)> =
            node.addresses.iter().map(|(kind, text)| (&**kind, &**text)).collect();
        NodeIps::new(pairs, self.config.bind_address)
    }

    fn find_nodeports(&self) -> (BTreeMap<routing::Family, NodePorts>, Vec<String>) {
        let interfaces = match addresses::interface_addresses() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                tracing::warn!(%error, "the addresses of this machine cannot be read; NodePorts stay where they are");
                return (self.nodeports.clone(), Vec::new());
            }
        };
        let ips = self.node_ips();
        let mut warnings = Vec::new();
        let of = |family| {
            let setting = &self.config.nodeport_addresses;
            let (ports, more) = addresses::node_ports(setting, &ips, &interfaces, family);
            warnings.extend(more);
            (family, ports)
        };
        (routing::Family::BOTH.map(of).into_iter().collect(), warnings)
    }

    /// The addresses that accept NodePorts now; true if they are others than before.
    fn set_nodeports(&mut self) -> Result<bool, KernelError> {
        let (nodeports, _) = self.find_nodeports();
        if nodeports == self.nodeports {
            return Ok(false);
        }
        block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) => kernel.set_nodeport_ips(listed(&nodeports)),
            None => Ok(()),
        })?;
        self.nodeports = nodeports;
        Ok(true)
    }

    // === syncs ===

    /// The node may have moved, or changed its addresses.
    fn follow_node(&mut self, watches: &mut Watches) {
        let Some(node) = self.known.node() else { return };
        self.health.node_seen(node.eligible);
        if watches.follow_location(node.location()) {
            self.known.index().mark_all();
        }
    }

    async fn sync(&mut self) -> Result<(), KernelError> {
        let began = Instant::now();
        self.set_ranges()?;
        self.set_node()?;
        let work = self.known.index().take();
        self.metrics.taken();
        let updates = self.updates(work.services.iter());
        let applied = block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) => kernel.apply(updates),
            None => Ok(Vec::new()),
        });
        match applied {
            Ok(rejected) => {
                self.settle(&work, rejected, began, false).await;
                Ok(())
            }
            Err(error) => {
                self.known.index().mark(work.services);
                Err(error)
            }
        }
    }

    /// Which addresses are nobody's can be told only by who has all Services.
    fn wanted_ranges(&self) -> Vec<Cidr> {
        if self.config.proxy_name.is_some() { Vec::new() } else { self.known.ranges() }
    }

    fn set_ranges(&mut self) -> Result<(), KernelError> {
        let ranges = self.wanted_ranges();
        if ranges != self.ranges {
            block_in_place(|| match locked(&self.kernel).as_mut() {
                Some(kernel) => kernel.set_ranges(ranges.clone()),
                None => Ok(()),
            })?;
            self.ranges = ranges;
        }
        Ok(())
    }

    fn set_node(&mut self) -> Result<(), KernelError> {
        let node = node(self.config, &self.node_ips());
        block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) if *kernel.desired().node() != node => kernel.set_node(node),
            _ => Ok(()),
        })
    }

    fn updates<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Vec<Update> {
        let reader = self.known.reader();
        let index = self.known.index();
        keys.map(|key| (key.clone(), programmed(&index, &reader, &self.config.routing, key)))
            .collect()
    }
}

/// The addresses that accept NodePorts, where not all do.
fn listed(nodeports: &BTreeMap<routing::Family, NodePorts>) -> Vec<IpAddr> {
    nodeports.values().flat_map(NodePorts::listed).copied().collect()
}

fn name(family: Family) -> &'static str {
    match family {
        Family::Ip => "IPv4",
        Family::Ip6 => "IPv6",
    }
}

fn count(setting: crate::config::Count) -> Count {
    match setting {
        crate::config::Count::None => Count::None,
        crate::config::Count::Zones => Count::Zones,
        crate::config::Count::Services => Count::Services,
    }
}

/// What the rules depend on besides Services.
pub fn options(config: &Config, node: &Node, nodeports: &[NodePorts; 2]) -> Options {
    let local = match &config.detect_local {
        DetectLocal::Cidrs(cidrs) => Local::Cidrs(cidrs.clone()),
        DetectLocal::NodeCidr => Local::Cidrs(node.pod_cidrs.clone()),
        DetectLocal::Bridge(name) => Local::Bridge(name.clone()),
        DetectLocal::InterfacePrefix(name) => Local::Prefix(name.clone()),
        DetectLocal::None => Local::Unknown,
    };
    Options {
        mark: 1 << config.masquerade_bit,
        masquerade_all: config.masquerade_all,
        local,
        nodeports_everywhere: [nodeports[0] == NodePorts::All, nodeports[1] == NodePorts::All],
        localhost_nodeports: config.localhost_nodeports,
        count: count(config.count),
    }
}

/// What Services do not decide about themselves.
pub fn node(config: &Config, ips: &NodeIps) -> entries::Node {
    entries::Node {
        addresses: routing::Family::BOTH.map(|family| ips.known(family)),
        external_ips: config.allow_external_ips,
        count: count(config.count),
    }
}

/// A Service as it is to be in the kernel; `None` if it is not to be there.
pub fn programmed(
    index: &Index,
    reader: &routing::ObjectReader,
    gates: &routing::FeatureGates,
    key: &Key,
) -> Option<Programmed> {
    let service = index.services().get(key)?;
    let slices = index.slices(key);
    let portion = |port, family| {
        let family = entries::routing_family(family);
        service.cluster_ip(family)?;
        let query = RouteQuery { reader, gates, service, port, family, slices: &slices };
        Some(Box::new(Portion::new(family, route(&query))))
    };
    let ports =
        service.ports.iter().map(|port| layout::FAMILIES.map(|family| portion(port, family)));
    Some(Programmed { service: Arc::clone(service), ports: ports.collect() })
}
