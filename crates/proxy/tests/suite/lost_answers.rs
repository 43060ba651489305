//! Answers of the kernel that get lost, on a kernel in memory that loses them at the right moment.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use zonewise_nft::Network;
use zonewise_nft::conntrack::{Flow, Tuple};
use zonewise_nft::simulated::{Call, Destination, Packet, SimulatedFault, SimulatedKernel};
use zonewise_proxy::config::Config;
use zonewise_proxy::testing::Options;
use zonewise_proxy::{Host, RunError, Timeline};
use zonewise_routing::NodeLocation;
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::{eventually_equals, objects};

use crate::common::live::Api;
use crate::common::objects::{endpoint, service, slice};
use crate::common::{Tables, at, ip, usual_node};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOBUFS: i32 = 105;

/// A kernel with this fault in changes, and that lets nobody read it, while the switch is on.
fn failing_kernel(fault: SimulatedFault) -> (SimulatedKernel, Arc<AtomicBool>) {
    let (kernel, failing) = (SimulatedKernel::new(true), Arc::new(AtomicBool::new(false)));
    let switch = Arc::clone(&failing);
    kernel.set_hook(move |call| match (switch.load(Ordering::SeqCst), call.is_commit()) {
        (false, _) => None,
        (true, true) => Some(fault),
        (true, false) => Some(SimulatedFault::NotSent(EIO)),
    });
    (kernel, failing)
}

/// The tables of node n1 in zone a.
fn tables_on(kernel: &SimulatedKernel) -> Tables {
    tables_with(kernel, Options::default())
}

fn tables_with(kernel: &SimulatedKernel, options: Options) -> Tables {
    let location = NodeLocation::new("n1", Some("a"), None);
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    Tables::on(&Network::simulated(kernel.process()), location, options, node)
}

/// Where connections to the Service of these tests go.
fn destinations(kernel: &SimulatedKernel) -> BTreeSet<Destination> {
    kernel.look(|rules| rules.destinations(&packet()))
}

/// The same after each change of the tables from now on.
fn observed_destinations(kernel: &SimulatedKernel) -> Arc<Mutex<Vec<BTreeSet<Destination>>>> {
    let observed = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&observed);
    kernel.set_observer(move |rules| log.lock().unwrap().push(rules.destinations(&packet())));
    observed
}

fn packet() -> Packet {
    Packet {
        source: ip("10.244.9.9"),
        destination: ip("10.96.0.1"),
        protocol: 6,
        port: 80,
        local: BTreeSet::new(),
    }
}

/// A Service with this many endpoints.
fn scaled_to(tables: &mut Tables, endpoints: u8) -> &mut Tables {
    with_endpoints(tables, &Vec::from_iter(1..=endpoints))
}

fn with_endpoints<'a>(tables: &'a mut Tables, numbers: &[u8]) -> &'a mut Tables {
    let members: Vec<_> =
        numbers.iter().map(|&number| endpoint([10, 244, 0, number], "n1", "a")).collect();
    tables.slice(&slice("web", "web-1", &members))
}

