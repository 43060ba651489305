//! The certificate of the webhook. It is in a Secret, so that all replicas have the same one: the API server reaches
//! either of them, and one that starts again is trusted at once. The service account may read and change that Secret
//! alone, which the chart creates empty; so it needs no right to create any.
//!
//! ```text
//!  leader ─► Secret: current ──────────────┬─► every replica looks, and serves with it
//!              ▲     next, prepared        │
//!              │     accepted: both ───────┴─► leader ─► caBundle of the webhook
//!              └──── next becomes current ◄──────────────┘ once the API server has it
//! ```
//!
//! A certificate is accepted before it is served with, and for a while after another one has followed it: there is no
//! moment in which the API server reaches a replica that it does not trust. Only where there is none that can be used, the
//! new one is served with at once.
//!
//! A replica that does not lead serves with what is there, also if that is for another name, and is ready without any. It
//! may be the first of a rollout whose leader, still of the configuration before, would never make another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::lease::Leadership;
use zonewise_common::clock;
use zonewise_inventory::webhook::{self as requests, WEBHOOK};
use zonewise_telemetry::tls::{CertificateError, Day, Pem, Tls};

use super::IN_FORCE_AFTER;

const DAY_SECONDS: i64 = 24 * 3600;
/// How long a certificate is valid. It begins a day early, for clocks that differ.
const VALIDITY_SECONDS: i64 = 90 * DAY_SECONDS;
/// It is replaced when it is valid for less than this.
const RENEW_BEFORE_SECONDS: i64 = 30 * DAY_SECONDS;
/// How often the Secret is looked at while something is to be done about it …
const UNSETTLED_PERIOD: Duration = Duration::from_secs(1);
/// … and when not.
const PERIOD: Duration = Duration::from_secs(30);
/// How long a certificate is accepted after another one has followed it: until every replica has looked.
const ACCEPTED: Duration = Duration::from_secs(3600);

/// A certificate, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    pair: Pem,
    /// The name or address that it is for.
    host: String,
    /// When it ends, in seconds since 1970.
    expires: i64,
}

impl Held {
    fn make(host: &str, now: i64) -> Result<Self, CertificateError> {
        let expires = now + VALIDITY_SECONDS;
        let pair = Pem::self_signed(host, day(now - DAY_SECONDS), day(expires))?;
        Ok(Self { pair, host: host.to_owned(), expires })
    }

    /// Whether it need not be replaced yet, for a server of this name.
    fn is_good(&self, host: &str, now: i64) -> bool {
        self.host == host && self.expires - now > RENEW_BEFORE_SECONDS
    }

    fn read(data: &BTreeMap<String, String>, keys: &Keys) -> Option<Self> {
        let text = |key: &str| data.get(key).cloned();
        let [certificate, key, host, expires] = keys.map(text);
        let (pair, expires) = (Pem { certificate: certificate?, key: key? }, expires?.parse());
        Some(Self { pair, host: host?, expires: expires.ok()? })
    }

    fn values(&self) -> [String; 4] {
        let Self { pair: Pem { certificate, key }, host, expires } = self;
        [certificate.clone(), key.clone(), host.clone(), expires.to_string()]
    }
}

/// The keys of the Secret for a certificate, its private key, its name and its end.
type Keys = [&'static str; 4];
const CURRENT: Keys = ["tls.crt", "tls.key", "host", "expires"];
const NEXT: Keys = ["next.crt", "next.key", "next.host", "next.expires"];
/// The key for the certificates that the API server accepts.
const ACCEPTED_ONES: &str = "ca.crt";

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The certificate that replicas serve with.
    current: Held,
    /// The one that follows, once the API server accepts it.
    next: Option<Held>,
    /// The certificates that the API server is to accept.
    pub(crate) bundle: String,
}

impl Served {
    /// What the Secret holds; `None` if it is empty. An error if it cannot be used.
    fn read(data: &BTreeMap<String, String>) -> Result<Option<Self>, CertificateError> {
        if data.is_empty() {
            return Ok(None);
        }
        let missing = || CertificateError::Unusable("entries are missing".to_owned());
        let current = Held::read(data, &CURRENT).ok_or_else(missing)?;
        let bundle = data.get(ACCEPTED_ONES).cloned().ok_or_else(missing)?;
        let next = Held::read(data, &NEXT);
        for held in std::iter::once(&current).chain(&next) {
            held.pair.check(&bundle)?;
        }
        Ok(Some(Self { current, next, bundle }))
    }

