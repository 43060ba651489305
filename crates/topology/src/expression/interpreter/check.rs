//! Everything that can be known about an expression before it is run: whether its names, fields and
//! types fit, what it looks at, and how many steps it can take at most.
//!
//! ```text
//!   zones.filter(z, z.endpoints > 0)      type   list of zone, at most `zones` long
//!   └─┬─┘           └──────┬──────┘       steps  zones × (copy a zone + 4)
//!   list of zone          bool
//! ```
//!
//! Evaluation cannot be interrupted, so its cost must be known beforehand. It can be: nothing in
//! the language loops but going through a list, and every list has a bound on its length.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, SelectExpr,
};

use super::bound::Bound;
use super::problem::Problem;
use super::syntax::Syntax;
use super::types::{self, Type};
use crate::expression::Kind;

/// An expression must be affordable with so many zones, or it is refused when it is loaded.
const LOAD_ZONES: u64 = 12;
/// Steps of one evaluation with that many zones.
const MAX_STEPS: u64 = 10_000;

/// What is known about an expression.
#[derive(Debug)]
pub(super) struct Facts {
    /// Steps of one evaluation.
    pub(super) steps: Bound,
    /// Endpoints of one zone may get different answers.
    pub(super) uses_index: bool,
    /// It looks at what depends on nodes.
    pub(super) uses_capacity: bool,
}

/// Checks an expression.
pub(super) fn check(syntax: &Syntax, kind: Kind) -> Result<Facts, Problem> {
    let subject = match kind {
        Kind::EndpointZones => ("endpoint", Type::Endpoint),
        Kind::ZoneShares => ("zone", Type::Zone),
    };
    let zones = ("zones", Type::List(Bound::ZONES, Box::new(Type::Zone)));
    let mut checker = Checker {
        syntax,
        scope: vec![subject, zones, ("total", Type::Int)],
        facts: Facts { steps: Bound::NONE, uses_index: false, uses_capacity: false },
        dearest: (0, syntax.start()),
    };
    let (result, steps) = checker.node(&syntax.root)?;
    check_result(kind, &result).map_err(|message| Problem::at(syntax.start(), message))?;
    let needed = steps.at(LOAD_ZONES);
    if needed > MAX_STEPS {
        let message = format!(
            "too expensive: up to {needed} steps with {LOAD_ZONES} zones, at most {MAX_STEPS} are allowed"
        );
        return Err(Problem::at(checker.dearest.1, message));
    }
    Ok(Facts { steps, ..checker.facts })
}

fn check_result(kind: Kind, result: &Type) -> Result<(), String> {
    let expected = match (kind, result) {
        (Kind::EndpointZones, Type::List(_, inner))
            if matches!(**inner, Type::Text(_) | Type::Nothing) =>
        {
            return Ok(());
        }
        (Kind::ZoneShares, Type::List(_, inner) | Type::Map(_, inner)) if inner.is_number() => {
            return Ok(());
        }
        (Kind::EndpointZones, _) => "a list of zone names, such as [endpoint.zone]",
        (Kind::ZoneShares, _) => {
            "a map from zone names to numbers, such as {zone.name: 1.0}, or a list with a number for each zone"
        }
    };
    Err(format!("this gives {result}; expected {expected}"))
}

type Known = Result<(Type, Bound), Problem>;

struct Checker<'s> {
    syntax: &'s Syntax,
    /// Variables, innermost last.
    scope: Vec<(&'s str, Type)>,
    facts: Facts,
    /// The loop that takes most steps, and where it is.
    dearest: (u64, usize),
}

impl<'s> Checker<'s> {
    fn problem(&self, node: &IdedExpr, message: impl Into<String>) -> Problem {
        Problem::at(self.syntax.offset(node), message)
    }

    /// Of what grows faster than the square of the zones.
    fn too_fast<T>(&self, node: &IdedExpr, bound: Option<T>) -> Result<T, Problem> {
        bound.ok_or_else(|| self.problem(node, "loops over zones are nested more than two deep"))
    }

    fn node(&mut self, node: &'s IdedExpr) -> Known {
        let (kind, steps) = match &node.expr {
            Expr::Literal(literal) => (self.literal(node, literal)?, Bound::NONE),
            Expr::Ident(name) => (self.variable(node, name)?, Bound::NONE),
            Expr::Select(select) => self.select(node, select)?,
            Expr::List(list) => self.list(node, &list.elements)?,
            Expr::Map(map) => self.map(node, &map.entries)?,
            Expr::Call(call) => self.call(node, call)?,
            Expr::Comprehension(inner) => self.comprehension(node, inner)?,
            Expr::Struct(_) | Expr::Unspecified => {
                return Err(self.problem(node, "message literals are not supported"));
            }
        };
        Ok((kind, steps.plus(Bound::ONE)))
    }

    fn literal(&self, node: &IdedExpr, literal: &LiteralValue) -> Result<Type, Problem> {
        match literal {
            LiteralValue::Boolean(_) => Ok(Type::Bool),
            LiteralValue::Int(_) => Ok(Type::Int),
            LiteralValue::Double(_) => Ok(Type::Double),
            LiteralValue::String(text) => Ok(Type::text(text.inner().len())),
            LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => {
                Err(self.problem(node, "bytes, null and unsigned numbers cannot be used here"))
            }
        }
    }

    fn variable(&self, node: &IdedExpr, name: &str) -> Result<Type, Problem> {
        if let Some((_, kind)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return Ok(kind.clone());
        }
        let known = self.scope.iter().map(|(known, _)| *known).filter(|name| !is_ours(name));
        let known: Vec<&str> = known.collect();
        Err(self
            .problem(node, format!("unknown variable `{name}`; known are {}", known.join(", "))))
    }

