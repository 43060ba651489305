//! The page of a lab: the dashboard on the lab's API server, with what the clients measure.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use zonewise_dashboard::{Exposure, Hub, Origin, serve};
use zonewise_explain::environment::Component;
use zonewise_explain::{Depth, Environment, Planner, ProxyKind};
use zonewise_slices::settings::Settings;
use zonewise_telemetry::server::Server;
use zonewise_topology::capacity::MissingCpu;

use crate::rights::Place;
use crate::view::{ActResult, Kernel, Phase, ServiceView, View, ZoneView};

/// A page that is served. It ends when this is dropped.
pub(crate) struct Page {
    /// Its address for a browser.
    pub(crate) url: String,
    _server: Server,
    _tasks: JoinSet<()>,
}

impl Page {
    /// Serves the page of a cluster, with the views as they come.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub(crate) async fn start(
        address: SocketAddr,
        client: Client,
        place: Place,
        views: watch::Receiver<View>,
    ) -> anyhow::Result<Self> {
        let (messages, measured) = watch::channel(Arc::from(""));
        let name = match place.kernel() {
            Kernel::Real => "lab on this machine",
            Kernel::Memory => "lab on a kernel in memory (simulated)",
        };
        let origin = Origin::Cluster { client, name: name.into() };
        let (hub, mut tasks) = Hub::start(origin, view(), Some(measured));
        tasks.spawn(send_views(views, messages));
        let server = match serve(address, Arc::clone(&hub), Exposure::Loopback).await {
            // Another lab or dashboard runs; the address is shown.
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                serve(SocketAddr::new(address.ip(), 0), hub, Exposure::Loopback).await
            }
            served => served,
        };
        let server = server.with_context(|| {
            format!("cannot serve the page on {address}; pass another --page, or --no-page")
        })?;
        Ok(Self { url: format!("http://{}", server.address()), _server: server, _tasks: tasks })
    }
}

/// As the lab's controller and its proxies see it. They leave no Lease, and run.
fn view() -> zonewise_dashboard::View {
    let planner = Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::default(),
        depth: Depth::Full,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    };
    let assumed = vec![Component::Controller, Component::Proxy];
    zonewise_dashboard::View { planner, assumed, prices: None, namespace: None }
}

