//! Reads, checks, tries and evaluates expressions.
//!
//! ```text
//!  text ─► syntax ─► check ─► trial ─► Expression            once, when it is loaded
//!          bounds    types,   a few       │
//!                    steps    regions     │
//!  Region + names ───────────────────► evaluate ─► fill ─► Allocation + Reason
//!                                         └─ anything unexpected ─► everywhere, with a reason
//! ```
//!
//! Only this module uses the crate that reads and evaluates the language (`cel`).

mod bound;
mod check;
mod evaluate;
mod fill;
mod problem;
mod record;
mod syntax;
mod trial;
mod types;

use std::sync::Arc;

use cel::{DeclarationError, Env, extensions};

use self::evaluate::{Answer, Environment, Failure, Input, Program};
use self::problem::Problem;
use self::syntax::Syntax;
use super::error::ExpressionError;
use super::{Kind, name};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;
use crate::region::Region;

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
        self.program.run(&Input { region, names: &names, pinpoint: false })
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

/// Why an expression is not evaluated at all.
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

    fn gives_shares(&self) -> bool {
        self.kind() == Kind::ZoneShares
    }
}
