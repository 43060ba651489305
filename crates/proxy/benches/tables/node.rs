//! A node's tables with many Services.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_nft::Family;
use zonewise_proxy::testing::{
    Index, Kernel, Network, NodeSettings, Options, Published, WatchId, programmed_service,
};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader};
use zonewise_testbed::objects;

/// Endpoints of a Service.
pub(crate) const ENDPOINTS: u32 = 10;

/// A node in a network namespace of its own.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    pub(crate) kernel: Kernel,
    pub(crate) published: Arc<Published>,
    index: Index,
    reader: Arc<ObjectReader>,
    started: bool,
}

impl Node {
    pub(crate) fn new() -> Result<Self> {
        let namespace = Namespace::new("bench")?;
        let reader = Arc::new(ObjectReader::new(NodeLocation::new("n1", Some("a"), None)));
        let names = Arc::clone(&reader);
        let names = Box::new(move |zone| {
            names.zone_name(zone).map_or_else(String::new, |name| name.to_string())
        });
        let published = Arc::new(Published::default());
        let open = || {
            let node = NodeSettings::default();
            Kernel::open(&Network::default(), Options::default(), vec![Family::Ip], node, names)
        };
        let kernel = namespace.enter(open)?.publishing(Arc::clone(&published));
        let index = Index::default();
        Ok(Self { namespace, kernel, published, index, reader, started: false })
    }

    /// Adds a Service, with changes to its `spec`.
    pub(crate) fn add(&mut self, number: u32, changes: &Value) -> Result<()> {
        self.put(number, changes, ENDPOINTS)
    }

    /// Adds or changes a Service that has this many endpoints.
    pub(crate) fn put(&mut self, number: u32, changes: &Value, endpoints: u32) -> Result<()> {
        let name = format!("s{number}");
        let mut service = json!({
            "metadata": {"namespace": "bench", "name": name, "resourceVersion": "1"},
            "spec": {"type": "ClusterIP", "clusterIP": cluster_ip(number), "clusterIPs": [cluster_ip(number)], "ipFamilies": ["IPv4"],
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            service["spec"][key] = value.clone();
        }
        let zones = ["a", "b", "c"].into_iter().cycle();
        let endpoints: Vec<Value> = (0..endpoints)
            .zip(zones)
            .map(|(n, zone)| objects::endpoint(pod_ip(number, n), "n2", zone))
            .collect();
        let mut slice = objects::endpoint_slice("bench", &name, &format!("{name}-1"), &endpoints);
        slice["metadata"]["resourceVersion"] = json!("1");
        self.index.apply_service(self.reader.read_service(&service.to_string())?);
        self.index.apply_slice(self.reader.read_slice(&slice.to_string())?, WatchId(0));
        Ok(())
    }

    /// Writes what has changed.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let gates = FeatureGates::default();
        let keys = self.index.take_changes().services.into_iter();
        let of = |key| {
            let programmed = programmed_service(&self.index, &self.reader, &gates, &key);
            (key, programmed)
        };
        let updates = keys.map(of).collect();
        let rejected = match std::mem::replace(&mut self.started, true) {
            true => self.kernel.apply(updates)?,
            false => self.kernel.start(updates, Vec::new())?.1,
        };
        ensure!(rejected.is_empty(), "the kernel rejects {rejected:?}");
        Ok(())
    }
}

/// The ClusterIP of a Service.
pub(crate) fn cluster_ip(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 0, 1)) + number))
}

/// The address of an endpoint of a Service.
pub(crate) fn pod_ip(service: u32, number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 1)) + service * 16 + number))
}
