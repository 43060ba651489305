//! Which Service has a frontend that several claim, and which claims no Service can win.
//!
//! ```text
//!  claims on 10.96.0.10, UDP 53        rank                                     owner
//!    kube-system/dns   ClusterIp       1  ClusterIp, LoadBalancer, ExternalIp   kube-system/dns
//!    aaa/x             ExternalIp      2  the older object
//!                                      3  namespace and name
//! ```
//!
//! Everybody who may write a Service may write `spec.externalIPs`. So an external IP is also refused where no
//! other Service claims the same port: on addresses of ClusterIPs, on ports where nodes serve something else,
//! and where an API server listens. What is in the kernel depends on the objects alone, not on the order in
//! which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;

use crate::frontend::{Exposure, Frontend};
use crate::net::Protocol;

/// What external IPs cannot take, besides what other Services have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// The ranges that ClusterIPs come from.
    pub service_cidrs: Vec<Cidr>,
    /// TCP ports that every node serves itself, such as the kubelet's.
    pub node_ports: Vec<u16>,
}

impl Protected {
    /// The port of the kubelet's API on every node
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/cluster/ports/ports.go>).
    pub const KUBELET_PORT: u16 = 10250;
}

/// A Service's claim on a frontend. The order is the rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// What the frontend is to the Service.
    pub exposure: Exposure,
    /// When the Service was created, in seconds since 1970.
    pub created: u32,
    /// The Service.
    pub service: Key,
}

/// Why a claim has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another Service has the same frontend, with a claim of a higher rank.
    Outranked {
        /// The Service that has it; `None` where that is not shown.
        by: Option<Key>,
    },
    /// An external IP that is, or may become, the ClusterIP of another Service.
    ClusterIp,
    /// An external IP with the NodePort of another Service. It may be the address of a node, and a proxy knows
    /// the addresses of its own node only.
    NodePort,
    /// An external IP with a port that nodes serve themselves, or where an API server listens.
    ReservedPort,
}

impl Refusal {
    /// Leaves out the name of another Service, unless it may be shown.
    pub fn hide_owner_unless(&mut self, may_be_told: impl FnOnce(&Key) -> bool) {
        if let Self::Outranked { by } = self {
            *by = by.take().filter(may_be_told);
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outranked { by: Some((namespace, name)) } => {
                write!(f, "Service {namespace}/{name} has this address and port")
            }
            Self::Outranked { by: None } => {
                f.write_str("a Service of another namespace has this address and port")
            }
            Self::ClusterIp => f.write_str(
                "the external IP is in the range of ClusterIPs or is another Service's ClusterIP",
            ),
            Self::NodePort => f.write_str(
                "the port is another Service's NodePort, and the external IP may be a node's address",
            ),
            Self::ReservedPort => f.write_str(
                "nodes or the API server listen at this port of the external IP themselves",
            ),
        }
    }
}

/// The claims on a frontend, the highest rank first; nearly always one.
#[derive(Debug)]
enum Claims {
    One(Claim),
    Many(Vec<Claim>),
}

impl Claims {
    fn all(&self) -> &[Claim] {
        match self {
            Self::One(claim) => std::slice::from_ref(claim),
            Self::Many(claims) => claims,
        }
    }

    fn of(mut claims: Vec<Claim>) -> Option<Self> {
        claims.sort_unstable();
        match <[Claim; 1]>::try_from(claims) {
            Ok([only]) => Some(Self::One(only)),
            Err(none) if none.is_empty() => None,
            Err(many) => Some(Self::Many(many)),
        }
    }
}

/// The claims of all Services.
#[derive(Debug, Default)]
pub struct Ownership {
    protected: Protected,
    api_servers: BTreeSet<SocketAddr>,
    claims: BTreeMap<Frontend, Claims>,
    /// The frontends that are claimed as external IPs, by port.
    external: BTreeSet<(u16, Frontend)>,
}

impl Ownership {
    /// No claims yet.
    pub fn new(protected: Protected) -> Self {
        Self { protected, ..Self::default() }
    }

    /// Changes what external IPs cannot take.
    pub fn set_protected(&mut self, protected: Protected) {
        self.protected = protected;
    }

    /// Changes the ranges that ClusterIPs come from. Returns whether they are others than before.
    pub fn set_service_cidrs(&mut self, ranges: Vec<Cidr>) -> bool {
        let before = std::mem::replace(&mut self.protected.service_cidrs, ranges);
        before != self.protected.service_cidrs
    }

    /// Sets where the API servers listen: the endpoints of the Service `default/kubernetes`.
    pub fn set_api_servers(&mut self, api_servers: BTreeSet<SocketAddr>) {
        self.api_servers = api_servers;
    }

    /// Where the API servers listen.
    pub fn api_servers(&self) -> &BTreeSet<SocketAddr> {
        &self.api_servers
    }

    /// Adds a claim.
    pub fn claim(&mut self, frontend: Frontend, claim: Claim) {
        let mut claims = self.claims.remove(&frontend).map_or_else(Vec::new, into_vec);
        claims.push(claim);
        self.set(frontend, claims);
    }

    /// Removes a Service's claim.
    pub fn release(&mut self, frontend: &Frontend, service: &Key) {
        let Some(claims) = self.claims.remove(frontend) else { return };
        let mut claims = into_vec(claims);
        claims.retain(|claim| claim.service != *service);
        self.set(*frontend, claims);
    }

