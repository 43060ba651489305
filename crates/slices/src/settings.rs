//! What a controller is told about writing slices.

use std::sync::Arc;

use zonewise_topology::expression::Library;
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::ParseError;

use zonewise_topology::heuristics::local_subset::LocalSubset;

use crate::asked::{self, Approach, Choice, Consumers};

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
    /// A subsetting approach for Services that ask for nothing; goes before the preference.
    pub default_subsetting: String,
    /// The heuristics there are.
    pub library: Library,
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
            default_subsetting: "Random".into(),
            library: Library::default(),
        }
    }
}

impl Settings {
    /// A heuristic by its name.
    pub fn heuristic(&self, name: &str) -> Result<Arc<dyn Heuristic>, ParseError> {
        self.library.parse(name).map(Arc::from)
    }

    /// What Services get that ask for nothing: subsets if they are the default, else a preference.
    pub(crate) fn default_choice(&self, local_policy: bool) -> (&'static str, String, Choice) {
        const SOURCE: &str = "the controller's default";
        if self.upstream {
            return (SOURCE, "Default".into(), Choice::Everywhere);
        }
        let subsets = self.default_subsets().filter(|_| self.gates.subsetting && !local_policy);
        if let Some(choice) = subsets {
            return (SOURCE, self.default_subsetting.clone(), choice);
        }
        let choice = asked::preference(&self.default_preference, self).ok();
        let choice = choice.filter(|_| self.gates.preference).unwrap_or(Choice::Everywhere);
        (SOURCE, self.default_preference.clone(), choice)
    }

    fn default_subsets(&self) -> Option<Choice> {
        match asked::approach(&self.default_subsetting)? {
            Approach::Everywhere => None,
            Approach::Required => {
                let heuristic = self.heuristic("require-zone").ok()?;
                Some(Choice::Subsets(heuristic, Consumers::Zones))
            }
            Approach::Subsets(consumers) => {
                let heuristic = Arc::new(LocalSubset { threshold: None, padding: None });
                Some(Choice::Subsets(heuristic, consumers))
            }
        }
    }

    /// What of the settings cannot be used, in words.
    pub fn check(&self) -> Result<(), String> {
        if asked::approach(&self.default_subsetting).is_none() {
            return Err(format!(
                "default subsetting `{}` is not known; use Random, Auto, Require or Region",
                self.default_subsetting
            ));
        }
        if let Err(reason) = asked::preference(&self.default_preference, self) {
            let entry = reason.code().entry();
            return Err(format!(
                "default preference `{}`: {}; {}",
                self.default_preference, entry.sentence, entry.remedy
            ));
        }
        if !(1..=1000).contains(&self.max_endpoints) {
            return Err(format!("{} endpoints per slice: use 1 to 1000", self.max_endpoints));
        }
        if !is_label_value(&self.managed_by) {
            return Err(format!("managed-by `{}` is no label value", self.managed_by));
        }
        Ok(())
    }

    /// Whether slices with this `managed-by` are ours.
    pub fn manages(&self, managed_by: Option<&str>) -> bool {
        managed_by.is_some_and(|name| {
            *name == *self.managed_by || self.adopt.iter().any(|adopted| **adopted == *name)
        })
    }
}

fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    text.len() <= 63
        && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
