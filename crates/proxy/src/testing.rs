//! What tests and the lab use beyond the interface of the crate. No part of that interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use zonewise_cluster::watch::ContentType;
pub use zonewise_nft::Network;
use zonewise_nft::conntrack::Carried;
use zonewise_routing::FeatureGates;
use zonewise_telemetry::metrics::{MetricError, Registry};

pub use crate::addresses::{NodePorts, interface_addresses};
use crate::config::Config;
pub use crate::connections::bytes::Meter;
pub use crate::connections::failed::{FailedConnections, SILENT};
pub use crate::connections::ledger::Sum;
use crate::connections::service_counts::Counting;
pub use crate::connections::service_counts::{ServiceCount, service_counts};
pub use crate::connections::{by_service, by_zone};
pub use crate::conntrack::{Frontends, Known, find, remove};
use crate::dry_run;
pub use crate::health::{
    Health, HealthPages, HealthPort, HealthPorts, MetricsPages, Moment, PortError, serve,
};
pub use crate::index::{Index, WatchId};
pub use crate::kernel::{
    FoundTables, Kept, Kernel, KernelError, KernelHandle, Rejected, Repaired, Verification,
};
use crate::metrics::Metrics;
use crate::node::NodeInfo;
pub use crate::proxy::inputs::programmed_service;
use crate::proxy::with_routes;
pub use crate::published::Published;
pub use crate::report::Applied;
pub use crate::rules::affinity::CLIENTS;
pub use crate::rules::budget::Extent;
pub use crate::rules::counting::COUNTED;
pub use crate::rules::entries::{NodeSettings, ProgrammedService, routing_family};
pub use crate::rules::layout::{FAMILIES, LocalTraffic, Options};
pub use crate::rules::{TABLE, text};
use crate::table_metrics;
use crate::timeline::Timeline;
use crate::watches::{ClusterView, Watches};

/// `/metrics` and `/routes` of a proxy that has published this.
///
/// # Errors
/// If two metrics have one name.
pub fn table_pages(node: &str, published: &Arc<Published>) -> Result<MetricsPages, MetricError> {
    let registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&registry)?);
    let cluster = ClusterView::new(
        node,
        FeatureGates::default(),
        ContentType::default(),
        metrics,
        Timeline::default(),
    );
    table_metrics::register(
        &registry,
        published,
        &cluster,
        &Network::default(),
        Counting::default(),
    )?;
    Ok(with_routes(MetricsPages::new(registry, String::new()), published, &cluster))
}

/// Connections that are in no sum, by zone and reason.
pub fn unassigned_connections(published: &Published) -> BTreeMap<(String, &'static str), u64> {
    let ledger = published.connections();
    let some = ledger.unassigned().filter(|(.., sum)| *sum > 0);
    some.map(|(zone, why, sum)| ((zone.to_string(), why.as_str()), sum)).collect()
}

/// Bytes that are in no sum, to the endpoints and back, by reason.
pub fn unassigned_bytes(published: &Published) -> BTreeMap<&'static str, (u64, u64)> {
    let ledger = published.connections();
    let some = ledger.unassigned_bytes().filter(|(_, sum)| *sum != Carried::default());
    some.map(|(why, sum)| (why.as_str(), (sum.original, sum.reply))).collect()
}

/// A proxy without a kernel: its watches, and the rules that follow from what they have delivered. The
/// watches end when it is dropped.
pub struct Follower {
    config: Config,
    view: Arc<ClusterView>,
    watches: Watches,
}

impl Follower {
    /// Starts the watches of the proxy with this configuration: those of its zone's subsets, or one for
    /// all slices.
    ///
    /// # Errors
    /// If two metrics have one name.
    pub fn start(client: &Client, config: Config, subsets: bool) -> Result<Self, MetricError> {
        let metrics = Arc::new(Metrics::new(&Registry::default())?);
        let gates = FeatureGates { subsetting: subsets, ..config.routing };
        let view = ClusterView::new(
            &config.node_name,
            gates,
            config.connection.content_type,
            metrics,
            Timeline::default(),
        );
        let watches = Watches::start(client, &view, &config.node_name, None);
        Ok(Self { config, view, watches })
    }

    /// Follows the node's zone; the node once everything is listed.
    fn follow(&mut self) -> Option<NodeInfo> {
        let node = self.view.node()?;
        self.watches.follow(node.location());
        Some(node).filter(|_| self.view.is_complete())
    }

    /// Follows the node's zone. How many slices, new, changed or gone, the watches have delivered; `None`
    /// until everything is listed.
    pub fn slices_received(&mut self) -> Option<u64> {
        self.follow().map(|_| self.view.metrics.slice_changes())
    }

    /// Follows the node's zone, and returns the rules as text; `None` until everything is listed.
    pub fn rules(&mut self) -> Option<String> {
        let node = self.follow()?;
        let reader = self.view.reader();
        let index = self.view.index();
        Some(dry_run::render(&self.config, &node, &reader, &index, &[]))
    }

    /// Whether nothing is left to ask the API server for.
    pub fn is_settled(&self) -> bool {
        self.view.index().is_settled()
    }
}
