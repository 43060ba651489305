//! The certificate of the server, signed by an authority that nobody else has.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use crate::StartError;

/// What TLS needs, and what clients need to trust it.
pub(crate) struct Keys {
    /// The authority's certificate, in PEM.
    pub(crate) authority: String,
    pub(crate) config: Arc<ServerConfig>,
}

/// Keys for a server at this address.
pub(crate) fn make(address: SocketAddr) -> Result<Keys, StartError> {
    let failed = |error: rcgen::Error| StartError::Keys(error.to_string());
    let refused = |error: rustls::Error| StartError::Keys(error.to_string());
    let authority = authority().map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate =
        server(address).and_then(|params| params.signed_by(&key, &authority)).map_err(failed)?;
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
    Ok(Keys { authority: authority.pem(), config: Arc::new(config) })
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "zonewise apiserver authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server(address: SocketAddr) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names(address.ip()))?;
    params.distinguished_name.push(DnType::CommonName, "zonewise apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// What clients may call it.
fn names(address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    names
}
