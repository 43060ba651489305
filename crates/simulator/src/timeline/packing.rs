//! Groups of at most 100 endpoints, kept stable from step to step: a model of how a controller
//! packs endpoints into slices.

use std::collections::BTreeMap;

use zonewise_topology::allocation::ENDPOINTS_PER_SLICE;

/// An endpoint as it is to be written.
pub(super) struct Member {
    pub(super) id: u64,
    /// Endpoints of different groups never share a slice.
    pub(super) group: Vec<u32>,
    /// What is written beside the endpoint.
    pub(super) hint: Vec<u32>,
}

/// All groups, from step to step.
#[derive(Default)]
pub(super) struct Packing {
    slices: Vec<Slice>,
}

struct Slice {
    group: Vec<u32>,
    /// Endpoint → what is written beside it.
    members: BTreeMap<u64, Vec<u32>>,
    dirty: bool,
}

impl Packing {
    /// Brings the slices to the wanted state; returns how many were written or deleted.
    pub(super) fn update(&mut self, members: Vec<Member>, rewrite_all: bool) -> u64 {
        let mut wanted: BTreeMap<u64, Member> =
            members.into_iter().map(|member| (member.id, member)).collect();
        for slice in &mut self.slices {
            slice.dirty = rewrite_all;
            slice.keep(&mut wanted);
        }
        for member in wanted.into_values() {
            self.insert(member);
        }
        let written = self.slices.iter().filter(|slice| slice.dirty).count() as u64;
        self.slices.retain(|slice| !slice.members.is_empty());
        written
    }

    /// Puts an endpoint into a slice that is written anyway, else one with space, else a new one.
    fn insert(&mut self, member: Member) {
        let has_room = |slice: &&mut Slice| {
            slice.group == member.group && (slice.members.len() as u64) < ENDPOINTS_PER_SLICE
        };
        let open = self.slices.iter_mut().filter(has_room).max_by_key(|slice| slice.dirty);
        match open {
            Some(slice) => {
                slice.members.insert(member.id, member.hint);
                slice.dirty = true;
            }
            None => self.slices.push(Slice {
                members: BTreeMap::from([(member.id, member.hint)]),
                group: member.group,
                dirty: true,
            }),
        }
    }
}

impl Slice {
    /// Keeps the endpoints that stay in this group; takes them off the wanted list.
    fn keep(&mut self, wanted: &mut BTreeMap<u64, Member>) {
        let (group, dirty) = (&self.group, &mut self.dirty);
        self.members.retain(|id, hint| {
            let stays = wanted.get(id).is_some_and(|member| member.group == *group);
            if stays && let Some(member) = wanted.remove(id) {
                *dirty |= member.hint != *hint;
                *hint = member.hint;
            }
            *dirty |= !stays;
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, group: &[u32], hint: &[u32]) -> Member {
        Member { id, group: group.to_vec(), hint: hint.to_vec() }
    }

    #[test]
    fn a9_only_what_changed_is_written() {
        let mut packing = Packing::default();
        let all = |hint: u32| (0..250).map(|id| member(id, &[], &[hint])).collect::<Vec<_>>();
        assert_eq!(packing.update(all(0), false), 3, "three new groups");
        assert_eq!(packing.update(all(0), false), 0, "nothing changed");
        let mut one = all(0);
        one[0].hint = vec![1];
        assert_eq!(packing.update(one, false), 1, "one hint changed");
        assert_eq!(packing.update(all(0), true), 3, "a value on all of them changed");
        assert_eq!(packing.update(all(0).split_off(100), false), 1, "the first group is deleted");
        assert_eq!(packing.update(all(0), false), 2, "50 fill the last group, 50 need a new one");
    }

    #[test]
    fn a11_groups_do_not_share_slices() {
        let mut packing = Packing::default();
        let by_zone = |moved: u64| {
            (0..20).map(|id| member(id, &[u32::from(id >= 10 || id == moved)], &[])).collect()
        };
        assert_eq!(packing.update(by_zone(99), false), 2);
        assert_eq!(
            packing.update(by_zone(3), false),
            2,
            "one endpoint leaves one group for another"
        );
    }
}
