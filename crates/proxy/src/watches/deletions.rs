//! Confirms deletions: a slice that has left a watch may be on another one by now.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::name::Key;
use zonewise_routing::{RoutedSlice, Subset, is_for_node};

use super::ClusterView;
use crate::index::WatchId;

/// How long to wait after the API server could not be asked.
const RETRY: Duration = Duration::from_secs(1);

/// Asks the API server about every unconfirmed deletion, until dropped.
pub(super) async fn confirm_deletions(client: Client, view: Arc<ClusterView>) {
    loop {
        let unconfirmed = view.index().unconfirmed_deletions();
        let mut failed = false;
        for key in unconfirmed {
            failed |= !confirm(&client, &view, &key).await;
        }
        if failed {
            sleep(RETRY).await;
        } else {
            view.deletions.notified().await;
        }
    }
}

/// Reads a slice and keeps it or removes it. False if the API server did not answer.
async fn confirm(client: &Client, view: &ClusterView, key: &Key) -> bool {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}", key.0, key.1);
    match api::get(client, &path).await {
        Ok(body) => {
            let reader = view.reader();
            let slice =
                std::str::from_utf8(&body).ok().and_then(|json| reader.read_slice(json).ok());
            let mut index = view.index();
            match slice {
                Some(slice) if is_for_node(&slice, reader.location(), &view.gates) => {
                    let epoch = view.slice_watches().epoch;
                    let watch = WatchId { epoch, watch: watch_of(&slice) };
                    index.apply_slice(slice, watch);
                }
                _ => drop(index.remove_slice(key)),
            }
        }
        Err(ApiError::NotFound(_)) => drop(view.index().remove_slice(key)),
        Err(error) => {
            tracing::debug!(slice = %key.1, %error, "cannot ask whether an EndpointSlice still exists; it stays in use");
            return false;
        }
    }
    view.changed.notify_one();
    true
}

/// The number of the watch that selects a slice; `slices` in `watches/mod.rs` has the same order.
fn watch_of(slice: &RoutedSlice) -> u8 {
    match slice.subset {
        Subset::All => 0,
        Subset::Zone(_) => 1,
        Subset::Region(_) => 2,
    }
}
