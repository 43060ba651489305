//! The heuristics: one file each, and the one table of their names.
//!
//! | from | heuristics |
//! |---|---|
//! | the evaluation tool of KEP-2004 | `random` `local` `local-shared` `local-weighted` `local-opt` `shared-global` `shared-multizone` |
//! | KEP-2004's own text | `local-subset` `require-zone` |
//! | KEP-2433, Topology Aware Routing | `auto` |
//! | KEP-4444 | `same-zone` `same-node` `spread` |
//! | zonewise | `balanced` `balanced-hints` |

pub mod auto;
mod balanced;
pub mod balanced_hints;
mod local;
mod local_opt;
mod local_shared;
pub mod local_subset;
mod local_weighted;
mod pools;
pub mod random;
mod require_zone;
pub mod same_node;
pub mod same_zone;
mod shared_global;
mod spread;
mod zone_groups;

use thiserror::Error;

use crate::heuristic::Heuristic;

/// One line of [`TABLE`].
#[derive(Debug)]
pub struct Entry {
    /// The name users write.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What can be set, as `name:parameter=value`.
    pub parameters: &'static [Parameter],
    build: fn(&Arguments<'_>) -> Box<dyn Heuristic>,
}

/// A number that a heuristic can be given.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The value when not given; `None` when it depends on the input.
    pub default: Option<f64>,
    /// The largest value allowed (the smallest is 0).
    pub max: f64,
    /// Only whole numbers make sense.
    pub whole: bool,
}

/// Every heuristic there is.
pub const TABLE: [Entry; 15] = [
    Entry {
        name: "random",
        summary: "every zone uses every endpoint (no topology)",
        parameters: &[],
        build: |_| Box::new(random::Random),
    },
    Entry {
        name: "local",
        summary: "a group per zone, surplus moved to zones in need (evaluation tool)",
        parameters: &[Parameter {
            name: "start",
            summary: "endpoints per zone below which it falls back to random",
            default: Some(3.0),
            max: 1e9,
            whole: true,
        }],
        build: |given| Box::new(local::Local { start_multiple: given.whole("start").unwrap_or(3) }),
    },
    Entry {
        name: "local-shared",
        summary: "as local; zones without or with too few endpoints share a group (evaluation tool)",
        parameters: &[],
        build: |_| Box::new(local_shared::LocalShared),
    },
    Entry {
        name: "local-weighted",
        summary: "as local with fractional endpoints: exact balance by weights (evaluation tool)",
        parameters: &[],
        build: |_| Box::new(local_weighted::LocalWeighted),
    },
    Entry {
        name: "local-opt",
        summary: "as local; what is left over is shared by all zones (evaluation tool)",
        parameters: &[],
        build: |_| Box::new(local_opt::LocalOpt),
    },
    Entry {
        name: "shared-global",
        summary: "surplus endpoints go to one group for all zones at weight 0.4 (evaluation tool)",
        parameters: &[],
        build: |_| Box::new(shared_global::SharedGlobal::GLOBAL),
    },
    Entry {
        name: "shared-multizone",
        summary: "as shared-global at weight 1, not used by zones that gave (evaluation tool)",
        parameters: &[],
        build: |_| Box::new(shared_global::SharedGlobal::MULTIZONE),
    },
    Entry {
        name: "auto",
        summary: "one zone hint per endpoint in proportion to capacity, or none (KEP-2433)",
        parameters: &[Parameter {
            name: "upstream",
            summary: "1: first decisions exactly as the built-in controller, one threshold to keep hints",
            default: Some(0.0),
            max: 1.0,
            whole: true,
        }],
        build: |given| {
            let upstream = given.whole("upstream") == Some(1);
            Box::new(if upstream { auto::Auto::UPSTREAM } else { auto::Auto::KEP_2433 })
        },
    },
    Entry {
        name: "same-zone",
        summary: "each zone uses its own endpoints, all if it has none (PreferSameZone)",
        parameters: &[],
        build: |_| Box::new(same_zone::SameZone),
    },
    Entry {
        name: "same-node",
        summary: "each node uses its own endpoints, then its zone's, then all (PreferSameNode)",
        parameters: &[],
        build: |_| Box::new(same_node::SameNode),
    },
    Entry {
        name: "spread",
        summary: "every zone uses every endpoint, on purpose (KEP-4444)",
        parameters: &[],
        build: |_| Box::new(spread::Spread),
    },
    Entry {
        name: "require-zone",
        summary: "a subset per zone with its own endpoints; a zone without any uses all (KEP-2004, RequireZone)",
        parameters: &[],
        build: |_| Box::new(require_zone::RequireZone),
    },
    Entry {
        name: "local-subset",
        summary: "a subset per zone; zones with a surplus give to overloaded zones, one endpoint at a time (KEP-2004)",
        parameters: &[
            Parameter {
                name: "threshold",
                summary: "endpoints around which subsetting starts (3 per zone)",
                default: None,
                max: 1e9,
                whole: true,
            },
            Parameter {
                name: "padding",
                summary: "on at threshold + padding, off at threshold - padding (1 per zone)",
                default: None,
                max: 1e9,
                whole: true,
            },
        ],
        build: |given| {
            Box::new(local_subset::LocalSubset {
                threshold: given.whole("threshold"),
                padding: given.whole("padding"),
            })
        },
    },
    Entry {
        name: "balanced",
        summary: "zone shares: the most in-zone traffic possible with no endpoint overloaded",
        parameters: &[Parameter {
            name: "max-overload",
            summary: "load above its fair share that an endpoint may get",
            default: Some(0.0),
            max: 1e6,
            whole: false,
        }],
        build: |given| {
            let max_overload = given.get("max-overload").unwrap_or(0.0);
            Box::new(balanced::Balanced { max_overload })
        },
    },
    Entry {
        name: "balanced-hints",
        summary: "zone hints with several zones where needed: as near to balanced as hints come",
        parameters: &[
            Parameter {
                name: "max-overload",
                summary: "load above its fair share that an endpoint may get",
                default: Some(0.2),
                max: 1e6,
                whole: false,
            },
            Parameter {
                name: "overload-cost",
                summary: "1: overload costs what it costs in the published score; 0: only in-zone traffic counts",
                default: Some(1.0),
                max: 1e3,
                whole: false,
            },
        ],
        build: |given| {
            let usual = balanced_hints::BalancedHints::default();
            Box::new(balanced_hints::BalancedHints {
                max_overload: given.get("max-overload").unwrap_or(usual.max_overload),
                overload_cost: given.get("overload-cost").unwrap_or(usual.overload_cost),
            })
        },
    },
];

