//! Clients for the API server, from a kubeconfig file or from the Pod's own service account.

use std::error::Error as _;
use std::path::Path;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;
use zonewise_common::similar::closest;

use crate::api::with_causes;

/// Why no client could be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig `{path}` cannot be used: {cause} (check the file and its current context)")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why, with all causes. It is no `source`, because the errors of the client repeat their sources.
        cause: String,
    },
    /// The kubeconfig has no such context.
    #[error("kubeconfig `{path}` has no context `{context}`; {known}")]
    Context {
        /// The file.
        path: String,
        /// The context that was asked for.
        context: String,
        /// What was probably meant, or the contexts that there are.
        known: String,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no API server is configured: {0}, and this is not a Pod with a service account; pass --kubeconfig FILE, or \
         set KUBECONFIG"
    )]
    NotConfigured(String),
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
        "no client for the API server could be made: {0} (check certificates and keys in the kubeconfig)"
    )]
    Client(String),
}

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        Self::Client(with_causes(&error))
    }
}

/// A client for a context of a kubeconfig.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The default namespace of the context.
    pub namespace: String,
    /// The server and the context, for messages: `https://192.0.2.1:6443 (context `production`)`.
    pub server: String,
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

/// A client for a context of the kubeconfig.
///
/// # Errors
/// If the kubeconfig or the context cannot be used.
pub async fn connect_to_context(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Connection, ConnectError> {
    let config = config(kubeconfig, context).await?;
    let url = config.cluster_url.to_string();
    let server = match context.map(str::to_owned).or_else(|| current_context(kubeconfig)) {
        Some(context) => format!("{} (context `{context}`)", url.trim_end_matches('/')),
        None => url.trim_end_matches('/').to_owned(),
    };
    let namespace = config.default_namespace.clone();
    Ok(Connection { client: Client::try_from(config)?, namespace, server })
}

/// The current context of a kubeconfig; `None` in a Pod, which has none.
fn current_context(kubeconfig: Option<&Path>) -> Option<String> {
    let file = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    file.ok()?.current_context.filter(|context| !context.is_empty())
}

/// The client configuration for a context of a kubeconfig. Without either: `KUBECONFIG`,
/// `~/.kube/config` or the Pod's service account, in this order.
async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    if kubeconfig.is_none() && context.is_none() {
        let invalid = |error: InferConfigError| {
            // The source is the error of the kubeconfig, which most people use.
            ConnectError::NotConfigured(error.source().map_or_else(String::new, with_causes))
        };
        return Config::infer().await.map_err(invalid);
    }
    let path =
        || kubeconfig.map_or_else(|| "~/.kube/config".into(), |path| path.display().to_string());
    let invalid = |error| ConnectError::Kubeconfig { path: path(), cause: with_causes(&error) };
    let file = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(invalid)?;
    let names: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
    if let Some(context) = context.filter(|context| !names.contains(context)) {
        let known = known_contexts(context, &names);
        return Err(ConnectError::Context { path: path(), context: context.into(), known });
    }
    let context = context.map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.map_err(invalid)
}

/// What a context that does not exist was probably meant to be, or the contexts that there are.
fn known_contexts(context: &str, names: &[&str]) -> String {
    match closest(context, names.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if names.is_empty() => "it has no contexts".into(),
        None => format!("its contexts are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_corrected_or_all_are_listed() {
        let names = ["production", "staging"];
        assert_eq!(known_contexts("producton", &names), "did you mean `production`?");
        assert_eq!(known_contexts("other", &names), "its contexts are production, staging");
        assert_eq!(known_contexts("other", &[]), "it has no contexts");
    }
}
