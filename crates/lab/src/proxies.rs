//! One proxy per node, on threads of its own inside the node's namespace.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use zonewise_netns::{Namespace, NetnsNode};
use zonewise_proxy::config::{Config, Settings};
use zonewise_telemetry::shutdown::Shutdown;

/// Where every proxy serves its pages, inside its namespace.
pub const PAGES: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
/// Pods of all nodes.
const PODS: &str = "10.244.0.0/16,fd00:10:244::/48";
/// What is in the kernel is looked at when something happens, not by the clock: the clock would
/// blur what is measured.
const RARELY: Duration = Duration::from_hours(1);

/// A proxy. It ends, and its rules go with the namespace, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts the proxy of a node, which reaches the API server as `access` says.
    ///
    /// # Errors
    /// If its configuration cannot be used.
    pub fn start(node: &NetnsNode, access: kube::Config) -> anyhow::Result<Self> {
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

    /// Tells it to end; whoever drops it waits until it has.
    pub fn stop(&self) {
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
    config.sync_period = RARELY;
    config.verify_period = RARELY;
    Ok(config)
}

fn live(
    namespace: &Namespace,
    access: kube::Config,
    config: Config,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    // The runtime's threads inherit the namespace of the one that makes them.
    namespace.join()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(async {
        let client = Client::try_from(access)?;
        zonewise_proxy::run(client, config, false, shutdown).await?;
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
