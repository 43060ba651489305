//! A Service whose slices the controller does not write: an ExternalName, or one without a selector.

use serde::Serialize;
use zonewise_slices::service::Service;

use crate::environment::Environment;
use crate::matrix::{Grouping, Matrix};
use crate::now::Now;
use crate::service_kind::ServiceKind;
use crate::snapshot::Snapshot;
use crate::verdict::{Verdict, verdict};

/// What is known of a Service whose slices the controller does not write.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmanaged {
    /// The Service.
    pub service: String,
    /// What it is to proxies.
    pub service_kind: ServiceKind,
    /// What is active here and now.
    pub verdict: Verdict,
    /// The slices that others have written for it.
    pub slices: Vec<String>,
    /// Where its traffic goes now; absent if that is not known, or if no proxy routes it.
    pub traffic: Option<Matrix>,
}

/// Explains a Service whose slices the controller does not write.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn unmanaged(
    snapshot: &Snapshot,
    service: &Service,
    environment: &Environment,
) -> Result<Unmanaged, serde_json::Error> {
    let proxy_view = snapshot.proxy_view(service);
    let service_kind = ServiceKind::of(service, proxy_view.is_local()?);
    let now = current(snapshot, service, environment)?;
    Ok(Unmanaged {
        service: service.key(),
        service_kind,
        verdict: verdict(service_kind, environment, &now, None),
        slices: snapshot.slice_names(service),
        traffic: now.matrix().filter(|_| service_kind.has_proxy()).cloned(),
    })
}

/// The first address family, which stands for the Service.
pub(crate) fn family(service: &Service) -> String {
    service.families.first().map(ToString::to_string).unwrap_or_default()
}

/// Where the traffic of its first address family goes.
pub(crate) fn current(
    snapshot: &Snapshot,
    service: &Service,
    environment: &Environment,
) -> Result<Now, serde_json::Error> {
    let family = family(service);
    let (proxies, nodes) = (&environment.by_node, snapshot.nodes());
    Now::of(&snapshot.proxy_view(service), nodes, service, proxies, &family, Grouping::Zones)
}
