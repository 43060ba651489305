//! An HTTP server for a page that people look at: its files, documents, and streams that go on while the page is open.
//!
//! ```text
//!  TcpListener ─► (TLS) ─ each request, one after the other ─► WebHandler::answer ─► Answer: a body, or lines that go on
//! ```
//!
//! Only requests that name this server are answered. A page of somebody else could otherwise have a name of its own lead
//! to this address, and read what the browser of a person may read (DNS rebinding).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, ORIGIN,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::connections::HasAsked;
use crate::patience::Patient;
use crate::server::{self, Limits, NOSNIFF, Page, Server, bearer_token};
use crate::tls::Tls;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query after the question mark; empty without one.
    pub query: String,
    /// The token of `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
    /// The version of the answer that the client has already: `If-None-Match`.
    pub known: Option<String>,
    /// The content type of the body.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// The answer to a request.
pub enum Answer {
    /// A whole one.
    Whole(Page),
    /// Parts that are sent as they come, until the sender is dropped.
    Stream {
        /// The `Content-Type`.
        content_type: &'static str,
        /// Further headers, names in lower case.
        headers: Vec<(&'static str, String)>,
        /// The parts.
        parts: mpsc::Receiver<Bytes>,
    },
}

/// Answers requests.
pub trait WebHandler: Send + Sync + 'static {
    /// The answer to this request. It must not keep a thread of the runtime busy.
    fn answer(
        self: Arc<Self>,
        request: WebRequest,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>>;
}

/// What is served.
pub struct Web<H> {
    /// The certificate; without one, HTTP.
    pub tls: Option<Arc<Tls>>,
    /// The names by which clients may call this server, without the port. Empty for any: only where every request needs a
    /// token.
    pub names: Vec<String>,
    /// Who answers.
    pub handler: Arc<H>,
}

/// The size of a request's body.
const LARGEST: usize = 64 * 1024;
/// Time for a body to arrive, and for a TLS handshake.
const ARRIVAL: Duration = Duration::from_secs(5);
/// How long a client may read nothing of its answer. Until then the answer is in memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// A browser keeps some connections, and each open page one that goes on.
const LIMITS: Limits = Limits {
    connections: 256,
    per_client: 64,
    head: Duration::from_secs(60),
    total: Duration::MAX,
    drain: Duration::from_secs(1),
    keep_alive: true,
};

/// Serves a page on a listening socket.
///
/// # Errors
/// If the socket has no local address.
pub fn serve<H: WebHandler>(listener: TcpListener, web: Web<H>) -> io::Result<Server> {
    let web = Arc::new(web);
    server::start(listener, LIMITS, move |stream, has_asked| {
        serve_connection(stream, Arc::clone(&web), has_asked)
    })
}

async fn serve_connection<H: WebHandler>(stream: TcpStream, web: Arc<Web<H>>, asked: HasAsked) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = web.tls.clone() else {
        return serve_http(stream, web, asked).await;
    };
    match timeout(ARRIVAL, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_http(stream, web, asked).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client of the page does not speak TLS"),
        Err(_) => tracing::debug!("a client of the page took too long to begin TLS"),
    }
}

async fn serve_http<H: WebHandler>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    web: Arc<Web<H>>,
    has_asked: HasAsked,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.set();
        let web = Arc::clone(&web);
        async move { Ok::<_, Infallible>(response(web.answer(request).await)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LIMITS.head)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client of the page failed");
    }
}

