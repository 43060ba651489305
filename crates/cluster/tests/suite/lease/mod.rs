//! Leader election: the rules one by one, the promise under every fault, and the running candidate.

mod candidate;
mod configuration;
mod promise;
mod rules;
mod wire;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use zonewise_cluster::lease::{ElectionConfig, ElectionConfigError, StoreError, unique_identity};

fn config(identity: &str) -> ElectionConfig {
    ElectionConfig {
        namespace: "ns".to_owned(),
        name: "lease".to_owned(),
        ..ElectionConfig::new(identity)
    }
}

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn spec(holder: &str, seconds: i32, times: (i64, i64), transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(wall(times.0))),
        renew_time: Some(MicroTime(wall(times.1))),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

fn lease(version: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some("lease".to_owned()),
        resource_version: (!version.is_empty()).then(|| version.to_owned()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}

/// What the API server does with one object.
#[derive(Clone, Debug, Default)]
struct Stored {
    lease: Option<Lease>,
    version: u64,
}

impl Stored {
    fn create(&mut self, lease: &Lease) -> Result<Lease, StoreError> {
        if self.lease.is_some() { Err(StoreError::Conflict) } else { Ok(self.put(lease)) }
    }

    fn replace(&mut self, lease: &Lease) -> Result<Lease, StoreError> {
        match &self.lease {
            None => Err(StoreError::Missing),
            Some(kept) if kept.metadata.resource_version != lease.metadata.resource_version => {
                Err(StoreError::Conflict)
            }
            Some(_) => Ok(self.put(lease)),
        }
    }

    fn put(&mut self, lease: &Lease) -> Lease {
        self.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }
}
