//! zonewise's own programs: whether they run, are of one version, and have applied what they should.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::keys::NODE_PROXY;
use zonewise_common::name::{CONTROLLER_NAME, GUARD_NAME, PROXY_NAME, SYSTEM_NAMESPACE};
use zonewise_common::proxy_report::{LEASE_PREFIX, ProxyReport};
use zonewise_topology::reason::{Code, Entry};

use super::controllers::{Mode, install, mode};
use super::nodes::verb;
use super::sights::tag;
use super::{Check, Part, PodSight, Sights, Subject, WORKLOAD_NAME, WorkloadSight, listed};
use crate::cpu_use::StoredUse;
use crate::environment::Sight;
use crate::screens::counted;

const NAMESPACE: Subject = Subject(Part::Installation, "namespace");
const CONTROLLER: Subject = Subject(Part::Installation, "controller");
const PROXIES: Subject = Subject(Part::Installation, "proxies");
const REPORTS: Subject = Subject(Part::Installation, "proxy-reports");
const REFUSED: Subject = Subject(Part::Installation, "kernel-accepts");
const BINDINGS: Subject = Subject(Part::Installation, "role-bindings");
const DEMAND: Subject = Subject(Part::Installation, "demand");
const CPU_USE: Subject = Subject(Part::Installation, "cpu-use");
const VERSIONS: Subject = Subject(Part::Installation, "versions");

/// Brings back what was deleted of the release.
const UPGRADE: &str = "helm upgrade zonewise deploy/chart -n zonewise-system --reuse-values";
/// The label by which Pod Security decides which Pods a namespace may have.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

pub(super) fn checks(sights: &Sights) -> Vec<Check> {
    match &sights.namespace {
        Sight::Seen(None) => {
            let missing = NAMESPACE.failed(
                "there is no namespace zonewise-system: zonewise is not installed",
                "install the chart; `zonewise check --pre` says whether the cluster is ready for it",
            );
            return vec![missing.with([install(sights)])];
        }
        Sight::Hidden(_) | Sight::Seen(Some(_)) => {}
    }
    let mut checks = vec![controller(sights)];
    checks.extend(proxies(sights));
    checks.extend(bindings(sights));
    checks.extend(reports(sights));
    checks.extend(refused(sights));
    checks.extend(demand(sights));
    checks.extend(cpu_use(sights));
    checks.extend(versions(sights));
    checks
}

fn controller(sights: &Sights) -> Check {
    let deployments = match &sights.deployments {
        Sight::Hidden(why) => return CONTROLLER.unknown(why),
        Sight::Seen(all) => all,
    };
    let Some(found) = deployments.iter().find(|one| one.name == CONTROLLER_NAME) else {
        let proxies = sights.proxy().is_some();
        let missing = "there is no Deployment zonewise-system/zonewise-controller";
        return if proxies {
            CONTROLLER.warning(
                format!("{missing}: the proxies follow what the built-in controller writes"),
                "install it for hints that do not flap, subsets and zone shares",
            )
        } else {
            CONTROLLER.failed(missing, "install the chart")
        }
        .with([install(sights)]);
    };
    if found.desired == 0 {
        return CONTROLLER
            .failed(
                "the Deployment zonewise-system/zonewise-controller has no replica: somebody has stopped the controller",
                "start it again",
            )
            .with(["kubectl -n zonewise-system scale deployment zonewise-controller --replicas=2"]);
    }
    rollout(CONTROLLER, found, &pods(sights, CONTROLLER_NAME), "deployment")
}

