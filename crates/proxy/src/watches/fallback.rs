//! Fallback slices: a Service that the subset watches leave without endpoints is served from all of
//! its slices, those for other zones and regions included.
//!
//! ```text
//!  sync ─► Services without a usable endpoint ─► list their slices by name ─► index ─► sync
//!  every 10 s: list again, or drop them once the watches deliver usable endpoints
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use zonewise_cluster::api;
use zonewise_cluster::watch::query_parameter;
use zonewise_common::keys::{HEADLESS, SERVICE_NAME};
use zonewise_common::name::Key;
use zonewise_routing::RoutedSlice;

use super::ClusterView;

/// How often fallback slices are listed again: no watch delivers their changes.
const REFRESH: Duration = Duration::from_secs(10);

/// Lists and refreshes fallback slices, until dropped.
pub(super) async fn list_fallback_slices(client: Client, view: Arc<ClusterView>) {
    let mut refresh_timer = tokio::time::interval(REFRESH);
    loop {
        tokio::select! {
            () = view.fallback.notified() => {}
            _ = refresh_timer.tick() => refresh(&client, &view).await,
        }
        let wanted = view.index().take_fallback_wanted();
        for service in wanted {
            list(&client, &view, &service).await;
        }
    }
}

/// Lists all fallback slices again; drops those of Services whose watches deliver endpoints again.
async fn refresh(client: &Client, view: &ClusterView) {
    let services = view.index().services_with_fallback();
    let without_endpoints = view.index().without_endpoints(services.iter());
    for service in services {
        if without_endpoints.contains(&service) {
            list(client, view, &service).await;
        } else if view.index().drop_fallback_slices(&service) {
            view.changed.notify_one();
        }
    }
}

#[derive(Deserialize)]
struct SliceList<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// Lists the slices of one Service and puts them into the index. Slices with the label of headless
/// Services are not for proxies; the watches do not select them either.
async fn list(client: &Client, view: &ClusterView, service: &Key) {
    let selector = format!("!{HEADLESS},{SERVICE_NAME}={}", service.1);
    let selector = query_parameter("labelSelector", &selector);
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?limit=500{selector}",
        service.0
    );
    let body = match api::get(client, &path).await {
        Ok(body) => body,
        Err(error) => {
            tracing::warn!(service = %service.1, %error,
                "cannot list the EndpointSlices of a Service without endpoints for this zone or region");
            return;
        }
    };
    let Ok(list) = serde_json::from_slice::<SliceList<'_>>(&body) else { return };
    let reader = view.reader();
    let items = list.items.unwrap_or_default();
    let slices: Vec<RoutedSlice> =
        items.iter().filter_map(|item| reader.read_slice(item.get()).ok()).collect();
    let usable = slices.iter().any(RoutedSlice::is_usable);
    if usable && view.index().set_fallback_slices(service, slices) {
        tracing::info!(namespace = %service.0, service = %service.1,
            "no EndpointSlice for this zone or region has usable endpoints: all slices of the Service are used");
        view.changed.notify_one();
    }
}
