//! The chart: which values give which objects, and which are refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use zonewise_testbed::manifests;

use super::helm;
use crate::observe::run::{Ran, program, root};

/// What the proxy needs to know where no cluster can be asked.
pub(super) const PLACE: [&str; 2] =
    ["proxy.apiServer=https://10.0.0.1:6443", "proxy.clusterCIDR=10.244.0.0/16"];

fn template(values: &[&str]) -> Ran {
    template_for(&[], values)
}

/// The same for an API server that also has these kinds.
fn template_for(kinds: &[&str], values: &[&str]) -> Ran {
    let mut command = helm(&["template", "zonewise", "deploy/chart", "-n", "zonewise-system"]);
    for kind in kinds {
        command.args(["--api-versions", kind]);
    }
    for value in values {
        command.args(["--set", value]);
    }
    command.output().unwrap().into()
}

/// The objects that a release with these values has.
pub(super) fn objects(values: &[&str]) -> Vec<Value> {
    objects_for(&[], values)
}

fn objects_for(kinds: &[&str], values: &[&str]) -> Vec<Value> {
    let ran = template_for(kinds, values);
    assert_eq!(ran.code, 0, "{values:?}: {}", ran.err);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), ran.out).unwrap();
    manifests(file.path()).unwrap()
}

/// `Kind name`, of every object.
fn named(objects: &[Value]) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let name = |one: &Value| format!("{} {}", text(&one["kind"]), text(&one["metadata"]["name"]));
    objects.iter().map(name).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(", ").map(str::to_owned).collect()
}

const CONTROLLER: &str = "ServiceAccount zonewise-controller, ClusterRole zonewise-controller, \
    ClusterRole zonewise-metrics-reader, ClusterRoleBinding zonewise-controller, Role zonewise-controller, \
    RoleBinding zonewise-controller, ConfigMap zonewise-controller, Deployment zonewise-controller, \
    CustomResourceDefinition zoneevacuations.zonewise.dev, ClusterRole zonewise-evacuator";
/// What writes nothing has no Lease.
const OBSERVE: &str = "ServiceAccount zonewise-controller, ClusterRole zonewise-controller, \
    ClusterRole zonewise-metrics-reader, ClusterRoleBinding zonewise-controller, ConfigMap zonewise-controller, \
    Deployment zonewise-controller";
const GUARD: &str = "ServiceAccount zonewise-controller, ClusterRole zonewise-guard, \
    ClusterRole zonewise-metrics-reader, ClusterRoleBinding zonewise-guard, Role zonewise-controller, \
    RoleBinding zonewise-controller, ConfigMap zonewise-controller, Deployment zonewise-controller, \
    CustomResourceDefinition zoneallocations.zonewise.dev";
const WEBHOOK: &str = "Service zonewise-guard-webhook, Secret zonewise-guard-webhook, Role zonewise-guard-webhook, \
    RoleBinding zonewise-guard-webhook, ClusterRole zonewise-guard-webhook, ClusterRoleBinding zonewise-guard-webhook";
const BY_POLICY: &str = "controller.configuration.guard.admission=policy";
const SERVED: &str = "proxy.configuration.zonewise.demandAddress=0.0.0.0:10274";
const BUDGET: &str = "PodDisruptionBudget zonewise-controller";
const PROXY: &str = "ServiceAccount zonewise-proxy, ClusterRole zonewise-proxy, ClusterRoleBinding zonewise-proxy, \
    Role zonewise-proxy, RoleBinding zonewise-proxy, ValidatingAdmissionPolicy zonewise-proxy-lease, \
    ValidatingAdmissionPolicyBinding zonewise-proxy-lease, ConfigMap zonewise-proxy, DaemonSet zonewise-proxy";
const DEMAND: &str = "ClusterRole zonewise-demand-reviewer, ClusterRoleBinding zonewise-demand-reviewer, \
    ClusterRole zonewise-demand-reader";
const COLLECTED: &str =
    "ClusterRoleBinding zonewise-demand-reader, Role zonewise-demand, RoleBinding zonewise-demand";
