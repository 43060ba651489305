//! What each watch does with the objects it delivers. A listener is called from the task of its watch
//! alone, in the order of the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::WatchListener;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_common::service_cidr::ServiceCidr;
use zonewise_routing::{ObjectReader, RoutedService, RoutedSlice};

use super::ClusterView;
use super::view::List;
use crate::index::WatchId;
use crate::node::NodeInfo;
use crate::timeline::Listing;

/// An object as a watch has delivered it, under its namespace and name.
pub(super) struct Decoded<T> {
    key: Key,
    object: T,
}

impl<T> Keyed for Decoded<T> {
    fn key(&self) -> Key {
        self.key.clone()
    }
}

/// Puts Services into the index.
pub(super) struct ServiceListener {
    pub(super) view: Arc<ClusterView>,
    pub(super) listing: Listing,
}

impl WatchListener for ServiceListener {
    type Object = Decoded<RoutedService>;

    fn read(&self, object: Encoded<'_>) -> Result<Self::Object, DecodeError> {
        let object = self.view.reader().decode_service(object)?;
        let key = (Name::clone(&object.namespace), Name::clone(&object.name));
        Ok(Decoded { key, object })
    }

    fn apply(&mut self, service: Self::Object) {
        self.listing.object();
        self.view.metrics.service_change();
        self.view.change(|index| index.apply_service(service.object));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.view.unreadable("services", key, error);
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.view.metrics.service_change();
        self.view.change(|index| index.delete_service(key));
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        self.listing.ended();
        let gone: Vec<Key> = {
            let index = self.view.index();
            index.services().keys().filter(|key| !keys.contains(*key)).cloned().collect()
        };
        gone.iter().for_each(|key| self.delete(version, key));
        self.view.set_listed(List::Services);
    }

    fn rewound(&mut self) {
        self.view.rewound.notify_one();
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.view.metrics.watch_health("services", health.is_ok());
    }
}

/// Puts the slices of one watch into the index.
pub(super) struct SliceListener {
    pub(super) view: Arc<ClusterView>,
    pub(super) reader: Arc<ObjectReader>,
    pub(super) watch: WatchId,
    pub(super) listing: Listing,
}

impl WatchListener for SliceListener {
    type Object = Decoded<RoutedSlice>;

    fn read(&self, object: Encoded<'_>) -> Result<Self::Object, DecodeError> {
        let object = self.reader.decode_slice(object)?;
        let key = (Name::clone(&object.namespace), Name::clone(&object.name));
        Ok(Decoded { key, object })
    }

    fn apply(&mut self, slice: Self::Object) {
        self.listing.object();
        self.view.metrics.slice_change();
        self.view.change(|index| index.apply_slice(slice.object, self.watch));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.view.unreadable("endpointslices", key, error);
    }

    fn delete(&mut self, version: u64, key: &Key) {
        self.view.metrics.slice_change();
        self.view.change(|index| index.slice_left(key, version, self.watch));
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        self.listing.ended();
        self.view.change(|index| index.listed(keys, version, self.watch));
    }

    fn seen(&mut self, version: u64) {
        self.view.change(|index| index.reached(self.watch, version));
    }

    fn rewound(&mut self) {
        self.view.rewound.notify_one();
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.view.metrics.watch_health("endpointslices", health.is_ok());
    }
}

/// Follows this node.
pub(super) struct NodeListener {
    pub(super) view: Arc<ClusterView>,
    pub(super) listing: Listing,
}

impl WatchListener for NodeListener {
    type Object = Decoded<NodeInfo>;

    fn read(&self, object: Encoded<'_>) -> Result<Self::Object, DecodeError> {
        let object = NodeInfo::read(object)?;
        Ok(Decoded { key: (Name::default(), Name::clone(&object.name)), object })
    }

    fn apply(&mut self, node: Self::Object) {
        self.listing.object();
        self.view.set_node(node.object);
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.view.unreadable("nodes", key, error);
    }

    /// A deleted node keeps its zone: until its Pods end, their traffic stays where it was.
    fn delete(&mut self, _: u64, _: &Key) {}

    fn listed(&mut self, _: u64, _: &BTreeSet<Key>) {
        self.listing.ended();
        self.view.set_listed(List::Node);
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.view.metrics.watch_health("nodes", health.is_ok());
    }
}

/// Follows the ranges that ClusterIPs come from.
pub(super) struct ServiceCidrListener {
    pub(super) view: Arc<ClusterView>,
    pub(super) listing: Listing,
}

impl WatchListener for ServiceCidrListener {
    type Object = ServiceCidr;

    fn read(&self, object: Encoded<'_>) -> Result<ServiceCidr, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, ServiceCidr { name, ranges }: ServiceCidr) {
        self.listing.object();
        self.view.change_service_cidrs(|known| drop(known.insert(name, ranges)));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.view.unreadable("servicecidrs", key, error);
    }

    fn delete(&mut self, _: u64, (_, name): &Key) {
        self.view.change_service_cidrs(|known| drop(known.remove(name)));
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        self.listing.ended();
        self.view.change_service_cidrs(|known| {
            known.retain(|name, _| keys.iter().any(|(_, listed)| listed == name));
        });
        self.view.set_listed(List::ServiceCidrs);
    }

    /// API servers before 1.33 have no ServiceCIDRs, and the role of the proxy may not allow to read
    /// them. The proxy starts without them then.
    fn health(&mut self, health: Result<(), &ApiError>) {
        self.view.metrics.watch_health("servicecidrs", health.is_ok());
        if let Err(ApiError::NotFound(_) | ApiError::Unauthorized(_) | ApiError::Forbidden(_)) =
            health
        {
            self.view.set_listed(List::ServiceCidrs);
        }
    }
}
