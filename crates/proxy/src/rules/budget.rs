//! How many elements of the kernel Services may have, and what they lose when they ask for more.
//!
//! ```text
//!  a Service asks for      65,536, or what its namespace leaves for it      it gets
//!  42,000, with weights    fits                                             everything
//!  300,000, with weights   does not, but 19,000 without weights does        the same endpoints, each with equal chance
//!  20,000,000              does not fit without weights either              its ClusterIPs, then other addresses by
//!                                                                           rank, as many as fit
//! ```
//!
//! Everybody who may write a Service may write one that asks for millions. Where all Services together ask for
//! more than the node has, namespaces share it: each gets what it asks for up to a limit that is the same for all,
//! and so do the Services in a namespace. A namespace that asks for less than that loses nothing.
//!
//! Pure functions: what is in the kernel depends on the objects alone.

use std::collections::BTreeMap;

use zonewise_routing::{Exposure, Frontend};

/// The most elements that the kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// For one Service.
    pub service: usize,
    /// For all of them.
    pub node: usize,
}

impl Default for Budget {
    /// About 7 MiB of kernel memory for a Service, and 100 MiB for all.
    fn default() -> Self {
        Self { service: 1 << 16, node: 1 << 20 }
    }
}

/// What a Service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Elements that it needs for its endpoints, whatever addresses it has.
    pub base: usize,
    /// Its frontends.
    pub frontends: Vec<Item>,
}

/// What one frontend costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// What the frontend is to the Service. The order is the rank.
    pub exposure: Exposure,
    /// The frontend.
    pub frontend: Frontend,
    /// Elements without weights.
    pub uniform: usize,
    /// Elements with weights.
    pub weighted: usize,
}

/// What a Service gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Elements that it asks for.
    pub asked: usize,
    /// Elements that it may have.
    pub limit: usize,
    /// Elements that it needs for what it gets.
    pub elements: usize,
    /// Whether it has weights, if it asks for them.
    pub weights: bool,
    /// Which of its frontends it has.
    pub extent: Extent,
}

/// Which frontends a Service has, by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    All,
    /// Those up to this one.
    UpTo(Exposure, Frontend),
    /// None of them.
    Nothing,
}

impl Extent {
    /// Whether a frontend is among them.
    pub fn includes(self, frontend: &Frontend, exposure: Exposure) -> bool {
        match self {
            Self::All => true,
            Self::UpTo(last, at) => (exposure, *frontend) <= (last, at),
            Self::Nothing => false,
        }
    }
}

impl Grant {
    /// Whether the Service gets all that it asks for.
    pub fn is_full(&self) -> bool {
        self.weights && self.extent == Extent::All
    }
}

impl Bill {
    /// What is granted within a limit: weights go first, then frontends of the lowest rank.
    pub fn grant(&self, limit: usize) -> Grant {
        let sum = |cost: fn(&Item) -> usize| {
            self.frontends.iter().map(cost).fold(self.base, usize::saturating_add)
        };
        let (asked, uniform) = (sum(|item| item.weighted), sum(|item| item.uniform));
        let all =
            |weights, elements| Grant { asked, limit, elements, weights, extent: Extent::All };
        if asked <= limit {
            return all(true, asked);
        }
        if uniform <= limit {
            return all(false, uniform);
        }
        let nothing = Grant { extent: Extent::Nothing, ..all(false, 0) };
        self.by_rank()
            .iter()
            .try_fold(nothing, |so_far, item| {
                let elements = so_far.elements.max(self.base).saturating_add(item.uniform);
                let extent = Extent::UpTo(item.exposure, item.frontend);
                if elements > limit {
                    Err(so_far)
                } else {
                    Ok(Grant { elements, extent, ..so_far })
                }
            })
            .unwrap_or_else(|granted| granted)
    }

    fn by_rank(&self) -> Vec<Item> {
        let mut items = self.frontends.clone();
        items.sort_unstable();
        items
    }
}

/// The largest limit for each, so that all together get at most `budget`: who asks for less than it gets all of that.
/// No Service is limited if all together ask for no more than the budget.
pub(crate) fn fair_limit(asked: &[usize], budget: usize) -> usize {
    let mut asked = asked.to_vec();
    asked.sort_unstable();
    let mut left = budget;
    for (index, &asked_here) in asked.iter().enumerate() {
        let each = left / (asked.len() - index);
        if asked_here > each {
            return each;
        }
        left -= asked_here;
    }
    usize::MAX
}

