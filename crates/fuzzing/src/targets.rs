//! The targets. Each reads its bytes as the product does, and checks what must hold of what was read.
#![allow(clippy::panic, reason = "a target reports what it finds by a panic")]

use std::cell::OnceCell;
use std::str;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, HeaderValue};
use kube::config::Kubeconfig;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use zonewise_apiserver::{Body, Config, InProcess};
use zonewise_common::encoded::Encoded;
use zonewise_common::json_list::Cutter;
use zonewise_common::protobuf::decode::Kind;
use zonewise_common::protobuf::envelope::WatchEvent;
use zonewise_common::protobuf::stream::{FrameCutter, ListCutter, ListMetadata};
use zonewise_common::protobuf::{self, kinds, reader};
use zonewise_common::proxy_report::ProxyReport;
use zonewise_controller::guard::{self, Outcome};
use zonewise_demand::cpu_use::{self, UseState};
use zonewise_demand::health::HealthState;
use zonewise_demand::notes::Notes;
use zonewise_demand::report::Report;
use zonewise_demand::state::State;
use zonewise_explain::top::exposition::samples;
use zonewise_explain::what_if::{WhatIf, what_if as tried};
use zonewise_explain::{Depth, Environment, Planner, ProxyKind, Snapshot, SnapshotBuilder, input};
use zonewise_nft::simulated::SimulatedKernel;
use zonewise_nft::{Family, Network};
use zonewise_routing::{NodeLocation, ObjectReader, ServiceClaims};
use zonewise_simulator::dataset::{self, Chunk};
use zonewise_slices::guard::{Others, ZoneAllocation};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::pod_metrics::PodMetrics;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::zone_shares::ZoneShares;

/// Objects as the controller reads them. What it writes back of a slice is what it has read.
pub(crate) fn controller_objects(bytes: &[u8]) {
    let Ok(json) = str::from_utf8(bytes) else { return };
    let _ = serde_json::from_str::<Node>(json);
    let _ = serde_json::from_str::<Pod>(json);
    let _ = serde_json::from_str::<PodMetrics>(json);
    let _ = serde_json::from_str::<Service>(json);
    if let Ok(slice) = serde_json::from_str::<Slice>(json) {
        let written = serde_json::to_string(&slice).unwrap_or_default();
        match serde_json::from_str::<Slice>(&written) {
            Ok(again) => assert_eq!(again.endpoints, slice.endpoints, "{written}"),
            Err(error) => panic!("what is written cannot be read: {error}: {written}"),
        }
    }
}

/// Objects as a proxy reads them.
pub(crate) fn proxy_objects(bytes: &[u8]) {
    let Ok(json) = str::from_utf8(bytes) else { return };
    let reader = ObjectReader::new(NodeLocation::new("a1", Some("a"), Some("eu")));
    let _ = reader.read_slice(json);
    if let Ok(service) = reader.read_service(json) {
        let _ = ServiceClaims::from(&service);
    }
}

/// Reviews that are sent to guard mode's webhook. Whatever it is sent, it allows the write, and changes nothing unless it
/// says so.
pub(crate) fn reviews(bytes: &[u8]) {
    for others in [Others::OwnZone, Others::NoHints] {
        let allocation = ZoneAllocation { others, ..ZoneAllocation::default() };
        let (answer, outcome) = guard::answer(bytes, |_| Some(allocation.clone()));
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        let is_patched = answer["response"]["patch"].is_string();
        assert_eq!(is_patched, outcome == Outcome::Patched, "{answer}");
    }
}

/// The annotation with zone shares. What was read can be written, and means the same again.
pub(crate) fn zone_shares(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(shares) = ZoneShares::decode(text) else { return };
    if let Ok(written) = shares.encode() {
        assert_eq!(ZoneShares::decode(&written).as_ref(), Ok(&shares), "{written}");
    }
}

