//! What objects cost in JSON and in protobuf: reading one, from bytes that a real API server has sent, and whole lists
//! of that server; writing slices, Leases and Events; and what ways of reading all Pods in protobuf cost the server.
//!
//! ```text
//!  ZONEWISE_REFERENCE=$(scripts/reference bench) cargo bench --package zonewise-inventory --bench forms
//!  …                                                                            --bench forms -- writes
//! ```
//!
//! The second runs one part: `objects`, `lists`, `writes` or `ways`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and stops when it cannot go on"
)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, ContentType, Resource, WatchListener};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed};
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::envelope::WatchEvent;
use zonewise_common::protobuf::reader;
use zonewise_common::protobuf::stream::{FrameCutter, ListCutter};
use zonewise_inventory::write::SliceWriter;
use zonewise_routing::{NodeLocation, ObjectReader};
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;
use zonewise_testbed::{Cluster, Options, objects, table};

/// How often one object is decoded.
const ROUNDS: u32 = 50_000;
/// How many slices, with [`ENDPOINTS`] each, are listed.
const SLICES: usize = 5_000;
const ENDPOINTS: usize = 10;
/// How often each list is read; the median is shown.
const LISTS: usize = 5;
/// How many slices are created and replaced in a turn, and how many turns each form has.
const WRITES: usize = 250;
const TURNS: usize = 4;
/// How many Pods are read in each way.
const PODS: usize = 70_000;

type Read = fn(&ObjectReader, Encoded<'_>) -> Result<(), DecodeError>;

fn endpoint(number: usize) -> Value {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap());
    let mut endpoint = objects::endpoint(IpAddr::V4(address), "node-1", "zone-a");
    endpoint["targetRef"] = json!({"kind": "Pod", "namespace": "bench", "name": format!("web-5d4f8c7b9d-{number:05}"),
        "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0002"});
    endpoint["hints"] = json!({"forZones": [{"name": "zone-a"}]});
    endpoint
}

fn slice(name: &str, endpoints: usize) -> Value {
    let endpoints: Vec<Value> = (0..endpoints).map(endpoint).collect();
    objects::endpoint_slice("bench", "web", name, &endpoints)
}

/// A Pod as a Deployment makes it: most of it is not used here.
fn pod(number: usize) -> Value {
    let name = format!("web-5d4f8c7b9d-{number:05}");
    let mut pod = objects::pod("bench", &name, "web", "node-1", "10.0.0.1");
    pod["metadata"]["labels"]["pod-template-hash"] = "5d4f8c7b9d".into();
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9d",
        "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0003", "controller": true, "blockOwnerDeletion": true}]);
    let container = &mut pod["spec"]["containers"][0];
    container["env"] =
        (0..10).map(|n| json!({"name": format!("SETTING_{n}"), "value": "some value"})).collect();
    container["resources"] =
        json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}});
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    (container["readinessProbe"], container["livenessProbe"]) = (probe.clone(), probe);
    pod
}

/// Keeps the bytes of the last object of a list.
#[derive(Clone, Default)]
struct Capture(Arc<Captured>);

#[derive(Default)]
struct Captured {
    last: Mutex<Vec<u8>>,
    listed: Notify,
}

struct Anything;

impl Keyed for Anything {
    fn key(&self) -> Key {
        Key::default()
    }
}

impl WatchListener for Capture {
    type Object = Anything;

    fn read(&self, object: Encoded<'_>) -> Result<Anything, DecodeError> {
        *self.0.last.lock() = match object {
            Encoded::Json(json) => json.as_bytes().to_vec(),
            Encoded::Protobuf(_, bytes) => bytes.to_vec(),
        };
        Ok(Anything)
    }

    fn apply(&mut self, _: Anything) {}
    fn unreadable(&mut self, _: &Key, _: &str) {}
    fn delete(&mut self, _: u64, _: &Key) {}
    fn listed(&mut self, _: u64, _: &BTreeSet<Key>) {
        self.0.listed.notify_one();
    }
    fn health(&mut self, _: Result<(), &ApiError>) {}
}

async fn capture(client: &kube::Client, resource: Resource) -> Vec<u8> {
    let capture = Capture::default();
    let task = tokio::spawn(watch::follow(client.clone(), resource, capture.clone()));
    capture.0.listed.notified().await;
    task.abort();
    std::mem::take(&mut *capture.0.last.lock())
}

