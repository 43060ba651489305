//! Settles departures that the watches do not settle by themselves: asks the API server.
//!
//! Every node sees the same departures, and a deleted namespace is hundreds of them. So one request is
//! about all of a namespace, it is sent when no further departure has come for a moment, it can be
//! answered from the API server's cache, and failures are followed by growing pauses. A question that is
//! never answered does no harm: the next bookmarks of the watches settle the departures as well.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::{Instant, sleep, timeout};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{Backoff, jittered};

use super::ClusterView;
use super::request::slices_of;
use crate::index::{Answer, Question};

/// How long no further departure must have come.
const QUIET: Duration = Duration::from_millis(400);
/// How long to wait for that at most.
const AT_MOST: Duration = Duration::from_secs(5);

/// Asks about departures, until dropped.
pub(super) async fn settle_departures(client: Client, view: Arc<ClusterView>) {
    let mut backoff = Backoff::default();
    loop {
        wait_for_quiet(&view).await;
        let Some(question) = view.question() else {
            view.departures.notified().await;
            continue;
        };
        match ask(&client, &view, &question).await {
            Ok(slices) => {
                backoff.reset();
                view.change(|index| index.answered(&question, slices));
            }
            Err(error) => {
                tracing::debug!(namespace = %question.namespace, %error,
                    "cannot ask which EndpointSlices still exist; those that have left a watch stay in use");
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn wait_for_quiet(view: &ClusterView) {
    let begun = Instant::now();
    while begun.elapsed() < AT_MOST {
        if timeout(jittered(QUIET), view.departures.notified()).await.is_err() {
            return;
        }
    }
}

async fn ask(client: &Client, view: &ClusterView, question: &Question) -> Result<Answer, ApiError> {
    let Question { namespace, services, version, .. } = question;
    slices_of(client, view, namespace, services, *version).await
}
