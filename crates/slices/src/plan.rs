//! One Service in, the writes that make its slices right out.
//!
//! ```text
//!  Pods ─► desired endpoints ─┐
//!  Service ─► asked ──────────┼─► decide ─► buckets ─► pack ─► recycle ─► FamilyPlan
//!  stored slices ─────────────┘
//! ```

use std::sync::Arc;

use zonewise_common::event::Event;
use zonewise_common::keys::{TRIGGER_TIME, ZONE_SHARES};
use zonewise_common::name::Uid;
use zonewise_common::time::timestamp;
use zonewise_topology::reason::{Outcome, Reason};

use crate::asked::{self, Asked, Choice};
pub use crate::decide::Grounds;
use crate::decide::{self, Decision, decide, near_reason};
use crate::desired::Desired;
pub use crate::desired::MissingNode;
use crate::node::Nodes;
use crate::pack::{Bucket, Lists, Shape, pack};
use crate::pod::Pod;
use crate::service::Service;
use crate::settings::Settings;
use crate::slice::{AddressType, Port, Slice, Subset};
use crate::upstream::{self, Allocated};

/// What a plan is made from.
pub struct Input<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The Pods its selector matches, by name.
    pub pods: &'a [Arc<Pod>],
    /// Its slices that carry our name, by name, without those being deleted.
    pub slices: &'a [Arc<Slice>],
    /// The nodes.
    pub nodes: &'a Nodes,
    /// When the change happened that led here.
    pub trigger: Option<i64>,
    /// Only with `upstream`: the Service had hints by the annotation, as far as this process knows.
    pub populated: bool,
}

/// Everything to do for one Service.
#[derive(Debug)]
pub struct Plan {
    /// Address families, each independent of the others.
    pub families: Vec<FamilyPlan>,
    /// Slices of families the Service does not have any more.
    pub leftovers: Vec<SliceName>,
    /// Events, as the reference emits them (only with `upstream`).
    pub events: Vec<Event>,
    /// Only with `upstream`: whether the Service has hints by the annotation now.
    pub populated: bool,
}

/// What to do in one address family.
#[derive(Debug)]
pub struct FamilyPlan {
    /// The family.
    pub family: AddressType,
    /// Slices to create.
    pub creates: Vec<Slice>,
    /// Slices to write anew. Those that only gain endpoints come first.
    pub updates: Vec<Slice>,
    /// Slices to delete.
    pub deletes: Vec<SliceName>,
    /// Slices that stay as they are.
    pub unchanged: usize,
    /// Why routing is as it is.
    pub reason: Reason,
    /// Endpoints that arrived and left, and what should be there.
    pub counts: Counts,
    /// Pods left out because their node is not known.
    pub missing_nodes: Vec<MissingNode>,
    /// Only with `upstream`: endpoints hinted to each zone.
    pub allocated: Allocated,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Endpoints that arrived.
    pub added: usize,
    /// Endpoints that left.
    pub removed: usize,
    /// Endpoints that should be there.
    pub endpoints: usize,
    /// Slices that would do.
    pub slices_needed: usize,
    /// Slices there will be.
    pub slices: usize,
    /// Endpoints that change their consumers.
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
    /// Writes to the API server.
    pub fn writes(&self) -> usize {
        self.creates.len() + self.updates.len() + self.deletes.len()
    }
}

impl Plan {
    /// Writes to the API server.
    pub fn writes(&self) -> usize {
        self.families.iter().map(FamilyPlan::writes).sum::<usize>() + self.leftovers.len()
    }

    /// The address family that stands for all: the first that is not as asked.
    pub fn leading(&self) -> Option<&FamilyPlan> {
        let fallback = |family: &&FamilyPlan| family.reason.outcome() != Outcome::InForce;
        self.families.iter().find(fallback).or(self.families.first())
    }

    /// Its reason.
    pub fn reason(&self) -> Reason {
        self.leading().map_or(Reason::ClusterWide, |family| family.reason)
    }
}

