//! Which Services are concerned when one of them changes. A model that knows no index computes from all objects
//! what each Service has; nothing may come or go for a Service that is not among the concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_routing::{
    ClusterClaims, Exposure, Frontend, Protected, Protocol, Refusal, RoutedService, ServiceClaims,
};

use crate::ownership::{NEW, OLD, key, service};

fn keys(names: &[&str]) -> BTreeSet<Key> {
    names.iter().map(|name| key(name)).collect()
}

fn claims_of(service: &RoutedService) -> ServiceClaims {
    ServiceClaims::from(service)
}

/// The address and port of each refused frontend, and the reason.
fn refused(claims: &ClusterClaims, name: &str) -> Vec<(String, Refusal)> {
    let text = |(frontend, refusal): (Frontend, Refusal)| (frontend.to_string(), refusal);
    claims.refused(&key(name)).into_iter().map(text).collect()
}

fn external(name: &str, n: u8, created: &str, ports: &Value) -> RoutedService {
    service(name, n, created, &json!({"externalIPs": ["203.0.113.7"], "ports": ports}))
}

#[test]
fn a_change_concerns_the_service_and_its_competitors() {
    let mut claims = ClusterClaims::new(Protected::default());
    let http = json!([{"port": 80}]);
    let (old, new) = (external("old", 1, OLD, &http), external("new", 2, NEW, &http));
    let other = external("other", 3, OLD, &json!([{"port": 81}]));
    assert_eq!(claims.set(&key("new"), claims_of(&new)), keys(&["new"]));
    assert_eq!(claims.set(&key("other"), claims_of(&other)), keys(&["other"]));
    assert_eq!(claims.set(&key("old"), claims_of(&old)), keys(&["old", "new"]));
    let outranked = |by: &str| {
        vec![("203.0.113.7:80/TCP".to_owned(), Refusal::Outranked { by: Some(key(by)) })]
    };
    assert_eq!(refused(&claims, "new"), outranked("old"));
    assert_eq!((refused(&claims, "old"), refused(&claims, "other")), (vec![], vec![]));
    assert_eq!(claims.set(&key("old"), claims_of(&old)), keys(&[]), "nothing has changed");
    assert_eq!(refused(&claims, "new"), outranked("old"));
    // A Service of the same name is made anew: the one that was newer is now the older one.
    let again = external("old", 1, "2026-06-01T00:00:00Z", &http);
    assert_eq!(claims.set(&key("old"), claims_of(&again)), keys(&["old", "new"]));
    assert_eq!(refused(&claims, "old"), outranked("new"));
    assert_eq!(claims.set(&key("new"), ServiceClaims::default()), keys(&["old", "new"]));
    assert_eq!((refused(&claims, "old"), refused(&claims, "new")), (vec![], vec![]));
    assert_eq!(claims.set(&key("new"), ServiceClaims::default()), keys(&[]), "gone already");
    let headless = service("headless", 4, NEW, &json!({"clusterIP": "None"}));
    assert_eq!(claims.set(&key("headless"), claims_of(&headless)), keys(&[]), "claims nothing");
}

#[test]
fn ranges_of_cluster_ips_concern_external_ips_alone() {
    let mut claims = ClusterClaims::new(Protected::default());
    let plain = service("plain", 1, OLD, &json!({}));
    let thief = external("thief", 2, OLD, &json!([{"port": 80}]));
    for service in [&plain, &thief] {
        claims.set(&key(&service.name), claims_of(service));
    }
    let ranges = || vec![Cidr::parse("203.0.113.0/24").unwrap()];
    assert_eq!(claims.set_service_cidrs(ranges()), keys(&["thief"]));
    assert_eq!(refused(&claims, "thief"), [("203.0.113.7:80/TCP".into(), Refusal::ClusterIp)]);
    assert_eq!(claims.set_service_cidrs(ranges()), keys(&[]), "the same ranges");
    assert_eq!(claims.set_service_cidrs(Vec::new()), keys(&["thief"]));
    assert_eq!(refused(&claims, "thief"), []);
}

/// The objects of a cluster. Everything is computed from all of them.
#[derive(Clone, Default)]
struct Model {
    services: BTreeMap<Key, RoutedService>,
    protected: Protected,
    api_servers: BTreeSet<SocketAddr>,
}

/// A frontend that a Service claims. The order of the first three is the rank.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claimed {
    exposure: Exposure,
    created: u32,
    service: Key,
    at: Frontend,
}

impl Model {
    fn claims(&self) -> Vec<Claimed> {
        let of = |(key, service): (&Key, &RoutedService)| {
            let (service_key, created) = (key.clone(), service.created);
            let claims = service.claims().into_iter();
            claims.map(move |(at, exposure)| Claimed {
                exposure,
                created,
                service: service_key.clone(),
                at,
            })
        };
        self.services.iter().flat_map(of).collect()
    }

