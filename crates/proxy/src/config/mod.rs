//! Configuration: kube-proxy's file and flags, and a few settings of our own.
//!
//! ```text
//!  KubeProxyConfiguration ┐
//!  ---                    ├─► Settings ─ overridden_by(flags) ─► Settings ─ resolve ─► Config
//!  ProxyConfiguration     ┘   (may be absent)                                (checked)
//!                                                              Config ─► to_yaml, configz
//! ```
//!
//! Flags take precedence over the file, also those that kube-proxy ignores when it has a file. Defaults
//! are those of kube-proxy in its nftables mode, but for one: changes are collected for
//! [50 ms](MIN_SYNC_PERIOD) instead of a second, because a sync is cheap.

mod document;
mod effective;
mod gates;
mod resolve;
mod settings;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use zonewise_cluster::watch::ContentType;
use zonewise_common::cidr::Cidr;
use zonewise_telemetry::file::FileError;

pub use crate::rules::budget::Budget;
pub use gates::GATES;
pub use resolve::host_name;
pub use settings::Settings;

/// The configuration of a proxy: checked, with all defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which Node this is.
    pub node_name: String,
    /// How to reach the API server.
    pub connection: Connection,
    /// How traffic of local Pods is recognised.
    pub detect_local: DetectLocal,
    /// Where NodePorts answer.
    pub nodeport_addresses: NodePortAddresses,
    /// Whether NodePorts answer on 127.0.0.1 too.
    pub localhost_nodeports: bool,
    /// Whether all traffic to Services is masqueraded.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading: 0 to 31.
    pub masquerade_bit: u8,
    /// How long changes are gathered before a sync.
    pub min_sync_period: Duration,
    /// A change that waits for twice as long makes the proxy unhealthy.
    pub sync_period: Duration,
    /// How often the kernel's state is compared with what it should be.
    pub verify_period: Duration,
    /// How many elements in the kernel Services may have.
    pub budget: Budget,
    /// Settings of the kernel's connection tracking.
    pub conntrack: Conntrack,
    /// How unlikely the kernel kills the process when memory is short: -1000 to 1000.
    pub oom_score_adj: i32,
    /// Where `/healthz` and `/livez` are served; `None` without.
    pub healthz: Option<SocketAddr>,
    /// Where `/metrics` and the pages beside it are served; `None` without.
    pub metrics: Option<SocketAddr>,
    /// Whether an address that cannot be bound ends the process.
    pub bind_hard_fail: bool,
    /// The node's address, if it is not the Node object's first.
    pub bind_address: Option<IpAddr>,
    /// Take only Services labelled with this name; `None` takes those without a label.
    pub proxy_name: Option<String>,
    /// What connections are counted by.
    pub count: CountBy,
    /// Whether bytes are counted by Service and zone.
    pub count_bytes: bool,
    /// Where counts by Service are served to the controller; `None` without.
    pub demand: Option<SocketAddr>,
    /// Which of the topology features are in use.
    pub routing: zonewise_routing::FeatureGates,
    /// Whether `spec.externalIPs` is served.
    pub allow_external_ips: bool,
    /// Notices for the log about settings that have no effect.
    pub notices: Vec<String>,
}

/// How to reach the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The file; without it the service account of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address; wins over the kubeconfig's.
    pub master: Option<String>,
    /// The form in which objects are asked for.
    pub content_type: ContentType,
}

/// How traffic of local Pods is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    /// By source address; at most one range per family.
    Cidrs(Vec<Cidr>),
    /// By source address, from the Node's `spec.podCIDRs`.
    NodeCidr,
    /// By the interface it comes in through.
    Bridge(String),
    /// By the prefix of the name of that interface.
    InterfacePrefix(String),
    /// Not at all.
    None,
}

/// Where NodePorts answer, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// On the node's own address of each family.
    Primary,
    /// On every address of the machine in these ranges.
    Cidrs(Vec<Cidr>),
}

