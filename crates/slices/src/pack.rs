//! Packing: which endpoint stands in which slice, with the fewest writes.
//!
//! ```text
//!  1  every slice keeps the endpoints that still belong to it      changed? ─► update, or delete
//!  2  slices that are written anyway take new endpoints, fullest first
//!  3  the rest goes into the one untouched slice that it fills best, else into new slices
//! ```
//!
//! Slices are never merged or split for their own sake: a write costs every node of the cluster.
//! A *bucket* is what a slice can hold: one port set, and in subsets one consumer.

use std::sync::Arc;

use zonewise_common::keys::{HEADLESS, MANAGED_BY, SERVICE_NAME, ZONE_SHARES};
use zonewise_common::name::Name;

use crate::desired::Desired;
use crate::labels::Labels;
use crate::service::Service;
use crate::slice::{AddressType, Endpoint, Owner, Port, Slice, Subset};

/// What becomes of the slices of one address family.
#[derive(Debug, Default)]
pub(crate) struct Lists<'a> {
    pub(crate) create: Vec<Slice>,
    pub(crate) update: Vec<Slice>,
    pub(crate) delete: Vec<&'a Slice>,
    pub(crate) unchanged: Vec<&'a Slice>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

/// What a slice holds: Pods with these ports, for this consumer.
pub(crate) struct Bucket {
    pub(crate) ports: Arc<[Port]>,
    pub(crate) subset: Option<Subset>,
    /// A slice must exist even without endpoints.
    pub(crate) required: bool,
}

/// How slices of a Service are to look.
pub(crate) struct Shape<'a> {
    pub(crate) service: &'a Service,
    pub(crate) family: &'a AddressType,
    pub(crate) managed_by: &'a str,
    pub(crate) max_endpoints: usize,
    /// Hints are decided before packing, so a slice with other hints has changed.
    pub(crate) hints_decided: bool,
    /// The zone shares that every slice is to carry.
    pub(crate) shares: Option<&'a str>,
    pub(crate) owner: Arc<[Owner]>,
}

impl Shape<'_> {
    /// An empty slice.
    pub(crate) fn fresh(&self, ports: Arc<[Port]>, subset: Option<&Subset>) -> Slice {
        Slice {
            namespace: Name::clone(&self.service.namespace),
            name: None,
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

    /// The labels of a slice: those of the Service, and ours.
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

    /// A copy of a stored slice with the metadata it should have.
    fn renewed(&self, slice: &Slice, endpoints: Vec<Endpoint>, bucket: &Bucket) -> Slice {
        Slice {
            labels: Arc::new(self.labels(bucket.subset.as_ref())),
            annotations: slice.annotations.with(ZONE_SHARES, self.shares),
            endpoints,
            ..stored_apart_from_endpoints(slice)
        }
    }

    /// Labels or annotations that people set on the Service, or that we set, are not as they
    /// should be. Damage to reserved labels alone is repaired with the next write, as the
    /// reference does it.
    fn metadata_differs(&self, slice: &Slice, bucket: &Bucket) -> bool {
        let free = |labels: &Labels| -> Vec<(Arc<str>, Arc<str>)> {
            let pairs = labels.iter().filter(|(key, _)| !is_reserved(key));
            pairs.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
        };
        let subset = bucket.subset.as_ref().map(Subset::label);
        let wanted = self
            .service
            .labels
            .iter()
            .filter(|(key, _)| !is_reserved(key) && Some(&***key) != subset.map(|(key, _)| key))
            .map(|(key, value)| (&**key, &**value));
        let wanted: Labels = wanted.chain(subset.map(|(key, value)| (key, &**value))).collect();
        free(&slice.labels) != free(&wanted)
            || slice.labels.get(MANAGED_BY) != Some(self.managed_by)
            || slice.annotations.get(ZONE_SHARES) != self.shares
    }

    fn same(&self, stored: &Endpoint, wanted: &Endpoint) -> bool {
        stored.same_content(wanted) && (!self.hints_decided || stored.hints == wanted.hints)
    }
}

/// Labels that belong to the writer of the slice; a Service cannot set them.
fn is_reserved(key: &str) -> bool {
    matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS)
}

