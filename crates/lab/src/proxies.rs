//! One proxy per node, on its own threads inside the node's network namespace.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use zonewise_netns::{Namespace, NetnsNode};
use zonewise_proxy::config::{Config, Settings};
use zonewise_proxy::{Host, Timeline};
use zonewise_telemetry::shutdown::Shutdown;

/// The address of every proxy's metrics server, inside its namespace.
pub(crate) const PAGES: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
/// The addresses of the Pods of all nodes.
const PODS: &str = "10.244.0.0/16,fd00:10:244::/48";
/// Longer than any run: periodic syncs and verification would disturb the measurement of how long a change
/// takes.
const NEVER_IN_A_RUN: Duration = Duration::from_hours(1);

/// A running proxy. Dropping it stops the proxy; its rules are removed with the namespace.
#[derive(Debug)]
pub(crate) struct Proxy {
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts the proxy of a node. `access` is how it reaches the API server.
    ///
    /// # Errors
    /// If its configuration cannot be used.
    pub(crate) fn start(node: &NetnsNode, access: kube::Config) -> anyhow::Result<Self> {
        let config = configuration(&node.name)?;
        let (namespace, shutdown) = (node.namespace.clone(), Shutdown::manual());
        let (name, signal) = (node.name.clone(), shutdown.clone());
        let thread = std::thread::spawn(move || {
            if let Err(error) = live(&namespace, access, config, signal) {
                tracing::error!(node = name, "the proxy ended: {error:#}");
            }
        });
        Ok(Self { shutdown, thread: Some(thread) })
    }

    /// Tells the proxy to stop, without waiting for it.
    pub(crate) fn stop(&self) {
        self.shutdown.trigger();
    }
}

fn configuration(node: &str) -> anyhow::Result<Config> {
    let settings = Settings {
        node_name: Some(node.to_owned()),
        cluster_cidr: Some(PODS.into()),
        ..Settings::default()
    };
    let mut config = settings.resolve(node).context("the proxy's configuration")?;
    config.metrics = Some(PAGES);
    config.healthz = None;
    config.sync_period = NEVER_IN_A_RUN;
    config.verify_period = NEVER_IN_A_RUN;
    Ok(config)
}

fn live(
    namespace: &Namespace,
    access: kube::Config,
    config: Config,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    // Threads of the runtime inherit the network namespace of the thread that creates them.
    namespace.join()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(async {
        let client = Client::try_from(access)?;
        zonewise_proxy::run(Host::default(), client, config, false, Timeline::default(), shutdown)
            .await?;
        Ok(())
    });
    runtime.shutdown_background();
    result
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
