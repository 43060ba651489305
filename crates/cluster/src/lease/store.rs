//! Where the lease is kept: three requests, and what can go wrong with them.

use std::error::Error;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};

use super::Config;

/// Keeps one lease. A write succeeds only on the version it carries.
pub trait LeaseStore: Send + Sync {
    /// Reads the lease of this name.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send;

    /// Creates the lease, unless there is one.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Replaces the version that `lease` carries.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;
}

/// Why a request did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else was faster.
    #[error("the lease was changed or created by another")]
    Conflict,
    /// There is no lease to replace.
    #[error("the lease is gone")]
    Missing,
    /// The server does not let us.
    #[error(
        "{0}; remedy: a Role with get, create and update on leases in coordination.k8s.io, bound \
         to this service account, and a token that is accepted"
    )]
    Denied(String),
    /// Anything else; it may or may not have been carried out.
    #[error("{0}")]
    Failed(String),
}

/// The lease of this configuration in the API server.
pub fn api_store(client: kube::Client, config: &Config) -> Api<Lease> {
    Api::namespaced(client, &config.namespace)
}

impl LeaseStore for Api<Lease> {
    async fn get(&self, name: &str) -> Result<Option<Lease>, StoreError> {
        Ok(self.get_opt(name).await?)
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        Api::create(self, &PostParams::default(), lease).await.map_err(|error| match error {
            // Of what is being created only the namespace can be missing, and the message names it.
            kube::Error::Api(status) if status.code == 404 => StoreError::Failed(status.message),
            error => error.into(),
        })
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        Ok(Api::replace(self, name, &PostParams::default(), lease).await?)
    }
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            return Self::Failed(with_causes(&error));
        };
        let text = format!("{} ({} {})", status.message, status.code, status.reason);
        match status.code {
            409 => Self::Conflict,
            404 => Self::Missing,
            401 | 403 => Self::Denied(text),
            _ => Self::Failed(text),
        }
    }
}

/// "client error (Connect)" alone tells nobody what to do; the refused connection is further down.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
