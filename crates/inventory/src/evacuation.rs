//! ZoneEvacuations: custom resources, each of which empties a zone. People write the `spec` (with `zonewise evacuate` or
//! kubectl), the leading controller the `status`, which holds all there is to know about how far it is.

use http::Method;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::Resource;
use zonewise_common::api_group::ZONEWISE_V1ALPHA1;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};
use zonewise_slices::evacuation::Evacuations;

use crate::guard::decoded;
use crate::write::segment;

/// The kind.
pub const KIND: &str = "ZoneEvacuation";
/// All ZoneEvacuations, which are custom resources and therefore JSON.
pub const EVACUATIONS: Resource = Resource {
    name: "zoneevacuations",
    path: "/apis/zonewise.dev/v1alpha1/zoneevacuations",
    namespace: None,
    selector: std::borrow::Cow::Borrowed(""),
    kind: None,
};
/// The field manager of what the command writes.
const FIELD_MANAGER: &str = "zonewise-evacuate";

/// Seconds between two steps, where the object does not say.
pub const STEP_SECONDS: u32 = 30;
/// The most that the busiest endpoint of a Service may get, compared with the zone in use, in percent. Where a zone of
/// three goes, the others get 150 %.
pub const LIMIT_PERCENT: u32 = 160;

/// What people ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvacuationSpec {
    /// The zone to empty, as nodes name it.
    #[serde(deserialize_with = "lenient")]
    pub zone: Name,
    /// When the zone gets its traffic back whatever happens, as a Kubernetes timestamp.
    #[serde(deserialize_with = "lenient")]
    pub deadline: Box<str>,
    /// The least time between two steps, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<u32>,
    /// The most that the busiest endpoint of a Service may get, compared with the zone in use, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_percent: Option<u32>,
    /// Whether the zone is to get its traffic back.
    #[serde(deserialize_with = "lenient")]
    pub restore: bool,
}

impl EvacuationSpec {
    /// The least time between two steps, in seconds.
    pub fn step_seconds(&self) -> u32 {
        self.step_seconds.unwrap_or(STEP_SECONDS)
    }

    /// The most that the busiest endpoint of a Service may get, compared with the zone in use, in percent.
    pub fn limit_percent(&self) -> u32 {
        self.limit_percent.unwrap_or(LIMIT_PERCENT)
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It is being found out whether the other zones can take the traffic.
    #[default]
    Checking,
    /// Traffic leaves the zone, step by step.
    Moving,
    /// New connections do not use the zone.
    Empty,
    /// Traffic comes back, step by step.
    Restoring,
    /// The others could not take the traffic, so nothing was changed.
    Refused,
    /// Something went wrong, so the zone has its traffic back.
    GoneBack,
    /// The zone has its traffic back, as was asked for.
    Ended,
}

impl Phase {
    /// Whether it is over, so that nothing happens until people ask for something else.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Refused | Self::GoneBack | Self::Ended)
    }
}

/// What the controller says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvacuationStatus {
    /// How far it is.
    pub phase: Phase,
    /// The percentage of the zone's endpoints that are in use.
    pub percent: u8,
    /// When phase or percentage changed last, as a Kubernetes timestamp.
    #[serde(deserialize_with = "lenient")]
    pub since: Box<str>,
    /// Why (docs/reasons.md).
    #[serde(deserialize_with = "lenient")]
    pub reason: Box<str>,
    /// The same in words, with figures.
    #[serde(deserialize_with = "lenient")]
    pub message: String,
    /// The version of the spec that this is about.
    #[serde(deserialize_with = "lenient")]
    pub observed_generation: i64,
    /// Services with ready endpoints in the zone.
    #[serde(deserialize_with = "lenient")]
    pub services: u64,
    /// Ready endpoints of these Services elsewhere when it began.
    #[serde(deserialize_with = "lenient")]
    pub elsewhere: u64,
    /// Services of whose connections to endpoints elsewhere some failed before anything was moved.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient")]
    pub failed_before: Vec<FailedBefore>,
    /// Services that would overload an endpoint, with figures; the worst ones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient")]
    pub over_limit: Vec<String>,
    /// Services whose endpoints in the zone stay in use, and why; the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient")]
    pub kept: Vec<String>,
}

impl Default for EvacuationStatus {
    fn default() -> Self {
        Self {
            phase: Phase::Checking,
            percent: 100,
            since: Box::default(),
            reason: Box::default(),
            message: String::new(),
            observed_generation: 0,
            services: 0,
            elsewhere: 0,
            failed_before: Vec::new(),
            over_limit: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// Which part of a Service's connections failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedBefore {
    /// The Service, as `namespace/name`.
    #[serde(deserialize_with = "lenient")]
    pub service: Box<str>,
    /// Of 1,000 connections.
    #[serde(deserialize_with = "lenient")]
    pub per_mille: u64,
}

/// A ZoneEvacuation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredEvacuation {
    metadata: Metadata,
    /// What people ask for.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: EvacuationSpec,
    /// What the controller says; nothing at first.
    #[serde(default, deserialize_with = "lenient")]
    pub status: EvacuationStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "lenient")]
    name: Name,
    #[serde(deserialize_with = "lenient")]
    uid: Uid,
    #[serde(deserialize_with = "lenient")]
    resource_version: Box<str>,
    #[serde(deserialize_with = "lenient")]
    generation: i64,
}

