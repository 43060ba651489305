//! Packing: puts endpoints into slices with as few writes as possible.
//!
//! ```text
//!  1  every slice keeps the endpoints that still belong to it      changed? ─► update, or delete
//!  2  slices that are updated anyway take new endpoints, the fullest slice first
//!  3  the rest goes into the one unchanged slice that becomes fullest with it, or into new slices
//! ```
//!
//! Slices are never merged or split only to make them fuller, because every node of the cluster
//! receives each write. These are the reference's rules (`reconcileByPortMapping` in
//! `staging/src/k8s.io/endpointslice/reconciler.go`).
//!
//! A *bucket* is the group of endpoints that may share a slice: those with the same ports and, if there
//! are subsets, in the same subset.

use std::sync::Arc;

use zonewise_common::keys::{HEADLESS, MANAGED_BY, SERVICE_NAME, ZONE_SHARES};
use zonewise_common::name::Name;

use crate::decide::AssignedHints;
use crate::desired::Desired;
use crate::labels::Labels;
use crate::service::Service;
use crate::slice::{AddressType, Endpoint, Owner, Port, Slice, Subset};
use crate::stored::{Match, StoredSlice};

/// The slices of one address family, by what has to be done with them.
#[derive(Debug, Default)]
pub(crate) struct PackedSlices<'a> {
    pub(crate) create: Vec<Slice>,
    pub(crate) update: Vec<Slice>,
    pub(crate) delete: Vec<&'a Slice>,
    pub(crate) unchanged: Vec<&'a Slice>,
    /// Of the slices to update, those that lose an endpoint, as they are stored.
    pub(crate) losing: Vec<&'a Slice>,
    /// Endpoints that were in no slice before.
    pub(crate) added: usize,
    /// Endpoints that are in no slice any more.
    pub(crate) removed: usize,
}

/// The group of endpoints that may share a slice.
pub(crate) struct Bucket {
    pub(crate) ports: Arc<[Port]>,
    pub(crate) subset: Option<Subset>,
    /// Whether a slice must exist even without endpoints.
    pub(crate) required: bool,
}

/// What all slices of a Service in one address family have in common.
pub(crate) struct SliceTemplate<'a> {
    pub(crate) service: &'a Service,
    pub(crate) family: &'a AddressType,
    pub(crate) managed_by: &'a str,
    pub(crate) max_endpoints: usize,
    /// The hints of the desired endpoints. A stored endpoint with other hints has changed. `None` if hints
    /// are assigned after packing, as the reference does.
    pub(crate) hints: Option<&'a AssignedHints<'a>>,
    /// The zone shares that every slice must carry.
    pub(crate) shares: Option<&'a str>,
    pub(crate) owner: Arc<[Owner]>,
}

