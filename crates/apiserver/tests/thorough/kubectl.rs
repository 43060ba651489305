//! The stock kubectl prints the same, whichever server it talks to.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::differences::{Entry, Listed};
use crate::normal::{Normal, age};
use crate::requests::Words;
use crate::servers::{Pair, Scratch, Side};

/// A command that takes longer is ended, with exit status 124.
const LIMIT_SECONDS: &str = "60";

/// Command lines for one namespace, one after the other; `< NAME` feeds a manifest to stdin.
struct Session {
    name: &'static str,
    lines: &'static [&'static str],
}

/// How two outputs are compared.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    Equal,
    /// The real server serves more kinds: each line of ours is one of its lines.
    Within,
}

const MANIFESTS: [(&str, &str); 10] = [
    ("list", include_str!("manifests/list.yaml")),
    ("one", include_str!("manifests/one.yaml")),
    ("web", include_str!("manifests/web.yaml")),
    ("web-2", include_str!("manifests/web-2.yaml")),
    ("map", include_str!("manifests/map.yaml")),
    ("map-2", include_str!("manifests/map-2.yaml")),
    ("map-3", include_str!("manifests/map-3.yaml")),
    ("nodes", include_str!("manifests/nodes.yaml")),
    ("wrong", include_str!("manifests/wrong.yaml")),
    ("events", include_str!("manifests/events.yaml")),
];

