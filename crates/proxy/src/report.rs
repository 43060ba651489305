//! Reports to the controller what this proxy has applied, in a Lease per node.
//!
//! [`ProxyReport`] is the content of the Lease. It is written when something was applied, at most every
//! few seconds, and regularly to show that the proxy runs.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use zonewise_cluster::api;
use zonewise_cluster::watch::jittered;
use zonewise_common::clock;
use zonewise_common::name::{Key, PROXY_NAME};
use zonewise_common::proxy_report::{DemandServer, ProxyReport};

use crate::node::NodeInfo;

/// The field manager of the Leases.
const MANAGER: &str = PROXY_NAME;
/// Changes within this time are reported together.
const GATHER: Duration = Duration::from_secs(4);
/// How often to report when nothing has changed.
const RENEW: Duration = Duration::from_secs(20);
/// The controller does not wait for a proxy that has not reported for this long.
const LIFE: Duration = Duration::from_secs(60);

/// How many refused Services are named at most.
const MOST_REFUSED: usize = 64;

/// What is in the kernel: every change up to `version`, but for the `refused` Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// A resource version of the slices.
    pub version: u64,
    /// Services that the kernel rejects.
    pub refused: BTreeSet<Key>,
}

impl Applied {
    /// After another sync. What was applied stays applied: while watches start anew and have not listed,
    /// the version stays. If more Services are refused than can be named, the controller could not tell
    /// which of them have the new version: the version stays, and this node counts as behind.
    #[must_use]
    pub fn then<'k>(&self, version: u64, refused: impl ExactSizeIterator<Item = &'k Key>) -> Self {
        let version =
            if refused.len() > MOST_REFUSED { self.version } else { version.max(self.version) };
        Self { version, refused: refused.take(MOST_REFUSED).cloned().collect() }
    }
}

/// Reports what is applied, and where counts are served, until dropped. Failures are tried again with the next report.
pub(crate) async fn run(
    client: Client,
    node: NodeInfo,
    mut applied: watch::Receiver<Applied>,
    demand: impl Fn() -> Option<DemandServer>,
) {
    let mut failing = false;
    loop {
        let now = applied.borrow_and_update().clone();
        match write(&client, &node, &now, demand()).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                tracing::warn!(%error, "cannot report to the controller what is applied; routing does not depend on it");
                failing = true;
            }
            Err(_) => {}
        }
        sleep(jittered(GATHER)).await;
        let renew = Instant::now() + RENEW;
        if timeout_at(renew, applied.changed()).await.is_ok_and(|changed| changed.is_err()) {
            return;
        }
    }
}

async fn write(
    client: &Client,
    node: &NodeInfo,
    applied: &Applied,
    demand: Option<DemandServer>,
) -> Result<(), api::ApiError> {
    let report = ProxyReport {
        lease: ProxyReport::lease(&node.name),
        applied: Some(applied.version),
        refused: applied.refused.clone(),
        renewed: Some(clock::now()),
        duration: Some(LIFE),
        demand,
    };
    let path = format!("{}?fieldManager={MANAGER}&force=true", ProxyReport::path(&node.name));
    let lease = report.encode(&node.name, &node.uid);
    api::call(client, http::Method::PATCH, &path, api::APPLY, lease.to_string().into_bytes())
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
        assert_eq!(
            before.then(0, keys(0).iter()),
            before,
            "watches that start anew take nothing back"
        );
        let many = before.then(9, keys(MOST_REFUSED + 1).iter());
        assert_eq!((many.version, many.refused.len()), (5, MOST_REFUSED));
    }
}
