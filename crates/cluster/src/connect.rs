//! How to reach the API server: a kubeconfig file, or the Pod's own service account.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig `{path}` cannot be used (check the file and its current context)")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Neither a kubeconfig nor a service account.
    #[error(
        "no API server to talk to: {0}; pass --kubeconfig FILE, set KUBECONFIG, or run in a Pod with a service account"
    )]
    Nothing(#[from] kube::config::InferConfigError),
    /// The API server's address is none.
    #[error(
        "API server `{server}` is no address: {source}; write for example https://192.0.2.1:6443"
    )]
    Server {
        /// What was given.
        server: String,
        /// Why it is none.
        source: http::uri::InvalidUri,
    },
    /// The settings cannot be turned into a client.
    #[error("no client could be made (check certificates and keys in the kubeconfig)")]
    Client(#[from] kube::Error),
}

/// A client for the cluster that `kubeconfig` names, or for the one this process runs in.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_to(None, kubeconfig).await
}

/// The same, with another address for its API server, such as `https://192.0.2.1:6443`.
pub async fn connect_to(
    server: Option<&str>,
    kubeconfig: Option<&Path>,
) -> Result<Client, ConnectError> {
    let mut config = config(kubeconfig, None).await?;
    if let Some(server) = server {
        let wrong = |source| ConnectError::Server { server: server.to_owned(), source };
        config.cluster_url = server.parse().map_err(wrong)?;
    }
    // Retries are ours: they must not outlive a lease, and they are counted.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// A client for a context of the kubeconfig, and the namespace that context names.
///
/// # Errors
/// If there is no such cluster.
pub async fn reach(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<(Client, String), ConnectError> {
    let config = config(kubeconfig, context).await?;
    let namespace = config.default_namespace.clone();
    Ok((Client::try_from(config)?, namespace))
}

/// How to reach a context of a kubeconfig; without either, whatever this process is meant to use.
async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    if kubeconfig.is_none() && context.is_none() {
        return Ok(Config::infer().await?);
    }
    let wrong = |source| ConnectError::Kubeconfig {
        path: kubeconfig.map_or_else(|| "~/.kube/config".into(), |path| path.display().to_string()),
        source,
    };
    let file = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(wrong)?;
    let context = context.map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.map_err(wrong)
}
