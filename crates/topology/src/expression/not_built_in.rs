//! A build without the cargo feature `expressions`: every definition is refused, with the remedy.

use super::error::ExpressionError;
use super::{Kind, name};
use crate::allocation::Allocation;
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;

/// A heuristic that a user wrote. This build cannot make one, so there is no value of this type.
#[derive(Debug)]
pub enum Expression {}

impl Expression {
    /// Always an error: a wrong name, or [`ExpressionError::NotBuiltIn`].
    pub fn compile(name: &str, _kind: Kind, _text: &str) -> Result<Self, ExpressionError> {
        name::check(name)?;
        Err(ExpressionError::NotBuiltIn { name: name.to_owned() })
    }

    /// What it is evaluated for.
    pub fn kind(&self) -> Kind {
        match *self {}
    }
}

impl Heuristic for Expression {
    fn name(&self) -> &str {
        match *self {}
    }

    fn allocate(&self, _case: &Case<'_>, _out: &mut Allocation) -> Reason {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{Definition, Library};

    #[test]
    fn a_definition_is_refused_with_the_feature_that_is_missing() {
        let definition = Definition {
            name: String::from("example.com/mine"),
            endpoint_zones: Some(String::from("[endpoint.zone]")),
            zone_shares: None,
        };
        let error = Library::new(&[definition]).unwrap_err().to_string();
        assert!(error.contains("`example.com/mine`"), "{error}");
        assert!(error.contains("cargo feature `expressions`"), "{error}");
        assert!(Library::new(&[]).unwrap().parse("balanced").is_ok());
    }
}
