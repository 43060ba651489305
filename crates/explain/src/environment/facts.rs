//! What was seen of the programs that run in a cluster, before anything is concluded from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zonewise_common::keys::COMPONENT;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Name, SYSTEM_NAMESPACE};
use zonewise_demand::Millis;
use zonewise_demand::account::{Account, account};
use zonewise_inventory::demand;
use zonewise_slices::labels::Labels;
use zonewise_slices::pod::Pod;
use zonewise_topology::capacity::Capacity;

use crate::cpu_use::{self, StoredUse};
use crate::failing::{self, FailingZone};

/// Where facts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FactSource {
    /// An API server.
    Cluster,
    /// Files.
    #[default]
    Files,
}

/// Something that may be hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight<T> {
    /// It was looked at.
    Seen(T),
    /// It could not be looked at, and why.
    Hidden(String),
}

impl<T> Sight<T> {
    /// What was seen; `None` if it is hidden.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(value) => Some(value),
            Self::Hidden(_) => None,
        }
    }
}

/// What was seen of the programs that run in a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Where it was seen.
    pub source: FactSource,
    /// The time at which it was seen, by the clock of the API server; for files, the newest renewal of any
    /// Lease among them.
    pub now: Option<Timestamp>,
    /// The version of the API server.
    pub version: Option<String>,
    /// The Leases of zonewise's controller and proxies.
    pub own_leases: Sight<Vec<Lease>>,
    /// The Lease of kube-controller-manager.
    pub manager_lease: Sight<Option<Lease>>,
    /// The Pods of kube-proxy and Cilium.
    pub proxy_pods: Sight<Vec<ProxyPod>>,
    /// The settings of kube-proxy and Cilium.
    pub configs: Vec<ProxyConfig>,
    /// What the leading controller has stored of measured demand.
    pub demand: StoredDemand,
    /// The namespaces of the Leases in files.
    pub(crate) lease_namespaces: BTreeSet<Name>,
}

impl Facts {
    /// What was seen in a cluster where nothing could be seen so far.
    pub fn of_cluster() -> Self {
        Self { source: FactSource::Cluster, ..Self::default() }
    }

    /// The time at which it was seen, in milliseconds since 1970.
    pub(crate) fn millis(&self) -> Option<Millis> {
        Millis::try_from(self.now?.as_millisecond()).ok()
    }
}

impl Default for Facts {
    /// Files without any trace of a program.
    fn default() -> Self {
        let no_lease = "the input has no Lease (`kubectl get leases -A -o yaml`)";
        let no_pod = "the input has no Pod of kube-proxy or Cilium";
        Self {
            source: FactSource::Files,
            now: None,
            version: None,
            own_leases: Sight::Hidden(no_lease.into()),
            manager_lease: Sight::Hidden(no_lease.into()),
            proxy_pods: Sight::Hidden(no_pod.into()),
            configs: Vec::new(),
            demand: StoredDemand::default(),
            lease_namespaces: BTreeSet::new(),
        }
    }
}

/// The Lease of kube-controller-manager.
pub(crate) const MANAGER: (&str, &str) = ("kube-system", "kube-controller-manager");

impl Facts {
    /// Adds what a file contains.
    pub fn add(&mut self, clue: Clue) {
        match clue {
            Clue::Lease(lease) => self.add_lease(lease),
            Clue::Config(config) => self.configs.push(config),
            Clue::Demand(demand) => self.demand = demand,
        }
    }

    /// Adds a Pod of a file, if it is one of a proxy.
    pub fn add_pod(&mut self, pod: &Pod) {
        let Some(found) = ProxyPod::of(pod) else { return };
        match &mut self.proxy_pods {
            Sight::Seen(pods) => pods.push(found),
            hidden @ Sight::Hidden(_) => *hidden = Sight::Seen(vec![found]),
        }
    }

    /// Files can contain the Leases of one namespace only. What is not among them is not there if they contain
    /// the other Leases of its namespace, or those of several namespaces.
    fn add_lease(&mut self, lease: Lease) {
        self.now = self.now.max(lease.renewed);
        self.lease_namespaces.insert(Name::clone(&lease.key.0));
        let all = self.lease_namespaces.len() > 1;
        let reaches = |namespace: &str| all || *lease.key.0 == *namespace;
        if self.own_leases.seen().is_none() && reaches(SYSTEM_NAMESPACE) {
            self.own_leases = Sight::Seen(Vec::new());
        }
        if self.manager_lease.seen().is_none() && reaches(MANAGER.0) {
            self.manager_lease = Sight::Seen(None);
        }
        if lease.is_own()
            && let Sight::Seen(leases) = &mut self.own_leases
        {
            leases.push(lease);
        } else if (&*lease.key.0, &*lease.key.1) == MANAGER {
            self.manager_lease = Sight::Seen(Some(lease));
        }
    }
}

