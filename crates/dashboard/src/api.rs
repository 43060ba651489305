//! The paths of the server.
//!
//! | path | answer |
//! |---|---|
//! | `/`, `/style.css`, … | the page |
//! | `/healthz` | `ok`, for probes |
//! | `/api/v1/stream` | what happens, as lines of JSON |
//! | `/api/v1/overview` | the document `Overview` of `zonewise explain` |
//! | `/api/v1/service?name=` | the documents of `explain`, `route --matrix` and `plan`, and the history |
//! | `/api/v1/routes?name=&from=` | the document `Routes` of `zonewise route` |
//! | `/api/v1/reasons` | the document `Reasons` of `zonewise reasons` |
//! | `/api/v1/options` | what a Service can ask for |
//! | `POST /api/v1/what-if?name=` | what would come of other objects |

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use zonewise_common::document::Document;
use zonewise_common::media_type::JSON;
use zonewise_explain::what_if::{self, WhatIf, what_if};
use zonewise_explain::{
    Depth, Environment, Planner, ProxyKind, ServiceOverview, Snapshot, documents, location_in,
    matrices_of_nodes, route_lines,
};
use zonewise_slices::service::Service;
use zonewise_telemetry::server::Page;
use zonewise_telemetry::web::{Answer, WebHandler, WebRequest};
use zonewise_topology::reason::TABLE;

use crate::access::{Access, Allowed};
use crate::assets;
use crate::hub::Hub;
use crate::stream::{self, Listener, Seen};

/// Answers that are computed at the same time; others wait.
const AT_ONCE: usize = 4;
/// How long they wait.
const TURN: Duration = Duration::from_secs(10);

/// Answers requests.
pub(crate) struct Api {
    hub: Arc<Hub>,
    access: Arc<Access>,
    work: Work,
}

impl WebHandler for Api {
    fn answer(
        self: Arc<Self>,
        request: WebRequest,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>> {
        Box::pin(async move {
            match self.respond(&request).await {
                Ok(answer) => secured(answer),
                Err(page) => secured(Answer::Whole(page)),
            }
        })
    }
}

/// Adds the headers that every answer has.
fn secured(answer: Answer) -> Answer {
    match answer {
        Answer::Whole(mut page) => {
            page.headers.extend(assets::headers());
            Answer::Whole(page)
        }
        Answer::Stream { content_type, mut headers, parts } => {
            headers.extend(assets::headers());
            Answer::Stream { content_type, headers, parts }
        }
    }
}

impl Api {
    pub(crate) fn new(hub: Arc<Hub>, access: Access) -> Self {
        Self { hub, access: Arc::new(access), work: Work::new(AT_ONCE) }
    }

    async fn respond(self: &Arc<Self>, request: &WebRequest) -> Result<Answer, Page> {
        let posted = request.path == WHAT_IF;
        let methods: &[&str] = if posted { &["POST"] } else { &["GET", "HEAD"] };
        if !methods.contains(&request.method.as_str()) {
            let mut page = Page::text(405, "method not allowed\n");
            page.headers.push(("allow", methods.join(", ")));
            return Err(page);
        }
        if request.path == HEALTH {
            return Ok(Answer::Whole(Page::text(200, "ok\n")));
        }
        if let Some(page) = assets::page(&request.path, request.known.as_deref()) {
            return Ok(Answer::Whole(page));
        }
        if !PATHS.contains(&request.path.as_str()) {
            return Err(Page::not_found());
        }
        // Who asks comes first: others do not learn what exists.
        let allowed = self.access.allowed(request.token.as_deref(), &self.hub).await?;
        match request.path.as_str() {
            STREAM => Ok(self.stream(request, allowed)),
            OPTIONS => json(&Document::new("AskOptions", Options { options: what_if::options() })),
            REASONS => json(&documents::reasons(&TABLE.iter().collect::<Vec<_>>())),
            _ => self.computed(request, allowed).await,
        }
    }

