//! The watches: Services, EndpointSlices by subset, this node, ServiceCIDRs.
//!
//! ```text
//!  node without zone                 node in zone z of region r
//!  ───────────────────────────       ───────────────────────────
//!  slices: one watch, all            slices: without subset label   for-zone=z   for-region=r
//! ```
//!
//! When the node's zone or region changes, new watches of slices are started while everything known
//! stays in use. Slices that only the old watches delivered are removed once the new ones have listed
//! everything and the API server has confirmed that they are gone, so that no Service loses an
//! endpoint on the way.
//!
//! * [`view`]: what the watches have learned, and who may change which part of it.
//! * `listeners`: what each watch does with its objects.
//! * `deletions`: the task that asks whether a slice that left a watch still exists.
//! * `fallback`: the task that lists the slices of Services which the subset watches leave without
//!   endpoints.

mod deletions;
mod fallback;
mod listeners;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

use kube::Client;
use tokio::task::JoinSet;
use zonewise_cluster::watch::{self, Resource, query_parameter};
use zonewise_common::keys::{FOR_REGION, FOR_ZONE, HEADLESS, SERVICE_PROXY_NAME};
use zonewise_routing::{FeatureGates, NodeLocation};

use crate::index::WatchId;
use listeners::{NodeListener, ServiceCidrListener, ServiceListener, SliceListener};

pub(crate) use view::ClusterView;

/// The tasks that keep a [`ClusterView`] up to date.
pub(crate) struct Watches {
    client: Client,
    view: Arc<ClusterView>,
    /// Started anew when the node's zone or region changes.
    slice_watches: JoinSet<()>,
    /// Run until [`Self::stop`].
    others: JoinSet<()>,
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
        let mut others = JoinSet::new();
        let share = || (client.clone(), Arc::clone(view));
        let service_cidrs =
            Resource::all("servicecidrs", "/apis/networking.k8s.io/v1/servicecidrs");
        let (client, view) = share();
        others.spawn(watch::follow(client, services(proxy_name), ServiceListener(view)));
        let (client, view) = share();
        others.spawn(watch::follow(client, this_node(node), NodeListener(view)));
        let (client, view) = share();
        others.spawn(watch::follow(client, service_cidrs, ServiceCidrListener(view)));
        let (client, view) = share();
        others.spawn(deletions::confirm_deletions(client, view));
        let (client, view) = share();
        others.spawn(fallback::list_fallback_slices(client, view));
        let (client, view) = share();
        Self { client, view, slice_watches: JoinSet::new(), others, location: None }
    }

    /// Starts the watches of slices for a node at `location`, unless they run already. True if it has
    /// started them.
    pub(crate) fn follow(&mut self, location: NodeLocation) -> bool {
        if self.location.as_ref() == Some(&location) {
            return false;
        }
        let resources = slices(&location, &self.view.gates);
        let count = u8::try_from(resources.len()).unwrap_or(u8::MAX);
        let (reader, epoch) = self.view.start_slice_watches(location.clone(), count);
        tracing::info!(zone = ?location.zone, region = ?location.region, watches = count, "watching EndpointSlices");
        self.slice_watches.abort_all();
        for (watch, resource) in (0..).zip(resources) {
            let (view, reader) = (Arc::clone(&self.view), Arc::clone(&reader));
            let listener = SliceListener { view, reader, watch: WatchId { epoch, watch } };
            self.slice_watches.spawn(watch::follow(self.client.clone(), resource, listener));
        }
        self.location = Some(location);
        true
    }

    /// Ends all tasks.
    pub(crate) fn stop(mut self) {
        self.slice_watches.abort_all();
        self.others.abort_all();
    }
}

/// The Services of this proxy: those without the label for other proxies, or those labelled with its
/// name. Headless Services need no proxy.
fn services(proxy_name: Option<&str>) -> Resource {
    let ours = proxy_name.map_or_else(
        || format!("!{SERVICE_PROXY_NAME}"),
        |name| format!("{SERVICE_PROXY_NAME}={name}"),
    );
    let selector = query_parameter("labelSelector", &ours)
        + &query_parameter("fieldSelector", "spec.clusterIP!=None");
    Resource { selector: Cow::Owned(selector), ..watch::SERVICES }
}

fn this_node(name: &str) -> Resource {
    let selector = query_parameter("fieldSelector", &format!("metadata.name={name}"));
    Resource { selector: Cow::Owned(selector), ..watch::NODES }
}

/// The slices that this node consumes, one resource per watch: those without a subset label, those for
/// its zone, those for its region. All slices where subsets are turned off or the zone is not known.
fn slices(location: &NodeLocation, gates: &FeatureGates) -> Vec<Resource> {
    let select = |selector: String| Resource {
        selector: Cow::Owned(query_parameter("labelSelector", &selector)),
        ..watch::SLICES
    };
    if !gates.subsetting || location.zone.is_none() {
        return vec![select(format!("!{HEADLESS}"))];
    }
    let subsets = [(FOR_ZONE, &location.zone), (FOR_REGION, &location.region)];
    let mine = subsets.iter().filter_map(|(label, value)| {
        let value = value.as_ref()?;
        Some(select(format!("!{HEADLESS},{label}={value}")))
    });
    // A node without a region cannot select its region's slices: it watches those of all regions.
    let unlabelled = match location.region {
        Some(_) => format!("!{HEADLESS},!{FOR_ZONE},!{FOR_REGION}"),
        None => format!("!{HEADLESS},!{FOR_ZONE}"),
    };
    std::iter::once(select(unlabelled)).chain(mine).collect()
}
