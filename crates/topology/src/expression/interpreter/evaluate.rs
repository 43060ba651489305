//! Runs a checked expression on a region: the answer, or why there is none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::common::types::{CelDouble, CelInt, CelList, CelMap, CelMapKey, CelString};
use cel::common::value::{CowVal, Val};
use cel::{Context, Env, ExecutionError, Value};

use super::check::Facts;
use super::problem::Problem;
use super::record::Record;
use super::syntax::Syntax;
use crate::expression::Kind;
use crate::hints::MAX_ZONES;
use crate::reason::{Fault, Reason};
use crate::region::Region;

/// The most evaluations for one Service.
const MAX_EVALUATIONS: u64 = 10_000;
/// The most steps for one Service, all evaluations together: below a second.
const MAX_STEPS: u64 = 10_000_000;

/// An expression that passed all checks.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) kind: Kind,
    pub(super) env: Environment,
    pub(super) syntax: Syntax,
    pub(super) facts: Facts,
}

/// The functions of the language.
#[derive(Clone)]
pub(super) struct Environment(pub(super) Arc<Env>);

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Environment")
    }
}

/// What an expression says about a Service.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// No hints, no shares: as asked.
    Everywhere,
    /// Zone lists in the order in which they came up, each with its endpoints per source.
    Hints(Vec<(Vec<u32>, Vec<u64>)>),
    /// Per sending zone, a number for each zone; all zero for "everywhere".
    Shares(Vec<Vec<f64>>),
}

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// Where in the expression it failed, and why.
    pub(super) problem: Option<Problem>,
}

impl Failure {
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.reason {
            Reason::ExpressionFailed { fault } => Some(fault),
            _ => None,
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self { reason, problem: None }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Reason::ExpressionFailed { fault }.into()
    }
}

/// What an expression is evaluated on: the zones of one Service.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) region: &'a Region<'a>,
    /// As many as the region has zones.
    pub(super) names: &'a [Box<str>],
    /// Find out where the expression failed. Costs as much again as evaluating it.
    pub(super) pinpoint: bool,
}

impl<'a> Input<'a> {
    fn zone_called(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| **known == *name)
    }

    fn name_of(&self, source: usize) -> &'a str {
        self.names.get(source).map_or("", |name| name)
    }
}

/// The zones' names; their numbers where the caller gives no names.
pub(super) fn names_for<'a>(names: &'a [Box<str>], region: &Region<'_>) -> Cow<'a, [Box<str>]> {
    if names.len() == region.zones.len() {
        return Cow::Borrowed(names);
    }
    Cow::Owned((0..region.zones.len()).map(|zone| zone.to_string().into()).collect())
}

