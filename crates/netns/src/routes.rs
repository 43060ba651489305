//! Routes, and the policy rules that choose a routing table.
//!
//! ```text
//!   packet ──► rule: came in through X? ──► table of X ──► route
//!                │ no, or no route there
//!                └──► main table ──► route
//! ```

use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use zonewise_common::cidr::Cidr;

use crate::links::family;
use crate::{Error, Namespace};

/// A route, built step by step: `Route::to(network).via(gateway).device("eth0")`.
///
/// A route without gateway and device is a blackhole route: it drops its packets silently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    destination: Cidr,
    gateway: Option<IpAddr>,
    device: Option<String>,
    source: Option<IpAddr>,
    table: Option<u32>,
}

impl Route {
    /// A route to a network.
    pub fn to(destination: Cidr) -> Self {
        Self { destination, gateway: None, device: None, source: None, table: None }
    }

    /// The next hop. With a device, it need not be in a subnet of that device (`onlink`).
    #[must_use]
    pub fn via(self, gateway: impl Into<IpAddr>) -> Self {
        Self { gateway: Some(gateway.into()), ..self }
    }

    /// The interface to leave by.
    #[must_use]
    pub fn device(self, interface: &str) -> Self {
        Self { device: Some(interface.to_owned()), ..self }
    }

    /// The source address of what this namespace sends along the route.
    #[must_use]
    pub fn source(self, address: impl Into<IpAddr>) -> Self {
        Self { source: Some(address.into()), ..self }
    }

    /// The table that holds the route, if not the main one.
    #[must_use]
    pub fn table(self, number: u32) -> Self {
        Self { table: Some(number), ..self }
    }
}

impl Namespace {
    /// Adds the default route of the gateway's family.
    pub fn add_default_route(&self, via: IpAddr) -> Result<(), Error> {
        self.add_route(&Route::to(Cidr::default_of(via)).via(via))
    }

    /// Adds a route, or replaces the existing route to the same network.
    pub fn add_route(&self, route: &Route) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewRoute(self.route_message(route)?);
        let doing = || format!("add {route:?}");
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE, doing).map(drop)
    }

    /// Deletes the route to the same network in the same table. Gateway, device and source only
    /// have to match if they are given.
    pub fn delete_route(&self, route: &Route) -> Result<(), Error> {
        let mut message = self.route_message(route)?;
        message.header.scope = RouteScope::NoWhere;
        message.header.kind = RouteType::Unspec;
        let doing = || format!("delete {route:?}");
        self.request(RouteNetlinkMessage::DelRoute(message), 0, doing).map(drop)
    }

    /// Whether the namespace would deliver a packet for this address to itself.
    pub(crate) fn delivers_locally(
        &self,
        interface: &str,
        address: Ipv6Addr,
    ) -> Result<bool, Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = 128;
        message.attributes = vec![
            RouteAttribute::Destination(address.into()),
            RouteAttribute::Oif(self.link(interface)?.index),
        ];
        let doing = || format!("look up {address}");
        match self.request(RouteNetlinkMessage::GetRoute(message), 0, doing) {
            Ok(found) => Ok(found.iter().any(is_local)),
            // The kernel reports a missing route as an error.
            Err(Error::Kernel { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks up packets of both families that arrive on `interface` in `table` first.
    pub(crate) fn use_table_for(&self, interface: &str, table: u32) -> Result<(), Error> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut rule = RuleMessage::default();
            rule.header.family = family;
            rule.header.action = RuleAction::ToTable;
            rule.attributes = vec![
                RuleAttribute::Iifname(interface.to_owned()),
                RuleAttribute::Table(table),
                RuleAttribute::Priority(table),
            ];
            let doing = || format!("use table {table} for {interface}");
            let message = RouteNetlinkMessage::NewRule(rule);
            self.request(message, NLM_F_CREATE | NLM_F_EXCL, doing)?;
        }
        Ok(())
    }

    fn route_message(&self, route: &Route) -> Result<RouteMessage, Error> {
        let (network, prefix) = (route.destination.address(), route.destination.length());
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(network);
        header.destination_prefix_length = prefix;
        header.table = RouteHeader::RT_TABLE_MAIN;
        header.protocol = RouteProtocol::Static;
        header.kind = RouteType::Unicast;
        match (&route.gateway, &route.device) {
            (None, None) => header.kind = RouteType::BlackHole,
            (None, Some(_)) if network.is_ipv4() => header.scope = RouteScope::Link,
            (Some(_), Some(_)) => header.flags = RouteFlags::Onlink,
            (Some(_), None) | (None, Some(_)) => {}
        }
        let attributes = &mut message.attributes;
        if prefix > 0 {
            attributes.push(RouteAttribute::Destination(network.into()));
        }
        if let Some(gateway) = route.gateway {
            attributes.push(RouteAttribute::Gateway(gateway.into()));
        }
        if let Some(device) = &route.device {
            attributes.push(RouteAttribute::Oif(self.link(device)?.index));
        }
        if let Some(source) = route.source {
            attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        if let Some(table) = route.table {
            attributes.push(RouteAttribute::Table(table));
        }
        Ok(message)
    }
}

fn is_local(message: &RouteNetlinkMessage) -> bool {
    matches!(message, RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Local)
}
