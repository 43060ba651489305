//! Events on Services that this node cannot serve as they ask.

use kube::Client;
use serde::Deserialize;
use zonewise_cluster::api;
use zonewise_cluster::events::{EventRecorder, InvolvedObject, Reporter};
use zonewise_common::event::{Event, EventType};
use zonewise_common::keys::PROXY;
use zonewise_common::name::PROXY_NAME;
use zonewise_common::name::{Key, Uid};
use zonewise_topology::reason::Code;

/// Writes events on Services, in the background.
#[derive(Clone)]
pub(crate) struct ServiceEvents {
    client: Client,
    recorder: EventRecorder,
}

/// What is read of a Service.
#[derive(Deserialize)]
struct ServiceObject {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: Uid,
}

impl ServiceEvents {
    /// Starts the task that writes them.
    pub(crate) fn new(client: Client) -> Self {
        let reporter = Reporter { component: PROXY_NAME, label: Some(PROXY) };
        let recorder = EventRecorder::start(client.clone(), reporter);
        Self { client, recorder }
    }

    /// Writes a warning on a Service. Events need the Service's uid, which is read here: warnings are
    /// rare, and the uids of all Services would take memory all the time.
    pub(crate) fn warn(&self, service: &Key, code: Code, details: &str) {
        let (events, service, event) = (self.clone(), service.clone(), warning(code, details));
        tokio::spawn(async move {
            if let Err(error) = events.write(&service, event).await {
                tracing::debug!(service = %service.1, %error, "cannot write an event");
            }
        });
    }

    async fn write(&self, service: &Key, event: Event) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{}/services/{}", service.0, service.1);
        let body = api::get(&self.client, &path).await?;
        let object: ServiceObject = serde_json::from_slice(&body)?;
        let subject = InvolvedObject::service(&service.0, &service.1, object.metadata.uid);
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
        assert_eq!(event.reason, "FailedToStartServiceHealthcheck", "kube-proxy's name");
        let entry = Code::FailedToStartServiceHealthcheck.entry();
        assert_eq!(
            event.message,
            format!("{} (port 30000 is taken); {}", entry.sentence, entry.remedy)
        );
    }
}
