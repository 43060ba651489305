//! What the built-in controller makes of hints that it did not write.

#[path = "../../suite/guard/policy.rs"]
mod beside_the_real_one;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_slices::guard::{Others, ZoneAllocation};
use zonewise_testbed::Cluster;
use zonewise_testbed::objects::service;

use crate::common::guard::{
    allocation, cluster, eventually_counts, hints, install, listed, pods, rest, versions,
};
use crate::common::{slices, turn};

/// A Service of each mode for each way to set hints, once the built-in controller has written its slices.
async fn create(cluster: &Cluster, modes: [&str; 3]) {
    for (number, mode) in modes.iter().enumerate() {
        for way in ["patch", "policy"] {
            let name = format!("{mode}-{way}");
            let first = 30 * number + if way == "patch" { 0 } else { 15 };
            cluster.create(&pods(&name, first, [4, 4, 4])).await.unwrap();
            let mut object = service("default", &name, &name);
            match *mode {
                "floor" => object["spec"]["trafficDistribution"] = "PreferSameZone".into(),
                "auto" => {
                    object["metadata"]["annotations"] =
                        json!({ "service.kubernetes.io/topology-mode": "Auto" });
                }
                _ => {}
            }
            cluster.create(&[object]).await.unwrap();
            let own =
                if *mode == "none" { vec![("-", 12)] } else { vec![("a", 4), ("b", 4), ("c", 4)] };
            eventually_counts(cluster, &name, &own).await;
        }
    }
}

/// Hints in three kinds of Services, by a patch and by the policy: what is left of them after a while, and whether
/// anything is written at rest.
#[tokio::test(flavor = "multi_thread")]
async fn hints_by_the_policy_stay_in_every_mode_and_patched_ones_do_not() {
    let _turn = turn().await;
    let (cluster, _built_in) = cluster(&[]).await;
    let modes = ["none", "floor", "auto"];
    let names =
        modes.iter().flat_map(|mode| ["patch", "policy"].map(|way| format!("{mode}-{way}")));
    install(&cluster, &names.collect::<Vec<_>>()).await;
    create(&cluster, modes).await;
    // The first endpoint of zone a serves b, the second b and c.
    let mut wanted: BTreeMap<String, ZoneAllocation> = BTreeMap::new();
    for mode in modes {
        for way in ["patch", "policy"] {
            let name = format!("{mode}-{way}");
            let stored = slices(&cluster, "default", &name).await;
            let in_a = |endpoint: &&Value| endpoint["zone"] == "a";
            let endpoints = stored[0]["endpoints"].as_array().unwrap();
            let address = |endpoint: &Value| endpoint["addresses"][0].as_str().unwrap().to_owned();
            let of_a: Vec<String> = endpoints.iter().filter(in_a).map(address).collect();
            let spec = listed(Others::OwnZone, &[(&of_a[0], "b"), (&of_a[1], "b,c")]);
            if way == "policy" {
                cluster.create(&[allocation(&name, &spec)]).await.unwrap();
            }
            wanted.insert(name, spec);
        }
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for (name, spec) in &wanted {
        let whole = slices(&cluster, "default", name).await.remove(0);
        let admitted = spec.admitted(&serde_json::from_value(whole.clone()).unwrap());
        let mut patched = serde_json::to_value(&admitted).unwrap();
        patched["metadata"]["resourceVersion"] = whole["metadata"]["resourceVersion"].clone();
        cluster.update(&[patched]).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let mut before = BTreeMap::new();
    for name in wanted.keys() {
        before.insert(name.clone(), versions(&cluster, name).await);
    }
    let requests = |counts: BTreeMap<(String, String, String), u64>| -> u64 {
        let writes =
            |key: &(String, String, String)| key.0 != "LIST" && key.0 != "WATCH" && key.0 != "GET";
        counts
            .iter()
            .filter(|(key, _)| key.1 == "endpointslices" && writes(key))
            .map(|(_, n)| n)
            .sum()
    };
    let written = requests(cluster.request_counts().await.unwrap());
    tokio::time::sleep(rest()).await;
    assert_eq!(requests(cluster.request_counts().await.unwrap()), written, "writes at rest");
    let own = |name: &str| if name.starts_with("none") { "-" } else { "a" };
    for (name, spec) in &wanted {
        let found = hints(&cluster, name).await;
        for (address, zones) in &spec.endpoints {
            let hinted = &found[&**address];
            match name.rsplit('-').next() {
                Some("policy") => assert_eq!(hinted, &**zones, "{name}: {address}"),
                // What the built-in controller does with `Auto` depends on what else it does with the slice.
                _ if name.starts_with("auto") => {}
                _ => assert_eq!(hinted, own(name), "{name}: {address}"),
            }
        }
        assert_eq!(versions(&cluster, name).await, before[name], "{name} at rest");
    }
}
