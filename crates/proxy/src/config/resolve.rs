//! Checks settings and fills in defaults.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use zonewise_common::cidr::Cidr;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::ip::parse_address;
use zonewise_common::proxy_pages::{COUNTS_PORT, METRICS_PORT};
use zonewise_telemetry::file::FileError;

use super::gates::Gates;
use super::{
    Budget, Config, ConfigError, Connection, Conntrack, DetectLocal, GATES, NodePortAddresses,
    Settings,
};

/// Below this even small Services would lose something.
const MIN_ELEMENTS: usize = 1000;

type Checked<T> = Result<T, ConfigError>;

/// The name of this machine, as its kernel knows it.
///
/// # Errors
/// If it cannot be read.
pub fn host_name() -> Checked<String> {
    let path = Path::new("/proc/sys/kernel/hostname");
    let read = std::fs::read_to_string(path).map_err(|source| FileError::Unreadable {
        file: format!("{} (or pass --node-name)", path.display()),
        source,
    });
    Ok(read?)
}

impl Settings {
    /// Checks all settings and fills in defaults. `host` is the name of this machine, which is the
    /// default of the node name.
    ///
    /// # Errors
    /// With the first field that is not valid.
    pub fn resolve(mut self, host: &str) -> Checked<Config> {
        self.refuse()?;
        let usual = Config::new(node_name(self.node_name.as_deref().unwrap_or(host))?);
        let bind_address = self.bind_address()?;
        let v6 = bind_address.is_some_and(|address| address.is_ipv6());
        let (min_sync_period, sync_period) = self.sync_periods(&usual)?;
        let detect_local = self.detect_local()?;
        let nodeport_addresses = self.nodeport_addresses()?;
        let demand = self.demand_address(v6)?;
        self.add_notices();
        let gates = self.gates();
        Ok(Config {
            detect_local,
            nodeport_addresses,
            localhost_nodeports: self.localhost_nodeports.unwrap_or(usual.localhost_nodeports),
            masquerade_all: self.masquerade_all.unwrap_or(usual.masquerade_all),
            masquerade_bit: masquerade_bit(self.masquerade_bit, usual.masquerade_bit)?,
            min_sync_period,
            sync_period,
            verify_period: self.verify_period()?,
            budget: self.budget(usual.budget)?,
            conntrack: self.conntrack()?,
            oom_score_adj: oom_score_adj(self.oom_score_adj, usual.oom_score_adj)?,
            healthz: HEALTHZ.resolve(self.healthz_address.as_deref(), v6)?,
            metrics: METRICS.resolve(self.metrics_address.as_deref(), v6)?,
            bind_hard_fail: self.bind_hard_fail.unwrap_or(usual.bind_hard_fail),
            bind_address: bind_address.filter(|address| !address.is_unspecified()),
            proxy_name: proxy_name(self.proxy_name)?,
            count: self.count.unwrap_or(usual.count),
            count_bytes: self.count_bytes.unwrap_or(usual.count_bytes),
            demand,
            routing: gates.routing,
            allow_external_ips: gates.allow_external_ips,
            notices: self.notices,
            connection: Connection {
                kubeconfig: self.kubeconfig,
                master: self.master,
                content_type: self.content_type.unwrap_or_default(),
            },
            node_name: usual.node_name,
        })
    }

    fn refuse(&self) -> Checked<()> {
        if self.profiling == Some(true) {
            let remedy = "this proxy has no profiler; leave it out, and use perf on the node";
            return Err(ConfigError::field("enableProfiling (--profiling)", true, remedy));
        }
        if self.count_bytes == Some(true) && self.count != Some(super::CountBy::Services) {
            let remedy =
                "bytes are counted by Service: use it with count: services (--count services)";
            return Err(ConfigError::field("countBytes (--count-bytes)", true, remedy));
        }
        let mode = self.mode.as_deref().unwrap_or_default();
        if !["", "nftables", "iptables", "ipvs"].contains(&mode) {
            let remedy = "use nftables, or leave it out";
            return Err(ConfigError::field("mode (--proxy-mode)", format!("`{mode}`"), remedy));
        }
        Ok(())
    }