/// Reports of proxies, and the stored demand. What was read can be written, and means the same again.
pub(crate) fn demand(bytes: &[u8]) {
    if let Ok(report) = Report::read(bytes)
        && let Ok(written) = report.write()
    {
        assert_eq!(Report::read(written.as_bytes()).as_ref(), Ok(&report), "{written}");
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(state) = State::decode(text) {
        let written = state.encode();
        let again = State::decode(&written).map(|state| state.encode());
        assert_eq!(again.as_ref(), Ok(&written), "{text}");
    }
    let notes = Notes::decode(text).encode(0);
    assert_eq!(Notes::decode(&notes).encode(0), notes, "{text}");
    if let Ok(failing) = HealthState::decode(text) {
        let written = failing.encode();
        let again = HealthState::decode(&written).map(|failing| failing.encode());
        assert_eq!(again.as_ref(), Ok(&written), "{text}");
    }
    if let Ok(by_use) = UseState::decode(text) {
        let written = by_use.encode(cpu_use::MAX_BYTES);
        let again = UseState::decode(&written).map(|by_use| by_use.encode(cpu_use::MAX_BYTES));
        assert_eq!(again.as_ref(), Ok(&written), "{text}");
    }
}

/// Pages of metrics, from which `top` takes what flows. What is left of them can be added up.
pub(crate) fn metrics_pages(bytes: &[u8]) {
    let page = String::from_utf8_lossy(bytes);
    for sample in samples(&page, "zonewise_service_bytes_total") {
        assert!(sample.value >= 0.0 && sample.value.is_finite(), "{sample:?}");
    }
}

/// What a page of the dashboard asks about the Services of the examples: an answer, or why there is none.
pub(crate) fn what_if(bytes: &[u8]) {
    let Ok(question) = serde_json::from_slice::<WhatIf>(bytes) else { return };
    thread_local!(static SHOP: Snapshot = shop());
    let planner = Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::default(),
        depth: Depth::Full,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    };
    SHOP.with(|shop| {
        for service in shop.services() {
            if let Ok(answer) = tried(shop, service, &planner, None, &question) {
                assert!(serde_json::to_string(&answer.document()).is_ok());
            }
        }
    });
}

/// The shop of the examples.
fn shop() -> Snapshot {
    let mut builder = SnapshotBuilder::default();
    let options = input::Options { keep_json: true };
    for bytes in crate::corpus::shop() {
        let read = input::read("shop", &*bytes, &options, &mut |item| builder.add(item), &|_| {});
        assert!(read.is_ok(), "{read:?}");
    }
    builder.finish(MissingCpu::default()).0
}

/// Lists, cut into items while they arrive. How they are divided into packets makes no difference.
pub(crate) fn list_cutter(bytes: &[u8]) {
    let cut = |size: usize| {
        let (mut cutter, mut items) = (Cutter::default(), Vec::new());
        bytes.chunks(size).for_each(|chunk| cutter.feed(chunk, |item| items.push(item.to_vec())));
        (items, cutter.rest().to_vec())
    };
    let whole = cut(bytes.len().max(1));
    for size in [1, 7] {
        assert_eq!(cut(size), whole, "in packets of {size} bytes");
    }
}

/// Objects, lists and watches in protobuf. How lists and watches are divided into packets makes no difference.
pub(crate) fn protobuf(bytes: &[u8]) {
    for kind in [&kinds::NODE, &kinds::POD, &kinds::SERVICE, &kinds::ENDPOINT_SLICE, &kinds::LEASE]
    {
        protobuf_object(kind, bytes);
        if let Ok(WatchEvent { envelope, .. }) = WatchEvent::read(bytes) {
            protobuf_object(kind, envelope.object);
        }
        let whole = cut_list(kind, bytes, bytes.len().max(1));
        for size in [1, 7] {
            assert_eq!(cut_list(kind, bytes, size), whole, "in packets of {size} bytes");
        }
    }
    let whole = cut_watch(bytes, bytes.len().max(1));
    for size in [1, 7] {
        assert_eq!(cut_watch(bytes, size), whole, "in packets of {size} bytes");
    }
}

/// An object as every reader reads it.
fn protobuf_object(kind: &'static Kind, bytes: &[u8]) {
    let object = Encoded::Protobuf(kind, bytes);
    let reader = ObjectReader::new(NodeLocation::new("a1", Some("a"), Some("eu")));
    let _ = (reader.decode_slice(object), reader.decode_service(object));
    let _ = (object.decode::<Node>(), object.decode::<Pod>(), object.decode::<Service>());
    let _ = (object.decode::<Slice>(), object.decode::<ProxyReport>());
    let _ = object.metadata::<serde_json::Value>();
}

/// The items of a list up to the first error, if it has no other.
fn cut_list(kind: &Kind, bytes: &[u8], size: usize) -> Option<(Vec<Vec<u8>>, ListMetadata)> {
    let (mut cutter, mut items) = (ListCutter::new(kind.name), Vec::new());
    for chunk in bytes.chunks(size) {
        cutter.feed(chunk, |item| items.push(item.to_vec())).ok()?;
    }
    Some((items, cutter.finish().ok()?))
}

/// The frames of a watch, and whether they ended with an error.
fn cut_watch(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut cutter, mut frames) = (FrameCutter::default(), Vec::new());
    let fed = bytes.chunks(size).try_for_each(|chunk| {
        cutter.feed::<reader::Error>(chunk, |frame| {
            frames.push(frame.to_vec());
            Ok(())
        })
    });
    (frames, fed.is_err())
}

