//! Both servers, started once for all tests that run at the same time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::Runtime;
use zonewise_testbed::{Cluster, Options, User};

/// A running server, as a client sees it.
pub(crate) struct Side {
    /// `real` or `embedded`.
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
}

/// The two of them. Dropped outside the runtime, by the last test that uses them.
pub(crate) struct Pair {
    pub(crate) real: Side,
    pub(crate) embedded: Option<Side>,
    pub(crate) cluster: Cluster,
    runtime: Runtime,
}

impl Pair {
    /// The pair of the tests that run now, or a new one.
    pub(crate) fn get() -> Arc<Self> {
        static SHARED: Mutex<Weak<Pair>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(pair) = shared.upgrade() {
            return pair;
        }
        let pair = Arc::new(Self::start());
        *shared = Arc::downgrade(&pair);
        pair
    }

    /// Runs a test on the runtime of the servers.
    pub(crate) fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime.block_on(test)
    }

    /// Both sides, the real one first.
    pub(crate) fn sides(&self) -> Vec<&Side> {
        std::iter::once(&self.real).chain(&self.embedded).collect()
    }

    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(Cluster::start_with(alone())).unwrap();
        let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
        let real = runtime.block_on(Side::new("real", kubeconfig));
        Self { real, embedded: None, cluster, runtime }
    }
}

/// Without the plugins that need controllers to undo or complete what they do.
fn alone() -> Options {
    let plugins =
        "ServiceAccount,DefaultTolerationSeconds,PodTopologyLabels,Priority,TaintNodesByCondition";
    Options::default().apiserver(format!("--disable-admission-plugins={plugins}"))
}

impl Side {
    pub(crate) async fn new(name: &'static str, kubeconfig: PathBuf) -> Self {
        let file = Kubeconfig::read_from(&kubeconfig).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.read_timeout = None;
        // An answer of 429 or 503 is an answer.
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