/// Cloning endpoints only to replace them would be the costliest thing here.
fn stored_apart_from_endpoints(slice: &Slice) -> Slice {
    Slice {
        namespace: Arc::clone(&slice.namespace),
        name: slice.name.clone(),
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

/// Packs one bucket. `members` are the numbers of its endpoints, `slices` are its stored slices by
/// name; `placed` marks the endpoints that have found their slice.
pub(crate) fn pack<'a>(
    shape: &Shape<'_>,
    bucket: &Bucket,
    (desired, members): (&Desired<'_>, &[usize]),
    slices: &[&'a Slice],
    out: &mut Lists<'a>,
) {
    let mut packing = Packing {
        shape,
        bucket,
        desired,
        waiting: vec![false; desired.endpoints.len()],
        update: Vec::new(),
        unchanged: Vec::new(),
    };
    for &member in members {
        packing.waiting[member] = true;
    }
    for slice in slices {
        packing.keep(slice, out);
    }
    let waiting = members.iter().copied().filter(|&member| packing.waiting[member]).collect();
    packing.place(waiting, out);
    let empty = packing.update.is_empty() && packing.unchanged.is_empty();
    if bucket.required && empty && members.is_empty() {
        out.create.push(shape.fresh(Arc::clone(&bucket.ports), bucket.subset.as_ref()));
    }
    out.update.append(&mut packing.update);
    out.unchanged.append(&mut packing.unchanged);
}

struct Packing<'a, 'b, 'd> {
    shape: &'b Shape<'b>,
    bucket: &'b Bucket,
    desired: &'b Desired<'d>,
    waiting: Vec<bool>,
    update: Vec<Slice>,
    unchanged: Vec<&'a Slice>,
}

impl<'a> Packing<'a, '_, '_> {
    /// Step 1 for one slice.
    fn keep(&mut self, slice: &'a Slice, out: &mut Lists<'a>) {
        let mut kept = Vec::with_capacity(slice.endpoints.len());
        let mut changed = false;
        for endpoint in &slice.endpoints {
            match self.desired.find(endpoint).filter(|&index| self.waiting[index]) {
                Some(index) => {
                    self.waiting[index] = false;
                    changed |= !self.shape.same(endpoint, &self.desired.endpoints[index]);
                    kept.push(index);
                }
                None => {
                    changed = true;
                    out.removed += 1;
                }
            }
        }
        let emptied = changed && kept.is_empty();
        if emptied && !self.bucket.required {
            out.delete.push(slice);
        } else if changed {
            let endpoints = kept.iter().map(|&index| self.desired.endpoints[index].clone());
            let renewed = self.shape.renewed(slice, endpoints.collect(), self.bucket);
            self.update.push(renewed);
        } else if self.shape.metadata_differs(slice, self.bucket) {
            self.update.push(self.shape.renewed(slice, slice.endpoints.clone(), self.bucket));
        } else {
            self.unchanged.push(slice);
        }
    }

    /// Steps 2 and 3.
    fn place(&mut self, waiting: Vec<usize>, out: &mut Lists<'a>) {
        out.added += waiting.len();
        let mut waiting = waiting.into_iter();
        let max = self.shape.max_endpoints;
        self.update.sort_by(|a, b| {
            b.endpoints.len().cmp(&a.endpoints.len()).then_with(|| a.name.cmp(&b.name))
        });
        for slice in &mut self.update {
            let room = max.saturating_sub(slice.endpoints.len());
            fill(slice, waiting.by_ref().take(room), self.desired);
        }
        while waiting.len() > 0 {
            match self.best_fit(waiting.len()) {
                Some(place) => {
                    let slice = self.unchanged.remove(place);
                    let endpoints = slice.endpoints.clone();
                    let mut slice = self.shape.renewed(slice, endpoints, self.bucket);
                    fill(&mut slice, waiting.by_ref(), self.desired);
                    self.update.push(slice);
                }
                None => {
                    let mut slice = self
                        .shape
                        .fresh(Arc::clone(&self.bucket.ports), self.bucket.subset.as_ref());
                    fill(&mut slice, waiting.by_ref().take(max), self.desired);
                    out.create.push(slice);
                }
            }
        }
    }

    /// The untouched slice that ends up fullest with all of the waiting endpoints in it.
    fn best_fit(&self, waiting: usize) -> Option<usize> {
        let max = self.shape.max_endpoints;
        let room = |slice: &Slice| max.checked_sub(slice.endpoints.len() + waiting);
        let fits = self
            .unchanged
            .iter()
            .enumerate()
            .filter_map(|(place, slice)| Some((room(slice)?, place)));
        fits.min().map(|(_, place)| place).filter(|_| waiting < max)
    }
}

fn fill(slice: &mut Slice, members: impl Iterator<Item = usize>, desired: &Desired<'_>) {
    slice.endpoints.extend(members.map(|member| desired.endpoints[member].clone()));
}
