//! Single requests for slices, whatever their subset.

use std::collections::BTreeSet;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::name::Name;
use zonewise_routing::RoutedSlice;

use super::{ClusterView, selectors};

#[derive(Deserialize)]
struct SliceList<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// All slices of these Services, or of all Services of the namespace if none is named. The API server may
/// answer from its cache if that is not older than `version`.
pub(crate) async fn slices_of(
    client: &Client,
    view: &ClusterView,
    namespace: &Name,
    services: &BTreeSet<Name>,
    version: u64,
) -> Result<Vec<RoutedSlice>, ApiError> {
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?resourceVersion={version}&resourceVersionMatch=NotOlderThan{}",
        selectors::of_services(services),
    );
    let body = api::get(client, &path).await?;
    let list: SliceList<'_> = serde_json::from_slice(&body)
        .map_err(|error| ApiError::Unavailable(format!("a list cannot be read: {error}")))?;
    let reader = view.reader();
    let items = list.items.unwrap_or_default();
    Ok(items.iter().filter_map(|item| reader.read_slice(item.get()).ok()).collect())
}
