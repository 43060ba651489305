//! What follows a batch that the kernel has taken: measurements, health checks, stale flows, clients
//! that stay with an endpoint, and what the controller is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::task::block_in_place;
use tokio::time::Instant;
use zonewise_common::name::Key;
use zonewise_nft::Family;
use zonewise_routing::{self as routing, RouteQuery, TrafficPolicy};
use zonewise_topology::reason::Code;

use super::{Proxy, SWEEP, locked, name};
use crate::addresses;
use crate::conntrack;
use crate::health::{HealthPort, Moment};
use crate::index::{Index, Work};
use crate::kernel::Rejected;
use crate::rules::entries;

impl Proxy<'_> {
    /// What follows a batch that the kernel has taken.
    pub(super) async fn settle(
        &mut self,
        work: &Work,
        rejected: Vec<Rejected>,
        began: Instant,
        first: bool,
    ) {
        self.reject(work, rejected, first);
        if self.needs_purge(work, first) {
            block_in_place(|| self.purge());
        }
        self.stale_flows(work, first);
        self.measure(work, began, first);
        self.health_ports(work, first).await;
        if self.sweep_at.is_none()
            && locked(&self.kernel).as_ref().is_some_and(|kernel| kernel.pending() > 0)
        {
            self.sweep_at = Some(Instant::now() + SWEEP);
        }
        self.known.ask_for_lonely(&work.services);
        self.report(work.version);
    }

    fn reject(&mut self, work: &Work, rejected: Vec<Rejected>, first: bool) {
        let again = |key: &Key| rejected.iter().any(|rejected| rejected.service == *key);
        let tried = |key: &Key| first || work.services.contains(key);
        self.rejected.retain(|key, _| !tried(key) || again(key));
        for Rejected { service, error } in rejected {
            tracing::error!(namespace = %service.0, service = %service.1, %error,
                "the kernel refuses this Service; what was there of it stays, the others are in place");
            let error = error.to_string();
            if self.rejected.insert(service.clone(), error.clone()).as_ref() != Some(&error) {
                self.teller.warn(&service, Code::RefusedByKernel, &error);
            }
        }
        self.metrics.ours.rejected.set(self.rejected.len() as f64);
    }

    fn needs_purge(&self, work: &Work, first: bool) -> bool {
        let index = self.known.index();
        let sticky = |key: &Key| {
            index.services().get(key).is_none_or(|service| service.affinity_seconds.is_some())
        };
        !first && work.services.iter().any(sticky)
    }

    fn purge(&self) {
        if let Some(kernel) = locked(&self.kernel).as_mut()
            && let Err(error) = kernel.purge_affinity()
        {
            tracing::warn!(%error, "clients of endpoints that are gone could not be forgotten");
        }
    }

    fn measure(&self, work: &Work, began: Instant, first: bool) {
        let took = began.elapsed().as_secs_f64();
        let now = jiff::Timestamp::now();
        for family in self.families() {
            let label = [name(family)];
            self.metrics.sync.with(label).observe(took);
            let kind = if first { &self.metrics.full } else { &self.metrics.partial };
            kind.with(label).observe(took);
            self.metrics.last.with(label).set(now.as_millisecond() as f64 / 1000.0);
            self.health.updated(entries::routing_family(family), Moment::now());
            let triggers = work.triggers.values().flatten().filter(|at| **at > self.started);
            for at in triggers {
                let seconds = (now.as_microsecond() - at) as f64 / 1e6;
                self.metrics.programming.with(label).observe(seconds.max(0.0));
            }
        }
    }

    fn stale_flows(&self, work: &Work, first: bool) {
        let reader = self.known.reader();
        let index = self.known.index();
        let mut frontends: BTreeMap<Family, conntrack::Frontends> = BTreeMap::new();
        let keys: Box<dyn Iterator<Item = &Key>> =
            if first { Box::new(index.services().keys()) } else { Box::new(work.services.iter()) };
        for key in keys {
            let Some(service) = index.services().get(key) else { continue };
            let udp = service.ports.iter().filter(|port| port.protocol == routing::Protocol::Udp);
            for port in udp {
                let slices = index.slices(key);
                for family in self.families() {
                    let query = RouteQuery {
                        reader: &reader,
                        gates: &self.config.routing,
                        service,
                        port,
                        family: entries::routing_family(family),
                        slices: &slices,
                    };
                    frontends.entry(family).or_default().add(
                        service,
                        port,
                        &routing::serving_targets(&query),
                    );
                }
            }
        }
        drop(index);
        frontends.retain(|_, frontends| !frontends.is_empty());
        if !frontends.is_empty() {
            block_in_place(|| self.clean_flows(&frontends));
        }
    }

    fn clean_flows(&self, frontends: &BTreeMap<Family, conntrack::Frontends>) {
        let own: BTreeSet<IpAddr> =
            addresses::interface_addresses().unwrap_or_default().into_iter().collect();
        for (&family, frontends) in frontends {
            let began = Instant::now();
            match conntrack::clean(family, frontends, &own) {
                Ok(deleted) => self.metrics.flows_deleted.with([name(family)]).add(deleted as u64),
                Err(error) => tracing::warn!(%error, "stale UDP flows could not be removed"),
            }
            self.metrics.conntrack.with([name(family)]).observe(began.elapsed().as_secs_f64());
        }
    }

    async fn health_ports(&mut self, work: &Work, first: bool) {
        {
            let index = self.known.index();
            let all: Vec<Key> = if first {
                index.services().keys().cloned().collect()
            } else {
                work.services.iter().cloned().collect()
            };
            for key in all {
                let name = (key.0.to_string(), key.1.to_string());
                match health_port(&index, &key) {
                    Some(port) => drop(self.health_services.insert(name, port)),
                    None => drop(self.health_services.remove(&name)),
                }
            }
        }
        self.open_health_ports().await;
    }

    /// Health checks answer where NodePorts do.
    pub(super) async fn open_health_ports(&mut self) {
        for error in self.ports.reconcile(&self.health_services, &self.nodeports).await {
            if !error.again {
                let service: Key = (error.namespace.as_str().into(), error.name.as_str().into());
                self.teller.warn(
                    &service,
                    Code::FailedToStartServiceHealthcheck,
                    &error.to_string(),
                );
                tracing::warn!(%error, "a health check port stays closed; it is tried again with the next change");
            }
        }
    }
}

fn health_port(index: &Index, key: &Key) -> Option<HealthPort> {
    let service = index.services().get(key)?;
    let port = service
        .health_check_node_port
        .filter(|_| service.external_policy == TrafficPolicy::Local)?;
    let slices = index.slices(key);
    let families =
        routing::Family::BOTH.into_iter().filter(|family| service.cluster_ip(*family).is_some());
    let ready = families
        .map(|family| (family, routing::count_local_ready(service, &slices, family)))
        .collect();
    Some(HealthPort { port, ready })
}
