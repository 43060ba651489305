//! What has to hold when nothing has happened for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use zonewise_common::keys::SERVICE_NAME;
use zonewise_nft::simulated::Destination;

use crate::documents;
use crate::driver::Driver;
use crate::model::{Activity, Name};
use crate::processes::Node;

/// How long a proxy needs to program a kernel without tables, in a cluster without faults.
const FRESH: Duration = Duration::from_secs(6);

/// The most requests of one process in the quiet time before the check: a controller asks for its Lease every two
/// seconds, a proxy renews its report every ten.
const MOST_REQUESTS: u64 = 30;

/// The first thing that does not hold. `before` is what had been done when the quiet time began, `node` the one whose
/// kernel is compared with a fresh one.
pub(crate) async fn problem(driver: &Driver, before: &Activity, node: &Node) -> Option<String> {
    if let Some(problem) = unrest(before, &driver.wire.model.lock().activity()) {
        return Some(problem);
    }
    let wrong = wrong_slices(driver).await;
    let wrong = wrong.or_else(|| driver.nodes.iter().find_map(|node| wrong_rules(driver, node)));
    let wrong = wrong.or_else(|| stale_flow(driver)).or_else(|| unhealthy(driver));
    if wrong.is_some() {
        return wrong;
    }
    match documents::problem(&driver.wire).await {
        None => not_fresh(driver, node).await,
        problem => problem,
    }
}

/// What was asked for or written although nothing happened.
fn unrest(before: &Activity, now: &Activity) -> Option<String> {
    let more = now.slice_writes - before.slice_writes;
    if more > 0 {
        return Some(format!("{more} slices were written although nothing happened"));
    }
    let sent = |process: &str| before.requests.get(process).copied().unwrap_or_default();
    let busy = now.requests.iter().map(|(process, count)| (process, count - sent(process)));
    let (process, count) = busy.max_by_key(|(_, count)| *count)?;
    (count > MOST_REQUESTS)
        .then(|| format!("{process} sent {count} requests although nothing happened"))
}

/// The ready addresses in the slices of each Service.
async fn ready_in_slices(driver: &Driver) -> BTreeMap<Name, BTreeSet<IpAddr>> {
    let mut ready: BTreeMap<Name, BTreeSet<IpAddr>> = BTreeMap::new();
    for slice in driver.wire.list("/apis/discovery.k8s.io/v1/endpointslices").await {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &slice["metadata"];
        let key = (text(&metadata["namespace"]), text(&metadata["labels"][SERVICE_NAME]));
        let addresses = ready.entry(key).or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] == true {
                addresses.extend(text(&endpoint["addresses"][0]).parse::<IpAddr>());
            }
        }
    }
    ready
}

/// The slices hold the ready Pods of every Service that exists, and of no other.
async fn wrong_slices(driver: &Driver) -> Option<String> {
    let mut stored = ready_in_slices(driver).await;
    // Kubernetes' own Service, which no controller of ours writes slices for.
    stored.retain(|(namespace, _), _| namespace != "default");
    let model = driver.wire.model.lock();
    for (name, facts) in &model.services {
        let wanted: BTreeSet<IpAddr> =
            facts.addresses.iter().flat_map(|address| model.ready(name, *address)).collect();
        let there = stored.remove(name).unwrap_or_default();
        if wanted != there {
            let (namespace, name) = name;
            return Some(format!(
                "{namespace}/{name} has the ready Pods {wanted:?}, its slices {there:?}"
            ));
        }
    }
    let ((namespace, name), _) = stored.first_key_value()?;
    Some(format!("there are slices of {namespace}/{name}, which does not exist"))
}

/// On a node, every packet to a Service with ready Pods reaches one of them, and no packet to one without.
pub(crate) fn wrong_rules(driver: &Driver, node: &Node) -> Option<String> {
    let model = driver.wire.model.lock();
    model.services.iter().find_map(|(name, facts)| {
        let wrong = facts.packets().find_map(|packet| {
            let found = node.kernel.look(|rules| rules.destinations(&packet));
            wrong_destination(&model.ready(name, packet.destination), &found)
        })?;
        let (node, (namespace, name)) = (&node.name, name);
        Some(format!("on {node}, {namespace}/{name} {wrong}"))
    })
}

/// A proxy that has nothing to do is healthy.
fn unhealthy(driver: &Driver) -> Option<String> {
    let node = driver.nodes.iter().find(|node| node.healthz() != Some(200))?;
    Some(format!(
        "/healthz on {} answers {:?} although its rules are right",
        node.name,
        node.healthz()
    ))
}

fn wrong_destination(ready: &BTreeSet<IpAddr>, found: &BTreeSet<Destination>) -> Option<String> {
    let wrong = found.iter().find(|destination| match destination {
        Destination::Endpoint(endpoint) => !ready.contains(&endpoint.ip()),
        _ => !ready.is_empty(),
    })?;
    Some(format!("with the ready Pods {ready:?} leads to {wrong:?}"))
}

/// No UDP flow to a Service leads to an endpoint that is not ready, if others are. Flows of a Service without
/// endpoints stay, as with kube-proxy: there is no better place for them.
fn stale_flow(driver: &Driver) -> Option<String> {
    let model = driver.wire.model.lock();
    for node in &driver.nodes {
        for flow in node.kernel.flows() {
            let (to, endpoint) = (flow.original.dst, flow.reply.src);
            let Some((name, _)) =
                model.services.iter().find(|(_, facts)| facts.addresses.contains(&to))
            else {
                continue;
            };
            let ready = model.ready(name, to);
            if !ready.is_empty() && !ready.contains(&endpoint) {
                let (node, (namespace, name)) = (&node.name, name);
                return Some(format!(
                    "on {node}, a flow to {namespace}/{name} still leads to {endpoint}, which is not ready"
                ));
            }
        }
    }
    None
}

/// The kernel of a node holds what a proxy writes that has just started on one without tables.
async fn not_fresh(driver: &Driver, node: &Node) -> Option<String> {
    let fresh = node.fresh(&driver.wire);
    sleep(FRESH).await;
    let difference = difference(&fresh.listing(), &node.kernel.listing())?;
    Some(format!("the kernel of {} is not a fresh start's: {difference}", node.name))
}

/// The first line in which two listings differ.
fn difference(wanted: &[String], there: &[String]) -> Option<String> {
    let [wanted, there] = [wanted, there].map(|listing| listing.iter().collect::<BTreeSet<_>>());
    let missing = wanted.difference(&there).next().map(|line| format!("`{line}` is missing"));
    missing.or_else(|| there.difference(&wanted).next().map(|line| format!("`{line}` is too much")))
}
