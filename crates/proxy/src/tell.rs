//! Events on Services: what the kernel or this machine does not let us do for them.

use http::Method;
use kube::Client;
use serde::Deserialize;
use zonewise_cluster::api;
use zonewise_cluster::events::{Event, EventType, Recorder, Subject};
use zonewise_slices::wire::Uid;

use crate::index::Key;

/// The reference's name for a health check port that cannot be opened.
pub const NO_HEALTH_CHECK: &str = "FailedToStartServiceHealthcheck";
/// The kernel refuses the Service's elements.
pub const REFUSED: &str = "RefusedByKernel";

/// Tells people about a Service.
#[derive(Clone)]
pub struct Teller {
    client: Client,
    recorder: Recorder,
}

#[derive(Deserialize)]
struct Found {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: Uid,
}

impl Teller {
    /// Events are written in the background.
    pub fn new(client: Client) -> Self {
        let recorder = Recorder::start(client.clone(), "zonewise-proxy");
        Self { client, recorder }
    }

    /// A warning on a Service. Its id is asked for when it is needed: that is rare, and ids of all
    /// Services would take memory all the time.
    pub fn warn(&self, service: &Key, reason: &'static str, message: String) {
        let (teller, service) = (self.clone(), service.clone());
        tokio::spawn(async move {
            if let Err(error) = teller.write(&service, reason, message).await {
                tracing::debug!(service = %service.1, %error, "no event could be written");
            }
        });
    }

    async fn write(&self, service: &Key, reason: &str, message: String) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{}/services/{}", service.0, service.1);
        let body = api::call(&self.client, Method::GET, &path, (api::JSON, Vec::new())).await?;
        let found: Found = serde_json::from_slice(&body)?;
        let subject = Subject::service(&service.0, &service.1, found.metadata.uid);
        let event = Event { kind: EventType::Warning, reason: reason.into(), message };
        self.recorder.record(subject, event);
        Ok(())
    }
}
