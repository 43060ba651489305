//! A real API server, and the controller with nothing but the permissions of its own role.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod cpu_use;
pub(crate) mod demand;
pub(crate) mod evacuation;
pub(crate) mod guard;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};

use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use zonewise_cluster::connect::connect;
use zonewise_controller::RunError;
use zonewise_controller::config::{Config, ConfigFile, File, LeaderElection};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::objects::{node, pod};
use zonewise_testbed::{
    Cluster, Gate, Lent, Options, Pool, User, content_type, eventually, manifests,
};

/// The repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Lets as many tests run at a time as keep two cores busy: each waits for its API server more than half of its time.
pub(crate) async fn turn() -> tokio::sync::SemaphorePermit<'static> {
    static TURNS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(3);
    TURNS.acquire().await.unwrap()
}

/// A cluster with the controller's roles and definitions, which other tests have before and after this one.
pub(crate) async fn lent() -> Lent {
    static POOL: Pool = Pool::new();
    let set_up = async |cluster: &Cluster| {
        apply_roles(cluster).await;
        cluster.create(&manifests(format!("{ROOT}/deploy/controller/crd.yaml"))?).await?;
        eventually_served(cluster, "ZoneEvacuation").await;
        Ok(())
    };
    POOL.lend(Options::default(), set_up).await.unwrap()
}

/// A cluster with nothing but what the API server makes by itself.
pub(crate) async fn bare() -> Lent {
    static POOL: Pool = Pool::new();
    POOL.lend(Options::default(), async |_| Ok(())).await.unwrap()
}

/// As [`lent`] with three zones of two nodes.
pub(crate) async fn cluster() -> Lent {
    let cluster = lent().await;
    cluster.create(&nodes()).await.unwrap();
    cluster
}

/// As [`cluster`], for a test that leaves the server, or what it admits, other than it was.
pub(crate) async fn own_cluster() -> Cluster {
    own_cluster_with(Options::default()).await
}

pub(crate) async fn own_cluster_with(options: Options) -> Cluster {
    let cluster = Cluster::start_with(options).await.unwrap();
    apply_roles(&cluster).await;
    cluster.create(&nodes()).await.unwrap();
    cluster
}