    fn set(&mut self, frontend: Frontend, claims: Vec<Claim>) {
        let by_port = (frontend.port, frontend);
        if claims.iter().any(|claim| claim.exposure == Exposure::ExternalIp) {
            self.external.insert(by_port);
        } else {
            self.external.remove(&by_port);
        }
        if let Some(claims) = Claims::of(claims) {
            self.claims.insert(frontend, claims);
        }
    }

    /// The Service that has a frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<&Key> {
        let claims = self.claims.get(frontend)?.all().iter();
        let mut allowed = claims.filter(|claim| self.forbidden(frontend, claim).is_none());
        allowed.next().map(|claim| &claim.service)
    }

    /// Why a Service that claims a frontend does not have it; `None` if it has.
    pub fn refusal(&self, service: &Key, frontend: &Frontend) -> Option<Refusal> {
        let claims = self.claims.get(frontend)?.all();
        let claim = claims.iter().find(|claim| claim.service == *service)?;
        if let Some(forbidden) = self.forbidden(frontend, claim) {
            return Some(forbidden);
        }
        let owner = self.owner(frontend)?;
        (owner != service).then(|| Refusal::Outranked { by: Some(owner.clone()) })
    }

    /// Every claim without effect.
    pub fn refused<'s>(&'s self) -> impl Iterator<Item = (&'s Frontend, &'s Claim, Refusal)> {
        self.claims.iter().flat_map(move |(frontend, claims)| {
            let refused = move |claim: &'s Claim| {
                let refusal = self.refusal(&claim.service, frontend)?;
                Some((frontend, claim, refusal))
            };
            claims.all().iter().filter_map(refused)
        })
    }

    /// Other Services whose frontends may come or go when the claims on these do.
    pub fn competitors<'a>(
        &self,
        service: &Key,
        frontends: impl Iterator<Item = &'a (Frontend, Exposure)>,
    ) -> BTreeSet<Key> {
        let affected = frontends.flat_map(|(frontend, exposure)| match exposure {
            Exposure::ClusterIp => self.at_address(frontend),
            Exposure::NodePort => self.at_node_port(frontend),
            Exposure::LoadBalancer | Exposure::ExternalIp => self.claims_on(frontend).collect(),
        });
        affected
            .filter(|claim| claim.service != *service)
            .map(|claim| claim.service.clone())
            .collect()
    }

    /// Services that claim an address and port where an API server listens, or will listen.
    pub fn claimants(&self, sockets: &BTreeSet<SocketAddr>) -> BTreeSet<Key> {
        let frontends = sockets.iter().map(|at| Frontend::at(at.ip(), Protocol::Tcp, at.port()));
        let claims =
            frontends.flat_map(|frontend| self.claims_on(&frontend).cloned().collect::<Vec<_>>());
        claims.map(|claim| claim.service).collect()
    }

    fn claims_on(&self, frontend: &Frontend) -> impl Iterator<Item = &Claim> + use<'_> {
        self.claims.get(frontend).into_iter().flat_map(Claims::all)
    }

    /// The claims on any port of a frontend's address.
    fn at_address(&self, frontend: &Frontend) -> Vec<&Claim> {
        let first = Frontend { protocol: Protocol::Tcp, port: 0, ..*frontend };
        let last = Frontend { protocol: Protocol::Sctp, port: u16::MAX, ..*frontend };
        self.claims.range(first..=last).flat_map(|(_, claims)| claims.all()).collect()
    }

    /// The claims on a NodePort, and on the same port of external IPs.
    fn at_node_port(&self, frontend: &Frontend) -> Vec<&Claim> {
        // A NodePort has no address, so it comes before every frontend with one.
        let from = self.external.range((frontend.port, *frontend)..);
        let same_port =
            from.map(|(_, external)| external).take_while(|at| at.port == frontend.port);
        let alike =
            same_port.filter(|at| (at.family, at.protocol) == (frontend.family, frontend.protocol));
        alike.chain([frontend]).flat_map(|at| self.claims_on(at)).collect()
    }

    /// Why a claim has no effect, whoever else claims the frontend.
    fn forbidden(&self, frontend: &Frontend, claim: &Claim) -> Option<Refusal> {
        let socket = frontend.socket().filter(|_| claim.exposure == Exposure::ExternalIp)?;
        if self.is_cluster_ip(frontend, claim, socket.ip()) {
            Some(Refusal::ClusterIp)
        } else if self.is_reserved(frontend, socket) {
            Some(Refusal::ReservedPort)
        } else if self.is_node_port(frontend, claim) {
            Some(Refusal::NodePort)
        } else {
            None
        }
    }

    fn is_cluster_ip(&self, frontend: &Frontend, claim: &Claim, address: IpAddr) -> bool {
        let others = |other: &&Claim| {
            other.exposure == Exposure::ClusterIp && other.service != claim.service
        };
        self.protected.service_cidrs.iter().any(|cidr| cidr.contains(address))
            || self.at_address(frontend).iter().any(others)
    }

    fn is_reserved(&self, frontend: &Frontend, socket: SocketAddr) -> bool {
        frontend.protocol == Protocol::Tcp
            && (self.protected.node_ports.contains(&socket.port())
                || self.api_servers.contains(&socket))
    }

    fn is_node_port(&self, frontend: &Frontend, claim: &Claim) -> bool {
        let node_port = Frontend::node_port(frontend.family, frontend.protocol, frontend.port);
        self.claims_on(&node_port).any(|other| other.service != claim.service)
    }
}

fn into_vec(claims: Claims) -> Vec<Claim> {
    match claims {
        Claims::One(claim) => vec![claim],
        Claims::Many(claims) => claims,
    }
}
