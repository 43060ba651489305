//! Computes the writes that bring the slices of one Service into their desired state.
//!
//! ```text
//!  Pods ─► desired endpoints ─────┐
//!  Service ─► requested routing ──┼─► decide ─► buckets ─► pack ─► recycle ─► FamilyPlan
//!  stored slices ─────────────────┘
//! ```
//!
//! What is in force is kept while it is good enough (see [`Improvement`]), with two exceptions, so that
//! no Service stays worse than a fresh decision would make it:
//!
//! ```text
//!  slices are written anyway ─► decided afresh, as far as that writes no other slice
//!  the Service is quiet      ─► decided afresh, if that is noticeably better
//! ```

use std::sync::Arc;

use zonewise_common::event::Event;
use zonewise_common::keys::{TRIGGER_TIME, ZONE_SHARES};
use zonewise_common::name::Uid;
use zonewise_common::time::timestamp;
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::settling::Improvement;

use crate::decide::{self, Decision, Stance, decide, near_reason};
pub use crate::decide::{Grounds, is_surely_in_force, kept_reason};
use crate::desired::Desired;
pub use crate::desired::MissingNode;
use crate::node::Nodes;
use crate::pack::{Bucket, PackedSlices, SliceTemplate, pack};
use crate::pod::Pod;
use crate::requested::{self, Choice, RequestedRouting};
use crate::service::Service;
use crate::settings::Settings;
use crate::slice::{AddressType, Port, Slice, Subset};
use crate::upstream::{self, HintsPerZone};

/// The objects that a plan is made from.
pub struct Input<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The Pods that its selector matches, sorted by name.
    pub pods: &'a [Arc<Pod>],
    /// Its slices that this controller manages, sorted by name, without those that are being deleted.
    pub slices: &'a [Arc<Slice>],
    /// The nodes.
    pub nodes: &'a Nodes,
    /// When the change happened that the plan answers to, in seconds since 1970.
    pub trigger: Option<i64>,
    /// Only with `upstream`: whether this process has assigned hints by the topology annotation to the
    /// Service. The reference keeps this in memory too and forgets it on restart.
    pub populated: bool,
    /// Whether the Service has been quiet for as long as [`Settling`](crate::settings::Settling) asks:
    /// then a fresh decision is taken if it is noticeably better.
    pub quiet: bool,
}

/// All writes for one Service.
#[derive(Debug)]
pub struct Plan {
    /// The plan of each address family. They are independent of each other.
    pub families: Vec<FamilyPlan>,
    /// Slices to delete because the Service no longer has their address family.
    pub leftovers: Vec<SliceName>,
    /// Only with `upstream`: the events that the reference emits.
    pub events: Vec<Event>,
    /// Only with `upstream`: `Input::populated` for the next plan.
    pub populated: bool,
}

/// The writes in one address family.
#[derive(Debug)]
pub struct FamilyPlan {
    /// The family.
    pub family: AddressType,
    /// Slices to create.
    pub creates: Vec<Slice>,
    /// Slices to replace. Those that only gain endpoints come first.
    pub updates: Vec<Slice>,
    /// Slices to delete.
    pub deletes: Vec<SliceName>,
    /// The number of slices that stay as they are.
    pub unchanged: usize,
    /// What was decided, and why.
    pub reason: Reason,
    /// Numbers for metrics.
    pub counts: Counts,
    /// Pods that are left out because their node does not exist.
    pub missing_nodes: Vec<MissingNode>,
    /// Only with `upstream`: the number of endpoints that are hinted to each zone.
    pub hints_per_zone: HintsPerZone,
    /// What a fresh decision would give, if that is noticeably better than what these writes leave in
    /// force: it is to be taken when the Service is quiet.
    pub improvement: Option<Improvement>,
    /// What the fresh decision improves that is taken because the Service is quiet; `None` if nothing is
    /// decided for that reason.
    pub settles: Option<Improvement>,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Endpoints that are new in the slices.
    pub added: usize,
    /// Endpoints that are removed from the slices.
    pub removed: usize,
    /// Endpoints that should exist.
    pub endpoints: usize,
    /// The fewest slices that could hold them.
    pub slices_needed: usize,
    /// Slices that exist after the writes.
    pub slices: usize,
    /// Endpoints that are used by other zones than before.
    pub reallocated: usize,
}

/// A slice to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceName {
    /// Its name.
    pub name: Box<str>,
    /// Its unique id.
    pub uid: Uid,
}

impl FamilyPlan {
    /// The number of writes to the API server.
    pub fn writes(&self) -> usize {
        self.creates.len() + self.updates.len() + self.deletes.len()
    }
}

