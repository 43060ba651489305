//! Serves what this proxy has counted, to the leading controller.
//!
//! ```text
//!  GET /demand, over TLS, with a token that may get it ─► Report: connections, failed ones and bytes by Service and zone
//!  Lease of this proxy ─► port, and the fingerprint of the certificate
//! ```
//!
//! The certificate is made at the start and its key leaves the process nowhere: a client that has read the Lease accepts no
//! other. Tokens must be meant for proxies alone (an audience of their own), so that they open nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use zonewise_cluster::access::{Protected, Reviewer};
use zonewise_common::clock;
use zonewise_common::media_type::JSON;
use zonewise_common::proxy_pages::COUNTS_PATH;
use zonewise_common::proxy_report::{DEMAND_AUDIENCE, DemandServer};
use zonewise_demand::report::{self, Counts, Report, ReportError};
use zonewise_telemetry::server::{self, Page, PageHandler, PageRequest, Protection};
use zonewise_telemetry::tls::{Certificate, Tls};

use crate::config::Config;
use crate::connections::service_counts::{ServiceCount, ServiceCounts};
use crate::health::{Served, serve_by};
use crate::proxy::RunError;
use crate::table_metrics::own_zone;
use crate::watches::ClusterView;

/// The page, for those alone who may read it.
const PAGE: Protected = Protected {
    path: COUNTS_PATH,
    what: "the counts",
    role: "zonewise-demand-reader",
    audience: Some(DEMAND_AUDIENCE),
    // It is asked four times in a minute. With 5,000 proxies, reviews of each question would be 700 requests per second.
    admitted_for: Duration::from_secs(300),
};

/// How long an answer is given again. A client that asks more often costs no more.
const FRESH: Duration = Duration::from_secs(1);

/// Where the server of counts listens, now and later.
pub(crate) struct CountsPlace {
    address: watch::Receiver<Option<SocketAddr>>,
    fingerprint: [u8; 32],
}

impl CountsPlace {
    /// As the Lease says it; `None` while another program uses the address.
    pub(crate) fn now(&self) -> Option<DemandServer> {
        let port = (*self.address.borrow())?.port();
        Some(DemandServer { port, fingerprint: self.fingerprint })
    }
}

/// Serves the counts, if that is configured.
pub(crate) async fn serve(
    client: &Client,
    config: &Config,
    counts: Arc<ServiceCounts>,
    cluster: &Arc<ClusterView>,
) -> Result<Option<(Served, CountsPlace)>, RunError> {
    let Some(address) = config.demand else { return Ok(None) };
    let tls = Arc::new(Tls::new(Certificate::SelfSigned)?);
    let fingerprint = tls.fingerprint();
    let access = Arc::new(Reviewer::new(client.clone(), PAGE));
    let page = CountsPage::new(&config.node_name, counts, Arc::clone(cluster));
    let start = move |listener| server::serve_kept(listener, page, Protection { tls, access });
    let served = serve_by("counts by Service", address, config.bind_hard_fail, start).await?;
    let place = CountsPlace { address: served.addresses(), fingerprint };
    Ok(Some((served, place)))
}

/// Makes the page.
struct CountsPage {
    node: Box<str>,
    /// When this process began to count, in milliseconds since 1970.
    started: u64,
    counts: Arc<ServiceCounts>,
    cluster: Arc<ClusterView>,
    last: Mutex<Last>,
}

/// The last answer.
#[derive(Default)]
struct Last {
    sequence: u64,
    page: Option<(Instant, Page)>,
}

impl CountsPage {
    fn new(node: &str, counts: Arc<ServiceCounts>, cluster: Arc<ClusterView>) -> Self {
        let started = u64::try_from(clock::now().as_millisecond()).unwrap_or_default();
        Self { node: node.into(), started, counts, cluster, last: Mutex::default() }
    }

    fn page(&self) -> Page {
        let mut last = self.last.lock();
        if let Some((at, page)) = &last.page
            && at.elapsed() < FRESH
        {
            return page.clone();
        }
        last.sequence += 1;
        let page = match self.report(last.sequence) {
            Ok(text) => Page::new(200, JSON, text),
            Err(error) => Page::text(500, format!("{error}\n")),
        };
        last.page = Some((Instant::now(), page.clone()));
        page
    }

    fn report(&self, sequence: u64) -> Result<String, ReportError> {
        let mut services: BTreeMap<Box<str>, BTreeMap<Box<str>, Counts>> = BTreeMap::new();
        let mut failed: BTreeMap<Box<str>, BTreeMap<Box<str>, u64>> = BTreeMap::new();
        for ServiceCount { service: (namespace, name), to_zone, sum } in self.counts.get() {
            let counted = Counts {
                connections: sum.connections,
                bytes_to: sum.bytes.original,
                bytes_from: sum.bytes.reply,
            };
            let name: Box<str> = format!("{namespace}/{name}").into();
            if sum.failed > 0 {
                let zones = failed.entry(name.clone()).or_default();
                zones.insert((&*to_zone).into(), sum.failed);
            }
            services.entry(name).or_default().insert((&*to_zone).into(), counted);
        }
        let (version, started) = (report::VERSION, self.started);
        let (node, zone) = (self.node.clone(), (&*own_zone(&self.cluster)).into());
        let unassigned = self.counts.unassigned();
        Report { version, node, zone, started, sequence, services, failed, unassigned }.write()
    }
}

impl PageHandler for CountsPage {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        match request.path {
            path if path == PAGE.path => Page::read_only(request, || self.page()),
            _ => Page::not_found(),
        }
    }
}
