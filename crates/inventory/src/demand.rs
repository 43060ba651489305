//! What decisions by measured demand used, stored in the cluster: one ConfigMap, which the leading controller writes, and
//! the next leader, `plan` and `explain` read.

use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::keys::{COMPONENT, CONTROLLER};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{CONTROLLER_NAME, SYSTEM_NAMESPACE};
use zonewise_demand::state::{State, StateError};

/// The name of the ConfigMap, in [`SYSTEM_NAMESPACE`].
pub const NAME: &str = "zonewise-demand";
/// The field manager of the ConfigMap.
const MANAGER: &str = CONTROLLER_NAME;

fn path() -> String {
    format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{NAME}")
}

/// Why the stored demand cannot be used.
#[derive(Debug, Error)]
pub enum StoredDemandError {
    /// The ConfigMap cannot be read.
    #[error("the ConfigMap {SYSTEM_NAMESPACE}/{NAME} cannot be read: {0}")]
    Api(#[from] ApiError),
    /// It is no ConfigMap, or not one of this program.
    #[error("the ConfigMap {SYSTEM_NAMESPACE}/{NAME} cannot be used: {0}")]
    State(#[from] StateError),
}

/// The fields of the ConfigMap that are used.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    #[serde(deserialize_with = "lenient")]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    state: Option<String>,
}

/// The state in the ConfigMap, given as JSON; `None` if it has none.
///
/// # Errors
/// If it has one that cannot be used.
pub fn decode(config_map: &[u8]) -> Result<Option<State>, StateError> {
    let read: ConfigMap =
        serde_json::from_slice(config_map).map_err(|error| StateError::Shape(error.to_string()))?;
    read.data.state.map(|text| State::decode(&text)).transpose()
}

/// Reads what is stored; `None` if nothing is.
///
/// # Errors
/// If it cannot be read, or is not what it should be.
pub async fn read(client: &Client) -> Result<Option<State>, StoredDemandError> {
    match api::get(client, &path()).await {
        Ok(config_map) => Ok(decode(&config_map)?),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Stores a state as text.
///
/// # Errors
/// If the API server does not accept it.
pub async fn write(client: &Client, state: &str) -> Result<(), ApiError> {
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {COMPONENT: CONTROLLER},
        },
        "data": {"state": state},
    });
    let path = format!("{}?fieldManager={MANAGER}&force=true", path());
    let body = config_map.to_string().into_bytes();
    api::call(client, Method::PATCH, &path, api::APPLY, body).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_without_a_state_is_none_and_nonsense_is_an_error() {
        for text in ["{}", r#"{"data":null}"#, r#"{"data":{}}"#, r#"{"data":{"state":null}}"#] {
            assert_eq!(decode(text.as_bytes()), Ok(None), "{text}");
        }
        let empty = json!({"data": {"state": State::default().encode()}}).to_string();
        assert_eq!(decode(empty.as_bytes()), Ok(Some(State::default())));
        for text in ["", "{", r#"{"data":{"state":"{}"}}"#] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
