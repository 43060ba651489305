//! Requests on their way to the API server: they take time, and may fail.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};
use zonewise_apiserver::{Body, InProcess};

use crate::history::History;
use crate::model::Model;

/// The connection was cut.
#[derive(Debug, Error)]
#[error("the connection was cut")]
pub(crate) struct Cut;

/// What is wrong between the processes and the API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiFaults {
    /// Processes that cannot reach it.
    pub(crate) cut: BTreeSet<String>,
    /// Namespaces in which every write is refused with 500, as by a broken webhook.
    pub(crate) broken: BTreeSet<String>,
    /// Namespaces in which every write takes longer than a client waits, as by a webhook that hangs.
    pub(crate) hanging: BTreeSet<String>,
    /// The share of requests that fail.
    pub(crate) errors: f64,
    /// Watches end after about this time.
    pub(crate) short_watches: Option<Duration>,
}

/// The way to the API server, shared by all processes.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) server: InProcess,
    pub(crate) faults: Arc<Mutex<ApiFaults>>,
    pub(crate) history: History,
    pub(crate) model: Arc<Mutex<Model>>,
}

/// One process at its end of the wire.
#[derive(Clone)]
pub(crate) struct Endpoint {
    wire: Wire,
    pub(crate) name: Arc<str>,
    alive: Arc<AtomicBool>,
}

impl Endpoint {
    pub(crate) fn new(wire: &Wire, name: &str) -> Self {
        Self { wire: wire.clone(), name: name.into(), alive: Arc::new(AtomicBool::new(true)) }
    }

    /// The process has ended: nothing that it still sends arrives, and nothing reaches it.
    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    pub(crate) fn client(&self) -> Client {
        let endpoint = self.clone();
        let service = tower::service_fn(move |request| endpoint.clone().call(request));
        Client::new(service, "default")
    }

    async fn call(self, request: Request<kube::client::Body>) -> Result<Response<Answer>, Cut> {
        let call = Call::of(&request);
        if !self.alive.load(Ordering::SeqCst) {
            std::future::pending::<Infallible>().await;
        }
        self.wire.model.lock().sent(&self.name, &call);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        sleep(Duration::from_micros(fastrand::u64(100..5000))).await;
        self.pass().await?;
        if let Some(refusal) = self.refusal(&call).await? {
            return Ok(refusal);
        }
        let sent = String::from_utf8_lossy(&body).into_owned();
        let response = self.wire.server.respond(Request::from_parts(parts, body)).await;
        let response = response.map_err(|_| Cut)?;
        if call.is_write() {
            let code = response.status().as_u16();
            self.wire.history.add(&self.name, &format!("{} {} → {code}", call.method, call.path));
            self.wire.model.lock().wrote(&call, code, &sent);
        }
        self.pass().await?;
        if self.fails() {
            self.say(&call, "the answer is lost");
            return Err(Cut);
        }
        Ok(self.deliver(response, call.watch))
    }

    /// Waits for ever if the process has ended; fails, or waits for ever, if it cannot reach the server.
    async fn pass(&self) -> Result<(), Cut> {
        let cut = self.is_cut();
        if !self.alive.load(Ordering::SeqCst) || (cut && fastrand::bool()) {
            std::future::pending::<Infallible>().await;
        }
        if cut { Err(Cut) } else { Ok(()) }
    }

    fn is_cut(&self) -> bool {
        self.wire.faults.lock().cut.contains(&*self.name)
    }

    fn fails(&self) -> bool {
        let errors = self.wire.faults.lock().errors;
        errors > 0.0 && fastrand::f64() < errors
    }

    fn say(&self, call: &Call, what: &str) {
        self.wire.history.add(&self.name, &format!("{} {}: {what}", call.method, call.path));
    }

