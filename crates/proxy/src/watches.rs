//! The watches: Services, slices by subset, this node, ranges of ClusterIPs.
//!
//! ```text
//!  node without zone                 node in zone z of region r
//!  ───────────────────────────       ───────────────────────────
//!  slices: one watch, all            slices: without subset label   for-zone=z   for-region=r
//! ```
//!
//! When the node's zone changes, new watches begin beside what is known; the old knowledge goes only
//! once the new watches have listed everything. No Service loses an endpoint on the way.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::{self, Resource, Sink, parameter};
use zonewise_common::cidr::Cidr;
use zonewise_common::keys::{FOR_REGION, FOR_ZONE, HEADLESS, SERVICE_NAME, SERVICE_PROXY_NAME};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_routing::{
    FeatureGates, NodeLocation, ObjectReader, RoutedService, RoutedSlice, Subset, is_for_node,
};

use crate::index::{Index, Source};
use crate::metrics::Metrics;
use crate::node::Node;

/// What must have been listed before the kernel is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Services,
    Slices(Source),
    Node,
    Ranges,
}

/// What the watches know, and who is told.
pub struct Known {
    index: Mutex<Index>,
    reader: RwLock<Arc<ObjectReader>>,
    node: Mutex<Option<Node>>,
    ranges: Mutex<BTreeMap<Name, Vec<Cidr>>>,
    listed: Mutex<BTreeSet<Kind>>,
    /// How many watches of slices the current epoch has.
    watches: Mutex<(u32, u8)>,
    gates: FeatureGates,
    metrics: Arc<Metrics>,
    /// Something has changed.
    pub changed: Notify,
    /// Slices are in doubt.
    doubts: Notify,
    /// Services whose slices are to be listed by name.
    lonely: Mutex<BTreeSet<Key>>,
    loans: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while holding one would have ended the process (panic = abort) or the test.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// Nothing but the node's name.
    pub fn new(node: &str, gates: FeatureGates, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            index: Mutex::default(),
            reader: RwLock::new(Arc::new(ObjectReader::new(NodeLocation::new(node, None, None)))),
            node: Mutex::default(),
            ranges: Mutex::default(),
            listed: Mutex::default(),
            watches: Mutex::new((0, 0)),
            gates,
            metrics,
            changed: Notify::new(),
            doubts: Notify::new(),
            lonely: Mutex::default(),
            loans: Notify::new(),
        })
    }

    /// The index. Held for lookups only, never across an await.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// The reader that slices pass now.
    pub fn reader(&self) -> Arc<ObjectReader> {
        Arc::clone(&self.reader.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// This node, once it has been seen.
    pub fn node(&self) -> Option<Node> {
        lock(&self.node).clone()
    }

    /// The ranges that ClusterIPs come from.
    pub fn ranges(&self) -> Vec<Cidr> {
        let ranges = lock(&self.ranges);
        let unique: BTreeSet<Cidr> = ranges.values().flatten().copied().collect();
        unique.into_iter().collect()
    }

    /// Everything has been listed once.
    pub fn is_complete(&self) -> bool {
        let listed = lock(&self.listed);
        let (epoch, watches) = *lock(&self.watches);
        let slices =
            (0..watches).all(|watch| listed.contains(&Kind::Slices(Source { epoch, watch })));
        let others = [Kind::Services, Kind::Node, Kind::Ranges];
        watches > 0 && slices && others.iter().all(|kind| listed.contains(kind))
    }

    /// The node has been looked for.
    pub fn knows_node(&self) -> bool {
        lock(&self.listed).contains(&Kind::Node)
    }

    /// C8: of these Services, those that the subset watches leave without endpoints are listed by
    /// name, in the background.
    pub fn ask_for_lonely(&self, services: &BTreeSet<Key>) {
        let subset = lock(&self.watches).1 > 1;
        let lonely = if subset { self.index().not_shown(services.iter()) } else { Vec::new() };
        if !lonely.is_empty() {
            lock(&self.lonely).extend(lonely);
            self.loans.notify_one();
        }
    }

    fn list(&self, kind: Kind) {
        lock(&self.listed).insert(kind);
        self.changed.notify_one();
    }
}

// === starting them ===

/// The watches of slices, begun anew when the node moves.
pub struct Watches {
    client: Client,
    known: Arc<Known>,
    slices: JoinSet<()>,
    others: JoinSet<()>,
    location: Option<NodeLocation>,
}

impl Watches {
    /// Starts all but those of slices, which need to know where the node is.
    pub fn start(
        client: &Client,
        known: &Arc<Known>,
        node: &str,
        proxy_name: Option<&str>,
    ) -> Self {
        let mut others = JoinSet::new();
        let sink = || Arc::clone(known);
        let mut spawn = |future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            others.spawn(future);
        };
        let services = services(proxy_name);
        let node = this_node(node);
        let ranges = Resource::all("servicecidrs", "/apis/networking.k8s.io/v1/servicecidrs");
        spawn(Box::pin(watch::follow(client.clone(), services, Services(sink()))));
        spawn(Box::pin(watch::follow(client.clone(), node, ThisNode(sink()))));
        spawn(Box::pin(watch::follow(client.clone(), ranges, Ranges(sink()))));
        spawn(Box::pin(resolve_doubts(client.clone(), sink())));
        spawn(Box::pin(borrow(client.clone(), sink())));
        let known = Arc::clone(known);
        Self { client: client.clone(), known, slices: JoinSet::new(), others, location: None }
    }

    /// Follows the node to where it is now; true if it has moved.
    pub fn follow_location(&mut self, location: NodeLocation) -> bool {
        if self.location.as_ref() == Some(&location) {
            return false;
        }
        let resources = slices(&location, &self.known.gates);
        let reader = Arc::new(self.known.reader().relocated(location.clone()));
        *self.known.reader.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&reader);
        let count = u8::try_from(resources.len()).unwrap_or(u8::MAX);
        let epoch = {
            let mut watches = lock(&self.known.watches);
            *watches = (watches.0 + 1, count);
            watches.0
        };
        tracing::info!(zone = ?location.zone, region = ?location.region, watches = count, "watching slices");
        self.slices.abort_all();
        for (watch, resource) in (0..).zip(resources) {
            let (known, reader) = (Arc::clone(&self.known), Arc::clone(&reader));
            let sink = Slices { known, reader, source: Source { epoch, watch } };
            self.slices.spawn(watch::follow(self.client.clone(), resource, sink));
        }
        self.location = Some(location);
        true
    }

    /// Ends them.
    pub fn stop(mut self) {
        self.slices.abort_all();
        self.others.abort_all();
    }
}

