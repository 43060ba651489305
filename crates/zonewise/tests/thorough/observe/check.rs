//! `zonewise check` on a real API server, with the rights of those who only look: everything in order, then one fault after
//! the other, made on purpose and repaired again.

use std::process::Command;

use serde_json::{Value, json};
use zonewise_testbed::objects::{node, pod};
use zonewise_testbed::{Cluster, User, manifests};

use crate::observe::checking::{ZONES, check, manager, node_info, not_passed};
use crate::observe::run::{Ran, root};
use crate::observe::schema::assert_valid;

/// Runs a command line, word for word, as an administrator.
fn shell(cluster: &Cluster, command: &str) {
    let kubectl = cluster.program("kubectl");
    let ran = Command::new("/bin/sh")
        .args(["-c", command])
        .env("PATH", format!("{}:/usr/bin:/bin", kubectl.parent().unwrap().display()))
        .env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap())
        .current_dir(root())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
}

fn own_pod(name: &str, node: &str) -> Value {
    let mut one = pod("zonewise-system", &format!("{name}-{node}"), name, node, "192.0.2.2");
    one["metadata"]["labels"] = json!({"app.kubernetes.io/name": name});
    one["spec"]["containers"][0]["image"] = json!("zonewise:0.1.0");
    one
}

fn lease(name: &str, holder: &str) -> Value {
    let now = jiff_now();
    let labels =
        if holder.len() == 1 { json!({"zonewise.dev/component": "proxy"}) } else { json!({}) };
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "zonewise-system", "name": name, "labels": labels},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now},
    })
}

/// The time, as Leases have it.
fn jiff_now() -> String {
    let ran = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.000000Z"]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

const OFF: &str = "--controllers=*,-endpointslice-controller";

/// A cluster as it is once the chart is installed and everything runs.
async fn installed() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    let mut objects = manifests(root().join("deploy/observer/rbac.yaml")).unwrap();
    for zone in ZONES {
        let mut one = node(zone, zone, "4");
        one["status"]["nodeInfo"] = node_info("6.12.1");
        objects.push(one);
        objects.push(own_pod("zonewise-proxy", zone));
        objects.push(lease(&format!("zonewise-proxy-{zone}"), zone));
    }
    objects.push(own_pod("zonewise-controller", "a"));
    objects.push(lease("zonewise-controller", "controller-a"));
    objects.push(manager(OFF));
    cluster.create(&objects).await.unwrap();
    for command in [
        "kubectl apply -f deploy/controller/controller.yaml -f deploy/proxy/daemonset.yaml",
        &role_binding("zonewise-controller"),
        &role_binding("zonewise-guard"),
        &role_binding("zonewise-proxy"),
        &daemon_set("calico-node"),
        &status(
            "deployment/zonewise-controller",
            r#"{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":2}"#,
        ),
        &proxies(3),
    ] {
        shell(&cluster, command);
    }
    cluster
}

/// A ClusterRoleBinding, as far as it can be seen: it gives nobody a right.
fn role_binding(name: &str) -> String {
    format!("kubectl create clusterrolebinding {name} --clusterrole={name}")
}

/// A network plugin, as far as it can be seen.
fn daemon_set(name: &str) -> String {
    let labels = json!({"app": name});
    create(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "kube-system", "name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example.com/main:1"}]},
            },
        },
    }))
}

fn status(what: &str, value: &str) -> String {
    format!(
        "kubectl -n zonewise-system patch {what} --subresource=status --type=merge -p '{{\"status\":{value}}}'"
    )
}

fn proxies(pods: usize) -> String {
    let value = json!({
        "desiredNumberScheduled": 3, "currentNumberScheduled": pods, "numberMisscheduled": 0,
        "updatedNumberScheduled": pods, "numberReady": pods,
    });
    status("daemonset/zonewise-proxy", &value.to_string())
}

/// What is done wrong, the check that finds it, words that it says, and what repairs it.
struct Fault {
    broken_by: Vec<String>,
    check: &'static str,
    state: &'static str,
    words: &'static [&'static str],
    repaired_by: Vec<String>,
}