fn expected(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<Destination> {
    let address = |number| at([10, 244, 0, number].into(), 8080);
    numbers.into_iter().map(|number| Destination::Endpoint(address(number))).collect()
}

/// The removal of a slot failed, and the tables could not be compared after it. The slot may be gone or not: it is
/// written when the Service needs it again, for the same endpoint or for another one.
#[test]
fn a_slot_whose_removal_failed_is_written_when_it_is_needed_again() {
    for (fault, again) in [
        (SimulatedFault::AnswerLost, 3),
        (SimulatedFault::AnswerLost, 4),
        (SimulatedFault::Refused(EBUSY), 3),
        (SimulatedFault::Refused(EBUSY), 4),
    ] {
        let (kernel, failing) = failing_kernel(fault);
        let mut tables = tables_on(&kernel);
        tables.service(&service("web", &["10.96.0.1"]));
        scaled_to(&mut tables, 3).sync();
        assert_eq!(destinations(&kernel), expected(1..=3));
        scaled_to(&mut tables, 2).sync();
        failing.store(true, Ordering::SeqCst);
        tables.kernel.remove_unused().unwrap_err();
        tables.kernel.restore().unwrap_err();
        failing.store(false, Ordering::SeqCst);
        with_endpoints(&mut tables, &[1, 2, again]).sync();
        let wanted = expected([1, 2, again]);
        assert_eq!(destinations(&kernel), wanted, "{fault:?}");
        tables.kernel.remove_unused().unwrap();
        assert_eq!(destinations(&kernel), wanted, "{fault:?}");
    }
}

/// A packet that is on its way while a batch takes effect finds its new elements, but no rules in its new chains. So a
/// chain is there before anything leads to it; if the kernel then refuses what does, the chain is removed later.
#[test]
fn chains_are_there_before_anything_leads_to_them() {
    let (kernel, calls) = (SimulatedKernel::new(true), Arc::new(Mutex::new(Vec::new())));
    let mut tables = tables_on(&kernel);
    tables.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut tables, 3).sync();
    let (log, refuse) = (Arc::clone(&calls), Arc::new(AtomicBool::new(false)));
    let refusing = Arc::clone(&refuse);
    kernel.set_hook(move |call| {
        let words = call.description();
        let of_elements = words.contains("elements");
        log.lock().unwrap().push(words);
        (of_elements && refusing.load(Ordering::SeqCst)).then_some(SimulatedFault::Refused(EINVAL))
    });
    scaled_to(&mut tables, 4).sync();
    let adds = |text: &str| text.contains("add chain ip zonewise clusterip-4");
    let sent: Vec<String> = std::mem::take(&mut calls.lock().unwrap());
    let [chains, elements] = &sent[..] else { panic!("two batches: {sent:?}") };
    assert_eq!((adds(chains), adds(elements)), (true, false), "{sent:?}");
    assert!(!chains.contains("elements"), "{sent:?}");
    assert_eq!(destinations(&kernel), expected(1..=4));

    let before = kernel.listing();
    refuse.store(true, Ordering::SeqCst);
    assert_eq!(scaled_to(&mut tables, 5).try_sync().unwrap().len(), 1);
    assert_eq!(destinations(&kernel), expected(1..=4));
    refuse.store(false, Ordering::SeqCst);
    scaled_to(&mut tables, 4).sync();
    tables.kernel.remove_unused().unwrap();
    assert_eq!(tables.kernel.unused(), 0);
    let chains = |listing: &[String]| -> BTreeSet<String> {
        listing.iter().filter(|line| line.contains("clusterip-")).cloned().collect()
    };
    assert!(chains(&kernel.listing()).is_subset(&chains(&before)));
}

/// One Service changes, and the kernel rejects that. Only if it carries out other batches, the Service is at fault.
#[test]
fn a_kernel_that_carries_out_nothing_is_no_fault_of_a_service() {
    for fault in [
        SimulatedFault::Refused(ENOMEM),
        SimulatedFault::NotSent(ENOBUFS),
        SimulatedFault::Refused(EINVAL),
    ] {
        for everything in [true, false] {
            let kernel = SimulatedKernel::new(true);
            let mut tables = tables_on(&kernel);
            tables.service(&service("web", &["10.96.0.1"]));
            scaled_to(&mut tables, 3).sync();
            kernel.set_hook(move |call| {
                let of_service = call.description().contains("elements of set");
                (everything || of_service).then_some(fault)
            });
            let result = scaled_to(&mut tables, 2).try_sync();
            let rejected = result.map(|rejected| rejected.len()).ok();
            assert_eq!(rejected, (!everything).then_some(1), "{fault:?}, {everything}");
            kernel.set_hook(|_| None);
            scaled_to(&mut tables, 1).sync();
            assert_eq!(destinations(&kernel), expected(1..=1));
        }
    }
}

/// The change that gave the Service its first endpoint was not answered, and the tables could not be compared after it.
/// When they can be, they are brought to what the Service is now, and not to what it was before: connections would be
/// rejected again for a moment.
#[test]
fn a_change_that_was_not_answered_is_not_taken_back() {
    let (kernel, failing) = failing_kernel(SimulatedFault::AnswerLost);
    let mut tables = tables_on(&kernel);
    tables.service(&service("web", &["10.96.0.1"])).sync();
    assert_eq!(destinations(&kernel), BTreeSet::from([Destination::Rejected]));
    failing.store(true, Ordering::SeqCst);
    scaled_to(&mut tables, 1).try_sync().unwrap_err();
    failing.store(false, Ordering::SeqCst);
    let seen = observed_destinations(&kernel);
    scaled_to(&mut tables, 2).sync();
    assert_eq!(*seen.lock().unwrap(), [expected(1..=2)]);
}