    /// Off unless an address is given.
    fn demand_address(&self, v6: bool) -> Checked<Option<SocketAddr>> {
        let Some(text) = self.demand_address.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let address = DEMAND.resolve(Some(text), v6)?;
        if address.is_some() && self.count != Some(super::CountBy::Services) {
            let remedy = "counts by Service are served there: use it with count: services (--count services)";
            return Err(ConfigError::field(DEMAND.field, format!("`{text}`"), remedy));
        }
        Ok(address)
    }

    fn bind_address(&self) -> Checked<Option<IpAddr>> {
        let Some(text) = self.bind_address.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        parse_address(text).map(Some).ok_or_else(|| {
            let remedy = "use an IP address of this node, such as 192.0.2.1";
            ConfigError::field("bindAddress (--bind-address)", format!("`{text}`"), remedy)
        })
    }

    fn sync_periods(&self, usual: &Config) -> Checked<(Duration, Duration)> {
        let sync = self.sync_period.map_or(usual.sync_period, |span| span.0);
        if sync.is_zero() {
            let remedy = "use a duration above 0, such as 30s";
            return Err(ConfigError::field(
                "nftables.syncPeriod (--sync-period)",
                ConfigDuration(sync),
                remedy,
            ));
        }
        let min = self.min_sync_period.map_or(usual.min_sync_period.min(sync), |span| span.0);
        if min > sync {
            let remedy = "use at most nftables.syncPeriod (--sync-period)";
            let field = "nftables.minSyncPeriod (--min-sync-period)";
            return Err(ConfigError::field(field, ConfigDuration(min), remedy));
        }
        Ok((min, sync))
    }

    fn verify_period(&self) -> Checked<Duration> {
        let period = self.verify_period.map_or(super::VERIFY_PERIOD, |span| span.0);
        if period < Duration::from_secs(1) {
            let remedy = "use 1s or more";
            return Err(ConfigError::field(
                "verifyPeriod (--verify-period)",
                ConfigDuration(period),
                remedy,
            ));
        }
        Ok(period)
    }

    fn budget(&self, usual: Budget) -> Checked<Budget> {
        let limit = |field, given: Option<i64>, usual: usize| match given.map(usize::try_from) {
            None => Ok(usual),
            Some(Ok(given)) if given >= MIN_ELEMENTS => Ok(given),
            Some(_) => {
                let remedy = "use 1000 or more, or leave it out";
                Err(ConfigError::field(field, given.unwrap_or_default(), remedy))
            }
        };
        let service = "serviceElements (--service-elements)";
        let node = "nodeElements (--node-elements)";
        Ok(Budget {
            service: limit(service, self.service_elements, usual.service)?,
            node: limit(node, self.node_elements, usual.node)?,
        })
    }

    fn detect_local(&mut self) -> Checked<DetectLocal> {
        let interface = |field, name: Option<&String>| match name {
            Some(name) if is_interface(name) => Ok(name.clone()),
            name => {
                let value = format!("`{}`", name.map_or("", String::as_str));
                let remedy = "this detectLocalMode needs the name of an interface: 1 to 15 characters \
                              without slashes and blanks";
                Err(ConfigError::field(field, value, remedy))
            }
        };
        match self.detect_local_mode.as_deref().unwrap_or_default() {
            "" | "ClusterCIDR" => self.cluster_cidrs(),
            "NodeCIDR" => Ok(DetectLocal::NodeCidr),
            "BridgeInterface" => {
                let field = "detectLocal.bridgeInterface (--pod-bridge-interface)";
                interface(field, self.bridge_interface.as_ref()).map(DetectLocal::Bridge)
            }
            "InterfaceNamePrefix" => {
                let field = "detectLocal.interfaceNamePrefix (--pod-interface-name-prefix)";
                interface(field, self.interface_prefix.as_ref()).map(DetectLocal::InterfacePrefix)
            }
            other => {
                let remedy = "use ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
                let field = "detectLocalMode (--detect-local-mode)";
                Err(ConfigError::field(field, format!("`{other}`"), remedy))
            }
        }
    }

