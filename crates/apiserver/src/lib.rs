//! An embedded Kubernetes API, in memory: for the lab, for demonstrations, for tests.
//!
//! ```text
//!  HTTP(S) ─► server ─► faults ─► request ─► api ─► store ─► watches
//!             tokens    delay,    path and    │     objects by kind, one version for all,
//!             TLS       errors    query       │     what happened lately
//!                                             ├─► patch, apply    what was sent, put onto what is stored (pure)
//!                                             ├─► strategy        defaults, checks, what may not change (pure)
//!                                             ├─► allocation      cluster addresses and node ports (pure)
//!                                             └─► table, discovery, openapi    what kubectl asks for (pure)
//! ```
//!
//! Objects are whole JSON values: nothing that a client wrote is lost, known to us or not.
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
mod keys;
mod kubectl;
mod objects;
mod operations;
mod random;
mod status;
mod store;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch as signal};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub use crate::http::faults::{FaultError, Faults};
use crate::http::server::{Shared, lock};
use crate::objects::allocation::Allocator;
pub use crate::objects::allocation::Cidr;
use crate::operations::{World, seed};
use crate::store::Store;

/// The name of cluster and context in kubeconfigs.
const NAME: &str = "zonewise-lab";

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes one that is free.
    pub address: SocketAddr,
    /// HTTPS with a certificate of its own authority, or plain HTTP.
    pub tls: bool,
    /// Who may come in; if nobody is named, `admin` may, with a random secret.
    pub tokens: Vec<Token>,
    /// Where Services get their addresses from, one range per family.
    pub service_ranges: Vec<Cidr>,
    /// How many changes of each kind are remembered.
    pub history: usize,
    /// How far bookmarks are apart.
    pub bookmarks: Duration,
    /// What goes wrong on purpose.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: true,
            tokens: Vec::new(),
            service_ranges: vec![
                (Ipv4Addr::new(10, 96, 0, 0).into(), 16),
                (Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0).into(), 108),
            ],
            history: 10_000,
            bookmarks: Duration::from_secs(60),
            faults: Faults::default(),
        }
    }
}

/// Who somebody is, and what proves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The user's name.
    pub user: String,
    /// What the client sends.
    pub secret: String,
}

impl fmt::Debug for Token {
    /// Without the secret: this goes into logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Token").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {cause}; {remedy}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A user without a secret would let everybody in.
    #[error("the token of user {0:?} is empty: give it a secret")]
    EmptyToken(String),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}; serve plain HTTP instead")]
    Keys(String),
    /// The first objects could not be made.
    #[error("cannot make the first objects: {0}; check the ranges of Services")]
    Seed(String),
}

/// A running server. Dropped without [`stop`](Self::stop), it ends as well.
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
    /// Starts a server; it serves when this returns.
    ///
    /// # Errors
    /// If the address cannot be used, or no certificate can be made.
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
        let keys = config.tls.then(|| keys::make(address)).transpose()?;
        let (authority, tls) = match keys {
            Some(keys) => (Some(keys.authority), Some(TlsAcceptor::from(keys.config))),
            None => (None, None),
        };
        let now = Timestamp::now();
        let store = Store::new(config.history, first_version(now));
        let mut world = World::new(store, Allocator::new(config.service_ranges));
        seed::seed(&mut world, address.port(), now)
            .map_err(|error| StartError::Seed(error.message))?;
        let admin = || vec![Token { user: "admin".into(), secret: random::secret() }];
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            faults: Mutex::new(config.faults),
            tokens: if config.tokens.is_empty() { admin() } else { config.tokens },
            bookmarks: config.bookmarks,
            stop: signal::Sender::new(false),
            chores: Notify::new(),
        });
        tokio::spawn(http::server::run_garbage_collector(Arc::clone(&shared)));
        let serving = tokio::spawn(http::server::serve(Arc::clone(&shared), listener, tls));
        Ok(Self { address, authority, shared, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // Nobody can connect to "everywhere".
            address.set_ip(if address.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            });
        }
        format!("{scheme}://{address}")
    }

    /// The certificate to trust, in PEM; none for plain HTTP.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The secret of the first user.
    pub fn token(&self) -> &str {
        self.shared.tokens.first().map_or("", |token| &token.secret)
    }

    /// Everything a client needs, as the first user.
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

    /// Changes what goes wrong, for requests and watches from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.shared.faults) = faults;
    }

    /// Forgets all history: clients that go on from an older version have to list again.
    pub fn compact(&self) {
        lock(&self.shared.world).store.compact();
    }

    /// Ends watches, lets other requests finish, and closes.
    pub async fn stop(mut self) {
        self.shared.stop.send_replace(true);
        // It ends by itself, or it has panicked, which is over as well.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        self.serving.abort();
    }
}

/// Where versions begin. No server writes a million times a second, so that none has come as far before this one.
fn first_version(now: Timestamp) -> u64 {
    u64::try_from(now.as_microsecond()).unwrap_or(0).max(1)
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "end what listens there, or choose another port (0 takes a free one)"
        }
        std::io::ErrorKind::PermissionDenied => "choose a port above 1023",
        std::io::ErrorKind::AddrNotAvailable => {
            "choose an address of this machine, such as 127.0.0.1"
        }
        _ => "choose another address",
    }
}
