//! The controller on the embedded API server, on one thread with a paused clock: an hour costs what happens in it, and every
//! count is the same each time.
//!
//! ```text
//!  test ─► World ─┬─► objects, as the admin ────────────────────────► API server (in process)
//!                 ├─► controller ─► wire: noted, cut or refused ────►
//!                 └─► what was sent: when, by whom, how it was answered
//! ```
//!
//! What these settings promise is proven here with the times of production. Each has a short test with the real clock and the real
//! API server beside it.

mod demand;
mod failing;
mod faults;
mod rest;

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use zonewise_apiserver::{Body, InProcess};
use zonewise_common::clock;
use zonewise_controller::config::Config;
use zonewise_testbed::Objects;
use zonewise_testbed::objects::namespace;

use crate::common::{Running, nodes};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// How long a controller may take for what it does at once.
const SOON: Duration = Duration::from_secs(5);
/// The longest step of time where sockets are used.
const TICK: Duration = Duration::from_millis(100);
/// The shortest time between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// The memory for the stack of a test: tasks of a debug build need more than usual.
const STACK: usize = 16 << 20;
/// When every test begins.
const FIRST_DAY: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Runs a test in a world of its own. The wall clock is that of the paused runtime, so the thread is the test's alone.
fn simulate(test: impl AsyncFnOnce(World) + Send + 'static) {
    let run = move || {
        // What the product draws per thread is the same each time.
        fastrand::seed(7);
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let start = Instant::now();
            clock::simulate(move || {
                FIRST_DAY + SignedDuration::try_from(start.elapsed()).unwrap_or_default()
            });
            test(World::start().await).await;
        });
    };
    let thread = thread::Builder::new().stack_size(STACK).spawn(run).unwrap();
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

/// An API server with six nodes in three zones and the namespace `shop`, and the way there.
struct World {
    objects: Objects,
    wire: Wire,
}

/// The way of processes to the API server.
#[derive(Clone)]
struct Wire {
    server: InProcess,
    state: Arc<Mutex<State>>,
    /// Processes that do not reach the API server: nothing of what is under way arrives, in either direction.
    cut: Arc<watch::Sender<BTreeSet<String>>>,
}

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    refusal: Option<Refusal>,
    /// Answers for paths that another server has behind the API server, by how they begin.
    pages: Vec<(&'static str, Page)>,
}

/// Makes a document.
type Page = Arc<dyn Fn() -> Value + Send + Sync>;

/// Says whether a request is refused: the status code.
type Refusal = Arc<dyn Fn(&Method, &str, &str) -> Option<u16> + Send + Sync>;

/// A request of a process.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    who: String,
    method: Method,
    path: String,
    /// `None` until it is answered.
    status: Option<u16>,
}

impl Sent {
    fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Writes slices or Services, but no Lease and no event.
    fn changes_routing(&self) -> bool {
        self.is_write()
            && (self.path.contains("/endpointslices") || self.path.contains("/services"))
    }
}

impl World {
    async fn start() -> Self {
        let config = zonewise_apiserver::Config { workloads: false, ..Default::default() };
        let wire = Wire {
            server: InProcess::start(config).unwrap(),
            state: Arc::default(),
            cut: Arc::new(watch::Sender::default()),
        };
        let objects = Objects::new(wire.client("test"));
        objects.create(&[namespace("zonewise-system"), namespace("shop")]).await.unwrap();
        objects.create(&nodes()).await.unwrap();
        Self { objects, wire }
    }

    /// Starts a controller under a name.
    fn controller(&self, name: &str, config: Config) -> Running {
        Running::with_client(self.wire.client(name), config)
    }

    /// Nothing passes between this process and the API server.
    fn cut(&self, who: &str) {
        self.wire.cut.send_modify(|cut| {
            cut.insert(who.to_owned());
        });
    }

    /// Ends a cut: connections of before are reset, new ones work.
    fn heal(&self, who: &str) {
        self.wire.cut.send_modify(|cut| {
            cut.remove(who);
        });
    }

    /// Has the server refuse the requests for which `refusal` has a status code, of everybody but the test.
    fn refuse(&self, refusal: impl Fn(&Method, &str, &str) -> Option<u16> + Send + Sync + 'static) {
        self.wire.state.lock().refusal = Some(Arc::new(refusal));
    }

    /// Answers requests for paths that begin so.
    fn serve(&self, path: &'static str, page: impl Fn() -> Value + Send + Sync + 'static) {
        self.wire.state.lock().pages.push((path, Arc::new(page)));
    }

    /// From now on time passes in small steps, so that it does not run past what is on its way through a socket: the runtime knows
    /// timers, and not what the kernel will deliver.
    fn keep_ticking(&self) {
        tokio::spawn(async {
            loop {
                sleep(TICK).await;
            }
        });
    }

    /// What processes have sent since a moment.
    fn sent_since(&self, moment: Instant) -> Vec<Sent> {
        let state = self.wire.state.lock();
        state.sent.iter().filter(|sent| sent.at >= moment && sent.who != "test").cloned().collect()
    }

