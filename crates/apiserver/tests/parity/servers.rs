//! Both servers, started once for all tests.

use std::path::PathBuf;
use std::sync::LazyLock;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zonewise_apiserver::Server;
use zonewise_testbed::{Cluster, Options, User};

/// A running server, as a client sees it.
pub(crate) struct Side {
    /// `real` or `embedded`.
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
}

/// Both servers. Nothing drops them: the processes and files of the real one end with the test program.
pub(crate) struct Pair {
    pub(crate) real: Side,
    pub(crate) embedded: Side,
    _cluster: Cluster,
    _server: Server,
    runtime: Runtime,
}

impl Pair {
    /// The pair of all tests.
    pub(crate) fn get() -> &'static Self {
        static SHARED: LazyLock<Pair> = LazyLock::new(Pair::start);
        &SHARED
    }

    /// Runs a test on the runtime of the servers.
    pub(crate) fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime.block_on(test)
    }

    /// Both sides, the real one first.
    pub(crate) fn sides(&self) -> [&Side; 2] {
        [&self.real, &self.embedded]
    }

    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(Cluster::start_with(options())).unwrap();
        let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
        let real = runtime.block_on(Side::new("real", kubeconfig));
        // No controller of Kubernetes runs beside the real server either.
        let config = zonewise_apiserver::Config { workloads: false, ..Default::default() };
        let server = runtime.block_on(Server::start(config)).unwrap();
        let kubeconfig = cluster.directory().join("embedded.kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let embedded = runtime.block_on(Side::new("embedded", kubeconfig));
        Self { real, embedded, _cluster: cluster, _server: server, runtime }
    }
}

/// Without the admission plugins that rely on controllers, which do not run here.
fn options() -> Options {
    let plugins = "ServiceAccount,PodTopologyLabels,TaintNodesByCondition";
    Options::default().apiserver(format!("--disable-admission-plugins={plugins}"))
}

impl Side {
    pub(crate) async fn new(name: &'static str, kubeconfig: PathBuf) -> Self {
        let file = Kubeconfig::read_from(&kubeconfig).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.read_timeout = None;
        // 429 and 503 are answers to compare, not to retry.
        config.default_retry = false;
        Self { name, client: Client::try_from(config).unwrap(), kubeconfig }
    }

    /// Sends a request as it is; the answer with its whole body.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Response<Vec<u8>> {
        let what = format!("{} {} to the {} server", request.method(), request.uri(), self.name);
        let answer = self.client.send(request.map(Body::from)).await;
        let (head, body) = answer.unwrap_or_else(|error| panic!("{what}: {error}")).into_parts();
        let body = body.collect().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        Response::from_parts(head, body.to_bytes().to_vec())
    }
}

/// An embedded server for one test.
pub(crate) struct Scratch {
    pub(crate) server: Server,
    pub(crate) side: Side,
    directory: TempDir,
}

impl Scratch {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(Default::default()).await.unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let side = Side::new("embedded", kubeconfig).await;
        Self { server, side, directory }
    }

    /// A client without a token.
    pub(crate) async fn without_token(&self) -> Side {
        let mut file = Kubeconfig::read_from(&self.side.kubeconfig).unwrap();
        for user in &mut file.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        let path = self.directory.path().join("without-token");
        std::fs::write(&path, serde_json::to_string(&file).unwrap()).unwrap();
        Side::new("without token", path).await
    }
}
