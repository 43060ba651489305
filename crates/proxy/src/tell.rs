//! Events on Services: what the kernel or this machine does not let us do for them.

use http::Method;
use kube::Client;
use serde::Deserialize;
use zonewise_cluster::api;
use zonewise_cluster::events::{Recorder, Subject};
use zonewise_common::event::{Event, EventType};
use zonewise_common::name::{Key, Uid};
use zonewise_topology::reason::Code;

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
    pub fn warn(&self, service: &Key, code: Code, details: &str) {
        let (teller, service, event) = (self.clone(), service.clone(), warning(code, details));
        tokio::spawn(async move {
            if let Err(error) = teller.write(&service, event).await {
                tracing::debug!(service = %service.1, %error, "no event could be written");
            }
        });
    }

    async fn write(&self, service: &Key, event: Event) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{}/services/{}", service.0, service.1);
        let body = api::call(&self.client, Method::GET, &path, (api::JSON, Vec::new())).await?;
        let found: Found = serde_json::from_slice(&body)?;
        let subject = Subject::service(&service.0, &service.1, found.metadata.uid);
        self.recorder.record(subject, event);
        Ok(())
    }
}

fn warning(code: Code, details: &str) -> Event {
    let entry = code.entry();
    let message = format!("{} ({details}); {}", entry.sentence, entry.remedy);
    Event { kind: EventType::Warning, reason: code.to_string(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_cause_and_remedy() {
        let event = warning(Code::FailedToStartServiceHealthcheck, "port 30000 is taken");
        assert_eq!(event.reason, "FailedToStartServiceHealthcheck", "the reference's name");
        let entry = Code::FailedToStartServiceHealthcheck.entry();
        assert_eq!(
            event.message,
            format!("{} (port 30000 is taken); {}", entry.sentence, entry.remedy)
        );
    }
}