const STORED: &str = "Role zonewise-demand, RoleBinding zonewise-demand";
const READS_USE: &str =
    "ClusterRole zonewise-pod-metrics-reader, ClusterRoleBinding zonewise-pod-metrics-reader";
const ASKED: [&str; 2] =
    ["demand.source=prometheus", "demand.prometheus.url=http://prometheus:9090"];
const OBSERVER: &str = "ServiceAccount zonewise-observer, ClusterRole zonewise-observer, \
    ClusterRoleBinding zonewise-observer, Role zonewise-observer, RoleBinding zonewise-observer";

const DASHBOARD: &str = "ServiceAccount zonewise-dashboard, ClusterRole zonewise-dashboard, \
    ClusterRoleBinding zonewise-dashboard, Role zonewise-dashboard, RoleBinding zonewise-dashboard, \
    Deployment zonewise-dashboard, Service zonewise-dashboard";

#[test]
fn the_chart_has_no_fault_that_helm_knows() {
    for mode in ["none", "beside", "replace"] {
        let mode = format!("proxy.mode={mode}");
        let values = [&mode, PLACE[0], PLACE[1]].join(",");
        let arguments =
            ["lint", "--strict", "-n", "zonewise-system", "deploy/chart", "--set", &values];
        let ran: Ran = helm(&arguments).output().unwrap().into();
        assert_eq!(ran.code, 0, "{mode}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn values_say_which_objects_there_are() {
    let bare = ["controller.enabled=false", "observer.enabled=false"];
    let monitors = ["monitoring.monitors.enabled=true", "monitoring.alerts.enabled=true"];
    let table: Vec<(Vec<&str>, String)> = vec![
        (vec![], [CONTROLLER, BUDGET, OBSERVER].join(", ")),
        (vec![bare[1], "controller.mode=guard"], [GUARD, WEBHOOK, BUDGET].join(", ")),
        (vec![bare[1], "controller.mode=guard", BY_POLICY], [GUARD, BUDGET].join(", ")),
        (vec![bare[1], BY_POLICY], [CONTROLLER, BUDGET].join(", ")),
        (vec![bare[1], "controller.mode=observe"], [OBSERVE, BUDGET].join(", ")),
        (vec!["controller.podDisruptionBudget.enabled=false"], [CONTROLLER, OBSERVER].join(", ")),
        (vec![bare[0]], OBSERVER.into()),
        (vec![bare[0], bare[1], "dashboard.enabled=true"], DASHBOARD.into()),
        (
            vec![bare[0], bare[1], "dashboard.enabled=true", "networkPolicy.enabled=true"],
            [DASHBOARD, "NetworkPolicy zonewise-dashboard"].join(", "),
        ),
        (vec![bare[0], bare[1], "proxy.mode=replace", PLACE[0], PLACE[1]], PROXY.into()),
        (vec![bare[0], bare[1], "proxy.mode=beside", PLACE[0], PLACE[1]], PROXY.into()),
        // As with --reuse-values from a chart that had no such values.
        (vec![bare[1], "proxy.mode=replace", "demand=null", PLACE[0], PLACE[1]], [CONTROLLER, BUDGET, PROXY].join(", ")),
        (
            vec![bare[0], bare[1], "proxy.mode=replace", SERVED, PLACE[0], PLACE[1]],
            [PROXY, DEMAND].join(", "),
        ),
        (
            vec![bare[1], "proxy.mode=replace", "demand.source=proxies", PLACE[0], PLACE[1]],
            [CONTROLLER, BUDGET, PROXY, DEMAND, COLLECTED].join(", "),
        ),
        (
            vec![bare[1], ASKED[0], ASKED[1], "demand.prometheus.preset=istio"],
            [CONTROLLER, BUDGET, STORED].join(", "),
        ),
        (
            vec![bare[1], "demand.podMetrics=true"],
            [CONTROLLER, BUDGET, READS_USE, STORED].join(", "),
        ),
        (
            vec![bare[1], "demand.podMetrics=true", ASKED[0], ASKED[1], "demand.prometheus.preset=istio"],
            [CONTROLLER, BUDGET, READS_USE, STORED].join(", "),
        ),
        (vec![bare[0], bare[1], "monitoring.dashboards.enabled=true"], "ConfigMap zonewise-dashboards".into()),
        (
            vec![bare[0], "namespace.create=true", "resourceQuota.create=true"],
            ["Namespace zonewise-system, ResourceQuota zonewise-critical-pods", OBSERVER].join(", "),
        ),
        (
            vec![bare[1], "networkPolicy.enabled=true", "monitoring.prometheus.serviceAccount=prometheus",
                "monitoring.prometheus.namespace=monitoring"],
            [CONTROLLER, BUDGET, "NetworkPolicy zonewise-controller, ClusterRoleBinding zonewise-metrics-reader"].join(", "),
        ),
        (
            vec![bare[1], monitors[0], monitors[1], "proxy.mode=replace", "proxy.exposeMetrics=true", PLACE[0], PLACE[1]],
            [CONTROLLER, BUDGET, PROXY, "Service zonewise-controller-metrics, ServiceMonitor zonewise-controller, \
                PodMonitor zonewise-proxy, PrometheusRule zonewise-controller, PrometheusRule zonewise-proxy"].join(", "),
        ),
    ];
    for (values, expected) in table {
        assert_eq!(named(&objects(&values)), words(&expected), "{values:?}");
    }
}

/// Values, the object they are for, where in it, and what is to be there.
type Effect<'a> = (&'a [&'a str], &'a str, &'a str, Value);

#[test]
fn values_reach_the_objects_they_are_for() {
    use serde_json::json;
    let container = "/spec/template/spec/containers/0";
    let at = |rest: &str| format!("{container}{rest}");
    let digest = format!("image.digest=sha256:{}", "a".repeat(64));
    let by_digest = [digest.as_str()];
    let replace = ["proxy.mode=replace", PLACE[0], PLACE[1]];
    let beside = ["proxy.mode=beside", "proxy.name=fast", PLACE[0], PLACE[1]];
    let all = ["proxy.mode=replace", "proxy.nodes=all", PLACE[0], PLACE[1]];
    let (image, arguments, probe) =
        (at("/image"), at("/args/5"), at("/readinessProbe/httpGet/port"));
    let (capabilities, mode) = (at("/securityContext/capabilities"), at("/args/2"));
    let table: Vec<Effect<'_>> = vec![
        (&["image.repository=host/z"], "Deployment", &image, json!("host/z:0.1.0")),
        (&["image.tag=next"], "Deployment", &image, json!("zonewise:next")),
        (&by_digest, "Deployment", &image, json!(format!("zonewise@sha256:{}", "a".repeat(64)))),
        (&["controller.mode=guard"], "Deployment", &mode, json!("--mode=guard")),
        (&["controller.mode=observe"], "Deployment", &mode, json!("--mode=observe")),
        (&["controller.replicas=3"], "Deployment", "/spec/replicas", json!(3)),
        (
            &["proxy.mode=replace", "proxy.affinity.nodeAffinity.x=y", PLACE[0], PLACE[1]],
            "DaemonSet",
            "/spec/template/spec/affinity",
            json!({"nodeAffinity": {"x": "y"}}),
        ),
        (&replace, "DaemonSet", &arguments, json!("--take-over")),
        (&beside, "DaemonSet", &arguments, json!("--proxy-name=fast")),
        (&replace, "DaemonSet", &probe, json!(10256)),
        (&beside, "DaemonSet", &probe, json!(10271)),
        (&replace, "DaemonSet", &capabilities, json!({"add": ["NET_ADMIN"], "drop": ["ALL"]})),
        (
            &replace,
            "DaemonSet",
            "/spec/template/spec/nodeSelector",
            json!({"kubernetes.io/os": "linux", "zonewise.dev/proxy": "yes"}),
        ),
        (
            &all,
            "DaemonSet",
            "/spec/template/spec/nodeSelector",
            json!({"kubernetes.io/os": "linux"}),
        ),
        // kube-proxy leaves labelled Services alone on every node.
        (
            &beside,
            "DaemonSet",
            "/spec/template/spec/nodeSelector",
            json!({"kubernetes.io/os": "linux"}),
        ),
    ];
    for (values, kind, pointer, expected) in table {
        let found = objects(values);
        let found = find(&found, kind).pointer(pointer);
        assert_eq!(found, Some(&expected), "{values:?}: {kind} {pointer}");
    }
}

/// With the definition of ZoneAllocations they would all go, and nothing would tell what guard mode has written.
#[test]
fn zone_allocations_outlive_the_release_and_a_change_of_the_mode() {
    let found = objects(&["controller.mode=guard"]);
    let annotations = &find(&found, "CustomResourceDefinition")["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/resource-policy"], "keep");
}

#[test]
fn guard_mode_is_refused_where_kubernetes_is_too_old_for_it() {
    let render = |admission: &str, version: &str| -> Ran {
        let mut command = helm(&["template", "zonewise", "deploy/chart", "-n", "zonewise-system"]);
        let admission = format!("controller.configuration.guard.admission={admission}");
        command.args(["--set", "controller.mode=guard", "--set", &admission]);
        command.args(["--kube-version", version]);
        command.output().unwrap().into()
    };
    let policy = "guard.admission=policy needs Kubernetes 1.36";
    let refused = [
        ("policy", "v1.35.9", policy),
        ("policy", "v1.35.2-eks-1a2b3c", policy),
        ("auto", "v1.30.9", "controller.mode=guard needs Kubernetes 1.31"),
        ("webhook", "v1.30.9", "controller.mode=guard needs Kubernetes 1.31"),
    ];
    for (admission, version, told) in refused {
        let ran = render(admission, version);
        assert_ne!(ran.code, 0, "{admission} on {version} is accepted");
        assert!(ran.err.contains(told), "{}", ran.err);
    }
    for version in ["v1.36.0", "v1.36.1-gke.100", "v1.37.0-alpha.1", "v2.0.0"] {
        let ran = render("policy", version);
        assert_eq!(ran.code, 0, "{version}: {}", ran.err);
    }
    for (admission, version) in [("auto", "v1.31.0"), ("webhook", "v1.35.2-eks-1a2b3c")] {
        let ran = render(admission, version);
        assert_eq!(ran.code, 0, "{admission} on {version}: {}", ran.err);
    }
}

/// Kinds that the API server has, values, what may be done with the webhook's configuration and with policies, and
/// whether there is the webhook.
type Rights<'a> = (&'a [&'a str], Vec<&'a str>, &'a [&'a str], &'a [&'a str], bool);