const SESSIONS: [Session; 11] = [
    Session {
        name: "k-first",
        lines: &[
            "create -f - < web",
            "create -f - < nodes",
            "get all -A -l group={ns}",
            "get pods,svc -o wide",
            "get pod/web-1 svc/web -o yaml",
            "get nodes -l group={ns} -o json",
            "get pods -w --request-timeout=1s",
            "edit svc web",
            "get svc web -o yaml",
            "edit pod none",
            "edit cm settings",
            "scale pod web-1 --replicas=3",
            "set image pod/web-1 main=example.com/web:2",
            "expose pod web-1 --port=80 --name=exposed",
            "get svc exposed -o yaml",
            "logs none",
            "logs web-1 -c none",
            "exec none -- true",
            "port-forward pod/web-1 18080:80",
            "port-forward pod/none 18080:80",
            "top pods",
            "top nodes",
            "explain pots",
            "auth can-i create pods",
            "auth can-i delete nodes --all-namespaces",
            "auth whoami",
            "wait --for=condition=Ready pod/web-2 --timeout=1s",
            "wait --for=jsonpath={.spec.type}=ClusterIP svc/web --timeout=1s",
            "drain {ns}-a1",
            "drain {ns}-a1 --force --disable-eviction --grace-period=0",
            "get pods",
            "delete node {ns}-a1",
        ],
    },
    Session {
        name: "k-get",
        lines: &[
            "create -f - < web",
            "get all",
            "get svc",
            "get services,pods,endpointslices,leases,configmaps",
            "get pods -o wide",
            "get svc -o wide",
            "get endpointslices -o wide",
            "get svc web -o yaml",
            "get svc web -o json",
            "get pod web-1 -o yaml",
            "get endpointslice web-x -o yaml",
            "get pods --show-labels",
            "get pods -l app=web",
            "get pods -l app!=web",
            "get pods -L app,tier",
            "get pods --field-selector spec.nodeName=k-get-a1",
            "get pods --field-selector nothing=1",
            "get pods -A -l group={ns}",
            "get pods -o name",
            "get pods --sort-by=.metadata.name -o \
             custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
            "get pods -o jsonpath={.items[*].metadata.name}",
            "get pods --no-headers",
            "get pods --chunk-size=1",
            "get pod web-1 none",
            "get pod none --ignore-not-found",
            "get pots",
            "get endpointslices.v1.discovery.k8s.io",
            "get events",
            "get pods --raw /api/v1/namespaces/{ns}/pods/none",
            "get --raw /version",
            "get cm --watch --request-timeout=2s",
        ],
    },
    Session {
        name: "k-describe",
        lines: &[
            "create -f - < web",
            "create -f - < nodes",
            "describe svc web --show-events=false",
            "describe svc external",
            "describe pod web-1",
            "describe endpointslice web-x",
            "describe node {ns}-a1",
            "describe configmap settings",
            "describe lease leader",
            "describe ns {ns}",
            "describe pod none",
            "delete -f - < nodes",
        ],
    },
    Session {
        name: "k-apply",
        lines: &[
            "apply -f - < map",
            "apply -f - < map",
            "apply -f - < map-2",
            "get cm settings -o yaml",
            "apply -f - < map-3",
            "get cm settings -o yaml",
            "diff -f - < map",
            "apply -f - < web",
            "apply -f - < web-2",
            "get svc web -o yaml",
            "apply -f - < list",
            "apply -f - < list",
            "apply -f - --server-side --force-conflicts < list",
            "apply -f - --dry-run=server < web",
            "apply -f - --dry-run=client < web",
            "apply -f - < wrong",
            "replace -f - < map",
            "delete -f - < map",
            "apply -f - --validate=false < map",
        ],
    },
    Session {
        name: "k-server-side",
        lines: &[
            "apply --server-side -f - < map",
            "apply --server-side -f - < map",
            "apply --server-side -f - < map-2",
            "get cm settings -o yaml",
            "apply --server-side --field-manager=other -f - < map",
            "apply --server-side --field-manager=other --force-conflicts -f - < map",
            "apply --server-side --field-manager=other -f - < map-3",
            "apply --server-side -f - < map-2",
            "get cm settings -o yaml",
            "apply --server-side --dry-run=server -f - < web",
            "apply --server-side -f - < wrong",
        ],
    },
    Session {
        name: "k-write",
        lines: &[
            "create -f - < one",
            "create -f - < one",
            "create -f - < events",
            "label cm one tier=front",
            "label cm one tier=back",
            "label cm one tier=back --overwrite",
            "label cm one tier-",
            "label cm --all x=y",
            "annotate cm one zonewise.dev/note='a b'",
            "annotate cm one zonewise.dev/note-",
            "patch cm one -p '{\"data\":{\"a\":\"2\"}}'",
            "patch cm one --type=merge -p '{\"data\":{\"b\":null}}'",
            "patch cm one --type=json -p '[{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"3\"}]'",
            "patch cm one --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/none\"}]'",
            "patch svc web -p '{\"spec\":{\"ports\":[{\"port\":80,\"targetPort\":9090}]}}'",
            "patch svc web --subresource=status --type=merge -p \
             '{\"status\":{\"loadBalancer\":{}}}'",
            "patch cm none -p '{}'",
            "get cm one -o yaml",
            "get svc web -o yaml",
            "set selector svc web app=shop",
            "expose pod none --port=80",
            "create service clusterip bad --tcp=80000",
            "run web --image=example.com/web:1 --port=80 --labels=app=web",
            "get pod web",
            "events",
            "get events -o wide",
        ],
    },
    Session {
        name: "k-delete",
        lines: &[
            "create -f - < web",
            "delete cm settings --wait",
            "delete cm settings",
            "delete cm settings --ignore-not-found",
            "delete pod web-1 --grace-period=0 --force",
            "delete pods -l app=web --wait=false",
            "get pods",
            "delete pod web-2 --now --wait=false",
            "delete pod web-2 --grace-period=0 --force",
            "delete svc,endpointslices --all",
            "delete svc none",
            "delete lease leader --cascade=orphan --wait=false",
            "delete svc web --dry-run=server",
            "wait --for=delete cm/settings --timeout=1s",
        ],
    },
    Session {
        name: "k-nodes",
        lines: &[
            "apply -f - < nodes",
            "get nodes -l group={ns}",
            "get nodes -l group={ns} -o wide",
            "get nodes -l group={ns} -L topology.kubernetes.io/zone",
            "label node {ns}-a1 lab=yes",
            "cordon {ns}-a1",
            "uncordon {ns}-a1",
            "taint node {ns}-a1 a=b:NoSchedule",
            "taint node {ns}-a1 a-",
            "get node {ns}-a1 -o yaml",
            "wait --for=condition=Ready node/{ns}-a1 --timeout=1s",
            "delete node {ns}-a1",
            "delete -f - < nodes",
        ],
    },
    Session {
        name: "k-create",
        lines: &[
            "create configmap one --from-literal=a=1 --from-literal=b=",
            "create configmap one --from-literal=a=1",
            "create configmap Wrong --from-literal=a=1",
            "create configmap two --from-literal=a=1 --dry-run=server -o yaml",
            "get cm one -o yaml --show-managed-fields",
            "create service clusterip web --tcp=80:8080 --tcp=443:tls",
            "get svc web -o yaml --show-managed-fields",
            "create service clusterip headless --clusterip=None",
            "get svc headless -o yaml --show-managed-fields",
            "create service clusterip bare",
            "create service nodeport any --tcp=80:8080",
            "create service nodeport node --tcp=80:8080 --node-port=30016",
            "get svc node -o yaml --show-managed-fields",
            "create service nodeport low --tcp=80:8080 --node-port=80",
            "create service externalname outside --external-name=example.com",
            "get svc outside -o yaml --show-managed-fields",
            "create namespace {ns}-more",
            "create namespace {ns}-more",
            "create namespace Wrong",
            "get ns {ns}-more -o yaml --show-managed-fields",
        ],
    },
    Session {
        name: "k-deploy",
        lines: &[
            "create deployment web --image=example.com/web:1 --replicas=2 --port=8080",
            "get deployment web -o yaml",
            "get deploy,rs",
            "get deploy -o wide",
            "scale deployment web --replicas=3",
            "scale deployment web --current-replicas=9 --replicas=1",
            "set image deployment/web web=example.com/web:2",
            "rollout restart deployment/web",
            "rollout pause deployment/web",
            "rollout resume deployment/web",
            "rollout history deployment/web",
            "expose deployment web --port=80",
            "get svc web -o yaml",
            "autoscale deployment none --max=3",
            "explain deployment.spec.strategy",
            "explain pod.spec.containers.ports",
            "explain endpointslice.endpoints.hints --recursive",
            "explain service",
            "explain node.status.allocatable",
            "explain lease.spec.none",
            "delete deployment web",
            "get deploy",
        ],
    },
    Session {
        name: "k-ask",
        lines: &[
            "api-resources --api-group=discovery.k8s.io",
            "api-resources --api-group=coordination.k8s.io",
            "api-resources --api-group=events.k8s.io -o wide",
            "version",
            "get ns {ns}",
            "get ns {ns} -o yaml",
            "get servicecidr kubernetes",
        ],
    },
];

