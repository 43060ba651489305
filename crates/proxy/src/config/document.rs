//! The two documents of a configuration file, as they are written.
//!
//! ```text
//!  file ─ split at `---` ─► kind? ─┬─► KubeProxyConfiguration ─┐
//!                                  └─► ProxyConfiguration ─────┴─► Settings
//! ```
//!
//! Every field of `KubeProxyConfiguration` is known. A field that has no effect here is accepted while
//! it is null, zero or at its default, because kubeadm writes every field. With another value it gets
//! a notice in the log if Services work the same without it; otherwise it is an error.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use zonewise_cluster::watch::ContentType;
pub(super) use zonewise_common::api_group::CONFIG_V1ALPHA1 as OWN_API;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::lenient::lenient;

use super::settings::Settings;
use super::{ConfigError, CountBy};

pub(super) const KUBE_API: &str = "kubeproxy.config.k8s.io/v1alpha1";
pub(super) const KUBE_KIND: &str = "KubeProxyConfiguration";
pub(super) const OWN_KIND: &str = "ProxyConfiguration";

/// The type of a document.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Head {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
}

/// A duration of zero in a `KubeProxyConfiguration` stands for the default.
fn zero_is_default<'de, D>(deserializer: D) -> Result<Option<ConfigDuration>, D::Error>
where
    D: Deserializer<'de>,
{
    let duration = Option::<ConfigDuration>::deserialize(deserializer)?;
    Ok(duration.filter(|duration| !duration.0.is_zero()))
}

/// `kubeproxy.config.k8s.io/v1alpha1`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct KubeProxy {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    #[serde(deserialize_with = "lenient")]
    feature_gates: BTreeMap<String, bool>,
    #[serde(deserialize_with = "lenient")]
    client_connection: ClientConnection,
    #[serde(deserialize_with = "lenient")]
    logging: Logging,
    hostname_override: Option<String>,
    bind_address: Option<String>,
    healthz_bind_address: Option<String>,
    metrics_bind_address: Option<String>,
    bind_address_hard_fail: Option<bool>,
    enable_profiling: Option<bool>,
    show_hidden_metrics_for_version: Option<String>,
    mode: Option<String>,
    #[serde(deserialize_with = "lenient")]
    iptables: Iptables,
    #[serde(deserialize_with = "lenient")]
    ipvs: Ipvs,
    #[serde(deserialize_with = "lenient")]
    nftables: Nftables,
    #[serde(deserialize_with = "lenient")]
    winkernel: Winkernel,
    detect_local_mode: Option<String>,
    #[serde(deserialize_with = "lenient")]
    detect_local: DetectLocal,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: Option<String>,
    node_port_addresses: Option<Vec<String>>,
    oom_score_adj: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    conntrack: Conntrack,
    #[serde(deserialize_with = "zero_is_default")]
    config_sync_period: Option<ConfigDuration>,
    port_range: Option<String>,
    windows_run_as_service: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ClientConnection {
    kubeconfig: Option<String>,
    accept_content_types: Option<String>,
    content_type: Option<String>,
    qps: Option<f64>,
    burst: Option<i64>,
}

impl ClientConnection {
    /// The form in which objects are asked for, if the field names one that this proxy reads.
    fn form(&self) -> Option<ContentType> {
        self.content_type.as_deref()?.parse().ok()
    }
}

