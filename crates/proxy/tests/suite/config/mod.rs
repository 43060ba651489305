//! The proxy's configuration: files as kubeadm writes them, as people write them, and wrong ones.

use std::collections::BTreeMap;
use std::time::Duration;

use zonewise_cluster::watch::ContentType;
use zonewise_common::cidr::Cidr;
use zonewise_common::duration::ConfigDuration;
use zonewise_proxy::config::{
    Budget, Config, Connection, Conntrack, CountBy, DetectLocal, NodePortAddresses, Settings,
};

const KUBE: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const OWN: &str = "apiVersion: config.zonewise.dev/v1alpha1\nkind: ProxyConfiguration\n";

fn read(text: &str) -> Result<Config, String> {
    let settings = Settings::parse("c.yaml", text).map_err(|error| error.to_string())?;
    settings.resolve("host").map_err(|error| error.to_string())
}

fn kube(lines: &str) -> Result<Config, String> {
    read(&format!("{KUBE}{lines}"))
}

fn own(lines: &str) -> Result<Config, String> {
    read(&format!("{OWN}{lines}"))
}

fn cidrs(list: &[&str]) -> Vec<Cidr> {
    list.iter().map(|text| Cidr::parse(text).unwrap()).collect()
}

/// The defaults, without what is said about them.
fn usual() -> Config {
    Config::new("host")
}

fn quiet(config: Config) -> Config {
    Config { notices: Vec::new(), ..config }
}

#[test]
fn what_kubeadm_writes_is_all_defaults() {
    let config = read(include_str!("kubeadm.yaml")).unwrap();
    let expected = Config {
        connection: Connection {
            kubeconfig: Some("/var/lib/kube-proxy/kubeconfig.conf".into()),
            ..Connection::default()
        },
        detect_local: DetectLocal::Cidrs(cidrs(&["10.244.0.0/16"])),
        ..usual()
    };
    assert_eq!(config, expected);
}

#[test]
fn what_the_reference_writes_as_its_defaults_is_accepted() {
    let config = read(include_str!("defaults.yaml")).unwrap();
    let expected = Config { min_sync_period: Duration::from_secs(1), ..usual() };
    assert_eq!(quiet(config), expected);
}

#[test]
fn null_groups_and_empty_lists_are_defaults() {
    let lines = "iptables: null\nipvs: null\nnftables: null\nconntrack: null\nlogging: null\n\
                 clientConnection: null\nfeatureGates: null\nwinkernel: null\ndetectLocal: null\n\
                 nodePortAddresses: []\n";
    assert_eq!(quiet(kube(lines).unwrap()), usual());
}

#[test]
fn one_document_or_the_other_or_both_as_yaml_or_json() {
    let json = r#"{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration",
        "nftables":{"masqueradeAll":true}}"#;
    let masquerade = Config { masquerade_all: true, ..usual() };
    assert_eq!(quiet(read(json).unwrap()), masquerade);

    let named = Config { proxy_name: Some("ours".into()), ..usual() };
    assert_eq!(quiet(own("proxyName: ours\n").unwrap()), named);

    let both = Config { proxy_name: Some("ours".into()), ..masquerade };
    let first = format!("{KUBE}nftables: {{ masqueradeAll: true }}\n");
    let second = format!("{OWN}proxyName: ours\n");
    for text in [
        format!("{first}---\n{second}"),
        format!("---\n{second}--- # theirs\n{first}---\n"),
        format!("# head\n---\n{first}...\n---\n# note\n{second}"),
    ] {
        assert_eq!(quiet(read(&text).unwrap()), both, "{text}");
    }
}

#[test]
fn every_setting_of_ours() {
    let lines = "proxyName: zonewise\ncount: services\ncountBytes: true\n\
                 demandAddress: 0.0.0.0:10274\nlocalhostNodePorts: true\n\
                 verifyPeriod: 5m\nserviceElements: 1000\nnodeElements: 9000000\n\
                 featureGates: { ZoneShares: false }\n";
    let mut expected = Config {
        proxy_name: Some("zonewise".into()),
        count: CountBy::Services,
        count_bytes: true,
        demand: Some(([0, 0, 0, 0], 10274).into()),
        localhost_nodeports: true,
        verify_period: Duration::from_mins(5),
        budget: Budget { service: 1_000, node: 9_000_000 },
        ..usual()
    };
    expected.routing.shares = false;
    assert_eq!(quiet(own(lines).unwrap()), expected);
}

