//! The pages of the two servers.

use std::collections::BTreeMap;
use std::fmt;

use zonewise_common::media_type::JSON;
use zonewise_telemetry::metrics::{self, Counter, Family, MetricError, Registry};
use zonewise_telemetry::server::{Page, PageHandler, PageRequest};

use super::status::{Health, Moment};

/// `/healthz` and `/livez`: for load balancers and the kubelet.
#[derive(Debug)]
pub struct HealthPages {
    health: Health,
    healthz: Family<Counter, 1>,
    livez: Family<Counter, 1>,
}

impl HealthPages {
    /// Pages that show `health`, and counters of their answers.
    ///
    /// # Errors
    /// If the counters' names are taken.
    pub fn new(health: Health, registry: &Registry) -> Result<Self, MetricError> {
        let counter = |page: &str| {
            let name = format!("kubeproxy_proxy_{page}_total");
            registry.counter(&name, &format!("Answers of /{page}, by status code"), ["code"])
        };
        Ok(Self { health, healthz: counter("healthz")?, livez: counter("livez")? })
    }
}

impl PageHandler for HealthPages {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        let status = || self.health.status(Moment::now());
        let (counter, (code, body)) = match request.path {
            "/healthz" => (&self.healthz, status().healthz()),
            "/livez" => (&self.livez, status().livez()),
            _ => return Page::not_found(),
        };
        counter.with([&code.to_string()]).inc();
        Page::new(code, JSON, body)
    }
}

type Make = dyn Fn() -> String + Send + Sync;

/// `/metrics` and the pages beside it.
pub struct MetricsPages {
    registry: Registry,
    configz: String,
    /// JSON pages by path.
    more: BTreeMap<&'static str, Box<Make>>,
}

impl MetricsPages {
    /// The metrics, and the configuration in force.
    pub fn new(registry: Registry, configz: String) -> Self {
        Self { registry, configz, more: BTreeMap::new() }
    }

    /// One more page, made when it is asked for: a path such as `/routes`, and its JSON.
    #[must_use]
    pub fn with(
        mut self,
        path: &'static str,
        make: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        self.more.insert(path, Box::new(make));
        self
    }
}

impl PageHandler for MetricsPages {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        let page: &dyn Fn() -> Page = match request.path {
            "/healthz" | "/healthz/ping" => &|| Page::text(200, "ok"),
            "/metrics" => &|| Page::new(200, metrics::CONTENT_TYPE, self.registry.text()),
            "/proxyMode" => &|| Page::text(200, "nftables"),
            "/configz" => &|| Page::new(200, JSON, self.configz.clone()),
            path => match self.more.get(path) {
                Some(make) => return Page::read_only(request, || Page::new(200, JSON, make())),
                None => return Page::not_found(),
            },
        };
        Page::read_only(request, page)
    }
}

impl fmt::Debug for MetricsPages {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MetricsPages").field("more", &self.more.keys()).finish_non_exhaustive()
    }
}