fn proxies(sights: &Sights) -> Option<Check> {
    let found = sights.proxy()?;
    let labels = sights.namespace.seen().and_then(Option::as_ref);
    let enforced = labels.and_then(|labels| labels.get(POD_SECURITY));
    if found.current < found.desired && enforced.is_some_and(|level| level != "privileged") {
        let level = enforced.map_or("", String::as_str);
        return Some(
            PROXIES
                .failed(
                    format!(
                        "{} of {} Pods exist: the namespace enforces Pod Security `{level}`, which forbids the node's network",
                        found.current, found.desired
                    ),
                    "allow privileged Pods in zonewise-system",
                )
                .with(["kubectl label namespace zonewise-system pod-security.kubernetes.io/enforce=privileged --overwrite"]),
        );
    }
    if found.desired == 0 {
        return Some(
            PROXIES
                .warning(
                    "the DaemonSet zonewise-system/zonewise-proxy matches no node",
                    "label nodes for it, or set proxy.nodes=all",
                )
                .with([format!("kubectl label node NODE {NODE_PROXY}=yes")]),
        );
    }
    Some(rollout(PROXIES, found, &pods(sights, PROXY_NAME), "daemonset"))
}

/// Whether what is installed still has its rights. Rules and slices stay without them, so that nothing else may show it.
fn bindings(sights: &Sights) -> Option<Check> {
    let of_controller = match mode(sights) {
        Mode::Guard => (GUARD_NAME, "deploy/guard/rbac.yaml"),
        Mode::Controller | Mode::Observe => (CONTROLLER_NAME, "deploy/controller/rbac.yaml"),
    };
    let of_proxy = (PROXY_NAME, "deploy/proxy/rbac.yaml");
    let (controller, proxy) = (sights.controller(), sights.proxy());
    let wanted = [controller.map(|_| of_controller), proxy.map(|_| of_proxy)];
    let found = match &sights.bindings {
        _ if wanted.iter().all(Option::is_none) => return None,
        Sight::Hidden(why) => return Some(BINDINGS.unknown(why)),
        Sight::Seen(found) => found,
    };
    let is_there = |(name, _): &(&str, &str)| found.contains(name);
    let (there, missing): (Vec<_>, Vec<_>) = wanted.into_iter().flatten().partition(is_there);
    if missing.is_empty() {
        let names = listed(there.into_iter().map(|(name, _)| name));
        return Some(BINDINGS.passed(format!("the programs have their rights ({names})")));
    }
    let (names, files): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
    let check = BINDINGS.failed(
        format!(
            "{} missing: {}; what runs without it does not learn of changes in the cluster",
            verb(names.len(), "ClusterRoleBinding is", "ClusterRoleBindings are"),
            listed(names)
        ),
        format!(
            "upgrade the release, which brings it back; without Helm, apply {} again",
            files.join(" and ")
        ),
    );
    Some(check.with([UPGRADE]))
}

/// The Pods of a program of zonewise.
fn pods<'a>(sights: &'a Sights, name: &str) -> Vec<&'a PodSight> {
    let all = sights.own_pods.seen().into_iter().flatten();
    all.filter(|pod| pod.has(WORKLOAD_NAME, name)).collect()
}

/// Whether all Pods of a program are ready and of the current version.
fn rollout(subject: Subject, found: &WorkloadSight, pods: &[&PodSight], kind: &str) -> Check {
    let WorkloadSight { name, desired, updated, ready, .. } = found;
    // A container that is about to start waits for nothing that somebody could fix.
    let starts = |reason: &str| ["ContainerCreating", "PodInitializing"].contains(&reason);
    let waiting = pods.iter().find_map(|pod| {
        let waiting = pod.waiting.as_ref().filter(|(reason, _)| !starts(reason))?;
        Some((pod, waiting))
    });
    if let Some((pod, (reason, message))) = waiting {
        let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
        let check = subject.failed(
            format!("the Pod {} waits: {reason}{message}", pod.key.1),
            remedy(reason, &pod.image),
        );
        let logs =
            format!("kubectl -n {SYSTEM_NAMESPACE} logs {} --all-containers --tail=20", pod.key.1);
        return check.with([logs]);
    }
    if ready < desired {
        return subject
            .failed(
                format!("{ready} of {desired} Pods of {name} are ready"),
                "the events and the log of the Pods say why",
            )
            .with([
                format!("kubectl -n {SYSTEM_NAMESPACE} describe pods -l {WORKLOAD_NAME}={name}"),
                format!("kubectl -n {SYSTEM_NAMESPACE} logs -l {WORKLOAD_NAME}={name} --tail=20"),
            ]);
    }
    if updated < desired {
        return subject
            .warning(
                format!("{updated} of {desired} Pods of {name} have the current version and configuration"),
                "wait for the rollout",
            )
            .with([format!("kubectl -n {SYSTEM_NAMESPACE} rollout status {kind} {name}")]);
    }
    subject.passed(format!(
        "{} of {name} ready, with the image {}",
        counted(pod_count(*ready), "Pod"),
        found.image
    ))
}