/// Turns every view into a message.
async fn send_views(mut views: watch::Receiver<View>, messages: watch::Sender<Arc<str>>) {
    loop {
        let text = serde_json::to_string(&Message::of(&views.borrow_and_update()));
        if let Ok(text) = text {
            messages.send_replace(text.into());
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}

/// What the terminal shows, for the page.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    kind: &'static str,
    title: &'a str,
    kernel: Kernel,
    /// Seconds since the start.
    clock: f64,
    act: Option<Act<'a>>,
    ended: Vec<Ended<'a>>,
    zones: &'a [ZoneView],
    services: &'a [ServiceView],
    selected: usize,
    /// The connections of the last seconds, in the form of a matrix of `zonewise route`.
    matrix: Measured<'a>,
    connections: u64,
    failed: u64,
    rate: f64,
    paused: bool,
    trouble: Option<&'a str>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Act<'a> {
    number: usize,
    of: usize,
    title: &'a str,
    look: &'a str,
    steps: &'a [String],
    /// How much of it has been measured, from 0 to 1; absent while the cluster settles.
    done: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended<'a> {
    title: &'a str,
    in_zone: Option<f64>,
    overload: Option<f64>,
    held: bool,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured<'a> {
    service: &'a str,
    port: &'static str,
    protocol: &'static str,
    family: &'static str,
    in_zone: Option<f64>,
    from: Vec<Row<'a>>,
    endpoints: Vec<Load<'a>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row<'a> {
    zone: &'a str,
    share: f64,
    mode: &'a str,
    reason: &'a str,
    to: BTreeMap<&'a str, f64>,
    dropped: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Load<'a> {
    endpoint: &'a str,
    zone: &'a str,
    /// Compared with an equal share for all: 0.5 is 50 % more.
    overload: f64,
    ready: bool,
}

impl<'a> Message<'a> {
    fn of(view: &'a View) -> Self {
        let done = |phase: Phase| match phase {
            Phase::Settling => None,
            Phase::Measuring { done } => Some(done),
        };
        let ended = |result: &'a ActResult| Ended {
            title: &result.title,
            in_zone: result.in_zone,
            overload: result.overload,
            held: result.held(),
        };
        Self {
            kind: "Lab",
            title: &view.title,
            kernel: view.place.kernel(),
            clock: view.clock.as_secs_f64(),
            act: view.act.as_ref().map(|act| Act {
                number: act.number,
                of: act.of,
                title: &act.title,
                look: &act.look,
                steps: &act.steps,
                done: done(act.phase),
            }),
            ended: view.ended.iter().map(ended).collect(),
            zones: &view.zones,
            services: &view.services,
            selected: view.selected,
            matrix: Measured::of(view),
            connections: view.connections,
            failed: view.failed,
            rate: view.rate,
            paused: view.paused,
            trouble: view.trouble.as_deref(),
        }
    }
}

impl<'a> Measured<'a> {
    fn of(view: &'a View) -> Self {
        let selected = view.services.get(view.selected);
        let matrix = &view.matrix;
        let total = matrix.total() as f64;
        let row = |from: usize| {
            let sent: u64 = matrix.connections[from].iter().sum();
            let part = |to: usize| Some((matrix.zones[to].as_str(), matrix.part(from, to)?));
            Row {
                zone: &matrix.zones[from],
                share: if total > 0.0 { sent as f64 / total } else { 0.0 },
                mode: selected.map_or("", |service| &service.mode),
                reason: selected.map_or("", |service| &service.reason),
                to: (0..matrix.zones.len()).filter_map(part).collect(),
                dropped: 0.0,
            }
        };
        let load = |endpoint: &'a crate::view::Endpoint| Load {
            endpoint: &endpoint.name,
            zone: &endpoint.zone,
            overload: endpoint.load - 1.0,
            ready: endpoint.ready,
        };
        Self {
            service: selected.map_or("", |service| &service.name),
            port: "measured",
            protocol: "",
            family: "",
            in_zone: matrix.in_zone(),
            from: (0..matrix.zones.len()).map(row).collect(),
            endpoints: view.endpoints.iter().map(load).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::Matrix;
    use crate::view::Endpoint;

    #[test]
    fn the_page_is_told_what_the_terminal_shows() {
        let zones = vec!["a".to_owned(), "b".to_owned()];
        let view = View {
            services: vec![ServiceView {
                name: "web".into(),
                mode: "same-zone".into(),
                ..ServiceView::default()
            }],
            matrix: Matrix { zones, connections: vec![vec![30, 10], vec![0, 0]] },
            endpoints: vec![Endpoint {
                name: "web-1".into(),
                zone: "a".into(),
                load: 1.5,
                ready: true,
            }],
            connections: 40,
            ..View::default()
        };
        let message = serde_json::to_value(Message::of(&view)).unwrap();
        let row = |zone: &str, share: f64, to: serde_json::Value| json!({"zone": zone, "share": share, "mode": "same-zone", "reason": "", "to": to, "dropped": 0.0});
        assert_eq!(
            message["matrix"]["from"],
            json!([row("a", 1.0, json!({"a": 0.75, "b": 0.25})), row("b", 0.0, json!({}))])
        );
        let load = json!({"endpoint": "web-1", "zone": "a", "overload": 0.5, "ready": true});
        assert_eq!(message["matrix"]["endpoints"], json!([load]));
        assert_eq!((&message["kind"], &message["connections"]), (&json!("Lab"), &json!(40)));
        assert_eq!(message["kernel"], json!("real"));
        let view = View { place: Place::Memory, ..View::default() };
        assert_eq!(serde_json::to_value(Message::of(&view)).unwrap()["kernel"], json!("memory"));
    }
}
