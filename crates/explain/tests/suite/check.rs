//! What `zonewise check` concludes from what was seen: one fault at a time, in a cluster that is otherwise in order.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use zonewise_common::proxy_report::DemandServer;
use zonewise_explain::check::{
    CheckState, Checks, GuardSight, NodeSight, PodSight, Right, Sights, SliceWrite, Stage,
    WebhookSight, WorkloadKind, WorkloadSight, checks,
};
use zonewise_explain::environment::{Facts, Lease, ProxyConfig, ProxyPod, Sight, StoredDemand};
use zonewise_explain::screens::{self, Width};
use zonewise_inventory::demand;

mod modes;

use modes::{guarded, managed, observing};

const NOW: &str = "2026-01-01T12:00:00Z";
const ZONES: [&str; 3] = ["a", "b", "c"];

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn node(zone: &str) -> Value {
    json!({
        "metadata": {"name": format!("n-{zone}"), "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {
            "allocatable": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kernelVersion": "6.12.1", "operatingSystem": "linux"},
        },
    })
}

fn lease(name: &str, holder: &str, renewed: &str) -> Value {
    let labels =
        if name.contains("proxy") { json!({"zonewise.dev/component": "proxy"}) } else { json!({}) };
    json!({
        "metadata": {"namespace": "zonewise-system", "name": name, "labels": labels},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": renewed},
    })
}