/// An object that says something about the programs that run.
#[derive(Clone, Debug, PartialEq)]
pub enum Clue {
    /// A Lease.
    Lease(Lease),
    /// The ConfigMap of a proxy.
    Config(ProxyConfig),
    /// The ConfigMap with measured demand.
    Demand(StoredDemand),
}

impl Clue {
    /// The clue in an object of a kind that routing does not need; `None` if there is none.
    pub(crate) fn of(kind: &str, value: &Value) -> Option<Self> {
        match kind {
            "Lease" => Some(Self::Lease(serde_json::from_value(value.clone()).ok()?)),
            "ConfigMap" => {
                let demand = || StoredDemand::of(value).map(Self::Demand);
                ProxyConfig::of(value).map(Self::Config).or_else(demand)
            }
            _ => None,
        }
    }

    /// Why what it says cannot be used, if that is so.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Self::Lease(_) | Self::Config(_) => None,
            Self::Demand(demand) => demand.damage(),
        }
    }

    /// Whether objects of a kind can be clues.
    pub(crate) fn is_kind(kind: &str) -> bool {
        matches!(kind, "Lease" | "ConfigMap")
    }
}

/// What the leading controller has stored of measured demand.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDemand {
    /// The shares of zones that are in force, by Service.
    shares: BTreeMap<Key, Arc<ZoneDemand>>,
    /// The zones that count for less because they fail, by Service.
    failing: BTreeMap<Key, Arc<[FailingZone]>>,
    /// All of it.
    all: ReadDemand,
}

/// What became of reading what is stored.
#[derive(Clone, Debug, PartialEq)]
enum ReadDemand {
    /// Nothing is stored.
    Nothing,
    /// All of it.
    Read(Arc<demand::StoredDemand>),
    /// It is not what a controller stores.
    Damaged(String),
    /// It cannot be looked at.
    Hidden,
}

impl Default for StoredDemand {
    /// Nothing is stored.
    fn default() -> Self {
        Self::without_shares(ReadDemand::Nothing)
    }
}

/// The share of each zone, in millionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneDemand(BTreeMap<Name, u32>);

impl ZoneDemand {
    /// What zones send, in any unit. A zone that sends nothing has the least share, so that it is not taken for one of
    /// which nothing is known.
    pub(crate) fn of(zones: BTreeMap<Name, f64>) -> Self {
        let all: f64 = zones.values().sum();
        let millionths = |part: f64| ((part / all * 1e6).round() as u32).max(1);
        Self(zones.into_iter().map(|(zone, part)| (zone, millionths(part))).collect())
    }

    /// The share of a zone, 0 to 1.
    pub fn share_of(&self, zone: &str) -> Option<f64> {
        self.0.get(zone).map(|share| f64::from(*share) / 1e6)
    }
}

impl StoredDemand {
    fn without_shares(all: ReadDemand) -> Self {
        Self { shares: BTreeMap::new(), failing: BTreeMap::new(), all }
    }