impl<H: WebHandler> Web<H> {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Err(refused) = self.check(request.headers()) {
            return Answer::Whole(refused);
        }
        let (head, body) = request.into_parts();
        let body = match timeout(ARRIVAL, Limited::new(body, LARGEST).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                let text = format!("a request has at most {LARGEST} bytes\n");
                return Answer::Whole(Page::text(413, text));
            }
            Err(_) => {
                return Answer::Whole(Page::text(408, "the request did not arrive in time\n"));
            }
        };
        let text =
            |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let request = WebRequest {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            token: bearer_token(&head.headers).map(str::to_owned),
            known: text(IF_NONE_MATCH).map(str::to_owned),
            content_type: text(CONTENT_TYPE).unwrap_or_default().to_owned(),
            body,
        };
        Arc::clone(&self.handler).answer(request).await
    }

    /// Whether the client means this server, and is no page of another.
    fn check(&self, headers: &HeaderMap) -> Result<(), Page> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let host = text(HOST).unwrap_or_default();
        if !self.names.is_empty() && !self.names.iter().any(|name| name == name_of(host)) {
            let known = self.names.join(", ");
            let text =
                format!("this server is not {host:?}; call it by one of these names: {known}\n");
            return Err(Page::text(421, text));
        }
        let foreign =
            |origin: &str| origin.split_once("://").is_none_or(|(_, named)| named != host);
        match text(ORIGIN).filter(|origin| foreign(origin)) {
            Some(origin) => Err(Page::text(403, format!("pages of {origin:?} may not ask here\n"))),
            None => Ok(()),
        }
    }
}

/// The name in `name:port`; IPv6 addresses have brackets.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn response(answer: Answer) -> Response<WebBody> {
    match answer {
        Answer::Whole(page) => page.into_response().map(WebBody::Whole),
        Answer::Stream { content_type, headers, parts } => {
            let mut response = Response::new(WebBody::Stream(parts));
            let head = response.headers_mut();
            head.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            head.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::try_from(value) {
                    head.insert(HeaderName::from_static(name), value);
                }
            }
            response
        }
    }
}

enum WebBody {
    Whole(Full<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for WebBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Stream(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Says what it was asked; `/lines` goes on for three lines.
    struct Echo;

    impl WebHandler for Echo {
        fn answer(
            self: Arc<Self>,
            request: WebRequest,
        ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>> {
            Box::pin(async move {
                if request.path != "/lines" {
                    let text =
                        format!("{} {} {}", request.method, request.path, request.body.len());
                    return Answer::Whole(Page::text(200, text));
                }
                let (sender, parts) = mpsc::channel(1);
                tokio::spawn(async move {
                    for number in 0..3 {
                        let _ = sender.send(Bytes::from(format!("line {number}\n"))).await;
                    }
                });
                Answer::Stream { content_type: "text/plain", headers: Vec::new(), parts }
            })
        }
    }

    async fn ask(text: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let names = vec!["localhost".to_owned(), "[::1]".to_owned()];
        let server = serve(listener, Web { tls: None, names, handler: Arc::new(Echo) }).unwrap();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(text.replace('\n', "\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        server.stop().await;
        answer
    }

    #[tokio::test]
    async fn only_requests_that_name_this_server_and_come_from_its_own_page_are_answered() {
        let rows = [
            ("Host: localhost", "200 OK"),
            ("Host: localhost:80", "200 OK"),
            ("Host: [::1]:80", "200 OK"),
            ("Host: evil.example", "421 Misdirected Request"),
            ("Host: evil.example:80", "421 Misdirected Request"),
            ("Host: localhost:80\nOrigin: http://localhost:80", "200 OK"),
            ("Host: localhost:80\nOrigin: http://localhost:81", "403 Forbidden"),
            ("Host: localhost:80\nOrigin: null", "403 Forbidden"),
        ];
        for (headers, expected) in rows {
            let answer = ask(&format!("GET / HTTP/1.1\n{headers}\nConnection: close\n\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{headers}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_stream_is_sent_part_by_part_and_a_body_is_limited() {
        let answer = ask("GET /lines HTTP/1.1\nHost: localhost\nConnection: close\n\n").await;
        for number in 0..3 {
            assert!(answer.contains(&format!("line {number}\n")), "{answer}");
        }
        let answer =
            ask("POST /x HTTP/1.1\nHost: localhost\nConnection: close\nContent-Length: 3\n\nabc")
                .await;
        assert!(answer.ends_with("POST /x 3"), "{answer}");
        let large = format!(
            "POST /x HTTP/1.1\nHost: localhost\nConnection: close\nContent-Length: {}\n\n",
            LARGEST + 1
        );
        let answer = ask(&(large + &"a".repeat(LARGEST + 1))).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}
