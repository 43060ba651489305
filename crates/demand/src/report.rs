//! What a proxy reports: how many connections its node has made to each Service, by the zone that was chosen.
//!
//! ```json
//! {"version":1,"node":"n1","zone":"a","started":1763430000000,"sequence":42,
//!  "services":{"shop/web":{"a":[120,48000,960000],"b":[40,16000,320000]}},"failed":{"shop/web":{"b":12}},"unassigned":0}
//! ```
//!
//! Counters only grow while a proxy runs; the reader takes differences. So a report that is lost costs nothing, and
//! one that is read twice counts once. The three numbers of a zone are connections, bytes to its endpoints and bytes
//! from them. `failed` has those of the connections that were refused or not answered, where there are any: seconds later
//! than the connections themselves. Fields that a reader does not know are ignored, so that a newer proxy may say more.
//!
//! A report is checked as a whole: one that breaks a rule is left out, because what else it says cannot be trusted
//! either.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// The most bytes of a report: [`MAX_SERVICES`] with names and numbers of usual length have a third of it.
pub const MAX_BYTES: usize = 4 << 20;

/// The most Services in a report. A proxy counts at most as many pairs of Service and zone.
pub const MAX_SERVICES: usize = 10_000;

/// The most zones of a Service. No cluster has as many.
pub const MAX_ZONES: usize = 256;

/// A counter of connections above this is nonsense: a million in every second for thirty years.
pub const MAX_CONNECTIONS: u64 = 1_000_000_000_000_000;

/// What one proxy says at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The name of the node.
    pub node: Box<str>,
    /// The zone of the node, as the proxy knows it; empty if it knows none.
    pub zone: Box<str>,
    /// When the proxy started, in milliseconds since 1970 by its own clock. It tells one run from another; nothing is
    /// computed from it.
    pub started: u64,
    /// The number of this report among those of the same run.
    pub sequence: u64,
    /// The Services, as `namespace/name`, and what was counted by the zone that was chosen. Endpoints without a zone
    /// are in the zone with an empty name.
    pub services: BTreeMap<Box<str>, BTreeMap<Box<str>, Counts>>,
    /// The connections that failed, by Service and zone as above; those of proxies that do not count them are missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>,
    /// Connections to Services beyond the proxy's limit, which are in none of the others.
    #[serde(default)]
    pub unassigned: u64,
}

/// What was counted since the counters began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct Counts {
    /// New connections.
    pub connections: u64,
    /// Bytes to endpoints; zero where bytes are not counted.
    pub bytes_to: u64,
    /// Bytes from endpoints; zero where bytes are not counted.
    pub bytes_from: u64,
}

impl From<[u64; 3]> for Counts {
    fn from([connections, bytes_to, bytes_from]: [u64; 3]) -> Self {
        Self { connections, bytes_to, bytes_from }
    }
}

impl From<Counts> for [u64; 3] {
    fn from(counts: Counts) -> Self {
        [counts.connections, counts.bytes_to, counts.bytes_from]
    }
}

/// Why a report is left out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReportError {
    /// Longer than a report may be.
    #[error(
        "the report has {0} bytes and may have {MAX_BYTES}: let the proxy count fewer Services"
    )]
    TooLarge(usize),
    /// Not JSON of the right shape.
    #[error(
        "the report is not the expected JSON: {0}; check that a zonewise proxy answers at this address"
    )]
    Shape(String),
    /// A version that this program does not know.
    #[error(
        "the report has version {0} and this program reads version {VERSION}: bring proxy and controller to the same release"
    )]
    Version(u32),
    /// More Services than a report may have.
    #[error(
        "the report names {0} Services and may name {MAX_SERVICES}: let the proxy count fewer Services"
    )]
    TooManyServices(usize),
    /// More zones than a Service may have.
    #[error(
        "the report names {zones} zones of Service `{service}` and may name {MAX_ZONES}: check the zone labels of the nodes"
    )]
    TooManyZones {
        /// The Service.
        service: Box<str>,
        /// How many zones.
        zones: usize,
    },
    /// A name that no object can have.
    #[error(
        "the report has the {what} `{name}`, which is no name that Kubernetes allows: check the version of the proxy"
    )]
    Name {
        /// What should have had the name.
        what: &'static str,
        /// Its beginning.
        name: String,
    },
    /// A counter that cannot be true.
    #[error(
        "the report claims {connections} connections to Service `{service}`, which is impossible: restart the proxy of the node"
    )]
    Connections {
        /// The Service.
        service: Box<str>,
        /// The claim.
        connections: u64,
    },
}

impl Report {
    /// Reads a report.
    pub fn read(bytes: &[u8]) -> Result<Self, ReportError> {
        if bytes.len() > MAX_BYTES {
            return Err(ReportError::TooLarge(bytes.len()));
        }
        let report: Self = serde_json::from_slice(bytes)
            .map_err(|error| ReportError::Shape(beginning(&error.to_string())))?;
        report.check()?;
        Ok(report)
    }

