//! The few requests that the lab sends to the API server, as JSON.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use zonewise_cluster::api::{ApiError, JSON, MERGE, call};
use zonewise_cluster::watch::list_each;

/// Path of all Nodes.
pub(crate) const NODES: &str = "/api/v1/nodes";
/// Path of the lab's Pods.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Path of the lab's Services.
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Path of the Services of all namespaces.
pub(crate) const ALL_SERVICES: &str = "/api/v1/services";
/// Path of the EndpointSlices of those Services.
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A client for JSON objects.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// Sends requests through `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client that requests are sent through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates an object; returns it as stored.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.send(Method::POST, path, JSON, object).await
    }

    /// Changes fields of an object with a JSON merge patch.
    pub async fn merge(&self, path: &str, fields: &Value) -> Result<Value, ApiError> {
        self.send(Method::PATCH, path, MERGE, fields).await
    }

    /// Deletes an object, with its own grace period or with this one (0 deletes at once). An object that
    /// does not exist is not an error.
    pub async fn delete(&self, path: &str, grace: Option<u64>) -> Result<(), ApiError> {
        let options = match grace {
            Some(seconds) => json!({"gracePeriodSeconds": seconds}),
            None => json!({}),
        };
        match self.send(Method::DELETE, path, JSON, &options).await {
            Err(ApiError::NotFound(_)) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Lists all objects at a path. `selector` is a query parameter such as `&labelSelector=…`.
    pub async fn list(&self, path: &str, selector: &str) -> Result<Vec<Value>, ApiError> {
        let mut all = Vec::new();
        list_each(&self.client, path, selector, &mut |item| all.extend(serde_json::from_str(item)))
            .await?;
        Ok(all)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let answer = call(&self.client, method, path, kind, body.to_string().into()).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ApiError::Unavailable(format!("an answer cannot be read: {error}")))
    }
}