fn pod(app: &str, node: &str, image: &str) -> PodSight {
    PodSight::of(&json!({
        "metadata": {
            "namespace": "zonewise-system", "name": format!("{app}-{node}"),
            "labels": {"app.kubernetes.io/name": app, "k8s-app": app},
        },
        "spec": {"nodeName": node, "containers": [{"image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn manager(arguments: &[&str]) -> PodSight {
    PodSight::of(&json!({
        "metadata": {"namespace": "kube-system", "name": "kube-controller-manager-x",
            "labels": {"component": "kube-controller-manager"}},
        "spec": {"nodeName": "n-a", "containers": [{"command": arguments}]},
    }))
}

const OFF: &str = "--controllers=*,-endpointslice-controller";

fn workload(kind: WorkloadKind, namespace: &str, name: &str, arguments: &[&str]) -> WorkloadSight {
    let pods = match kind {
        WorkloadKind::Deployment => {
            json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2})
        }
        WorkloadKind::DaemonSet => json!({
            "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberReady": 3,
        }),
    };
    let container = json!({"image": "zonewise:0.1.0", "args": arguments});
    WorkloadSight::of(
        kind,
        &json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            "status": pods,
        }),
    )
}

fn own_leases(renewed: &str) -> Vec<Value> {
    let proxies =
        ZONES.map(|zone| lease(&format!("zonewise-proxy-n-{zone}"), &format!("n-{zone}"), renewed));
    let mut leases = vec![lease("zonewise-controller", "controller-1", renewed)];
    leases.extend(proxies);
    leases
}

fn read_leases(values: &[Value]) -> Vec<Lease> {
    values.iter().map(|value| serde_json::from_value(value.clone()).unwrap()).collect()
}

/// What a controller stores that reads what Pods use, and has no figures yet.
fn stored_use(fault: Option<&str>) -> StoredDemand {
    let state = json!({"v": 1, "at": 0, "zones": [], "services": {}});
    let mut by_use = json!({"v": 1, "at": 0, "services": {}});
    if let Some(fault) = fault {
        by_use["f"] = fault.into();
    }
    let map = json!({
        "metadata": {"namespace": "zonewise-system", "name": "zonewise-demand"},
        "data": {"state": state.to_string(), "use": by_use.to_string()},
    });
    StoredDemand::from(demand::decode(map.to_string().as_bytes()).unwrap().unwrap())
}

/// Three zones; controller and proxies of zonewise in place of the built-in ones.
fn good() -> Sights {
    let leases = own_leases("2026-01-01T11:59:50Z");
    let proxies = leases[1..].iter().map(|one| serde_json::from_value(one.clone()).unwrap());
    let mut own_pods = vec![pod("zonewise-controller", "n-a", "zonewise:0.1.0")];
    own_pods
        .extend(ZONES.map(|zone| pod("zonewise-proxy", &format!("n-{zone}"), "zonewise:0.1.0")));
    let mut facts = Facts::of_cluster();
    facts.now = Some(now());
    facts.version = Some("v1.36.4".into());
    facts.own_leases = Sight::Seen(read_leases(&leases));
    facts.manager_lease = Sight::Seen(None);
    facts.proxy_pods = Sight::Seen(Vec::new());
    facts.demand = stored_use(None);
    let right = Right {
        verb: "list",
        group: "",
        resource: "nodes",
        namespace: "",
        purpose: "zones and CPU",
        allowed: Some(true),
    };
    Sights {
        facts,
        clocks: Some((now(), now())),
        nodes: Sight::Seen(ZONES.iter().map(|zone| NodeSight::of(&node(zone)).unwrap()).collect()),
        daemon_sets: Sight::Seen(vec![
            workload(
                WorkloadKind::DaemonSet,
                "zonewise-system",
                "zonewise-proxy",
                &["proxy", "--take-over"],
            ),
            workload(WorkloadKind::DaemonSet, "kube-system", "calico-node", &[]),
        ]),
        deployments: Sight::Seen(vec![workload(
            WorkloadKind::Deployment,
            "zonewise-system",
            "zonewise-controller",
            &["controller"],
        )]),
        own_pods: Sight::Seen(own_pods),
        system_pods: Sight::Seen(vec![manager(&["kube-controller-manager", OFF])]),
        namespace: Sight::Seen(Some(
            [("pod-security.kubernetes.io/enforce".into(), "privileged".into())].into(),
        )),
        reports: Sight::Seen(proxies.collect()),
        leading_since: Some("2026-01-01T10:00:00Z".parse().unwrap()),
        writes: Sight::Seen(Vec::new()),
        asking: Sight::Seen(vec!["shop/web".into()]),
        asking_by_use: Sight::Seen(vec!["shop/web".into()]),
        guard: Sight::Seen(GuardSight::default()),
        evacuations: Vec::new(),
        bindings: Sight::Seen(vec!["zonewise-controller", "zonewise-guard", "zonewise-proxy"]),
        rights: vec![right],
    }
}

/// What a cluster in order is changed by.
type Change = fn(&mut Sights);

fn judged(stage: Stage, change: Change) -> Checks {
    let mut sights = good();
    change(&mut sights);
    checks(&sights, stage)
}

fn seen<T>(sight: &mut Sight<T>) -> &mut T {
    match sight {
        Sight::Seen(value) => value,
        Sight::Hidden(why) => panic!("hidden: {why}"),
    }
}

/// The check that did not pass: its name, state, and all that is said about it.
fn fault(found: &Checks) -> Vec<(&'static str, CheckState, String)> {
    let bad = found.checks.iter().filter(|check| check.state != CheckState::Passed);
    let said = |check: &zonewise_explain::check::Check| {
        let fix = check.fix.clone().unwrap_or_default();
        format!("{} | {fix} | {}", check.finding, check.commands.join(" ; "))
    };
    bad.map(|check| (check.name, check.state, said(check))).collect()
}

#[test]
fn a_cluster_in_order_passes_every_check() {
    let found = judged(Stage::After, |_| ());
    assert_eq!(fault(&found), []);
    assert_eq!(found.state, CheckState::Passed);
    let names: Vec<&str> = found.checks.iter().map(|check| check.name).collect();
    let expected = [
        "kubernetes-version",
        "clock",
        "clocks-of-nodes",
        "rights",
        "node-zones",
        "node-cpu",
        "nodes-ready",
        "node-kernels",
        "service-proxy",
        "network-plugin",
        "second-writer",
        "services-that-ask",
        "controller",
        "proxies",
        "role-bindings",
        "proxy-reports",
        "kernel-accepts",
        "cpu-use",
        "versions",
    ];
    assert_eq!(names, expected);
}

const FAILED: CheckState = CheckState::Failed;
const WARNING: CheckState = CheckState::Warning;

/// Something wrong, the check that finds it, how bad it is, and what has to be said.
type Case = (Change, &'static str, CheckState, &'static [&'static str]);

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_fault_is_found_by_one_check_with_its_fix() {
    let cases: Vec<Case> = vec![
        (
            |s| s.facts.version = Some("v1.29.3".into()),
            "kubernetes-version",
            FAILED,
            &["1.29", "1.30 or later", "upgrade the cluster"],
        ),
        (
            |s| s.facts.version = Some("v1.31.0".into()),
            "kubernetes-version",
            WARNING,
            &["no ServiceCIDRs"],
        ),
        (
            |s| s.facts.version = Some("v1.37.0".into()),
            "kubernetes-version",
            WARNING,
            &["newer than 1.36"],
        ),
        (
            |s| s.clocks = Some((now() + SignedDuration::from_secs(90), now())),
            "clock",
            WARNING,
            &["90 s ahead of", "chrony"],
        ),
        (
            |s| s.clocks = Some((now() - SignedDuration::from_secs(90), now())),
            "clock",
            WARNING,
            &["90 s behind"],
        ),
        (
            |s| {
                seen(&mut s.facts.own_leases)[2].renewed =
                    Some(now() + SignedDuration::from_secs(40));
            },
            "clocks-of-nodes",
            FAILED,
            &["n-b", "synchronise the clocks"],
        ),
        (
            |s| s.rights[0].allowed = Some(false),
            "rights",
            FAILED,
            &["may not list nodes", "kubectl create clusterrolebinding"],
        ),
        (
            |s| seen(&mut s.nodes)[1].node.zone = None,
            "node-zones",
            FAILED,
            &["n-b", "kubectl label node n-b topology.kubernetes.io/zone=ZONE"],
        ),
        (
            |s| seen(&mut s.nodes).iter_mut().for_each(|one| one.node.zone = Some("a".into())),
            "node-zones",
            WARNING,
            &["1 zone", "no traffic between zones"],
        ),
        (
            |s| seen(&mut s.nodes)[0].node.cpu_milli = None,
            "node-cpu",
            FAILED,
            &["n-a", "missingCpu=count-nodes"],
        ),
        (
            |s| seen(&mut s.nodes)[2].node.ready = false,
            "nodes-ready",
            WARNING,
            &["n-c", "kubectl describe node"],
        ),
        (
            |s| seen(&mut s.nodes)[2].kernel = "4.18.0-553.el8".into(),
            "node-kernels",
            FAILED,
            &["n-c (4.18.0-553.el8)", "--check-kernel"],
        ),
        (
            |s| seen(&mut s.facts.proxy_pods).push(proxy_pod("n-b", false)),
            "service-proxy",
            FAILED,
            &["both run on n-b", "kubectl -n kube-system patch daemonset kube-proxy"],
        ),
        (
            |s| {
                seen(&mut s.facts.own_leases).truncate(1);
                seen(&mut s.reports).clear();
                seen(&mut s.own_pods).truncate(1);
                seen(&mut s.daemon_sets).remove(0);
            },
            "service-proxy",
            FAILED,
            &["no proxy was seen on any node", "proxy.mode=replace"],
        ),
        (
            |s| {
                s.facts.own_leases = Sight::Seen(read_leases(&own_leases(NOW)[..1]));
                seen(&mut s.reports).clear();
                seen(&mut s.own_pods).truncate(1);
                seen(&mut s.daemon_sets).remove(0);
                s.facts.proxy_pods = Sight::Seen(
                    ZONES.iter().map(|zone| proxy_pod(&format!("n-{zone}"), true)).collect(),
                );
                s.facts.configs =
                    vec![ProxyConfig::Cilium { replaces_kube_proxy: true, topology: false }];
            },
            "service-proxy",
            WARNING,
            &["hints have no effect", "loadBalancer.serviceTopology=true"],
        ),
        (
            |s| seen(&mut s.system_pods).push(pod("kube-proxy", "n-a", "kube-proxy:v1.31.2")),
            "kube-proxy-version",
            WARNING,
            &["kube-proxy v1.31.2 on n-a", "three minor versions older"],
        ),
        (
            |s| seen(&mut s.daemon_sets)[1].name = "ovnkube-node".into(),
            "network-plugin",
            WARNING,
            &["OVN-Kubernetes", "proxy.mode=none"],
        ),
        (
            |s| {
                seen(&mut s.system_pods)[0] =
                    manager(&["kube-controller-manager", "--leader-elect"]);
            },
            "second-writer",
            FAILED,
            &["both run", "--controllers=*,-endpointslice-controller"],
        ),
        (
            |s| seen(&mut s.writes).push(write("kube-controller-manager", "2026-01-01T11:00:00Z")),
            "second-writer",
            FAILED,
            &["shop/web-1", "has written 1 EndpointSlice since", "SecondWriter"],
        ),
        (
            |s| seen(&mut s.bindings).retain(|one| *one != "zonewise-proxy"),
            "role-bindings",
            FAILED,
            &[
                "1 ClusterRoleBinding is missing: zonewise-proxy;",
                "deploy/proxy/rbac.yaml",
                "helm upgrade",
            ],
        ),
        (
            |s| s.namespace = Sight::Seen(None),
            "namespace",
            FAILED,
            &["not installed", "helm install zonewise"],
        ),
        (
            |s| seen(&mut s.deployments).clear(),
            "controller",
            WARNING,
            &["no Deployment", "helm install zonewise"],
        ),
        (
            |s| seen(&mut s.deployments)[0].ready = 1,
            "controller",
            FAILED,
            &["1 of 2 Pods", "describe pods -l app.kubernetes.io/name=zonewise-controller"],
        ),
        (
            |s| seen(&mut s.deployments)[0].updated = 1,
            "controller",
            WARNING,
            &["current version", "rollout status deployment"],
        ),
        (
            |s| {
                seen(&mut s.own_pods)[0].waiting =
                    Some(("ImagePullBackOff".into(), "not found".into()));
            },
            "controller",
            FAILED,
            &["ImagePullBackOff (not found)", "image.repository"],
        ),
        (
            |s| seen(&mut s.own_pods)[1].waiting = Some(("CrashLoopBackOff".into(), String::new())),
            "proxies",
            FAILED,
            &["zonewise-proxy-n-a waits: CrashLoopBackOff", "logs zonewise-proxy-n-a"],
        ),
        (
            |s| {
                seen(&mut s.daemon_sets)[0].current = 0;
                seen(&mut s.daemon_sets)[0].ready = 0;
                s.namespace = Sight::Seen(Some(
                    [("pod-security.kubernetes.io/enforce".into(), "baseline".into())].into(),
                ));
            },
            "proxies",
            FAILED,
            &["Pod Security `baseline`", "enforce=privileged"],
        ),
        (
            |s| seen(&mut s.daemon_sets)[0].desired = 0,
            "proxies",
            WARNING,
            &["matches no node", "kubectl label node NODE zonewise.dev/proxy=yes"],
        ),
        (
            |s| seen(&mut s.reports)[1].refused = [("shop".into(), "web".into())].into(),
            "kernel-accepts",
            FAILED,
            &["shop/web", "the proxy on n-b"],
        ),
        (
            |s| {
                let demand = DemandServer { port: 10274, fingerprint: [1; 32] };
                seen(&mut s.reports)[0].demand = Some(demand);
            },
            "demand",
            WARNING,
            &["2 proxies serve no counts", "n-b, n-c", "--demand-address"],
        ),
        (
            |s| s.facts.demand = StoredDemand::damaged("it is cut off".into()),
            "demand",
            WARNING,
            &["zonewise-demand cannot be used: it is cut off", "delete configmap"],
        ),
        (
            |s| s.facts.demand = StoredDemand::default(),
            "cpu-use",
            WARNING,
            &["1 Service: shop/web", "all count the same", "--set demand.podMetrics=true"],
        ),
        (
            |s| s.facts.demand = stored_use(Some("missing")),
            "cpu-use",
            WARNING,
            &["shop/web", "metrics.k8s.io", "metrics-server"],
        ),
        (
            |s| seen(&mut s.own_pods)[1].image = "zonewise:0.2.0".into(),
            "versions",
            WARNING,
            &["0.1.0", "0.2.0", "rollout status"],
        ),
    ];
    each_is_found(cases);
}

fn each_is_found(cases: Vec<Case>) {
    for (change, name, state, words) in cases {
        let found = fault(&judged(Stage::After, change));
        let of_it = found.iter().find(|(found, ..)| *found == name);
        let Some((_, found_state, said)) = of_it else { panic!("{name} passes: {found:?}") };
        assert_eq!(*found_state, state, "{said}");
        for word in words {
            assert!(said.contains(word), "{name}: `{word}` is not in: {said}");
        }
        assert_eq!(found.len(), 1, "more than one check complains: {found:?}");
    }
}

fn proxy_pod(node: &str, cilium: bool) -> ProxyPod {
    ProxyPod { namespace: "kube-system".into(), node: node.into(), cilium }
}

fn write(manager: &str, time: &str) -> SliceWrite {
    let entry = json!({"manager": manager, "time": time});
    let slice =
        json!({"metadata": {"namespace": "shop", "name": "web-1", "managedFields": [entry]}});
    SliceWrite::of(&slice).remove(0)
}

/// Two things follow from one: a proxy whose Lease has expired is silent, and nobody knows what routes on its node.
/// kube-controller-manager reads its controllers from one word or two, from every occurrence, and by two names; the
/// first that fits counts.
#[test]
fn the_built_in_controller_is_off_however_it_was_turned_off() {
    for (arguments, off) in [
        (&["--controllers=*,-endpointslice"] as &[&str], true),
        (&["--controllers", "*,-endpointslice-controller"], true),
        (&["--controllers=*", "--controllers=-endpointslice-controller"], true),
        (&["--controllers=deployment-controller"], true),
        (&["--controllers=endpointslice,-endpointslice-controller"], false),
        (&["--controllers=-endpointslicemirroring-controller,*"], false),
        (&["--controllers"], false),
    ] {
        let mut sights = good();
        seen(&mut sights.system_pods)[0] = manager(arguments);
        let faults = fault(&checks(&sights, Stage::After));
        let named: Vec<&str> = faults.iter().map(|(name, ..)| *name).collect();
        assert_eq!(named, if off { vec![] } else { vec!["second-writer"] }, "{arguments:?}");
    }
}

#[test]
fn a_pod_that_is_about_to_start_is_no_fault() {
    for reason in ["ContainerCreating", "PodInitializing"] {
        let mut sights = good();
        seen(&mut sights.own_pods)[0].waiting = Some((reason.into(), String::new()));
        assert_eq!(fault(&checks(&sights, Stage::After)), [], "{reason}");
    }
}

/// Before an installation there is no role to bind.
#[test]
fn missing_rights_are_given_by_roles_only_once_they_are_there() {
    let commands = |stage| {
        let found = judged(stage, |s| s.rights[0].allowed = Some(false));
        found.checks.into_iter().find(|check| check.name == "rights").unwrap().commands.len()
    };
    assert_eq!([Stage::Before, Stage::After].map(commands), [0, 3]);
}

#[test]
fn a_proxy_that_does_not_renew_its_lease_is_named() {
    let found = judged(Stage::After, |s| {
        seen(&mut s.facts.own_leases)[1].renewed = Some("2026-01-01T11:00:00Z".parse().unwrap());
    });
    let found = fault(&found);
    assert!(
        found.iter().any(|(name, state, said)| *name == "proxy-reports"
            && *state == FAILED
            && said.contains("n-a")
            && said.contains("get lease zonewise-proxy-n-a")),
        "{found:?}"
    );
}

#[test]
fn a_controller_that_does_not_run_is_named_with_what_that_means() {
    let stopped: Change = |s| {
        let leases = seen(&mut s.facts.own_leases);
        leases[0].renewed = Some("2026-01-01T11:00:00Z".parse().unwrap());
    };
    let found = fault(&judged(Stage::After, stopped));
    let names: Vec<&str> = found.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["second-writer", "services-that-ask"], "{found:?}");
    assert!(found[0].2.contains("no controller writes EndpointSlices"), "{found:?}");
    assert!(found[1].2.contains("shop/web") && found[1].2.contains("no effect"), "{found:?}");
}

#[test]
fn before_an_installation_the_cluster_alone_is_judged() {
    let plain: Change = |s| {
        s.namespace = Sight::Seen(None);
        s.facts.own_leases = Sight::Seen(Vec::new());
        seen(&mut s.daemon_sets).remove(0);
        s.facts.proxy_pods =
            Sight::Seen(ZONES.iter().map(|zone| proxy_pod(&format!("n-{zone}"), false)).collect());
        seen(&mut s.system_pods)[0] = manager(&["kube-controller-manager"]);
    };
    assert_eq!(fault(&judged(Stage::Before, plain)), []);
    let managed = fault(&judged(Stage::Before, managed));
    assert_eq!(managed.len(), 1, "{managed:?}");
    assert!(
        managed[0].0 == "built-in-controller" && managed[0].2.contains("cannot be turned off"),
        "{managed:?}"
    );
}

/// In the mode `controller` two controllers would write the same slices where the built-in one cannot be turned off.
#[test]
fn the_command_that_installs_is_for_the_control_plane_that_was_seen() {
    let command = |stage: Stage, name: &str, change: Change| {
        let found = judged(stage, change);
        let check = found.checks.into_iter().find(|check| check.name == name).unwrap();
        check.commands.concat()
    };
    let install = "helm install zonewise deploy/chart -n zonewise-system --create-namespace \
        --set image.repository=REGISTRY/zonewise";
    let guard = format!("{install} --set controller.mode=guard");
    let own: Change = |s| seen(&mut s.system_pods)[0] = manager(&["kube-controller-manager"]);
    assert_eq!(command(Stage::Before, "built-in-controller", own), install);
    assert_eq!(command(Stage::Before, "built-in-controller", managed), guard);
    let not_installed: Change = |s| {
        managed(s);
        s.namespace = Sight::Seen(None);
    };
    assert_eq!(command(Stage::After, "namespace", not_installed), guard);
}

/// kube-proxy's DaemonSet may have terms of its own, which a merge would replace.
#[test]
fn kube_proxy_is_kept_away_without_a_loss_of_its_own_terms() {
    let commands = |terms: Value| {
        let mut sights = good();
        seen(&mut sights.facts.proxy_pods).push(proxy_pod("n-b", false));
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        seen(&mut sights.daemon_sets).push(WorkloadSight::of(
            WorkloadKind::DaemonSet,
            &json!({
                "metadata": {"namespace": "kube-system", "name": "kube-proxy"},
                "spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}},
            }),
        ));
        let found = checks(&sights, Stage::After).checks;
        found.into_iter().find(|check| check.name == "service-proxy").unwrap().commands
    };
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]});
    let merged = commands(json!([]));
    assert!(merged[1].contains("--type merge") && merged[1].contains("OnDelete"), "{merged:?}");
    let added = commands(json!([term("virtual"), term("fargate")]));
    for number in [0, 1] {
        let path = format!("/nodeSelectorTerms/{number}/matchExpressions/-");
        assert!(added[1].contains("--type json") && added[1].contains(&path), "{added:?}");
    }
    let label = "kubectl label node n-b zonewise.dev/proxy=yes --overwrite";
    assert_eq!(commands(json!([term("zonewise.dev/proxy")])), [label]);
}