/// Rights to policies and to webhooks, and an open port, are there where they may be needed, and only there.
#[test]
fn the_rights_of_guard_mode_are_those_of_its_admission() {
    const KINDS: &[&str] = &["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"];
    let by_webhook = "controller.configuration.guard.admission=webhook";
    let (guard, other) = ("controller.mode=guard", "controller.mode=controller");
    let every: &[&str] = &["create", "delete", "get", "patch"];
    let rows: [Rights<'_>; 6] = [
        (&[], vec![other, by_webhook], &[], &[], false),
        (&[], vec![guard], every, every, true),
        (KINDS, vec![guard], &["delete"], every, false),
        (&[], vec![guard, BY_POLICY], &[], every, false),
        (&[], vec![guard, by_webhook], every, &[], true),
        (KINDS, vec![guard, by_webhook], every, &["delete"], true),
    ];
    let set =
        |verbs: &[&str]| verbs.iter().map(|verb| (*verb).into()).collect::<BTreeSet<String>>();
    for (kinds, values, configuration, policies, webhook) in rows {
        let others = ["observer.enabled=false", "networkPolicy.enabled=true"];
        let found = objects_for(kinds, &[&values[..], &others].concat());
        let may = |resource: &str| verbs(&found, resource);
        let found_rights = (may("mutatingwebhookconfigurations"), may("mutatingadmissionpolicies"));
        assert_eq!(found_rights, (set(configuration), set(policies)), "{kinds:?} {values:?}");
        assert_eq!(!may("secrets").is_empty(), webhook, "{kinds:?} {values:?}");
        let pod = &find(&found, "Deployment")["spec"]["template"]["spec"];
        let ports = pod["containers"][0]["ports"].as_array().unwrap();
        let is_open = ports.iter().any(|port| port["containerPort"] == 10273);
        let ingress = find(&found, "NetworkPolicy")["spec"]["ingress"].as_array().unwrap();
        let is_admitted = ingress.iter().any(|one| one["ports"][0]["port"] == "webhook");
        assert_eq!((is_open, is_admitted), (webhook, webhook), "{kinds:?} {values:?}");
    }
}