    fn cluster_cidrs(&mut self) -> Checked<DetectLocal> {
        let text = self.cluster_cidr.as_deref().unwrap_or_default();
        if text.is_empty() {
            self.notices.push(NO_CLUSTER_CIDR.to_owned());
            return Ok(DetectLocal::None);
        }
        let wrong = |remedy| {
            ConfigError::field("clusterCIDR (--cluster-cidr)", format!("`{text}`"), remedy)
        };
        let cidrs =
            text.split(',').map(|part| Cidr::parse(part.trim())).collect::<Option<Vec<_>>>();
        let cidrs = cidrs.ok_or_else(|| wrong("use a range such as 10.244.0.0/16"))?;
        match cidrs.as_slice() {
            [_] => Ok(DetectLocal::Cidrs(cidrs)),
            [one, two] if one.address().is_ipv4() != two.address().is_ipv4() => {
                Ok(DetectLocal::Cidrs(cidrs))
            }
            _ => Err(wrong("use one range, or an IPv4 and an IPv6 range separated by a comma")),
        }
    }

    fn nodeport_addresses(&self) -> Checked<NodePortAddresses> {
        let list = self.nodeport_addresses.as_deref().unwrap_or_default();
        if list.is_empty() || list == ["primary"] {
            return Ok(NodePortAddresses::Primary);
        }
        let cidrs = list.iter().map(|text| {
            Cidr::parse(text).ok_or_else(|| {
                let remedy = "use ranges such as 192.0.2.0/24, or only `primary`";
                let field = "nodePortAddresses (--nodeport-addresses)";
                ConfigError::field(field, format!("`{}`", list.join(",")), remedy)
            })
        });
        cidrs.collect::<Checked<_>>().map(NodePortAddresses::Cidrs)
    }

    fn conntrack(&self) -> Checked<Conntrack> {
        let usual = Conntrack::default();
        let number = |field, value: Option<i64>, usual: u32| match value.map(u32::try_from) {
            None => Ok(usual),
            Some(Ok(number)) if i32::try_from(number).is_ok() => Ok(number),
            Some(_) => {
                let remedy = "use 1 to 2147483647, or 0 to keep the kernel's value";
                Err(ConfigError::field(field, value.unwrap_or_default(), remedy))
            }
        };
        let seconds = |value: Option<ConfigDuration>, usual: Option<Duration>| match value {
            None => usual,
            Some(span) => Some(span.0).filter(|span| !span.is_zero()),
        };
        let per_core = number(
            "conntrack.maxPerCore (--conntrack-max-per-core)",
            self.conntrack_max_per_core,
            usual.max_per_core.unwrap_or_default(),
        )?;
        Ok(Conntrack {
            max_per_core: Some(per_core).filter(|number| *number > 0),
            min: number("conntrack.min (--conntrack-min)", self.conntrack_min, usual.min)?,
            tcp_established: seconds(self.conntrack_tcp_established, usual.tcp_established),
            tcp_close_wait: seconds(self.conntrack_tcp_close_wait, usual.tcp_close_wait),
            tcp_be_liberal: self.conntrack_tcp_be_liberal.unwrap_or(usual.tcp_be_liberal),
            udp: seconds(self.conntrack_udp, usual.udp),
            udp_stream: seconds(self.conntrack_udp_stream, usual.udp_stream),
        })
    }

    fn add_notices(&mut self) {
        if let Some(mode @ ("iptables" | "ipvs")) = self.mode.as_deref() {
            let notice = format!(
                "mode {mode} has no effect: this proxy always writes nftables rules; NodePorts answer on the \
                 addresses in nodePortAddresses, by default `primary`"
            );
            self.notices.push(notice);
        }
        if self.config_sync_period.is_some_and(|span| span.0 != Duration::from_mins(15)) {
            self.notices.push(
                "configSyncPeriod has no effect: this proxy does not resync its watches".to_owned(),
            );
        }
    }