#[test]
fn every_setting_of_theirs_that_is_used() {
    let lines = "
bindAddress: 192.0.2.1
bindAddressHardFail: true
healthzBindAddress: 192.0.2.1
metricsBindAddress: '[::1]:9000'
clientConnection: { kubeconfig: /k, contentType: application/json }
clusterCIDR: 10.0.0.0/8,fd00::/64
hostnameOverride: ' Node-1 '
mode: nftables
nftables: { masqueradeAll: true, masqueradeBit: 20, minSyncPeriod: 2s, syncPeriod: 1h30m }
iptables: { masqueradeBit: 5, localhostNodePorts: true }
nodePortAddresses: [192.0.2.000/024, 'fd00::/64']
oomScoreAdj: 0
conntrack:
  maxPerCore: 0
  min: 1
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 10m0s
  tcpBeLiberal: true
  udpTimeout: 10s
  udpStreamTimeout: 1m
featureGates: { AllowServiceExternalIPs: false, TopologyAwareHints: false }
";
    let mut expected = Config {
        node_name: "node-1".into(),
        connection: Connection {
            kubeconfig: Some("/k".into()),
            content_type: ContentType::Json,
            ..Connection::default()
        },
        detect_local: DetectLocal::Cidrs(cidrs(&["10.0.0.0/8", "fd00::/64"])),
        nodeport_addresses: NodePortAddresses::Cidrs(cidrs(&["192.0.2.0/24", "fd00::/64"])),
        masquerade_all: true,
        masquerade_bit: 20,
        min_sync_period: Duration::from_secs(2),
        sync_period: Duration::from_mins(90),
        conntrack: Conntrack {
            max_per_core: None,
            min: 1,
            tcp_established: None,
            tcp_close_wait: Some(Duration::from_mins(10)),
            tcp_be_liberal: true,
            udp: Some(Duration::from_secs(10)),
            udp_stream: Some(Duration::from_mins(1)),
        },
        oom_score_adj: 0,
        healthz: Some("192.0.2.1:10256".parse().unwrap()),
        metrics: Some("[::1]:9000".parse().unwrap()),
        bind_hard_fail: true,
        bind_address: Some("192.0.2.1".parse().unwrap()),
        allow_external_ips: false,
        ..usual()
    };
    expected.routing.hints = false;
    assert_eq!(kube(lines).unwrap(), expected);
}

#[test]
fn how_local_pods_are_told_apart() {
    let rows = [
        ("detectLocalMode: ClusterCIDR", DetectLocal::None),
        ("clusterCIDR: fd00::/64", DetectLocal::Cidrs(cidrs(&["fd00::/64"]))),
        ("detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8", DetectLocal::NodeCidr),
        (
            "detectLocalMode: BridgeInterface\ndetectLocal: { bridgeInterface: cbr0 }",
            DetectLocal::Bridge("cbr0".into()),
        ),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: { interfaceNamePrefix: veth }",
            DetectLocal::InterfacePrefix("veth".into()),
        ),
    ];
    for (lines, expected) in rows {
        assert_eq!(kube(lines).unwrap().detect_local, expected, "{lines}");
    }
}

#[test]
fn addresses_that_are_served() {
    let rows = [
        ("", Some("0.0.0.0:10256"), Some("127.0.0.1:10249")),
        ("bindAddress: '::'", Some("[::]:10256"), Some("[::1]:10249")),
        ("bindAddress: 'fd00::1'", Some("[::]:10256"), Some("[::1]:10249")),
        ("healthzBindAddress: 127.0.0.1:0", None, Some("127.0.0.1:10249")),
        // Quirk 23 of the reference: there it cannot be turned off.
        ("metricsBindAddress: 127.0.0.1:0", Some("0.0.0.0:10256"), None),
        ("metricsBindAddress: 0.0.0.0", Some("0.0.0.0:10256"), Some("0.0.0.0:10249")),
        ("metricsBindAddress: '::1'", Some("0.0.0.0:10256"), Some("[::1]:10249")),
        ("metricsBindAddress: '[::1]'", Some("0.0.0.0:10256"), Some("[::1]:10249")),
    ];
    for (lines, healthz, metrics) in rows {
        let config = kube(lines).unwrap();
        let parsed = |text: Option<&str>| text.map(|text| text.parse().unwrap());
        assert_eq!((config.healthz, config.metrics), (parsed(healthz), parsed(metrics)), "{lines}");
    }
}

