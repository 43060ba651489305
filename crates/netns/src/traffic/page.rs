//! Pages of programs that serve HTTP inside a namespace.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Namespace;

/// A page is small, and its server near.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is served at a path; `None` unless the answer is 200 and complete.
pub fn page(namespace: &Namespace, to: SocketAddr, path: &str) -> Option<String> {
    namespace.enter(|| get(to, path))
}

/// A GET without a library: one connection, closed by the server.
fn get(to: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}
