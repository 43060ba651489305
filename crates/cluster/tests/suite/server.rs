//! Answers of a server, over real connections.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

pub(crate) const JSON: &str = "application/json";

/// One answer of the server.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    /// How many bytes of the body are sent before the connection is cut; `None` for all.
    pub(crate) cut: Option<usize>,
}

pub(crate) fn answer(content_type: &str, body: Vec<u8>) -> Answer {
    Answer { status: 200, headers: format!("content-type: {content_type}"), body, cut: None }
}

impl Answer {
    /// Sends it, and closes the connection.
    pub(crate) async fn send(self, stream: &mut TcpStream) -> io::Result<()> {
        let Self { status, headers, body, cut } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} x\r\n{headers}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body[..cut.unwrap_or(length)]).await?;
        stream.shutdown().await
    }
}
