//! The ports that a Pod serves for a Service, and the order in which they are written.
//!
//! ```text
//!  targetPort ──number──────────────────────► port
//!             └─name──► container port of that name and protocol, in containers, then in sidecars
//!                       not found: the Pod serves the Service without this port
//! ```
//!
//! Pods that serve the same ports share slices. The reference sorts the ports of a slice by a hash of
//! their printed form (`NewPortMapKey` in `staging/src/k8s.io/endpointslice/util/controller_utils.go`).
//! The same order is used here, so that both write the same bytes.

use std::fmt::Write;
use std::sync::Arc;

use zonewise_common::fnv::Fnv128;
use zonewise_common::name::Name;

use crate::pod::{NamedPort, Pod};
use crate::service::{Service, ServicePort, TargetPort};
use crate::slice::Port;

/// The distinct port sets of a Service's Pods.
pub(crate) struct PortSets<'a> {
    service: &'a Service,
    /// Whether some target port is a name. Otherwise all Pods have the same ports.
    names_matter: bool,
    sets: Vec<Arc<[Port]>>,
    /// The named ports of Pods that were seen, and the index of the port set that they lead to.
    seen: Vec<(&'a Arc<[NamedPort]>, usize)>,
}

impl<'a> PortSets<'a> {
    pub(crate) fn new(service: &'a Service) -> Self {
        let named = |port: &ServicePort| matches!(port.target, TargetPort::Name(_));
        let names_matter = service.ports.iter().any(named);
        Self { service, names_matter, sets: Vec::new(), seen: Vec::new() }
    }

    /// The index of a Pod's port set, which is added if it is new.
    pub(crate) fn of(&mut self, pod: &'a Pod) -> usize {
        let ports = &pod.named_ports;
        let same = |(known, _): &&(&Arc<[NamedPort]>, usize)| {
            !self.names_matter || Arc::ptr_eq(known, ports) || *known == ports
        };
        if let Some((_, set)) = self.seen.iter().find(same) {
            return *set;
        }
        let resolved =
            sorted(self.service.ports.iter().filter_map(|port| resolve(port, ports)).collect());
        let set = self.sets.iter().position(|known| **known == *resolved).unwrap_or_else(|| {
            self.sets.push(resolved.into());
            self.sets.len() - 1
        });
        self.seen.push((ports, set));
        set
    }

    /// The index of the port set that a slice was written for, if some Pod still has it. The order of
    /// the ports does not matter: older controllers wrote another one.
    pub(crate) fn find(&self, ports: &[Port]) -> Option<usize> {
        let direct = self.sets.iter().position(|known| **known == *ports);
        direct.or_else(|| {
            let ports = sorted(ports.to_vec());
            self.sets.iter().position(|known| **known == *ports)
        })
    }

    /// The port sets of all Pods that were seen.
    pub(crate) fn sets(&self) -> &[Arc<[Port]>] {
        &self.sets
    }
}

fn resolve(port: &ServicePort, names: &[NamedPort]) -> Option<Port> {
    let number = match &port.target {
        TargetPort::Number(number) => *number,
        TargetPort::Name(name) => {
            names
                .iter()
                .find(|known| known.name == *name && known.protocol == port.protocol)?
                .number
        }
    };
    Some(Port {
        name: Some(Name::clone(&port.name)),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    })
}

fn sorted(mut ports: Vec<Port>) -> Vec<Port> {
    if ports.len() > 1 {
        ports.sort_by_cached_key(digest);
    }
    ports
}

/// The hash of a port as the reference computes it: FNV-1a over Go's printed form of the struct.
fn digest(port: &Port) -> u128 {
    let mut hash = Fnv128::default();
    let absent = "<nil>";
    let name = port.name.as_deref().unwrap_or(absent);
    let app_protocol = port.app_protocol.as_deref().unwrap_or(absent);
    let protocol = port.protocol.as_ref().map_or(absent.into(), |protocol| protocol.to_string());
    let number = port.port.map_or(absent.into(), |number| number.to_string());
    // Writing to a hash cannot fail.
    let _ = write!(
        hash,
        "(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} \
         Port:(*int32){number} AppProtocol:(*string){app_protocol}}}"
    );
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Protocol;

    fn port(name: &str, protocol: Protocol, number: i32, app: Option<&str>) -> Port {
        Port {
            name: Some(name.into()),
            protocol: Some(protocol),
            port: Some(number),
            app_protocol: app.map(Into::into),
        }
    }

    /// Hashes that the reference computes for these ports.
    #[test]
    fn digests_are_the_references() {
        use Protocol::{Tcp, Udp};
        let rows = [
            (port("http", Tcp, 80, None), "b6c4d325122a5ba6f795b0bbffcebb6f"),
            (port("https", Tcp, 443, None), "50852f610b5fbbf5129025d35e502185"),
            (port("https", Tcp, 443, Some("https")), "3ffe87b48b5fbbf513b18dc61160cb13"),
            (port("dns", Udp, 53, None), "1caf216365b57b5d2659d4ba9f662580"),
            (port("dns-tcp", Tcp, 53, None), "8fa5f9e263f7f66112d31fc2ebea1e2a"),
            (port("metrics", Tcp, 9153, None), "f17bf63bdbb003d0f2f8e0b73efa3324"),
            (port("", Tcp, 80, None), "73b52e075e78e70787d5e6ffd2212eef"),
        ];
        for (port, expected) in rows {
            assert_eq!(format!("{:032x}", digest(&port)), expected, "{port:?}");
        }
    }

    #[test]
    fn ports_are_written_in_the_references_order() {
        use Protocol::{Sctp, Tcp, Udp};
        let order = |ports: Vec<Port>| -> Vec<String> {
            sorted(ports).iter().map(|port| port.name.as_deref().unwrap().to_owned()).collect()
        };
        assert_eq!(
            order(vec![port("http", Tcp, 80, None), port("https", Tcp, 443, None)]),
            ["https", "http"]
        );
        assert_eq!(
            order(vec![
                port("tcp-example", Tcp, 80, None),
                port("udp-example", Udp, 161, None),
                port("sctp-example", Sctp, 3456, None)
            ]),
            ["udp-example", "tcp-example", "sctp-example"]
        );
    }
}