    fn data(&self) -> BTreeMap<String, Option<String>> {
        let next = match &self.next {
            Some(next) => next.values().map(Some),
            None => [const { None }; 4],
        };
        let current = CURRENT.into_iter().zip(self.current.values().map(Some));
        let entries = current.chain(NEXT.into_iter().zip(next));
        let bundle = (ACCEPTED_ONES, Some(self.bundle.clone()));
        entries.chain([bundle]).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// With a new certificate, which is served with at once.
    pub(super) fn first(host: &str, now: i64) -> Result<Self, CertificateError> {
        let current = Held::make(host, now)?;
        Ok(Self { bundle: current.pair.certificate.clone(), current, next: None })
    }

    /// With a new certificate that is to follow.
    fn prepared(&self, host: &str, now: i64) -> Result<Self, CertificateError> {
        let (current, next) = (self.current.clone(), Held::make(host, now)?);
        let bundle = format!("{}{}", next.pair.certificate, current.pair.certificate);
        Ok(Self { current, next: Some(next), bundle })
    }

    /// What the leader makes of what the Secret holds; `None` if that is as it should be.
    fn step(&self, host: &str, now: i64, seen: Seen) -> Result<Option<Self>, CertificateError> {
        let Self { current, next, bundle } = self;
        let only = &current.pair.certificate;
        match next {
            _ if current.expires <= now => Self::first(host, now).map(Some),
            Some(next) if !next.is_good(host, now) => self.prepared(host, now).map(Some),
            Some(next) if seen.is_accepted => {
                let (current, bundle) = (next.clone(), bundle.clone());
                Ok(Some(Self { current, next: None, bundle }))
            }
            Some(_) => Ok(None),
            None if !current.is_good(host, now) => self.prepared(host, now).map(Some),
            None if bundle != only && seen.is_old => {
                Ok(Some(Self { bundle: only.clone(), ..self.clone() }))
            }
            None => Ok(None),
        }
    }

    /// Whether nothing is to be done about it soon, for a server of this name.
    fn is_settled(&self, host: &str) -> bool {
        self.next.is_none() && self.current.host == host
    }
}

/// What is known about the contents of a Secret.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The API server accepts its certificates.
    is_accepted: bool,
    /// It has been so for long enough that every replica serves with its certificate.
    is_old: bool,
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

/// Certificates that the API server was told to accept, and since when.
pub(crate) type Installed = Option<(String, Instant)>;

/// Looks after the certificate.
pub(crate) struct Certificates {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    /// The name or address of the webhook.
    pub(crate) host: String,
    /// What is served with it.
    pub(crate) tls: Arc<Tls>,
    /// The one in use.
    pub(crate) served: watch::Sender<Option<Arc<Served>>>,
    /// What the configuration of the webhook has.
    pub(crate) installed: watch::Receiver<Installed>,
}

impl Certificates {
    /// Follows the Secret, and keeps a good certificate in it while this replica leads. Never ends.
    pub(crate) async fn keep(self) {
        let mut since = Instant::now();
        loop {
            match self.look(since).await {
                Ok(found) if self.is_new(&found) => {
                    since = Instant::now();
                    self.use_from_now_on(found);
                }
                Ok(_) => {}
                Err(LookError::NotYet) => tracing::debug!("the webhook has no certificate yet"),
                Err(error) => {
                    tracing::warn!(%error, "the webhook's certificate cannot be read from its Secret, or written to it; it is tried again");
                }
            }
            let is_settled =
                self.served.borrow().as_ref().is_some_and(|served| served.is_settled(&self.host));
            sleep(if is_settled { PERIOD } else { UNSETTLED_PERIOD }).await;
        }
    }

    fn is_new(&self, found: &Served) -> bool {
        self.served.borrow().as_deref() != Some(found)
    }

    fn use_from_now_on(&self, found: Served) {
        match self.tls.replace(&found.current.pair) {
            Ok(()) => drop(self.served.send_replace(Some(Arc::new(found)))),
            Err(error) => {
                tracing::error!(%error, "the certificate of the webhook cannot be used; the one before stays");
            }
        }
    }

    /// What the Secret holds, which is known `since` then, or what this replica has made of it as the leader.
    async fn look(&self, since: Instant) -> Result<Served, LookError> {
        let secret = match requests::secret(&self.client).await {
            Err(ApiError::NotFound(_)) => return Err(LookError::NoSecret),
            answer => answer?,
        };
        let found = Served::read(&secret.data).unwrap_or_else(|error| {
            tracing::warn!(%error, "the Secret {WEBHOOK} holds no certificate that can be used; the leader replaces it");
            None
        });
        let made = match &found {
            _ if !self.leadership.may_write() => None,
            None => Some(Served::first(&self.host, clock::now().as_second())?),
            Some(found) => {
                let seen = self.seen(found, since);
                found.step(&self.host, clock::now().as_second(), seen)?
            }
        };
        let Some(made) = made else { return found.ok_or(LookError::NotYet) };
        requests::write_secret(&self.client, &secret.version, &made.data()).await?;
        tracing::info!(
            host = self.host,
            is_prepared = made.next.is_some(),
            "the certificate of the webhook was renewed"
        );
        Ok(made)
    }

