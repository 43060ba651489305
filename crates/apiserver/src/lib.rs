//! An embedded, in-memory Kubernetes API server for the lab, demonstrations and tests.
//!
//! ```text
//!  http ─────────────────────► operations ──────────────────────► store
//!  connections, TLS, tokens,   get, list, create, update, patch,  objects by resource,
//!  faults, requests,           apply, delete, garbage collection  history for watches
//!  responses, watches              │
//!       │                          └─► objects   defaults, validation, allocation,
//!       └─► kubectl                              patches, apply, selectors (no I/O)
//!           tables, discovery, OpenAPI (no I/O)
//! ```
//!
//! Objects are whole JSON values: nothing that a client has written is lost, even if this server
//! does not know the field.
//!
//! ```no_run
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! use zonewise_apiserver::{Config, Server};
//!
//! let server = Server::start(Config::default()).await?;
//! std::fs::write("kubeconfig", server.kubeconfig())?;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

mod http;
mod kubectl;
mod objects;
mod operations;
mod random;
mod status;
mod store;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderValue, Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch as signal};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use zonewise_common::cidr::Cidr;
use zonewise_common::clock;

pub use crate::http::faults::{FaultError, Faults};
pub use crate::http::server::Body;
use crate::http::server::{self, Shared};
use crate::http::tls;
pub use crate::http::watch::ConnectionAborted;
use crate::objects::allocation::Allocator;
use crate::operations::{ApiState, seed};
use crate::store::Store;

/// What tests need and no other code uses.
#[doc(hidden)]
pub mod testing {
    use serde_json::Value;

    use crate::objects::kind::Kind;
    use crate::objects::protobuf;

    /// An object in protobuf, as answers have it; `None` if its kind is not known.
    pub fn to_protobuf(object: &Value) -> Option<Vec<u8>> {
        protobuf::encode(object)
    }

    /// An object in protobuf, as it is read from a request.
    ///
    /// # Errors
    /// If the bytes are not such an object.
    pub fn from_protobuf(bytes: &[u8]) -> Result<Value, String> {
        protobuf::decode(bytes, &Kind::DEFAULTS).map_err(|error| error.message)
    }

    /// The names of the schemas of all served kinds.
    pub fn schema_names() -> Vec<String> {
        crate::kubectl::openapi::schema_names()
    }
}

/// The name of the cluster and of the context in kubeconfigs.
const NAME: &str = "zonewise-lab";

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// HTTPS with a certificate that the server makes for itself, or plain HTTP.
    pub tls: bool,
    /// The tokens that are accepted. Empty: one user `admin` with a random token.
    pub tokens: Vec<Token>,
    /// The ranges of cluster IPs, at most one per address family.
    pub service_ranges: Vec<Cidr>,
    /// How many changes of each kind are kept for watches and paged lists.
    pub history: usize,
    /// The time between bookmarks of a watch.
    pub bookmark_interval: Duration,
    /// Faults that are on from the start.
    pub faults: Faults,
    /// Whether the server keeps Deployments and ReplicaSets, as kube-controller-manager does.
    pub workloads: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: true,
            tokens: Vec::new(),
            service_ranges: vec![
                Cidr::new_assert(Ipv4Addr::new(10, 96, 0, 0).into(), 16),
                Cidr::new_assert(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0).into(), 108),
            ],
            history: 10_000,
            bookmark_interval: Duration::from_secs(60),
            faults: Faults::default(),
            workloads: true,
        }
    }
}

/// A user and the bearer token that identifies it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The user's name.
    pub user: String,
    /// The token.
    pub secret: String,
    /// Whom it is meant for; `None` for this server. Others have it checked here with a TokenReview, and it opens nothing
    /// here.
    pub audience: Option<String>,
}

impl Token {
    /// A new token of this user.
    pub fn random(user: &str, audience: Option<&str>) -> Self {
        let audience = audience.map(str::to_owned);
        Self { user: user.to_owned(), secret: random::token(), audience }
    }
}

impl fmt::Debug for Token {
    /// Without the secret: this goes into logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Token")
            .field("user", &self.user)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {cause}; {remedy}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        cause: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// An empty token would let every client in.
    #[error("the token of user {0:?} is empty: give the user a token")]
    EmptyToken(String),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}; serve plain HTTP instead")]
    Certificate(String),
    /// The objects that every cluster has could not be created.
    #[error("cannot create the initial objects: {0}; check the ranges of cluster IPs")]
    Seed(String),
}