impl<'a> Input<'a> {
    /// What the decision for a family rests on.
    pub fn grounds(&self, choice: &Choice, family: &AddressType) -> Grounds<'a> {
        let desired = Desired::new(self.service, family, self.pods, self.nodes);
        let uid = &self.service.uid;
        let owned = |slice: &&Slice| slice.family == *family && slice.is_owned_by(uid);
        let slices: Vec<&Slice> = self.slices.iter().map(|slice| &**slice).filter(owned).collect();
        decide::grounds(choice, &desired, &slices, self.nodes)
    }
}

/// Plans one Service.
pub fn plan(input: &Input<'_>, asked: &Asked, settings: &Settings) -> Plan {
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
            planner.ours(&slices, &asked.choice)
        };
        plan.families.push(family);
    }
    let unsupported = |slice: &&Arc<Slice>| !service.families.contains(&slice.family);
    plan.leftovers =
        input.slices.iter().filter(unsupported).map(|slice| slice_name(slice)).collect();
    plan
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
    /// Hints, subsets and shares are decided first, then packed.
    fn ours(&self, slices: &[&Slice], choice: &Choice) -> FamilyPlan {
        let mut desired = self.desired();
        let owned: Vec<&Slice> = self.owned(slices).collect();
        let decision = decide(choice, &desired, &owned, self.input.nodes);
        for (endpoint, hints) in desired.endpoints.iter_mut().zip(&decision.hints) {
            endpoint.hints.clone_from(hints);
        }
        let shape = self.shape(true, decision.shares.as_deref());
        let mut lists = self.pack(&shape, &desired, &decision, slices);
        // What gains comes before what loses: nobody may miss an endpoint that moves.
        lists.update.sort_by_cached_key(|slice| loses(slice, slices));
        let reallocated = reallocated(&desired, &owned, &decision);
        let mut plan = self.finish(lists, &desired, decision.reason, &shape);
        plan.counts.reallocated = reallocated;
        plan
    }

    /// Packed first, then hinted where slices are written anyway.
    fn as_reference(&self, slices: &[&Slice], plan: &mut Plan) -> FamilyPlan {
        let desired = self.desired();
        let shape = self.shape(false, None);
        let everywhere = Decision {
            reason: Reason::ClusterWide,
            hints: Vec::new(),
            subsets: None,
            shares: None,
        };
        let mut lists = self.pack(&shape, &desired, &everywhere, slices);
        let (allocated, reason) = self.reference_hints(&desired, &mut lists, plan);
        FamilyPlan { allocated, ..self.finish(lists, &desired, reason, &shape) }
    }

    fn reference_hints(
        &self,
        desired: &Desired<'_>,
        lists: &mut Lists<'_>,
        plan: &mut Plan,
    ) -> (Allocated, Reason) {
        let service = self.input.service;
        if asked::is_auto(service) {
            return match upstream::auto(lists, self.input.nodes) {
                Ok(allocated) => {
                    if !plan.populated {
                        plan.events.push(upstream::enabled(self.family));
                    }
                    plan.populated = true;
                    (allocated, Reason::HintsAssigned { moved: away_from_home(lists) })
                }
                Err(refusal) => {
                    plan.events.push(upstream::refused(refusal, self.family));
                    plan.populated = false;
                    (Allocated::new(), refusal.reason(without_zone(desired)))
                }
            };
        }
        if plan.populated {
            plan.events.push(upstream::disabled(self.family));
            plan.populated = false;
        }
        let reason = match asked::traffic_distribution(service) {
            Some(near) => {
                upstream::near(lists, near);
                near_reason(near, desired, self.input.nodes)
            }
            None => {
                upstream::remove(lists);
                Reason::ClusterWide
            }
        };
        (Allocated::new(), reason)
    }

    fn desired(&self) -> Desired<'a> {
        Desired::new(self.input.service, self.family, self.input.pods, self.input.nodes)
    }

    fn shape<'s>(&'s self, hints_decided: bool, shares: Option<&'s str>) -> Shape<'s> {
        Shape {
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
        shape: &Shape<'_>,
        desired: &Desired<'_>,
        decision: &Decision,
        slices: &[&'s Slice],
    ) -> Lists<'s> {
        let mut lists = Lists::default();
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
        for full in &buckets.list {
            pack(shape, &full.bucket, (desired, &full.members), &full.slices, &mut lists);
        }
        placeholder(shape, slices.len(), &mut lists);
        lists
    }

    fn finish(
        &self,
        lists: Lists<'_>,
        desired: &Desired<'_>,
        reason: Reason,
        shape: &Shape<'_>,
    ) -> FamilyPlan {
        let counts = counts(&lists, desired, shape.max_endpoints);
        let Lists { mut create, mut update, mut delete, unchanged, .. } = lists;
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
            allocated: Allocated::new(),
        }
    }

    /// A slice to delete and one to create are one write: the new content under the old name. Not
    /// between subsets, where watchers of the old content would lose endpoints before others have
    /// them.
    fn recycle(&self, create: &mut Vec<Slice>, update: &mut Vec<Slice>, delete: &mut Vec<&Slice>) {
        let uid = &self.input.service.uid;
        let upstream = self.settings.upstream;
        delete.retain(|candidate| {
            let same = |slice: &Slice| {
                upstream || candidate.endpoints.is_empty() || candidate.subset() == slice.subset()
            };
            let place = create.iter().rposition(same).filter(|_| candidate.is_owned_by(uid));
            if let Some(place) = place {
                let slice = create.remove(place);
                update.push(Slice { name: candidate.name.clone(), ..slice });
            }
            place.is_none()
        });
    }
}

