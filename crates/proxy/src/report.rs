//! What this proxy has applied, told to the controller (D12): a Lease per node.
//!
//! The Lease's form is [`ProxyReport`]. It is written when something was applied, at most every few
//! seconds, and now and then to show that the proxy lives.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use zonewise_cluster::api;
use zonewise_cluster::watch::jitter;
use zonewise_common::name::Key;
use zonewise_common::proxy_report::ProxyReport;

use crate::node::Node;

/// Who wrote them.
const MANAGER: &str = "zonewise-proxy";
/// Slices come by several watches. What one of them has seen, the others have a moment later.
const MOMENT: Duration = Duration::from_secs(1);
/// Changes within this time are told together.
const GATHER: Duration = Duration::from_secs(4);
/// Told even if nothing has changed.
const RENEW: Duration = Duration::from_secs(20);
/// A proxy that has not told anything for so long is not waited for.
const LIFE: Duration = Duration::from_secs(60);

/// More refused Services than this are not named.
const MOST_REFUSED: usize = 64;

/// What is in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Every change up to this version,
    pub version: u64,
    /// but for these Services.
    pub refused: BTreeSet<Key>,
}

impl Applied {
    /// After another sync. Where more Services are refused than can be named, nobody could tell which
    /// of them have the new version: it is not claimed, and this node counts as behind.
    #[must_use]
    pub fn then<'k>(&self, version: u64, refused: impl ExactSizeIterator<Item = &'k Key>) -> Self {
        let version = if refused.len() > MOST_REFUSED { self.version } else { version };
        Self { version, refused: refused.take(MOST_REFUSED).cloned().collect() }
    }
}

/// Tells what is applied until dropped. Failures are tried again with the next change.
pub async fn run(client: Client, node: Node, mut applied: watch::Receiver<Applied>) {
    let mut failing = false;
    loop {
        let now = applied.borrow_and_update().clone();
        sleep(MOMENT).await;
        match tell(&client, &node, &now).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                tracing::warn!(%error, "the controller cannot be told what is applied; routing does not depend on it");
                failing = true;
            }
            Err(_) => {}
        }
        sleep(GATHER.mul_f64(0.75 + jitter() / 2.0)).await;
        let renew = Instant::now() + RENEW;
        if timeout_at(renew, applied.changed()).await.is_ok_and(|changed| changed.is_err()) {
            return;
        }
    }
}

async fn tell(client: &Client, node: &Node, applied: &Applied) -> Result<(), api::ApiError> {
    let report = ProxyReport {
        lease: ProxyReport::lease(&node.name),
        applied: Some(applied.version),
        refused: applied.refused.clone(),
        renewed: Some(Timestamp::now()),
        duration: Some(LIFE),
    };
    let path = format!("{}?fieldManager={MANAGER}&force=true", ProxyReport::path(&node.name));
    let lease = report.encode(&node.name, &node.uid);
    api::call(client, http::Method::PATCH, &path, (api::APPLY, lease.to_string().into_bytes()))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d12_what_is_refused_is_named_and_what_cannot_be_named_is_not_claimed() {
        let key = |n: usize| -> Key { ("shop".into(), format!("s{n}").as_str().into()) };
        let keys = |count: usize| (0..count).map(key).collect::<Vec<_>>();
        let before = Applied { version: 5, refused: BTreeSet::new() };
        let two = Applied { version: 9, refused: keys(2).into_iter().collect() };
        assert_eq!(before.then(9, keys(2).iter()), two);
        assert_eq!(two.then(9, keys(0).iter()), Applied { version: 9, ..Applied::default() });
        let many = before.then(9, keys(MOST_REFUSED + 1).iter());
        assert_eq!((many.version, many.refused.len()), (5, MOST_REFUSED));
    }
}
