//! The certificates of the API server and the tokens of its users.
//!
//! ```text
//!  ca.crt ◄─ trusted by every kubeconfig
//!    └ signs apiserver.crt (127.0.0.1)      sa.key, sa.pub   tokens of service accounts
//!                                           tokens.csv       one token for each User
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::access::User;
use crate::ports::random;

/// The keys of one cluster; their files are in its directory.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The certificate that clients trust.
    pub(crate) authority: Vec<u8>,
    tokens: [String; User::ALL.len()],
}

impl Keys {
    pub(crate) fn write(directory: &Path) -> Result<Self> {
        let authority = authority()?;
        let key = KeyPair::generate()?;
        let certificate = server()?.signed_by(&key, &authority)?;
        let account = KeyPair::generate()?;
        let tokens = User::ALL.map(|_| format!("{:016x}{:016x}", random(), random()));
        let lines: String = User::ALL.iter().zip(&tokens).map(|(u, t)| token_line(*u, t)).collect();
        for (name, text) in [
            ("ca.crt", authority.pem()),
            ("apiserver.crt", certificate.pem()),
            ("apiserver.key", key.serialize_pem()),
            ("sa.key", account.serialize_pem()),
            ("sa.pub", account.public_key_pem()),
            ("tokens.csv", lines),
        ] {
            fs::write(directory.join(name), text)
                .with_context(|| format!("cannot write {name}"))?;
        }
        Ok(Self { authority: authority.der().to_vec(), tokens })
    }

    pub(crate) fn token(&self, user: User) -> &str {
        match user {
            User::Admin => &self.tokens[0],
            User::Controller => &self.tokens[1],
            User::Proxy => &self.tokens[2],
            User::Observer => &self.tokens[3],
            User::Dashboard => &self.tokens[4],
            User::BuiltInController => &self.tokens[5],
        }
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "zonewise testbed");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn server() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()])?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn token_line(user: User, token: &str) -> String {
    format!("{token},{},{user},\"{}\"\n", user.name(), user.groups())
}
