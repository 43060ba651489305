//! What the metrics API says of a Pod: the CPU that it uses.

use serde::Deserialize;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::lenient::lenient;
use zonewise_common::name::Name;
use zonewise_common::time;

use crate::quantity::Quantity;

/// The fields of a PodMetrics that are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Read")]
pub struct PodMetrics {
    /// The name of the Pod.
    pub name: Name,
    /// What it uses; `None` if what is said of that cannot be read.
    pub cpu: Option<CpuUse>,
}

/// The CPU that a Pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuUse {
    /// The sum of its containers, in thousandths of a core. What is more than a number can hold counts as the largest.
    pub milli: u64,
    /// The end of the time that it is about, in seconds since 1970.
    pub at: i64,
    /// How long that time is, in milliseconds.
    pub window: u64,
}

/// Of one that is not as it should be, the name alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Whole(Wire),
    Named { metadata: Meta },
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    window: String,
    #[serde(default, deserialize_with = "lenient")]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Meta {
    name: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "lenient")]
    usage: Usage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(deserialize_with = "lenient")]
    cpu: Option<Quantity>,
}

impl Wire {
    fn cpu(&self) -> Option<CpuUse> {
        let milli = |container: &Container| container.usage.cpu.as_ref()?.milli();
        let all = self.containers.iter().map(milli);
        let milli = all.reduce(|sum, one| Some(sum?.saturating_add(one?))).flatten()?;
        let window: ConfigDuration = self.window.parse().ok()?;
        let at = time::seconds(self.timestamp.as_deref())?;
        Some(CpuUse { milli, at, window: u64::try_from(window.0.as_millis()).ok()? })
    }
}

impl From<Read> for PodMetrics {
    fn from(read: Read) -> Self {
        match read {
            Read::Whole(wire) => Self { cpu: wire.cpu(), name: wire.metadata.name },
            Read::Named { metadata } => Self { cpu: None, name: metadata.name },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(changed: &Value) -> Option<CpuUse> {
        let mut item = json!({
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
            "timestamp": "2026-03-01T12:00:07Z", "window": "15.5s",
            "containers": [
                {"name": "web", "usage": {"cpu": "123456789n", "memory": "12Mi"}},
                {"name": "log", "usage": {"cpu": "0", "memory": "12Mi"}},
            ],
        });
        for (key, value) in changed.as_object().unwrap() {
            item[key] = value.clone();
        }
        let read: PodMetrics = serde_json::from_value(item).unwrap();
        assert_eq!(&*read.name, "web-1");
        read.cpu
    }

    #[test]
    fn the_sum_of_the_containers_is_read_and_what_cannot_be_is_none() {
        let usual = CpuUse { milli: 124, at: 1_772_366_407, window: 15_500 };
        let of = |cpu: Value| json!({"containers": [{"usage": {"cpu": cpu}}]});
        let rows: [(Value, Option<CpuUse>); 16] = [
            (json!({}), Some(usual)),
            (json!({"window": "1m0s"}), Some(CpuUse { window: 60_000, ..usual })),
            (of(json!("1500u")), Some(CpuUse { milli: 2, ..usual })),
            (of(json!(2)), Some(CpuUse { milli: 2000, ..usual })),
            (of(json!("-5m")), None),
            (of(json!("NaN")), None),
            (of(json!("")), None),
            (of(json!("9e99")), None),
            (of(json!(null)), None),
            (of(json!({"n": 1})), None),
            (json!({"containers": []}), None),
            (json!({"containers": "none"}), None),
            (json!({"window": "-3s"}), None),
            (json!({"window": 3}), None),
            (json!({"timestamp": "yesterday"}), None),
            (json!({"timestamp": null}), None),
        ];
        for (changed, expected) in rows {
            assert_eq!(read(&changed), expected, "{changed}");
        }
        for nameless in ["{}", r#"{"metadata":{}}"#, "[]", "7", "{]"] {
            assert!(serde_json::from_str::<PodMetrics>(nameless).is_err(), "{nameless}");
        }
    }
}