/// What people try that the embedded server does not do, or not in full, and what kubectl then prints.
const REFUSED: [(&str, &str); 12] = [
    ("create -f - < map", "configmap/settings created\nexit 0\n"),
    ("run web --image=example.com/web:1 --labels=app=web", "pod/web created\nexit 0\n"),
    (
        "patch pod web --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Running\"}}'",
        "pod/web patched\nexit 0\n",
    ),
    (
        "create secret generic one --from-literal=a=1",
        "error: failed to create secret the server could not find the requested resource\nexit 1\n",
    ),
    (
        "logs web",
        "Error from server (NotImplemented): \"log\" needs a kubelet, and this API server has none: the \
         Pods of a lab are network namespaces without containers\nexit 1\n",
    ),
    (
        "logs -l app=web",
        "Error from server (NotImplemented): \"log\" needs a kubelet, and this API server has none: the \
         Pods of a lab are network namespaces without containers\nexit 1\n",
    ),
    (
        "exec web -- true",
        "error: unable to upgrade connection: \"exec\" needs a kubelet, and this API server has none: the \
         Pods of a lab are network namespaces without containers\nexit 1\n",
    ),
    (
        "attach web -q",
        "error: unable to upgrade connection: \"attach\" needs a kubelet, and this API server has none: \
         the Pods of a lab are network namespaces without containers\nexit 1\n",
    ),
    (
        "port-forward pod/web 0:80",
        "error: error upgrading connection: unable to upgrade connection: \"portforward\" needs a \
         kubelet, and this API server has none: the Pods of a lab are network namespaces without \
         containers\nexit 1\n",
    ),
    (
        "cp web:/etc/hosts /tmp/none",
        "error: unable to upgrade connection: \"exec\" needs a kubelet, and this API server has none: the \
         Pods of a lab are network namespaces without containers\nexit 1\n",
    ),
    (
        "auth can-i --list",
        "Resources Non-Resource URLs Resource Names Verbs\n*.* [] [] [*]\n            [*] [] [*]\nexit \
         0\n",
    ),
    ("delete cm settings", "configmap \"settings\" deleted from {ns} namespace\nexit 0\n"),
];