/// The answer to a change was lost that uses a slot again before it was removed. Before unused slots are removed the
/// tables are compared, so that it stays.
#[test]
fn a_slot_that_an_unanswered_change_uses_is_not_removed() {
    let (kernel, failing) = failing_kernel(SimulatedFault::AnswerLost);
    let mut tables = tables_on(&kernel);
    tables.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut tables, 3).sync();
    scaled_to(&mut tables, 2).sync();
    failing.store(true, Ordering::SeqCst);
    scaled_to(&mut tables, 3).try_sync().unwrap_err();
    failing.store(false, Ordering::SeqCst);
    tables.kernel.remove_unused().unwrap();
    assert_eq!(destinations(&kernel), expected(1..=3));
}

/// A proxy with other settings replaces the tables of the last one. That the kernel is busy is no fault of a Service:
/// the old tables stay until all of it can be written.
#[test]
fn a_busy_kernel_costs_no_service_its_rules_at_the_start() {
    let kernel = SimulatedKernel::new(true);
    let mut before = tables_on(&kernel);
    before.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut before, 2).sync();
    drop(before);
    kernel.set_hook(|call| {
        call.description()
            .contains("set ip zonewise services (")
            .then_some(SimulatedFault::Refused(EBUSY))
    });
    let mut after = tables_with(&kernel, Options { masquerade_all: true, ..Options::default() });
    after.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut after, 2).try_sync().unwrap_err();
    assert_eq!(destinations(&kernel), expected(1..=2));
    kernel.set_hook(|_| None);
    after.start();
    assert_eq!(destinations(&kernel), expected(1..=2));
}

/// A kernel that is short of memory for a moment refuses now this, now that. A Service is at fault only if it is
/// refused again and again.
#[test]
fn a_kernel_short_of_memory_costs_no_service_its_rules_at_the_start() {
    let kernel = SimulatedKernel::new(true);
    let mut before = tables_on(&kernel);
    before.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut before, 2).sync();
    drop(before);
    let mut refusals = 0..2;
    kernel.set_hook(move |call| {
        let with_service = call.description().contains("set ip zonewise services (");
        (with_service && refusals.next().is_some()).then_some(SimulatedFault::Refused(ENOMEM))
    });
    let mut after = tables_with(&kernel, Options { masquerade_all: true, ..Options::default() });
    after.service(&service("web", &["10.96.0.1"]));
    scaled_to(&mut after, 2).try_sync().unwrap();
    assert_eq!(destinations(&kernel), expected(1..=2));
}

/// A proxy of node n1 in zone a, on a kernel in memory and an API server.
struct Running {
    api: Api,
    kernel: SimulatedKernel,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// With Service `web`, which has this many endpoints.
    async fn start(kernel: SimulatedKernel, protocol: &str, endpoints: u8) -> Self {
        let api = Api::start().await;
        let mut node = objects::node("n1", "a", "4");
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.168.0.1"}]);
        let mut service = objects::service("default", "web", "web");
        service["spec"]["clusterIP"] = json!("10.96.0.7");
        service["spec"]["ports"][0]["protocol"] = json!(protocol);
        api.objects.create(&[node, service, slice_of(protocol, endpoints)]).await.unwrap();
        let host = Host::simulated(Network::simulated(kernel.process()), &[ip("192.168.0.1")]);
        let verify_period = Duration::from_secs(1);
        let config = Config { healthz: None, metrics: None, verify_period, ..Config::new("n1") };
        let shutdown = Shutdown::manual();
        let (client, timeline) = (api.client.clone(), Timeline::default());
        let run = zonewise_proxy::run(host, client, config, false, timeline, shutdown.clone());
        Self { task: tokio::spawn(run), api, kernel, shutdown }
    }

    async fn has_chain_of_three(&self, expected: bool) {
        let has = || self.kernel.listing().iter().any(|line| line.contains("chain clusterip-3"));
        eventually_equals("the chain of three endpoints is there", expected, has).await;
    }