/// A running server. It also ends when it is dropped without [`stop`](Self::stop).
pub struct Server {
    address: SocketAddr,
    authority: Option<String>,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server. It answers requests when this returns.
    ///
    /// # Errors
    /// If a token is empty, the address cannot be used, no certificate can be made, or the initial
    /// objects cannot be created.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        if let Some(token) = config.tokens.iter().find(|token| token.secret.is_empty()) {
            return Err(StartError::EmptyToken(token.user.clone()));
        }
        let failed = |cause: std::io::Error| {
            let remedy = remedy(&cause);
            StartError::Address { address: config.address, cause, remedy }
        };
        let listener = TcpListener::bind(config.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tls = config.tls.then(|| tls::generate(address)).transpose()?;
        let (authority, tls) = match tls {
            Some(tls) => (Some(tls.authority), Some(TlsAcceptor::from(tls.config))),
            None => (None, None),
        };
        let shared = shared(config, address.port())?;
        let serving = tokio::spawn(server::serve(Arc::clone(&shared), listener, tls));
        Ok(Self { address, authority, shared, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // A client cannot connect to the unspecified address.
            address.set_ip(if address.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            });
        }
        format!("{scheme}://{address}")
    }

    /// The certificate authority of the server, in PEM; none for plain HTTP.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The token of the first user.
    pub fn token(&self) -> &str {
        self.shared.tokens.first().map_or("", |token| &token.secret)
    }

    /// A kubeconfig for the first user.
    pub fn kubeconfig(&self) -> String {
        let user = self.shared.tokens.first().map_or("admin", |token| &token.user);
        let authority = self.authority().map_or_else(String::new, |pem| {
            format!("\n    certificate-authority-data: {}", STANDARD.encode(pem))
        });
        let (url, token) = (self.url(), self.token());
        format!(
            "apiVersion: v1
kind: Config
current-context: {NAME}
clusters:
- name: {NAME}
  cluster:
    server: {url}{authority}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {user:?}
users:
- name: {user:?}
  user:
    token: {token:?}
"
        )
    }

    /// Replaces the faults, for requests and watches that begin from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock() = faults;
    }

    /// Drops the history of all changes: clients that continue from an older resourceVersion get
    /// 410 and have to list again.
    pub fn compact(&self) {
        self.shared.state.lock().store.compact();
    }

    /// Ends watches, lets other requests finish, and closes all connections.
    pub async fn stop(mut self) {
        self.shared.stop.send_replace(true);
        // An error means that the task has panicked, so it has ended as well.
        let _ = (&mut self.serving).await;
    }
}

/// The state of a server that begins, with the tasks that work on it.
fn shared(config: Config, port: u16) -> Result<Arc<Shared>, StartError> {
    let now = clock::now();
    let store = Store::new(config.history, first_version(now));
    let mut state = ApiState::new(store, Allocator::new(config.service_ranges));
    seed::seed(&mut state, port, now).map_err(|error| StartError::Seed(error.message))?;
    let admin = || vec![Token::random("admin", None)];
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        faults: Mutex::new(config.faults),
        tokens: if config.tokens.is_empty() { admin() } else { config.tokens },
        bookmark_interval: config.bookmark_interval,
        stop: signal::Sender::new(false),
        workloads: config.workloads,
        work: Notify::new(),
    });
    tokio::spawn(server::run_controllers(Arc::clone(&shared)));
    Ok(shared)
}

/// A server without a socket: requests are function calls. For simulations, where no time passes on the way.
/// `address` and `tls` of its configuration have no meaning.
#[derive(Clone)]
pub struct InProcess {
    shared: Arc<Shared>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("InProcess")
    }
}

impl InProcess {
    /// Starts a server.
    ///
    /// # Errors
    /// If the initial objects cannot be created.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let port = config.address.port();
        Ok(Self { shared: shared(config, port)? })
    }

    /// Answers a request as its first user.
    ///
    /// # Errors
    /// If a fault cuts the connection.
    pub async fn respond(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<Response<Body>, ConnectionAborted> {
        let token = self.shared.tokens.first().map_or("", |token| &token.secret);
        if let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        server::respond(Arc::clone(&self.shared), request.map(Full::new)).await
    }

    /// As [`Server::set_faults`].
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock() = faults;
    }

    /// As [`Server::compact`].
    pub fn compact(&self) {
        self.shared.state.lock().store.compact();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        self.serving.abort();
    }
}

/// The first resourceVersion: microseconds since 1970. Clients may still hold a resourceVersion of
/// a server that ran before. That server began at an earlier time and made fewer than a million
/// writes in each second, so all its resourceVersions are smaller than this one, and a watch from
/// one of them gets 410 instead of silently missing changes.
fn first_version(now: Timestamp) -> u64 {
    u64::try_from(now.as_microsecond()).unwrap_or(0).max(1)
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "stop the program that listens there, or choose another port (0 takes a free one)"
        }
        std::io::ErrorKind::PermissionDenied => "choose a port above 1023",
        std::io::ErrorKind::AddrNotAvailable => {
            "choose an address of this machine, such as 127.0.0.1"
        }
        _ => "choose another address",
    }
}
