//! The requests that leader election makes: get, create and replace one Lease.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};

use super::ElectionConfig;
use crate::api::with_causes;

/// Stores one Lease. A write succeeds only if the stored Lease has the version that the write carries.
pub trait LeaseStore: Send + Sync {
    /// Reads the Lease of this name.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send;

    /// Creates the Lease, unless there is one already.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Replaces the stored Lease, if it has the version that `lease` carries.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another candidate has changed or created the Lease.
    #[error("the lease was changed or created by another candidate")]
    Conflict,
    /// There is no Lease to replace.
    #[error("the lease does not exist any more")]
    Missing,
    /// The permissions or the token of this service account are not sufficient.
    #[error(
        "{0}; bind a Role with get, create and update on leases in coordination.k8s.io to this \
         service account, and check that its token is valid"
    )]
    Denied(String),
    /// Any other failure. The server may have carried out the request all the same.
    #[error("{0}")]
    Failed(String),
}

/// The store that keeps the Lease of this configuration in the API server.
pub fn api_store(client: kube::Client, config: &ElectionConfig) -> Api<Lease> {
    Api::namespaced(client, &config.namespace)
}

impl LeaseStore for Api<Lease> {
    async fn get(&self, name: &str) -> Result<Option<Lease>, StoreError> {
        Ok(self.get_opt(name).await?)
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        Api::create(self, &PostParams::default(), lease).await.map_err(|error| match error {
            // When a Lease is created, only its namespace can be missing. The message names it.
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
