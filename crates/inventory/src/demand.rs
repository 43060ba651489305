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
use zonewise_demand::account::Stored;
use zonewise_demand::cpu_use::{UseState, UseStateError};
use zonewise_demand::health::{HealthState, HealthStateError};
use zonewise_demand::notes::Notes;
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
    failing: Option<String>,
    r#use: Option<String>,
    notes: Option<String>,
}

/// What is in the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredDemand {
    /// The shares that are in force.
    pub state: State,
    /// What failing zones count for.
    pub failing: HealthState,
    /// Why what is stored of failing zones is not used, if it cannot be read.
    pub failing_error: Option<HealthStateError>,
    /// What zones count for by the CPU that their endpoints use, or why that cannot be read; `None` if no controller reads it.
    pub by_use: Option<Result<UseState, UseStateError>>,
    /// What only people want to know.
    pub notes: Notes,
}

impl StoredDemand {
    /// What the account of a Service needs.
    pub fn as_ref(&self) -> Stored<'_> {
        Stored { state: &self.state, notes: &self.notes }
    }
}

/// What is stored, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredTexts {
    /// The shares that are in force.
    pub state: String,
    /// What failing zones count for; `None` if all zones count in full. Programs of earlier releases do not read it.
    pub failing: Option<String>,
    /// What zones count for by the CPU that their endpoints use; `None` if no Service asks for that. Programs of earlier releases do
    /// not read it.
    pub by_use: Option<String>,
    /// What only people want to know. Programs of earlier releases do not read it.
    pub notes: String,
}

/// What is in the ConfigMap, given as JSON; `None` if it has no state. What it says about failing zones is left out if it
/// cannot be used: it is found out anew within a minute. So are notes: they decide nothing.
///
/// # Errors
/// If it has a state that cannot be used.
pub fn decode(config_map: &[u8]) -> Result<Option<StoredDemand>, StateError> {
    let read: ConfigMap =
        serde_json::from_slice(config_map).map_err(|error| StateError::Shape(error.to_string()))?;
    let Some(state) = read.data.state else { return Ok(None) };
    let (failing, failing_error) = match read.data.failing.map(|text| HealthState::decode(&text)) {
        None => (HealthState::default(), None),
        Some(Ok(failing)) => (failing, None),
        Some(Err(error)) => (HealthState::default(), Some(error)),
    };
    let notes = read.data.notes.map(|text| Notes::decode(&text)).unwrap_or_default();
    let by_use = read.data.r#use.map(|text| UseState::decode(&text));
    Ok(Some(StoredDemand { state: State::decode(&state)?, failing, failing_error, by_use, notes }))
}

/// Reads what is stored; `None` if nothing is.
///
/// # Errors
/// If it cannot be read, or is not what it should be.
pub async fn read(client: &Client) -> Result<Option<StoredDemand>, StoredDemandError> {
    match api::get(client, &path()).await {
        Ok(config_map) => Ok(decode(&config_map)?),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Stores what is in force, and the notes beside it.
///
/// # Errors
/// If the API server does not accept it.
pub async fn write(client: &Client, texts: &StoredTexts) -> Result<(), ApiError> {
    let mut data = json!({"state": texts.state, "notes": texts.notes});
    let others = [("failing", &texts.failing), ("use", &texts.by_use)];
    for (key, text) in others {
        if let Some(text) = text {
            data[key] = json!(text);
        }
    }
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {COMPONENT: CONTROLLER},
        },
        "data": data,
    });
    let path = format!("{}?fieldManager={MANAGER}&force=true", path());
    let body = config_map.to_string().into_bytes();
    api::call(client, Method::PATCH, &path, api::APPLY, body).await.map(drop)
}

/// Removes what is stored, if anything is.
///
/// # Errors
/// If the API server does not accept it.
pub async fn delete(client: &Client) -> Result<(), ApiError> {
    api::delete(client, &path()).await
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
        assert_eq!(decode(empty.as_bytes()), Ok(Some(StoredDemand::default())));
        let state = State::default().encode();
        let strange = json!({"data": {"state": state, "notes": "{]"}}).to_string();
        let read = decode(strange.as_bytes());
        assert_eq!(read, Ok(Some(StoredDemand::default())), "notes decide nothing");
        let state = State::default().encode();
        for (failing, usable) in [("{]".to_owned(), false), (HealthState::default().encode(), true)]
        {
            let both = json!({"data": {"state": state, "failing": failing}}).to_string();
            let read = decode(both.as_bytes()).unwrap().unwrap();
            assert_eq!(read.failing_error.is_none(), usable, "{failing}");
            let rest = StoredDemand { failing_error: None, ..read };
            assert_eq!(rest, StoredDemand::default(), "{failing}");
        }
        for text in ["", "{", r#"{"data":{"state":"{}"}}"#] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
