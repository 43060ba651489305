//! Random Services and slices, and random changes of them.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};
use zonewise_testbed::{Objects, objects};

const NAMES: [&str; 4] = ["web", "api", "dns", "mail"];
const ZONES: [&str; 3] = ["a", "b", "c"];
const PORTS: [(&str, u16, &str); 3] =
    [("http", 80, "TCP"), ("admin", 81, "TCP"), ("dns", 53, "UDP")];
const SLICES: usize = 12;
const BARRIER: &str = "barrier";

/// What is in the API server, by kind and name.
pub(super) struct Churn {
    rng: Rng,
    objects: Objects,
    written: BTreeMap<(String, String), Value>,
    /// What was done, for the message of a failure.
    pub(super) log: Vec<String>,
}

impl Churn {
    pub(super) fn new(seed: u64, objects: Objects) -> Self {
        Self { rng: Rng::with_seed(seed), objects, written: BTreeMap::new(), log: Vec::new() }
    }

    /// One change.
    pub(super) async fn step(&mut self) {
        let service = self.rng.usize(..NAMES.len());
        let slice = self.rng.usize(..SLICES);
        match self.rng.u8(..16) {
            0..5 => {
                // A new one each time: what may be changed of a Service is limited.
                self.delete("Service", NAMES[service]).await;
                let object = self.service(service);
                self.put(object).await;
            }
            5 => self.delete("Service", NAMES[service]).await,
            6 => self.delete("EndpointSlice", &format!("slice-{slice}")).await,
            _ => {
                let object = self.slice(slice);
                self.put(object).await;
            }
        }
    }

