//! The custom heuristics of a configuration, beside the built-in ones.

use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

use super::{Expression, ExpressionError, Kind};
use crate::allocation::Allocation;
use crate::heuristic::{Case, Heuristic};
use crate::heuristics::{self, ParseError};
use crate::reason::Reason;

/// A custom heuristic as written in a configuration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Definition {
    /// `<domain>/<name>`.
    pub name: String,
    /// For each endpoint, the names of the zones it is hinted to.
    #[serde(default)]
    pub endpoint_zones: Option<String>,
    /// For each sending zone, the shares of the others.
    #[serde(default)]
    pub zone_shares: Option<String>,
}

impl Definition {
    /// Reads and checks its expression.
    pub fn compile(&self) -> Result<Expression, ExpressionError> {
        match (&self.endpoint_zones, &self.zone_shares) {
            (Some(text), None) => Expression::compile(&self.name, Kind::EndpointZones, text),
            (None, Some(text)) => Expression::compile(&self.name, Kind::ZoneShares, text),
            _ => {
                super::name::check(&self.name)?;
                Err(ExpressionError::NotOne { name: self.name.clone() })
            }
        }
    }
}

/// A definition that was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{error}")]
pub struct LibraryError {
    /// Its place in the list, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub error: ExpressionError,
}

/// All heuristics there are: the built-in ones and those of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Library {
    custom: Vec<Arc<Expression>>,
}

impl Library {
    /// Compiles definitions; the first that is wrong is refused.
    pub fn new(definitions: &[Definition]) -> Result<Self, LibraryError> {
        let mut library = Self::default();
        for (index, definition) in definitions.iter().enumerate() {
            let refuse = |error| LibraryError { index, error };
            if library.find(&definition.name).is_some() {
                return Err(refuse(ExpressionError::Twice { name: definition.name.clone() }));
            }
            library.custom.push(Arc::new(definition.compile().map_err(refuse)?));
        }
        Ok(library)
    }

    /// Names of the custom heuristics, in the order of their definitions.
    pub fn custom_names(&self) -> impl Iterator<Item = &str> {
        self.custom.iter().map(|expression| expression.name())
    }

    fn find(&self, name: &str) -> Option<&Arc<Expression>> {
        self.custom.iter().find(|expression| expression.name() == name)
    }

    /// Makes a heuristic from a custom name, or from `name` or `name:parameter=value,…`.
    pub fn parse(&self, text: &str) -> Result<Box<dyn Heuristic>, ParseError> {
        match self.find(text) {
            Some(expression) => Ok(Box::new(Arc::clone(expression))),
            None => heuristics::parse(text).map_err(|error| self.with_custom_names(error)),
        }
    }

    /// As [`parse`](Self::parse), for callers whose zones always have these names: what they get
    /// needs no names any more.
    pub fn parse_for(
        &self,
        text: &str,
        names: &[Box<str>],
    ) -> Result<Box<dyn Heuristic>, ParseError> {
        match self.find(text) {
            Some(expression) => {
                Ok(Box::new(Named { expression: Arc::clone(expression), names: names.into() }))
            }
            None => self.parse(text),
        }
    }

    fn with_custom_names(&self, error: ParseError) -> ParseError {
        match error {
            ParseError::UnknownName { name } if !self.custom.is_empty() => {
                let custom = self.custom_names().map(String::from).collect();
                ParseError::UnknownCustomName { name, custom }
            }
            other => other,
        }
    }
}

/// An expression that knows the names of its zones.
struct Named {
    expression: Arc<Expression>,
    names: Box<[Box<str>]>,
}

impl Heuristic for Named {
    fn name(&self) -> &str {
        self.expression.name()
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        self.expression.allocate_named(case, &self.names, out)
    }
}