    /// Gates that are not ours get a notice: files for kube-proxy may have gates of Kubernetes.
    fn gates(&mut self) -> Gates {
        let mut gates = Gates::of(&Config::new(""));
        for (name, on) in &self.feature_gates {
            if !gates.set(name, *on) {
                self.notices.push(format!(
                    "feature gate {name} has no effect here; gates with an effect: {}",
                    GATES.join(", ")
                ));
            }
        }
        gates
    }
}

const NO_CLUSTER_CIDR: &str = "clusterCIDR is not set: traffic of local Pods cannot be recognised, and \
                               traffic from outside the cluster to ClusterIPs is not masqueraded; set \
                               clusterCIDR, or another detectLocalMode";

fn node_name(text: &str) -> Checked<String> {
    let name = text.trim().to_lowercase();
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if name.is_empty() || name.len() > 253 || !name.bytes().all(letter) {
        let field = "hostnameOverride (--node-name)";
        let remedy = "use the name of this machine's Node object: letters, digits, - and .";
        return Err(ConfigError::field(field, format!("`{name}`"), remedy));
    }
    Ok(name)
}

fn masquerade_bit(value: Option<i64>, usual: u8) -> Checked<u8> {
    let Some(bit) = value else { return Ok(usual) };
    u8::try_from(bit).ok().filter(|bit| *bit < 32).ok_or_else(|| {
        ConfigError::field("nftables.masqueradeBit (--masquerade-bit)", bit, "use 0 to 31")
    })
}

fn oom_score_adj(value: Option<i64>, usual: i32) -> Checked<i32> {
    let Some(score) = value else { return Ok(usual) };
    i32::try_from(score).ok().filter(|score| (-1000..=1000).contains(score)).ok_or_else(|| {
        ConfigError::field("oomScoreAdj (--oom-score-adj)", score, "use -1000 to 1000")
    })
}

/// A valid label value, because Services are selected by a label with this value.
fn proxy_name(name: Option<String>) -> Checked<Option<String>> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let fits = edge(name.bytes().next()) && edge(name.bytes().last()) && name.len() <= 63;
    if fits && name.bytes().all(inner) {
        return Ok(Some(name));
    }
    let remedy = "use a valid label value: at most 63 letters, digits, -, _ and ., with a letter or \
                  digit at both ends";
    Err(ConfigError::field("proxyName (--proxy-name)", format!("`{name}`"), remedy))
}

/// Whether the kernel could give this name to an interface.
fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && ![".", ".."].contains(&name)
}

/// A setting for the address of a server, with its defaults.
struct Served {
    field: &'static str,
    port: u16,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// The port is kube-proxy's (`ProxyHealthzPort` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/cluster/ports/ports.go>).
const HEALTHZ: Served = Served {
    field: "healthzBindAddress (--healthz-bind-address)",
    port: 10256,
    v4: Ipv4Addr::UNSPECIFIED,
    v6: Ipv6Addr::UNSPECIFIED,
};

const METRICS: Served = Served {
    field: "metricsBindAddress (--metrics-bind-address)",
    port: METRICS_PORT,
    v4: Ipv4Addr::LOCALHOST,
    v6: Ipv6Addr::LOCALHOST,
};

const DEMAND: Served = Served {
    field: "demandAddress (--demand-address)",
    port: COUNTS_PORT,
    v4: Ipv4Addr::UNSPECIFIED,
    v6: Ipv6Addr::UNSPECIFIED,
};

impl Served {
    /// `None` if the port is 0, which turns the server off.
    fn resolve(&self, text: Option<&str>, v6: bool) -> Checked<Option<SocketAddr>> {
        let usual = if v6 { IpAddr::from(self.v6) } else { IpAddr::from(self.v4) };
        let text = text.unwrap_or_default();
        if text.is_empty() {
            return Ok(Some(SocketAddr::new(usual, self.port)));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']').parse();
        let address = bare.map(|ip| SocketAddr::new(ip, self.port)).or_else(|_| text.parse());
        let address = address.map_err(|_| {
            let remedy =
                "use an IP address and a port, such as 127.0.0.1:10249; port 0 turns it off";
            ConfigError::field(self.field, format!("`{text}`"), remedy)
        })?;
        Ok(Some(address).filter(|address| address.port() != 0))
    }
}