    pub(super) async fn put(&mut self, object: Value) {
        self.log.push(format!("put {object}"));
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]]
            .map(|value| value.as_str().unwrap().to_owned());
        let known = self.written.insert((kind, name), object.clone()).is_some();
        let all = [object];
        if known { self.objects.update(&all).await } else { self.objects.create(&all).await }
            .unwrap();
    }

    async fn delete(&mut self, kind: &str, name: &str) {
        if let Some(object) = self.written.remove(&(kind.to_owned(), name.to_owned())) {
            self.log.push(format!("delete {kind} {name}"));
            self.objects.delete(&[object]).await.unwrap();
        }
    }

    /// Changes a Service and its slice in a way that has not been there before. Returns the endpoint to
    /// which packets go when that has been noticed.
    pub(super) async fn barrier(&mut self, seed: u64, rest: usize) -> String {
        let address = format!("10.200.{}.{}", seed % 200, rest + 1);
        let mut service = objects::service("default", BARRIER, BARRIER);
        let spec = service["spec"].as_object_mut().unwrap();
        spec.remove("selector");
        spec["ports"][0]["port"] = json!(1_000 + rest);
        self.put(service).await;
        let endpoint = objects::endpoint(address.parse().unwrap(), "n1", "a");
        self.put(objects::endpoint_slice("default", BARRIER, BARRIER, &[endpoint])).await;
        address
    }

    /// Deletes everything.
    pub(super) async fn end(self) {
        let all: Vec<Value> = self.written.into_values().collect();
        self.objects.delete(&all).await.unwrap();
    }

    fn one_in(&mut self, many: u8) -> bool {
        self.rng.u8(..many) == 0
    }

    fn zone(&mut self) -> &'static str {
        ZONES[self.rng.usize(..ZONES.len())]
    }

    /// A Service of any type. Its number makes addresses and ports its own.
    fn service(&mut self, number: usize) -> Value {
        let mut object = objects::service("default", NAMES[number], "none");
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("selector");
        let families = [json!(["IPv4"]), json!(["IPv6"]), json!(["IPv4", "IPv6"])];
        let families = self.rng.choice(families).unwrap();
        let dual = families.as_array().unwrap().len() == 2;
        spec.insert("ipFamilies".into(), families);
        let policy = if dual { "RequireDualStack" } else { "SingleStack" };
        spec.insert("ipFamilyPolicy".into(), policy.into());
        let kind = ["ClusterIP", "NodePort", "LoadBalancer"][self.rng.usize(..3)];
        spec.insert("type".into(), kind.into());
        spec.insert("ports".into(), self.service_ports(number, kind != "ClusterIP"));
        if self.one_in(3) {
            spec.insert("internalTrafficPolicy".into(), "Local".into());
        }
        if kind != "ClusterIP" && self.rng.bool() {
            spec.insert("externalTrafficPolicy".into(), "Local".into());
        }
        if self.rng.bool() {
            let ips = [format!("198.51.100.{number}"), format!("2001:db8:1::{number}")];
            spec.insert("externalIPs".into(), json!(ips));
        }
        if self.one_in(3) {
            spec.insert("sessionAffinity".into(), "ClientIP".into());
            let seconds = [10, 600][self.rng.usize(..2)];
            let config = json!({ "clientIP": { "timeoutSeconds": seconds } });
            spec.insert("sessionAffinityConfig".into(), config);
        }
        if kind == "LoadBalancer" {
            if self.one_in(3) {
                let ranges = json!(["192.0.2.0/24", "192.0.2.128/25", "2001:db8:5::/48"]);
                spec.insert("loadBalancerSourceRanges".into(), ranges);
            }
            let mode = if self.one_in(4) { "Proxy" } else { "VIP" };
            object["status"] = json!({ "loadBalancer": { "ingress": [
                { "ip": format!("203.0.113.{number}"), "ipMode": mode },
                { "ip": format!("2001:db8:2::{number}"), "ipMode": "VIP" },
            ]}});
        }
        object
    }

    fn service_ports(&mut self, number: usize, has_node_ports: bool) -> Value {
        let mut ports: Vec<Value> = Vec::new();
        for (index, (name, port, protocol)) in PORTS.iter().enumerate() {
            if !self.rng.bool() && (index > 0 || self.rng.bool()) {
                continue;
            }
            let mut one = json!({ "name": name, "port": port, "protocol": protocol });
            if has_node_ports {
                one["nodePort"] = json!(30_000 + 10 * number + index);
            }
            ports.push(one);
        }
        if ports.is_empty() {
            ports.push(json!({ "name": "http", "port": 80, "protocol": "TCP" }));
        }
        json!(ports)
    }

    /// A slice. Its number decides its Service, its family, which cannot change, and its addresses: none
    /// is in two slices.
    fn slice(&mut self, number: usize) -> Value {
        let v6 = number % 2 == 1;
        let count = self.rng.usize(..5);
        // Hints count only if all endpoints have some.
        let (zones, nodes) = (self.rng.bool(), self.one_in(3));
        let endpoints: Vec<Value> =
            (0..count).map(|n| self.endpoint(number, n, (zones, nodes))).collect();
        // kube-proxy loses track of a slice that goes to another Service.
        let service = NAMES[number / 2 % NAMES.len()];
        let name = format!("slice-{number}");
        let mut object = objects::endpoint_slice("default", service, &name, &endpoints);
        object["addressType"] = json!(if v6 { "IPv6" } else { "IPv4" });
        let ports = PORTS.iter().enumerate().filter(|_| self.rng.u8(..4) > 0);
        let ports = ports.map(|(index, (name, _, protocol))| {
            json!({ "name": name, "port": 8080 + 10 * number + index, "protocol": protocol })
        });
        object["ports"] = json!(ports.collect::<Vec<_>>());
        object
    }

    fn endpoint(&mut self, slice: usize, number: usize, hints: (bool, bool)) -> Value {
        let address = if slice % 2 == 1 {
            format!("fd00:10:244::{slice}:{number}")
        } else {
            format!("10.244.{slice}.{}", number + 1)
        };
        let node = if self.one_in(3) { "n1" } else { "n2" };
        let zone = self.zone();
        let mut endpoint = objects::endpoint(address.parse().unwrap(), node, zone);
        let [ready, serving, terminating] =
            [[true, true, false], [true, true, false], [false, true, true], [false, false, false]]
                [self.rng.usize(..4)];
        endpoint["conditions"] =
            json!({ "ready": ready, "serving": serving, "terminating": terminating });
        if hints.0 {
            endpoint["hints"]["forZones"] = json!([{ "name": self.zone() }]);
        }
        if hints.1 {
            endpoint["hints"]["forNodes"] = json!([{ "name": node }]);
        }
        endpoint
    }
}