fn pod_count(ready: u64) -> usize {
    usize::try_from(ready).unwrap_or(usize::MAX)
}

/// What to do about a container that waits.
fn remedy(reason: &str, image: &str) -> String {
    match reason {
        "ImagePullBackOff" | "ErrImagePull" | "ErrImageNeverPull" | "InvalidImageName" => format!(
            "let image.repository and image.tag of the chart name an image that the nodes can pull, not {image}"
        ),
        "CreateContainerConfigError" => {
            "a ConfigMap or Secret that the Pod mounts is missing or wrong; install the chart again"
                .into()
        }
        _ => "its log says why it ends".into(),
    }
}

/// Whether every proxy that runs has a valid Lease.
fn reports(sights: &Sights) -> Option<Check> {
    let running: BTreeSet<&str> = pods(sights, PROXY_NAME)
        .into_iter()
        .filter(|pod| pod.ready)
        .map(|pod| pod.node.as_str())
        .collect();
    let leases = match &sights.facts.own_leases {
        Sight::Hidden(why) if !running.is_empty() => return Some(REPORTS.unknown(why)),
        Sight::Hidden(_) => return None,
        Sight::Seen(leases) => leases.iter().filter(|lease| lease.is_proxy()),
    };
    let current: BTreeSet<&str> =
        leases.filter(|one| one.is_current(sights.facts.now)).map(|one| &*one.holder).collect();
    let silent: Vec<&str> = running.difference(&current).copied().collect();
    match (running.len() + current.len(), silent.first()) {
        (0, _) => None,
        (_, None) => Some(REPORTS.passed(format!("{} to the controller", verb(current.len(), "proxy reports", "proxies report")))),
        (_, Some(first)) => Some(
            REPORTS
                .failed(
                    format!(
                        "{} ready without a current Lease: {}; the clock of the node is behind, or the proxy may not write its Lease",
                        verb(silent.len(), "proxy is", "proxies are"),
                        listed(silent.iter().copied())
                    ),
                    "if its log says that the Lease is forbidden, its Role or RoleBinding is missing, which an upgrade of the \
                     release brings back; otherwise synchronise the node's clock",
                )
                .with([
                    format!("kubectl -n zonewise-system get lease zonewise-proxy-{first} -o yaml"),
                    "kubectl -n zonewise-system logs -l app.kubernetes.io/name=zonewise-proxy --tail=20".to_owned(),
                    UPGRADE.to_owned(),
                ]),
        ),
    }
}

/// Services that a kernel does not accept.
fn refused(sights: &Sights) -> Option<Check> {
    let reports: Vec<&ProxyReport> = sights.reports.seen()?.iter().collect();
    let mut services: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for report in &reports {
        let node = node_of(report);
        for (namespace, name) in &report.refused {
            services.entry(format!("{namespace}/{name}")).or_default().push(node);
        }
    }
    let (service, on) = match services.iter().next() {
        Some(first) => first,
        None if reports.is_empty() => return None,
        None => return Some(REFUSED.passed("the kernels accept the rules of every Service")),
    };
    let check = REFUSED.failed(
        format!(
            "{} rejected by a kernel: {}; their former rules stay",
            verb(services.len(), "Service is", "Services are"),
            listed(services.keys().map(String::as_str))
        ),
        format!(
            "the log of the proxy on {} has the kernel's error for {service}",
            listed(on.iter().copied())
        ),
    );
    Some(check.with(["kubectl -n zonewise-system logs -l app.kubernetes.io/name=zonewise-proxy --tail=-1 | grep rejects"]))
}