fn fault(
    broken_by: &[&str],
    (check, state): (&'static str, &'static str),
    words: &'static [&'static str],
    repaired_by: &[&str],
) -> Fault {
    let all = |commands: &[&str]| commands.iter().map(|one| (*one).to_owned()).collect();
    Fault { broken_by: all(broken_by), check, state, words, repaired_by: all(repaired_by) }
}

fn renew(lease: &str, time: &str) -> String {
    format!(
        "kubectl -n zonewise-system patch lease {lease} --type=merge -p '{{\"spec\":{{\"renewTime\":\"{time}\"}}}}'"
    )
}

fn create(object: &Value) -> String {
    format!("kubectl create -f - <<'X'\n{object}\nX")
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn faults() -> Vec<Fault> {
    let now = jiff_now();
    let kube_proxy = {
        let mut one = pod("kube-system", "kube-proxy-a", "none", "a", "192.0.2.9");
        one["metadata"]["labels"] = json!({"k8s-app": "kube-proxy"});
        one["spec"]["containers"][0]["image"] = json!("kube-proxy:v1.36.4");
        one
    };
    let waiting = json!({"status": {"containerStatuses": [{
        "name": "main", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }]}});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
        "metadata": {"namespace": "default", "name": "late"}, "ports": [],
    });
    let off_again = [
        "kubectl -n kube-system delete pod kube-controller-manager-a --grace-period=0 --force",
        &create(&manager(OFF)),
    ];
    let node_patch = |patch: &str| {
        format!("kubectl patch node b --subresource=status --type=json -p '[{patch}]'")
    };
    vec![
        fault(
            &["kubectl label node b topology.kubernetes.io/zone-"],
            ("node-zones", "failed"),
            &[
                "1 node without the label",
                ": b;",
                "kubectl label node b topology.kubernetes.io/zone=ZONE",
            ],
            &["kubectl label node b topology.kubernetes.io/zone=b"],
        ),
        fault(
            &[&node_patch(
                r#"{"op":"remove","path":"/status/allocatable/cpu"},{"op":"remove","path":"/status/capacity/cpu"}"#,
            )],
            ("node-cpu", "failed"),
            &["1 node reports no allocatable CPU: b", "missingCpu=count-nodes"],
            &[&node_patch(
                r#"{"op":"add","path":"/status/allocatable/cpu","value":"4"},{"op":"add","path":"/status/capacity/cpu","value":"4"}"#,
            )],
        ),
        fault(
            &[&node_patch(
                r#"{"op":"replace","path":"/status/conditions/0/status","value":"False"}"#,
            )],
            ("nodes-ready", "warning"),
            &["1 node is not ready: b"],
            &[&node_patch(
                r#"{"op":"replace","path":"/status/conditions/0/status","value":"True"}"#,
            )],
        ),
        fault(
            &[&node_patch(
                r#"{"op":"replace","path":"/status/nodeInfo/kernelVersion","value":"4.18.0"}"#,
            )],
            ("node-kernels", "failed"),
            &["b (4.18.0)", "--check-kernel"],
            &[&node_patch(
                r#"{"op":"replace","path":"/status/nodeInfo/kernelVersion","value":"6.12.1"}"#,
            )],
        ),
        fault(
            &[&create(&kube_proxy)],
            ("service-proxy", "failed"),
            &["both run on a", "kubectl -n kube-system patch daemonset kube-proxy"],
            &["kubectl -n kube-system delete pod kube-proxy-a --grace-period=0 --force"],
        ),
        fault(
            &[off_again[0], &create(&manager("--leader-elect=true"))],
            ("second-writer", "failed"),
            &["both run", OFF],
            &off_again,
        ),
        fault(
            &[&format!(
                "sleep 1.1; kubectl apply --server-side --field-manager=kube-controller-manager -f - <<'X'\n{slice}\nX"
            )],
            ("second-writer", "failed"),
            &["has written 1 EndpointSlice since", "default/late", "reason=SecondWriter"],
            &["kubectl delete endpointslice late"],
        ),
        fault(
            &[&renew("zonewise-controller", "2020-01-01T00:00:00.000000Z")],
            ("second-writer", "failed"),
            &["no controller writes EndpointSlices", "the built-in one is off"],
            &[&renew("zonewise-controller", &now)],
        ),
        fault(
            &[&renew("zonewise-proxy-c", "2020-01-01T00:00:00.000000Z")],
            ("proxy-reports", "failed"),
            &["ready without a current Lease: c", "get lease zonewise-proxy-c"],
            &[&renew("zonewise-proxy-c", &now)],
        ),
        fault(
            &[&renew("zonewise-proxy-c", "2090-01-01T00:00:00.000000Z")],
            ("clocks-of-nodes", "failed"),
            &["ahead of the API server's: c", "synchronise"],
            &[&renew("zonewise-proxy-c", &now)],
        ),
        fault(
            &[&format!(
                "kubectl -n zonewise-system patch pod zonewise-controller-a --subresource=status --type=merge -p '{waiting}'"
            )],
            ("controller", "failed"),
            &["ImagePullBackOff (no such image)", "image.repository"],
            &[
                "kubectl -n zonewise-system patch pod zonewise-controller-a --subresource=status --type=merge -p '{\"status\":{\"containerStatuses\":null}}'",
            ],
        ),
        fault(
            &["kubectl -n zonewise-system scale deployment zonewise-controller --replicas=0"],
            ("controller", "failed"),
            &["has no replica", "scale deployment zonewise-controller --replicas=2"],
            &["kubectl -n zonewise-system scale deployment zonewise-controller --replicas=2"],
        ),
        fault(
            &[
                "kubectl label namespace zonewise-system pod-security.kubernetes.io/enforce=baseline --overwrite",
                &proxies(0),
            ],
            ("proxies", "failed"),
            &["0 of 3 Pods exist", "Pod Security `baseline`", "enforce=privileged"],
            &[
                "kubectl label namespace zonewise-system pod-security.kubernetes.io/enforce=privileged --overwrite",
                &proxies(3),
            ],
        ),
        fault(
            &[
                "kubectl -n zonewise-system patch pod zonewise-proxy-b -p '{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"zonewise:0.2.0\"}]}}'",
            ],
            ("versions", "warning"),
            &["0.1.0 (zonewise-controller, zonewise-proxy), 0.2.0 (zonewise-proxy)"],
            &[
                "kubectl -n zonewise-system patch pod zonewise-proxy-b -p '{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"zonewise:0.1.0\"}]}}'",
            ],
        ),
        fault(
            &[
                "kubectl -n zonewise-system annotate lease zonewise-proxy-b zonewise.dev/refused=shop/web",
            ],
            ("kernel-accepts", "failed"),
            &["1 Service is rejected by a kernel: shop/web", "the proxy on b"],
            &["kubectl -n zonewise-system annotate lease zonewise-proxy-b zonewise.dev/refused-"],
        ),
        fault(
            &["kubectl delete clusterrolebinding zonewise-proxy"],
            ("role-bindings", "failed"),
            &["1 ClusterRoleBinding is missing: zonewise-proxy", "deploy/proxy/rbac.yaml"],
            &[&role_binding("zonewise-proxy")],
        ),
        fault(
            &["kubectl create service clusterip by-use --tcp=80", BY_USE],
            ("cpu-use", "warning"),
            &["1 Service: default/by-use", "all count the same", "demand.podMetrics=true"],
            &["kubectl delete service by-use"],
        ),
        fault(
            &[
                "kubectl create service clusterip by-use --tcp=80",
                BY_USE,
                &apply(&measured_demand(
                    &json!({"v": 1, "at": 0, "f": "forbidden", "services": {}}),
                )),
            ],
            ("cpu-use", "warning"),
            &["may not list PodMetrics", "default/by-use", "deploy/demand/pod-metrics.yaml"],
            &[
                "kubectl delete service by-use",
                "kubectl -n zonewise-system delete configmap zonewise-demand",
            ],
        ),
        fault(
            &[&daemon_set("ovnkube-node")],
            ("network-plugin", "warning"),
            &["OVN-Kubernetes (DaemonSet kube-system/ovnkube-node)", "proxy.mode=none"],
            &["kubectl -n kube-system delete daemonset ovnkube-node"],
        ),
    ]
}

