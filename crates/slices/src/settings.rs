//! What a controller is told about writing slices.

use std::sync::Arc;

use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::{self, ParseError};

use crate::asked::{self, Choice};

/// The name under which the reference writes slices.
pub const REFERENCE_MANAGED_BY: &str = "endpointslice-controller.k8s.io";

/// How slices are written.
#[derive(Clone)]
pub struct Settings {
    /// The writer's name on slices.
    pub managed_by: Box<str>,
    /// Earlier names: slices that carry them are taken over.
    pub adopt: Vec<Box<str>>,
    /// Most endpoints in a slice that we fill.
    pub max_endpoints: usize,
    /// Behave as the reference in everything.
    pub upstream: bool,
    /// Features that can be turned off.
    pub gates: Gates,
    /// A routing preference for Services that ask for nothing.
    pub default_preference: String,
}

/// Features that can be turned off; what they wrote is then removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `TopologyAwareHints`: hints by the topology annotation.
    pub hints: bool,
    /// `TopologyAwareSubsetting`: slices per zone or region.
    pub subsetting: bool,
    /// `ServiceRoutingPreference`: the routing preference.
    pub preference: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { hints: true, subsetting: true, preference: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            managed_by: REFERENCE_MANAGED_BY.into(),
            adopt: Vec::new(),
            max_endpoints: 100,
            upstream: false,
            gates: Gates::default(),
            default_preference: "Default".into(),
        }
    }
}

impl Settings {
    /// A heuristic by its name.
    pub fn heuristic(&self, name: &str) -> Result<Arc<dyn Heuristic>, ParseError> {
        heuristics::parse(name).map(Arc::from)
    }

    /// What Services get that ask for nothing.
    pub(crate) fn default_choice(&self) -> (&'static str, String, Choice) {
        let choice = asked::preference(&self.default_preference, self).unwrap_or(Choice::Everywhere);
        ("the controller's default", self.default_preference.clone(), choice)
    }

    /// Whether slices with this `managed-by` are ours.
    pub fn manages(&self, managed_by: Option<&str>) -> bool {
        managed_by.is_some_and(|name| {
            *name == *self.managed_by || self.adopt.iter().any(|adopted| **adopted == *name)
        })
    }
}
