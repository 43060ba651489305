//! The endpoints this node uses for one port of a Service, and why.
//!
//! ```text
//!  some are ready ─► all have node hints, some for this node?   same-node
//!                 ─► zone shares that still fit?                shares
//!                 ─► all have zone hints, some for this zone?   same-zone
//!                 ─► otherwise: all ready endpoints             any
//!  none is ready  ─► endpoints that serve while terminating     terminating
//! ```
//!
//! Only the hints of ready endpoints count. A traffic policy of Local picks the endpoints on this
//! node, whatever the hints say.

use std::fmt;

use serde::Serialize;
use zonewise_topology::reason::{Code, Reason};

use crate::gates::FeatureGates;
use crate::merge::merge;
use crate::net::Family;
use crate::reader::ObjectReader;
use crate::service::{RoutedService, ServicePort, TrafficPolicy};
use crate::shares;
use crate::slice::RoutedSlice;
use crate::subset::{self, Scope};
use crate::target::Target;

/// The input of [`route()`]: one port of a Service in one address family.
#[derive(Clone, Copy, Debug)]
pub struct RouteQuery<'a> {
    /// The reader that read the Service and the slices; it knows the node.
    pub reader: &'a ObjectReader,
    /// Which parts of the slices may be used.
    pub gates: &'a FeatureGates,
    /// The Service.
    pub service: &'a RoutedService,
    /// Its port.
    pub port: &'a ServicePort,
    /// The family.
    pub family: Family,
    /// All slices of the Service, of both families.
    pub slices: &'a [&'a RoutedSlice],
}

/// How close to the node traffic is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Only endpoints hinted to this node.
    SameNode,
    /// Only endpoints hinted to this zone, or in slices labelled for this zone.
    SameZone,
    /// Endpoints of several zones, weighted by zone shares.
    Shares,
    /// Only endpoints in slices labelled for this region.
    SameRegion,
    /// Only terminating endpoints that still serve, because none is ready.
    Terminating,
    /// All ready endpoints.
    Any,
}

impl Mode {
    /// The name in JSON, metrics and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameNode => "same-node",
            Self::SameZone => "same-zone",
            Self::Shares => "shares",
            Self::SameRegion => "same-region",
            Self::Terminating => "terminating",
            Self::Any => "any",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which endpoints a node uses for one port of a Service in one address family.
///
/// Lists are sorted. As in kube-proxy, `None` (the port never uses such a list) differs from an empty
/// list (it would, but there is no endpoint).
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// How close traffic is kept under the traffic policy Cluster.
    pub mode: Mode,
    /// Why that mode.
    pub reason: Reason,
    /// Further reasons why traffic is not kept closer, and why endpoints are left out.
    pub notes: Vec<Reason>,
    /// Endpoints for the traffic policy Cluster; `None` if this port never uses them.
    pub cluster: Option<Box<[Target]>>,
    /// Endpoints for the traffic policy Local, which are those on this node; `None` if this port
    /// never uses them, or if there are none.
    pub local: Option<Box<[Target]>>,
    /// `cluster` and `local` together.
    pub reachable: Option<Box<[Target]>>,
    /// Whether any node has an endpoint that can serve this port.
    pub has_any: bool,
    /// With mode `Shares`: the weight of each endpoint of `cluster`, in millionths.
    pub weights: Option<Box<[u32]>>,
}

impl Route {
    fn without_endpoints() -> Self {
        Self {
            mode: Mode::Any,
            reason: Reason::NoEndpoints,
            notes: Vec::new(),
            cluster: None,
            local: None,
            reachable: None,
            has_any: false,
            weights: None,
        }
    }

    /// Endpoints for traffic to the cluster IP.
    pub fn internal(&self, service: &RoutedService) -> &[Target] {
        self.endpoints_for(service.internal_policy)
    }

    /// Endpoints for traffic from outside the cluster. Traffic from this node to an external
    /// address of the Service uses `cluster` instead.
    pub fn external(&self, service: &RoutedService) -> &[Target] {
        self.endpoints_for(service.external_policy)
    }

