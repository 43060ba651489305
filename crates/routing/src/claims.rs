//! The claims of all Services of a cluster, kept up to date one Service at a time: for what tells people
//! which claims have no effect. A proxy keeps them together with its rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;

use crate::frontend::{Exposure, Frontend};
use crate::ownership::{Claim, Ownership, Protected, Refusal};
use crate::service::RoutedService;

/// What one Service claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceClaims {
    created: u32,
    frontends: Box<[(Frontend, Exposure)]>,
}

impl From<&RoutedService> for ServiceClaims {
    fn from(service: &RoutedService) -> Self {
        Self { created: service.created, frontends: service.claims().into() }
    }
}

/// What all Services claim.
#[derive(Debug, Default)]
pub struct ClusterClaims {
    ownership: Ownership,
    services: BTreeMap<Key, ServiceClaims>,
}

impl ClusterClaims {
    /// No claims yet.
    pub fn new(protected: Protected) -> Self {
        Self { ownership: Ownership::new(protected), services: BTreeMap::new() }
    }

    /// Sets where the API servers listen: the endpoints of the Service `default/kubernetes`.
    pub fn set_api_servers(&mut self, api_servers: BTreeSet<SocketAddr>) {
        self.ownership.set_api_servers(api_servers);
    }

    /// Changes the ranges that ClusterIPs come from. Returns the Services whose external IPs may come or go by that.
    pub fn set_service_cidrs(&mut self, ranges: Vec<Cidr>) -> BTreeSet<Key> {
        if !self.ownership.set_service_cidrs(ranges) {
            return BTreeSet::new();
        }
        let external = |claims: &ServiceClaims| {
            claims.frontends.iter().any(|(_, exposure)| *exposure == Exposure::ExternalIp)
        };
        let concerned = self.services.iter().filter(|(_, claims)| external(claims));
        concerned.map(|(service, _)| service.clone()).collect()
    }

    /// Replaces what a Service claims; a Service that is gone claims nothing. Returns the Services whose
    /// frontends may come or go by that, itself among them; none if nothing has changed. A Service that was
    /// made anew under its name has another rank: that is a change too.
    pub fn set(&mut self, service: &Key, new: ServiceClaims) -> BTreeSet<Key> {
        let old = self.services.remove(service).unwrap_or_default();
        let remade = new.created != old.created && !new.frontends.is_empty();
        let changed = remade || new.frontends != old.frontends;
        let all = old.frontends.iter().chain(&new.frontends);
        let mut concerned =
            if changed { self.ownership.competitors(service, all) } else { BTreeSet::new() };
        concerned.extend(changed.then(|| service.clone()));
        for (frontend, _) in &old.frontends {
            self.ownership.release(frontend, service);
        }
        for &(frontend, exposure) in &new.frontends {
            let claim = Claim { exposure, created: new.created, service: service.clone() };
            self.ownership.claim(frontend, claim);
        }
        if !new.frontends.is_empty() {
            self.services.insert(service.clone(), new);
        }
        concerned
    }

    /// The frontends that a Service claims and does not have, and why.
    pub fn refused(&self, service: &Key) -> Vec<(Frontend, Refusal)> {
        let claims = self.services.get(service).into_iter().flat_map(|claims| &claims.frontends);
        let refusal = |(frontend, _): &(Frontend, Exposure)| {
            Some((*frontend, self.ownership.refusal(service, frontend)?))
        };
        claims.filter_map(refusal).collect()
    }
}
