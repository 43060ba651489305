//! A Service as consumers see it: its own JSON and that of its slices, routed from any place.

use std::borrow::Cow;

use zonewise_routing::{
    Family, FeatureGates, NodeLocation, ObjectReader, Route, RouteQuery, RoutedService,
    RoutedSlice, ServicePort, Target, TrafficPolicy, merge, route,
};

/// What consumers read of one Service.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The Service, as JSON.
    pub service: Cow<'a, str>,
    /// Its slices, as JSON.
    pub slices: Vec<Cow<'a, str>>,
}

/// A Service seen from one place.
pub struct Seen {
    /// The way the objects came in; it knows the zones' names.
    pub reader: ObjectReader,
    /// The Service.
    pub service: RoutedService,
    slices: Vec<RoutedSlice>,
}

/// One port of a Service in one family, as it is routed from a place.
pub struct PortRoute<'a> {
    /// The port.
    pub port: &'a ServicePort,
    /// The family.
    pub family: Family,
    /// Where its traffic goes.
    pub route: Route,
}

impl View<'_> {
    /// Whether traffic from inside stays on its node, whatever hints say.
    ///
    /// # Errors
    /// If the Service is not what it should be.
    pub fn is_local(&self) -> Result<bool, serde_json::Error> {
        Ok(ObjectReader::new(NodeLocation::default()).read_service(&self.service)?.internal_policy
            == TrafficPolicy::Local)
    }

    /// Looks at it from a place.
    ///
    /// # Errors
    /// If an object is not what it should be.
    pub fn from(&self, location: NodeLocation) -> Result<Seen, serde_json::Error> {
        let reader = ObjectReader::new(location);
        let service = reader.read_service(&self.service)?;
        let slices = self.slices.iter().map(|json| reader.read_slice(json));
        let mut slices: Vec<RoutedSlice> = slices.collect::<Result<_, _>>()?;
        // No proxy watches the slices of headless Services.
        slices.retain(|slice| !slice.headless);
        Ok(Seen { reader, service, slices })
    }
}

impl Seen {
    /// All ready endpoints of a port.
    pub fn ready(&self, port: &ServicePort, family: Family) -> Vec<Target> {
        let slices: Vec<&RoutedSlice> = self.slices.iter().collect();
        let all = merge(&slices, family, &port.name, port.protocol).into_iter();
        all.filter(|target| target.flags.ready()).collect()
    }

    /// The zone of an endpoint; empty for none.
    pub fn zone_of(&self, target: &Target) -> String {
        self.reader.zone_name(target.zone).map_or_else(String::new, |zone| zone.to_string())
    }

    /// Where the traffic of each port goes, in every family the Service has.
    pub fn routes(&self, gates: &FeatureGates) -> Vec<PortRoute<'_>> {
        let slices: Vec<&RoutedSlice> = self.slices.iter().collect();
        let families =
            Family::BOTH.into_iter().filter(|family| self.service.cluster_ip(*family).is_some());
        let ports = |family| self.service.ports.iter().map(move |port| (port, family));
        families
            .flat_map(ports)
            .map(|(port, family)| {
                let query = RouteQuery {
                    reader: &self.reader,
                    gates,
                    service: &self.service,
                    port,
                    family,
                    slices: &slices,
                };
                PortRoute { port, family, route: route(&query) }
            })
            .collect()
    }
}
