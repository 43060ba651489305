//! The certificate of a server: from files, or one that it makes for itself.
//!
//! Files are looked at again once a minute, because certificates are replaced while the process runs. Those that cannot
//! be used are logged, and the certificate before stays in use. Code that gets certificates from elsewhere puts them in
//! place with [`Tls::replace`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often files are looked at.
const PERIOD: Duration = Duration::from_secs(60);

/// Where a server has its certificate from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// It makes one at its start, which clients cannot verify.
    SelfSigned,
    /// Two PEM files.
    Files {
        /// The certificate, and those of intermediate authorities after it.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, or is not what it should be.
    #[error("`{path}` has no {what} that can be read: {cause}; a PEM file is needed")]
    File {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// Why it cannot be read.
        cause: String,
    },
    /// Certificate and key cannot be used, or do not belong together.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(String),
}

/// The certificate in use.
#[derive(Debug)]
pub struct Tls {
    source: Certificate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    /// The certificates that the configuration was made of.
    chain: Vec<CertificateDer<'static>>,
    read: Instant,
}

impl State {
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateError> {
        let config = config(chain.clone(), key)?;
        Ok(Self { config, chain, read: Instant::now() })
    }
}

impl Tls {
    /// Reads or makes the certificate.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn new(source: Certificate) -> Result<Self, CertificateError> {
        let (chain, key) = source.read()?;
        Ok(Self { source, state: Mutex::new(State::new(chain, key)?) })
    }

    /// Uses another certificate from now on.
    ///
    /// # Errors
    /// If it cannot be used; the one before stays then.
    pub fn replace(&self, pair: &Pem) -> Result<(), CertificateError> {
        let (chain, key) = pair.read()?;
        *self.state.lock() = State::new(chain, key)?;
        Ok(())
    }

    /// The SHA-256 digest of the certificate in use, in DER, for clients that accept no other.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        if let Some(certificate) = self.state.lock().chain.first() {
            bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        }
        bytes
    }

    /// Greets a client.
    pub(crate) async fn accept<S>(&self, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.config()).accept(stream).await
    }

    /// The configuration with the newest certificate.
    fn config(&self) -> Arc<ServerConfig> {
        let mut state = self.state.lock();
        if self.source != Certificate::SelfSigned && state.read.elapsed() >= PERIOD {
            state.read = Instant::now();
            match self.renewed(&state) {
                Ok(None) => {}
                Ok(Some(renewed)) => {
                    tracing::info!("the changed certificate is in use");
                    *state = renewed;
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate cannot be read again; the one before stays in use");
                }
            }
        }
        Arc::clone(&state.config)
    }

    /// The certificate in the files, if it is another one.
    fn renewed(&self, known: &State) -> Result<Option<State>, CertificateError> {
        let (chain, key) = self.source.read()?;
        if chain == known.chain { Ok(None) } else { State::new(chain, key).map(Some) }
    }
}

/// A certificate and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Without the key.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A day: year, month and day of the month.
pub type Day = (i32, u8, u8);

impl Pem {
    /// Makes a certificate for a server of this name or address, for clients that are given the certificate itself. It is
    /// valid from one day to another.
    ///
    /// # Errors
    /// If the name cannot be in a certificate.
    pub fn self_signed(host: &str, from: Day, until: Day) -> Result<Self, CertificateError> {
        let made = || -> Result<Self, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = parameters(vec![host.to_owned()])?;
            params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
            params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
            let certificate = params.self_signed(&key)?.pem();
            Ok(Self { certificate, key: key.serialize_pem() })
        };
        made().map_err(unusable)
    }

    /// Whether a server can use it, and a client that is given these certificates, in PEM, accepts it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, accepted: &str) -> Result<(), CertificateError> {
        let (chain, key) = self.read()?;
        let accepted = certificates(accepted)?;
        if !chain.iter().all(|certificate| accepted.contains(certificate)) {
            let cause = "it is not among the certificates that clients accept";
            return Err(CertificateError::Unusable(cause.to_owned()));
        }
        // A client that cannot read one of them may accept none.
        let mut roots = rustls::RootCertStore::empty();
        for certificate in accepted {
            roots.add(certificate).map_err(unusable)?;
        }
        config(chain, key).map(drop)
    }

    fn read(&self) -> Result<ChainAndKey, CertificateError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(unusable)?;
        Ok((certificates(&self.certificate)?, key))
    }
}