/// The chart refuses the setting in other modes.
#[test]
fn only_the_mode_controller_is_asked_about_cpu_use() {
    let is_asked = |change: Change| {
        judged(Stage::After, change).checks.iter().any(|check| check.name == "cpu-use")
    };
    let changes: [Change; 3] = [|_| (), guarded, observing];
    assert_eq!(changes.map(is_asked), [true, false, false]);
}

/// What cannot be seen is neither good nor bad.
#[test]
fn what_is_hidden_is_unknown() {
    let hidden = || "not allowed".to_owned();
    let mut sights = good();
    sights.nodes = Sight::Hidden(hidden());
    sights.daemon_sets = Sight::Hidden(hidden());
    sights.deployments = Sight::Hidden(hidden());
    sights.own_pods = Sight::Hidden(hidden());
    sights.system_pods = Sight::Hidden(hidden());
    sights.namespace = Sight::Hidden(hidden());
    sights.reports = Sight::Hidden(hidden());
    sights.writes = Sight::Hidden(hidden());
    sights.asking = Sight::Hidden(hidden());
    sights.asking_by_use = Sight::Hidden(hidden());
    sights.guard = Sight::Hidden(hidden());
    sights.bindings = Sight::Hidden(hidden());
    sights.clocks = None;
    sights.facts = Facts::of_cluster();
    sights.rights[0].allowed = None;
    let found = checks(&sights, Stage::After);
    let known: Vec<&str> = found
        .checks
        .iter()
        .filter(|one| one.state != CheckState::Unknown)
        .map(|one| one.name)
        .collect();
    assert_eq!(known, Vec::<&str>::new());
    assert_eq!(found.state, CheckState::Unknown);
}

