//! Starts the server of the page.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use zonewise_telemetry::server::Server;
use zonewise_telemetry::tls::Tls;
use zonewise_telemetry::web::{self, Web};

use crate::access::Access;
use crate::api::Api;
use crate::hub::Hub;

/// Whom the page is for.
pub enum Exposure {
    /// Everybody who is logged in to this machine.
    Loopback,
    /// Everybody who has a token of the cluster.
    Network {
        /// The certificate.
        tls: Arc<Tls>,
        /// Who sees what.
        access: Access,
    },
}

/// Serves the page on an address.
///
/// # Errors
/// If it cannot listen there.
pub async fn serve(address: SocketAddr, hub: Arc<Hub>, exposure: Exposure) -> io::Result<Server> {
    let listener = TcpListener::bind(address).await?;
    let (tls, access, names) = match exposure {
        Exposure::Loopback => (None, Access::Open, names_of(listener.local_addr()?)),
        // Every request needs a token, which the page of somebody else does not have.
        Exposure::Network { tls, access } => (Some(tls), access, Vec::new()),
    };
    web::serve(listener, Web { tls, names, handler: Arc::new(Api::new(hub, access)) })
}

/// The names of this machine for itself.
fn names_of(address: SocketAddr) -> Vec<String> {
    let own = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "[::1]"].into_iter().map(str::to_owned).collect();
    if !names.contains(&own) {
        names.push(own);
    }
    names
}