    /// What is in the ConfigMap; `None` if it is another one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let metadata = &value["metadata"];
        let own = metadata["name"] == demand::NAME && metadata["namespace"] == SYSTEM_NAMESPACE;
        own.then(|| match demand::decode(value.to_string().as_bytes()) {
            Ok(stored) => stored.map(Self::from).unwrap_or_default(),
            Err(error) => Self::damaged(error.to_string()),
        })
    }

    /// Something is stored that no controller stores.
    pub fn damaged(why: String) -> Self {
        Self::without_shares(ReadDemand::Damaged(why))
    }

    /// Something may be stored, and cannot be looked at.
    pub(crate) fn hidden() -> Self {
        Self::without_shares(ReadDemand::Hidden)
    }

    /// Why what is stored cannot be used, or not all of it.
    pub(crate) fn damage(&self) -> Option<String> {
        match &self.all {
            ReadDemand::Nothing | ReadDemand::Hidden => None,
            ReadDemand::Damaged(why) => Some(why.clone()),
            ReadDemand::Read(all) => {
                let failing = all.failing_error.as_ref().map(ToString::to_string);
                let by_use = all.by_use.as_ref().and_then(|read| read.as_ref().err());
                failing.or_else(|| by_use.map(ToString::to_string))
            }
        }
    }

    /// Whether it is known what is stored.
    fn is_known(&self) -> bool {
        match self.all {
            ReadDemand::Nothing | ReadDemand::Read(_) => true,
            ReadDemand::Damaged(_) | ReadDemand::Hidden => false,
        }
    }

    /// Whether it is known which zones count for less because they fail.
    pub(crate) fn is_failing_known(&self) -> bool {
        match &self.all {
            ReadDemand::Nothing => true,
            ReadDemand::Read(all) => all.failing_error.is_none(),
            ReadDemand::Damaged(_) | ReadDemand::Hidden => false,
        }
    }

    /// How many Services have measured shares in force.
    pub(crate) fn services(&self) -> usize {
        self.shares.len()
    }

    /// What is known of the demand of a Service that asks for it to be measured.
    pub(crate) fn account(&self, model: &Capacity, service: &str, now: Option<Millis>) -> Account {
        match &self.all {
            ReadDemand::Nothing => account(model, None, service, now),
            ReadDemand::Read(all) => account(model, Some(all.as_ref().as_ref()), service, now),
            ReadDemand::Damaged(_) | ReadDemand::Hidden => Account::unreadable(model),
        }
    }

    /// Whether the same shares are in force by other stored demand, and zones count for the same. Its figures change all
    /// the time.
    pub(crate) fn has_shares_of(&self, other: &Self) -> bool {
        self.shares == other.shares
            && failing::have_same_percents(&self.failing, &other.failing)
            && self.use_percents() == other.use_percents()
            && self.is_known() == other.is_known()
    }

    /// The shares of a Service.
    pub(crate) fn of_service(&self, service: &Key) -> Option<Arc<ZoneDemand>> {
        self.shares.get(service).cloned()
    }

    /// What is stored of the CPU that endpoints use.
    pub(crate) fn by_use(&self) -> StoredUse<'_> {
        match &self.all {
            ReadDemand::Nothing => StoredUse::Nothing,
            ReadDemand::Damaged(_) | ReadDemand::Hidden => StoredUse::Unknown,
            ReadDemand::Read(all) => match &all.by_use {
                None => StoredUse::Nothing,
                Some(Ok(state)) => StoredUse::Known(state),
                Some(Err(_)) => StoredUse::Unknown,
            },
        }
    }

    /// What the zones of a Service count for by the CPU that their endpoints use, in percent, where that is not 100.
    pub(crate) fn use_percents_of(&self, service: &str) -> Vec<(Name, u16)> {
        match self.by_use() {
            StoredUse::Known(state) => cpu_use::weighted(state.of(service)),
            StoredUse::Nothing | StoredUse::Unknown => Vec::new(),
        }
    }

    fn use_percents(&self) -> Vec<(&Name, Vec<(Name, u16)>)> {
        match self.by_use() {
            StoredUse::Known(state) => {
                let all = state.services();
                all.map(|(name, in_force)| (name, cpu_use::weighted(Some(in_force)))).collect()
            }
            StoredUse::Nothing | StoredUse::Unknown => Vec::new(),
        }
    }

    /// The zones that count for less for a Service, because they fail.
    pub(crate) fn failing_zones(&self, service: &Key) -> Option<Arc<[FailingZone]>> {
        self.failing.get(service).cloned()
    }
}

impl From<demand::StoredDemand> for StoredDemand {
    fn from(stored: demand::StoredDemand) -> Self {
        let state = &stored.state;
        let shares = |name: &Name| {
            let millionths = |share: f64| (share * 1e6).round() as u32;
            let zones = state.shares(name).into_iter().flatten();
            zones.map(|(zone, share)| (Name::clone(zone), millionths(share))).collect()
        };
        let service = |name: &Name| {
            let (namespace, own) = name.split_once('/')?;
            Some(((namespace.into(), own.into()), Arc::new(ZoneDemand(shares(name)))))
        };
        let shares = state.services().filter_map(|(name, _)| service(name)).collect();
        let failing = failing::stored(&stored.failing);
        Self { shares, failing, all: ReadDemand::Read(Arc::new(stored)) }
    }
}