fn services(proxy_name: Option<&str>) -> Resource {
    let ours = proxy_name.map_or_else(
        || format!("!{SERVICE_PROXY_NAME}"),
        |name| format!("{SERVICE_PROXY_NAME}={name}"),
    );
    let selector =
        parameter("labelSelector", &ours) + &parameter("fieldSelector", "spec.clusterIP!=None");
    Resource { selector: Cow::Owned(selector), ..watch::SERVICES }
}

fn this_node(name: &str) -> Resource {
    let selector = parameter("fieldSelector", &format!("metadata.name={name}"));
    Resource { selector: Cow::Owned(selector), ..watch::NODES }
}

/// C2: only what this node consumes; C8: everything where that cannot be told.
fn slices(location: &NodeLocation, gates: &FeatureGates) -> Vec<Resource> {
    let select = |selector: String| Resource {
        selector: Cow::Owned(parameter("labelSelector", &selector)),
        ..watch::SLICES
    };
    if !gates.subsetting || location.zone.is_none() {
        return vec![select(format!("!{HEADLESS}"))];
    }
    let subsets = [(FOR_ZONE, &location.zone), (FOR_REGION, &location.region)];
    let mine = subsets.iter().filter_map(|(label, value)| {
        let value = value.as_ref()?;
        Some(select(format!("!{HEADLESS},{label}={value}")))
    });
    // Without a region no slice for a region could be told from one for another: all of them, then.
    let unlabelled = match location.region {
        Some(_) => format!("!{HEADLESS},!{FOR_ZONE},!{FOR_REGION}"),
        None => format!("!{HEADLESS},!{FOR_ZONE}"),
    };
    std::iter::once(select(unlabelled)).chain(mine).collect()
}

// === doubts and loans ===

/// Asks for each slice in doubt whether it still exists.
async fn resolve_doubts(client: Client, known: Arc<Known>) {
    loop {
        let doubted = known.index().doubted();
        let mut unsure = false;
        for key in doubted {
            unsure |= !resolve(&client, &known, &key).await;
        }
        if unsure {
            sleep(Duration::from_secs(1)).await;
        } else {
            known.doubts.notified().await;
        }
    }
}

