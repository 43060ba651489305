//! A node's tables in a namespace of its own, filled from Kubernetes objects without an API server.
#![allow(dead_code, reason = "every test file uses its part of this")]

pub(crate) mod clients;
pub(crate) mod live;
pub(crate) mod objects;
pub(crate) mod pages;
pub(crate) mod roles;
pub(crate) mod two_nodes;
pub(crate) mod weighted;

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use zonewise_common::cidr::Cidr;
use zonewise_netns::Namespace;
use zonewise_nft::{Family, Network};
use zonewise_proxy::config::{Budget, Config, CountBy};
use zonewise_proxy::testing::{
    FoundTables, Index, Kept, Kernel, KernelError, NodeSettings, Options, Published, Rejected,
    WatchId, programmed_service,
};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader, Protected};
use zonewise_testbed::content_type;

/// How long a probe waits for an answer: longer than a busy machine needs, and shorter than the second after which TCP
/// sends a packet again, so that a dropped packet is seen.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(900);
/// For an answer that must come, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// One watch, as far as these tests are concerned.
pub(crate) const WATCH: WatchId = WatchId(0);

/// The tables of one node.
pub(crate) struct Tables {
    pub(crate) index: Index,
    pub(crate) reader: Arc<ObjectReader>,
    pub(crate) gates: FeatureGates,
    pub(crate) kernel: Kernel,
    /// Where it is; `None` in a kernel in memory.
    namespace: Option<Namespace>,
    /// What the pages show.
    pub(crate) published: Arc<Published>,
    pub(crate) options: Options,
    pub(crate) ranges: Vec<Cidr>,
    started: bool,
}

/// What is not said otherwise: both families, addresses known, connections counted by zone.
pub(crate) fn usual_node(addresses: [Option<IpAddr>; 2]) -> NodeSettings {
    let protected = Protected { node_ports: vec![10_250], ..Protected::default() };
    let budget = Budget::default();
    NodeSettings { addresses, external_ips: true, count: CountBy::Zones, protected, budget }
}

impl Tables {
    /// In this namespace, for a node of that name and zone.
    pub(crate) fn new(
        namespace: &Namespace,
        location: NodeLocation,
        options: Options,
        node: NodeSettings,
    ) -> Self {
        let tables = namespace.enter(|| Self::on(&Network::default(), location, options, node));
        Self { namespace: Some(namespace.clone()), ..tables }
    }

    /// In the kernel that this leads to.
    pub(crate) fn on(
        network: &Network,
        location: NodeLocation,
        options: Options,
        mut node: NodeSettings,
    ) -> Self {
        let reader = Arc::new(ObjectReader::new(location));
        let names = Arc::clone(&reader);
        let names = Box::new(move |zone| {
            names.zone_name(zone).map_or_else(String::new, |name| name.to_string())
        });
        let families = vec![Family::Ip, Family::Ip6];
        node.count = options.count;
        let published = Arc::new(Published::default());
        let kernel = Kernel::open(network, options.clone(), families, node, names)
            .expect("netlink works; this test needs root")
            .publishing(Arc::clone(&published));
        let (index, gates) = (Index::default(), FeatureGates::default());
        Self {
            index,
            reader,
            gates,
            kernel,
            published,
            namespace: None,
            options,
            ranges: Vec::new(),
            started: false,
        }
    }

    pub(crate) fn service(&mut self, object: &Value) -> &mut Self {
        self.index.apply_service(self.reader.read_service(&object.to_string()).unwrap());
        self
    }

    pub(crate) fn slice(&mut self, object: &Value) -> &mut Self {
        self.index.apply_slice(self.reader.read_slice(&object.to_string()).unwrap(), WATCH);
        self
    }

    pub(crate) fn delete_service(&mut self, namespace: &str, name: &str) -> &mut Self {
        self.index.delete_service(&(namespace.into(), name.into()));
        self
    }

    pub(crate) fn delete_slice(&mut self, namespace: &str, name: &str) -> &mut Self {
        self.index.remove_slice(&(namespace.into(), name.into()));
        self
    }

    /// Writes what has changed.
    pub(crate) fn try_sync(&mut self) -> Result<Vec<Rejected>, KernelError> {
        let work = self.index.take_changes();
        let of = |key| {
            let programmed = programmed_service(&self.index, &self.reader, &self.gates, &key);
            (key, programmed)
        };
        let updates = work.services.into_iter().map(of).collect();
        if self.started {
            return self.kernel.apply(updates);
        }
        self.started = true;
        self.kernel.start(updates, self.ranges.clone()).map(|(_, rejected)| rejected)
    }

    /// Writes what has changed; the kernel takes all of it.
    pub(crate) fn sync(&mut self) -> &mut Self {
        let rejected = self.try_sync().unwrap();
        assert!(rejected.is_empty(), "{rejected:?}");
        self
    }

    /// The first sync, and what was found.
    pub(crate) fn start(&mut self) -> FoundTables {
        let keys: Vec<_> = self.index.services().keys().cloned().collect();
        let of = |key| {
            let programmed = programmed_service(&self.index, &self.reader, &self.gates, &key);
            (key, programmed)
        };
        self.started = true;
        let updates = keys.into_iter().map(of).collect();
        self.index.take_changes();
        let (found, rejected) = self.kernel.start(updates, self.ranges.clone()).unwrap();
        assert!(rejected.is_empty(), "{rejected:?}");
        found
    }

    /// Removes clients from session affinity whose endpoint is gone, as the proxy does a moment later.
    pub(crate) fn forget_clients(&mut self) {
        let Self { namespace, kernel, .. } = self;
        let forget = || while kernel.keep_clients(LONG).unwrap() != Kept::Done {};
        namespace.as_ref().unwrap().enter(forget);
    }

    /// What is in the kernel is exactly what should be.
    pub(crate) fn assert_repaired(&mut self) {
        let repaired = self.kernel.repair().unwrap();
        assert!(repaired.is_clean(), "{repaired:?}");
    }
}

/// Asks until the answer has come within a time, and returns it: on a busy machine one may come later, when what was asked
/// about is over.
pub(crate) fn within<T>(time: Duration, ask: impl Fn() -> T) -> T {
    loop {
        let begin = Instant::now();
        let answer = ask();
        if begin.elapsed() < time {
            return answer;
        }
    }
}

/// What the `nft` program lists, run in a namespace.
pub(crate) fn nft(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = namespace.enter(|| Command::new("nft").args(arguments).output());
    let output = output.expect("the nft program is needed: apt-get install nftables");
    assert!(
        output.status.success(),
        "nft {arguments:?}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// `nft -j list …` as a document.
pub(crate) fn nft_json(namespace: &Namespace, arguments: &[&str]) -> Value {
    let mut all = vec!["-j"];
    all.extend(arguments);
    serde_json::from_str(&nft(namespace, &all)).unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// The configuration of a proxy on this node that talks to an API server in the form that tests are run with.
pub(crate) fn proxy_config(node: &str) -> Config {
    let mut config = Config::new(node);
    if let Some(media_type) = content_type() {
        config.connection.content_type = media_type.parse().unwrap();
    }
    config
}
