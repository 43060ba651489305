//! The ranges that ClusterIPs come from, as the API server's ServiceCIDR objects say. Proxies refuse external IPs in
//! them, whether a Service uses the address already or not, so code that reports which addresses are refused reads them too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{SERVICE_CIDRS, WatchListener};
use zonewise_common::cidr::Cidr;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Name};
use zonewise_common::service_cidr::ServiceCidr;

use crate::follow::{Cause, IndexListener, WatchedIndex};

/// Keeps the ranges of the claims up to date.
pub(crate) struct ServiceCidrUpdater<L> {
    watched: Arc<WatchedIndex<L>>,
    known: BTreeMap<Name, Vec<Cidr>>,
}

impl<L: IndexListener> ServiceCidrUpdater<L> {
    pub(crate) fn new(watched: Arc<WatchedIndex<L>>) -> Self {
        Self { watched, known: BTreeMap::new() }
    }

    /// Services whose external IPs may come or go are looked at again.
    fn update(&self) {
        let ranges = self.known.values().flatten().copied().collect();
        let concerned = self.watched.set_service_cidrs(ranges);
        if !concerned.is_empty() {
            self.watched.listener.changed(Cause::Service, concerned.into_iter().collect());
        }
    }
}

impl<L: IndexListener> WatchListener for ServiceCidrUpdater<L> {
    type Object = ServiceCidr;

    fn read(&self, object: Encoded<'_>) -> Result<ServiceCidr, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, ServiceCidr { name, ranges }: ServiceCidr) {
        self.known.insert(name, ranges);
        self.update();
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.watched.listener.unreadable(SERVICE_CIDRS.name, key, error);
    }

    fn delete(&mut self, _: u64, (_, name): &Key) {
        self.known.remove(name);
        self.update();
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        self.known.retain(|name, _| keys.iter().any(|(_, listed)| listed == name));
        self.update();
    }

    /// API servers before 1.33 have no ServiceCIDRs. That is no failure: the ranges are not known then.
    fn health(&mut self, health: Result<(), &ApiError>) {
        if !matches!(health, Err(ApiError::NotFound(_))) {
            self.watched.listener.health(SERVICE_CIDRS.name, health);
        }
    }
}