impl Program {
    /// Evaluates it for all endpoints or zones; stops at the first failure.
    pub(super) fn run(&self, input: &Input<'_>) -> Result<Answer, Failure> {
        self.check_affordable(input.region)?;
        let mut context = Context::with_env(Arc::clone(&self.env.0));
        let zones = 0..input.region.zones.len();
        let zones: Vec<Box<dyn Val + '_>> = zones
            .map(|zone| -> Box<dyn Val + '_> {
                Box::new(Record::zone(input.region, zone, input.name_of(zone)))
            })
            .collect();
        let total = CelInt::from(i64::try_from(input.region.total).unwrap_or(i64::MAX));
        context.add_variable_as_val("zones", Box::new(CelList::from(zones)));
        context.add_variable_as_val("total", Box::new(total));
        match self.kind {
            Kind::EndpointZones => self.hints(input, &context),
            Kind::ZoneShares => self.shares(input, &context),
        }
    }

    fn check_affordable(&self, region: &Region<'_>) -> Result<(), Failure> {
        let zones = region.zones.len() as u64;
        let evaluations = match self.kind {
            Kind::EndpointZones if self.facts.uses_index => region.present(),
            Kind::EndpointZones => zones + 1,
            Kind::ZoneShares => zones,
        };
        // Every answer may become a group, with a count for each zone.
        let each = self.facts.steps.at(zones).saturating_add(zones);
        let steps = each.saturating_mul(evaluations);
        if evaluations > MAX_EVALUATIONS || steps > MAX_STEPS {
            return Err(Fault::TooExpensive.into());
        }
        Ok(())
    }

    fn hints<'v>(&self, input: &Input<'v>, context: &Context<'_, 'v>) -> Result<Answer, Failure> {
        let region = input.region;
        let mut groups: Vec<(Vec<u32>, Vec<u64>)> = Vec::new();
        let mut known: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        for source in (0..region.sources()).filter(|&source| region.endpoints_at(source) > 0) {
            let endpoints = region.endpoints_at(source);
            // Without `endpoint.index`, all endpoints of a zone get the same answer.
            let (rounds, each) =
                if self.facts.uses_index { (endpoints, 1) } else { (1, endpoints) };
            for index in 0..rounds {
                let zones = self.zones_of(input, context, source, index)?;
                let group = *known.entry(zones).or_insert_with_key(|zones| {
                    groups.push((zones.clone(), vec![0; region.sources()]));
                    groups.len() - 1
                });
                groups[group].1[source] += each;
            }
        }
        complete(input, groups)
    }

    /// The zones that an endpoint is hinted to, in order, each once.
    fn zones_of<'v>(
        &self,
        input: &Input<'v>,
        context: &Context<'_, 'v>,
        source: usize,
        index: u64,
    ) -> Result<Vec<u32>, Failure> {
        let mut scope = context.new_inner_scope();
        let endpoint = Record::endpoint(input.name_of(source), index);
        scope.add_variable_as_val("endpoint", Box::new(endpoint));
        let result = self.evaluate(input, &scope)?;
        let list = result.downcast_ref::<CelList<'_>>().ok_or(Fault::Evaluation)?;
        let mut zones = Vec::with_capacity(list.len());
        for element in list.iter() {
            let name = element.downcast_ref::<CelString<'_>>().ok_or(Fault::Evaluation)?.inner();
            // An endpoint without a zone that repeats its zone says nothing.
            if name.is_empty() && source == unplaced_source(input) {
                continue;
            }
            let zone = input.zone_called(name).ok_or_else(|| self.unknown_zone(input, name))?;
            zones.push(zone as u32);
        }
        zones.sort_unstable();
        zones.dedup();
        if zones.len() > MAX_ZONES {
            return Err(Fault::TooManyZones.into());
        }
        Ok(zones)
    }

    fn shares<'v>(&self, input: &Input<'v>, context: &Context<'_, 'v>) -> Result<Answer, Failure> {
        let zones = input.region.zones.len();
        let mut rows = Vec::with_capacity(zones);
        for zone in 0..zones {
            let mut scope = context.new_inner_scope();
            let record = Record::zone(input.region, zone, input.name_of(zone));
            scope.add_variable_as_val("zone", Box::new(record));
            let result = self.evaluate(input, &scope)?;
            rows.push(self.share_row(input, &*result)?);
        }
        let asked = rows.iter().flatten().any(|share| *share > 0.0);
        Ok(if asked { Answer::Shares(rows) } else { Answer::Everywhere })
    }

    fn share_row(&self, input: &Input<'_>, result: &dyn Val) -> Result<Vec<f64>, Failure> {
        let zones = input.region.zones.len();
        if let Some(list) = result.downcast_ref::<CelList<'_>>() {
            if list.len() != zones {
                return Err(Fault::WrongShares.into());
            }
            return list.iter().map(|share| number(&**share)).collect();
        }
        let mut row = vec![0.0; zones];
        for (key, share) in result.downcast_ref::<CelMap<'_>>().ok_or(Fault::Evaluation)?.iter() {
            let CelMapKey::String(name) = key else {
                return Err(Fault::Evaluation.into());
            };
            let name = name.inner();
            let zone = input.zone_called(name).ok_or_else(|| self.unknown_zone(input, name))?;
            row[zone] = number(&**share)?;
        }
        Ok(row)
    }

    fn unknown_zone(&self, input: &Input<'_>, name: &str) -> Failure {
        let problem = || Problem::at(self.syntax.start(), format!("there is no zone `{name}`"));
        Failure { problem: input.pinpoint.then(problem), ..Fault::UnknownZone.into() }
    }

    fn evaluate<'e, 'v>(
        &'e self,
        input: &Input<'_>,
        scope: &'e Context<'_, 'v>,
    ) -> Result<CowVal<'e, 'v>, Failure> {
        Value::resolve_val(&self.syntax.root, scope).map_err(|error| {
            let problem = || {
                let node = culprit(&self.syntax.root, scope, &error);
                Problem::at(self.syntax.offset(node), plain(&error))
            };
            Failure { problem: input.pinpoint.then(problem), ..Fault::Evaluation.into() }
        })
    }
}

/// The index of endpoints without a zone among the sources.
fn unplaced_source(input: &Input<'_>) -> usize {
    input.region.zones.len()
}

/// Proxies ignore all hints when one endpoint has none, so all endpoints have hints or none.
fn complete(input: &Input<'_>, groups: Vec<(Vec<u32>, Vec<u64>)>) -> Result<Answer, Failure> {
    if groups.iter().all(|(zones, _)| zones.is_empty()) {
        return Ok(Answer::Everywhere);
    }
    let Some((_, bare)) = groups.iter().find(|(zones, _)| zones.is_empty()) else {
        return Ok(Answer::Hints(groups));
    };
    let placed = bare.iter().take(unplaced_source(input)).any(|&endpoints| endpoints > 0);
    Err(if placed {
        Fault::EndpointLeftOut.into()
    } else {
        Reason::EndpointsWithoutZone { endpoints: input.region.unplaced }.into()
    })
}

/// A share: a number that is not negative and not infinite.
fn number(value: &dyn Val) -> Result<f64, Failure> {
    let int = value.downcast_ref::<CelInt>().map(|number| *number.inner() as f64);
    let number = int.or_else(|| value.downcast_ref::<CelDouble>().map(|number| *number.inner()));
    let share = number.ok_or(Fault::Evaluation)?;
    if share >= 0.0 && share.is_finite() { Ok(share) } else { Err(Fault::WrongShares.into()) }
}

/// The smallest part that fails in the same way. Parts of a loop's body are not looked into: their
/// variables are gone.
fn culprit<'e>(
    node: &'e IdedExpr,
    scope: &Context<'_, '_>,
    error: &ExecutionError,
) -> &'e IdedExpr {
    let fails = |part: &&IdedExpr| Value::resolve_val(part, scope).err().as_ref() == Some(error);
    match parts(node).into_iter().find(fails) {
        Some(part) => culprit(part, scope, error),
        None => node,
    }
}

fn parts(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Comprehension(inner) => vec![&inner.iter_range],
        _ => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(_) => Vec::new(),
    }
}

fn plain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            String::from("it divides by zero")
        }
        ExecutionError::IndexOutOfBounds(_) => String::from("there is no such element"),
        ExecutionError::NoSuchKey(key) => format!("there is no key `{key}`"),
        ExecutionError::Overflow(..) => String::from("a number gets too large"),
        other => other.to_string().chars().take(200).collect(),
    }
}
