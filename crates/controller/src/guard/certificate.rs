//! The certificate of the webhook. It is in a Secret, so that all replicas have the same one: the API server reaches
//! either of them, and one that starts again is trusted at once. The service account may read and change that Secret
//! alone, which the chart creates empty; so it needs no right to create any.
//!
//! ```text
//!  leader ── none, too old, or for another name ─► makes one ─► Secret ─┬─► leader ─► caBundle of the webhook
//!                                        every replica looks, ◄────────┘
//!                                        and serves with it
//! ```
//!
//! A certificate that follows another one is trusted together with that, until all replicas serve with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::lease::Leadership;
use zonewise_common::clock;
use zonewise_inventory::webhook::{self as requests, Secret, WEBHOOK};
use zonewise_telemetry::tls::{CertificateError, Day, Pem};

const DAY: i64 = 24 * 3600;
/// How long a certificate is valid. It begins a day early, for clocks that differ.
const VALID: i64 = 90 * DAY;
/// It is replaced when it is valid for less than this.
const RENEWED: i64 = 30 * DAY;
/// How often the Secret is looked at while it has no certificate that can be used …
const EAGER: Duration = Duration::from_secs(1);
/// … and when it has one.
const PERIOD: Duration = Duration::from_secs(30);

/// A certificate that replicas serve with, and what is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) pair: Pem,
    /// The certificates that the API server accepts: this one, and the one before it.
    pub(crate) bundle: String,
    /// The name or address that it is for.
    host: String,
    /// When it ends, in seconds since 1970.
    expires: i64,
}

impl Served {
    /// What the Secret holds, if it is whole.
    fn read(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| data.get(key).cloned();
        Some(Self {
            pair: Pem { certificate: text("tls.crt")?, key: text("tls.key")? },
            bundle: text("ca.crt")?,
            host: text("host")?,
            expires: text("expires")?.parse().ok()?,
        })
    }

    fn data(&self) -> BTreeMap<String, String> {
        let Self { pair: Pem { certificate, key }, bundle, host, expires } = self;
        let expires = expires.to_string();
        let entries = [
            ("tls.crt", certificate),
            ("tls.key", key),
            ("ca.crt", bundle),
            ("host", host),
            ("expires", &expires),
        ];
        entries.map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// Whether it can still be used, for a server of this name.
    fn is_good(&self, host: &str, now: i64) -> bool {
        self.host == host && self.expires - now > RENEWED
    }

    /// A new one, which follows another.
    fn make(host: &str, now: i64, before: Option<&Self>) -> Result<Self, CertificateError> {
        let expires = now + VALID;
        let pair = Pem::self_signed(host, day(now - DAY), day(expires))?;
        let trusted = before.filter(|before| before.expires > now);
        let old = trusted.map_or("", |before| before.pair.certificate.as_str());
        let bundle = format!("{}{old}", pair.certificate);
        Ok(Self { pair, bundle, host: host.to_owned(), expires })
    }
}

fn day(second: i64) -> Day {
    let date = Timestamp::from_second(second).unwrap_or_default().to_zoned(TimeZone::UTC).date();
    let part = |number: i8| u8::try_from(number).unwrap_or(1);
    (i32::from(date.year()), part(date.month()), part(date.day()))
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(
        "there is no Secret {WEBHOOK} in zonewise-system, where the certificate of the webhook is kept; it is part of the \
         chart, and of deploy/guard/webhook.yaml"
    )]
    NoSecret,
    #[error("the leader has not made a certificate for the webhook yet")]
    NotYet,
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Looks after the certificate.
pub(crate) struct Certificates {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    /// The name or address of the webhook.
    pub(crate) host: String,
    /// The one in use.
    pub(crate) served: watch::Sender<Option<Arc<Served>>>,
}

impl Certificates {
    /// Follows the Secret, and keeps a good certificate in it while this replica leads. Never ends.
    pub(crate) async fn keep(self) {
        loop {
            match self.look().await {
                Ok(found) => {
                    self.served.send_if_modified(|served| {
                        let is_new = served.as_deref() != Some(&found);
                        if is_new {
                            *served = Some(Arc::new(found));
                        }
                        is_new
                    });
                }
                Err(LookError::NotYet) => tracing::debug!("the webhook has no certificate yet"),
                Err(error) => {
                    tracing::warn!(%error, "the certificate of the webhook cannot be kept; it is tried again");
                }
            }
            let is_served = self.served.borrow().is_some();
            sleep(if is_served { PERIOD } else { EAGER }).await;
        }
    }

    async fn look(&self) -> Result<Served, LookError> {
        let secret = match requests::secret(&self.client).await {
            Err(ApiError::NotFound(_)) => return Err(LookError::NoSecret),
            answer => answer?,
        };
        let (found, now) = (Served::read(&secret.data), clock::now().as_second());
        match found {
            Some(found) if found.is_good(&self.host, now) => Ok(found),
            found if self.leadership.may_write() => {
                let made = Served::make(&self.host, now, found.as_ref())?;
                let written = Secret { data: made.data(), ..secret };
                requests::write_secret(&self.client, &written).await?;
                tracing::info!(host = self.host, "the webhook has a new certificate");
                Ok(made)
            }
            // Until the leader has made another.
            Some(found) if found.host == self.host => Ok(found),
            _ => Err(LookError::NotYet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10th of January 2026.
    const NOW: i64 = 1_768_003_200;

    #[test]
    fn a_certificate_is_replaced_a_month_before_it_ends_and_for_another_name() {
        let made = Served::make("a.svc", NOW, None).unwrap();
        let rows = [
            ("a.svc", 0, true),
            ("a.svc", 59, true),
            ("a.svc", 60, false),
            ("a.svc", 91, false),
            ("b.svc", 0, false),
        ];
        for (host, days, expected) in rows {
            assert_eq!(made.is_good(host, NOW + days * DAY), expected, "{host} after {days} days");
        }
        assert_eq!((day(NOW), day(NOW + VALID)), ((2026, 1, 10), (2026, 4, 10)));
    }

    #[test]
    fn the_one_before_is_trusted_until_it_ends() {
        let first = Served::make("a.svc", NOW, None).unwrap();
        assert_eq!(first.bundle, first.pair.certificate);
        let second = Served::make("a.svc", NOW + 60 * DAY, Some(&first)).unwrap();
        let both = format!("{}{}", second.pair.certificate, first.pair.certificate);
        assert_eq!(second.bundle, both);
        let late = Served::make("a.svc", NOW + 91 * DAY, Some(&first)).unwrap();
        assert_eq!(late.bundle, late.pair.certificate);
        assert_eq!(Served::read(&second.data()), Some(second));
    }

    #[test]
    fn a_secret_that_is_not_whole_has_no_certificate() {
        let whole = Served::make("a.svc", NOW, None).unwrap().data();
        assert_eq!(Served::read(&BTreeMap::new()), None);
        for key in whole.keys() {
            let mut data = whole.clone();
            data.remove(key);
            assert_eq!(Served::read(&data), None, "without {key}");
        }
        let odd = BTreeMap::from([("expires".to_owned(), "soon".to_owned())]);
        assert_eq!(Served::read(&whole.into_iter().chain(odd).collect()), None);
    }
}