/// What the roles among these objects allow with a resource.
fn verbs(objects: &[Value], resource: &str) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rules = objects.iter().flat_map(|one| list(&one["rules"]));
    let of_resource =
        rules.filter(|rule| list(&rule["resources"]).iter().any(|one| *one == resource));
    let verbs = of_resource.flat_map(|rule| list(&rule["verbs"]));
    verbs.filter_map(|verb| verb.as_str().map(str::to_owned)).collect()
}

/// Each mode may read what it follows, and no more.
#[test]
fn rights_are_those_of_the_mode() {
    let reads = |mode: &str, resource: &str| {
        let found = objects(&[&format!("controller.mode={mode}"), "observer.enabled=false"]);
        let rules = found.iter().flat_map(|one| one["rules"].as_array().into_iter().flatten());
        let names = |rule: &Value, field: &str, name: &str| {
            rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == name))
        };
        rules
            .into_iter()
            .any(|rule| names(rule, "resources", resource) && names(rule, "verbs", "watch"))
    };
    for (mode, expected) in [("controller", true), ("guard", false), ("observe", false)] {
        assert_eq!(reads(mode, "servicecidrs"), expected, "{mode}");
        assert_eq!(reads(mode, "leases"), expected, "{mode}");
        assert!(reads(mode, "services"), "{mode}");
    }
}

