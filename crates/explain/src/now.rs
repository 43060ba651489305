//! Where traffic goes now: with the slices that are stored and the proxies that nodes have.

use std::collections::BTreeSet;

use zonewise_slices::node::Nodes;
use zonewise_slices::service::Service;

use crate::environment::{NodeProxies, ProxyKind};
use crate::matrix::{Grouping, Matrix, Routers, matrices_for};
use crate::proxy_view::ProxyView;

/// Where the traffic of one address family goes now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Now {
    /// Whatever is not known of the proxies makes no difference.
    Known(Box<Matrix>),
    /// Not all proxies are known, and it matters: with each kind where it is not known.
    ByProxy(Vec<(ProxyKind, Matrix)>),
    /// Slices are stored, but no node counts: it is not known where traffic starts.
    NoSender,
    /// No slice is stored, or no proxy routes the Service.
    Nowhere,
}

impl Now {
    /// Where the traffic of a Service goes with the slices that are stored.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub(crate) fn of(
        proxy_view: &ProxyView<'_>,
        nodes: &Nodes,
        service: &Service,
        proxies: &NodeProxies,
        family: &str,
        grouping: Grouping<'_>,
    ) -> Result<Self, serde_json::Error> {
        if proxy_view.slices.is_empty() {
            return Ok(Self::Nowhere);
        }
        let kinds: &[ProxyKind] = if proxies.are_known(nodes.by_name.keys().map(|name| &**name)) {
            &[ProxyKind::Zonewise]
        } else {
            &ProxyKind::ALL
        };
        let filled: Vec<NodeProxies> = kinds.iter().map(|kind| proxies.or(*kind)).collect();
        let routers: Vec<Routers<'_>> =
            filled.iter().map(|proxies| Routers::Mixed(proxies, service)).collect();
        let all = matrices_for(proxy_view, nodes, &routers, grouping)?;
        let of_family = |all: Vec<Matrix>| all.into_iter().find(|matrix| matrix.family == family);
        let found = kinds.iter().zip(all).filter_map(|(kind, all)| Some((*kind, of_family(all)?)));
        let found: Vec<(ProxyKind, Matrix)> = found.collect();
        if found.is_empty() && proxy_view.routes_family(family)? {
            return Ok(Self::NoSender);
        }
        Ok(Self::merged(found))
    }

    fn merged(mut all: Vec<(ProxyKind, Matrix)>) -> Self {
        match all.first() {
            None => Self::Nowhere,
            Some((_, first)) if all.iter().all(|(_, matrix)| same_traffic(first, matrix)) => {
                Self::Known(Box::new(all.swap_remove(0).1))
            }
            Some(_) => Self::ByProxy(all),
        }
    }

    /// The matrix, if it is known.
    pub(crate) fn matrix(&self) -> Option<&Matrix> {
        match self {
            Self::Known(matrix) => Some(matrix),
            Self::ByProxy(_) | Self::NoSender | Self::Nowhere => None,
        }
    }

    /// The part of the traffic that stays in its zone; `None` if it is not known, or if some zone
    /// reaches no endpoint.
    pub(crate) fn in_zone(&self) -> Option<f64> {
        self.matrix().and_then(|matrix| matrix.in_zone)
    }

    /// The overload of the most loaded endpoint, if it is known.
    pub(crate) fn max_overload(&self) -> Option<f64> {
        self.matrix().and_then(Matrix::max_overload)
    }

    /// The modes that occur in any zone, each once; none if they are not known.
    pub(crate) fn modes(&self) -> Vec<String> {
        self.matrix().map(modes).unwrap_or_default()
    }
}

/// The modes that occur in any zone, each once.
pub(crate) fn modes(matrix: &Matrix) -> Vec<String> {
    let modes: BTreeSet<&str> = matrix.from.iter().flat_map(|row| row.mode.split(',')).collect();
    modes.into_iter().map(str::to_owned).collect()
}

/// Whether traffic goes the same ways. The reasons can differ.
fn same_traffic(one: &Matrix, other: &Matrix) -> bool {
    let ways = |matrix: &Matrix| -> Vec<_> {
        matrix.from.iter().map(|row| (row.mode.clone(), row.to.clone())).collect()
    };
    ways(one) == ways(other) && one.endpoints == other.endpoints
}
