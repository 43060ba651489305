//! HTTP requests to programs that listen inside a namespace.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Namespace;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The body of the response to `GET path`; `None` unless the status is 200 and the response is complete.
pub fn http_get(namespace: &Namespace, to: SocketAddr, path: &str) -> Option<String> {
    namespace.enter(|| get(to, path))
}

/// A GET without an HTTP library: one connection, closed by the server.
fn get(to: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}