impl Plan {
    /// The number of writes to the API server.
    pub fn writes(&self) -> usize {
        self.families.iter().map(FamilyPlan::writes).sum::<usize>() + self.leftovers.len()
    }

    /// The address family whose reason is shown for the whole Service: the first that does not get what
    /// was requested, otherwise the first.
    pub fn leading(&self) -> Option<&FamilyPlan> {
        let fallback = |family: &&FamilyPlan| family.reason.outcome() != Outcome::InForce;
        self.families.iter().find(fallback).or(self.families.first())
    }

    /// What is to be gained when the Service is quiet, in the family that gains most.
    pub fn improvement(&self) -> Option<Improvement> {
        largest(self.families.iter().filter_map(|family| family.improvement))
    }

    /// What is gained because the Service is quiet, in the family that gains most.
    pub fn settles(&self) -> Option<Improvement> {
        largest(self.families.iter().filter_map(|family| family.settles))
    }

    /// The reason of the [leading](Self::leading) family.
    pub fn reason(&self) -> Reason {
        self.leading().map_or(Reason::ClusterWide, |family| family.reason)
    }
}

impl<'a> Input<'a> {
    /// The numbers that the decision for an address family is based on.
    pub fn grounds(&self, choice: &Choice, family: &AddressType) -> Grounds<'a> {
        let desired = Desired::new(self.service, family, self.pods, self.nodes);
        let uid = &self.service.uid;
        let owned = |slice: &&Slice| slice.family == *family && slice.is_owned_by(uid);
        let slices: Vec<&Slice> = self.slices.iter().map(|slice| &**slice).filter(owned).collect();
        decide::grounds(choice, &desired, &slices, self.nodes)
    }
}

/// Plans one Service.
pub fn plan(input: &Input<'_>, requested: &RequestedRouting, settings: &Settings) -> Plan {
    let service = input.service;
    let mut plan = Plan {
        families: Vec::with_capacity(service.families.len()),
        leftovers: Vec::new(),
        events: Vec::new(),
        populated: input.populated,
    };
    for family in &service.families {
        let slices: Vec<&Slice> = input
            .slices
            .iter()
            .map(|slice| &**slice)
            .filter(|slice| slice.family == *family)
            .collect();
        let planner = Planner { input, settings, family };
        let family = if settings.upstream {
            planner.as_reference(&slices, &mut plan)
        } else {
            planner.ours(&slices, &requested.choice)
        };
        plan.families.push(family);
    }
    let unsupported = |slice: &&Arc<Slice>| !service.families.contains(&slice.family);
    plan.leftovers =
        input.slices.iter().filter(unsupported).map(|slice| slice_name(slice)).collect();
    plan
}

fn largest(improvements: impl Iterator<Item = Improvement>) -> Option<Improvement> {
    improvements.max_by(|a, b| a.gain().total_cmp(&b.gain()))
}

fn slice_name(slice: &Slice) -> SliceName {
    SliceName { name: slice.name().into(), uid: slice.uid.clone() }
}

struct Planner<'a> {
    input: &'a Input<'a>,
    settings: &'a Settings,
    family: &'a AddressType,
}

impl<'a> Planner<'a> {
    /// The default: keeps what is in force, unless a fresh decision costs no write more, or the Service
    /// is quiet and a fresh decision noticeably better.
    fn ours(&self, slices: &[&Slice], choice: &Choice) -> FamilyPlan {
        let mut desired = self.desired();
        let kept = self.decided(&mut desired, slices, choice, &Stance::Keep);
        if kept.improvement.is_none() {
            return kept;
        }
        let fresh = self.decided(&mut desired, slices, choice, &Stance::Afresh);
        if fresh.writes() <= kept.writes() {
            return fresh;
        }
        let best = self.decided_around(&mut desired, slices, choice, kept);
        let least_gain = self.settings.settling.least_gain;
        let improvement = best.improvement.filter(|gain| gain.is_noticeable(least_gain));
        match improvement {
            Some(_) if self.input.quiet => FamilyPlan { settles: improvement, ..fresh },
            _ => FamilyPlan { improvement, ..best },
        }
    }

