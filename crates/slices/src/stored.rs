//! The stored slices of one address family, each endpoint beside the desired one that it stands for. This
//! is looked up and compared once for each endpoint, however often is decided and packed.

use zonewise_common::name::Uid;

use crate::desired::Desired;
use crate::slice::{Endpoint, Slice, Subset};

/// The stored slices.
pub(crate) struct Stored<'s> {
    /// Every slice, in the order of their names.
    pub(crate) slices: Vec<StoredSlice<'s>>,
    /// Where each desired endpoint is stored; empty if no endpoint is. Of several positions the first counts.
    positions: Vec<Option<StoredPosition>>,
    /// Whether a stored endpoint has hints.
    pub(crate) hinted: bool,
}

/// A stored slice.
pub(crate) struct StoredSlice<'s> {
    pub(crate) slice: &'s Slice,
    /// Whether the Service owns it. What others own is deleted.
    pub(crate) owned: bool,
    /// Its subset.
    pub(crate) subset: Option<Subset>,
    /// What each of its endpoints stands for, if it is owned; `None` for those that are not desired.
    pub(crate) matches: Vec<Option<Match>>,
}

/// The desired endpoint that a stored one stands for.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    /// Its index.
    pub(crate) desired: u32,
    /// Whether the stored one is equal to it, apart from hints.
    pub(crate) is_equal: bool,
}

#[derive(Clone, Copy)]
struct StoredPosition {
    slice: u32,
    endpoint: u32,
}

impl<'s> Stored<'s> {
    pub(crate) fn new(
        slices: impl Iterator<Item = &'s Slice>,
        desired: &Desired<'_>,
        service: &Uid,
    ) -> Self {
        let slices: Vec<StoredSlice<'s>> = slices
            .map(|slice| {
                let owned = slice.is_owned_by(service);
                let endpoints = slice.endpoints.iter().filter(|_| owned);
                let matches = endpoints.map(|endpoint| matching(endpoint, desired)).collect();
                StoredSlice { slice, owned, subset: slice.subset(), matches }
            })
            .collect();
        let positions = positions(&slices, desired.endpoints.len());
        let endpoints = || slices.iter().flat_map(|stored| &stored.slice.endpoints);
        let hinted = endpoints().any(|endpoint| endpoint.hints.is_some());
        Self { slices, positions, hinted }
    }

    /// Whether a slice has a subset.
    pub(crate) fn has_subsets(&self) -> bool {
        self.slices.iter().any(|stored| stored.subset.is_some())
    }

    /// The slices that the Service owns.
    pub(crate) fn owned(&self) -> impl Iterator<Item = &StoredSlice<'s>> {
        self.slices.iter().filter(|slice| slice.owned)
    }

    /// The stored endpoint that stands for a desired one, and the slice that it is in.
    pub(crate) fn of(&self, desired: usize) -> Option<(&'s Endpoint, &StoredSlice<'s>)> {
        let position = self.positions.get(desired).copied().flatten()?;
        let stored = &self.slices[position.slice as usize];
        Some((&stored.slice.endpoints[position.endpoint as usize], stored))
    }
}

fn matching(endpoint: &Endpoint, desired: &Desired<'_>) -> Option<Match> {
    let index = desired.find(endpoint)?;
    let is_equal = desired.endpoints[index as usize].has_content_of(endpoint);
    Some(Match { desired: index, is_equal })
}

fn positions(slices: &[StoredSlice<'_>], desired: usize) -> Vec<Option<StoredPosition>> {
    if slices.iter().all(|slice| slice.matches.is_empty()) {
        return Vec::new();
    }
    let mut positions = vec![None; desired];
    for (slice, stored) in (0..).zip(slices) {
        for (endpoint, found) in (0..).zip(&stored.matches) {
            if let Some(found) = found {
                positions[found.desired as usize].get_or_insert(StoredPosition { slice, endpoint });
            }
        }
    }
    positions
}