    fn select(&mut self, node: &IdedExpr, select: &'s SelectExpr) -> Known {
        let (operand, steps) = self.node(&select.operand)?;
        let fields = match operand {
            Type::Zone => &types::ZONE[..],
            Type::Endpoint => &types::ENDPOINT[..],
            Type::Map(_, _) if select.test => return Ok((Type::Bool, steps)),
            Type::Map(_, inner) => return Ok((*inner, steps)),
            other => {
                let message = format!("a value of type {other} has no fields");
                return Err(self.problem(node, message));
            }
        };
        let Some(field) = fields.iter().find(|field| field.name == select.field) else {
            let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let message = format!(
                "unknown field `{}`; {} has {}",
                select.field,
                if operand == Type::Zone { "a zone" } else { "an endpoint" },
                known.join(", ")
            );
            return Err(self.problem(node, message));
        };
        self.facts.uses_index |= operand == Type::Endpoint && field.name == "index";
        self.facts.uses_capacity |= matches!(field.name, "share" | "nodes" | "expected");
        Ok((if select.test { Type::Bool } else { field.kind.clone() }, steps))
    }

    fn list(&mut self, node: &IdedExpr, elements: &'s [IdedExpr]) -> Known {
        let (inner, steps) = self.all_of(elements)?;
        let kind = Type::List(Bound::of(elements.len() as u64), Box::new(inner));
        let copied = self.too_fast(node, kind.weight())?;
        Ok((kind, steps.plus(copied)))
    }

    fn map(&mut self, node: &IdedExpr, entries: &'s [IdedEntryExpr]) -> Known {
        let mut total = (Type::Nothing, Bound::NONE);
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(self.problem(node, "message literals are not supported"));
            };
            let (key, key_steps) = self.node(&entry.key)?;
            if !matches!(key, Type::Text(_)) {
                let message = format!("the key of a map must be a string, not {key}");
                return Err(self.problem(&entry.key, message));
            }
            let (value, steps) = self.node(&entry.value)?;
            let joined = total
                .0
                .join(&value)
                .ok_or_else(|| self.problem(&entry.value, format!("{value} beside {}", total.0)))?;
            total = (joined, total.1.plus(steps).plus(key_steps));
        }
        let kind = Type::Map(Bound::of(entries.len() as u64), Box::new(total.0));
        let copied = self.too_fast(node, kind.weight())?;
        Ok((kind, total.1.plus(copied)))
    }

    /// A type that covers all of these, and the steps they take together.
    fn all_of(&mut self, nodes: &'s [IdedExpr]) -> Known {
        let mut total = (Type::Nothing, Bound::NONE);
        for node in nodes {
            let (kind, steps) = self.node(node)?;
            let joined = total.0.join(&kind);
            let joined =
                joined.ok_or_else(|| self.problem(node, format!("{kind} beside {}", total.0)))?;
            total = (joined, total.1.plus(steps));
        }
        Ok(total)
    }

    fn call(&mut self, node: &IdedExpr, call: &'s CallExpr) -> Known {
        let in_math = call.target.as_deref().is_some_and(is_math);
        let target = call.target.as_deref().filter(|_| !in_math);
        let name =
            if in_math { format!("math.{}", call.func_name) } else { call.func_name.clone() };
        if let Some(message) = types::unknown(&name) {
            return Err(self.problem(node, message));
        }
        let (mut given, mut steps) = (Vec::new(), Bound::NONE);
        for argument in target.into_iter().chain(&call.args) {
            let (kind, taken) = self.node(argument)?;
            given.push(kind);
            steps = steps.plus(taken);
        }
        let called = types::call(&name, target.is_some(), &given)
            .map_err(|message| self.problem(node, message))?;
        let read = self.too_fast(node, called.read)?;
        Ok((called.result, steps.plus(read)))
    }

    fn comprehension(&mut self, node: &IdedExpr, inner: &'s ComprehensionExpr) -> Known {
        let (range, range_steps) = self.node(&inner.iter_range)?;
        let Type::List(length, element) = range else {
            // The order of a map's keys is not fixed, and results must not depend on chance.
            let message = format!("only lists can be iterated, not {range}");
            return Err(self.problem(node, message));
        };
        let name = inner.iter_var.as_str();
        if name == MATH || self.scope.iter().any(|(known, _)| *known == name) {
            let message = format!("`{name}` has a meaning already; choose another name");
            return Err(self.problem(node, message));
        }
        let (start, start_steps) = self.node(&inner.accu_init)?;
        let copied = self.too_fast(node, element.weight())?;
        self.scope.push((&inner.accu_var, start));
        self.scope.push((name, *element));
        let (_, condition_steps) = self.node(&inner.loop_cond)?;
        let (step, step_steps) = self.node(&inner.loop_step)?;
        self.scope.truncate(self.scope.len() - 2);
        // A list grows with every round by what it grew in one; all else stays what it is.
        let grown = match step {
            Type::List(one, kind) => Type::List(self.too_fast(node, one.times(length))?, kind),
            other => other,
        };
        self.scope.push((&inner.accu_var, grown));
        let (result, result_steps) = self.node(&inner.result)?;
        self.scope.pop();
        let round = copied.plus(condition_steps).plus(step_steps);
        let rounds = self.too_fast(node, length.times(round))?;
        let own = rounds.plus(start_steps).plus(result_steps);
        self.dearest = self.dearest.max((own.at(LOAD_ZONES), self.syntax.offset(node)));
        Ok((result, own.plus(range_steps)))
    }
}

const MATH: &str = "math";

fn is_math(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name == MATH)
}

/// Variables that only the expansion of macros makes.
fn is_ours(name: &str) -> bool {
    name.starts_with('@')
}