    /// The reason why an external IP has no effect, whoever else claims the same frontend.
    fn forbidden(&self, all: &[Claimed], claim: &Claimed) -> Option<Refusal> {
        let socket = claim.at.socket().filter(|_| claim.exposure == Exposure::ExternalIp)?;
        let others = || all.iter().filter(|other| other.service != claim.service);
        let node_port = Frontend { address: None, ..claim.at };
        let in_range = self.protected.service_cidrs.iter().any(|cidr| cidr.contains(socket.ip()));
        if in_range
            || others().any(|other| {
                other.exposure == Exposure::ClusterIp && other.at.address == claim.at.address
            })
        {
            Some(Refusal::ClusterIp)
        } else if claim.at.protocol == Protocol::Tcp
            && (self.protected.node_ports.contains(&socket.port())
                || self.api_servers.contains(&socket))
        {
            Some(Refusal::ReservedPort)
        } else if others().any(|other| other.at == node_port) {
            Some(Refusal::NodePort)
        } else {
            None
        }
    }

    /// Each Service's frontends: refused, or its own.
    fn state(&self) -> BTreeMap<Key, Vec<(Frontend, Option<Refusal>)>> {
        let all = self.claims();
        let mut state: BTreeMap<Key, Vec<_>> = BTreeMap::new();
        for claim in &all {
            let rivals = all.iter().filter(|rival| rival.at == claim.at);
            let owner = rivals.filter(|rival| self.forbidden(&all, rival).is_none()).min();
            let refusal = self.forbidden(&all, claim).or_else(|| {
                let owner = owner.filter(|owner| owner.service != claim.service)?;
                Some(Refusal::Outranked { by: Some(owner.service.clone()) })
            });
            state.entry(claim.service.clone()).or_default().push((claim.at, refusal));
        }
        state
    }
}

#[derive(Clone, Debug)]
enum Change {
    Service {
        name: &'static str,
        spec: Option<(u8, bool, Value)>,
    },
    /// The same Service, deleted and made again.
    Remade(&'static str),
    Ranges(bool),
}

fn change() -> impl Strategy<Value = Change> {
    let ips = vec!["203.0.113.7", "10.96.0.1", "10.96.0.2", "192.168.0.1"];
    let ports = vec![("TCP", 80), ("UDP", 80), ("TCP", 6443), ("TCP", 10_250), ("SCTP", 30_080)];
    let vip = prop::option::of(Just("203.0.113.7"));
    let node_port = prop_oneof![Just(0), Just(80), Just(30_080)];
    let external = prop::sample::subsequence(ips, 0..=3);
    let ports = prop::sample::subsequence(ports, 1..=2);
    let spec = (1u8..4, any::<bool>(), external, ports, node_port, vip).prop_map(
        |(n, old, external, ports, node_port, vip)| {
            let port = |(protocol, port): (&str, u16)| {
                json!({"name": format!("{protocol}-{port}"), "protocol": protocol, "port": port,
                       "nodePort": node_port})
            };
            let ingress: Vec<Value> = vip.iter().map(|ip| json!({"ip": ip})).collect();
            let spec = json!({
                "type": "LoadBalancer", "externalIPs": external,
                "ports": ports.into_iter().map(port).collect::<Vec<Value>>(),
                "status": {"loadBalancer": {"ingress": ingress}},
            });
            (n, old, spec)
        },
    );
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        6 => (name(), prop::option::weighted(0.8, spec))
            .prop_map(|(name, spec)| Change::Service { name, spec }),
        1 => name().prop_map(Change::Remade),
        1 => any::<bool>().prop_map(Change::Ranges),
    ]
}

proptest! {
    #[test]
    fn no_frontend_comes_or_goes_unannounced(changes in prop::collection::vec(change(), 1..16)) {
        let api_servers = BTreeSet::from(["192.168.0.1:6443".parse().unwrap()]);
        let protected = Protected { service_cidrs: Vec::new(), node_ports: vec![10_250] };
        let mut claims = ClusterClaims::new(protected.clone());
        claims.set_api_servers(api_servers.clone());
        let mut model = Model { services: BTreeMap::new(), protected, api_servers };
        let mut before = model.state();
        for change in changes {
            let concerned = match &change {
                Change::Service { name, spec } => {
                    let read = |(n, old, spec): &(u8, bool, Value)| {
                        service(name, *n, if *old { OLD } else { NEW }, spec)
                    };
                    let new = spec.as_ref().map(read);
                    match &new {
                        Some(service) => model.services.insert(key(name), service.clone()),
                        None => model.services.remove(&key(name)),
                    };
                    claims.set(&key(name), new.as_ref().map(claims_of).unwrap_or_default())
                }
                Change::Remade(name) => {
                    let service = model.services.get_mut(&key(name)).map(|service| {
                        service.created += 100_000_000;
                        claims_of(service)
                    });
                    claims.set(&key(name), service.unwrap_or_default())
                }
                Change::Ranges(some) => {
                    let range = some.then(|| Cidr::parse("10.96.0.0/30").unwrap());
                    model.protected.service_cidrs = range.into_iter().collect();
                    claims.set_service_cidrs(model.protected.service_cidrs.clone())
                }
            };
            let after = model.state();
            for key in ["a", "b", "c", "d"].map(key) {
                let frontends = after.get(&key).cloned().unwrap_or_default().into_iter();
                let refused: Vec<(Frontend, Refusal)> =
                    frontends.filter_map(|(at, refusal)| Some((at, refusal?))).collect();
                prop_assert_eq!(claims.refused(&key), refused, "{:?}", key);
                prop_assert!(
                    before.get(&key) == after.get(&key) || concerned.contains(&key),
                    "{key:?} was not told of {change:?}"
                );
            }
            before = after;
        }
    }
}