/// A Lease, as leader election and proxies keep it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "LeaseWire")]
pub struct Lease {
    /// Its namespace and name.
    pub key: Key,
    /// The value of the label `zonewise.dev/component`.
    pub component: Option<Box<str>>,
    /// Who holds it; empty if nobody does.
    pub holder: Box<str>,
    /// When it was renewed.
    pub renewed: Option<Timestamp>,
    /// How long it is valid after that.
    pub duration: Option<Duration>,
}

impl Lease {
    fn is_own(&self) -> bool {
        &*self.key.0 == SYSTEM_NAMESPACE
    }
}

#[derive(Deserialize)]
struct LeaseWire {
    metadata: LeaseMeta,
    #[serde(default, deserialize_with = "lenient")]
    spec: LeaseSpec,
}

#[derive(Deserialize)]
struct LeaseMeta {
    #[serde(default, deserialize_with = "lenient")]
    namespace: Name,
    name: Name,
    #[serde(default, deserialize_with = "lenient")]
    labels: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<Box<str>>,
    renew_time: Option<Box<str>>,
    lease_duration_seconds: Option<i64>,
}

impl From<LeaseWire> for Lease {
    fn from(LeaseWire { metadata, spec }: LeaseWire) -> Self {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            component: metadata.labels.get(COMPONENT).map(Into::into),
            key: (metadata.namespace, metadata.name),
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time.and_then(|text| text.parse().ok()),
            duration: seconds.map(Duration::from_secs),
        }
    }
}

/// A Pod of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyPod {
    /// Its namespace.
    pub namespace: Name,
    /// Its node.
    pub node: Name,
    /// Whether it is Cilium's; otherwise it is kube-proxy's.
    pub cilium: bool,
}

/// Labels of the Pods of kube-proxy and Cilium: those of kubeadm, EKS and AKS, those of GKE, and those
/// of Cilium's chart. The last value says whether they are Cilium's.
const PROXY_LABELS: [(&str, &str, bool); 3] = [
    ("k8s-app", "kube-proxy", false),
    ("component", "kube-proxy", false),
    ("k8s-app", "cilium", true),
];

impl ProxyPod {
    /// The label selectors that find all Pods of proxies.
    pub(crate) fn selectors() -> [String; 2] {
        let values = |key: &str| {
            let of_key = PROXY_LABELS.iter().filter(|(own, ..)| *own == key);
            let values: Vec<&str> = of_key.map(|(_, value, _)| *value).collect();
            format!("{key} in ({})", values.join(","))
        };
        [values("k8s-app"), values("component")]
    }

    /// The Pod of a proxy; `None` if it is another one, has no node or has finished.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let matches = |(key, value, _): &&(&str, &str, bool)| pod.labels.get(key) == Some(value);
        let (_, _, cilium) = PROXY_LABELS.iter().find(matches)?;
        let node = pod.node.as_ref().filter(|_| !pod.finished)?;
        let (namespace, node) = (Name::clone(&pod.namespace), Name::clone(node));
        Some(Self { namespace, node, cilium: *cilium })
    }
}

/// The settings of a proxy, from its ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyConfig {
    /// kube-proxy's.
    KubeProxy {
        /// `mode`; empty for the default of the platform.
        mode: Box<str>,
    },
    /// Cilium's.
    Cilium {
        /// `kube-proxy-replacement`: whether Cilium routes Services instead of kube-proxy.
        replaces_kube_proxy: bool,
        /// `enable-service-topology`: whether it uses hints.
        topology: bool,
    },
}

impl ProxyConfig {
    /// The names of the ConfigMaps, in `kube-system`: kubeadm's and EKS's, and Cilium's.
    pub(crate) const NAMES: [&'static str; 3] =
        ["kube-proxy", "kube-proxy-config", "cilium-config"];

    /// The settings in a ConfigMap; `None` if it is another one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let name = value["metadata"]["name"].as_str()?;
        let data = |key: &str| value["data"][key].as_str();
        match name {
            "kube-proxy" | "kube-proxy-config" => {
                let text = data("config.conf").or_else(|| data("config"))?;
                Some(Self::KubeProxy { mode: mode(text).into() })
            }
            "cilium-config" => Some(Self::Cilium {
                replaces_kube_proxy: matches!(
                    data("kube-proxy-replacement"),
                    Some("true" | "strict")
                ),
                topology: data("enable-service-topology") == Some("true"),
            }),
            _ => None,
        }
    }
}

/// `mode` of a KubeProxyConfiguration in YAML.
fn mode(text: &str) -> &str {
    let value = text.lines().find_map(|line| line.strip_prefix("mode:")).unwrap_or_default();
    value.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\''])
}