/// The limits for each Service of the namespaces that have one, by namespace; empty while all Services together ask
/// for no more than the budget. `asked` are the namespace of each Service and what it asks for.
pub(crate) fn namespace_limits<'a>(
    asked: impl Iterator<Item = (&'a str, usize)>,
    budget: usize,
) -> BTreeMap<String, usize> {
    let mut namespaces: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    asked.for_each(|(namespace, asked)| namespaces.entry(namespace).or_default().push(asked));
    let sum = |asked: &[usize]| asked.iter().copied().fold(0, usize::saturating_add);
    let sums: Vec<usize> = namespaces.values().map(|asked| sum(asked)).collect();
    let limit = fair_limit(&sums, budget);
    let over = namespaces.into_iter().filter(|(_, asked)| sum(asked) > limit);
    over.map(|(namespace, asked)| (namespace.to_owned(), fair_limit(&asked, limit))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;
    use zonewise_routing::Protocol;

    use super::*;

    const KINDS: [Exposure; 4] =
        [Exposure::ClusterIp, Exposure::LoadBalancer, Exposure::NodePort, Exposure::ExternalIp];

    /// A frontend with a number of its own.
    fn item(kind: usize, number: u32, uniform: usize, more: usize) -> Item {
        let address = IpAddr::V4(Ipv4Addr::from(number));
        let frontend = Frontend::at(address, Protocol::Tcp, 80);
        Item { exposure: KINDS[kind], frontend, uniform, weighted: uniform + more }
    }

    fn bill() -> impl Strategy<Value = Bill> {
        let costs = (1usize..300, prop_oneof![Just(0usize), 1usize..300]);
        let frontends = prop::collection::btree_map((0usize..4, 0u32..1000), costs, 0..30);
        (0usize..300, frontends).prop_map(|(base, frontends)| {
            let items = frontends
                .into_iter()
                .rev()
                .map(|((kind, number), (uniform, more))| item(kind, number, uniform, more));
            let frontends = items.collect();
            Bill { base, frontends }
        })
    }

    /// The frontends that are granted, by rank, and what is needed for them.
    fn granted(bill: &Bill, grant: &Grant) -> (Vec<(Exposure, Frontend)>, usize) {
        let has = |item: &&Item| grant.extent.includes(&item.frontend, item.exposure);
        let items: Vec<&Item> = bill.frontends.iter().filter(has).collect();
        let cost = |item: &&Item| if grant.weights { item.weighted } else { item.uniform };
        let base = if grant.extent == Extent::Nothing { 0 } else { bill.base };
        let mut frontends: Vec<_> =
            items.iter().map(|item| (item.exposure, item.frontend)).collect();
        frontends.sort_unstable();
        (frontends, base + items.iter().map(cost).sum::<usize>())
    }

    proptest! {
        #[test]
        fn a_grant_fits_and_takes_weights_before_addresses_and_the_lowest_rank_first(
            bill in bill(),
            limit in 0usize..20_000,
        ) {
            let grant = bill.grant(limit);
            let (frontends, needed) = granted(&bill, &grant);
            prop_assert_eq!(grant.elements, needed);
            prop_assert!(needed <= limit);
            prop_assert_eq!(grant.is_full(), grant.asked <= limit);
            prop_assert!(frontends.len() == bill.frontends.len() || !grant.weights);
            let mut all: Vec<_> = bill.frontends.iter().map(|item| (item.exposure, item.frontend)).collect();
            all.sort_unstable();
            prop_assert_eq!(&frontends[..], &all[..frontends.len()]);
            if let Some(next) = all.get(frontends.len()) {
                let cost = bill.frontends.iter().find(|item| (item.exposure, item.frontend) == *next);
                prop_assert!(needed.max(bill.base) + cost.unwrap().uniform > limit, "one more would fit");
            }
        }

        #[test]
        fn a_higher_limit_never_takes_anything(bill in bill(), limit in 0usize..20_000, more in 0usize..5_000) {
            let (less, more) = (bill.grant(limit), bill.grant(limit + more));
            prop_assert!(less.weights <= more.weights);
            prop_assert!(granted(&bill, &less).0.len() <= granted(&bill, &more).0.len());
        }

        #[test]
        fn what_is_shared_fairly_fits_and_leaves_nothing(
            asked in prop::collection::vec(0usize..1000, 1..50),
            budget in 0usize..20_000,
        ) {
            let limit = fair_limit(&asked, budget);
            let given = |limit: usize| asked.iter().map(|asked| *asked.min(&limit)).sum::<usize>();
            prop_assert!(given(limit) <= budget.max(given(0)));
            if given(usize::MAX) <= budget {
                prop_assert_eq!(limit, usize::MAX);
            } else {
                prop_assert!(given(limit + 1) > budget);
            }
        }

        /// A namespace that asks for no more than an equal part loses nothing, whatever the others ask for.
        #[test]
        fn namespaces_share_what_the_node_has(
            services in prop::collection::vec((0usize..6, 0usize..3000), 1..60),
            budget in 1_000usize..30_000,
        ) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let asked = || services.iter().map(|(namespace, asked)| (names[*namespace], *asked));
            let limits = namespace_limits(asked(), budget);
            let limit = |namespace: &str| limits.get(namespace).copied().unwrap_or(usize::MAX);
            let given: usize = asked().map(|(namespace, asked)| asked.min(limit(namespace))).sum();
            prop_assert!(given <= budget);
            let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
            asked().for_each(|(namespace, asked)| *sums.entry(namespace).or_default() += asked);
            let all: usize = sums.values().sum();
            prop_assert_eq!(limits.is_empty(), all <= budget);
            for (namespace, sum) in &sums {
                prop_assert!(*sum > budget / sums.len() || !limits.contains_key(*namespace));
            }
        }
    }
}