    /// A plan that writes the same slices as `kept`, with the endpoints in them decided afresh; or `kept`
    /// itself, if that is not better. An endpoint that moves to another subset changes two slices, so
    /// there is no such plan for subsets.
    fn decided_around(
        &self,
        desired: &mut Desired<'_>,
        slices: &[&Slice],
        choice: &Choice,
        kept: FamilyPlan,
    ) -> FamilyPlan {
        if kept.writes() == 0 || !matches!(choice, Choice::Heuristic(_)) {
            return kept;
        }
        let written = |slice: &Slice| kept.updates.iter().any(|one| one.name == slice.name);
        let mut fixed = vec![false; desired.endpoints.len()];
        for slice in self.owned(slices).filter(|slice| !written(slice)) {
            for index in slice.endpoints.iter().filter_map(|endpoint| desired.find(endpoint)) {
                fixed[index] = true;
            }
        }
        let around = self.decided(desired, slices, choice, &Stance::Around(&fixed));
        let left = |plan: &FamilyPlan| plan.improvement.map_or(0.0, |left| left.gain());
        if around.writes() <= kept.writes() && left(&around) < left(&kept) { around } else { kept }
    }

    /// Decides on hints, subsets and shares, then packs.
    fn decided(
        &self,
        desired: &mut Desired<'_>,
        slices: &[&Slice],
        choice: &Choice,
        stance: &Stance<'_>,
    ) -> FamilyPlan {
        let owned: Vec<&Slice> = self.owned(slices).collect();
        let mut decision = decide(choice, desired, &owned, self.input.nodes, stance);
        if decision.shares.is_some() && !self.settings.gates.hints {
            decision.hints.clear();
        }
        for (index, endpoint) in desired.endpoints.iter_mut().enumerate() {
            endpoint.hints = decision.hints.get(index).cloned().flatten();
        }
        let template = self.template(true, decision.shares.as_deref());
        let mut lists = self.pack(&template, desired, &decision, slices);
        // Slices that gain endpoints are written before slices that lose some, so that an endpoint that
        // moves is never missing.
        lists.update.sort_by_cached_key(|slice| loses(slice, slices));
        let reallocated = reallocated(desired, &owned, &decision);
        let mut plan = self.finish(lists, desired, decision.reason, &template);
        plan.counts.reallocated = reallocated;
        FamilyPlan { improvement: decision.improvement, ..plan }
    }

    /// With `upstream`: packs first, then assigns hints, as the reference does.
    fn as_reference(&self, slices: &[&Slice], plan: &mut Plan) -> FamilyPlan {
        let desired = self.desired();
        let template = self.template(false, None);
        let cluster_wide = Decision {
            reason: Reason::ClusterWide,
            hints: Vec::new(),
            subsets: None,
            shares: None,
            improvement: None,
        };
        let mut lists = self.pack(&template, &desired, &cluster_wide, slices);
        let (hints_per_zone, reason) = self.reference_hints(&desired, &mut lists, plan);
        FamilyPlan { hints_per_zone, ..self.finish(lists, &desired, reason, &template) }
    }

    fn reference_hints(
        &self,
        desired: &Desired<'_>,
        lists: &mut PackedSlices<'_>,
        plan: &mut Plan,
    ) -> (HintsPerZone, Reason) {
        let service = self.input.service;
        if requested::is_auto(service) && self.settings.gates.hints {
            return match upstream::auto(lists, self.input.nodes) {
                Ok(hints_per_zone) => {
                    if !plan.populated {
                        plan.events.push(upstream::enabled(self.family));
                    }
                    plan.populated = true;
                    (hints_per_zone, Reason::HintsAssigned { moved: hinted_to_other_zones(lists) })
                }
                Err(refusal) => {
                    plan.events.push(upstream::refused(refusal, self.family));
                    plan.populated = false;
                    (HintsPerZone::new(), refusal.reason(without_zone(desired)))
                }
            };
        }
        if plan.populated {
            plan.events.push(upstream::disabled(self.family));
            plan.populated = false;
        }
        let reason = match requested::traffic_distribution(service) {
            Some(near) => {
                upstream::near(lists, near);
                near_reason(near, desired, self.input.nodes)
            }
            None => {
                upstream::remove(lists);
                Reason::ClusterWide
            }
        };
        (HintsPerZone::new(), reason)
    }