/// The certificates in a text of PEM.
fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let read = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    read.map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> CertificateError {
    CertificateError::Unusable(error.to_string())
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Certificate {
    fn read(&self) -> Result<ChainAndKey, CertificateError> {
        match self {
            Self::SelfSigned => self_signed().map_err(unusable),
            Self::Files { certificate, key } => Ok((chain(certificate)?, private_key(key)?)),
        }
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let unreadable = |cause: String| CertificateError::File {
        path: path.to_owned(),
        what: "certificate",
        cause,
    };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(unreadable("it has none".to_owned())),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| CertificateError::File {
        path: path.to_owned(),
        what: "private key",
        cause: error.to_string(),
    })
}

fn self_signed() -> Result<ChainAndKey, rcgen::Error> {
    let key = KeyPair::generate()?;
    let params = parameters(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Ok((vec![certificate.der().clone()], key))
}

/// The parameters of a server's certificate.
fn parameters(names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "zonewise");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files in a directory of their own.
    fn files(name: &str) -> (PathBuf, PathBuf) {
        let directory =
            std::env::temp_dir().join(format!("zonewise-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        (directory.join("tls.crt"), directory.join("tls.key"))
    }

    fn write((certificate, key): &(PathBuf, PathBuf)) -> CertificateDer<'static> {
        let pair = KeyPair::generate().unwrap();
        let made = CertificateParams::new(vec!["metrics.example.com".to_owned()])
            .unwrap()
            .self_signed(&pair)
            .unwrap();
        std::fs::write(certificate, made.pem()).unwrap();
        std::fs::write(key, pair.serialize_pem()).unwrap();
        made.der().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
        let paths = files("renewed");
        let first = write(&paths);
        let (certificate, key) = paths.clone();
        let tls = Tls::new(Certificate::Files { certificate, key }).unwrap();
        let in_use = || {
            tls.config();
            tls.state.lock().chain.clone()
        };
        let second = write(&paths);
        assert_eq!(in_use(), [first], "not looked at yet");
        tokio::time::advance(PERIOD).await;
        assert_eq!(in_use(), std::slice::from_ref(&second));
        std::fs::write(&paths.0, "no certificate").unwrap();
        tokio::time::advance(PERIOD).await;
        assert_eq!(in_use(), [second]);
        std::fs::remove_dir_all(paths.0.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_certificate_from_elsewhere_is_used_and_a_broken_one_is_not() {
        let tls = Tls::new(Certificate::SelfSigned).unwrap();
        let made = || Pem::self_signed("web.shop.svc", (2026, 1, 1), (2026, 4, 1)).unwrap();
        let (pair, other) = (made(), made());
        tls.replace(&pair).unwrap();
        let in_use = tls.state.lock().chain.clone();
        assert_eq!(in_use, [CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()]);
        let broken = [
            Pem { key: other.key, ..pair.clone() },
            Pem { certificate: String::new(), ..pair.clone() },
            Pem { key: String::new(), ..pair.clone() },
        ];
        for broken in broken {
            assert!(tls.replace(&broken).is_err());
            assert_eq!(tls.state.lock().chain, in_use);
        }
        assert!(!format!("{pair:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn a_pair_is_checked_against_what_clients_accept() {
        let made = || Pem::self_signed("web.shop.svc", (2026, 1, 1), (2026, 4, 1)).unwrap();
        let (pair, other) = (made(), made());
        let both = format!("{}{}", other.certificate, pair.certificate);
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let rows = [
            (pair.clone(), both.clone(), true),
            (pair.clone(), other.certificate.clone(), false),
            (pair.clone(), String::new(), false),
            (pair.clone(), format!("{both}{garbage}"), false),
            (Pem { key: other.key, ..pair.clone() }, both.clone(), false),
            (Pem { certificate: garbage.to_owned(), ..pair }, format!("{both}{garbage}"), false),
        ];
        for (number, (pair, accepted, expected)) in rows.into_iter().enumerate() {
            assert_eq!(pair.check(&accepted).is_ok(), expected, "{number}");
        }
    }

    #[test]
    fn a_fingerprint_is_that_of_the_certificate_in_use() {
        let tls = Tls::new(Certificate::SelfSigned).unwrap();
        let first = tls.fingerprint();
        assert_ne!(first, Tls::new(Certificate::SelfSigned).unwrap().fingerprint());
        let pair = Pem::self_signed("web.shop.svc", (2026, 1, 1), (2026, 4, 1)).unwrap();
        tls.replace(&pair).unwrap();
        let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        assert_eq!(tls.fingerprint(), digest(&SHA256, &der).as_ref());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let paths = files("wrong");
        write(&paths);
        let error = |certificate: &Path, key: &Path| {
            let (certificate, key) = (certificate.to_owned(), key.to_owned());
            Tls::new(Certificate::Files { certificate, key }).unwrap_err().to_string()
        };
        let missing = paths.0.with_extension("missing");
        let message = error(&missing, &paths.1);
        assert!(message.contains("tls.missing` has no certificate that can be read"), "{message}");
        let message = error(&paths.0, &missing);
        assert!(message.contains("tls.missing` has no private key that can be read"), "{message}");
        let message = error(&paths.1, &paths.1);
        assert!(
            message.contains("tls.key` has no certificate that can be read: it has none"),
            "{message}"
        );
        let (certificate, other) = (paths.0.with_extension("other"), paths.1.clone());
        write(&(certificate.clone(), paths.1.with_extension("unused")));
        let message = error(&certificate, &other);
        assert!(message.contains("cannot be used"), "{message}");
        std::fs::remove_dir_all(paths.0.parent().unwrap()).unwrap();
    }
}