    /// A refusal instead of the server's answer.
    async fn refusal(&self, call: &Call) -> Result<Option<Response<Answer>>, Cut> {
        let faults = self.wire.faults.lock().clone();
        let within = |set: &BTreeSet<String>| {
            call.is_write() && call.namespace.as_ref().is_some_and(|name| set.contains(name))
        };
        if within(&faults.hanging) {
            self.say(call, "hangs");
            std::future::pending::<Infallible>().await;
        }
        if within(&faults.broken) {
            self.say(call, "the webhook fails");
            return Ok(Some(status(500, "InternalError", "failed calling webhook \"w\": 500")));
        }
        if !self.fails() {
            return Ok(None);
        }
        let (code, reason) = match fastrand::u8(0..4) {
            0 => (500, "InternalError"),
            1 => (503, "ServiceUnavailable"),
            2 => (429, "TooManyRequests"),
            _ => {
                self.say(call, "the connection is cut");
                return Err(Cut);
            }
        };
        self.say(call, &format!("→ {code}"));
        Ok(Some(status(code, reason, "this error was injected")))
    }

    /// The response as it arrives: a watch goes through a task that can hold it back or end it.
    fn deliver(&self, response: Response<Body>, watch: bool) -> Response<Answer> {
        let (parts, body) = response.into_parts();
        let answer = match body {
            Body::Whole(bytes) => Answer::Whole(bytes),
            Body::Stream(chunks) => {
                let (sink, arriving) = mpsc::channel(1);
                tokio::spawn(self.clone().pump(chunks, sink, watch));
                Answer::Stream(arriving)
            }
        };
        Response::from_parts(parts, answer)
    }

    async fn pump(self, mut chunks: Chunks, sink: mpsc::Sender<Result<Bytes, Cut>>, watch: bool) {
        let short = self.wire.faults.lock().short_watches.filter(|_| watch);
        let life = short.map_or(Duration::from_secs(86_400), |time| time.mul_f64(fastrand::f64()));
        let end = tokio::time::Instant::now() + life;
        loop {
            let chunk = tokio::select! {
                biased;
                () = sink.closed() => return,
                () = sleep_until(end) => return,
                chunk = chunks.recv() => chunk,
            };
            while self.is_cut() {
                sleep(Duration::from_millis(200)).await;
                if sink.is_closed() {
                    return;
                }
            }
            let Some(chunk) = chunk else { return };
            if sink.send(chunk.map_err(|_| Cut)).await.is_err() {
                return;
            }
        }
    }
}

type Chunks = mpsc::Receiver<Result<Bytes, zonewise_apiserver::ConnectionAborted>>;

/// What a request is about.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) namespace: Option<String>,
    pub(crate) watch: bool,
}

impl Call {
    fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path().to_owned();
        let mut segments = path.split('/').skip_while(|segment| *segment != "namespaces").skip(1);
        let namespace = segments.next().map(str::to_owned);
        let query = request.uri().query().unwrap_or_default();
        let watch = query.split('&').any(|parameter| parameter == "watch=true");
        Self { method: request.method().clone(), path, namespace, watch }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    pub(crate) fn is_slice_write(&self) -> bool {
        self.is_write() && self.path.contains("/endpointslices")
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response<Answer> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    let mut response = Response::new(Answer::Whole(Some(status.to_string().into())));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// The body of a response as it arrives.
pub(crate) enum Answer {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Result<Bytes, Cut>>),
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(chunks) => {
                chunks.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
            }
        }
    }
}

/// The driver's own requests: no fault touches them.
impl Wire {
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let Ok(request) = request.body(Bytes::from(text)) else { return (0, Value::Null) };
        let Ok(response) = self.server.respond(request).await else { return (0, Value::Null) };
        let code = response.status().as_u16();
        match response.into_body() {
            Body::Whole(Some(bytes)) => (code, serde_json::from_slice(&bytes).unwrap_or_default()),
            _ => (code, Value::Null),
        }
    }

    /// The items of a list.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let (_, list) = self.ask(Method::GET, path, &Value::Null).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }
}
