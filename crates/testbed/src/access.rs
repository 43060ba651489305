//! The users of the API server, their clients and kubeconfigs.

use std::fmt;

use anyhow::Result;
use kube::{Client, Config};
use serde_json::json;

/// A user of the API server, identified by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The controller's service account. Its permissions are the roles that a test applies.
    Controller,
    /// The proxy's service account, likewise.
    Proxy,
    /// The service account of the read-only commands, likewise.
    Observer,
    /// The service account of the dashboard, likewise.
    Dashboard,
    /// The service account of Kubernetes' own EndpointSlice controller. The API server itself makes its roles.
    BuiltInController,
}

impl User {
    pub(crate) const ALL: [Self; 6] = [
        Self::Admin,
        Self::Controller,
        Self::Proxy,
        Self::Observer,
        Self::Dashboard,
        Self::BuiltInController,
    ];

    /// The user name at the API server.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Controller => "system:serviceaccount:zonewise-system:zonewise-controller",
            Self::Proxy => "system:serviceaccount:zonewise-system:zonewise-proxy",
            Self::Observer => "system:serviceaccount:zonewise-system:zonewise-observer",
            Self::Dashboard => "system:serviceaccount:zonewise-system:zonewise-dashboard",
            Self::BuiltInController => "system:serviceaccount:kube-system:endpointslice-controller",
        }
    }

    pub(crate) fn groups(self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Controller | Self::Proxy | Self::Observer | Self::Dashboard => {
                "system:serviceaccounts,system:serviceaccounts:zonewise-system,system:authenticated"
            }
            Self::BuiltInController => {
                "system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"
            }
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Admin => "admin",
            Self::Controller => "controller",
            Self::Proxy => "proxy",
            Self::Observer => "observer",
            Self::Dashboard => "dashboard",
            Self::BuiltInController => "built-in-controller",
        })
    }
}

/// A client that trusts only the certificate `authority`.
pub(crate) fn client(port: u16, authority: &[u8], token: &str) -> Result<Client> {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.root_cert = Some(vec![authority.to_vec()]);
    config.auth_info = serde_json::from_value(json!({ "token": token }))?;
    // A watch may be silent for any time.
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}

/// A client of etcd's JSON gateway.
pub(crate) fn etcd(port: u16) -> Result<Client> {
    Ok(Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse()?))?)
}

/// The text of a kubeconfig file; `authority` is the path of the certificate.
pub(crate) fn kubeconfig(port: u16, authority: &str, user: User, token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: testbed
clusters:
- name: testbed
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {authority}
users:
- name: {user}
  user:
    token: {token:?}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: {user}
"
    )
}