/// Without effect (see `--log-level` and `--log-format`), but not an unknown field.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Logging {
    format: Option<String>,
    #[serde(rename = "flushFrequency")]
    _flush_frequency: Option<Value>,
    verbosity: Option<i64>,
    vmodule: Option<Vec<Value>>,
    #[serde(rename = "options")]
    _options: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Iptables {
    masquerade_bit: Option<i64>,
    masquerade_all: Option<bool>,
    localhost_node_ports: Option<bool>,
    #[serde(deserialize_with = "zero_is_default")]
    sync_period: Option<ConfigDuration>,
    #[serde(deserialize_with = "zero_is_default")]
    min_sync_period: Option<ConfigDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Nftables {
    masquerade_bit: Option<i64>,
    masquerade_all: Option<bool>,
    #[serde(deserialize_with = "zero_is_default")]
    sync_period: Option<ConfigDuration>,
    #[serde(deserialize_with = "zero_is_default")]
    min_sync_period: Option<ConfigDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Ipvs {
    #[serde(rename = "syncPeriod", deserialize_with = "zero_is_default")]
    _sync_period: Option<ConfigDuration>,
    #[serde(rename = "minSyncPeriod", deserialize_with = "zero_is_default")]
    _min_sync_period: Option<ConfigDuration>,
    scheduler: Option<String>,
    #[serde(rename = "excludeCIDRs")]
    exclude_cidrs: Option<Vec<String>>,
    #[serde(rename = "strictARP")]
    strict_arp: Option<bool>,
    #[serde(deserialize_with = "zero_is_default")]
    tcp_timeout: Option<ConfigDuration>,
    #[serde(deserialize_with = "zero_is_default")]
    tcp_fin_timeout: Option<ConfigDuration>,
    #[serde(deserialize_with = "zero_is_default")]
    udp_timeout: Option<ConfigDuration>,
}

/// Windows only.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Winkernel {
    network_name: Option<String>,
    source_vip: Option<String>,
    #[serde(rename = "enableDSR")]
    enable_dsr: Option<bool>,
    root_hns_endpoint_name: Option<String>,
    forward_health_check_vip: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct DetectLocal {
    bridge_interface: Option<String>,
    interface_name_prefix: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Conntrack {
    max_per_core: Option<i64>,
    min: Option<i64>,
    tcp_established_timeout: Option<ConfigDuration>,
    tcp_close_wait_timeout: Option<ConfigDuration>,
    tcp_be_liberal: Option<bool>,
    udp_timeout: Option<ConfigDuration>,
    udp_stream_timeout: Option<ConfigDuration>,
}

/// `config.zonewise.dev/v1alpha1`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Own {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    proxy_name: Option<String>,
    count: Option<CountBy>,
    count_bytes: Option<bool>,
    demand_address: Option<String>,
    localhost_node_ports: Option<bool>,
    verify_period: Option<ConfigDuration>,
    service_elements: Option<i64>,
    node_elements: Option<i64>,
    feature_gates: Option<BTreeMap<String, bool>>,
}

impl Own {
    pub(super) fn settings(self) -> Result<Settings, ConfigError> {
        let gates = self.feature_gates.unwrap_or_default();
        // An unknown gate in our own document is a typing error; in kube-proxy's it may be a gate of
        // Kubernetes.
        if let Some(unknown) = gates.keys().find(|name| !super::GATES.contains(&name.as_str())) {
            return Err(ConfigError::Gate(unknown.clone()));
        }
        Ok(Settings {
            proxy_name: self.proxy_name,
            count: self.count,
            count_bytes: self.count_bytes,
            demand_address: filled(self.demand_address),
            localhost_nodeports: self.localhost_node_ports,
            verify_period: self.verify_period,
            service_elements: self.service_elements,
            node_elements: self.node_elements,
            feature_gates: gates,
            ..Settings::default()
        })
    }
}

impl KubeProxy {
    pub(super) fn settings(self) -> Result<Settings, ConfigError> {
        self.refuse()?;
        let notices = self.notices();
        let rules = self.rules();
        let conntrack = self.conntrack;
        Ok(Settings {
            content_type: self.client_connection.form(),
            kubeconfig: filled(self.client_connection.kubeconfig).map(PathBuf::from),
            node_name: filled(self.hostname_override),
            bind_address: filled(self.bind_address),
            healthz_address: filled(self.healthz_bind_address),
            metrics_address: filled(self.metrics_bind_address),
            bind_hard_fail: self.bind_address_hard_fail,
            profiling: self.enable_profiling,
            mode: filled(self.mode),
            config_sync_period: self.config_sync_period,
            detect_local_mode: filled(self.detect_local_mode),
            bridge_interface: filled(self.detect_local.bridge_interface),
            interface_prefix: filled(self.detect_local.interface_name_prefix),
            cluster_cidr: filled(self.cluster_cidr),
            nodeport_addresses: self.node_port_addresses.filter(|list| !list.is_empty()),
            oom_score_adj: self.oom_score_adj,
            conntrack_max_per_core: conntrack.max_per_core,
            conntrack_min: conntrack.min,
            conntrack_tcp_established: conntrack.tcp_established_timeout,
            conntrack_tcp_close_wait: conntrack.tcp_close_wait_timeout,
            conntrack_tcp_be_liberal: conntrack.tcp_be_liberal,
            conntrack_udp: conntrack.udp_timeout,
            conntrack_udp_stream: conntrack.udp_stream_timeout,
            feature_gates: self.feature_gates,
            notices,
            ..rules
        })
    }

    /// kube-proxy reads the group of the mode it runs in. In a file for another mode than nftables that
    /// is the group `iptables`; what it leaves open is taken from `nftables`.
    fn rules(&self) -> Settings {
        let (nft, ipt) = (&self.nftables, &self.iptables);
        if self.mode.as_deref() == Some("nftables") {
            return Settings {
                masquerade_bit: nft.masquerade_bit,
                masquerade_all: nft.masquerade_all,
                sync_period: nft.sync_period,
                min_sync_period: nft.min_sync_period,
                ..Settings::default()
            };
        }
        Settings {
            masquerade_bit: ipt.masquerade_bit.or(nft.masquerade_bit),
            masquerade_all: ipt.masquerade_all.filter(|all| *all).or(nft.masquerade_all),
            sync_period: ipt.sync_period.or(nft.sync_period),
            min_sync_period: ipt.min_sync_period.or(nft.min_sync_period),
            localhost_nodeports: ipt.localhost_node_ports,
            ..Settings::default()
        }
    }

    /// Settings that would change how Services work and have no effect here are errors.
    fn refuse(&self) -> Result<(), ConfigError> {
        let no_ipvs = "this proxy has no IPVS mode; remove the field";
        let ipvs = &self.ipvs;
        let rows = [
            ("ipvs.scheduler", shown(ipvs.scheduler.as_ref()), no_ipvs),
            ("ipvs.excludeCIDRs", listed(ipvs.exclude_cidrs.as_ref()), no_ipvs),
            (
                "ipvs.strictARP",
                on(ipvs.strict_arp),
                "this proxy puts no Service address on an interface, so that strict ARP is not needed; \
                 remove the field",
            ),
            ("ipvs.tcpTimeout", ipvs.tcp_timeout.map(|span| span.to_string()), no_ipvs),
            ("ipvs.tcpFinTimeout", ipvs.tcp_fin_timeout.map(|span| span.to_string()), no_ipvs),
            (
                "ipvs.udpTimeout",
                ipvs.udp_timeout.map(|span| span.to_string()),
                "this proxy has no IPVS mode; set conntrack.udpTimeout instead",
            ),
            (
                "showHiddenMetricsForVersion",
                shown(self.show_hidden_metrics_for_version.as_ref()),
                "this proxy has no hidden metrics; remove the field",
            ),
            (
                "clientConnection.burst",
                self.client_connection.burst.filter(|n| *n < 0).map(|n| n.to_string()),
                "use 0 or more, or remove the field",
            ),
        ];
        match rows.into_iter().find_map(|(field, value, help)| Some((field, value?, help))) {
            Some((field, value, remedy)) => Err(ConfigError::field(field, value, remedy)),
            None => Ok(()),
        }
    }

    /// Notices about settings that have no effect here.
    fn notices(&self) -> Vec<String> {
        let (client, logging, windows) = (&self.client_connection, &self.logging, &self.winkernel);
        let windows = windows.enable_dsr == Some(true)
            || windows.forward_health_check_vip == Some(true)
            || [&windows.network_name, &windows.source_vip, &windows.root_hns_endpoint_name]
                .into_iter()
                .any(|name| shown(name.as_ref()).is_some());
        let limited = client.qps.is_some_and(|qps| qps != 0.0 && qps != 5.0)
            || client.burst.is_some_and(|burst| ![0, 10].contains(&burst));
        let unknown_form = client.content_type.as_deref().is_some_and(|form| !form.is_empty())
            && client.form().is_none();
        let logging = logging.verbosity.is_some_and(|verbosity| verbosity != 0)
            || logging.vmodule.as_ref().is_some_and(|list| !list.is_empty())
            || logging.format.as_deref().is_some_and(|format| !["", "text"].contains(&format));
        let rows = [
            (
                limited,
                "clientConnection.qps and burst have no effect: this proxy makes few requests",
            ),
            (
                unknown_form,
                "clientConnection.contentType has no effect: this proxy reads protobuf, or JSON with application/json",
            ),
            (
                shown(client.accept_content_types.as_ref()).is_some(),
                "clientConnection.acceptContentTypes has no effect: set contentType to application/json for JSON",
            ),
            (logging, "logging has no effect: use the flags --log-level and --log-format"),
            (
                windows || self.windows_run_as_service == Some(true),
                "winkernel and windowsRunAsService have no effect: this proxy runs on Linux only",
            ),
            (
                self.port_range.as_deref().is_some_and(|range| !["", "0-0"].contains(&range)),
                "portRange has no effect, as in kube-proxy",
            ),
        ];
        rows.into_iter().filter(|row| row.0).map(|row| row.1.to_owned()).collect()
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn shown(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| format!("`{text}`"))
}

fn listed(list: Option<&Vec<String>>) -> Option<String> {
    list.filter(|list| !list.is_empty()).map(|list| format!("`{}`", list.join(",")))
}

fn on(flag: Option<bool>) -> Option<String> {
    flag.filter(|flag| *flag).map(|flag| flag.to_string())
}
