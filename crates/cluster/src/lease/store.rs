//! The requests that leader election makes: get, create and replace one Lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};

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
    /// The namespace of the Lease does not exist.
    #[error(
        "the namespace {0} does not exist, and the Lease for leader election belongs there; create it \
         with `kubectl create namespace {0}`, or start the controller with --create-namespace"
    )]
    NamespaceMissing(String),
    /// The namespace of the Lease does not exist, and this service account may not create it.
    #[error(
        "the namespace {namespace} does not exist and could not be created: {reason}; create it with \
         `kubectl create namespace {namespace}` as somebody who may"
    )]
    NamespaceNotCreated {
        /// The namespace.
        namespace: String,
        /// What the API server says.
        reason: String,
    },
    /// Any other failure. The server may have carried out the request all the same.
    #[error("{0}")]
    Failed(String),
}

impl StoreError {
    /// Whether somebody has to change the cluster before a request can succeed.
    pub(crate) fn needs_help(&self) -> bool {
        match self {
            Self::Denied(_) | Self::NamespaceMissing(_) | Self::NamespaceNotCreated { .. } => true,
            Self::Conflict | Self::Missing | Self::Failed(_) => false,
        }
    }
}

/// Keeps the Lease in the API server.
#[derive(Clone, Debug)]
pub struct ApiStore {
    leases: Api<Lease>,
    namespaces: Api<Namespace>,
    namespace: String,
    create_namespace: bool,
}

/// The store that keeps the Lease of this configuration in the API server.
pub fn api_store(client: kube::Client, config: &ElectionConfig) -> ApiStore {
    ApiStore {
        leases: Api::namespaced(client.clone(), &config.namespace),
        namespaces: Api::all(client),
        namespace: config.namespace.clone(),
        create_namespace: config.create_namespace,
    }
}

impl ApiStore {
    async fn create_lease(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let created = self.leases.create(&PostParams::default(), lease).await;
        created.map_err(|error| match error {
            // When a Lease is created, only its namespace can be missing.
            kube::Error::Api(status) if status.code == 404 => {
                StoreError::NamespaceMissing(self.namespace.clone())
            }
            error => error.into(),
        })
    }

    async fn create_namespace(&self) -> Result<(), StoreError> {
        let metadata = ObjectMeta { name: Some(self.namespace.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match self.namespaces.create(&PostParams::default(), &namespace).await.map_err(Into::into) {
            Ok(_) => {
                tracing::info!(namespace = self.namespace, "the namespace of the lease is created");
                Ok(())
            }
            // Another replica was faster.
            Err(StoreError::Conflict) => Ok(()),
            Err(StoreError::Denied(reason)) => {
                Err(StoreError::NamespaceNotCreated { namespace: self.namespace.clone(), reason })
            }
            Err(error) => Err(error),
        }
    }
}

impl LeaseStore for ApiStore {
    async fn get(&self, name: &str) -> Result<Option<Lease>, StoreError> {
        Ok(self.leases.get_opt(name).await?)
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        match self.create_lease(lease).await {
            Err(StoreError::NamespaceMissing(_)) if self.create_namespace => {
                self.create_namespace().await?;
                self.create_lease(lease).await
            }
            other => other,
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        Ok(self.leases.replace(name, &PostParams::default(), lease).await?)
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
