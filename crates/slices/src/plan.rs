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
use zonewise_common::name::{Name, Uid};
use zonewise_common::time::timestamp;
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::settling::Improvement;

use crate::decide::{self, AssignedHints, Decider, Decision, Stance, Subsets, near_reason};
pub use crate::decide::{Grounds, is_surely_in_force, kept_reason};
pub use crate::desired::MissingNode;
use crate::desired::{Desired, DesiredEndpoint};
use crate::evacuation::Load;
use crate::node::{MeasuredZones, Nodes};
use crate::pack::{Bucket, PackedSlices, SliceTemplate, pack};
use crate::pod::Pod;
use crate::requested::{self, Choice, RequestedRouting};
use crate::service::Service;
use crate::settings::Settings;
use crate::slice::{AddressType, Hints, Port, Slice, Subset};
use crate::stored::{Stored, StoredSlice};
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
    /// Where the demand of the Service is measured: the zones with its shares. The reference's way has none.
    pub measured: Option<&'a MeasuredZones>,
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
    /// Zones that are being emptied whose clients and endpoints this concerns.
    pub served_elsewhere: Vec<Name>,
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
        let desired = self.desired(choice, family);
        let stored = Stored::new(self.stored_in(family), &desired, &self.service.uid);
        decide::grounds(choice, &desired, &stored, self.nodes, self.measured)
    }

    /// What the ready endpoints of an address family get when it is decided afresh; `None` if there are none.
    pub fn load(&self, choice: &Choice, family: &AddressType) -> Option<Load> {
        let desired = self.desired(choice, family);
        let stored = Stored::new(self.stored_in(family), &desired, &self.service.uid);
        decide::load(choice, &desired, &stored, self.nodes, self.measured)
    }

    /// The endpoints that should exist in an address family.
    pub(crate) fn desired(&self, choice: &Choice, family: &AddressType) -> Desired<'a> {
        let mut desired = Desired::new(self.service, family, self.pods, self.nodes);
        desired.evacuate(self.service, choice, &self.nodes.evacuations);
        desired
    }

    /// The stored slices of an address family.
    fn stored_in(&self, family: &AddressType) -> impl Iterator<Item = &'a Slice> {
        self.slices.iter().map(|slice| &**slice).filter(|slice| slice.family == *family)
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
        // The conditions of endpoints are the built-in controller's in guard mode.
        let desired = match settings.upstream || settings.guard {
            true => Desired::new(service, family, input.pods, input.nodes),
            false => input.desired(&requested.choice, family),
        };
        let stored = Stored::new(input.stored_in(family), &desired, &service.uid);
        let planner = Planner { input, settings, family, desired: &desired, stored: &stored };
        let family = if settings.upstream {
            planner.as_reference(&mut plan)
        } else {
            planner.ours(&requested.choice)
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
    desired: &'a Desired<'a>,
    stored: &'a Stored<'a>,
}