    fn endpoints_for(&self, policy: TrafficPolicy) -> &[Target] {
        let list = match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        };
        list.as_deref().unwrap_or_default()
    }

    /// Why endpoints were left out because of their address, if so.
    pub fn special_addresses(&self) -> Option<Reason> {
        self.notes.iter().copied().find(|note| note.code() == Code::SpecialAddresses)
    }
}

/// Decides which endpoints a node uses for one port of a Service in one address family.
pub fn route(query: &RouteQuery<'_>) -> Route {
    let chosen = choose(query);
    let mut route = route_among(query, &chosen);
    let special = chosen.slices.iter().map(|slice| u64::from(slice.special_addresses)).sum();
    if special > 0 {
        route.notes.push(Reason::SpecialAddresses { endpoints: special });
    }
    route
}

/// The route by these slices.
fn route_among(query: &RouteQuery<'_>, chosen: &subset::Chosen<'_>) -> Route {
    let RouteQuery { service, port, .. } = *query;
    let all = merge(&chosen.slices, query.family, &port.name, port.protocol);
    if all.is_empty() {
        return Route::without_endpoints();
    }
    let cluster = service.uses_cluster(port).then(|| Cluster::of(query, chosen, &all));
    let local = service.uses_local(port).then(|| Local::of(&all));
    let has_any = match &local {
        Some(_) => all.iter().any(|target| target.flags.usable()),
        None => cluster.as_ref().is_some_and(|cluster| !cluster.targets.is_empty()),
    };
    Route { has_any, ..join(cluster, local) }
}

/// All endpoints of a port that can serve, whatever subset labels, hints and traffic policies say.
/// Connections to any other endpoint are stale.
pub fn serving_targets(query: &RouteQuery<'_>) -> Vec<Target> {
    let RouteQuery { slices, family, port, .. } = *query;
    let all = merge(slices, family, &port.name, port.protocol).into_iter();
    let serves = |target: &Target| target.flags.serving() || target.flags.ready();
    all.filter(serves).map(Target::without_hints).collect()
}

/// The slices of the address family that offer the port and are for this node.
fn choose<'a>(query: &RouteQuery<'a>) -> subset::Chosen<'a> {
    let RouteQuery { reader, gates, service, port, .. } = *query;
    let offers = |slice: &&RoutedSlice| slice.offers(&port.name, port.protocol);
    let slices = of_family(query).into_iter().filter(offers).collect();
    subset::choose(service, slices, reader.location(), gates)
}

fn of_family<'a>(query: &RouteQuery<'a>) -> Vec<&'a RoutedSlice> {
    let family = Some(query.family);
    query.slices.iter().copied().filter(|slice| slice.family == family).collect()
}

/// The slices of the address family whose zone shares count: those for this node, whatever ports they
/// offer, so that the answer does not depend on slices that a proxy does not watch.
fn with_shares<'a>(query: &RouteQuery<'a>, chosen: &subset::Chosen<'_>) -> Vec<&'a RoutedSlice> {
    let RouteQuery { reader, gates, .. } = *query;
    let counts =
        |slice: &&RoutedSlice| chosen.all || subset::is_for_node(slice, reader.location(), gates);
    of_family(query).into_iter().filter(counts).collect()
}

/// Combines the endpoints for both traffic policies.
fn join(cluster: Option<Cluster>, local: Option<Local>) -> Route {
    let Some(cluster) = cluster else {
        return local.map_or_else(Route::without_endpoints, Local::into_route);
    };
    let list = |targets: &[Target]| {
        targets.iter().copied().map(Target::without_hints).collect::<Box<[Target]>>()
    };
    let mut notes = cluster.notes;
    let reachable = match &local {
        Some(local) if cluster.filtered || local.terminating => {
            union(&cluster.targets, &local.targets)
        }
        _ => cluster.targets.clone(),
    };
    if local.as_ref().is_some_and(|local| local.targets.is_empty()) {
        notes.push(Reason::NoLocalEndpoint);
    }
    let local = local.filter(|local| !local.targets.is_empty());
    Route {
        mode: cluster.mode,
        reason: cluster.reason,
        notes,
        cluster: Some(list(&cluster.targets)),
        local: local.map(|local| list(&local.targets)),
        reachable: Some(list(&reachable)),
        has_any: false,
        weights: cluster.weights,
    }
}