/// Nanoseconds that one object takes.
fn nanoseconds(read: Read, object: Encoded<'_>) -> u128 {
    let reader = ObjectReader::new(NodeLocation::new("node-1", Some("zone-a"), None));
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        black_box(read(&reader, black_box(object))).unwrap();
    }
    begun.elapsed().as_nanos() / u128::from(ROUNDS)
}

async fn one_object(
    client: &kube::Client,
    name: &str,
    resource: &Resource,
    read: Read,
) -> Vec<String> {
    let json = capture(client, resource.clone().encoded_as(ContentType::Json)).await;
    let protobuf = capture(client, resource.clone()).await;
    let text = std::str::from_utf8(&json).unwrap();
    let times = [Encoded::Json(text), Encoded::Protobuf(resource.kind.unwrap(), &protobuf)]
        .map(|object| nanoseconds(read, object));
    let [before, after] = times;
    vec![
        name.to_owned(),
        json.len().to_string(),
        protobuf.len().to_string(),
        format!("{before} ns"),
        format!("{after} ns"),
        format!("{:.2}", after as f64 / before as f64),
    ]
}

/// The median time from the request to the last object, and the CPU time that the server took for it.
async fn list(cluster: &Cluster, form: ContentType) -> (Duration, f64) {
    let client = cluster.admin().unwrap();
    let (mut times, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..LISTS {
        let (begun, before) = (Instant::now(), cluster.apiserver_cpu_seconds().unwrap());
        capture(&client, watch::SLICES.encoded_as(form)).await;
        times.push(begun.elapsed());
        cpu.push(cluster.apiserver_cpu_seconds().unwrap() - before);
    }
    times.sort();
    cpu.sort_by(f64::total_cmp);
    (times[LISTS / 2], cpu[LISTS / 2])
}

async fn get(client: &kube::Client, query: &str) -> Body {
    let request = Request::get(format!("/api/v1/pods?{query}")).header("accept", MEDIA_TYPE);
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body()
}

/// Reads all Pods in pages; 0 for one list. Returns how many there are.
async fn pages(client: &kube::Client, limit: usize) -> usize {
    let (mut next, mut count) = (String::new(), 0);
    loop {
        let (mut cutter, token) =
            (ListCutter::new("Pod"), watch::query_parameter("continue", &next));
        let mut body = get(client, &format!("limit={limit}{token}")).await;
        while let Some(frame) = body.frame().await {
            cutter.feed(frame.unwrap().data_ref().unwrap(), |_| count += 1).unwrap();
        }
        next = cutter.finish().unwrap().r#continue;
        if next.is_empty() {
            return count;
        }
    }
}

/// Reads all Pods as the initial events of a watch, which a bookmark ends. Returns how many there are.
async fn stream(client: &kube::Client) -> usize {
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (mut body, mut cutter) = (get(client, query).await, FrameCutter::default());
    let (mut count, mut ended) = (0, false);
    while !ended {
        let frame = body.frame().await.unwrap().unwrap();
        let mut take = |frame: &[u8]| {
            ended = WatchEvent::read(frame)?.event_type == "BOOKMARK";
            count += usize::from(!ended);
            Ok::<_, reader::Error>(())
        };
        cutter.feed(frame.data_ref().unwrap(), &mut take).unwrap();
    }
    count
}

/// A way to read all Pods: the mean of its time, and of the CPU time that the server took for it.
async fn way<F: Future<Output = usize>>(
    cluster: &Cluster,
    name: &str,
    read: impl Fn() -> F,
) -> Vec<String> {
    let (begun, before) = (Instant::now(), cluster.apiserver_cpu_seconds().unwrap());
    for _ in 0..LISTS {
        assert!(read().await >= PODS);
    }
    let cpu = cluster.apiserver_cpu_seconds().unwrap() - before;
    let mean = |seconds: f64| format!("{:.2} s", seconds / LISTS as f64);
    vec![name.to_owned(), mean(begun.elapsed().as_secs_f64()), mean(cpu)]
}

/// Ways to read all Pods. The server collects garbage after several of them, so they are not measured one by one.
async fn ways(cluster: &Cluster) {
    let client = cluster.admin().unwrap();
    let pods: Vec<Value> = (1..=PODS).map(pod).collect();
    for part in pods.chunks(PODS / 10) {
        cluster.create(part).await.unwrap();
    }
    let title = format!("all of {PODS} Pods");
    let mut lines = vec![
        [&title, "request to last object", "CPU of the API server"].map(str::to_owned).to_vec(),
    ];
    for limit in [1_000, 5_000, 0] {
        let name = if limit == 0 { "one list".to_owned() } else { format!("pages of {limit}") };
        lines.push(way(cluster, &name, || pages(&client, limit)).await);
    }
    lines.push(way(cluster, "initial events of a watch", || stream(&client)).await);
    println!("{}", table::markdown(&lines));
}

/// The CPU time of the server for one write, in milliseconds: creations, and replacements of what was created.
async fn write_turn(cluster: &Cluster, writer: &SliceWriter, new: &Slice) -> [f64; 2] {
    let cpu = || cluster.apiserver_cpu_seconds().unwrap();
    let (mut stored, begun) = (Vec::new(), cpu());
    for _ in 0..WRITES {
        stored.push(writer.create(new).await.unwrap());
    }
    let created = cpu();
    for slice in &mut stored {
        slice.endpoints[0].conditions.ready = Some(false);
        *slice = writer.replace(slice).await.unwrap();
    }
    [created - begun, cpu() - created].map(|seconds| seconds * 1000.0 / WRITES as f64)
}

/// What writing slices costs the server. The forms take turns, so that what else the machine does meets both.
async fn writes(cluster: &Cluster) {
    let client = cluster.admin().unwrap();
    let forms = [ContentType::Json, ContentType::Protobuf];
    let writers = forms.map(|form| SliceWriter::new(client.clone(), form));
    let header = ["CPU of the API server for a write", "JSON", "protobuf", "ratio"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for endpoints in [100, 10] {
        let mut new: Slice = serde_json::from_value(slice("", endpoints)).unwrap();
        (new.name, new.generate_name) = (None, Some("written-".into()));
        // Of creations and of replacements, in JSON and in protobuf.
        let mut sums = [[0.0; 2]; 2];
        for turn in 0..TURNS * 2 {
            let form = turn % 2;
            let spent = write_turn(cluster, &writers[form], &new).await;
            for (sums, spent) in sums.iter_mut().zip(spent) {
                sums[form] += spent / TURNS as f64;
            }
        }
        for (how, sums) in ["created", "replaced"].into_iter().zip(sums) {
            lines.push(write_row(format!("{endpoints} endpoints, {how}"), sums));
        }
    }
    println!("{}\n", table::markdown(&lines));
}

/// Sends a request with a body of this form, and returns the answer in the same form.
async fn exchange(
    client: &kube::Client,
    request: http::request::Builder,
    form: &str,
    body: Vec<u8>,
) -> Vec<u8> {
    let request = request.header("accept", form).header("content-type", form);
    let response = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

/// Replaces an object again and again by what the server has answered, with one digit changed. Returns the CPU time of the
/// server for one write, in milliseconds.
async fn rewrite_turn(cluster: &Cluster, path: &str, form: &str) -> f64 {
    let client = cluster.admin().unwrap();
    let mut object = exchange(&client, Request::get(path), form, Vec::new()).await;
    let begun = cluster.apiserver_cpu_seconds().unwrap();
    for _ in 0..WRITES {
        let digit = object.windows(MARK.len()).position(|part| part == MARK).unwrap() + MARK.len();
        object[digit] = if object[digit] == b'0' { b'1' } else { b'0' };
        object = exchange(&client, Request::put(path), form, object).await;
    }
    (cluster.apiserver_cpu_seconds().unwrap() - begun) * 1000.0 / WRITES as f64
}

/// What stands before the digit that changes.
const MARK: &[u8] = b"replaced-";

/// What replacing small objects costs the server: a Lease, as an elected leader renews it, and an Event.
async fn small_writes(cluster: &Cluster) {
    let metadata = json!({ "namespace": "bench", "name": "small" });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": { "holderIdentity": "replaced-0", "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": metadata, "type": "Normal", "count": 1,
        "reason": "Measured", "message": "replaced-0", "source": { "component": "bench" },
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": { "apiVersion": "v1", "kind": "Service", "namespace": "bench", "name": "web" },
    });
    cluster.create(&[lease, event]).await.unwrap();
    let rows = [
        ("a Lease, replaced", "/apis/coordination.k8s.io/v1/namespaces/bench/leases/small"),
        ("an Event, replaced", "/api/v1/namespaces/bench/events/small"),
    ];
    let header = ["CPU of the API server for a write", "JSON", "protobuf", "ratio"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (name, path) in rows {
        let mut sums = [0.0; 2];
        for turn in 0..TURNS * 2 {
            let form = [JSON_MEDIA_TYPE, MEDIA_TYPE][turn % 2];
            sums[turn % 2] += rewrite_turn(cluster, path, form).await / TURNS as f64;
        }
        lines.push(write_row(name.to_owned(), sums));
    }
    println!("{}\n", table::markdown(&lines));
}

const JSON_MEDIA_TYPE: &str = "application/json";

/// A row about a write, in JSON and in protobuf.
fn write_row(name: String, [json, protobuf]: [f64; 2]) -> Vec<String> {
    vec![
        name,
        format!("{json:.2} ms"),
        format!("{protobuf:.2} ms"),
        format!("{:.2}", protobuf / json),
    ]
}

/// What decoding one object costs.
async fn one_of_each(cluster: &Cluster) {
    let client = cluster.admin().unwrap();
    let service = objects::service("bench", "web", "web");
    cluster.create(&[pod(0), service, slice("web-1", 100)]).await.unwrap();
    let selected = |resource: Resource| {
        let selector = watch::query_parameter("fieldSelector", "metadata.namespace=bench");
        Resource { selector: selector.into(), ..resource }
    };
    let controller_pod: Read = |_, object| object.decode::<Pod>().map(drop);
    let controller_service: Read = |_, object| object.decode::<Service>().map(drop);
    let controller_slice: Read = |_, object| object.decode::<Slice>().map(drop);
    let proxy_service: Read = |reader, object| reader.decode_service(object).map(drop);
    let proxy_slice: Read = |reader, object| reader.decode_slice(object).map(drop);
    let rows = [
        ("Pod, controller", selected(watch::PODS), controller_pod),
        ("Service, controller", selected(watch::SERVICES), controller_service),
        ("Service, proxy", selected(watch::SERVICES), proxy_service),
        ("EndpointSlice of 100, controller", selected(watch::SLICES), controller_slice),
        ("EndpointSlice of 100, proxy", selected(watch::SLICES), proxy_slice),
    ];
    let header = ["one object", "bytes of JSON", "of protobuf", "JSON", "protobuf", "ratio"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (name, resource, read) in rows {
        lines.push(one_object(&client, name, &resource, read).await);
    }
    println!("{}\n", table::markdown(&lines));
}

/// What a list of slices costs.
async fn lists(cluster: &Cluster) {
    let slices: Vec<Value> =
        (0..SLICES).map(|n| slice(&format!("many-{n:05}"), ENDPOINTS)).collect();
    cluster.create(&slices).await.unwrap();
    let json = list(cluster, ContentType::Json).await;
    let protobuf = list(cluster, ContentType::Protobuf).await;
    let row = |name: &str, json: f64, protobuf: f64| {
        let cells = [json, protobuf].map(|seconds| format!("{seconds:.3} s"));
        let ratio = format!("{:.2}", protobuf / json);
        std::iter::once(name.to_owned()).chain(cells).chain([ratio]).collect::<Vec<_>>()
    };
    let title = format!("a list of {SLICES} EndpointSlices of {ENDPOINTS}");
    let header: Vec<String> =
        [&title, "JSON", "protobuf", "ratio"].into_iter().map(|cell| (*cell).to_owned()).collect();
    let lines = [
        header,
        row("request to last object", json.0.as_secs_f64(), protobuf.0.as_secs_f64()),
        row("CPU of the API server", json.1, protobuf.1),
    ];
    println!("{}\n", table::markdown(&lines));
}

const PARTS: [&str; 4] = ["objects", "lists", "writes", "ways"];

#[tokio::main]
async fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let asked: Vec<String> = std::env::args().skip(1).filter(|part| part != "--bench").collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(&part.as_str())) {
        println!("there is no part `{unknown}`; there are {}", PARTS.join(", "));
        return ExitCode::from(2);
    }
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    let cluster = Cluster::start_with(Options::default().production_memory()).await.unwrap();
    cluster.create(&[objects::namespace("bench")]).await.unwrap();
    for part in PARTS.into_iter().filter(|part| wanted(part)) {
        match part {
            "objects" => one_of_each(&cluster).await,
            "lists" => lists(&cluster).await,
            "writes" => {
                writes(&cluster).await;
                small_writes(&cluster).await;
            }
            _ => ways(&cluster).await,
        }
    }
    ExitCode::SUCCESS
}