    fn desired(&self) -> Desired<'a> {
        Desired::new(self.input.service, self.family, self.input.pods, self.input.nodes)
    }

    fn template<'s>(&'s self, hints_decided: bool, shares: Option<&'s str>) -> SliceTemplate<'s> {
        SliceTemplate {
            service: self.input.service,
            family: self.family,
            managed_by: &self.settings.managed_by,
            max_endpoints: self.settings.max_endpoints,
            hints_decided,
            shares,
            owner: self.input.service.owner(),
        }
    }

    fn owned<'s>(&self, slices: &[&'s Slice]) -> impl Iterator<Item = &'s Slice> {
        let uid = &self.input.service.uid;
        slices.iter().copied().filter(move |slice| slice.is_owned_by(uid))
    }

    fn pack<'s>(
        &self,
        template: &SliceTemplate<'_>,
        desired: &Desired<'_>,
        decision: &Decision,
        slices: &[&'s Slice],
    ) -> PackedSlices<'s> {
        let mut lists = PackedSlices::default();
        let mut buckets = Buckets::new(desired, decision);
        for slice in slices {
            let owned = slice.is_owned_by(&self.input.service.uid);
            let subset = (!self.settings.upstream).then(|| slice.subset()).flatten();
            let ports = desired.ports.find(&slice.ports);
            match ports.filter(|_| owned).and_then(|set| buckets.find(set, subset.as_ref())) {
                Some(bucket) => buckets.list[bucket].slices.push(slice),
                None => lists.delete.push(slice),
            }
        }
        for contents in &buckets.list {
            pack(
                template,
                &contents.bucket,
                desired,
                &contents.members,
                &contents.slices,
                &mut lists,
            );
        }
        placeholder(template, slices.len(), &mut lists);
        lists
    }

    fn finish(
        &self,
        lists: PackedSlices<'_>,
        desired: &Desired<'_>,
        reason: Reason,
        template: &SliceTemplate<'_>,
    ) -> FamilyPlan {
        let counts = counts(&lists, desired, template.max_endpoints);
        let PackedSlices { mut create, mut update, mut delete, unchanged, .. } = lists;
        self.recycle(&mut create, &mut update, &mut delete);
        let trigger = self.input.trigger.map(timestamp);
        for slice in create.iter_mut().chain(&mut update) {
            slice.annotations = slice.annotations.with(TRIGGER_TIME, trigger.as_deref());
        }
        if self.input.service.deleting {
            create.clear();
        }
        FamilyPlan {
            family: self.family.clone(),
            creates: create,
            updates: update,
            deletes: delete.iter().map(|slice| slice_name(slice)).collect(),
            unchanged: unchanged.len(),
            reason,
            counts,
            missing_nodes: desired.missing_nodes.clone(),
            hints_per_zone: HintsPerZone::new(),
            improvement: None,
            settles: None,
        }
    }

    /// Combines a slice to delete with one to create into one update: the new content under the old
    /// name. Not between different subsets: nodes that watch the old subset would lose the endpoints
    /// before the nodes of the new one have them.
    fn recycle(&self, create: &mut Vec<Slice>, update: &mut Vec<Slice>, delete: &mut Vec<&Slice>) {
        let uid = &self.input.service.uid;
        let upstream = self.settings.upstream;
        delete.retain(|candidate| {
            let same = |slice: &Slice| {
                upstream || candidate.endpoints.is_empty() || candidate.subset() == slice.subset()
            };
            let index = create.iter().rposition(same).filter(|_| candidate.is_owned_by(uid));
            if let Some(index) = index {
                let slice = create.remove(index);
                let (name, generate_name) =
                    (candidate.name.clone(), candidate.generate_name.clone());
                update.push(Slice { name, generate_name, ..slice });
            }
            index.is_none()
        });
    }
}

/// The number of ready endpoints that are hinted to another zone than their own.
fn hinted_to_other_zones(lists: &PackedSlices<'_>) -> u64 {
    let slices = lists.create.iter().chain(&lists.update).chain(lists.unchanged.iter().copied());
    let endpoints = slices.flat_map(|slice| &slice.endpoints).filter(|one| one.is_ready());
    let elsewhere = |one: &&crate::slice::Endpoint| {
        one.zone.as_ref().is_some_and(|zone| !one.zone_hints().contains(zone))
    };
    endpoints.filter(elsewhere).count() as u64
}

/// The number of ready endpoints whose zone is not known.
fn without_zone(desired: &Desired<'_>) -> u64 {
    let unplaced = |one: &&crate::slice::Endpoint| one.is_ready() && one.zone.is_none();
    desired.endpoints.iter().filter(unplaced).count() as u64
}

/// All buckets of an address family, with their endpoints and stored slices.
struct Buckets<'s> {
    list: Vec<BucketContents<'s>>,
    /// The port set and subset of each bucket in `list`.
    index: Vec<(usize, Option<Subset>)>,
}

struct BucketContents<'s> {
    bucket: Bucket,
    /// Indexes of the desired endpoints.
    members: Vec<usize>,
    slices: Vec<&'s Slice>,
}

