//! Connects the nodes to the API server: a listener inside the lab's network, the server outside of it.

use std::net::{SocketAddr, TcpListener};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Forwards connections until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    task: JoinHandle<()>,
}

impl Relay {
    /// Forwards connections from a listener, in whichever namespace it was made, to an address in this one.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub(crate) fn start(listener: TcpListener, to: SocketAddr) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((inside, _)) => drop(tokio::spawn(pass(inside, to))),
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the API server was lost");
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    }
                }
            }
        });
        Ok(Self { task })
    }
}

async fn pass(mut inside: TcpStream, to: SocketAddr) {
    if let Ok(mut outside) = TcpStream::connect(to).await {
        let _ = inside.set_nodelay(true);
        let _ = outside.set_nodelay(true);
        let _ = copy_bidirectional(&mut inside, &mut outside).await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}
