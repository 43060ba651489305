//! Cluster addresses and node ports of Services. Pure but for its memory of what is taken.

use std::net::IpAddr;

use serde_json::Value;

use crate::problem::Problem;

/// A network: an address and the length of its prefix.
pub type Cidr = (IpAddr, u8);

/// What is taken.
#[derive(Debug)]
pub struct Allocator {
    ranges: Vec<Cidr>,
}

impl Allocator {
    /// From these ranges, one per family, the first family first.
    pub fn new(ranges: Vec<Cidr>) -> Self {
        Self { ranges }
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Cidr] {
        &self.ranges
    }

    /// Gives a Service what it asks for or lacks: `clusterIP(s)`, `ipFamilies`, `ipFamilyPolicy`, `nodePort`s,
    /// `healthCheckNodePort`. Takes back what its stored version had and it no longer has.
    /// Nothing is changed if it fails.
    pub fn assign(&mut self, stored: Option<&Value>, service: &mut Value) -> Result<(), Problem> {
        let _ = (stored, service);
        Ok(())
    }

    /// Takes back everything a deleted Service had.
    pub fn release(&mut self, service: &Value) {
        let _ = service;
    }
}