fn union(one: &[Target], other: &[Target]) -> Vec<Target> {
    let mut both = [one, other].concat();
    both.sort_by(Target::by_text);
    both.dedup();
    both
}

/// Endpoints for the traffic policy Local.
struct Local {
    targets: Vec<Target>,
    terminating: bool,
}

impl Local {
    fn of(all: &[Target]) -> Self {
        let pick = |good: fn(&Target) -> bool| {
            all.iter().copied().filter(|target| target.local && good(target)).collect()
        };
        let ready: Vec<Target> = pick(|target| target.flags.ready());
        if !ready.is_empty() {
            return Self { targets: ready, terminating: false };
        }
        let targets: Vec<Target> = pick(|target| target.flags.last_resort());
        Self { terminating: !targets.is_empty(), targets }
    }

    /// The route of a port that is used with the policy Local only.
    fn into_route(self) -> Route {
        let endpoints = self.targets.len() as u64;
        let (mode, reason) = match (endpoints, self.terminating) {
            (0, _) => (Mode::Any, Reason::NoLocalEndpoint),
            (_, true) => (Mode::Terminating, Reason::OnlyTerminating { endpoints }),
            (_, false) => (Mode::Any, Reason::LocalOnly { endpoints }),
        };
        let list = self.targets.into_iter().map(Target::without_hints);
        let list = (endpoints > 0).then(|| list.collect::<Box<[Target]>>());
        Route { mode, reason, local: list.clone(), reachable: list, ..Route::without_endpoints() }
    }
}

/// Endpoints for the traffic policy Cluster.
struct Cluster {
    mode: Mode,
    reason: Reason,
    notes: Vec<Reason>,
    targets: Vec<Target>,
    weights: Option<Box<[u32]>>,
    /// Whether some ready endpoints are left out.
    filtered: bool,
}

impl Cluster {
    fn of(query: &RouteQuery<'_>, chosen: &subset::Chosen<'_>, all: &[Target]) -> Self {
        let ready: Vec<Target> =
            all.iter().copied().filter(|target| target.flags.ready()).collect();
        if ready.is_empty() {
            return Self::without_ready(all);
        }
        match topology_allowed(query) {
            Ok(()) => Self::closest(query, chosen, ready),
            Err(reason) => Self::unweighted(Mode::Any, reason, ready),
        }
        .with_scope(chosen.scope)
    }

    fn unweighted(mode: Mode, reason: Reason, targets: Vec<Target>) -> Self {
        let filtered = mode == Mode::SameNode || mode == Mode::SameZone;
        Self { mode, reason, notes: Vec::new(), targets, weights: None, filtered }
    }

    fn without_ready(all: &[Target]) -> Self {
        let targets: Vec<Target> =
            all.iter().copied().filter(|target| target.flags.last_resort()).collect();
        match targets.len() as u64 {
            0 => Self::unweighted(Mode::Any, Reason::NoEndpoints, targets),
            endpoints => {
                Self::unweighted(Mode::Terminating, Reason::OnlyTerminating { endpoints }, targets)
            }
        }
    }

    /// By node hints, zone shares or zone hints, in this order; otherwise all.
    fn closest(query: &RouteQuery<'_>, chosen: &subset::Chosen<'_>, ready: Vec<Target>) -> Self {
        let RouteQuery { gates, reader, .. } = *query;
        let by_node = if gates.node_hints { by_node(&ready) } else { Err(Reason::NoHints) };
        if let Ok((targets, reason)) = by_node {
            return Self::unweighted(Mode::SameNode, reason, targets);
        }
        let mut notes = Vec::new();
        if gates.shares && gates.routing_preference {
            match shares::apply(reader, &with_shares(query, chosen), &ready) {
                Some(Ok(weighted)) => return weighted.into(),
                Some(Err(reason)) => notes.push(reason),
                None => {}
            }
        }
        match by_zone(reader, &ready) {
            Ok((targets, reason)) => {
                Self { notes, ..Self::unweighted(Mode::SameZone, reason, targets) }
            }
            Err(zone) => {
                let node = by_node.err().filter(|reason| *reason != Reason::NoHints);
                let reasons = notes.into_iter().chain(hint_reasons(zone, node));
                Self::anywhere(reasons.collect(), ready)
            }
        }
    }