#[test]
fn a_file_for_another_mode_is_read_by_that_modes_group() {
    let used = |lines: &str| {
        let config = kube(lines).unwrap();
        (config.masquerade_bit, config.masquerade_all, config.localhost_nodeports)
    };
    let groups = "iptables: { masqueradeBit: 5, masqueradeAll: true, localhostNodePorts: true }\n\
                  nftables: { masqueradeBit: 20 }\n";
    assert_eq!(used(groups), (5, true, true));
    assert_eq!(used(&format!("mode: iptables\n{groups}")), (5, true, true));
    assert_eq!(used(&format!("mode: ipvs\n{groups}")), (5, true, true));
    assert_eq!(used(&format!("mode: nftables\n{groups}")), (20, false, false));
    let left_open = "iptables: { masqueradeAll: false }\n\
                     nftables: { masqueradeAll: true, masqueradeBit: 20 }\n";
    assert_eq!(used(left_open), (20, true, false));
    let config = kube("mode: iptables\niptables: { syncPeriod: 5s, minSyncPeriod: 1s }").unwrap();
    let periods = (config.sync_period.as_secs(), config.min_sync_period.as_secs());
    assert_eq!(periods, (5, 1));
}

#[test]
fn what_has_no_effect_is_said() {
    let rows = [
        ("mode: iptables", "mode iptables has no effect"),
        ("mode: ipvs", "mode ipvs has no effect"),
        ("clientConnection: { qps: 50, burst: 100 }", "clientConnection.qps and burst"),
        ("clientConnection: { contentType: application/yaml }", "clientConnection.contentType"),
        ("clientConnection: { acceptContentTypes: x }", "clientConnection.acceptContentTypes"),
        ("logging: { verbosity: 2 }", "use the flags --log-level"),
        ("logging: { vmodule: [ { filePattern: x, verbosity: 1 } ] }", "use the flags --log-level"),
        ("winkernel: { enableDSR: true }", "runs on Linux only"),
        ("windowsRunAsService: true", "runs on Linux only"),
        ("portRange: 1000-2000", "portRange has no effect"),
        ("configSyncPeriod: 1h", "configSyncPeriod has no effect"),
        ("featureGates: { NativeHistograms: true }", "feature gate NativeHistograms has no effect"),
    ];
    for (lines, expected) in rows {
        let config = kube(&format!("clusterCIDR: 10.0.0.0/8\n{lines}")).unwrap();
        let [notice] = config.notices.as_slice() else { panic!("{lines}: {:?}", config.notices) };
        assert!(notice.contains(expected), "{lines}: {notice}");
    }
    let config = kube("").unwrap();
    assert!(config.notices[0].starts_with("clusterCIDR is not set"), "{:?}", config.notices);
}

