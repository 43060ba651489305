//! Custom heuristics without rebuilding: an expression in a configuration file says which zones an
//! endpoint is hinted to, or which shares a zone sends.
//!
//! ```text
//!  text ─► syntax ─► check ─► trial ─► Expression            once, when it is loaded
//!          bounds    types,   a few       │
//!                    steps    regions     │
//!  Region + names ───────────────────► evaluate ─► fill ─► Allocation + Reason
//!                                         └─ anything unexpected ─► everywhere, with a reason
//! ```
//!
//! The language is the [Common Expression Language](https://cel.dev). What is wrong or too expensive
//! is refused when it is loaded, with line and column. What goes wrong later never takes endpoints
//! away: every zone uses every endpoint then.
//!
//! | variable | in | is |
//! |---|---|---|
//! | `endpoint` | `endpointZones` | `zone` (empty if it has none), `index` (its number in its zone, from 0) |
//! | `zone` | `zoneShares` | the zone that sends |
//! | `zones` | both | all zones in the order of their names: `name`, `index`, `share`, `nodes`, `endpoints`, `expected` |
//! | `total` | both | the number of endpoints |
//!
//! Only this room knows the crate that reads and evaluates the language.

mod bound;
mod check;
mod error;
mod evaluate;
mod fill;
mod library;
mod name;
mod record;
mod syntax;
mod trial;
mod types;

use std::fmt;
use std::sync::Arc;

use cel::{DeclarationError, Env, extensions};

pub use self::error::ExpressionError;
pub use self::library::{Definition, Library, LibraryError};

use self::error::Problem;
use self::evaluate::{Answer, Environment, Failure, Program, Service};
use self::syntax::Syntax;
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;
use crate::region::Region;

/// What an expression is evaluated for, and what it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For each endpoint, the names of the zones it is hinted to.
    EndpointZones,
    /// For each sending zone, the shares of the others.
    ZoneShares,
}

impl fmt::Display for Kind {
    /// As in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointZones => "endpointZones",
            Self::ZoneShares => "zoneShares",
        })
    }
}

/// A heuristic that a user wrote.
#[derive(Debug)]
pub struct Expression {
    name: String,
    program: Program,
}

impl Expression {
    /// Reads, checks and tries an expression. The name must be `<domain>/<name>`.
    pub fn compile(name: &str, kind: Kind, text: &str) -> Result<Self, ExpressionError> {
        name::check(name)?;
        let program = compile(kind, text).map_err(|problem| problem.in_text(name, kind, text))?;
        Ok(Self { name: name.to_owned(), program })
    }

    /// What it is evaluated for.
    pub fn kind(&self) -> Kind {
        self.program.kind
    }

    fn decide(&self, region: &Region<'_>, names: &[Box<str>]) -> Result<Answer, Failure> {
        if let Some(reason) = refusal(&self.program, region) {
            return Err(reason.into());
        }
        let names = evaluate::names_for(names, region);
        self.program.run(&Service { region, names: &names, pinpoint: false })
    }
}

fn compile(kind: Kind, text: &str) -> Result<Program, Problem> {
    let env = environment().map_err(|error| Problem::at(0, error.to_string()))?;
    let syntax = Syntax::parse(&env, text)?;
    let facts = check::check(&syntax, kind)?;
    let program = Program { kind, env: Environment(Arc::new(env)), syntax, facts };
    trial::run(&program)?;
    Ok(program)
}

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib().with_optional_support(false);
    env.add_extension(extensions::math)?;
    Ok(env)
}

/// What no expression is asked about.
fn refusal(program: &Program, region: &Region<'_>) -> Option<Reason> {
    if region.present() == 0 {
        Some(Reason::NoEndpoints)
    } else if program.facts.uses_capacity
        && (region.unknown_nodes > 0 || region.consuming_zones() == 0)
    {
        Some(Reason::NodeInformationMissing { nodes: region.unknown_nodes })
    } else {
        None
    }
}

impl Heuristic for Expression {
    fn name(&self) -> &str {
        &self.name
    }

    /// Without names, zones are called by their numbers.
    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        self.allocate_named(case, &[], out)
    }

    fn allocate_named(&self, case: &Case<'_>, names: &[Box<str>], out: &mut Allocation) -> Reason {
        let region = &case.region;
        match self.decide(region, names) {
            Ok(Answer::Hints(groups)) => {
                fill::hints(region, &groups, out);
                Reason::ExpressionApplied
            }
            Ok(Answer::Shares(rows)) => {
                fill::shares(region, &rows, out);
                Reason::ExpressionApplied
            }
            Ok(Answer::Everywhere) => {
                out.everywhere(region, Carrier::Plain);
                Reason::ClusterWide
            }
            Err(failure) => {
                out.everywhere(region, Carrier::Plain);
                failure.reason
            }
        }
    }
}