#[test]
fn kubectl_says_what_the_embedded_server_does_not_do() {
    let pair = Pair::get();
    let program = zonewise_testbed::program("kubectl").unwrap();
    let lines = REFUSED.map(|(line, _)| line);
    let outputs = talk(&program, &pair.embedded, "k-refused", &lines);
    for ((line, expected), found) in REFUSED.iter().zip(&outputs) {
        assert_eq!(*found, expected.replace("{ns}", "k-refused"), "kubectl {line}");
    }
}

/// The example of the documentation, and what the server itself prints, can be applied again and again.
#[tokio::test(flavor = "multi_thread")]
async fn manifests_can_be_applied_twice() {
    let scratch = Scratch::start().await;
    let program = zonewise_testbed::program("kubectl").unwrap();
    let kubectl =
        Kubectl { program: &program, kubeconfig: &scratch.side.kubeconfig, namespace: None };
    let shop = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop");
    let run = |line: &str, input: &str| {
        let output = kubectl.run(&split(line), input);
        assert!(output.ends_with("exit 0\n"), "{line}: {output}");
        output
    };
    for how in ["", "", " --server-side --force-conflicts", " --server-side --force-conflicts"] {
        run(&format!("apply -f {shop}{how}"), "");
    }
    let all =
        "get nodes,namespaces,pods,services,endpointslices -A -l component!=apiserver -o yaml";
    for _ in 0..2 {
        let printed = run(all, "");
        let printed = printed.strip_suffix("exit 0\n").unwrap();
        assert!(printed.contains("name: cart-0"), "{printed}");
        run("apply -f -", printed);
    }
}

/// Sessions that list kinds, of which the real server serves more.
const WITHIN: [&str; 3] = ["api-resources", "api-versions", "api-resources -o wide"];