impl<'a> Planner<'a> {
    /// The default: keeps what is in force, unless a fresh decision costs no write more, or the Service
    /// is quiet and a fresh decision noticeably better.
    fn ours(&self, choice: &Choice) -> FamilyPlan {
        let Input { nodes, measured, .. } = *self.input;
        let decider = Decider::new(choice, self.desired, self.stored, nodes, measured);
        let kept = decider.decide(&Stance::Keep);
        if kept.improvement.is_none() {
            return self.decided(kept);
        }
        let fresh = decider.decide(&Stance::Afresh);
        // Where neither changes hints that are stored, both write the same slices.
        if kept.keeps_hints && fresh.keeps_hints {
            return self.decided(fresh);
        }
        let (kept, fresh) = (self.decided(kept), self.decided(fresh));
        if fresh.writes() <= kept.writes() {
            return fresh;
        }
        let best = self.decided_around(&decider, kept);
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
    fn decided_around(&self, decider: &Decider<'_>, kept: FamilyPlan) -> FamilyPlan {
        if kept.writes() == 0 || !matches!(decider, Decider::Hints(..)) {
            return kept;
        }
        let written = |slice: &Slice| kept.updates.iter().any(|one| one.name == slice.name);
        let mut fixed = vec![false; self.desired.endpoints.len()];
        for stored in self.stored.owned().filter(|stored| !written(stored.slice)) {
            for found in stored.matches.iter().flatten() {
                fixed[found.desired as usize] = true;
            }
        }
        let around = self.decided(decider.decide(&Stance::Around(&fixed)));
        let left = |plan: &FamilyPlan| plan.improvement.map_or(0.0, |left| left.gain());
        if around.writes() <= kept.writes() && left(&around) < left(&kept) { around } else { kept }
    }

    /// Packs what was decided on hints, subsets and shares.
    fn decided(&self, mut decision: Decision<'_>) -> FamilyPlan {
        if decision.shares.is_some() && !self.settings.gates.hints {
            decision.hints = AssignedHints::default();
        }
        let template = self.template(Some(&decision.hints), decision.shares.as_deref());
        let mut lists = self.pack(&template, decision.subsets.as_ref());
        // Slices that gain endpoints are written before slices that lose some, so that an endpoint that
        // moves is never missing.
        let losing = std::mem::take(&mut lists.losing);
        lists.update.sort_by_cached_key(|slice| losing.iter().any(|one| one.name == slice.name));
        let reallocated = self.reallocated(&decision);
        let mut plan = self.finish(lists, decision.reason, &template);
        plan.counts.reallocated = reallocated;
        FamilyPlan { improvement: decision.improvement, ..plan }
    }

    /// With `upstream`: packs first, then assigns hints, as the reference does.
    fn as_reference(&self, plan: &mut Plan) -> FamilyPlan {
        let template = self.template(None, None);
        let mut lists = self.pack(&template, None);
        let (hints_per_zone, reason) = self.reference_hints(&mut lists, plan);
        FamilyPlan { hints_per_zone, ..self.finish(lists, reason, &template) }
    }

    fn reference_hints(
        &self,
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
                    (HintsPerZone::new(), refusal.reason(without_zone(self.desired)))
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
                near_reason(near, self.desired, self.input.nodes)
            }
            None => {
                upstream::remove(lists);
                Reason::ClusterWide
            }
        };
        (HintsPerZone::new(), reason)
    }

    fn template<'s>(
        &'s self,
        hints: Option<&'s AssignedHints<'s>>,
        shares: Option<&'s str>,
    ) -> SliceTemplate<'s> {
        SliceTemplate {
            service: self.input.service,
            family: self.family,
            managed_by: &self.settings.managed_by,
            max_endpoints: self.settings.max_endpoints,
            hints,
            shares,
            owner: self.input.service.owner(),
        }
    }

    fn pack(&self, template: &SliceTemplate<'_>, subsets: Option<&Subsets>) -> PackedSlices<'a> {
        let mut lists = PackedSlices::default();
        let mut buckets = Buckets::new(self.desired, subsets);
        for stored in &self.stored.slices {
            let subset = stored.subset.as_ref().filter(|_| !self.settings.upstream);
            let ports = self.desired.ports.find(&stored.slice.ports);
            match ports.filter(|_| stored.owned).and_then(|set| buckets.find(set, subset)) {
                Some(bucket) => buckets.list[bucket].slices.push(stored),
                None => lists.delete.push(stored.slice),
            }
        }
        for BucketContents { bucket, members, slices } in &buckets.list {
            pack(template, bucket, self.desired, members, slices, &mut lists);
        }
        placeholder(template, self.stored.slices.len(), &mut lists);
        lists
    }

    fn finish(
        &self,
        lists: PackedSlices<'_>,
        reason: Reason,
        template: &SliceTemplate<'_>,
    ) -> FamilyPlan {
        let counts = counts(&lists, self.desired, template.max_endpoints);
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
            served_elsewhere: self.desired.served_elsewhere.clone(),
            counts,
            missing_nodes: self.desired.missing_nodes.clone(),
            hints_per_zone: HintsPerZone::new(),
            improvement: None,
            settles: None,
        }
    }

    /// The number of endpoints that were stored before and are now used by other zones.
    fn reallocated(&self, decision: &Decision<'_>) -> usize {
        let as_before = decision.keeps_hints || (decision.hints.is_empty() && !self.stored.hinted);
        if as_before && decision.subsets.is_none() && !self.stored.has_subsets() {
            return 0;
        }
        let moved = |index: &usize| {
            self.stored.of(*index).is_some_and(|(endpoint, slice)| match &decision.subsets {
                Some(subsets) => slice.subset.as_ref() != Some(&subsets.of[*index]),
                None => {
                    let (before, after) = (endpoint.hints.as_ref(), decision.hints.of(*index));
                    slice.subset.is_some() || (before != after && zones(before) != zones(after))
                }
            })
        };
        (0..self.desired.endpoints.len()).filter(moved).count()
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

fn zones(hints: Option<&Arc<Hints>>) -> &[Name] {
    hints.map_or(&[], |hints| &hints.for_zones)
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
    let unplaced = |one: &&DesiredEndpoint<'_>| one.is_ready() && one.zone().is_none();
    desired.endpoints.iter().filter(unplaced).count() as u64
}

/// All buckets of an address family, with their endpoints and stored slices.
struct Buckets<'a> {
    list: Vec<BucketContents<'a>>,
    /// The port set and subset of each bucket in `list`.
    index: Vec<(usize, Option<Subset>)>,
}

struct BucketContents<'a> {
    bucket: Bucket,
    /// Indexes of the desired endpoints.
    members: Vec<u32>,
    slices: Vec<&'a StoredSlice<'a>>,
}

impl<'a> Buckets<'a> {
    fn new(desired: &Desired<'_>, subsets: Option<&Subsets>) -> Self {
        let mut buckets = Self { list: Vec::new(), index: Vec::new() };
        let sets = desired.ports.sets();
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
        for (index, endpoint) in desired.endpoints.iter().enumerate() {
            let set = endpoint.port_set;
            let subset = subsets.map(|subsets| &subsets.of[index]);
            if desired.is_unique(index) {
                let bucket = buckets.find(set, subset);
                let add = || buckets.add(set, &sets[set], subset.cloned(), false);
                let bucket = bucket.unwrap_or_else(add);
                buckets.list[bucket].members.push(index as u32);
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

fn counts(lists: &PackedSlices<'_>, desired: &Desired<'_>, max: usize) -> Counts {
    let mut sizes = vec![0usize; desired.ports.sets().len()];
    for endpoint in &desired.endpoints {
        sizes[endpoint.port_set] += 1;
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