/// Ready endpoints that are hinted to another zone than their own.
fn away_from_home(lists: &Lists<'_>) -> u64 {
    let slices = lists.create.iter().chain(&lists.update).chain(lists.unchanged.iter().copied());
    let endpoints = slices.flat_map(|slice| &slice.endpoints).filter(|one| one.is_ready());
    let away = |one: &&crate::slice::Endpoint| {
        one.zone.as_ref().is_some_and(|zone| !one.zone_hints().contains(zone))
    };
    endpoints.filter(away).count() as u64
}

fn without_zone(desired: &Desired<'_>) -> u64 {
    let homeless = |one: &&crate::slice::Endpoint| one.is_ready() && one.zone.is_none();
    desired.endpoints.iter().filter(homeless).count() as u64
}

/// Buckets with their endpoints and stored slices.
struct Buckets<'s> {
    list: Vec<FullBucket<'s>>,
    /// Bucket numbers by port set and subset.
    index: Vec<(usize, Option<Subset>)>,
}

struct FullBucket<'s> {
    bucket: Bucket,
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
        self.list.push(FullBucket { bucket, members: Vec::new(), slices: Vec::new() });
        self.list.len() - 1
    }
}

/// A Service always has a slice, be it empty: its absence would mean that nobody looks after it.
fn placeholder(shape: &Shape<'_>, stored: usize, lists: &mut Lists<'_>) {
    if lists.delete.len() < stored || !lists.create.is_empty() {
        return;
    }
    let empty = shape.fresh(Arc::new([]), None);
    match lists.delete.as_slice() {
        [only] if is_placeholder(only, &empty) => {
            lists.unchanged.append(&mut lists.delete);
        }
        _ => lists.create.push(empty),
    }
}

/// As the reference compares them: a missing label equals an empty one, owners do not matter.
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

/// Whether a slice will lack an endpoint that it has now.
fn loses(slice: &Slice, stored: &[&Slice]) -> bool {
    let before = stored.iter().find(|stored| stored.name == slice.name);
    before.is_some_and(|before| {
        let has = |endpoint: &crate::slice::Endpoint| {
            slice.endpoints.iter().any(|kept| kept.identity() == endpoint.identity())
        };
        !before.endpoints.iter().all(has)
    })
}

/// Endpoints that were there before and now have other consumers.
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

fn counts(lists: &Lists<'_>, desired: &Desired<'_>, max: usize) -> Counts {
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