/// Settings of the kernel's connection tracking; `None` keeps the kernel's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Connections tracked per CPU.
    pub max_per_core: Option<u32>,
    /// Connections tracked at least, whatever the CPUs.
    pub min: u32,
    /// Idle established TCP.
    pub tcp_established: Option<Duration>,
    /// TCP in CLOSE_WAIT.
    pub tcp_close_wait: Option<Duration>,
    /// Whether packets out of window pass.
    pub tcp_be_liberal: bool,
    /// UDP without reply.
    pub udp: Option<Duration>,
    /// UDP with replies.
    pub udp_stream: Option<Duration>,
}

impl Default for Conntrack {
    fn default() -> Self {
        Self {
            max_per_core: Some(32_768),
            min: 131_072,
            tcp_established: Some(Duration::from_hours(24)),
            tcp_close_wait: Some(Duration::from_hours(1)),
            tcp_be_liberal: false,
            udp: None,
            udp_stream: None,
        }
    }
}

/// What connections are counted by, each including those before. Counting by Service costs kernel
/// memory for every Service that is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum CountBy {
    /// Not at all.
    None,
    /// By the zone they go to.
    #[default]
    Zones,
    /// By Service and zone.
    Services,
}

impl FromStr for CountBy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zones" => Ok(Self::Zones),
            "services" => Ok(Self::Services),
            "none" => Ok(Self::None),
            _ => Err(format!(
                "connections cannot be counted by `{text}`: use zones, services or none"
            )),
        }
    }
}

impl TryFrom<String> for CountBy {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for CountBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Zones => "zones",
            Self::Services => "services",
            Self::None => "none",
        })
    }
}

/// The least time between two syncs. kube-proxy waits a second (in the same file as the default of
/// [`SYNC_PERIOD`]), because its syncs are expensive. Here a
/// change after a pause is synced at once, and a stream of changes up to 20 times a second.
pub const MIN_SYNC_PERIOD: Duration = Duration::from_millis(50);

/// The default of kube-proxy
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/proxy/apis/config/v1alpha1/defaults.go>).
pub const SYNC_PERIOD: Duration = Duration::from_secs(30);

/// How often the kernel's state is compared with what it should be.
pub const VERIFY_PERIOD: Duration = Duration::from_mins(1);

impl Config {
    /// The defaults, for this node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            connection: Connection::default(),
            detect_local: DetectLocal::None,
            nodeport_addresses: NodePortAddresses::Primary,
            localhost_nodeports: false,
            masquerade_all: false,
            masquerade_bit: 14,
            min_sync_period: MIN_SYNC_PERIOD,
            sync_period: SYNC_PERIOD,
            verify_period: VERIFY_PERIOD,
            budget: Budget::default(),
            conntrack: Conntrack::default(),
            oom_score_adj: -999,
            healthz: Some(([0, 0, 0, 0], 10256).into()),
            metrics: Some(([127, 0, 0, 1], 10249).into()),
            bind_hard_fail: false,
            bind_address: None,
            proxy_name: None,
            count: CountBy::default(),
            count_bytes: false,
            demand: None,
            routing: zonewise_routing::FeatureGates::default(),
            allow_external_ips: true,
            notices: Vec::new(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read, or is not valid.
    #[error(transparent)]
    File(#[from] FileError),
    /// A document that is not a configuration of the proxy.
    #[error(
        "{file}: expected apiVersion {} and kind {}, or apiVersion {} and kind {}",
        document::KUBE_API,
        document::KUBE_KIND,
        document::OWN_API,
        document::OWN_KIND
    )]
    Kind {
        /// The file.
        file: String,
    },
    /// A gate that does not exist, in a document of ours.
    #[error("unknown feature gate `{0}`; known gates: {known}", known = GATES.join(", "))]
    Gate(String),
    /// A value that is not valid.
    #[error("{field} is {value}: {remedy}")]
    Field {
        /// The field, with its flag.
        field: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what is valid.
        remedy: &'static str,
    },
}

impl ConfigError {
    fn field(field: &'static str, value: impl fmt::Display, remedy: &'static str) -> Self {
        Self::Field { field, value: value.to_string(), remedy }
    }
}