    /// The report as it is sent.
    pub fn write(&self) -> Result<String, ReportError> {
        self.check()?;
        serde_json::to_string(self).map_err(|error| ReportError::Shape(error.to_string()))
    }

    fn check(&self) -> Result<(), ReportError> {
        if self.version != VERSION {
            return Err(ReportError::Version(self.version));
        }
        let named_services = self.services.len().max(self.failed.len());
        if named_services > MAX_SERVICES {
            return Err(ReportError::TooManyServices(named_services));
        }
        named("node", &self.node, 253)?;
        zone_named(&self.zone)?;
        for (service, zones) in &self.services {
            check_service(service, zones, connections(zones))?;
        }
        for (service, zones) in &self.failed {
            let failed = zones.values().fold(0, |sum: u64, failed| sum.saturating_add(*failed));
            check_service(service, zones, failed)?;
        }
        Ok(())
    }
}

/// Checks what is counted of a Service, by zone and in all.
fn check_service<T>(
    service: &str,
    zones: &BTreeMap<Box<str>, T>,
    connections: u64,
) -> Result<(), ReportError> {
    let name = || ReportError::Name { what: "Service", name: beginning(service) };
    let (namespace, own) = service.split_once('/').ok_or_else(name)?;
    named("namespace", namespace, 63)?;
    named("Service", own, 63)?;
    if zones.len() > MAX_ZONES {
        return Err(ReportError::TooManyZones { service: service.into(), zones: zones.len() });
    }
    zones.keys().try_for_each(|zone| zone_named(zone))?;
    if connections > MAX_CONNECTIONS {
        return Err(ReportError::Connections { service: service.into(), connections });
    }
    Ok(())
}

/// The connections to all zones.
pub(crate) fn connections(zones: &BTreeMap<Box<str>, Counts>) -> u64 {
    zones.values().fold(0, |sum, counts| sum.saturating_add(counts.connections))
}

/// A name of an object: letters, digits, dashes and dots.
fn named(what: &'static str, name: &str, most: usize) -> Result<(), ReportError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if !name.is_empty() && name.len() <= most && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(ReportError::Name { what, name: beginning(name) })
}

/// A zone is the value of a label, or empty.
fn zone_named(zone: &str) -> Result<(), ReportError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if zone.len() <= 63 && zone.bytes().all(allowed) {
        return Ok(());
    }
    Err(ReportError::Name { what: "zone", name: beginning(zone) })
}

