//! One proxy per node, on the node's kernel.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use zonewise_common::proxy_pages::{COUNTS_PORT, METRICS_PORT};

use anyhow::Context;
use zonewise_proxy::Timeline;
use zonewise_proxy::config::{Config, CountBy, Settings};

use crate::ground::Node;
use crate::inside::InsideProgram;

/// The address of every proxy's metrics server, inside its namespace.
pub(crate) const PAGES: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), METRICS_PORT);
/// The addresses of the Pods of all nodes.
const PODS: &str = "10.244.0.0/16,fd00:10:244::/48";
/// Longer than any run: periodic syncs and verification would disturb the measurement of how long a change
/// takes.
const NEVER_IN_A_RUN: Duration = Duration::from_hours(1);

/// Starts the proxy of a node. `access` is how it reaches the API server; with `counts`, it counts connections by Service,
/// and serves what it has counted to the controller. Its rules are removed with the node.
///
/// # Errors
/// If its configuration cannot be used.
pub(crate) fn start(
    node: &Node,
    access: kube::Config,
    counts: bool,
) -> anyhow::Result<InsideProgram> {
    let config = configuration(&node.name, counts)?;
    let name = format!("proxy of {}", node.name);
    let host = node.start_host();
    Ok(InsideProgram::start(name, node.namespace(), access, |client, shutdown| async {
        zonewise_proxy::run(host, client, config, false, Timeline::default(), shutdown).await?;
        Ok(())
    }))
}

fn configuration(node: &str, counts: bool) -> anyhow::Result<Config> {
    let settings = Settings {
        node_name: Some(node.to_owned()),
        cluster_cidr: Some(PODS.into()),
        count: counts.then_some(CountBy::Services),
        demand_address: counts.then(|| format!("0.0.0.0:{COUNTS_PORT}")),
        ..Settings::default()
    };
    let mut config = settings.resolve(node).context("the proxy's configuration")?;
    config.metrics = Some(PAGES);
    config.healthz = None;
    config.sync_period = NEVER_IN_A_RUN;
    config.verify_period = NEVER_IN_A_RUN;
    Ok(config)
}
