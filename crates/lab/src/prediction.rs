//! Where the connections of a Service should go, computed from the objects in the API server as `zonewise route
//! --matrix` does it. A scenario that is played in another size than it was written for is measured against this.

use std::collections::BTreeMap;

use kube::Client;
use zonewise_common::name::Key;
use zonewise_explain::live::{self, Scope};
use zonewise_explain::{Matrix, SnapshotBuilder, matrices};
use zonewise_routing::FeatureGates;
use zonewise_topology::capacity::MissingCpu;

use crate::measure;

/// What the objects of one moment lead to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    /// The part of each zone's connections that stays in it.
    in_zone: BTreeMap<String, f64>,
    /// How much more than its fair share the busiest endpoint gets if zones call by their cores.
    pub(crate) overload: f64,
}

impl Prediction {
    /// Computes it for a Service of the lab's namespace; `None` if there is nothing to route.
    ///
    /// # Errors
    /// If the API server does not answer, or an object cannot be read.
    pub(crate) async fn compute(client: &Client, service: &str) -> anyhow::Result<Option<Self>> {
        const NAMESPACE: &str = "default";
        let mut builder = SnapshotBuilder::default();
        let scope = Scope::Service { namespace: NAMESPACE, name: service };
        live::read(client, &scope, false, &mut |item| builder.add(item)).await?;
        let (snapshot, _) = builder.finish(MissingCpu::default());
        let key: Key = (NAMESPACE.into(), service.into());
        let Some(service) = snapshot.service(&key) else { return Ok(None) };
        let all =
            matrices(&snapshot.proxy_view(&service), snapshot.nodes(), &FeatureGates::default())?;
        Ok(all.first().map(Self::of))
    }

    fn of(matrix: &Matrix) -> Self {
        let at_home = |row: &zonewise_explain::Row| {
            (row.zone.clone(), row.to.get(&row.zone).copied().unwrap_or(0.0))
        };
        let loads = matrix.endpoints.iter().map(|load| load.overload);
        Self {
            in_zone: matrix.from.iter().map(at_home).collect(),
            overload: loads.fold(0.0, f64::max),
        }
    }

    /// The part of all connections that stays in its zone, if each zone makes as many as it made in `measured`.
    pub(crate) fn in_zone(&self, measured: &measure::Matrix) -> f64 {
        let rows = measured.zones.iter().zip(&measured.connections);
        let home = rows.map(|(zone, row)| {
            self.in_zone.get(zone).copied().unwrap_or(0.0) * row.iter().sum::<u64>() as f64
        });
        home.sum::<f64>() / (measured.total() as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_count_by_the_connections_that_they_made() {
        let in_zone = [("a".to_owned(), 1.0), ("b".to_owned(), 0.5)].into();
        let prediction = Prediction { in_zone, overload: 0.0 };
        let measured = measure::Matrix {
            zones: vec!["a".into(), "b".into()],
            connections: vec![vec![100, 0], vec![150, 150]],
        };
        assert!((prediction.in_zone(&measured) - 0.625).abs() < 1e-12);
        assert!(prediction.in_zone(&measure::Matrix::new(&["a".into()])).abs() < 1e-12);
    }
}
