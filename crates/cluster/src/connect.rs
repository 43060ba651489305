//! Clients for the API server, from a kubeconfig file or from the Pod's own service account.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// Why no client could be made.
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
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no API server is configured: {0}; pass --kubeconfig FILE, set KUBECONFIG, or run in a Pod with a service account"
    )]
    NotConfigured(#[from] kube::config::InferConfigError),
    /// The API server's address is not a URL.
    #[error("`{server}` is not an API server's URL: {source} (example: https://192.0.2.1:6443)")]
    Server {
        /// What was given.
        server: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The configuration was read, but no client can be made from it.
    #[error(
        "no client for the API server could be made (check certificates and keys in the kubeconfig)"
    )]
    Client(#[from] kube::Error),
}

/// A client for the cluster that `kubeconfig` names, or for the one this process runs in.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_to(None, kubeconfig).await
}

/// Like [`connect`], but with another URL for the API server, such as `https://192.0.2.1:6443`.
pub async fn connect_to(
    server: Option<&str>,
    kubeconfig: Option<&Path>,
) -> Result<Client, ConnectError> {
    let mut config = config(kubeconfig, None).await?;
    if let Some(server) = server {
        let invalid = |source| ConnectError::Server { server: server.to_owned(), source };
        config.cluster_url = server.parse().map_err(invalid)?;
    }
    // Callers retry by themselves: a retry must not outlive the leader's lease, and it is counted.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// A client for a context of the kubeconfig, and the context's default namespace.
///
/// # Errors
/// If the kubeconfig or the context cannot be used.
pub async fn connect_to_context(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<(Client, String), ConnectError> {
    let config = config(kubeconfig, context).await?;
    let namespace = config.default_namespace.clone();
    Ok((Client::try_from(config)?, namespace))
}

/// The client configuration for a context of a kubeconfig. Without either: `KUBECONFIG`,
/// `~/.kube/config` or the Pod's service account, in this order.
async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    if kubeconfig.is_none() && context.is_none() {
        return Ok(Config::infer().await?);
    }
    let invalid = |source| ConnectError::Kubeconfig {
        path: kubeconfig.map_or_else(|| "~/.kube/config".into(), |path| path.display().to_string()),
        source,
    };
    let file = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(invalid)?;
    let context = context.map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.map_err(invalid)
}