impl SliceTemplate<'_> {
    /// An empty slice.
    pub(crate) fn new_slice(&self, ports: Arc<[Port]>, subset: Option<&Subset>) -> Slice {
        Slice {
            namespace: Name::clone(&self.service.namespace),
            name: None,
            generate_name: Some(format!("{}-", self.service.name).into()),
            uid: Default::default(),
            resource_version: "".into(),
            generation: 0,
            deleting: false,
            labels: Arc::new(self.labels(subset)),
            annotations: Labels::default().with(ZONE_SHARES, self.shares),
            finalizers: Box::default(),
            owners: Arc::clone(&self.owner),
            family: self.family.clone(),
            ports,
            endpoints: Vec::new(),
        }
    }

    /// The labels of a slice: those of the Service and those of the controller.
    pub(crate) fn labels(&self, subset: Option<&Subset>) -> Labels {
        let subset = subset.map(Subset::label);
        let pairs = self.service.labels.iter().filter(|(key, _)| !is_reserved(key));
        let pairs = pairs.map(|(key, value)| (&**key, &**value));
        pairs
            .chain(self.service.headless.then_some((HEADLESS, "")))
            .chain([(SERVICE_NAME, &*self.service.name), (MANAGED_BY, self.managed_by)])
            .chain(subset.map(|(key, value)| (key, &**value)))
            .collect()
    }

    /// A stored slice with other endpoints and with the metadata that it should have.
    fn updated(&self, slice: &Slice, endpoints: Vec<Endpoint>, bucket: &Bucket) -> Slice {
        Slice {
            labels: Arc::new(self.labels(bucket.subset.as_ref())),
            annotations: slice.annotations.with(ZONE_SHARES, self.shares),
            endpoints,
            ..without_endpoints(slice)
        }
    }

    /// Whether the labels or the zone shares of a stored slice are not as they should be. Reserved
    /// labels other than managed-by do not count, as in the reference: they are repaired with the next
    /// write.
    fn metadata_differs(&self, slice: &Slice, bucket: &Bucket) -> bool {
        let subset = bucket.subset.as_ref().map(Subset::label);
        let is_subset = |key: &str| subset.is_some_and(|(label, _)| label == key);
        let copied = self.service.labels.iter().map(|(key, value)| (&**key, value));
        let copied = copied.filter(|(key, _)| !is_reserved(key) && !is_subset(key));
        let wanted = || copied.clone().chain(subset);
        let stored = slice.labels.iter().filter(|(key, _)| !is_reserved(key)).count();
        stored != wanted().count()
            || wanted().any(|(key, value)| slice.labels.get(key) != Some(value))
            || slice.labels.get(MANAGED_BY) != Some(self.managed_by)
            || slice.annotations.get(ZONE_SHARES) != self.shares
    }

    /// A desired endpoint as it is written.
    fn endpoint(&self, desired: &Desired<'_>, index: u32) -> Endpoint {
        let index = index as usize;
        let hints = self.hints.and_then(|hints| hints.of(index)).cloned();
        desired.endpoints[index].with_hints(hints)
    }

    /// Adds desired endpoints to a slice.
    fn fill(&self, slice: &mut Slice, desired: &Desired<'_>, members: impl Iterator<Item = u32>) {
        slice.endpoints.extend(members.map(|index| self.endpoint(desired, index)));
    }

    /// Whether a stored endpoint is as the desired one that it stands for should be written.
    fn is_written(&self, stored: &Endpoint, found: Match) -> bool {
        let hints =
            |hints: &AssignedHints<'_>| stored.hints.as_ref() == hints.of(found.desired as usize);
        found.is_equal && self.hints.is_none_or(hints)
    }
}

/// Labels that the controller sets itself. They are not copied from the Service.
fn is_reserved(key: &str) -> bool {
    matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS)
}

/// A copy of a slice without its endpoints. They are about to be replaced, and cloning them would cost
/// more than everything else here.
fn without_endpoints(slice: &Slice) -> Slice {
    Slice {
        namespace: Arc::clone(&slice.namespace),
        name: slice.name.clone(),
        generate_name: slice.generate_name.clone(),
        uid: slice.uid.clone(),
        resource_version: slice.resource_version.clone(),
        generation: slice.generation,
        deleting: slice.deleting,
        labels: Arc::clone(&slice.labels),
        annotations: slice.annotations.clone(),
        finalizers: slice.finalizers.clone(),
        owners: Arc::clone(&slice.owners),
        family: slice.family.clone(),
        ports: Arc::clone(&slice.ports),
        endpoints: Vec::new(),
    }
}

/// Packs one bucket. `members` are the indexes of its endpoints in `desired`, `slices` are its stored
/// slices sorted by name. The result is added to `out`.
pub(crate) fn pack<'a>(
    template: &SliceTemplate<'_>,
    bucket: &Bucket,
    desired: &Desired<'_>,
    members: &[u32],
    slices: &[&StoredSlice<'a>],
    out: &mut PackedSlices<'a>,
) {
    let mut packing = Packing {
        template,
        bucket,
        desired,
        waiting: vec![false; desired.endpoints.len()],
        update: Vec::new(),
        unchanged: Vec::new(),
    };
    for &member in members {
        packing.waiting[member as usize] = true;
    }
    for slice in slices {
        packing.keep(slice, out);
    }
    let is_waiting = |member: &u32| packing.waiting[*member as usize];
    let waiting = members.iter().copied().filter(is_waiting).collect();
    packing.place(waiting, out);
    let empty = packing.update.is_empty() && packing.unchanged.is_empty();
    if bucket.required && empty && members.is_empty() {
        out.create.push(template.new_slice(Arc::clone(&bucket.ports), bucket.subset.as_ref()));
    }
    out.update.append(&mut packing.update);
    out.unchanged.append(&mut packing.unchanged);
}