/// The beginning of a text that may be long and strange, for an error.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 100;
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn report() -> Value {
        json!({
            "version": 1, "node": "n1", "zone": "a", "started": 1_763_430_000_000_u64, "sequence": 42,
            "services": {"shop/web": {"a": [120, 48_000, 960_000], "": [4, 0, 0]}},
            "failed": {"shop/web": {"a": 12}},
            "unassigned": 7,
        })
    }

    fn read(report: &Value) -> Result<Report, ReportError> {
        Report::read(report.to_string().as_bytes())
    }

    #[test]
    fn a_report_is_read_as_it_is_documented() {
        let counts =
            |connections, bytes_to, bytes_from| Counts { connections, bytes_to, bytes_from };
        let zones = [("a".into(), counts(120, 48_000, 960_000)), ("".into(), counts(4, 0, 0))];
        let expected = Report {
            version: 1,
            node: "n1".into(),
            zone: "a".into(),
            started: 1_763_430_000_000,
            sequence: 42,
            services: [("shop/web".into(), zones.into())].into(),
            failed: [("shop/web".into(), [("a".into(), 12)].into())].into(),
            unassigned: 7,
        };
        assert_eq!(read(&report()), Ok(expected.clone()));
        let mut older = report();
        older.as_object_mut().unwrap().remove("failed");
        let without = Report { failed: BTreeMap::new(), ..expected.clone() };
        assert_eq!(read(&older), Ok(without.clone()));
        assert!(!without.write().unwrap().contains("failed"), "left out where nothing fails");
        let mut newer = report();
        newer["somethingElse"] = json!({"of": "later"});
        assert_eq!(read(&newer), Ok(expected.clone()));
        let written = expected.write().unwrap();
        assert_eq!(Report::read(written.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_report_that_breaks_a_rule_is_left_out_and_the_error_says_why() {
        let service = |name: &str, zones: Value| json!({name: zones});
        let rows = [
            ("/version", json!(2), "the report has version 2 and this program reads version 1"),
            ("/node", json!(""), "the node ``"),
            ("/node", json!("n".repeat(254)), "the node `nnn"),
            ("/zone", json!("a\u{7}b"), "the zone `a\\u{7}b`"),
            ("/sequence", json!(-1), "expected u64"),
            ("/sequence", json!(1.5), "expected u64"),
            ("/services", service("web", json!({})), "the Service `web`"),
            ("/services", service("shop/web/x", json!({})), "the Service `web/x`"),
            ("/services", service("shop/web", json!({"a": [1, 2]})), "invalid length 2"),
            ("/services", service("shop/web", json!({"a": [-1, 0, 0]})), "expected u64"),
            (
                "/services",
                service("shop/web", json!({"a": [u64::MAX, 0, 0], "b": [u64::MAX, 0, 0]})),
                "claims 18446744073709551615 connections to Service `shop/web`, which is impossible",
            ),
            (
                "/services",
                service(
                    "shop/web",
                    (0..257).map(|zone| (format!("z{zone}"), json!([0, 0, 0]))).collect(),
                ),
                "257 zones of Service `shop/web`",
            ),
            (
                "/services",
                (0..=MAX_SERVICES).map(|name| (format!("shop/s{name}"), json!({}))).collect(),
                "names 10001 Services and may name 10000",
            ),
            ("/failed", service("web", json!({})), "the Service `web`"),
            ("/failed", service("shop/web", json!({"a/b": 1})), "the zone `a/b`"),
            ("/failed", service("shop/web", json!({"a": -1})), "expected u64"),
            (
                "/failed",
                service("shop/web", json!({"a": u64::MAX, "b": u64::MAX})),
                "claims 18446744073709551615 connections to Service `shop/web`, which is impossible",
            ),
            (
                "/failed",
                service("shop/web", (0..257).map(|zone| (format!("z{zone}"), json!(0))).collect()),
                "257 zones of Service `shop/web`",
            ),
            (
                "/failed",
                (0..=MAX_SERVICES).map(|name| (format!("shop/s{name}"), json!({}))).collect(),
                "names 10001 Services and may name 10000",
            ),
        ];
        for (field, value, expected) in rows {
            let mut report = report();
            *report.pointer_mut(field).unwrap() = value;
            let error = read(&report).unwrap_err().to_string();
            assert!(error.contains(expected), "{field}: {error}");
            assert!(error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_report_that_is_too_long_is_not_parsed() {
        let long = vec![b' '; MAX_BYTES + 1];
        assert_eq!(Report::read(&long), Err(ReportError::TooLarge(MAX_BYTES + 1)));
    }

    #[test]
    fn the_longest_report_of_a_proxy_fits() {
        let counts = Counts { connections: 1 << 40, bytes_to: 1 << 50, bytes_from: 1 << 50 };
        let service =
            |number: usize| -> Box<str> { format!("{:n<63}/{:s<58}{number:05}", "", "").into() };
        let zones = || [("europe-west1-b".into(), counts)].into();
        let failed = || [("europe-west1-b".into(), counts.connections)].into();
        let report = Report {
            version: VERSION,
            node: "n1".into(),
            zone: "europe-west1-b".into(),
            started: 0,
            sequence: 0,
            services: (0..MAX_SERVICES).map(|number| (service(number), zones())).collect(),
            failed: (0..MAX_SERVICES).map(|number| (service(number), failed())).collect(),
            unassigned: 0,
        };
        assert!(report.write().unwrap().len() < MAX_BYTES);
    }

    proptest! {
        #[test]
        fn what_a_proxy_writes_the_controller_reads(
            node in "[a-z0-9.-]{1,20}",
            zone in "[a-z0-9-]{0,10}",
            started in any::<u64>(),
            sequence in any::<u64>(),
            services in btree_map(
                "[a-z]{1,5}/[a-z0-9-]{1,5}",
                btree_map("[a-z0-9-]{0,5}", (0..1u64 << 40, any::<u64>(), any::<u64>()), 0..4),
                0..8,
            ),
            failed in btree_map(
                "[a-z]{1,5}/[a-z0-9-]{1,5}",
                btree_map("[a-z0-9-]{0,5}", 0..1u64 << 40, 0..4),
                0..8,
            ),
            unassigned in any::<u64>(),
        ) {
            let counts = |(connections, bytes_to, bytes_from)| Counts { connections, bytes_to, bytes_from };
            let zones = |zones: BTreeMap<String, (u64, u64, u64)>| {
                zones.into_iter().map(|(zone, all)| (zone.into(), counts(all))).collect()
            };
            let report = Report {
                version: VERSION,
                node: node.into(),
                zone: zone.into(),
                started,
                sequence,
                services: services.into_iter().map(|(name, of)| (name.into(), zones(of))).collect(),
                failed: failed
                    .into_iter()
                    .map(|(name, of): (String, BTreeMap<String, u64>)| {
                        (name.into(), of.into_iter().map(|(zone, count)| (zone.into(), count)).collect())
                    })
                    .collect(),
                unassigned,
            };
            prop_assert_eq!(Report::read(report.write().unwrap().as_bytes()), Ok(report));
        }
    }
}