const BY_USE: &str = "kubectl annotate service by-use zonewise.dev/endpoint-weight=cpu-use \
    zonewise.dev/routing-preference=zonewise.dev/balanced";

/// What the leading controller stores of the CPU that endpoints use.
fn measured_demand(by_use: &Value) -> Value {
    let state = json!({"v": 1, "at": 0, "zones": [], "services": {}});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "zonewise-system", "name": "zonewise-demand"},
        "data": {"state": state.to_string(), "use": by_use.to_string()},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_made_on_purpose_is_found_and_gone_once_it_is_repaired() {
    let cluster = installed().await;
    let in_order = |when: &str| {
        let (code, document) = check(&cluster, User::Observer, &[]);
        assert_eq!(not_passed(&document), Vec::<&Value>::new(), "{when}");
        assert_eq!(code, 0, "{when}");
    };
    in_order("at first");
    for one in faults() {
        is_found_and_gone(&cluster, &one);
        in_order(one.check);
    }
    guard_mode().iter().for_each(|command| shell(&cluster, command));
    in_order("guard mode");
    for one in faults_of_guard_mode() {
        is_found_and_gone(&cluster, &one);
        in_order(one.check);
    }
    what_a_user_may_not_see_is_said(&cluster);
    kubectl_runs_it(&cluster);
}

