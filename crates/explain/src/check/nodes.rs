//! Zones, CPU, readiness and kernels of nodes.

use std::collections::BTreeMap;

use super::{Check, NodeSight, Part, Sights, Stage, Subject, listed, version};
use crate::environment::Sight;
use crate::screens::counted;

const ZONES: Subject = Subject(Part::Nodes, "node-zones");
const CPU: Subject = Subject(Part::Nodes, "node-cpu");
const READY: Subject = Subject(Part::Nodes, "nodes-ready");
const KERNEL: Subject = Subject(Part::Nodes, "node-kernels");

/// The oldest kernel that the proxy runs on, and the first with tables that outlive their owner.
const OLDEST_KERNEL: (u32, u32) = (5, 13);
const WITH_PERSISTENT_TABLES: (u32, u32) = (6, 9);

pub(super) fn checks(sights: &Sights, stage: Stage) -> Vec<Check> {
    let all = match &sights.nodes {
        Sight::Hidden(why) => return vec![ZONES.unknown(why)],
        Sight::Seen(nodes) => nodes,
    };
    let workers: Vec<&NodeSight> = all.iter().filter(|one| !one.node.control_plane).collect();
    let mut checks = vec![zones(&workers), cpu(&workers), ready(all)];
    if stage == Stage::Before || sights.proxy().is_some() {
        checks.push(kernels(all));
    }
    checks
}

fn zones(workers: &[&NodeSight]) -> Check {
    let without = workers.iter().filter(|one| one.node.zone.is_none());
    let without: Vec<&str> = without.map(|one| one.name()).collect();
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in workers.iter().filter_map(|one| one.node.zone.as_deref()) {
        *zones.entry(zone).or_default() += 1;
    }
    let counts: Vec<String> =
        zones.iter().map(|(zone, nodes)| format!("{zone} ({nodes})")).collect();
    if workers.is_empty() {
        return ZONES.failed(
            "the cluster has no node but those of the control plane",
            "add nodes; traffic is shared out by the nodes that run Pods",
        );
    }
    if let Some(first) = without.first() {
        return ZONES
            .failed(
                format!(
                    "{} without the label topology.kubernetes.io/zone: {}; their endpoints and traffic belong to no zone",
                    counted(without.len(), "node"),
                    listed(without.iter().copied())
                ),
                "label them; cloud providers do that by themselves when their controller runs",
            )
            .with([format!("kubectl label node {first} topology.kubernetes.io/zone=ZONE")]);
    }
    let found = format!("{} in {}", counted(workers.len(), "node"), counted(zones.len(), "zone"));
    let found = format!("{found}: {}", listed(counts.iter().map(String::as_str)));
    if zones.len() == 1 {
        return ZONES.warning(found, "with one zone there is no traffic between zones to save");
    }
    ZONES.passed(found)
}

fn cpu(workers: &[&NodeSight]) -> Check {
    let without = workers.iter().filter(|one| one.node.ready && one.node.cpu_milli.is_none());
    let without: Vec<&str> = without.map(|one| one.name()).collect();
    if without.is_empty() {
        return CPU.passed("every ready node reports its CPU");
    }
    CPU.failed(
        format!(
            "{} no allocatable CPU: {}; no hints by CPU are assigned while that is so",
            verb(without.len(), "node reports", "nodes report"),
            listed(without)
        ),
        "see why their kubelets do not report status.allocatable.cpu, or let nodes count as equally large: \
         controller.configuration.capacity.missingCpu=count-nodes",
    )
    .with([upgrade("controller.configuration.capacity.missingCpu=count-nodes")])
}

/// A release's command with one value more.
pub(super) fn upgrade(value: &str) -> String {
    format!("helm upgrade zonewise deploy/chart -n zonewise-system --reuse-values --set {value}")
}

fn ready(nodes: &[NodeSight]) -> Check {
    let not_ready: Vec<&str> =
        nodes.iter().filter(|one| !one.node.ready).map(NodeSight::name).collect();
    if not_ready.is_empty() {
        return READY.passed(format!("{} ready", counted(nodes.len(), "node")));
    }
    READY.warning(
        format!(
            "{} not ready: {}; their CPU does not count",
            verb(not_ready.len(), "node is", "nodes are"),
            listed(not_ready.iter().copied())
        ),
        "`kubectl describe node` says why",
    )
}

fn kernels(nodes: &[NodeSight]) -> Check {
    let with_kernel = nodes.iter().filter(|one| one.linux);
    let known: Vec<(&NodeSight, (u32, u32))> =
        with_kernel.filter_map(|one| Some((one, version(&one.kernel)?))).collect();
    let old = known.iter().filter(|(_, number)| *number < OLDEST_KERNEL);
    let old: Vec<String> = old.map(|(one, _)| format!("{} ({})", one.name(), one.kernel)).collect();
    if !old.is_empty() {
        return KERNEL
            .failed(
                format!(
                    "kernels before 5.13, on which the proxy does not run: {}",
                    listed(old.iter().map(String::as_str))
                ),
                "give these nodes a newer kernel, or keep the proxy away from them (proxy.nodeSelector)",
            )
            .with(["zonewise proxy --check-kernel   # on the node: what is missing, and how to get it"]);
    }
    if known.is_empty() {
        return KERNEL.unknown("the nodes do not say which kernel they have");
    }
    let older = known.iter().filter(|(_, number)| *number < WITH_PERSISTENT_TABLES).count();
    let remark = match older {
        0 => String::new(),
        older => format!(
            "; on {older} of them, before 6.9, rules that another program flushes are back within a second"
        ),
    };
    KERNEL.passed(format!("the kernels of {} are new enough{remark}", counted(known.len(), "node")))
}

/// `1 node is`, `2 nodes are`.
pub(super) fn verb(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}