/// Whether it could be told.
async fn resolve(client: &Client, known: &Known, key: &Key) -> bool {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}", key.0, key.1);
    match api::call(client, http::Method::GET, &path, (api::JSON, Vec::new())).await {
        Ok(body) => {
            let reader = known.reader();
            let slice =
                std::str::from_utf8(&body).ok().and_then(|json| reader.read_slice(json).ok());
            let mut index = known.index();
            match slice {
                Some(slice) if is_for_node(&slice, reader.location(), &known.gates) => {
                    let (epoch, _) = *lock(&known.watches);
                    let source = Source { epoch, watch: watch_of(&slice) };
                    index.apply_slice(slice, source);
                }
                _ => drop(index.remove_slice(key)),
            }
        }
        Err(ApiError::NotFound(_)) => drop(known.index().remove_slice(key)),
        Err(error) => {
            tracing::debug!(slice = %key.1, %error, "cannot tell whether a slice still exists");
            return false;
        }
    }
    known.changed.notify_one();
    true
}

/// The watch that shows a slice.
fn watch_of(slice: &RoutedSlice) -> u8 {
    match slice.subset {
        Subset::All => 0,
        Subset::Zone(_) => 1,
        Subset::Region(_) => 2,
    }
}

/// How often slices that no watch shows are read again.
const LOAN: Duration = Duration::from_secs(10);

/// C8: a Service that the watches leave without endpoints is served from all of its slices.
async fn borrow(client: Client, known: Arc<Known>) {
    let mut again = tokio::time::interval(LOAN);
    loop {
        tokio::select! {
            () = known.loans.notified() => {}
            _ = again.tick() => renew(&client, &known).await,
        }
        let lonely = std::mem::take(&mut *lock(&known.lonely));
        for service in lonely {
            lend(&client, &known, &service).await;
        }
    }
}

/// Reads again what is borrowed, and returns what the watches show by now.
async fn renew(client: &Client, known: &Known) {
    let borrowers = known.index().borrowers();
    let without = known.index().without_endpoints(borrowers.iter());
    for service in borrowers {
        if without.contains(&service) {
            lend(client, known, &service).await;
        } else if known.index().return_borrowed(&service) {
            known.changed.notify_one();
        }
    }
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a serde_json::value::RawValue>>,
}

/// Lists a Service's slices by its name, and uses them.
async fn lend(client: &Client, known: &Known, service: &Key) {
    let selector = parameter("labelSelector", &format!("{SERVICE_NAME}={}", service.1));
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?limit=500{selector}",
        service.0
    );
    let body = match api::call(client, http::Method::GET, &path, (api::JSON, Vec::new())).await {
        Ok(body) => body,
        Err(error) => {
            tracing::warn!(service = %service.1, %error, "cannot list the slices of a Service without endpoints");
            return;
        }
    };
    let Ok(list) = serde_json::from_slice::<Items<'_>>(&body) else { return };
    let reader = known.reader();
    let items = list.items.unwrap_or_default();
    let slices: Vec<RoutedSlice> =
        items.iter().filter_map(|item| reader.read_slice(item.get()).ok()).collect();
    if slices.iter().any(RoutedSlice::is_usable) && known.index().lend(service, slices) {
        tracing::info!(namespace = %service.0, service = %service.1,
            "no slice for this zone or region has endpoints: served from all");
        known.changed.notify_one();
    }
}

// === doors ===

/// Something read, under its name.
pub struct Read<T> {
    key: Key,
    object: T,
}

impl<T> Keyed for Read<T> {
    fn key(&self) -> Key {
        self.key.clone()
    }
}

/// The parts of [`Sink`] that are the same for every kind of object.
macro_rules! door {
    ($resource:expr, $known:ident) => {
        fn unreadable(&mut self, key: &Key, error: &str) {
            self.$known().metrics.unreadable($resource);
            tracing::warn!(resource = $resource, namespace = %key.0, name = %key.1, error,
                "an object cannot be read; what was known of it stays");
        }
    };
}

struct Services(Arc<Known>);

impl Services {
    fn known(&self) -> &Known {
        &self.0
    }
}

impl Sink for Services {
    type Object = Read<RoutedService>;
    door!("services", known);

    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error> {
        let object = self.0.reader().read_service(json)?;
        let key = (Name::clone(&object.namespace), Name::clone(&object.name));
        Ok(Read { key, object })
    }