/// Makes the fault, checks that it is found, and repairs it.
fn is_found_and_gone(cluster: &Cluster, one: &Fault) {
    one.broken_by.iter().for_each(|command| shell(cluster, command));
    let (code, document) = check(cluster, User::Observer, &[]);
    assert_valid("checks", &document);
    let found = not_passed(&document);
    let it = found.iter().find(|check| check["name"] == one.check);
    let it = it.unwrap_or_else(|| panic!("{} is not found: {found:?}", one.check));
    assert_eq!(it["state"], one.state, "{it}");
    assert!(it["fix"].is_string(), "{it}");
    let said = format!("{} {} {}", it["finding"], it["fix"], it["commands"]);
    for words in one.words {
        assert!(said.contains(words), "{}: `{words}` is not in {said}", one.check);
    }
    assert_eq!(code, i32::from(document["state"] == "failed"));
    one.repaired_by.iter().for_each(|command| shell(cluster, command));
}

const POLICY: &str = "kubectl apply -f crates/controller/src/guard/policy.yaml";
const KIND: &str = "kubectl apply -f deploy/guard/crd.yaml && kubectl wait --for=condition=Established \
    crd/zoneallocations.zonewise.dev";
/// What `zonewise check` says about a policy that refuses writes.
const IGNORE: &str = "kubectl patch mutatingadmissionpolicy zonewise-guard --type=merge -p '{\"spec\":{\"failurePolicy\":\"Ignore\"}}'";
/// The same about a webhook.
const WEBHOOK_IGNORES: &str = r#"kubectl patch mutatingwebhookconfiguration zonewise-guard --type=json -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]'"#;

fn apply(object: &Value) -> String {
    format!("kubectl apply -f - <<'X'\n{object}\nX")
}

fn in_mode(from: &str, to: &str) -> String {
    let name = "-n zonewise-system deployment zonewise-controller";
    format!(
        "kubectl get {name} -o yaml | sed 's/--mode={from}/--mode={to}/' | kubectl replace -f -"
    )
}

/// A ZoneAllocation, and the policy's binding for it, as the controller writes them.
fn allocation() -> String {
    apply(&json!({
        "apiVersion": "zonewise.dev/v1alpha1", "kind": "ZoneAllocation",
        "metadata": {"namespace": "default", "name": "web"}, "spec": {"others": "OwnZone"},
    }))
}

fn binding() -> String {
    apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "zonewise-guard-web"},
        "spec": {
            "policyName": "zonewise-guard",
            "paramRef": {"name": "web", "parameterNotFoundAction": "Allow"},
        },
    }))
}

/// The configuration of a webhook in the policy's place, for Services of this name. No write waits for it: no slice is
/// deleted here.
fn webhook(service: &str, failure_policy: &str) -> String {
    apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "zonewise-guard"},
        "webhooks": [{
            "name": "hints.guard.zonewise.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": failure_policy, "clientConfig": {"url": "https://127.0.0.1:1/hints"},
            "rules": [{
                "apiGroups": ["discovery.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE"],
                "resources": ["endpointslices"],
            }],
            "objectSelector": {"matchExpressions": [
                {"key": "kubernetes.io/service-name", "operator": "In", "values": [service]},
            ]},
        }],
    }))
}

