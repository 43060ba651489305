//! The whole proxy of a node, as `zonewise proxy` runs it, with an embedded API server in the node's
//! own namespace.
//!
//! ```text
//!   ┌ n1 (zone a) ─────────────────────────┐   ┌ n2 (zone b) ┐
//!   │ API server ◄── proxy ──► kernel      │───│             │
//!   └──┬──────────────┬────────────────────┘   └──┬──────────┘
//!     here (serves)  caller                      there (serves)
//! ```

use std::net::{IpAddr, SocketAddr};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use zonewise_apiserver::{Config as ServerConfig, Server};
use zonewise_netns::network::{ClusterNetwork, NetnsNode, NetnsPod};
use zonewise_netns::traffic::{Server as PodServer, probe_tcp};
use zonewise_proxy::config::Config;
use zonewise_proxy::{Host, RunError, Timeline};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::{Objects, eventually_equals, objects};

use super::PROBE_TIMEOUT;

/// Two nodes with a server on each and a pod that asks on the first.
pub(crate) struct LiveNetwork {
    pub(crate) network: ClusterNetwork,
    pub(crate) n1: NetnsNode,
    pub(crate) here: NetnsPod,
    pub(crate) there: NetnsPod,
    pub(crate) caller: NetnsPod,
    servers: Vec<PodServer>,
}

impl LiveNetwork {
    pub(crate) fn new() -> Self {
        let mut network =
            ClusterNetwork::new().expect("network namespaces can be made; this test needs root");
        let n1 = network.add_node("n1", "a").unwrap();
        let n2 = network.add_node("n2", "b").unwrap();
        let here = network.add_pod(&n1, "here").unwrap();
        let there = network.add_pod(&n2, "there").unwrap();
        let caller = network.add_pod(&n1, "caller").unwrap();
        let servers = [(&here, false), (&here, true), (&there, false), (&there, true)];
        let servers = servers.map(|(pod, v6)| {
            let address = SocketAddr::new(pod.address(v6), 8080);
            PodServer::both(&pod.namespace, &pod.name, address).unwrap()
        });
        Self { network, n1, here, there, caller, servers: servers.into() }
    }

    /// Runs a test whose sockets are made in the namespace of `n1`.
    pub(crate) fn on_n1<F: Future<Output = ()>>(&self, test: impl FnOnce() -> F + Send) {
        self.n1.namespace.enter(|| {
            // The threads of the runtime inherit the namespace of the thread that creates them.
            let runtime = tokio::runtime::Builder::new_multi_thread();
            runtime_with(runtime).block_on(test());
        });
    }

    /// The Node object of `n1`, with its address.
    pub(crate) fn n1_object(&self) -> Value {
        let mut object = objects::node("n1", "a", "4");
        object["status"]["addresses"] = json!([
            {"type": "InternalIP", "address": self.n1.v4},
            {"type": "InternalIP", "address": self.n1.v6},
        ]);
        object
    }

    /// Who answers the pod that asks.
    pub(crate) fn answer(&self, to: SocketAddr) -> String {
        probe_tcp(&self.caller.namespace, to, PROBE_TIMEOUT).to_string()
    }

    /// Asks until this server, or nobody, answers.
    pub(crate) async fn answers_at_last(&self, to: SocketAddr, expected: &str) {
        eventually_equals(&to.to_string(), expected.to_owned(), || self.answer(to)).await;
    }
}

fn runtime_with(mut builder: tokio::runtime::Builder) -> tokio::runtime::Runtime {
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// An API server in the current namespace, and a client of it.
pub(crate) struct Api {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) objects: Objects,
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(ServerConfig::default()).await
    }

    /// The same with other settings; always without TLS.
    pub(crate) async fn start_with(config: ServerConfig) -> Self {
        let config = ServerConfig { tls: false, ..config };
        let server = Server::start(config).await.unwrap();
        let client = client_of(&server, server.address().port()).await;
        Self { server, objects: Objects::new(client.clone()), client }
    }

    /// A client that reaches the server through a relay on this port.
    pub(crate) async fn client_at(&self, port: u16) -> Client {
        client_of(&self.server, port).await
    }

    /// The cluster IP of a Service in namespace `default`.
    pub(crate) async fn cluster_ip(&self, service: &str, v6: bool) -> IpAddr {
        let stored = self.objects.get("Service", Some("default"), service).await.unwrap().unwrap();
        let all = stored["spec"]["clusterIPs"].as_array().unwrap();
        let mut ips = all.iter().map(|ip| ip.as_str().unwrap().parse::<IpAddr>().unwrap());
        ips.find(|ip| ip.is_ipv6() == v6).unwrap()
    }

    /// Creates a Service without a selector; returns the address of its port 80.
    pub(crate) async fn add_service(&self, name: &str) -> SocketAddr {
        let mut service = objects::service("default", name, name);
        service["spec"].as_object_mut().unwrap().remove("selector");
        self.objects.create(&[service]).await.unwrap();
        SocketAddr::new(self.cluster_ip(name, false).await, 80)
    }
}

async fn client_of(server: &Server, port: u16) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.cluster_url = format!("http://127.0.0.1:{port}").parse().unwrap();
    Client::try_from(config).unwrap()
}

/// A slice in namespace `default` with these pods.
pub(crate) fn slice_of(service: &str, name: &str, pods: &[&NetnsPod], v6: bool) -> Value {
    let endpoints: Vec<Value> =
        pods.iter().map(|pod| objects::endpoint(pod.address(v6), &pod.node, &pod.zone)).collect();
    objects::endpoint_slice("default", service, name, &endpoints)
}

/// A running proxy of `n1`.
pub(crate) struct LiveProxy {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), RunError>>,
}

impl LiveProxy {
    pub(crate) fn start(api: &Api) -> Self {
        Self::start_with(api.client.clone())
    }

    /// With a client of any API server.
    pub(crate) fn start_with(client: Client) -> Self {
        Self::start_noting(client, Timeline::default())
    }

    /// The same; what its start does is added to the timeline.
    pub(crate) fn start_noting(client: Client, timeline: Timeline) -> Self {
        let config = Config { bind_hard_fail: true, ..Config::new("n1") };
        Self::run(client, config, timeline)
    }

    /// With another configuration.
    pub(crate) fn run(client: Client, config: Config, timeline: Timeline) -> Self {
        let shutdown = Shutdown::manual();
        let run =
            zonewise_proxy::run(Host::default(), client, config, false, timeline, shutdown.clone());
        Self { shutdown, running: tokio::spawn(run) }
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<(), RunError> {
        self.running.await.unwrap()
    }

    pub(crate) async fn stop(self) {
        self.shutdown.trigger();
        self.running.await.unwrap().unwrap();
    }
}