    fn stream(&self, request: &WebRequest, allowed: Allowed) -> Answer {
        let seen = Seen {
            run: parameter(&request.query, "run").unwrap_or_default(),
            version: parameter(&request.query, "version").and_then(|text| text.parse().ok()),
        };
        let (hub, access) = (Arc::clone(&self.hub), Arc::clone(&self.access));
        let listener = Listener { hub, access, token: request.token.clone(), allowed };
        Answer::Stream {
            content_type: "application/x-ndjson",
            headers: vec![("cache-control", "no-store".to_owned())],
            parts: stream::start(listener, &seen),
        }
    }

    /// Computes an answer on a thread for that, with few others at the same time.
    async fn computed(
        self: &Arc<Self>,
        request: &WebRequest,
        allowed: Allowed,
    ) -> Result<Answer, Page> {
        let (hub, request) = (Arc::clone(&self.hub), request.clone());
        self.work.run(move || compute(&hub, &request, &allowed)).await?
    }
}

/// Threads for answers that are computed.
struct Work(Arc<Semaphore>);

impl Work {
    fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once)))
    }

    /// Computes something when it is its turn. Its place is taken until that is done, also if nobody waits for it any
    /// more: clients that close their connection cannot start more work than others.
    async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Page> {
        let Ok(Ok(place)) = timeout(TURN, Arc::clone(&self.0).acquire_owned()).await else {
            let mut page = Page::text(503, "too many requests are being answered; try again\n");
            page.headers.push(("retry-after", "1".to_owned()));
            return Err(page);
        };
        let computed = tokio::task::spawn_blocking(move || {
            let _place = place;
            compute()
        });
        computed.await.map_err(|error| {
            tracing::error!(%error, "an answer could not be computed");
            Page::text(500, "the answer could not be computed; the log of this program says why\n")
        })
    }
}

/// For probes; it says nothing about the cluster.
const HEALTH: &str = "/healthz";
const STREAM: &str = "/api/v1/stream";
const OVERVIEW: &str = "/api/v1/overview";
const SERVICE: &str = "/api/v1/service";
const ROUTES: &str = "/api/v1/routes";
const OPTIONS: &str = "/api/v1/options";
const REASONS: &str = "/api/v1/reasons";
const WHAT_IF: &str = "/api/v1/what-if";
const PATHS: [&str; 7] = [STREAM, OVERVIEW, SERVICE, ROUTES, OPTIONS, REASONS, WHAT_IF];

#[derive(Serialize)]
struct Options {
    options: Vec<what_if::AskOption>,
}

fn compute(hub: &Hub, request: &WebRequest, allowed: &Allowed) -> Result<Answer, Page> {
    let planner = hub.planner();
    if request.path == OVERVIEW {
        let lines: Vec<ServiceOverview> =
            hub.board().all(allowed).iter().map(|line| (**line).clone()).collect();
        return json(&documents::overview(&planner.environment, &lines));
    }
    let name = parameter(&request.query, "name")
        .ok_or_else(|| Page::text(400, "which Service? add ?name=NAMESPACE/NAME\n"))?;
    let (service, snapshot) = objects_of(hub, &name, allowed).ok_or_else(|| {
        Page::text(404, format!("there is no Service {name}, or you may not see it\n"))
    })?;
    let asked = Asked { hub, snapshot: &snapshot, service: &service, planner: &planner };
    match request.path.as_str() {
        SERVICE => asked.everything(&name),
        ROUTES => asked.routes(&request.query),
        _ => asked.what_if(request),
    }
}

/// A copy of what is known of a Service: watches do not wait for what is computed from it. It names no Service of a
/// namespace that may not be seen.
fn objects_of(hub: &Hub, name: &str, allowed: &Allowed) -> Option<(Arc<Service>, Snapshot)> {
    let all = hub.snapshot();
    let service = hub.service(&all, name).filter(|_| allowed.service(name))?;
    let snapshot = all.of_one(&service, |namespace| allowed.namespace(namespace));
    Some((service, snapshot))
}

/// A question about one Service.
struct Asked<'a> {
    hub: &'a Hub,
    snapshot: &'a Snapshot,
    service: &'a Arc<Service>,
    planner: &'a Planner,
}