    fn seen(&self, found: &Served, since: Instant) -> Seen {
        let installed = self.installed.borrow();
        let is_accepted = installed
            .as_ref()
            .is_some_and(|(bundle, at)| *bundle == found.bundle && at.elapsed() >= IN_FORCE_AFTER);
        Seen { is_accepted, is_old: !self.is_new(found) && since.elapsed() >= ACCEPTED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10th of January 2026.
    const NOW: i64 = 1_768_003_200;
    const UNKNOWN: Seen = Seen { is_accepted: false, is_old: false };
    const IS_ACCEPTED: Seen = Seen { is_accepted: true, is_old: false };
    const IS_OLD: Seen = Seen { is_accepted: true, is_old: true };

    #[test]
    fn a_certificate_is_replaced_a_month_before_it_ends_and_for_another_name() {
        let made = Held::make("a.svc", NOW).unwrap();
        let rows = [
            ("a.svc", 0, true),
            ("a.svc", 59, true),
            ("a.svc", 60, false),
            ("a.svc", 91, false),
            ("b.svc", 0, false),
        ];
        for (host, days, expected) in rows {
            assert_eq!(
                made.is_good(host, NOW + days * DAY_SECONDS),
                expected,
                "{host} after {days} days"
            );
        }
        assert_eq!((day(NOW), day(NOW + VALIDITY_SECONDS)), ((2026, 1, 10), (2026, 4, 10)));
    }

    /// Serving with a certificate that the API server does not accept yet would cost hints.
    #[test]
    fn a_certificate_is_accepted_before_it_is_served_with_and_for_a_while_after() {
        for (host, later) in [("a.svc", NOW + 60 * DAY_SECONDS), ("b.svc", NOW + DAY_SECONDS)] {
            let first = Served::first("a.svc", NOW).unwrap();
            let one = first.current.pair.certificate.clone();
            assert_eq!(first.bundle, one);
            let step = |from: &Served, seen| from.step(host, later, seen).unwrap();

            let prepared = step(&first, UNKNOWN).unwrap();
            assert_eq!(prepared.current, first.current, "still served with");
            let next = prepared.next.clone().unwrap();
            assert_eq!(prepared.bundle, format!("{}{one}", next.pair.certificate));
            assert!(!prepared.is_settled("a.svc") && !prepared.is_settled("b.svc"));
            assert_eq!(step(&prepared, UNKNOWN), None, "until it is accepted");

            let follows = step(&prepared, IS_ACCEPTED).unwrap();
            let bundle = prepared.bundle.clone();
            assert_eq!(follows, Served { current: next.clone(), next: None, bundle });
            assert!(follows.is_settled(host));
            assert_eq!(step(&follows, IS_ACCEPTED), None, "until every replica serves with it");

            let alone = step(&follows, IS_OLD).unwrap();
            let bundle = next.pair.certificate.clone();
            assert_eq!(alone, Served { current: next, next: None, bundle });
            assert_eq!(step(&alone, IS_OLD), None);
        }
    }

    #[test]
    fn what_has_ended_is_followed_at_once_and_what_was_prepared_in_vain_is_made_anew() {
        let first = Served::first("a.svc", NOW).unwrap();
        let late = first.step("a.svc", NOW + 91 * DAY_SECONDS, UNKNOWN).unwrap().unwrap();
        assert_ne!(late.current, first.current);
        assert_eq!((late.next, late.bundle), (None, late.current.pair.certificate));
        let prepared = first.prepared("b.svc", NOW).unwrap();
        let other = prepared.step("c.svc", NOW, IS_ACCEPTED).unwrap().unwrap();
        assert_eq!((&other.current, other.next.unwrap().host), (&first.current, "c.svc".into()));
    }

    /// What a Secret holds after this was written to it.
    fn written(served: &Served) -> BTreeMap<String, String> {
        served.data().into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    #[test]
    fn a_secret_reads_as_it_was_written() {
        let first = Served::first("a.svc", NOW).unwrap();
        let prepared = first.prepared("a.svc", NOW).unwrap();
        for served in [&first, &prepared] {
            assert_eq!(Served::read(&written(served)).unwrap().as_ref(), Some(served));
        }
        // What was prepared goes from the Secret when it has followed.
        let keys = |served: &Served| served.data().into_keys().collect::<Vec<_>>();
        assert_eq!(keys(&first), keys(&prepared));
        assert_eq!(Served::read(&BTreeMap::new()).unwrap(), None);
    }

    #[test]
    fn a_secret_that_cannot_be_used_is_told() {
        let whole = written(&Served::first("a.svc", NOW).unwrap());
        for key in whole.keys() {
            let mut data = whole.clone();
            data.remove(key);
            assert!(Served::read(&data).is_err(), "without {key}");
        }
        for key in ["tls.crt", "tls.key", "ca.crt", "expires"] {
            let odd = BTreeMap::from([(key.to_owned(), "garbage".to_owned())]);
            let data = whole.clone().into_iter().chain(odd).collect();
            assert!(Served::read(&data).is_err(), "{key}");
        }
    }
}