    fn apply(&mut self, service: Self::Object) {
        self.0.metrics.service_change();
        if self.0.index().apply_service(service.object) {
            self.0.changed.notify_one();
        }
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.0.metrics.service_change();
        if self.0.index().delete_service(key) {
            self.0.changed.notify_one();
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone: Vec<Key> = {
            let index = self.0.index();
            index.services().keys().filter(|key| !keys.contains(*key)).cloned().collect()
        };
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.list(Kind::Services);
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.0.metrics.watch_health("services", health.is_ok());
    }
}

struct Slices {
    known: Arc<Known>,
    reader: Arc<ObjectReader>,
    source: Source,
}

impl Slices {
    fn known(&self) -> &Known {
        &self.known
    }

    /// With one watch alone, what leaves it is gone.
    fn is_only(&self) -> bool {
        lock(&self.known.watches).1 == 1
    }

    fn told(&self, changed: bool) {
        if changed {
            self.known.changed.notify_one();
        }
        self.known.doubts.notify_one();
    }
}

impl Sink for Slices {
    type Object = Read<RoutedSlice>;
    door!("endpointslices", known);

    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error> {
        let object = self.reader.read_slice(json)?;
        let key = (Name::clone(&object.namespace), Name::clone(&object.name));
        Ok(Read { key, object })
    }

    fn apply(&mut self, slice: Self::Object) {
        self.known.metrics.slice_change();
        if self.known.index().apply_slice(slice.object, self.source) {
            self.known.changed.notify_one();
        }
    }

    fn delete(&mut self, version: u64, key: &Key) {
        self.known.metrics.slice_change();
        let sure = self.is_only();
        let changed = self.known.index().leave(key, version, self.source, sure);
        self.told(changed);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let sure = self.is_only();
        let changed = self.known.index().listed(keys, self.source, sure);
        self.known.index().seen(version);
        self.known.list(Kind::Slices(self.source));
        if self.known.is_complete() {
            self.known.index().forget_before(self.source.epoch);
        }
        self.told(changed);
    }

    fn seen(&mut self, version: u64) {
        self.known.index().seen(version);
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.known.metrics.watch_health("endpointslices", health.is_ok());
    }
}

struct ThisNode(Arc<Known>);

impl ThisNode {
    fn known(&self) -> &Known {
        &self.0
    }
}

impl Sink for ThisNode {
    type Object = Read<Node>;
    door!("nodes", known);

    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error> {
        let object = Node::read(json)?;
        Ok(Read { key: (Name::default(), Name::clone(&object.name)), object })
    }

    fn apply(&mut self, node: Self::Object) {
        let mut known = lock(&self.0.node);
        *known = Some(node.object.following(known.take()));
        drop(known);
        self.0.changed.notify_one();
    }

    /// A node that is gone keeps its zone: the traffic of its last seconds stays where it was.
    fn delete(&mut self, _: u64, _: &Key) {}

    fn listed(&mut self, _: u64, _: &BTreeSet<Key>) {
        self.0.list(Kind::Node);
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.0.metrics.watch_health("nodes", health.is_ok());
    }
}

struct Ranges(Arc<Known>);

impl Ranges {
    fn known(&self) -> &Known {
        &self.0
    }
}

#[derive(Deserialize)]
struct ServiceCidr {
    metadata: ServiceCidrMeta,
    spec: Option<ServiceCidrSpec>,
}

#[derive(Deserialize)]
struct ServiceCidrMeta {
    name: Name,
}

#[derive(Deserialize)]
struct ServiceCidrSpec {
    cidrs: Option<Vec<String>>,
}

impl Sink for Ranges {
    type Object = Read<Vec<Cidr>>;
    door!("servicecidrs", known);

    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error> {
        let read: ServiceCidr = serde_json::from_str(json)?;
        let cidrs = read.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        let object = cidrs.iter().filter_map(|cidr| Cidr::parse(cidr)).collect();
        Ok(Read { key: (Name::default(), read.metadata.name), object })
    }

    fn apply(&mut self, range: Self::Object) {
        lock(&self.0.ranges).insert(range.key.1, range.object);
        self.0.changed.notify_one();
    }

    fn delete(&mut self, _: u64, key: &Key) {
        lock(&self.0.ranges).remove(&key.1);
        self.0.changed.notify_one();
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        lock(&self.0.ranges).retain(|name, _| keys.iter().any(|(_, key)| key == name));
        self.0.list(Kind::Ranges);
    }

    /// API servers before 1.33 do not have them, and a role may not allow them: never waited for.
    fn health(&mut self, health: Result<(), &ApiError>) {
        self.0.metrics.watch_health("servicecidrs", health.is_ok());
        if let Err(ApiError::NotFound(_) | ApiError::Forbidden(_)) = health {
            self.0.list(Kind::Ranges);
        }
    }
}
