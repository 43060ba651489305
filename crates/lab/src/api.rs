//! The few things that are said to the API server, as JSON.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use zonewise_cluster::api::{ApiError, JSON, MERGE, call};
use zonewise_cluster::watch::each;

/// Where Nodes are.
pub const NODES: &str = "/api/v1/nodes";
/// Where the lab's Pods are.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// Where the lab's Services are.
pub const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Where their slices are.
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// An API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// Through a client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates an object; returns it as stored.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.send(Method::POST, path, JSON, object).await
    }

    /// Puts fields onto an object.
    pub async fn merge(&self, path: &str, fields: &Value) -> Result<Value, ApiError> {
        self.send(Method::PATCH, path, MERGE, fields).await
    }

    /// Deletes an object, at once (0) or when its time is over. One that is gone already is no error.
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

    /// Everything at a path.
    pub async fn list(&self, path: &str, selector: &str) -> Result<Vec<Value>, ApiError> {
        let mut all = Vec::new();
        each(&self.client, path, selector, &mut |item| all.extend(serde_json::from_str(item)))
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
        let answer = call(&self.client, method, path, (kind, body.to_string().into())).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ApiError::Unavailable(format!("an answer cannot be read: {error}")))
    }
}