/// A changed configuration restarts what reads it at its start; nothing else does.
#[test]
fn a_changed_configuration_is_noticed() {
    let hash = |values: &[&str], kind: &str| {
        let found = objects(values);
        find(&found, kind)["spec"]["template"]["metadata"]["annotations"]["zonewise.dev/configuration"].clone()
    };
    let replace = ["proxy.mode=replace", PLACE[0], PLACE[1]];
    let counted = [&replace[..], &["proxy.configuration.zonewise.count=none"]].concat();
    let more = [&replace[..], &["controller.replicas=3"]].concat();
    assert_eq!(hash(&replace, "DaemonSet"), hash(&more, "DaemonSet"));
    assert_ne!(hash(&replace, "DaemonSet"), hash(&counted, "DaemonSet"));
    let upstream = ["controller.configuration.compat=upstream"];
    assert_ne!(hash(&[], "Deployment"), hash(&upstream, "Deployment"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_is_not_allowed_is_refused_by_name() {
    let replace = ["proxy.mode=replace", PLACE[0], PLACE[1]];
    let table: Vec<(Vec<&str>, &[&str])> = vec![
        (vec!["proxy.mode=instead"], &["proxy/mode", "'none', 'beside', 'replace'"]),
        (vec!["proxy.nodes=some"], &["proxy/nodes", "'labelled', 'all'"]),
        (vec!["controller.mode=pilot"], &["controller/mode", "controller"]),
        (vec!["controller.replicas=0"], &["controller/replicas", "minimum", "1"]),
        (vec!["controller.logLevel=loud"], &["controller/logLevel", "'error', 'warn', 'info'"]),
        (vec!["controler.enabled=true"], &["controler"]),
        (
            vec!["controller.configuration.maxEndpointsPerSlice=5000"],
            &["maxEndpointsPerSlice", "maximum: got 5,000, want 1,000"],
        ),
        (vec!["controller.configuration.maxEndpointPerSlice=50"], &["maxEndpointPerSlice"]),
        (
            vec!["controller.configuration.guard.admission=none"],
            &["guard/admission", "'auto', 'policy', 'webhook'"],
        ),
        (
            vec!["controller.configuration.guard.maxServiceNames=0"],
            &["guard/maxServiceNames", "minimum: got 0, want 1"],
        ),
        (
            vec!["controller.configuration.guard.webhook.url=http://a"],
            &["guard/webhook/url", "https"],
        ),
        (
            vec!["controller.mode=guard", "controller.configuration.managedBy=example.com"],
            &["controller.configuration.managedBy", "controller.mode=guard", "leave it out"],
        ),
        (
            vec!["controller.mode=guard", "controller.configuration.adoptManagedBy={a}"],
            &["controller.configuration.adoptManagedBy", "leave it out"],
        ),
        (
            vec!["controller.mode=guard", "controller.configuration.compat=upstream"],
            &["controller.configuration.compat", "leave it out"],
        ),
        (
            vec!["controller.configuration.defaultPreference=Nearest"],
            &["configuration/defaultPreference", "Default|Spread|Zone"],
        ),
        (
            vec!["controller.configuration.defaultSubsetting=Nearest"],
            &["configuration/defaultSubsetting", "'Random', 'Auto', 'Require', 'Region'"],
        ),
        (vec!["controller.configuration.settling.leastGain=2"], &["settling/leastGain", "maximum"]),
        (vec!["controller.configuration.compat=old"], &["compat", "'none', 'upstream'"]),
        (vec!["controller.configuration.featureGates.Hints=true"], &["featureGates", "Hints"]),
        (
            vec!["image.pullPolicy=Sometimes"],
            &["image/pullPolicy", "'Always', 'IfNotPresent', 'Never'"],
        ),
        (vec!["image.digest=abc"], &["image/digest", "sha256"]),
        (vec!["proxy.apiServer=10.0.0.1"], &["proxy/apiServer", "https"]),
        (vec!["proxy.clusterCIDR=everywhere"], &["proxy/clusterCIDR"]),
        (vec!["proxy.clusterCIDR=999.0.0.1/99"], &["proxy/clusterCIDR"]),
        (vec!["proxy.clusterCIDR=10.0.0.0/33"], &["proxy/clusterCIDR"]),
        (vec!["proxy.clusterCIDR=fd00::/129"], &["proxy/clusterCIDR"]),
        (vec!["proxy.configuration.kubeProxy.mode=ipvs"], &["kubeProxy", "mode"]),
        (
            vec!["proxy.configuration.zonewise.count=pods"],
            &["count", "'zones', 'services', 'none'"],
        ),
        (
            vec!["proxy.mode=replace", PLACE[1]],
            &["proxy.apiServer is not set", "kubectl config view --minify"],
        ),
        (
            vec!["proxy.mode=replace", PLACE[0]],
            &["proxy.clusterCIDR is not set", "kubectl get nodes"],
        ),
        (
            [&replace[..], &["monitoring.monitors.enabled=true"]].concat(),
            &["proxy.exposeMetrics=true"],
        ),
        (
            vec!["monitoring.prometheus.serviceAccount=prometheus"],
            &["monitoring.prometheus.namespace"],
        ),
        (vec!["demand.source=guess"], &["demand/source", "'none', 'proxies', 'prometheus'"]),
        (vec!["demand.source=prometheus"], &["demand.prometheus.url is missing"]),
        (ASKED.to_vec(), &["the metrics of the proxies are meant", "proxy.exposeMetrics=true"]),
        ([&ASKED[..], &["demand.prometheus.token=x"]].concat(), &["demand/prometheus", "token"]),
        (vec!["demand.source=proxies"], &["proxy.mode is none", "demand.source to none"]),
        (
            [&replace[..], &["demand.source=proxies", "controller.mode=observe"]].concat(),
            &["there is no controller that would ask them"],
        ),
        (
            vec!["demand.podMetrics=true", "controller.mode=guard"],
            &["no controller that writes zone shares", "demand.podMetrics to false"],
        ),
        (vec!["demand.podMetrics=always"], &["demand/podMetrics", "boolean"]),
    ];
    for (values, expected) in table {
        let ran = template(&values);
        assert_ne!(ran.code, 0, "{values:?} is accepted");
        for words in expected {
            assert!(ran.err.contains(words), "{values:?}: `{words}` is not in {}", ran.err);
        }
    }
    let elsewhere: Ran =
        helm(&["template", "zonewise", "deploy/chart", "-n", "default"]).output().unwrap().into();
    assert_ne!(elsewhere.code, 0);
    assert!(elsewhere.err.contains("pass --namespace zonewise-system"), "{}", elsewhere.err);
}

/// What the chart writes into files, our programs accept.
#[test]
fn the_configurations_are_those_that_our_programs_read() {
    let everything = [
        "proxy.mode=replace",
        PLACE[0],
        PLACE[1],
        "proxy.configuration.kubeProxy.nftables.minSyncPeriod=20ms",
        "proxy.configuration.zonewise.serviceElements=1000",
        "controller.configuration.compat=upstream",
        "controller.configuration.settling.quietPeriod=5s",
        "controller.configuration.leaderElection.leaseDuration=20s",
        "controller.configuration.featureGates.TopologyAwareSubsetting=false",
        "controller.configuration.defaultPreference=zonewise.dev/balanced",
        "controller.configuration.defaultSubsetting=Region",
    ];
    let tables: [&[&str]; 3] = [
        &["proxy.mode=replace", PLACE[0], PLACE[1]],
        &["proxy.mode=beside", PLACE[0], "proxy.configuration.kubeProxy.detectLocalMode=NodeCIDR"],
        &everything,
    ];
    for values in tables {
        let folder = tempfile::tempdir().unwrap();
        let maps = objects(values).into_iter().filter(|one| one["kind"] == "ConfigMap");
        for map in maps {
            for (name, text) in map["data"].as_object().unwrap() {
                fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
            }
        }
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (controller, proxy) = (file("controller.yaml"), file("config.yaml"));
        for command in [
            vec!["controller", "--check", "--config", &controller],
            vec!["proxy", "--check", "--node-name", "n1", "--config", &proxy],
        ] {
            let ran: Ran = program(&command).output().unwrap().into();
            assert_eq!(ran.code, 0, "{values:?}: {command:?}: {}", ran.err);
        }
    }
}

#[test]
fn chart_and_program_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = fs::read_to_string(root().join("deploy/chart/Chart.yaml")).unwrap();
    for line in [format!("\nversion: {version}\n"), format!("\nappVersion: {version}\n")] {
        assert!(chart.contains(&line), "deploy/chart/Chart.yaml has no line `{}`", line.trim());
    }
}

/// The manifests in `deploy/` are rendered, never written by hand.
#[test]
fn the_manifests_are_those_of_the_chart() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(root().join("scripts/manifests"));
    let ran: Ran = command.arg(folder.path()).env_remove("KUBECONFIG").output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let files = |folder: &Path| -> BTreeSet<PathBuf> {
        let parts = ["controller", "guard", "observer", "proxy"].map(|part| folder.join(part));
        let files = parts.iter().flat_map(|part| fs::read_dir(part).unwrap());
        let files = files.map(|file| file.unwrap().path().strip_prefix(folder).unwrap().to_owned());
        files.filter(|file| !file.display().to_string().contains("alerts")).collect()
    };
    let rendered = files(folder.path());
    assert_eq!(files(&root().join("deploy")), rendered, "run make manifests");
    for file in rendered {
        let rendered = fs::read_to_string(folder.path().join(&file)).unwrap();
        let kept = fs::read_to_string(root().join("deploy").join(&file)).unwrap();
        assert_eq!(kept, rendered, "deploy/{} is out of date: run make manifests", file.display());
    }
}