impl<'s> Buckets<'s> {
    fn new(desired: &Desired<'_>, decision: &Decision) -> Self {
        let mut buckets = Self { list: Vec::new(), index: Vec::new() };
        let sets = desired.ports.sets();
        let subsets = decision.subsets.as_ref();
        for (set, ports) in sets.iter().enumerate() {
            match subsets {
                None => {
                    buckets.add(set, ports, None, false);
                }
                Some(subsets) => {
                    let required = subsets.required.iter().filter(|_| set == 0);
                    for subset in required {
                        buckets.add(set, ports, Some(subset.clone()), true);
                    }
                }
            }
        }
        for (index, unique) in desired.unique().into_iter().enumerate() {
            let set = desired.port_set[index];
            let subset = subsets.map(|subsets| subsets.of[index].clone());
            if unique {
                let bucket = buckets.find(set, subset.as_ref());
                let bucket = bucket.unwrap_or_else(|| buckets.add(set, &sets[set], subset, false));
                buckets.list[bucket].members.push(index);
            }
        }
        buckets
    }

    fn find(&self, set: usize, subset: Option<&Subset>) -> Option<usize> {
        self.index.iter().position(|(known, of)| *known == set && of.as_ref() == subset)
    }

    fn add(
        &mut self,
        set: usize,
        ports: &Arc<[Port]>,
        subset: Option<Subset>,
        required: bool,
    ) -> usize {
        self.index.push((set, subset.clone()));
        let bucket = Bucket { ports: Arc::clone(ports), subset, required };
        self.list.push(BucketContents { bucket, members: Vec::new(), slices: Vec::new() });
        self.list.len() - 1
    }
}

/// Makes sure that a Service has at least one slice, even without endpoints. Consumers take the absence
/// of slices as a sign that no controller takes care of the Service.
fn placeholder(template: &SliceTemplate<'_>, stored: usize, lists: &mut PackedSlices<'_>) {
    if lists.delete.len() < stored || !lists.create.is_empty() {
        return;
    }
    let empty = template.new_slice(Arc::new([]), None);
    match lists.delete.as_slice() {
        [only] if is_placeholder(only, &empty) => {
            lists.unchanged.append(&mut lists.delete);
        }
        _ => lists.create.push(empty),
    }
}

/// Whether a stored slice is the empty one already. Compared as in the reference: a missing label
/// equals an empty one, and owners do not matter.
fn is_placeholder(slice: &Slice, empty: &Slice) -> bool {
    let covers = |a: &Slice, b: &Slice| {
        a.labels.iter().all(|(key, value)| b.labels.get(key).unwrap_or("") == &**value)
    };
    slice.ports.is_empty()
        && slice.endpoints.is_empty()
        && slice.family == empty.family
        && covers(slice, empty)
        && covers(empty, slice)
        && slice.annotations.get(ZONE_SHARES).is_none()
}

/// Whether an update removes an endpoint from a slice.
fn loses(slice: &Slice, stored: &[&Slice]) -> bool {
    let before = stored.iter().find(|stored| stored.name == slice.name);
    before.is_some_and(|before| {
        let has = |endpoint: &crate::slice::Endpoint| {
            slice.endpoints.iter().any(|kept| kept.identity() == endpoint.identity())
        };
        !before.endpoints.iter().all(has)
    })
}

/// The number of endpoints that were stored before and are now used by other zones.
fn reallocated(desired: &Desired<'_>, slices: &[&Slice], decision: &Decision) -> usize {
    let moved = |(index, stored): (usize, Option<(&crate::slice::Endpoint, &Slice)>)| {
        stored.is_some_and(|(endpoint, slice)| match &decision.subsets {
            Some(subsets) => slice.subset().as_ref() != Some(&subsets.of[index]),
            None => {
                slice.subset().is_some()
                    || endpoint.zone_hints() != desired.endpoints[index].zone_hints()
            }
        })
    };
    desired.stored(slices).into_iter().enumerate().filter(|pair| moved(*pair)).count()
}

fn counts(lists: &PackedSlices<'_>, desired: &Desired<'_>, max: usize) -> Counts {
    let mut sizes = vec![0usize; desired.ports.sets().len()];
    for &set in &desired.port_set {
        sizes[set] += 1;
    }
    let needed: usize = sizes.iter().map(|size| size.div_ceil(max)).sum();
    Counts {
        added: lists.added,
        removed: lists.removed,
        endpoints: desired.endpoints.len(),
        slices_needed: needed.max(1),
        slices: lists.create.len() + lists.update.len() + lists.unchanged.len(),
        reallocated: 0,
    }
}