impl StoredEvacuation {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.metadata.name
    }

    /// Its unique id.
    pub fn uid(&self) -> &Uid {
        &self.metadata.uid
    }

    /// Its resource version.
    pub fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// The version of its spec.
    pub fn generation(&self) -> i64 {
        self.metadata.generation
    }
}

impl Keyed for StoredEvacuation {
    fn key(&self) -> Key {
        (Name::default(), Name::clone(&self.metadata.name))
    }
}

/// The zones that are being emptied by these objects.
pub fn in_force<'a>(stored: impl Iterator<Item = &'a StoredEvacuation>) -> Evacuations {
    stored.fold(Evacuations::default(), |all, one| all.with(&one.spec.zone, one.status.percent))
}

/// The name of the object that empties a zone. Zones may have names that objects may not have.
pub fn object_name(zone: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '.' | '-') => letter,
        _ => '-',
    };
    zone.chars().map(letter).collect::<String>().trim_matches(['.', '-']).to_owned()
}

/// The object that is written to empty a zone, or to give it its traffic back.
pub fn object(spec: &EvacuationSpec) -> Value {
    json!({
        "apiVersion": ZONEWISE_V1ALPHA1,
        "kind": KIND,
        "metadata": { "name": object_name(&spec.zone) },
        "spec": spec,
    })
}

fn path(name: &str) -> Result<String, ApiError> {
    Ok(format!("{}/{}", EVACUATIONS.path, segment(name)?))
}

/// The object that empties a zone; `None` if there is none, or if the cluster does not know the kind.
pub async fn stored(client: &Client, zone: &str) -> Result<Option<StoredEvacuation>, ApiError> {
    match api::get(client, &path(&object_name(zone))?).await {
        Ok(answer) => decoded(&answer).map(Some),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes what is asked for. One that is over begins anew, because its spec is another one.
pub async fn ask(client: &Client, spec: &EvacuationSpec) -> Result<StoredEvacuation, ApiError> {
    let path =
        format!("{}?fieldManager={FIELD_MANAGER}&force=true", path(&object_name(&spec.zone))?);
    let body = object(spec).to_string().into_bytes();
    decoded(&api::call(client, Method::PATCH, &path, api::APPLY, body).await?)
}

/// Writes the status, if the object is still the one that it was decided for. Returns what is stored then.
pub async fn report(
    client: &Client,
    stored: &StoredEvacuation,
    status: &EvacuationStatus,
) -> Result<StoredEvacuation, ApiError> {
    let path = format!("{}/status", path(stored.name())?);
    // Lists that are empty now were perhaps not before: a merge patch leaves out what is not named.
    let mut status = json!(status);
    for list in ["failedBefore", "overLimit", "kept"] {
        if status.get(list).is_none() {
            status[list] = Value::Null;
        }
    }
    let body = json!({
        "metadata": { "resourceVersion": stored.version() },
        "status": status,
    });
    let body = body.to_string().into_bytes();
    decoded(&api::call(client, Method::PATCH, &path, api::MERGE, body).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_status_changes_nothing() {
        let stored: StoredEvacuation = serde_json::from_value(json!({
            "metadata": { "name": "a", "generation": 1 },
            "spec": { "zone": "a", "deadline": "2026-01-01T00:00:00Z" },
        }))
        .unwrap();
        assert_eq!(stored.status, EvacuationStatus::default());
        assert!(in_force([&stored].into_iter()).is_empty());
        assert_eq!((stored.spec.step_seconds(), stored.spec.limit_percent()), (30, 160));
    }

    #[test]
    fn what_is_in_force_is_read_from_the_status() {
        let stored = |zone: &str, percent: u8| -> StoredEvacuation {
            serde_json::from_value(json!({
                "metadata": { "name": zone },
                "spec": { "zone": zone },
                "status": { "phase": "Moving", "percent": percent },
            }))
            .unwrap()
        };
        let all = [stored("a", 25), stored("b", 100), stored("a", 75)];
        assert_eq!(in_force(all.iter()), Evacuations::default().with("a", 25));
    }

    #[test]
    fn objects_have_names_that_the_api_server_accepts() {
        let rows = [
            ("eu-west-1a", "eu-west-1a"),
            ("Zone_A", "zone-a"),
            ("rack.7", "rack.7"),
            ("-x-", "x"),
        ];
        for (zone, name) in rows {
            assert_eq!(object_name(zone), name);
        }
    }
}
