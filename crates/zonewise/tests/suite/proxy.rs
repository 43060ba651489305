//! The command line of `zonewise proxy`: it knows kube-proxy's flags, and errors name the cause.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zonewise_netns::Namespace;

fn proxy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zonewise")).arg("proxy").args(arguments).output().unwrap()
}

fn file(name: &str, lines: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    std::fs::write(&file, format!("{head}{lines}")).unwrap();
    file
}

/// The effective configuration for these arguments.
fn written(name: &str, arguments: &[&str]) -> String {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let action = ["--write-config-to", to.to_str().unwrap()];
    let output = proxy(&[&action, arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(to).unwrap()
}

#[test]
fn wrong_usage_names_cause_and_remedy_and_ends_with_2() {
    let misspelt = file("misspelt-proxy.yaml", "clustrCIDR: 10.0.0.0/8\n");
    let misspelt = misspelt.to_str().unwrap();
    let rows: [(&[&str], &str); 13] = [
        (&["--cluster-cidr", "10.0.0.0", "--check"], "clusterCIDR (--cluster-cidr) is `10.0.0.0`"),
        (&["--masquerade-bit", "-1", "--check"], "use 0 to 31"),
        (&["--sync-period", "soon"], "is not a duration (examples: 500ms"),
        (&["--min-sync-period", "1m", "--check"], "use at most nftables.syncPeriod"),
        (&["--proxy-mode", "userspace", "--check"], "use nftables, or leave it out"),
        (&["--profiling", "--check"], "this proxy has no profiler"),
        (&["--count", "pods"], "use zones, services or none"),
        (&["--feature-gates", "ZoneShares=on"], "use Name=true or Name=false"),
        (&["--config", misspelt, "--check"], "misspelt-proxy.yaml:3:"),
        (&["--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (&["--dry-run"], "--filename"),
        (&["--cleanup", "--init-only"], "cannot be used with"),
        (&["positional"], "unexpected argument"),
    ];
    for (arguments, expected) in rows {
        let output = proxy(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn the_flags_of_kube_proxy_are_known() {
    let output = proxy(&[
        "--hostname-override=node-1",
        "--v=2",
        "--iptables-masquerade-bit=14",
        "--iptables-sync-period=30s",
        "--iptables-min-sync-period=1s",
        "--iptables-localhost-nodeports=false",
        "--proxy-mode=iptables",
        "--config-sync-period=15m",
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=1h",
        "--conntrack-tcp-be-liberal",
        "--conntrack-udp-timeout=0",
        "--conntrack-udp-timeout-stream=0",
        "--detect-local-mode=InterfaceNamePrefix",
        "--pod-interface-name-prefix=veth",
        "--nodeport-addresses=10.0.0.0/8,fd00::/8",
        "--masquerade-all=false",
        "--oom-score-adj=-998",
        "--bind-address=::",
        "--healthz-bind-address=[::]:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        "--bind-address-hard-fail=true",
        "--feature-gates=NativeHistograms=true,ZoneShares=false",
        "--profiling=false",
        "--kube-api-qps=50",
        "--logging-format=json",
        "--master=https://192.0.2.1:6443",
        "--kubeconfig=/nowhere",
        "--check",
    ]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    for part in ["--log-level", "mode iptables", "NativeHistograms has no effect", "--kube-api-qps"]
    {
        assert!(message.contains(part), "{part} not in {message}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let config = file("file-and-flags.yaml", "hostnameOverride: a\noomScoreAdj: 5\n");
    let config = config.to_str().unwrap();
    let text = written("file-and-flags-out.yaml", &["--config", config, "--node-name", "B"]);
    for line in ["hostnameOverride: \"b\"\n", "oomScoreAdj: 5\n", "mode: \"nftables\"\n"] {
        assert!(text.contains(line), "{line} not in {text}");
    }
}

#[test]
fn a_cluster_that_cannot_be_found_ends_with_1() {
    let output = proxy(&[
        "--kubeconfig",
        "nowhere.yaml",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--oom-score-adj=0",
    ]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("kubeconfig `nowhere.yaml` cannot be used"), "{message}");
}

/// In every network namespace but the machine's own, the kernel shows the size of the conntrack table read-only: so it is
/// on a node that is itself a container. The settings of the node are made all the same.
#[test]
fn init_only_leaves_the_size_of_the_machines_conntrack_table_to_the_machine() {
    const SIZE: &str = "net/netfilter/nf_conntrack_max";
    const ESTABLISHED: &str = "net/netfilter/nf_conntrack_tcp_timeout_established";
    let node = Namespace::new("init-only").unwrap();
    let init = |size: &str, hours: &str| {
        node.enter(|| {
            proxy(&[
                "--init-only",
                "--node-name=n1",
                "--conntrack-max-per-core=1",
                &format!("--conntrack-min={size}"),
                &format!("--conntrack-tcp-timeout-established={hours}"),
            ])
        })
    };
    // Loads conntrack, whose settings are then there to be read.
    assert!(init("0", "1h").status.success());
    let machines: u32 = node.read_sysctl(SIZE).unwrap().trim().parse().unwrap();
    for (size, hours, seconds) in [(1_024, "2h", "7200"), (1 << 20, "3h", "10800")] {
        let output = init(&size.to_string(), hours);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let warnings: Vec<_> = said.lines().filter(|line| line.contains(SIZE)).collect();
        assert_eq!(warnings.len(), usize::from(size > machines), "{size}: {said}");
        let complete = |line: &&str| {
            line.contains(&format!(" to {size}:")) && line.contains("conntrack.maxPerCore to 0")
        };
        assert!(warnings.iter().all(complete), "{said}");
        assert_eq!(node.read_sysctl(ESTABLISHED).unwrap().trim(), seconds);
        assert_eq!(node.read_sysctl(SIZE).unwrap().trim(), machines.to_string());
    }
}
