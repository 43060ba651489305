//! The configuration in force, as files: what `/configz` shows and `--write-config-to` writes.
//!
//! The file gives the same configuration when it is read again, but for the address of `--master`, for
//! which it has no field.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_common::duration::ConfigDuration;

use super::gates::Gates;
use super::{Config, DetectLocal, NodePortAddresses, document};

impl Config {
    /// The body of `/configz`.
    pub fn configz(&self) -> String {
        let page = json!({
            "kubeproxy.config.k8s.io": self.kube_proxy(),
            "config.zonewise.dev": self.own(),
        });
        page.to_string()
    }

    /// Both documents, as YAML.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_map(&mut text, &self.kube_proxy(), 0);
        text.push_str("---\n");
        write_map(&mut text, &self.own(), 0);
        text
    }

    fn kube_proxy(&self) -> Value {
        let Detection { mode, bridge, prefix, cidrs } = self.detection();
        let conntrack = &self.conntrack;
        let kept = |time: Option<Duration>| span(time.unwrap_or_default());
        json!({
            "apiVersion": document::KUBE_API,
            "kind": document::KUBE_KIND,
            "bindAddress": self.bind_address.map_or_else(|| "0.0.0.0".into(), |ip| ip.to_string()),
            "bindAddressHardFail": self.bind_hard_fail,
            "clientConnection": {
                "contentType": self.connection.content_type.media_type(),
                "kubeconfig": self.kubeconfig(),
            },
            "clusterCIDR": cidrs,
            "conntrack": {
                "maxPerCore": conntrack.max_per_core.unwrap_or_default(),
                "min": conntrack.min,
                "tcpBeLiberal": conntrack.tcp_be_liberal,
                "tcpCloseWaitTimeout": kept(conntrack.tcp_close_wait),
                "tcpEstablishedTimeout": kept(conntrack.tcp_established),
                "udpStreamTimeout": kept(conntrack.udp_stream),
                "udpTimeout": kept(conntrack.udp),
            },
            "detectLocal": { "bridgeInterface": bridge, "interfaceNamePrefix": prefix },
            "detectLocalMode": mode,
            "enableProfiling": false,
            "featureGates": self.gates(),
            "healthzBindAddress": served(self.healthz),
            "hostnameOverride": self.node_name,
            "metricsBindAddress": served(self.metrics),
            "mode": "nftables",
            "nftables": {
                "masqueradeAll": self.masquerade_all,
                "masqueradeBit": self.masquerade_bit,
                "minSyncPeriod": span(self.min_sync_period.max(Duration::from_nanos(1))),
                "syncPeriod": span(self.sync_period),
            },
            "nodePortAddresses": self.nodeports(),
            "oomScoreAdj": self.oom_score_adj,
        })
    }

    fn own(&self) -> Value {
        json!({
            "apiVersion": document::OWN_API,
            "kind": document::OWN_KIND,
            "count": self.count.to_string(),
            "countBytes": self.count_bytes,
            "demandAddress": self.demand.map(|address| address.to_string()).unwrap_or_default(),
            "localhostNodePorts": self.localhost_nodeports,
            "nodeElements": self.budget.node,
            "proxyName": self.proxy_name.as_deref().unwrap_or_default(),
            "serviceElements": self.budget.service,
            "verifyPeriod": span(self.verify_period),
        })
    }

    fn kubeconfig(&self) -> String {
        let path = self.connection.kubeconfig.as_deref();
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }

    fn gates(&self) -> Value {
        Gates::of(self).all().into_iter().collect()
    }

    fn detection(&self) -> Detection<'_> {
        let mode = |mode| Detection { mode, ..Detection::default() };
        match &self.detect_local {
            DetectLocal::Cidrs(cidrs) => Detection { cidrs: joined(cidrs), ..mode("ClusterCIDR") },
            DetectLocal::NodeCidr => mode("NodeCIDR"),
            DetectLocal::Bridge(bridge) => Detection { bridge, ..mode("BridgeInterface") },
            DetectLocal::InterfacePrefix(prefix) => {
                Detection { prefix, ..mode("InterfaceNamePrefix") }
            }
            DetectLocal::None => mode("ClusterCIDR"),
        }
    }

    fn nodeports(&self) -> Vec<String> {
        match &self.nodeport_addresses {
            NodePortAddresses::Primary => vec!["primary".to_owned()],
            NodePortAddresses::Cidrs(cidrs) => cidrs.iter().map(ToString::to_string).collect(),
        }
    }
}

/// How local Pods are recognised, as fields of the file.
#[derive(Default)]
struct Detection<'a> {
    mode: &'static str,
    bridge: &'a str,
    prefix: &'a str,
    cidrs: String,
}

fn joined(list: &[impl ToString]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn span(time: Duration) -> String {
    ConfigDuration(time).to_string()
}

/// Port 0 turns a server off.
fn served(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "127.0.0.1:0".to_owned(), |address| address.to_string())
}

/// Groups by indentation; every value as JSON, which is YAML too.
fn write_map(text: &mut String, value: &Value, depth: usize) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let indent = "  ".repeat(depth);
        if value.as_object().is_some_and(|map| !map.is_empty()) {
            text.push_str(&format!("{indent}{key}:\n"));
            write_map(text, value, depth + 1);
        } else {
            text.push_str(&format!("{indent}{key}: {value}\n"));
        }
    }
}