#[test]
fn kubectl_prints_the_same() {
    let pair = Pair::get();
    let program = zonewise_testbed::program("kubectl").unwrap();
    let (mut complaints, mut used) = (Vec::new(), BTreeSet::new());
    for session in &SESSIONS {
        let outputs = both(pair, |side| talk(&program, side, session.name, session.lines));
        complaints.extend(compare(session.name, session.lines, &outputs, Held::Equal, &mut used));
    }
    let outputs = both(pair, |side| talk(&program, side, "k-within", &WITHIN));
    complaints.extend(compare("k-within", &WITHIN, &outputs, Held::Within, &mut used));
    complaints.extend(Listed::unused(|group| group.starts_with("k-"), &used));
    assert!(
        complaints.is_empty(),
        "{} outputs differ:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

/// Both servers at the same time.
fn both<T: Send>(pair: &Pair, talk: impl Fn(&Side) -> T + Sync) -> Vec<T> {
    let talk = &talk;
    thread::scope(|scope| {
        let talks: Vec<_> =
            pair.sides().into_iter().map(|side| scope.spawn(move || talk(side))).collect();
        talks.into_iter().map(|talk| talk.join().unwrap()).collect()
    })
}

/// All outputs of a session.
fn talk(program: &Path, side: &Side, namespace: &str, lines: &[&str]) -> Vec<String> {
    let kubectl = Kubectl { program, kubeconfig: &side.kubeconfig, namespace: Some(namespace) };
    let words = Words::from([("ns", namespace.to_owned())]);
    let space = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}");
    let made = kubectl.run(&split("create -f -"), &space);
    assert_eq!(made, format!("namespace/{namespace} created\nexit 0\n"), "on {}", side.name);
    let mut normal = Normal::default();
    let outputs: Vec<String> = lines
        .iter()
        .map(|line| {
            let line = line.replace("{ns}", &words["ns"]);
            normal.add_request(&line);
            let (line, input) = line.split_once(" < ").unwrap_or((&line, ""));
            let input = manifest(input).replace("{ns}", namespace);
            normal.add_request(&input);
            plain(&normal.text(&kubectl.run(&split(line), &input)))
        })
        .collect();
    let written: String = lines
        .iter()
        .zip(&outputs)
        .map(|(line, output)| format!("$ kubectl {line}\n{output}\n"))
        .collect();
    let file = format!("{}/{namespace}-{}.txt", env!("CARGO_TARGET_TMPDIR"), side.name);
    std::fs::write(file, written).unwrap();
    outputs
}

struct Kubectl<'a> {
    program: &'a Path,
    kubeconfig: &'a Path,
    /// The namespace of what names none; objects that name another are refused.
    namespace: Option<&'a str>,
}

impl Kubectl<'_> {
    /// Stdout, stderr and the exit status.
    fn run(&self, arguments: &[String], input: &str) -> String {
        let cache: PathBuf = self.kubeconfig.with_extension("cache");
        // Nothing may hang.
        let mut child = Command::new("timeout")
            .arg(LIMIT_SECONDS)
            .arg(self.program)
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--cache-dir={}", cache.display()))
            .args(self.namespace.map(|namespace| format!("--namespace={namespace}")))
            .args(arguments)
            .env("KUBE_EDITOR", "sed -i s/8080/9090/")
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u0 --label before --label after")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // kubectl may end without reading its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code =
            output.status.code().map_or_else(|| "killed".to_owned(), |code| code.to_string());
        format!("{}{}exit {code}\n", text(&output.stdout), text(&output.stderr))
    }
}

fn manifest(name: &str) -> &'static str {
    MANIFESTS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

/// Words of a command line; single quotes keep spaces.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            }
            other => word.push(other),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Without the widths of columns that depend on ages, and without times and versions.
fn plain(text: &str) -> String {
    text.lines().map(|line| plain_line(line) + "\n").collect()
}

fn plain_line(line: &str) -> String {
    const MOMENTS: [&str; 2] = ["CreationTimestamp:", "Resource Version:"];
    let indent = line.len() - line.trim_start().len();
    let words: Vec<String> = line.split_whitespace().map(age).collect();
    let line = format!("{}{}", &line[..indent], words.join(" "));
    match MOMENTS.iter().find(|start| line.trim_start().starts_with(**start)) {
        Some(start) => format!("{}{start} <moment>", &line[..indent]),
        None => line,
    }
}

fn compare(
    session: &str,
    lines: &[&str],
    outputs: &[Vec<String>],
    held: Held,
    used: &mut BTreeSet<Entry>,
) -> Vec<String> {
    let [real, embedded] = outputs else { return Vec::new() };
    let differ = |real: &str, embedded: &str| match held {
        Held::Equal => real != embedded,
        Held::Within => embedded.lines().any(|line| !real.lines().any(|known| known == line)),
    };
    let mut complaints = Vec::new();
    for (line, (real, embedded)) in lines.iter().zip(real.iter().zip(embedded)) {
        match Listed::find(session, line, "") {
            _ if !differ(real, embedded) => {}
            Some(entry) => {
                used.insert(entry);
            }
            None => complaints.push(format!(
                "{session} $ kubectl {line}\n--- real\n{real}--- embedded\n{embedded}"
            )),
        }
    }
    complaints
}
