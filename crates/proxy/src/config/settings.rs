//! The settings of a file or of the flags: one flat list in which every entry may be absent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zonewise_cluster::watch::ContentType;
use zonewise_common::duration::ConfigDuration;
use zonewise_telemetry::file::{self, FileError};

use super::document::{self, Head, KubeProxy, Own};
use super::{ConfigError, CountBy};

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// Settings as given, not checked yet.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Settings {
            $($(#[$doc])* pub $name: Option<$kind>,)*
            /// Features by name.
            pub feature_gates: BTreeMap<String, bool>,
            /// Notices for the log about settings that have no effect.
            pub notices: Vec<String>,
        }

        impl Settings {
            /// These settings, replaced by those that `over` has.
            #[must_use]
            pub fn overridden_by(mut self, over: Self) -> Self {
                self.feature_gates.extend(over.feature_gates);
                self.notices.extend(over.notices);
                Self {
                    $($name: over.$name.or(self.$name),)*
                    feature_gates: self.feature_gates,
                    notices: self.notices,
                }
            }
        }
    };
}

settings! {
    /// How to reach the cluster.
    kubeconfig: PathBuf,
    /// The API server's address; wins over the kubeconfig's.
    master: String,
    /// The form in which objects are asked for.
    content_type: ContentType,
    /// Which Node this is.
    node_name: String,
    /// The node's address, if it is not the Node object's first.
    bind_address: String,
    /// Where `/healthz` and `/livez` are served.
    healthz_address: String,
    /// Where `/metrics` and the pages beside it are served.
    metrics_address: String,
    /// Whether an address that cannot be bound ends the process.
    bind_hard_fail: bool,
    /// An error when true.
    profiling: bool,
    /// Without effect: there is only one mode.
    mode: String,
    /// The bit of the packet mark that asks for masquerading.
    masquerade_bit: i64,
    /// Whether all traffic to Services is masqueraded.
    masquerade_all: bool,
    /// How long a change may wait until `/healthz` fails: twice this.
    sync_period: ConfigDuration,
    /// How long changes are gathered.
    min_sync_period: ConfigDuration,
    /// Without effect: watches need no resync here.
    config_sync_period: ConfigDuration,
    /// How traffic of local Pods is recognised.
    detect_local_mode: String,
    /// The bridge interface of local Pods.
    bridge_interface: String,
    /// The prefix of the names of local Pods' interfaces.
    interface_prefix: String,
    /// The Pods' addresses, at most one range per family.
    cluster_cidr: String,
    /// Where NodePorts answer: ranges, or `primary`.
    nodeport_addresses: Vec<String>,
    /// Whether NodePorts answer on 127.0.0.1.
    localhost_nodeports: bool,
    /// How unlikely the process is killed when memory is short.
    oom_score_adj: i64,
    /// Connections tracked per CPU; 0 leaves the kernel's.
    conntrack_max_per_core: i64,
    /// Connections tracked at least.
    conntrack_min: i64,
    /// Idle established TCP; 0 leaves the kernel's.
    conntrack_tcp_established: ConfigDuration,
    /// TCP in CLOSE_WAIT; 0 leaves the kernel's.
    conntrack_tcp_close_wait: ConfigDuration,
    /// Whether packets out of window pass.
    conntrack_tcp_be_liberal: bool,
    /// UDP without reply; 0 leaves the kernel's.
    conntrack_udp: ConfigDuration,
    /// UDP with replies; 0 leaves the kernel's.
    conntrack_udp_stream: ConfigDuration,
    /// Take only the Services labelled with this proxy's name.
    proxy_name: String,
    /// What connections are counted by.
    count: CountBy,
    /// Whether bytes are counted by Service and zone.
    count_bytes: bool,
    /// Where counts by Service are served to the controller.
    demand_address: String,
    /// How often the kernel's state is compared with what it should be.
    verify_period: ConfigDuration,
    /// The most elements in the kernel for one Service.
    service_elements: i64,
    /// The most elements in the kernel for all Services.
    node_elements: i64,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is not a configuration of the proxy, with line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (name, text) = file::read(path)?;
        Self::parse(&name, &text)
    }

    /// Reads the text of a file with this name: one document, or one of each kind.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut found: [Option<Self>; 2] = [None, None];
        for document in documents(text) {
            let head: Head = file::decode(name, &document)?;
            let (at, settings) = match (head.api_version.as_deref(), head.kind.as_deref()) {
                (Some(document::KUBE_API), Some(document::KUBE_KIND)) => {
                    (0, file::decode::<KubeProxy>(name, &document)?.settings()?)
                }
                (Some(document::OWN_API), Some(document::OWN_KIND)) => {
                    (1, file::decode::<Own>(name, &document)?.settings()?)
                }
                _ => return Err(ConfigError::Kind { file: name.to_owned() }),
            };
            if found[at].replace(settings).is_some() {
                let kind = head.kind.unwrap_or_default();
                let message =
                    format!("the file has two documents of kind {kind}: merge them into one");
                return Err(FileError::of(name, message).into());
            }
        }
        match found {
            [None, None] => Err(ConfigError::Kind { file: name.to_owned() }),
            [kube, own] => Ok(kube.unwrap_or_default().overridden_by(own.unwrap_or_default())),
        }
    }
}

/// The documents of a YAML file, each preceded by as many empty lines as are before it in the file, so
/// that errors name the right line. Lines that begin with `---` separate documents.
fn documents(text: &str) -> Vec<String> {
    let mut list = vec![String::new()];
    for (lines, line) in text.split_inclusive('\n').enumerate() {
        let rest = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        match (rest, list.last_mut()) {
            (None, Some(last)) => last.push_str(line),
            (rest, _) => list.push("\n".repeat(lines) + "   " + rest.unwrap_or_default()),
        }
    }
    list.retain(|document| !document.lines().all(is_blank));
    list
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}
