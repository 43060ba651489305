//! The certificate of the server, signed by a certificate authority that is made at each start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use crate::StartError;

/// The TLS configuration of the server, and what clients need to trust it.
pub(crate) struct ServerTls {
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
    pub(crate) config: Arc<ServerConfig>,
}

/// Makes an authority and a certificate for a server at this address.
pub(crate) fn generate(address: SocketAddr) -> Result<ServerTls, StartError> {
    let failed = |error: rcgen::Error| StartError::Certificate(error.to_string());
    let refused = |error: rustls::Error| StartError::Certificate(error.to_string());
    let authority = authority().map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = server_params(address)
        .and_then(|params| params.signed_by(&key, &authority))
        .map_err(failed)?;
    let chain = vec![certificate.der().clone(), authority.der().clone()];
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(ServerTls { authority: authority.pem(), config: Arc::new(config) })
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "zonewise apiserver authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server_params(address: SocketAddr) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names(address.ip()))?;
    params.distinguished_name.push(DnType::CommonName, "zonewise apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// The host names and addresses under which clients may reach the server.
fn names(address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    names
}