/// Parameters as given.
struct Arguments<'a>(Vec<(&'a str, f64)>);

impl Arguments<'_> {
    fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    fn whole(&self, name: &str) -> Option<u64> {
        self.get(name).map(|value| value as u64)
    }
}

/// Why a heuristic could not be made from its name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// No such name.
    #[error("unknown heuristic `{name}`; known are {}", names().join(", "))]
    UnknownName {
        /// The name given.
        name: String,
    },
    /// No such name, neither built in nor in the configuration.
    #[error("unknown heuristic `{name}`; known are {}, {}", names().join(", "), custom.join(", "))]
    UnknownCustomName {
        /// The name given.
        name: String,
        /// Names in the configuration.
        custom: Vec<String>,
    },
    /// The heuristic takes no such parameter.
    #[error("heuristic `{name}` has no parameter `{parameter}`; {known}")]
    UnknownParameter {
        /// The heuristic.
        name: &'static str,
        /// The parameter given.
        parameter: String,
        /// What it does take.
        known: String,
    },
    /// The value cannot be used.
    #[error("`{name}:{parameter}={value}`: expected {expected}")]
    Value {
        /// The heuristic.
        name: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The value given.
        value: String,
        /// What would have been right.
        expected: String,
    },
}

/// All names, in the order of the table.
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|entry| entry.name).collect()
}

/// Makes a heuristic from `name` or `name:parameter=value,…`.
pub fn parse(text: &str) -> Result<Box<dyn Heuristic>, ParseError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let entry = TABLE
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| ParseError::UnknownName { name: name.into() })?;
    let given = rest
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| argument(entry, pair))
        .collect::<Result<_, _>>()?;
    Ok((entry.build)(&Arguments(given)))
}

fn argument<'a>(entry: &'static Entry, pair: &'a str) -> Result<(&'a str, f64), ParseError> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let parameter = entry.parameters.iter().find(|known| known.name == key).ok_or_else(|| {
        let known: Vec<&str> = entry.parameters.iter().map(|known| known.name).collect();
        let known = if known.is_empty() {
            String::from("it has none")
        } else {
            format!("it has {}", known.join(", "))
        };
        ParseError::UnknownParameter { name: entry.name, parameter: key.into(), known }
    })?;
    match value.trim().parse::<f64>() {
        Ok(number) if parameter.allows(number) => Ok((key, number)),
        _ => Err(ParseError::Value {
            name: entry.name,
            parameter: parameter.name,
            value: value.into(),
            expected: parameter.expected(),
        }),
    }
}

impl Parameter {
    fn allows(&self, value: f64) -> bool {
        (0.0..=self.max).contains(&value) && (!self.whole || value.fract() == 0.0)
    }

    fn expected(&self) -> String {
        let kind = if self.whole { "a whole number" } else { "a number" };
        format!("{kind} from 0 to {}", self.max)
    }
}