/// Whether demand is measured, by all proxies, and what is stored of it can be used. Nothing where no proxy serves what it
/// has counted.
fn demand(sights: &Sights) -> Option<Check> {
    if let Some(problem) = sights.facts.demand.damage() {
        return Some(DEMAND.warning(
            format!("the ConfigMap zonewise-system/zonewise-demand cannot be used: {problem}"),
            "delete the ConfigMap; the leading controller writes it again with its next figures",
        ).with(["kubectl -n zonewise-system delete configmap zonewise-demand"]));
    }
    let reports = sights.reports.seen()?;
    let (serving, silent): (Vec<&ProxyReport>, Vec<&ProxyReport>) =
        reports.iter().partition(|report| report.demand.is_some());
    let services = sights.facts.demand.services();
    match (serving.len(), silent.first()) {
        (0, _) => None,
        (count, None) => Some(DEMAND.passed(format!(
            "{} counts by Service; the shares of {} computed from them",
            verb(count, "proxy serves", "proxies serve"),
            verb(services, "Service are", "Services are"),
        ))),
        (_, Some(_)) => {
            let nodes = silent.iter().map(|report| node_of(report));
            Some(DEMAND.warning(
                format!(
                    "{} no counts by Service: {}; the traffic of their nodes is estimated from their CPU",
                    verb(silent.len(), "proxy serves", "proxies serve"),
                    listed(nodes)
                ),
                "give every proxy --count services and --demand-address (docs/demand.md), or free the port on these nodes",
            ))
        }
    }
}

/// Whether the CPU that endpoints use is read, where Services ask for that. What damaged the ConfigMap is said by `demand`, and only
/// the mode `controller` can read it.
fn cpu_use(sights: &Sights) -> Option<Check> {
    let asking = match &sights.asking_by_use {
        _ if mode(sights) != Mode::Controller => return None,
        Sight::Hidden(why) => return Some(CPU_USE.unknown(why)),
        Sight::Seen(asking) if asking.is_empty() => return None,
        Sight::Seen(asking) => asking,
    };
    let services = verb(asking.len(), "Service", "Services");
    let names = listed(asking.iter().map(String::as_str));
    let missing = |code: Code| {
        let &Entry { sentence, remedy, .. } = code.entry();
        CPU_USE.warning(format!("{sentence}; this is about {services}: {names}"), remedy)
    };
    match sights.facts.demand.by_use() {
        StoredUse::Unknown if sights.facts.demand.damage().is_some() => None,
        StoredUse::Unknown => {
            Some(CPU_USE.unknown("the ConfigMap zonewise-system/zonewise-demand cannot be read"))
        }
        StoredUse::Nothing => {
            let command = format!("{UPGRADE} --set demand.podMetrics=true");
            Some(missing(Code::UseNotCollected).with([command]))
        }
        StoredUse::Known(state) => Some(match state.fault {
            Some(fault) => missing(fault.code()),
            None => CPU_USE.passed(format!(
                "the CPU that endpoints use is read; those of {services} count by it"
            )),
        }),
    }
}

/// The node of a proxy.
fn node_of(report: &ProxyReport) -> &str {
    report.lease.1.strip_prefix(LEASE_PREFIX).unwrap_or(&report.lease.1)
}

/// Whether controller and proxies are of one version.
fn versions(sights: &Sights) -> Option<Check> {
    let mut images: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in [CONTROLLER_NAME, PROXY_NAME] {
        for pod in pods(sights, name) {
            images.entry(tag(&pod.image)).or_default().insert(name);
        }
    }
    let found: Vec<String> = images
        .iter()
        .map(|(version, names)| format!("{version} ({})", listed(names.iter().copied())))
        .collect();
    match found.as_slice() {
        [] => None,
        [one] => Some(VERSIONS.passed(format!("controller and proxies are of one version: {one}"))),
        several => Some(
            VERSIONS
                .warning(
                    format!("several versions run: {}", several.join(", ")),
                    "wait for the rollout, or upgrade the release; versions next to each other work together",
                )
                .with([
                    "kubectl -n zonewise-system rollout status deployment zonewise-controller",
                    "kubectl -n zonewise-system rollout status daemonset zonewise-proxy",
                ]),
        ),
    }
}
