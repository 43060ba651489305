//! Asks one proxy what it has counted, over a connection that is kept.
//!
//! ```text
//!  TCP ─► TLS: the certificate with the fingerprint of the Lease, and no other ─► GET /demand, with a token ─► document
//! ```
//!
//! The certificate is the proxy's own, and the Lease says which: nobody else has its key. The token is meant for proxies
//! alone, so that a node that was taken over gains nothing from it. What a proxy answers is bounded in size and time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as ring_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
pub(crate) use zonewise_common::proxy_pages::COUNTS_PATH as PATH;
use zonewise_common::proxy_report::DemandServer;

/// Time for one question, the connection included.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest head of an answer.
const LARGEST_HEAD: usize = 16 * 1024;

/// Why there is no answer that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// Nothing answers at the address, or not as a server of counts does.
    Unreachable,
    /// The certificate is not the one that the Lease names.
    Certificate,
    /// It does not accept the token.
    Refused,
    /// It has not answered in time.
    Late,
    /// The answer is too large.
    TooLarge,
    /// The answer is no report, or that of another node.
    Nonsense,
    /// The token cannot be read.
    NoToken,
}

impl Failure {
    pub(crate) const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Certificate,
        Self::Refused,
        Self::Late,
        Self::TooLarge,
        Self::Nonsense,
        Self::NoToken,
    ];

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Certificate => "certificate",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::TooLarge => "too_large",
            Self::Nonsense => "nonsense",
            Self::NoToken => "no_token",
        }
    }

    /// What it means, and what to do about it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "nothing answers there; let the controller reach the nodes at the port of --demand-address"
            }
            Self::Certificate => {
                "the certificate is not the one in the Lease of the proxy; something else answers at the address"
            }
            Self::Refused => {
                "the proxy does not accept the token; the controller needs the ClusterRole zonewise-demand-reader and a \
                 token for the audience zonewise-demand, and the proxy the right to create TokenReviews and \
                 SubjectAccessReviews"
            }
            Self::Late => "no answer within 5 s",
            Self::TooLarge => "the answer is too large to be a report",
            Self::Nonsense => "the answer is not the report of that node",
            Self::NoToken => "the file of demand.tokenFile cannot be read",
        }
    }
}

/// What a proxy is asked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: [u8; 32],
}

impl Target {
    pub(crate) fn new(node: std::net::IpAddr, server: DemandServer) -> Self {
        Self { address: (node, server.port).into(), fingerprint: server.fingerprint }
    }
}

/// A proxy, and the connection to it while there is one.
pub(crate) struct Asker {
    target: Target,
    config: Arc<ClientConfig>,
    connection: Option<Connection>,
    largest: usize,
}

/// An open connection. Its task ends when it is dropped.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    _task: JoinSet<()>,
}

impl Asker {
    /// Answers of more than `largest` bytes are left.
    pub(crate) fn new(target: Target, largest: usize) -> Result<Self, rustls::Error> {
        let config = Arc::new(client_config(target.fingerprint)?);
        Ok(Self { target, config, connection: None, largest })
    }

    /// What the proxy answers to the holder of this token.
    pub(crate) async fn ask(&mut self, token: &str) -> Result<Bytes, Failure> {
        let asked = timeout(LIMIT, self.ask_without_limit(token)).await;
        asked.unwrap_or(Err(Failure::Late)).inspect_err(|_| self.connection = None)
    }

    /// A kept connection may have been closed meanwhile, which shows when it is used: then a new one is tried.
    async fn ask_without_limit(&mut self, token: &str) -> Result<Bytes, Failure> {
        if let Some(kept) = self.connection.take() {
            match self.exchange(kept, token).await {
                Err(Failure::Unreachable) => {}
                answered => return answered,
            }
        }
        let connection = self.connect().await?;
        self.exchange(connection, token).await
    }

    async fn exchange(&mut self, mut kept: Connection, token: &str) -> Result<Bytes, Failure> {
        let request = Request::get(PATH)
            .header(HOST, self.target.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::new())
            .map_err(|_| Failure::NoToken)?;
        kept.sender.ready().await.map_err(|_| Failure::Unreachable)?;
        let answer = kept.sender.send_request(request).await.map_err(|_| Failure::Unreachable)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(Failure::Unreachable),
            _ => return Err(Failure::Refused),
        }
        let body = Limited::new(answer.into_body(), self.largest).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<hyper::Error>() {
            Some(_) => Failure::Unreachable,
            None => Failure::TooLarge,
        })?;
        self.connection = Some(kept);
        Ok(body.to_bytes())
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let address = self.target.address;
        let stream = TcpStream::connect(address).await.map_err(|_| Failure::Unreachable)?;
        let name = ServerName::IpAddress(address.ip().into());
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(name, stream).await.map_err(|error| {
            let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
            match source {
                Some(rustls::Error::InvalidCertificate(_)) => Failure::Certificate,
                _ => Failure::Unreachable,
            }
        })?;
        let handshake =
            http1::Builder::new().max_buf_size(LARGEST_HEAD).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| Failure::Unreachable)?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %address, "the connection to a proxy has ended");
            }
        });
        Ok(Connection { sender, _task: task })
    }
}

