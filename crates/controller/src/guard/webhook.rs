//! The webhook of guard mode, for API servers without admission policies of this kind (before Kubernetes 1.36).
//!
//! ```text
//!  built-in controller ─► API server ─ AdmissionReview ─► either replica ─► answer by the allocations that it watches
//!  certificate ─► both serve with it; the leader tells the API server to accept it, in the webhook's configuration (keeper)
//! ```
//!
//! Every replica answers, not only the leader: an answer needs nothing but the ZoneAllocations.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use zonewise_cluster::api::ApiError;
use zonewise_inventory::policy::Version;
use zonewise_inventory::webhook::{self as requests, PATH, Selection, WebhookTarget};
use zonewise_telemetry::health::ListenError;
use zonewise_telemetry::metrics::{Counter, Family};
use zonewise_telemetry::posts::{self, Answerer, Posts};
use zonewise_telemetry::server::Server;
use zonewise_telemetry::tls::Tls;

use super::Allocations;
use super::certificate::{Installed, Served};
use super::review::{self, Outcome};

/// How long a write of the configuration waits for the certificate, which the leader makes within a second.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the configuration of the webhook is made of.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    pub(crate) target: WebhookTarget,
    pub(crate) served: watch::Receiver<Option<Arc<Served>>>,
    /// What the configuration has, for those who look after the certificate.
    pub(crate) installed: watch::Sender<Installed>,
}

impl Webhook {
    /// The certificates that the API server is to accept, once there are any.
    pub(crate) async fn bundle(&self) -> Result<String, ApiError> {
        let mut served = self.served.clone();
        let bundle = match timeout(CERTIFICATE_TIMEOUT, served.wait_for(Option::is_some)).await {
            Ok(Ok(served)) => served.as_ref().map(|served| served.bundle.clone()),
            Ok(Err(_)) | Err(_) => None,
        };
        bundle.ok_or_else(|| {
            ApiError::Failed("the webhook has no certificate yet; the log says why".to_owned())
        })
    }

    /// Writes the configuration.
    pub(crate) async fn install(
        &self,
        client: &Client,
        bundle: &str,
        selection: &Selection,
    ) -> Result<Version, ApiError> {
        let stored = requests::install(client, &self.target, bundle, selection).await?;
        self.installed.send_if_modified(|installed| {
            let is_new = installed.as_ref().is_none_or(|(known, _)| known != bundle);
            if is_new {
                *installed = Some((bundle.to_owned(), Instant::now()));
            }
            is_new
        });
        Ok(stored)
    }
}

/// Answers reviews by the allocations that are known.
pub(crate) struct Reviews {
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) answered: Family<Counter, 1>,
}

impl Answerer for Reviews {
    fn answer(&self, document: &[u8]) -> Vec<u8> {
        let (answer, outcome) = review::answer(document, |key| self.allocations.stored(key));
        self.answered.with([outcome.name()]).inc();
        if matches!(outcome, Outcome::Malformed | Outcome::Oversized) {
            tracing::debug!(
                result = outcome.name(),
                bytes = document.len(),
                "the webhook was sent something that no API server sends; the slice stays as it is"
            );
        }
        answer
    }
}

/// Serves the webhook. Until the certificate is known it serves with one that nobody trusts.
pub(crate) async fn serve(
    address: std::net::SocketAddr,
    tls: &Arc<Tls>,
    reviews: Reviews,
) -> Result<Server, ListenError> {
    let posts = Posts { name: "the webhook", path: PATH, tls: Arc::clone(tls), answerer: reviews };
    posts::serve(address, posts).await
}