/// Turns the cluster into one with guard mode, with one Service in it.
fn guard_mode() -> Vec<String> {
    let argument =
        r#"[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--mode=guard"}]"#;
    vec![
        format!(
            "kubectl -n zonewise-system patch deployment zonewise-controller --type=json -p '{argument}'"
        ),
        "kubectl -n kube-system delete pod kube-controller-manager-a --grace-period=0 --force"
            .into(),
        create(&manager("--leader-elect=true")),
        KIND.into(),
        POLICY.into(),
        allocation(),
        binding(),
    ]
}

fn faults_of_guard_mode() -> Vec<Fault> {
    vec![
        fault(
            &["kubectl delete crd zoneallocations.zonewise.dev"],
            ("guard-policy", "failed"),
            &["ZoneAllocations is not installed", "kubectl apply -f deploy/guard/crd.yaml"],
            &[KIND, &allocation()],
        ),
        fault(
            &["kubectl delete mutatingadmissionpolicy zonewise-guard"],
            ("guard-policy", "failed"),
            &["there is no MutatingAdmissionPolicy zonewise-guard"],
            &[POLICY],
        ),
        fault(
            &[&IGNORE.replace("Ignore", "Fail")],
            ("guard-policy", "failed"),
            &["failurePolicy Fail", "kubectl patch mutatingadmissionpolicy zonewise-guard"],
            &[IGNORE],
        ),
        fault(
            &["kubectl delete mutatingadmissionpolicybinding zonewise-guard-web"],
            ("guard-policy", "failed"),
            &["not bound for 1 Service", "default/web"],
            &[&binding()],
        ),
        fault(
            &["kubectl delete mutatingadmissionpolicy zonewise-guard", &webhook("web", "Fail")],
            ("guard-policy", "failed"),
            &[
                "failurePolicy Fail",
                "kubectl patch mutatingwebhookconfiguration zonewise-guard --type=json",
            ],
            &[WEBHOOK_IGNORES],
        ),
        fault(
            &[&webhook("other", "Ignore")],
            ("guard-policy", "failed"),
            &["the webhook is not bound for 1 Service", "default/web"],
            &[&webhook("web", "Ignore")],
        ),
        fault(
            &[POLICY],
            ("guard-policy", "warning"),
            &["both the admission policy zonewise-guard and the webhook"],
            &["kubectl delete mutatingwebhookconfiguration zonewise-guard"],
        ),
        fault(
            &[&in_mode("guard", "observe")],
            ("guard-policy", "warning"),
            &["are left", "zonewise guard remove"],
            &[&in_mode("observe", "guard")],
        ),
    ]
}

/// Somebody without rights is told which ones are missing, and nothing is guessed.
fn what_a_user_may_not_see_is_said(cluster: &Cluster) {
    let (code, document) = check(cluster, User::Proxy, &[]);
    assert_eq!(code, 1);
    let found = not_passed(&document);
    let rights = found.iter().find(|check| check["name"] == "rights").unwrap();
    let said = rights["finding"].as_str().unwrap();
    assert!(said.contains("this user may not list nodes"), "{said}");
    let others = found.iter().filter(|check| check["name"] != "rights");
    for other in others {
        assert_eq!(other["state"], "unknown", "{other}");
    }
}

fn kubectl_runs_it(cluster: &Cluster) {
    let plugins = tempfile::tempdir().unwrap();
    let ours = env!("CARGO_BIN_EXE_zonewise");
    std::os::unix::fs::symlink(ours, plugins.path().join("kubectl-zonewise")).unwrap();
    let ran: Ran = Command::new(cluster.program("kubectl"))
        .args(["zonewise", "check"])
        .env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap())
        .env("PATH", plugins.path())
        .output()
        .unwrap()
        .into();
    assert!(ran.out.starts_with("cluster\n✓ kubernetes-version"), "{}{}", ran.out, ran.err);
}