    /// All ready endpoints. The first reason becomes the reason of the route, the others its notes.
    fn anywhere(mut reasons: Vec<Reason>, ready: Vec<Target>) -> Self {
        let reason = reasons.remove(0);
        Self { notes: reasons, ..Self::unweighted(Mode::Any, reason, ready) }
    }

    /// Adds what the choice of slices decided: it gives mode and reason where hints and shares gave
    /// none.
    fn with_scope(mut self, scope: Scope) -> Self {
        let Some((mode, reason)) = scope.outcome() else { return self };
        if self.mode == Mode::Any {
            // These reasons say only that no hint was used; the scope says more.
            let weak = [Code::NoHints, Code::HintsGateOff, Code::HintsNotAsked];
            let before = std::mem::replace(&mut self.reason, reason);
            if !weak.contains(&before.code()) && before != reason {
                self.notes.insert(0, before);
            }
            self.mode = mode;
        } else if scope == Scope::NoneUsable {
            self.notes.push(reason);
        }
        self
    }
}

impl From<shares::Weighted> for Cluster {
    fn from(weighted: shares::Weighted) -> Self {
        let shares::Weighted { targets, weights, reason } = weighted;
        Self {
            weights: Some(weights),
            filtered: true,
            ..Self::unweighted(Mode::Shares, reason, targets)
        }
    }
}

/// Whether hints and zone shares may be used for this Service.
fn topology_allowed(query: &RouteQuery<'_>) -> Result<(), Reason> {
    let RouteQuery { gates, service, .. } = *query;
    match (gates.hints, gates.routing_preference || service.topology_auto) {
        (false, _) => Err(Reason::HintsGateOff),
        (true, false) => Err(Reason::HintsNotAsked),
        (true, true) => Ok(()),
    }
}

type Filtered = Result<(Vec<Target>, Reason), Reason>;

fn by_node(ready: &[Target]) -> Filtered {
    require_all_hinted(ready, |target| target.flags.node_hinted())?;
    let mine = pick(ready, |target| target.flags.for_my_node());
    let (endpoints, of) = (mine.len() as u64, ready.len() as u64);
    if mine.is_empty() {
        return Err(Reason::NoHintForNode { of });
    }
    Ok((mine, Reason::SameNodeHints { endpoints, of }))
}

fn by_zone(reader: &ObjectReader, ready: &[Target]) -> Filtered {
    require_all_hinted(ready, |target| target.flags.zone_hinted())?;
    if reader.location().zone.is_none() {
        return Err(Reason::NodeWithoutZone);
    }
    let mine = pick(ready, |target| target.flags.for_my_zone());
    let (endpoints, of) = (mine.len() as u64, ready.len() as u64);
    if mine.is_empty() {
        return Err(Reason::NoHintForZone { of });
    }
    Ok((mine, Reason::SameZoneHints { endpoints, of }))
}

/// Hints are ignored if one ready endpoint has none: the controller may not have written all of them
/// yet.
fn require_all_hinted(ready: &[Target], hinted: impl Fn(&Target) -> bool) -> Result<(), Reason> {
    let endpoints = ready.iter().filter(|target| !hinted(target)).count();
    match endpoints {
        0 => Ok(()),
        all if all == ready.len() => Err(Reason::NoHints),
        _ => Err(Reason::HintMissing { endpoints: endpoints as u64 }),
    }
}

fn pick(targets: &[Target], good: impl Fn(&Target) -> bool) -> Vec<Target> {
    targets.iter().copied().filter(good).collect()
}

/// The reasons why neither kind of hint applies, the more telling one first: that about zone hints,
/// unless there are no zone hints.
fn hint_reasons(zone: Reason, node: Option<Reason>) -> impl Iterator<Item = Reason> {
    let zone = (zone != Reason::NoHints || node.is_none()).then_some(zone);
    zone.into_iter().chain(node)
}
