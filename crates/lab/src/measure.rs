//! Counts of connections by zone and endpoint. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// Connections by the zone they came from and the zone they went to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// Names of the zones, in the order of rows and columns.
    pub zones: Vec<String>,
    /// `connections[from][to]`, by zone index.
    pub connections: Vec<Vec<u64>>,
}

impl Matrix {
    /// A matrix without connections.
    pub fn new(zones: &[String]) -> Self {
        Self { zones: zones.to_vec(), connections: vec![vec![0; zones.len()]; zones.len()] }
    }

    /// All connections.
    pub fn total(&self) -> u64 {
        self.connections.iter().flatten().sum()
    }

    /// The share of connections that stayed in their zone; `None` without connections.
    pub fn in_zone(&self) -> Option<f64> {
        let total = self.total();
        let home: u64 = (0..self.zones.len()).map(|zone| self.connections[zone][zone]).sum();
        (total > 0).then(|| home as f64 / total as f64)
    }

    /// The share of a zone's connections that went to zone `to`; `None` if it made none.
    pub fn part(&self, from: usize, to: usize) -> Option<f64> {
        let all: u64 = self.connections[from].iter().sum();
        (all > 0).then(|| self.connections[from][to] as f64 / all as f64)
    }
}

/// Connections of one Service over a period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Answered connections, by zone index of the client and name of the endpoint.
    pub(crate) answered: BTreeMap<(usize, String), u64>,
    /// Failed connections, by error.
    pub(crate) failed: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts an answered connection.
    pub(crate) fn answered(&mut self, from: usize, endpoint: &str) {
        *self.answered.entry((from, endpoint.to_owned())).or_default() += 1;
    }

    /// Counts a failed connection.
    pub(crate) fn failed(&mut self, why: &str) {
        *self.failed.entry(why.to_owned()).or_default() += 1;
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (key, count) in &other.answered {
            *self.answered.entry(key.clone()).or_default() += count;
        }
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
    }

    /// All connections, failed ones too.
    pub(crate) fn total(&self) -> u64 {
        self.answered.values().sum::<u64>() + self.failures()
    }

    /// Failed connections.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// The answered connections by zone. `endpoint_zones` has the zone index of each endpoint, by name.
    pub(crate) fn matrix(
        &self,
        zones: &[String],
        endpoint_zones: &BTreeMap<String, usize>,
    ) -> Matrix {
        let mut matrix = Matrix::new(zones);
        for ((from, endpoint), count) in &self.answered {
            if let Some(to) = endpoint_zones.get(endpoint) {
                matrix.connections[*from][*to] += count;
            }
        }
        matrix
    }

    /// The load of each of these endpoints: 1 is exactly its fair share.
    pub(crate) fn loads(&self, endpoints: &[String]) -> Vec<f64> {
        let got = |name: &String| -> u64 {
            self.answered.iter().filter(|((_, to), _)| to == name).map(|(_, count)| count).sum()
        };
        let got: Vec<u64> = endpoints.iter().map(got).collect();
        let fair = got.iter().sum::<u64>() as f64 / endpoints.len().max(1) as f64;
        got.iter().map(|&got| if fair > 0.0 { got as f64 / fair } else { 0.0 }).collect()
    }

    /// How much more than its fair share the busiest of these endpoints got.
    pub(crate) fn overload(&self, endpoints: &[String]) -> Option<f64> {
        let busiest = self.loads(endpoints).into_iter().reduce(f64::max)?;
        (busiest > 0.0).then_some(busiest - 1.0)
    }
}