/// Waits until the API server serves the objects of a definition.
pub(crate) async fn eventually_served(cluster: &Cluster, kind: &str) {
    eventually(|| async {
        let answer = cluster.list(kind, None).await;
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
}

pub(crate) async fn apply_roles(cluster: &Cluster) {
    let objects = manifests(format!("{ROOT}/deploy/controller/rbac.yaml")).unwrap();
    let (first, rest) = objects.split_at(1);
    cluster.create(first).await.unwrap();
    cluster.create(rest).await.unwrap();
}

pub(crate) fn nodes() -> Vec<Value> {
    let zones = ["a", "b", "c"].into_iter();
    zones.flat_map(|zone| [1, 2].map(|n| node(&format!("{zone}{n}"), zone, "4"))).collect()
}

/// Ready Pods of an app, so many in each of the three zones.
pub(crate) fn zonal_pods(space: &str, app: &str, each: usize) -> Vec<Value> {
    (0..3 * each)
        .map(|n| {
            let node = format!("{}1", ["a", "b", "c"][n % 3]);
            pod(space, &format!("{app}-{n}"), app, &node, &format!("10.4.{}.{}", app.len(), n + 1))
        })
        .collect()
}

/// The controller, in this process.
pub(crate) struct Running {
    pub(crate) shutdown: Shutdown,
    /// Where it serves health.
    health: SocketAddr,
    /// Where it serves metrics.
    pub(crate) metrics: SocketAddr,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// With a configuration of these lines, directly at the API server.
    pub(crate) async fn start(cluster: &Cluster, lines: &str) -> Self {
        Self::with(&cluster.kubeconfig(User::Controller).unwrap(), lines).await
    }

    /// The same, through a gate.
    pub(crate) async fn through(cluster: &Cluster, gate: &Gate, lines: &str) -> Self {
        Self::with(&cluster.kubeconfig_through(User::Controller, gate).unwrap(), lines).await
    }

    /// The same as another user.
    pub(crate) async fn start_as(cluster: &Cluster, user: User, lines: &str) -> Self {
        Self::with(&cluster.kubeconfig(user).unwrap(), lines).await
    }

    async fn with(kubeconfig: &std::path::Path, lines: &str) -> Self {
        // To see what the controller says: ZONEWISE_LOG=info cargo test …
        if let Ok(filter) = std::env::var("ZONEWISE_LOG") {
            let _ = zonewise_telemetry::log::start(zonewise_telemetry::log::Format::Text, &filter);
        }
        Self::run(kubeconfig, config(lines)).await
    }

    /// With a configuration file that it follows.
    pub(crate) async fn start_with_file(cluster: &Cluster, file: &std::path::Path) -> Self {
        let election = LeaderElection { leader_elect: Some(false), ..LeaderElection::default() };
        let flags = File { leader_election: Some(election), ..File::default() };
        let config = ConfigFile::read(file, flags, "test").unwrap();
        Self::run(&cluster.kubeconfig(User::Controller).unwrap(), config).await
    }

    pub(crate) async fn run(kubeconfig: &std::path::Path, config: Config) -> Self {
        Self::with_client(connect(Some(kubeconfig)).await.unwrap(), config)
    }

    pub(crate) fn with_client(client: Client, config: Config) -> Self {
        let shutdown = Shutdown::manual();
        let [health, metrics] = free_addresses();
        let config = Config { health_address: health, metrics_address: metrics, ..config };
        let run = zonewise_controller::run(client, config, shutdown.clone());
        Self { shutdown, health, metrics, task: tokio::spawn(run) }
    }

    /// The body of one of its pages, such as `/metrics`; an error until it serves.
    pub(crate) async fn page(&self, path: &str) -> std::io::Result<String> {
        let address = if path == "/metrics" { self.metrics } else { self.health };
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// The values of one of its metrics, by labels as they stand on the page; empty until it serves.
    pub(crate) async fn metric(&self, name: &str) -> BTreeMap<String, f64> {
        let page = self.page("/metrics").await.unwrap_or_default();
        samples(&page)
            .filter(|(known, ..)| *known == name)
            .map(|(_, labels, value)| (labels.to_owned(), value))
            .collect()
    }

    pub(crate) async fn stop(self) -> Result<(), RunError> {
        self.shutdown.trigger();
        self.ended().await
    }

    /// Waits for the controller to end by itself.
    pub(crate) async fn ended(mut self) -> Result<(), RunError> {
        (&mut self.task).await.unwrap()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Running {
    /// One that was not stopped writes nothing for the test that has the cluster next.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A configuration; without leader election unless the lines ask for it.
pub(crate) fn config(lines: &str) -> Config {
    let election = if lines.contains("leaderElection") {
        ""
    } else {
        "leaderElection: { leaderElect: false }\n"
    };
    let text = format!(
        "apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\nmetricsAddress: 127.0.0.1:0\n{election}{lines}\n"
    );
    let config = File::parse("test.yaml", &text).unwrap().resolve("test").unwrap();
    match content_type() {
        Some(media_type) => Config { content_type: media_type.parse().unwrap(), ..config },
        None => config,
    }
}

/// Addresses that nothing listens on.
pub(crate) fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// The samples of a page of metrics: name, labels as they stand there, value.
pub(crate) fn samples(page: &str) -> impl Iterator<Item = (&str, &str, f64)> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some((name, labels.trim_end_matches('}'), value.parse().ok()?))
    })
}

/// The slices of a Service.
pub(crate) async fn slices(cluster: &Cluster, namespace: &str, service: &str) -> Vec<Value> {
    of_service(&all_slices(cluster, namespace).await, service)
}

/// The slices of a namespace.
pub(crate) async fn all_slices(cluster: &Cluster, namespace: &str) -> Vec<Value> {
    let all = cluster.list("EndpointSlice", Some(namespace)).await.unwrap_or_default();
    // The items of a list carry no apiVersion and kind.
    let whole = |mut slice: Value| {
        slice["apiVersion"] = "discovery.k8s.io/v1".into();
        slice["kind"] = "EndpointSlice".into();
        slice
    };
    all.into_iter().map(whole).collect()
}

/// Those slices that are of a Service.
pub(crate) fn of_service(slices: &[Value], service: &str) -> Vec<Value> {
    let of = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
    slices.iter().filter(of).cloned().collect()
}

/// Addresses in slices, sorted; the same address twice stays twice.
pub(crate) fn addresses(slices: &[Value]) -> Vec<String> {
    let endpoints =
        slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let mut found: Vec<String> =
        endpoints.map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned()).collect();
    found.sort();
    found
}

/// Ready endpoints hinted to each zone.
pub(crate) fn hints(slices: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for endpoint in
        slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten())
    {
        for hint in endpoint["hints"]["forZones"].as_array().into_iter().flatten() {
            *counts.entry(hint["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

/// A condition of a Service: status and reason.
pub(crate) async fn condition(
    cluster: &Cluster,
    namespace: &str,
    service: &str,
    kind: &str,
) -> Option<(String, String)> {
    condition_in(&cluster.list("Service", Some(namespace)).await.ok()?, service, kind)
}

/// A condition of one of these Services: status and reason.
pub(crate) fn condition_in(
    services: &[Value],
    service: &str,
    kind: &str,
) -> Option<(String, String)> {
    let service = services.iter().find(|one| one["metadata"]["name"] == service)?;
    let conditions = service["status"]["conditions"].as_array()?;
    let kind = format!("zonewise.dev/RoutingPreference{kind}");
    let found = conditions.iter().find(|condition| condition["type"] == kind.as_str())?;
    Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
}

/// Writes of slices so far.
pub(crate) async fn writes(cluster: &Cluster) -> u64 {
    let counts = cluster.request_counts().await.unwrap();
    let write = |verb: &str| matches!(verb, "POST" | "PUT" | "PATCH" | "DELETE");
    counts
        .iter()
        .filter(|((verb, resource, _), _)| write(verb) && resource == "endpointslices")
        .map(|(_, count)| count)
        .sum()
}

/// Pods of an app in the namespace `shop`, in all zones.
pub(crate) fn shop_pods(app: &str, range: std::ops::Range<usize>) -> Vec<Value> {
    range
        .map(|n| {
            let node = format!("{}{}", ["a", "b", "c"][n % 3], 1 + n % 2);
            let ip = format!("10.3.{}.{}", n / 200, n % 200 + 1);
            pod("shop", &format!("{app}-{n}"), app, &node, &ip)
        })
        .collect()
}

/// Waits until the slices of a Service in `shop` hold exactly so many addresses, each once.
pub(crate) async fn eventually_holds(cluster: &Cluster, service: &str, count: usize) {
    eventually(|| async {
        let mut found = addresses(&slices(cluster, "shop", service).await);
        let all = found.len();
        found.dedup();
        if all == count && found.len() == count {
            Ok(())
        } else {
            Err(format!("{all} endpoints, {} different", found.len()))
        }
    })
    .await;
}

/// Nine ready Pods of an app, three in each zone.
pub(crate) async fn nine_pods(cluster: &Cluster, space: &str, app: &str) {
    let pods: Vec<_> = (0..9)
        .map(|n| {
            let node = format!("{}1", ["a", "b", "c"][n % 3]);
            pod(space, &format!("{app}-{n}"), app, &node, &format!("10.2.{}.{}", app.len(), n + 1))
        })
        .collect();
    cluster.create(&pods).await.unwrap();
}

pub(crate) async fn eventually_nine(cluster: &Cluster, space: &str, name: &str) -> Vec<Value> {
    eventually(|| async {
        let found = slices(cluster, space, name).await;
        if addresses(&found).len() == 9 {
            Ok(found)
        } else {
            Err(format!("slices of {name}: {found:?}"))
        }
    })
    .await
}
