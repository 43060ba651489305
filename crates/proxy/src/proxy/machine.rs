//! The first sync, and everything that follows the machine instead of Services: its addresses, the
//! node's Pod CIDRs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zonewise_cluster::watch::Backoff;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_routing as routing;

use super::ahead::Ahead;
use super::{Proxy, inputs};
use crate::addresses::{self, NodeIps, NodePorts};
use crate::host::blocking;
use crate::index::Changes;
use crate::kernel::{FoundTables, Kernel, KernelError, Rejected, ZoneNames};
use crate::other_proxies;
use crate::rules::entries::NodeSettings;
use crate::rules::layout::Options;

/// What the tables depend on besides Services.
#[derive(Default, PartialEq)]
pub(super) struct TableInputs {
    /// What fixed rules depend on: the tables are replaced when it changes.
    pub(super) options: Options,
    /// The addresses that accept NodePorts.
    pub(super) nodeports: BTreeMap<routing::Family, NodePorts>,
    /// The ranges that ClusterIPs come from.
    pub(super) service_cidrs: Vec<Cidr>,
}

impl TableInputs {
    /// The addresses that accept NodePorts, where not all do.
    fn listed_nodeport_ips(&self) -> Vec<IpAddr> {
        self.nodeports.values().flat_map(NodePorts::listed).copied().collect()
    }
}

impl Proxy<'_> {
    /// Writes the tables for the first time, or anew; tries until the kernel accepts them.
    pub(super) async fn write_tables(&mut self) {
        let mut backoff = Backoff::default();
        self.queued();
        while let Err(error) = self.first_sync().await {
            self.failed(&error);
            sleep(backoff.next()).await;
        }
    }

    async fn first_sync(&mut self) -> Result<(), KernelError> {
        let began = Instant::now();
        let changes = self.cluster.index().take_changes();
        self.reports.metrics.taken();
        let eligible = self.cluster.node().is_some_and(|node| node.eligible);
        self.reports.health.node_seen(eligible);
        let inputs = self.table_inputs();
        let (kernel, found, rejected, ahead) = match self.start_kernel(&inputs, &changes) {
            Ok(started) => started,
            Err(error) => {
                self.cluster.index().mark_dirty(changes.services);
                return Err(error);
            }
        };
        let services = kernel.desired().services().len();
        self.cluster.timeline.ended(began, "rules of all other Services, and base chains");
        let (owned, began) = (kernel.is_owned(), began - ahead);
        tracing::info!(services, ?found, owned, took = ?began.elapsed(), "rules are in place");
        let follows = Instant::now();
        self.kernel.set(kernel);
        self.in_kernel = inputs;
        self.after_sync(&changes, rejected, began, true).await;
        self.take_over();
        self.cluster.timeline.ended(follows, "flows, health checks and the report");
        Ok(())
    }

    /// Writes tables with all Services, or completes those that were begun; returns as well how long that took before.
    fn start_kernel(
        &mut self,
        inputs: &TableInputs,
        changes: &Changes,
    ) -> Result<(Kernel, FoundTables, Vec<Rejected>, Duration), KernelError> {
        let settings = self.node_settings();
        if let Ahead::Begun(tables) = std::mem::replace(&mut self.ahead, Ahead::Impossible) {
            let rest = || self.updates(changes.services.iter());
            if let Some((kernel, took)) = blocking(|| tables.completed(inputs, &settings, rest)) {
                return Ok((kernel, FoundTables::Nothing, Vec::new(), took));
            }
        }
        let all: Vec<Key> = self.cluster.index().services().keys().cloned().collect();
        let updates = self.updates(all.iter());
        blocking(|| {
            let mut kernel = self.open_kernel(inputs, settings)?;
            let (found, rejected) = kernel.start(updates, inputs.service_cidrs.clone())?;
            Ok((kernel, found, rejected, Duration::ZERO))
        })
    }

    /// A socket for tables that depend on this; changes nothing.
    pub(super) fn open_kernel(
        &self,
        inputs: &TableInputs,
        settings: NodeSettings,
    ) -> Result<Kernel, KernelError> {
        let (options, families) = (inputs.options.clone(), self.families.clone());
        let network = self.host.network();
        let kernel = Kernel::open(network, options, families, settings, self.zone_names())?;
        let kernel = kernel.publishing(Arc::clone(&self.published));
        Ok(kernel.with_nodeport_ips(inputs.listed_nodeport_ips()))
    }

    /// Our rules are in place: those of other proxies can be removed.
    fn take_over(&mut self) {
        if self.other_proxies.is_empty() {
            return;
        }
        let others = std::mem::take(&mut self.other_proxies);
        let removal = blocking(|| other_proxies::remove(&others));
        removal.removed.iter().for_each(|what| tracing::info!(what, "removed"));
        removal.problems.iter().for_each(|problem| tracing::error!("{problem}"));
    }

    /// Follows the machine's addresses and the node's Pod CIDRs. Where only elements depend on what
    /// has changed they are changed; where rules do, the tables are replaced in one batch.
    pub(super) async fn check_addresses(&mut self) {
        let inputs = self.table_inputs();
        if inputs.options != self.in_kernel.options {
            tracing::info!("addresses of this node have changed: replacing the tables");
            self.kernel.close();
            self.write_tables().await;
        } else if inputs.nodeports != self.in_kernel.nodeports {
            let addresses = inputs.listed_nodeport_ips();
            match self.on_kernel(|kernel| kernel.set_nodeport_ips(addresses)) {
                Ok(()) => {
                    self.in_kernel.nodeports = inputs.nodeports;
                    self.open_health_ports().await;
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    /// What the tables are to depend on now. Warnings about NodePort addresses are logged when these
    /// are others than those in the kernel.
    pub(super) fn table_inputs(&self) -> TableInputs {
        let node = self.cluster.node().unwrap_or_default();
        let (nodeports, warnings) = self.find_nodeports();
        if self.in_kernel.nodeports != nodeports {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        let of = |family| nodeports.get(&family).cloned().unwrap_or(NodePorts::All);
        let options = inputs::options(self.config, &node, &routing::Family::BOTH.map(of));
        TableInputs { options, nodeports, service_cidrs: self.service_cidrs() }
    }

    /// The ranges whose unused addresses are dropped. Only a proxy that has all Services can tell
    /// which addresses are unused.
    pub(super) fn service_cidrs(&self) -> Vec<Cidr> {
        match self.config.proxy_name {
            Some(_) => Vec::new(),
            None => self.cluster.service_cidrs(),
        }
    }

    pub(super) fn node_settings(&self) -> NodeSettings {
        inputs::node_settings(self.config, &self.node_ips(), &self.service_cidrs())
    }

    fn node_ips(&self) -> NodeIps {
        let node = self.cluster.node().unwrap_or_default();
        let pairs: Vec<(&str, &str)> =
            node.addresses.iter().map(|(kind, text)| (&**kind, &**text)).collect();
        NodeIps::new(pairs, self.config.bind_address)
    }

    /// The addresses that are to accept NodePorts, and warnings about them.
    fn find_nodeports(&self) -> (BTreeMap<routing::Family, NodePorts>, Vec<String>) {
        let interfaces = match self.host.interface_addresses() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                tracing::warn!(%error, "cannot read the addresses of this machine; NodePorts stay on the addresses they are on");
                return (self.in_kernel.nodeports.clone(), Vec::new());
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

    fn zone_names(&self) -> ZoneNames {
        let cluster = Arc::clone(&self.cluster);
        Box::new(move |zone| {
            cluster.reader().zone_name(zone).map_or_else(String::new, |name| name.to_string())
        })
    }
}