/// A client that accepts one certificate and no other. It keeps nothing of ended connections: there is one for each
/// proxy of the cluster.
fn client_config(fingerprint: [u8; 32]) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring_provider::default_provider());
    let verifier = Arc::new(Pinned { fingerprint, provider: Arc::clone(&provider) });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Accepts the certificate with this fingerprint. That the server has its key is checked as always; names and times in it
/// say nothing, because nobody but the server itself has signed it.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if digest(&SHA256, end_entity).as_ref() == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;
    use zonewise_telemetry::tls::Pem;

    use super::*;

    /// A server that answers each request on a connection with the next of these texts, and closes it after the last.
    struct Scripted {
        target: Target,
        connections: Arc<AtomicUsize>,
        _task: JoinSet<()>,
    }

    async fn scripted(answers: Vec<Vec<u8>>) -> Scripted {
        let pair = Pem::self_signed("n1", (2020, 1, 1), (2999, 1, 1)).unwrap();
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, &certificate).as_ref());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(ring_provider::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, mut task) = (Arc::clone(&connections), JoinSet::new());
        task.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, &answers).await;
                }
            }
        });
        Scripted { target: Target { address, fingerprint }, connections, _task: task }
    }

    async fn serve(mut stream: TlsStream<TcpStream>, answers: &[Vec<u8>]) {
        for answer in answers {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => return,
                }
            }
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            // A client that has had enough closes the connection.
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
        let _ = stream.shutdown().await;
    }

    fn page(status: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    const LARGEST: usize = 1000;

    async fn ask(server: &Scripted) -> Result<Bytes, Failure> {
        Asker::new(server.target, LARGEST).unwrap().ask("token").await
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_told_apart() {
        let huge = [page("200 OK", ""), vec![b'a'; 10]].concat();
        let endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let chunk = [format!("{:x}\r\n", 4096).into_bytes(), vec![b'a'; 4096], b"\r\n".to_vec()];
        let endless = [endless, chunk.concat().repeat(100)].concat();
        let long_head = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 100_000]].concat();
        let rows = [
            ("a report", page("200 OK", "{}"), Ok(Bytes::from("{}"))),
            ("no token", page("401 Unauthorized", ""), Err(Failure::Refused)),
            ("no right", page("403 Forbidden", ""), Err(Failure::Refused)),
            ("no such page", page("404 Not Found", ""), Err(Failure::Unreachable)),
            ("another page", page("302 Found", ""), Err(Failure::Refused)),
            ("too large", page("200 OK", &"a".repeat(LARGEST + 1)), Err(Failure::TooLarge)),
            ("without an end", endless, Err(Failure::TooLarge)),
            ("a long head", long_head, Err(Failure::Unreachable)),
            ("not HTTP", b"hello\r\n\r\n".to_vec(), Err(Failure::Unreachable)),
            ("more than it says", huge, Ok(Bytes::new())),
        ];
        for (what, answer, expected) in rows {
            let server = scripted(vec![answer]).await;
            assert_eq!(ask(&server).await, expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_hangs_is_given_up() {
        let server = scripted(vec![Vec::new()]).await;
        assert_eq!(ask(&server).await, Err(Failure::Late));
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let mut asker = Asker::new(Target { address, ..server.target }, LARGEST).unwrap();
        assert_eq!(asker.ask("token").await, Err(Failure::Late), "it does not even begin TLS");
    }

    #[tokio::test]
    async fn another_certificate_is_refused_before_the_token_is_sent() {
        let (server, other) = (scripted(vec![page("200 OK", "{}")]).await, scripted(vec![]).await);
        let target = Target { fingerprint: other.target.fingerprint, ..server.target };
        let mut asker = Asker::new(target, LARGEST).unwrap();
        assert_eq!(asker.ask("token").await, Err(Failure::Certificate));
    }

    #[tokio::test]
    async fn connections_are_kept_and_replaced_when_the_proxy_closes_them() {
        let server = scripted(vec![page("200 OK", "first"), page("200 OK", "second")]).await;
        let mut asker = Asker::new(server.target, LARGEST).unwrap();
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(asker.ask("token").await.unwrap());
        }
        assert_eq!(answers, ["first", "second", "first"]);
        assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_is_asked_once() {
        let refusal = page("401 Unauthorized", "");
        let server = scripted(vec![page("200 OK", "{}"), refusal]).await;
        let mut asker = Asker::new(server.target, LARGEST).unwrap();
        assert!(asker.ask("token").await.is_ok());
        assert_eq!(asker.ask("token").await, Err(Failure::Refused));
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    }
}
