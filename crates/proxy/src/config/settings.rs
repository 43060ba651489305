//! What a file says, or the flags: one flat list in which every entry may be absent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zonewise_common::duration::ConfigDuration;
use zonewise_telemetry::file::{self, FileError};

use super::document::{self, Head, KubeProxy, Own};
use super::{ConfigError, Count};

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// Settings as given, not checked yet.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Settings {
            $($(#[$doc])* pub $name: Option<$kind>,)*
            /// Features by name.
            pub feature_gates: BTreeMap<String, bool>,
            /// What was accepted and has no effect, in sentences for the log.
            pub notices: Vec<String>,
        }

        impl Settings {
            /// What `over` sets wins.
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
    /// Refused when true.
    profiling: bool,
    /// Accepted, because there is only one.
    mode: String,
    /// The bit of the packet mark that asks for masquerading.
    masquerade_bit: i64,
    /// Whether all traffic to Services is masqueraded.
    masquerade_all: bool,
    /// How long a change may wait until `/healthz` fails: twice this.
    sync_period: ConfigDuration,
    /// How long changes are gathered.
    min_sync_period: ConfigDuration,
    /// Accepted: watches need no resync here.
    config_sync_period: ConfigDuration,
    /// How traffic of local Pods is told apart.
    detect_local_mode: String,
    /// The bridge of local Pods.
    bridge_interface: String,
    /// How interfaces of local Pods begin.
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
    count: Count,
    /// How often the kernel's state is compared with what it should be.
    verify_period: ConfigDuration,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no configuration of the proxy, with line and column.
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
                let message = format!("{kind} is there twice; put both into one document");
                return Err(FileError::of(name, message).into());
            }
        }
        match found {
            [None, None] => Err(ConfigError::Kind { file: name.to_owned() }),
            [kube, own] => Ok(kube.unwrap_or_default().overridden_by(own.unwrap_or_default())),
        }
    }
}

/// The documents of a YAML stream, each at the lines where it stands in the file, so that a message
/// about it names the right line. A line that begins with `---` can be nothing else.
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
