//! What follows a batch that the kernel has accepted: measurements, health checks of Services, stale
//! UDP flows, session affinity, and the report to the controller.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use zonewise_common::clock;
use zonewise_common::name::Key;
use zonewise_routing::{self as routing, TrafficPolicy};
use zonewise_topology::reason::Code;

use super::{HealthChecks, Proxy};
use crate::health::{HealthPort, Moment};
use crate::host::blocking;
use crate::index::{Changes, Index};
use crate::kernel::Rejected;
use crate::rules::entries;
use crate::rules::layout::family_name;

impl Proxy<'_> {
    /// What follows a batch that the kernel has accepted. After the first one (`first`) everything is
    /// looked at, otherwise `changes`.
    pub(super) async fn after_sync(
        &mut self,
        changes: &Changes,
        rejected: Vec<Rejected>,
        began: Instant,
        first: bool,
    ) {
        self.update_rejected(changes, rejected, first);
        self.remove_stale_flows(changes, first);
        self.measure(changes, began, first);
        self.update_health_checks(changes, first).await;
        self.remove_unused_later();
        if self.kernel.with(|kernel| kernel.has_urgent_clients()).unwrap_or_default() {
            self.schedule.keep_clients_after(Duration::ZERO);
        }
        self.report(changes.version);
    }

    /// Notes which Services the kernel rejects, and writes an event where its error is new.
    fn update_rejected(&mut self, changes: &Changes, rejected: Vec<Rejected>, first: bool) {
        let again = |key: &Key| rejected.iter().any(|rejected| rejected.service == *key);
        let tried = |key: &Key| first || changes.services.contains(key);
        self.rejected.retain(|key, _| !tried(key) || again(key));
        for Rejected { service, error } in rejected {
            tracing::error!(namespace = %service.0, service = %service.1, %error,
                "the kernel rejects the rules of this Service; its former rules stay, all other Services are up to date");
            let error = error.to_string();
            if self.rejected.insert(service.clone(), error.clone()).as_ref() != Some(&error) {
                self.reports.events.warn(&service, Code::RefusedByKernel, &error);
            }
        }
        self.reports.metrics.ours.rejected.set(self.rejected.len() as f64);
    }

    fn measure(&self, changes: &Changes, began: Instant, first: bool) {
        let took = began.elapsed().as_secs_f64();
        let now = clock::now();
        for &family in &self.families {
            let label = [family_name(family)];
            self.reports.metrics.sync.with(label).observe(took);
            let kind =
                if first { &self.reports.metrics.full } else { &self.reports.metrics.partial };
            kind.with(label).observe(took);
            self.reports.metrics.last.with(label).set(now.as_millisecond() as f64 / 1000.0);
            self.reports.health.updated(entries::routing_family(family), Moment::now());
            let triggers =
                changes.triggers.values().flatten().filter(|at| **at > self.reports.started);
            for at in triggers {
                let seconds = (now.as_microsecond() - at) as f64 / 1e6;
                self.reports.metrics.programming.with(label).observe(seconds.max(0.0));
            }
        }
    }

    /// Removes UDP flows that conntrack would still send to endpoints that are gone, and connections that began before
    /// there were rules.
    fn remove_stale_flows(&self, changes: &Changes, first: bool) {
        let services = self.looked_at(changes, first);
        blocking(|| {
            self.stale_flows.remove(&services);
            if first {
                self.stale_flows.remove_early();
            }
        });
    }

    /// The Services that a sync was about: all of them the first time.
    fn looked_at(&self, changes: &Changes, first: bool) -> BTreeSet<Key> {
        match first {
            true => self.cluster.index().services().keys().cloned().collect(),
            false => changes.services.iter().cloned().collect(),
        }
    }

    async fn update_health_checks(&mut self, changes: &Changes, first: bool) {
        {
            let looked_at = self.looked_at(changes, first);
            let index = self.cluster.index();
            for key in looked_at {
                let name = (key.0.to_string(), key.1.to_string());
                match health_port(&index, &key) {
                    Some(port) => drop(self.health_checks.services.insert(name, port)),
                    None => drop(self.health_checks.services.remove(&name)),
                }
            }
        }
        self.open_health_ports().await;
    }

    /// Opens the health checks of Services on the addresses that accept NodePorts.
    pub(super) async fn open_health_ports(&mut self) {
        let HealthChecks { servers, services } = &mut self.health_checks;
        for error in servers.reconcile(services, &self.in_kernel.nodeports).await {
            if !error.again {
                let service: Key = (error.namespace.as_str().into(), error.name.as_str().into());
                let code = Code::FailedToStartServiceHealthcheck;
                self.reports.events.warn(&service, code, &error.to_string());
                tracing::warn!(%error, "the health check port of a Service stays closed; it is tried again with the next change");
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