struct Packing<'a, 'b, 'd> {
    template: &'b SliceTemplate<'b>,
    bucket: &'b Bucket,
    desired: &'b Desired<'d>,
    /// Whether each desired endpoint belongs to the bucket and is not in a slice yet.
    waiting: Vec<bool>,
    update: Vec<Slice>,
    unchanged: Vec<&'a Slice>,
}

impl<'a> Packing<'a, '_, '_> {
    /// Step 1 for one slice: keeps the endpoints that still belong to it.
    fn keep(&mut self, stored: &StoredSlice<'a>, out: &mut PackedSlices<'a>) {
        let slice = stored.slice;
        let mut kept = Vec::with_capacity(stored.matches.len());
        let (mut changed, mut loses) = (false, false);
        for (endpoint, found) in slice.endpoints.iter().zip(&stored.matches) {
            match *found {
                Some(found) if self.waiting[found.desired as usize] => {
                    self.waiting[found.desired as usize] = false;
                    changed |= !self.template.is_written(endpoint, found);
                    kept.push(found.desired);
                }
                other => {
                    changed = true;
                    loses |= other.is_none_or(|found| !kept.contains(&found.desired));
                    out.removed += 1;
                }
            }
        }
        let emptied = changed && kept.is_empty();
        if emptied && !self.bucket.required {
            out.delete.push(slice);
        } else if changed {
            let endpoints = kept.iter().map(|&index| self.template.endpoint(self.desired, index));
            let updated = self.template.updated(slice, endpoints.collect(), self.bucket);
            self.update.push(updated);
            out.losing.extend(loses.then_some(slice));
        } else if self.template.metadata_differs(slice, self.bucket) {
            self.update.push(self.template.updated(slice, slice.endpoints.clone(), self.bucket));
        } else {
            self.unchanged.push(slice);
        }
    }

    /// Steps 2 and 3: finds slices for the endpoints that are in none.
    fn place(&mut self, waiting: Vec<u32>, out: &mut PackedSlices<'a>) {
        out.added += waiting.len();
        let mut waiting = waiting.into_iter();
        let max = self.template.max_endpoints;
        self.update.sort_by(|a, b| {
            b.endpoints.len().cmp(&a.endpoints.len()).then_with(|| a.name.cmp(&b.name))
        });
        for slice in &mut self.update {
            let room = max.saturating_sub(slice.endpoints.len());
            self.template.fill(slice, self.desired, waiting.by_ref().take(room));
        }
        while waiting.len() > 0 {
            match self.best_fit(waiting.len()) {
                Some(index) => {
                    let slice = self.unchanged.remove(index);
                    let endpoints = slice.endpoints.clone();
                    let mut slice = self.template.updated(slice, endpoints, self.bucket);
                    self.template.fill(&mut slice, self.desired, waiting.by_ref());
                    self.update.push(slice);
                }
                None => {
                    let mut slice = self
                        .template
                        .new_slice(Arc::clone(&self.bucket.ports), self.bucket.subset.as_ref());
                    self.template.fill(&mut slice, self.desired, waiting.by_ref().take(max));
                    out.create.push(slice);
                }
            }
        }
    }

    /// The unchanged slice that has room for all waiting endpoints and becomes fullest with them.
    fn best_fit(&self, waiting: usize) -> Option<usize> {
        let max = self.template.max_endpoints;
        let room = |slice: &Slice| max.checked_sub(slice.endpoints.len() + waiting);
        let fits = self
            .unchanged
            .iter()
            .enumerate()
            .filter_map(|(index, slice)| Some((room(slice)?, index)));
        fits.min().map(|(_, index)| index).filter(|_| waiting < max)
    }
}