/// Everything that the page of a Service shows: whole documents, each as the command prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServicePage<'a> {
    explanation: Box<RawValue>,
    matrices: Box<RawValue>,
    /// Absent if the controller does not write its slices.
    plan: Option<Box<RawValue>>,
    history: Option<&'a crate::history::History>,
}

impl Asked<'_> {
    fn environment(&self) -> &Environment {
        &self.planner.environment
    }

    fn everything(&self, name: &str) -> Result<Answer, Page> {
        let (snapshot, service, here) = (self.snapshot, self.service, self.environment());
        let explained = documents::explained(snapshot, service, self.planner, self.hub.prices())
            .map_err(unreadable)?;
        let proxies = here.by_node.or(ProxyKind::Zonewise);
        let proxy_view = snapshot.proxy_view(service);
        let matrices =
            matrices_of_nodes(&proxy_view, &snapshot.senders(service), service, &proxies)
                .map_err(unreadable)?;
        // The explanation stands beside it.
        let planner = Planner { depth: Depth::Arithmetic, ..self.planner.clone() };
        let plan = match service.is_ours() {
            true => Some(planner.plan(snapshot, service).map_err(unreadable)?),
            false => None,
        };
        let board = self.hub.board();
        let page = ServicePage {
            explanation: raw(&explained.document(here))?,
            matrices: raw(&documents::matrices(here, &matrices))?,
            plan: plan.map(|plan| raw(&documents::plan(here, &[plan]))).transpose()?,
            history: board.history(name),
        };
        json(&Document::new("ServicePage", page))
    }

    fn routes(&self, query: &str) -> Result<Answer, Page> {
        let zone = parameter(query, "from").unwrap_or_default();
        let location = location_in(self.snapshot.nodes(), &zone);
        let kind = self.environment().only_proxy().unwrap_or_default();
        let proxy_view = self.snapshot.proxy_view(self.service);
        let lines =
            route_lines(&proxy_view, &location, &kind.gates(self.service)).map_err(unreadable)?;
        json(&documents::routes(self.environment(), &lines))
    }

    fn what_if(&self, request: &WebRequest) -> Result<Answer, Page> {
        if request.content_type != JSON {
            return Err(Page::text(415, "send application/json\n"));
        }
        let tried: WhatIf = serde_json::from_slice(&request.body)
            .map_err(|error| Page::text(400, format!("this cannot be tried: {error}\n")))?;
        let answer = what_if(self.snapshot, self.service, self.planner, self.hub.prices(), &tried)
            .map_err(|error| Page::text(422, format!("{error}\n")))?;
        json(&answer.document())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: serde_json::Error) -> Page {
    Page::text(500, format!("an object of this Service cannot be read: {error}\n"))
}

fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, Page> {
    serde_json::value::to_raw_value(value).map_err(unreadable)
}

fn json<T: Serialize>(value: &T) -> Result<Answer, Page> {
    let text = serde_json::to_string(value).map_err(unreadable)?;
    let mut page = Page::new(200, JSON, text);
    page.headers.push(("cache-control", "no-store".to_owned()));
    Ok(Answer::Whole(page))
}

/// A parameter of a query, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
    Some(percent_decode_str(value).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_takes_its_place_until_it_is_done() {
        let work = Work::new(1);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let slow = work.run(move || {
            begun.send(()).unwrap();
            may_end.recv()
        });
        // The client closes its connection.
        assert!(timeout(Duration::from_millis(1), slow).await.is_err());
        has_begun.recv().unwrap();
        assert_eq!(work.0.available_permits(), 0);
        end.send(()).unwrap();
        assert_eq!(work.run(|| 7).await.unwrap(), 7, "the next one has its turn afterwards");
    }

    #[test]
    fn parameters_are_decoded_as_browsers_encode_them() {
        let rows = [
            ("name=shop%2Fweb", Some("shop/web")),
            ("a=b&name=shop/web", Some("shop/web")),
            ("name=a%26b%3D%3Cc%3E", Some("a&b=<c>")),
            ("name=", Some("")),
            ("name", None),
            ("", None),
            ("name=%ff", None),
        ];
        for (query, expected) in rows {
            assert_eq!(parameter(query, "name").as_deref(), expected, "{query}");
        }
    }
}
