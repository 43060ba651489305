//! The watches: Services, EndpointSlices by subset, this node, ServiceCIDRs.
//!
//! ```text
//!  node without zone                 node in zone z of region r
//!  ───────────────────────────       ───────────────────────────
//!  slices: one watch, all            slices: without subset label   for-zone=z   for-region=r
//!                                    and of Services that need them: for-zone!=z  for-region!=r
//! ```
//!
//! When the node's zone or region changes, new watches of slices are started while everything known
//! stays in use, and the old watches run on until the new ones have listed everything. So no Service
//! loses an endpoint on the way, and none keeps one that has gone.
//!
//! * [`view`]: what the watches have learned, and who may change which part of it.
//! * `selectors`: which objects the API server is asked for.
//! * `listeners`: what each watch does with its objects.
//! * `request`: a single list of slices.
//! * `departures`: the task that asks whether slices that left a watch still exist.
//! * `other_zones`: the task that watches slices of other zones, for Services that this node's own slices leave
//!   without endpoints.

mod departures;
mod listeners;
mod other_zones;
mod request;
mod selectors;
mod view;

use std::sync::Arc;

use kube::Client;
use tokio::task::JoinSet;
use zonewise_cluster::watch::{self, SERVICE_CIDRS};
use zonewise_routing::NodeLocation;

use listeners::{NodeListener, ServiceCidrListener, ServiceListener, SliceListener};
use selectors::{services, this_node};

pub(crate) use request::slices_of;
pub(crate) use view::ClusterView;

/// The tasks that keep a [`ClusterView`] up to date.
pub(crate) struct Watches {
    client: Client,
    view: Arc<ClusterView>,
    /// Started anew when the node's zone or region changes.
    slice_watches: JoinSet<()>,
    /// The watches of slices before, until those that run now have listed everything.
    former: Vec<JoinSet<()>>,
    /// The watches of other kinds and what belongs to them; they run until [`Self::stop`].
    lasting: JoinSet<()>,
    /// What `slice_watches` were started for.
    location: Option<NodeLocation>,
}

impl Watches {
    /// Starts all but the watches of slices, whose selectors depend on where the node is.
    pub(crate) fn start(
        client: &Client,
        view: &Arc<ClusterView>,
        node: &str,
        proxy_name: Option<&str>,
    ) -> Self {
        let mut lasting = JoinSet::new();
        let share = || (client.clone(), Arc::clone(view));
        let [services, this_node, service_cidrs] =
            [services(proxy_name), this_node(node), SERVICE_CIDRS]
                .map(|resource| resource.encoded_as(view.content_type));
        let (client, view) = share();
        let listing = view.listing("services");
        lasting.spawn(watch::follow(client, services, ServiceListener { view, listing }));
        let (client, view) = share();
        let listing = view.listing("nodes");
        lasting.spawn(watch::follow(client, this_node, NodeListener { view, listing }));
        let (client, view) = share();
        let listing = view.listing("servicecidrs");
        lasting.spawn(watch::follow(client, service_cidrs, ServiceCidrListener { view, listing }));
        let (client, view) = share();
        lasting.spawn(departures::settle_departures(client, view));
        let (client, view) = share();
        lasting.spawn(other_zones::follow_needs(client, view));
        let (client, view) = share();
        let (slice_watches, former) = (JoinSet::new(), Vec::new());
        Self { client, view, slice_watches, former, lasting, location: None }
    }

    /// Starts the watches of slices for a node at `location`, unless they run already. True if it has
    /// started them.
    pub(crate) fn follow(&mut self, location: NodeLocation) -> bool {
        if self.view.index().is_complete() {
            self.former.clear();
        }
        if self.location.as_ref() == Some(&location) {
            return false;
        }
        let resources = selectors::own(&location, &self.view.gates);
        let count = u32::try_from(resources.len()).unwrap_or(u32::MAX);
        let (reader, watches) = self.view.start_own_watches(location.clone(), count);
        tracing::info!(zone = ?location.zone, region = ?location.region, watches = count, "watching EndpointSlices");
        self.former.push(std::mem::take(&mut self.slice_watches));
        for (watch, resource) in watches.into_iter().zip(resources) {
            let (view, reader) = (Arc::clone(&self.view), Arc::clone(&reader));
            let resource = resource.encoded_as(view.content_type);
            let listing = view.listing("endpointslices");
            let listener = SliceListener { view, reader, watch, listing };
            self.slice_watches.spawn(watch::follow(self.client.clone(), resource, listener));
        }
        self.location = Some(location);
        true
    }

    /// Ends all tasks.
    pub(crate) fn stop(mut self) {
        self.former.clear();
        self.slice_watches.abort_all();
        self.lasting.abort_all();
    }
}