#[test]
fn beside_kube_proxy_two_proxies_are_as_it_should_be() {
    let found = judged(Stage::After, |s| {
        seen(&mut s.daemon_sets)[0].arguments =
            vec!["proxy".into(), "--proxy-name=zonewise".into()];
        s.facts.proxy_pods =
            Sight::Seen(ZONES.iter().map(|zone| proxy_pod(&format!("n-{zone}"), false)).collect());
    });
    assert_eq!(fault(&found), []);
}

/// The page lists every check that there is.
#[test]
fn the_page_names_every_check() {
    let page = include_str!("../../../../docs/check.md");
    for stage in [Stage::Before, Stage::After] {
        for check in judged(stage, |s| {
            guarded(s);
            seen(&mut s.system_pods).push(pod("kube-proxy", "n-a", "k:v1.36.0"));
        })
        .checks
        {
            assert!(
                page.contains(&format!("`{}`", check.name)),
                "{} is not in docs/check.md",
                check.name
            );
        }
    }
}

#[test]
fn a_screen_has_a_line_per_check_and_the_fix_below() {
    let found = judged(Stage::After, |s| seen(&mut s.nodes)[1].node.zone = None);
    let screen = screens::checks(&found, Width::Usual);
    let plain: String = without_colours(&screen);
    assert!(plain.contains("nodes\n✗ node-zones"), "{plain}");
    assert!(plain.contains("\n    fix: label them"), "{plain}");
    assert!(
        plain.contains("\n      kubectl label node n-b topology.kubernetes.io/zone=ZONE\n"),
        "{plain}"
    );
    assert!(plain.ends_with("19 checks: 1 failed, 18 passed\n"), "{plain}");
}

/// The text without colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_zone_that_is_being_emptied_is_named_with_the_way_back() {
    let sights = |percent: u8| {
        let evacuation = json!({
            "metadata": {"name": "a"},
            "spec": {"zone": "a", "deadline": "2026-01-01T13:00:00Z"},
            "status": {"phase": "Moving", "percent": percent},
        });
        Sights { evacuations: vec![serde_json::from_value(evacuation).unwrap()], ..good() }
    };
    let found = |percent| {
        let checks = checks(&sights(percent), Stage::After).checks.into_iter();
        checks.filter(|check| check.name == "evacuations").collect::<Vec<_>>()
    };
    let check = found(25).remove(0);
    assert_eq!(check.state, CheckState::Warning);
    assert!(
        check.finding.contains("a (25 % of its endpoints are in use, until 2026-01-01T13:00:00Z)"),
        "{}",
        check.finding
    );
    assert_eq!(check.commands, ["zonewise restore a"]);
    assert_eq!(found(100), [], "it has its traffic back");
}