#[test]
fn what_somebody_counts_on_is_refused_by_name_with_a_remedy() {
    let rows = [
        (
            "enableProfiling: true",
            "enableProfiling (--profiling) is true: this proxy has no profiler",
        ),
        (
            "ipvs: { scheduler: lc }",
            "ipvs.scheduler is `lc`: this proxy has no IPVS mode; remove the field",
        ),
        ("ipvs: { strictARP: true }", "ipvs.strictARP is true: this proxy puts no Service address"),
        ("ipvs: { excludeCIDRs: [10.0.0.0/8] }", "ipvs.excludeCIDRs is `10.0.0.0/8`"),
        ("ipvs: { tcpTimeout: 5m }", "ipvs.tcpTimeout is 5m0s"),
        ("ipvs: { tcpFinTimeout: 5s }", "ipvs.tcpFinTimeout is 5s"),
        ("ipvs: { udpTimeout: 5s }", "set conntrack.udpTimeout"),
        ("showHiddenMetricsForVersion: '1.35'", "showHiddenMetricsForVersion is `1.35`"),
        ("clientConnection: { burst: -1 }", "clientConnection.burst is -1"),
        ("mode: kernelspace", "mode (--proxy-mode) is `kernelspace`: use nftables"),
    ];
    for (lines, expected) in rows {
        let error = kube(lines).err().unwrap_or_default();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

/// Section 12.3.
#[test]
fn what_is_wrong_is_named_with_value_and_remedy() {
    let rows = [
        ("nftables: { syncPeriod: soon }", "c.yaml:3:"),
        ("nftables: { syncPeriod: -5s }", "`-5s` is negative"),
        (
            "nftables: { syncPeriod: 1s, minSyncPeriod: 2s }",
            "(--min-sync-period) is 2s: use at most",
        ),
        ("nftables: { masqueradeBit: 32 }", "(--masquerade-bit) is 32: use 0 to 31"),
        ("nftables: { masqueradeBit: -1 }", "is -1: use 0 to 31"),
        ("oomScoreAdj: -1001", "oomScoreAdj (--oom-score-adj) is -1001: use -1000 to 1000"),
        ("conntrack: { min: -1 }", "conntrack.min (--conntrack-min) is -1: use 1 to"),
        ("conntrack: { maxPerCore: 4294967296 }", "is 4294967296: use 1 to"),
        ("bindAddress: node-1", "bindAddress (--bind-address) is `node-1`: use an IP address"),
        ("healthzBindAddress: node-1:80", "(--healthz-bind-address) is `node-1:80`: use an IP"),
        ("metricsBindAddress: 127.0.0.1:65536", "(--metrics-bind-address) is `127.0.0.1:65536`"),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "is `primary,10.0.0.0/8`: use ranges"),
        ("nodePortAddresses: [10.0.0.1]", "is `10.0.0.1`: use ranges"),
        ("detectLocalMode: Guess", "detectLocalMode (--detect-local-mode) is `Guess`: use Cluster"),
        ("detectLocalMode: BridgeInterface", "(--pod-bridge-interface) is ``"),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: { interfaceNamePrefix: a/b }",
            "(--pod-interface-name-prefix) is `a/b`",
        ),
        ("clusterCIDR: 10.0.0.0", "clusterCIDR (--cluster-cidr) is `10.0.0.0`: use a range"),
        ("clusterCIDR: '10.0.0.0/8,11.0.0.0/8'", "an IPv4 and an IPv6 range"),
        ("clusterCIDR: '10.0.0.0/8,fd00::/8,fd01::/8'", "an IPv4 and an IPv6 range"),
        ("hostnameOverride: 'node 1'", "hostnameOverride (--node-name) is `node 1`"),
        ("clustrCIDR: x", "clustrCIDR"),
        ("conntrack: { mim: 1 }", "mim"),
        ("featureGates: { A: maybe }", "c.yaml:3:"),
        ("masqueradeAll: true", "masqueradeAll"),
    ];
    for (lines, expected) in rows {
        let error = kube(lines).err().unwrap_or_default();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let rows = [
        ("proxyName: -x", "proxyName (--proxy-name) is `-x`: use a valid label value"),
        ("count: pods", "connections cannot be counted by `pods`: use zones, services or none"),
        (
            "countBytes: true",
            "countBytes (--count-bytes) is true: bytes are counted by Service: use it with count: services",
        ),
        (
            "demandAddress: 0.0.0.0",
            "demandAddress (--demand-address) is `0.0.0.0`: counts by Service are served there: use it with count: services",
        ),
        (
            "count: services\ndemandAddress: here",
            "demandAddress (--demand-address) is `here`: use an IP address and a port",
        ),
        ("verifyPeriod: 10ms", "verifyPeriod (--verify-period) is 10ms: use 1s or more"),
        (
            "serviceElements: 999",
            "serviceElements (--service-elements) is 999: use 1000 or more, or leave it out",
        ),
        ("nodeElements: -1", "nodeElements (--node-elements) is -1: use 1000 or more"),
        (
            "featureGates: { ZoneShare: true }",
            "unknown feature gate `ZoneShare`; known gates: Allow",
        ),
        ("mode: nftables", "mode"),
    ];
    for (lines, expected) in rows {
        let error = own(lines).err().unwrap_or_default();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn other_files_are_refused_with_what_was_expected() {
    let expected = "c.yaml: expected apiVersion kubeproxy.config.k8s.io/v1alpha1 and kind";
    for text in ["", "# nothing\n---\n", "kind: Pod", &KUBE.replace("v1alpha1", "v1"), "[]", "a"] {
        let error = read(text).err().unwrap_or_default();
        assert!(error.starts_with(expected) || error.starts_with("c.yaml:1:1"), "{text}: {error}");
    }
    let twice = read(&format!("{KUBE}---\n{KUBE}")).unwrap_err();
    assert!(twice.contains("two documents of kind KubeProxyConfiguration"), "{twice}");
    // The line is the file's, not the document's.
    let late = read(&format!("{KUBE}---\n{OWN}count: 7s\n")).unwrap_err();
    assert!(late.starts_with("c.yaml:6:"), "{late}");
}

#[test]
fn flags_win_over_the_file_and_their_zeros_count() {
    let text =
        format!("{KUBE}mode: iptables\nhostnameOverride: a\niptables: {{ syncPeriod: 9s }}\n");
    let file = Settings::parse("c.yaml", &text).unwrap();
    let flags = Settings {
        node_name: Some("b".into()),
        sync_period: Some(ConfigDuration(Duration::from_secs(7))),
        min_sync_period: Some(ConfigDuration(Duration::ZERO)),
        master: Some("https://192.0.2.1:6443".into()),
        feature_gates: BTreeMap::from([("ZoneShares".to_owned(), false)]),
        ..Settings::default()
    };
    let config = file.overridden_by(flags).resolve("host").unwrap();
    let mut expected = Config {
        node_name: "b".into(),
        sync_period: Duration::from_secs(7),
        min_sync_period: Duration::ZERO,
        connection: Connection {
            master: Some("https://192.0.2.1:6443".into()),
            ..Connection::default()
        },
        ..usual()
    };
    expected.routing.shares = false;
    assert_eq!(quiet(config), expected);

    let never =
        Settings { sync_period: Some(ConfigDuration(Duration::ZERO)), ..Settings::default() };
    let error = never.resolve("host").unwrap_err().to_string();
    assert!(error.contains("(--sync-period) is 0s: use a duration above 0"), "{error}");
}

#[test]
fn what_is_written_reads_back_the_same() {
    let mut config = kube(
        "mode: nftables\nnodePortAddresses: [10.0.0.0/8]\nconntrack: { maxPerCore: 0 }\n\
         healthzBindAddress: 127.0.0.1:0\nbindAddress: 'fd00::1'\nhostnameOverride: '1.2'\n\
         clientConnection: { kubeconfig: '/a b: \"c\"' }\ndetectLocalMode: NodeCIDR\n",
    )
    .unwrap();
    config.proxy_name = Some("true".into());
    config.count = CountBy::None;
    config.routing.node_hints = false;
    for config in [config, quiet(kube("").unwrap())] {
        let text = config.to_yaml();
        assert_eq!(quiet(read(&text).unwrap()), config, "{text}");
    }
}

#[test]
fn configz_shows_what_is_in_force() {
    let page: serde_json::Value = serde_json::from_str(&usual().configz()).unwrap();
    let theirs = &page["kubeproxy.config.k8s.io"];
    assert_eq!(theirs["kind"], "KubeProxyConfiguration");
    assert_eq!(theirs["conntrack"]["tcpEstablishedTimeout"], "24h0m0s");
    assert_eq!(theirs["nftables"]["minSyncPeriod"], "50ms");
    assert_eq!(theirs["hostnameOverride"], "host");
    let ours = &page["config.zonewise.dev"];
    assert_eq!(ours["verifyPeriod"], "1m0s");
    assert_eq!(
        (&ours["serviceElements"], &ours["nodeElements"]),
        (&65_536.into(), &1_048_576.into())
    );
}