/// What the kernel answers, whatever was asked.
pub(crate) fn netlink_answers(bytes: &[u8]) {
    let kernel = SimulatedKernel::new(true);
    let network = Network::simulated(kernel.process());
    kernel.answer_with(bytes);
    let (table, set) = ("zonewise", "services");
    if let Ok(mut socket) = network.socket() {
        let _ = socket.generation();
        let _ = socket.tables();
        let _ = socket.chains(Family::Ip, table);
        let _ = socket.sets(Family::Ip, table);
        let _ = socket.rules(Family::Ip6, table);
        let _ = socket.counters(Family::Ip, table);
        let _ = socket.dump(Family::Ip, table, set, &mut |_| {});
    }
    if let Ok(mut conntrack) = network.conntrack() {
        let _ = conntrack.flows(Family::Ip, None, &mut |_| {});
        let _ = conntrack.flows(Family::Ip6, Some(17), &mut |_| {});
    }
}

/// Manifests and dumps in YAML and JSON, and a kubeconfig.
pub(crate) fn manifests(bytes: &[u8]) {
    let mut builder = SnapshotBuilder::default();
    let options = input::Options { keep_json: true };
    let _ = input::read("fuzz", bytes, &options, &mut |item| builder.add(item), &|_| {});
    let (snapshot, _) = builder.finish(MissingCpu::default());
    for service in snapshot.services() {
        let _ = snapshot.proxy_view(service).parsed();
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = Kubeconfig::from_yaml(text);
    }
}

/// Data sets of the simulator.
pub(crate) fn data_sets(bytes: &[u8]) {
    let Ok((_, mut reader)) = dataset::csv::Reader::open("fuzz", bytes, None) else { return };
    let mut chunk = Chunk::default();
    let _ = reader.fill(dataset::CHUNK_ROWS, &mut chunk, &mut |_| {});
}

/// Configuration files, heuristics in CEL among them.
pub(crate) fn configuration(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(file) = zonewise_controller::config::File::parse("fuzz", text) {
        let _ = file.library();
        let _ = file.resolve("host");
    }
    if let Ok(settings) = zonewise_proxy::config::Settings::parse("fuzz", text) {
        let _ = settings.resolve("host");
    }
}

thread_local! {
    static SERVER: OnceCell<Option<Server>> = const { OnceCell::new() };
}

/// The embedded API server, and what runs it. One serves all inputs: a start takes longer than hundreds of requests.
struct Server {
    runtime: Runtime,
    server: InProcess,
}

impl Server {
    fn start() -> Option<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let start = async { InProcess::start(Config { workloads: false, ..Config::default() }) };
        let server = runtime.block_on(start).ok()?;
        Some(Self { runtime, server })
    }
}

/// The content types of writes to the embedded API server. The first byte of an input chooses one.
const CONTENT_TYPES: [&str; 6] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json",
    protobuf::MEDIA_TYPE,
];

/// Patches, server-side apply and creation of a Service in the embedded API server. Whatever it answers to them, it
/// goes on to serve what it has.
pub(crate) fn api_requests(bytes: &[u8]) {
    let [first, body @ ..] = bytes else { return };
    let content_type = CONTENT_TYPES[usize::from(*first) % CONTENT_TYPES.len()];
    SERVER.with(|server| {
        if let Some(Server { runtime, server }) = server.get_or_init(Server::start) {
            runtime.block_on(write(server, content_type, body));
        }
    });
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn write(server: &InProcess, content_type: &str, body: &[u8]) {
    // What the input before this one has left.
    let empty = request("DELETE", SERVICES, "application/json", Vec::new());
    let mut stored = zonewise_common::testing::full_service();
    if let Some(metadata) = stored["metadata"].as_object_mut() {
        metadata.retain(|field, _| ["name", "labels", "annotations"].contains(&field.as_str()));
    }
    let create = request("POST", SERVICES, "application/json", stored.to_string().into_bytes());
    let (method, path) = match content_type {
        "application/json" | protobuf::MEDIA_TYPE => ("POST", SERVICES.to_owned()),
        _ => ("PATCH", format!("{SERVICES}/web?fieldManager=fuzz&force=true")),
    };
    for request in [empty, create, request(method, &path, content_type, body.to_vec())] {
        let Some(request) = request else { return };
        if server.respond(request).await.is_err() {
            return;
        }
    }
    for form in ["application/json", protobuf::MEDIA_TYPE] {
        let Some(mut list) = request("GET", SERVICES, "", Vec::new()) else { return };
        list.headers_mut().insert(ACCEPT, HeaderValue::from_static(form));
        let Ok(response) = server.respond(list).await else { return };
        assert_eq!(response.status(), 200, "the list after the write");
        let Body::Whole(Some(body)) = response.into_body() else { panic!("the list has no body") };
        if form == protobuf::MEDIA_TYPE {
            let mut list = ListCutter::new("Service");
            let read = list.feed(&body, |_| {}).and_then(|()| list.finish());
            assert!(read.is_ok(), "{read:?}");
        }
    }
}

fn request(method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Option<Request<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    request.body(Bytes::from(body)).ok()
}
