//! Waiting at the start for what the first sync needs: this node, then every list. What is missing is
//! logged at once and every ten seconds, and shown on `/healthz`, with what to do about it.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::RunError;
use super::schedule::CHECK_TABLES;
use crate::config::{Config, DetectLocal};
use crate::health::Health;
use crate::node::NodeInfo;
use crate::watches::ClusterView;

/// How long to wait for the node's Pod CIDRs, before the proxy ends with an error.
const WAIT_FOR_POD_CIDRS: Duration = Duration::from_secs(300);
/// How long to wait for the node's addresses, before the proxy goes on without them.
const WAIT_FOR_ADDRESSES: Duration = Duration::from_secs(30);
/// How long the API server may take to answer before the log mentions it.
const USUAL_ANSWER: Duration = Duration::from_secs(1);
/// How often the log says again what the proxy waits for.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// What the start waits for, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Missing {
    #[error(
        "the API server has not answered the request for Node {0} yet; check that it can be reached, and \
         that deploy/proxy/rbac.yaml is applied"
    )]
    Answer(String),
    #[error(
        "the API server has no Node {0}; start the kubelet of this node, or set --node-name to a name \
         that `kubectl get nodes` shows"
    )]
    Node(String),
    #[error(
        "Node {0} has no address in status.addresses; its kubelet writes one, or the cloud controller \
         manager where there is one: check that they run"
    )]
    Addresses(String),
    #[error("{}", RunError::NoPodCidrs)]
    PodCidrs,
    #[error(
        "the API server has not answered the requests for all Services, EndpointSlices and ServiceCIDRs \
         yet; check that deploy/proxy/rbac.yaml is applied"
    )]
    Lists,
}

/// What is missing of the node itself. `node` is `None` as long as no list has contained it.
fn missing_of_node(config: &Config, listed: bool, node: Option<&NodeInfo>) -> Option<Missing> {
    let name = || config.node_name.clone();
    match node {
        _ if !listed => Some(Missing::Answer(name())),
        None => Some(Missing::Node(name())),
        Some(node) if config.detect_local == DetectLocal::NodeCidr => {
            node.pod_cidrs.is_empty().then_some(Missing::PodCidrs)
        }
        Some(node) => node.addresses.is_empty().then(|| Missing::Addresses(name())),
    }
}

/// Says what the start waits for, in the log and on `/healthz`.
pub(super) struct Waiting<'a> {
    health: &'a Health,
    said: Option<(Missing, Instant)>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(health: &'a Health) -> Self {
        Self { health, said: None }
    }

    fn say(&mut self, missing: Missing, waited: Duration) {
        if matches!(missing, Missing::Answer(_) | Missing::Lists) && waited < USUAL_ANSWER {
            return;
        }
        let fresh = |(said, at): &(Missing, Instant)| *said == missing && at.elapsed() < SAY_AGAIN;
        if !self.said.as_ref().is_some_and(fresh) {
            tracing::warn!("waiting: {missing}");
            self.health.waits_for(Some(missing.to_string()));
            self.said = Some((missing, Instant::now()));
        }
    }

    /// Waits for the node, and for its Pod CIDRs or addresses.
    pub(super) async fn for_node(
        &mut self,
        config: &Config,
        cluster: &ClusterView,
    ) -> Result<(), RunError> {
        let begun = Instant::now();
        loop {
            let node = cluster.node();
            match missing_of_node(config, cluster.has_listed_node(), node.as_ref()) {
                None => return Ok(()),
                Some(missing) if missing.is_given_up(config, begun.elapsed())? => {
                    tracing::warn!("starting although {missing}");
                    return Ok(());
                }
                Some(missing) => self.say(missing, begun.elapsed()),
            }
            wait_for_change(cluster).await;
        }
    }

    /// Waits until every watch has listed. `meanwhile` is called when more has come.
    pub(super) async fn for_lists(mut self, cluster: &ClusterView, mut meanwhile: impl FnMut()) {
        let begun = Instant::now();
        while !cluster.is_complete() {
            self.say(Missing::Lists, begun.elapsed());
            meanwhile();
            wait_for_change(cluster).await;
        }
        self.health.waits_for(None);
    }
}

impl Missing {
    /// Whether the start goes on without it, after it has waited for so long.
    fn is_given_up(&self, config: &Config, waited: Duration) -> Result<bool, RunError> {
        let needs_cidrs = config.detect_local == DetectLocal::NodeCidr;
        match self {
            Self::Answer(_) | Self::Lists => Ok(false),
            _ if needs_cidrs && waited > WAIT_FOR_POD_CIDRS => Err(RunError::NoPodCidrs),
            _ => Ok(!needs_cidrs && waited > WAIT_FOR_ADDRESSES),
        }
    }
}

async fn wait_for_change(cluster: &ClusterView) {
    tokio::select! {
        biased;
        () = cluster.changed.notified() => {}
        () = sleep(CHECK_TABLES) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(detect_local: DetectLocal) -> Config {
        Config { detect_local, ..Config::new("n1") }
    }

    #[test]
    fn what_the_start_waits_for() {
        let name = || "n1".to_owned();
        let empty = NodeInfo::default();
        let addressed = NodeInfo {
            addresses: vec![("InternalIP".into(), "192.168.0.1".into())],
            ..NodeInfo::default()
        };
        let ranged = NodeInfo {
            pod_cidrs: vec![zonewise_common::cidr::Cidr::parse("10.1.0.0/24").unwrap()],
            ..NodeInfo::default()
        };
        let rows = [
            (DetectLocal::None, false, None, Some(Missing::Answer(name()))),
            (DetectLocal::None, true, None, Some(Missing::Node(name()))),
            (DetectLocal::None, true, Some(&empty), Some(Missing::Addresses(name()))),
            (DetectLocal::None, true, Some(&addressed), None),
            (DetectLocal::NodeCidr, true, None, Some(Missing::Node(name()))),
            (DetectLocal::NodeCidr, true, Some(&addressed), Some(Missing::PodCidrs)),
            (DetectLocal::NodeCidr, true, Some(&ranged), None),
        ];
        for (detect_local, listed, node, expected) in rows {
            let config = config(detect_local);
            assert_eq!(missing_of_node(&config, listed, node), expected, "{config:?} {node:?}");
        }
    }

    #[test]
    fn how_long_the_start_waits() {
        let (usual, ranges) = (config(DetectLocal::None), config(DetectLocal::NodeCidr));
        let node = Missing::Node("n1".into());
        let at = |missing: &Missing, config: &Config, seconds| {
            missing.is_given_up(config, Duration::from_secs(seconds)).ok()
        };
        assert_eq!(at(&node, &usual, 30), Some(false));
        assert_eq!(at(&node, &usual, 31), Some(true));
        assert_eq!(at(&node, &ranges, 300), Some(false));
        assert_eq!(at(&node, &ranges, 301), None, "ends with an error");
        let answer = Missing::Answer("n1".into());
        assert_eq!(
            at(&answer, &usual, 3600),
            Some(false),
            "without the API server there is no start"
        );
    }
}
