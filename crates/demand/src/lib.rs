//! From connections that proxies count to the part of a Service's traffic that each zone sends.
//!
//! ```text
//!  proxy, every 15 s ─► Report: connections of each Service since the counters began
//!                          │
//!                          ▼
//!                       Window: connections per second of each Service, by the zone of the node that reports
//!                       Rates: the same, as somebody else has measured them
//!                          │ Measurement
//!                          ▼
//!  Capacity (the model) ─► shares ─► Decision: shares in force, and why ─► Capacity with these shares
//!                          ▲    │
//!                          └────┴─ State: what is in force, stored in the cluster
//! ```
//!
//! - `report` is what a proxy says, and how it is written and read.
//! - `window` turns counters into rates, node by node.
//! - `rates` takes rates that somebody else has measured, and `queries` asks a Prometheus for them.
//! - `failures` says which part of the connections to a Service fails.
//! - `health` says how much the endpoints of a zone count for where more of them fails than elsewhere.
//! - `cpu_use` says how much they count for by the CPU that they use.
//! - `plausible` bounds what a single node can claim.
//! - `shares` blends what is measured with the model, and decides when shares in force change.
//! - `load` says how much the endpoints of a zone have to take.
//! - `state` is what is in force, for all Services, as text; `notes` is what only people want to know besides.
//! - `account` tells people what is stored of a Service.
//!
//! Pure functions: no I/O and no clock. Times are milliseconds since 1970 and come from the caller. A clock that
//! is set back stands still here.

pub mod account;
pub mod cpu_use;
pub mod failures;
pub mod health;
pub mod load;
pub mod notes;
pub mod plausible;
pub mod queries;
pub mod rates;
pub mod report;
mod services;
pub mod shares;
pub mod state;
pub mod window;

use zonewise_common::name::Name;
use zonewise_topology::capacity::{Capacity, NodeCapacity};

use failures::Failures;
use window::Measurement;

/// Where rates of connections come from: counters of proxies, or somebody who has measured them.
pub trait Figures {
    /// Sets the Services that are measured, as `namespace/name`.
    fn set_services(&mut self, wanted: &[String]);
    /// Those of them that are not measured, because too many are wanted.
    fn left_out(&self) -> &[Name];
    /// Sets the nodes of the cluster.
    fn set_nodes(&mut self, nodes: &[NodeCapacity<'_>]);
    /// What is known now. The zones are those of the model.
    fn measure(&mut self, model: &Capacity, now: Millis) -> Measurement<'_>;
    /// Sets the Services whose failed connections are watched, as `namespace/name`.
    fn set_watched(&mut self, wanted: &[String]);
    /// Those of them that are not watched, because there are too many.
    fn unwatched(&self) -> &[Name];
    /// What fails of the connections to these Services; `None` where nobody tells.
    fn failures(&self, now: Millis) -> Option<Failures>;
}

impl Figures for window::Window {
    fn set_services(&mut self, wanted: &[String]) {
        self.set_services(wanted.iter().map(String::as_str));
    }

    fn left_out(&self) -> &[Name] {
        self.services_left_out()
    }

    fn set_nodes(&mut self, nodes: &[NodeCapacity<'_>]) {
        self.set_nodes(nodes);
    }

    fn measure(&mut self, model: &Capacity, now: Millis) -> Measurement<'_> {
        self.measure(model, now)
    }

    fn set_watched(&mut self, wanted: &[String]) {
        self.set_watched(wanted.iter().map(String::as_str));
    }

    fn unwatched(&self) -> &[Name] {
        self.unwatched()
    }

    fn failures(&self, now: Millis) -> Option<Failures> {
        Some(self.failures(now))
    }
}

impl Figures for rates::Rates {
    fn set_services(&mut self, wanted: &[String]) {
        self.set_services(wanted.iter().map(String::as_str));
    }

    fn left_out(&self) -> &[Name] {
        self.services_left_out()
    }

    fn set_nodes(&mut self, nodes: &[NodeCapacity<'_>]) {
        self.set_nodes(nodes);
    }

    fn measure(&mut self, model: &Capacity, now: Millis) -> Measurement<'_> {
        self.measure(model, now)
    }

    /// Rates say nothing about connections that fail.
    fn set_watched(&mut self, _: &[String]) {}

    fn unwatched(&self) -> &[Name] {
        &[]
    }

    fn failures(&self, _: Millis) -> Option<Failures> {
        None
    }
}

/// Milliseconds since 1970.
pub type Millis = u64;

/// The seconds from one time to a later one; none if it is not later.
pub fn seconds_between(from: Millis, to: Millis) -> f64 {
    seconds(from, to)
}

/// The seconds from one time to a later one; none if it is not later.
fn seconds(from: Millis, to: Millis) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}