    async fn stop(self) {
        self.shutdown.trigger();
        self.task.await.unwrap().unwrap();
    }
}

fn slice_of(protocol: &str, endpoints: u8) -> Value {
    let address = |number| IpAddr::from([10, 244, 0, number]);
    let endpoints: Vec<Value> =
        (1..=endpoints).map(|number| objects::endpoint(address(number), "n1", "a")).collect();
    let mut slice = objects::endpoint_slice("default", "web", "web-1", &endpoints);
    slice["ports"][0]["protocol"] = json!(protocol);
    slice
}

/// A chain that nothing leads to any more could not be removed, and the tables could not be read after it. It is removed
/// after the next verification.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_removed_is_removed_later() {
    let kernel = SimulatedKernel::new(true);
    let failed = refuses_a_removal_and_the_next_reading(&kernel);
    let proxy = Running::start(kernel, "TCP", 3).await;
    proxy.has_chain_of_three(true).await;
    proxy.api.objects.update(&[slice_of("TCP", 2)]).await.unwrap();
    eventually_equals("both have failed", 2, || failed.load(Ordering::SeqCst)).await;
    proxy.has_chain_of_three(false).await;
    proxy.stop().await;
}

/// Flows could not be read when an endpoint was gone. A flow to it is removed later.
#[tokio::test(flavor = "multi_thread")]
async fn flows_that_could_not_be_read_are_looked_at_again() {
    let kernel = SimulatedKernel::new(true);
    let proxy = Running::start(kernel.clone(), "UDP", 3).await;
    proxy.has_chain_of_three(true).await;
    let (client, service, endpoint) = (ip("10.244.9.9"), ip("10.96.0.7"), ip("10.244.0.3"));
    kernel.add_flow(Flow {
        protocol: 17,
        original: Tuple { src: client, dst: service, sport: 7, dport: 80 },
        reply: Tuple { src: endpoint, dst: client, sport: 8080, dport: 7 },
        destination_translated: true,
        id: None,
        zone: 0,
    });
    let failed = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&failed);
    kernel.set_hook(move |call| {
        let first = call.is_conntrack() && count.load(Ordering::SeqCst) == 0;
        count.fetch_add(u32::from(first), Ordering::SeqCst);
        first.then_some(SimulatedFault::Refused(ENOBUFS))
    });
    proxy.api.objects.update(&[slice_of("UDP", 2)]).await.unwrap();
    eventually_equals("reading flows has failed", 1, || failed.load(Ordering::SeqCst)).await;
    eventually_equals("flows", Vec::new(), || kernel.flows()).await;
    proxy.stop().await;
}

/// Counts what has failed.
fn refuses_a_removal_and_the_next_reading(kernel: &SimulatedKernel) -> Arc<AtomicU32> {
    let failed = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&failed);
    kernel.set_hook(move |call| {
        let removal = call.description() == "delete elements of set ip zonewise slots (1)";
        let fails = match count.load(Ordering::SeqCst) {
            0 => removal,
            1 => !call.is_commit(),
            _ => false,
        };
        count.fetch_add(u32::from(fails), Ordering::SeqCst);
        fails.then_some(SimulatedFault::NotSent(ENOBUFS))
    });
    failed
}

/// A batch was rejected for one Service, and was sent again in halves. The answer to the half of another Service was
/// lost: that one is not rejected, and its rules are not taken back.
#[test]
fn a_half_that_was_not_answered_is_not_rejected() {
    let kernel = SimulatedKernel::new(true);
    let mut tables = tables_on(&kernel);
    tables.service(&service("web", &["10.96.0.1"])).sync();
    // Both together, the first one alone, the second one alone.
    let mut faults = vec![
        SimulatedFault::AnswerLost,
        SimulatedFault::Refused(EINVAL),
        SimulatedFault::Refused(EINVAL),
    ];
    let of_elements = |call: &Call<'_>| call.description().contains("elements");
    kernel.set_hook(move |call| of_elements(call).then(|| faults.pop()).flatten());
    tables.service(&service("bad", &["10.96.0.2"]));
    scaled_to(&mut tables, 1).try_sync().unwrap_err();
    let seen = observed_destinations(&kernel);
    scaled_to(&mut tables, 2).sync();
    assert_eq!(*seen.lock().unwrap(), [expected(1..=2)]);
}
