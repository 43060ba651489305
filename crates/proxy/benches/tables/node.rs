//! A node's tables with many Services.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use zonewise_common::name::Key;
use zonewise_netns::Namespace;
use zonewise_nft::{Family, Network};
use zonewise_proxy::testing::{
    Index, Kernel, NodeSettings, Options, ProgrammedService, Published, WatchId, programmed_service,
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
        let endpoints = self::endpoints(number, endpoints);
        self.index.apply_service(self.reader.read_service(&service.to_string())?);
        self.offer(&name, &endpoints, 8080)
    }

    /// Changes the port of a Service's endpoints.
    pub(crate) fn listen(&mut self, number: u32, port: u16) -> Result<()> {
        self.offer(&format!("s{number}"), &endpoints(number, ENDPOINTS), port)
    }

    fn offer(&mut self, service: &str, endpoints: &[Value], port: u16) -> Result<()> {
        let mut slice =
            objects::endpoint_slice("bench", service, &format!("{service}-1"), endpoints);
        slice["metadata"]["resourceVersion"] = json!("1");
        slice["ports"] = json!([{"name": "http", "port": port, "protocol": "TCP"}]);
        self.index.apply_slice(self.reader.read_slice(&slice.to_string())?, WatchId(0));
        Ok(())
    }

    /// What has changed.
    pub(crate) fn updates(&mut self) -> Vec<(Key, Option<ProgrammedService>)> {
        let gates = FeatureGates::default();
        let keys = self.index.take_changes().services.into_iter();
        let of = |key| {
            let programmed = programmed_service(&self.index, &self.reader, &gates, &key);
            (key, programmed)
        };
        keys.map(of).collect()
    }

    /// Writes what has changed.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let updates = self.updates();
        self.apply(updates)
    }

    /// Writes these Services.
    pub(crate) fn apply(&mut self, updates: Vec<(Key, Option<ProgrammedService>)>) -> Result<()> {
        let rejected = match std::mem::replace(&mut self.started, true) {
            true => self.kernel.apply(updates)?,
            false => self.kernel.start(updates, Vec::new())?.1,
        };
        ensure!(rejected.is_empty(), "the kernel rejects {rejected:?}");
        Ok(())
    }
}

/// The endpoints of a Service.
fn endpoints(service: u32, count: u32) -> Vec<Value> {
    let zones = ["a", "b", "c"].into_iter().cycle();
    let each = (0..count).zip(zones);
    each.map(|(n, zone)| objects::endpoint(pod_ip(service, n), "n2", zone)).collect()
}

/// The ClusterIP of a Service.
pub(crate) fn cluster_ip(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 0, 1)) + number))
}

/// The address of an endpoint of a Service.
pub(crate) fn pod_ip(service: u32, number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 1)) + service * 16 + number))
}