    async fn slices(&self, service: &str) -> Vec<Value> {
        let all = self.objects.list("EndpointSlice", Some("shop")).await.unwrap();
        let of =
            |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
        all.into_iter().filter(of).collect()
    }

    /// Waits until the slices of a Service hold so many addresses.
    async fn holds(&self, limit: Duration, service: &str, count: usize) {
        let has_all = async || {
            let found = crate::common::addresses(&self.slices(service).await).len();
            if found == count { Ok(()) } else { Err(format!("{service}: {found} addresses")) }
        };
        within(limit, has_all).await;
    }

    /// Status and reason of a condition of ours.
    async fn condition(&self, service: &str, kind: &str) -> Option<(String, String)> {
        let service = self.objects.get("Service", Some("shop"), service).await.unwrap()?;
        let kind = format!("zonewise.dev/RoutingPreference{kind}");
        let conditions = service["status"]["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind.as_str())?;
        Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
    }

    /// Waits until a condition says this.
    async fn told(&self, limit: Duration, (service, kind): (&str, &str), expected: (&str, &str)) {
        let expected = Some((expected.0.to_owned(), expected.1.to_owned()));
        let says = async || {
            let found = self.condition(service, kind).await;
            if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) }
        };
        within(limit, says).await;
    }

    /// How often each event with a reason was told about a Service.
    async fn events(&self, service: &str, reason: &str) -> u64 {
        let all = self.objects.list("Event", Some("shop")).await.unwrap();
        let about = all.iter().filter(|event| {
            event["involvedObject"]["name"] == service && event["reason"] == reason
        });
        about.map(|event| event["count"].as_u64().unwrap_or(1)).sum()
    }
}

/// Tries something again and again until it succeeds, for so long on the paused clock.
async fn within<T>(limit: Duration, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + limit;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < end, "not within {limit:?}: {error}"),
        }
        sleep((limit / 300).max(LOOK)).await;
    }
}

impl Wire {
    fn client(&self, who: &str) -> Client {
        let (wire, who) = (self.clone(), who.to_owned());
        let service = tower::service_fn(move |request| wire.clone().call(who.clone(), request));
        Client::new(service, "default")
    }

    async fn call(
        self,
        who: String,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, Lost> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        let path = parts.uri.path().to_owned();
        let number = self.note(&who, &parts.method, &path);
        self.pass(&who).await?;
        let refusal = self.state.lock().refusal.clone().filter(|_| who != "test");
        let text = String::from_utf8_lossy(&body);
        let refused = refusal.and_then(|refusal| refusal(&parts.method, &path, &text));
        let page =
            self.state.lock().pages.iter().find(|(begin, _)| path.starts_with(begin)).cloned();
        let response = match (refused, page) {
            (Some(code), _) => refusal_of(code),
            (None, Some((_, page))) => Response::new(Body::Whole(Some(page().to_string().into()))),
            (None, None) => {
                let request = Request::from_parts(parts, body);
                self.server.respond(request).await.map_err(|_| Lost)?
            }
        };
        self.pass(&who).await?;
        self.state.lock().sent[number].status = Some(response.status().as_u16());
        Ok(self.deliver(who, response))
    }

    fn note(&self, who: &str, method: &Method, path: &str) -> usize {
        let mut state = self.state.lock();
        let (who, path) = (who.to_owned(), path.to_owned());
        state.sent.push(Sent {
            at: Instant::now(),
            who,
            method: method.clone(),
            path,
            status: None,
        });
        state.sent.len() - 1
    }

    /// Takes a moment; while the process is cut off, until the end of the cut, and then fails.
    async fn pass(&self, who: &str) -> Result<(), Lost> {
        sleep(Duration::from_millis(1)).await;
        let mut cut = self.cut.subscribe();
        if !cut.borrow_and_update().contains(who) {
            return Ok(());
        }
        let _ = cut.wait_for(|cut| !cut.contains(who)).await;
        Err(Lost)
    }

    /// A watch ends with a cut.
    fn deliver(&self, who: String, response: Response<Body>) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let body = match body {
            Body::Stream(chunks) => {
                let (sink, arriving) = mpsc::channel(1);
                tokio::spawn(self.clone().pump(who, chunks, sink));
                Body::Stream(arriving)
            }
            whole => whole,
        };
        Response::from_parts(parts, body)
    }

    async fn pump(self, who: String, mut chunks: Chunks, sink: mpsc::Sender<Chunk>) {
        loop {
            let chunk = tokio::select! {
                () = sink.closed() => return,
                chunk = chunks.recv() => chunk,
            };
            let Some(chunk) = chunk else { return };
            if self.pass(&who).await.is_err() || sink.send(chunk).await.is_err() {
                return;
            }
        }
    }
}

type Chunk = Result<Bytes, zonewise_apiserver::ConnectionAborted>;
type Chunks = mpsc::Receiver<Chunk>;

/// The connection was cut.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
struct Lost;

fn refusal_of(code: u16) -> Response<Body> {
    let reason = if code == 422 { "Invalid" } else { "InternalError" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": "the test refuses this request",
    });
    let mut response = Response::new(Body::Whole(Some(status.to_string().into())));
    *response.status_mut() = code.try_into().unwrap();
    response
}
