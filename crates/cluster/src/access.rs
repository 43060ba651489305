//! Who may read a page that is served beyond loopback: the metrics of the controller, the counts of a proxy.
//!
//! ```text
//!  bearer token ─► known? ─► not too often? ─► TokenReview ─► user ─► SubjectAccessReview: get PATH ─► the page
//!       │            │            │                 │                        │
//!      none: 401     │         no: 429          unknown: 401              no: 403
//!                    └─ the answer of the last seconds       the API server does not answer: 503
//! ```
//!
//! Clients without rights cost the API server little: answers are remembered for a few seconds, few reviews run at
//! once, and tokens that were not admitted before share a few reviews per second. Other paths do not exist, for
//! everybody, and need no review. What cannot be decided is refused.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use zonewise_telemetry::server::{AccessControl, Page, PageRequest};

use crate::review;

/// The page that is not for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// Its path, the only one that is served.
    pub path: &'static str,
    /// What it shows, in the plural, for messages: `the metrics`.
    pub what: &'static str,
    /// The ClusterRole that allows to read it.
    pub role: &'static str,
    /// The audience that tokens must have; `None` for that of the API server itself. A token for another audience is
    /// refused, so that one that is stolen elsewhere is of no use here.
    pub audience: Option<&'static str>,
    /// For how long a token that was admitted is not reviewed again. One that is withdrawn works for so long.
    pub admitted_for: Duration,
}

/// For how long an answer of the API server is used, unless a page says otherwise for tokens that are admitted.
pub const MEMORY: Duration = Duration::from_secs(10);
/// For how long a token that was admitted is reviewed again without counting against the rate of unknown tokens, so that
/// clients with unknown tokens cannot keep it out: longer than scrapes are apart.
pub const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How many answers are remembered.
const MOST_REMEMBERED: usize = 256;
/// How many clients are reviewed at once; others wait.
const AT_ONCE: usize = 4;
/// How long a client waits for its turn.
const TURN: Duration = Duration::from_secs(2);
/// How long it waits for its review.
const LIMIT: Duration = Duration::from_secs(5);
/// How often tokens are reviewed that were not admitted before: once in this time on average …
const INTERVAL: Duration = Duration::from_millis(100);
/// … and so often at once after a rest.
const BURST: u32 = 20;

/// What the API server says about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenReview {
    Allowed,
    UnknownToken,
    Forbidden { user: String },
}

impl TokenReview {
    fn page(&self, Protected { path, role, .. }: Protected) -> Result<(), Page> {
        match self {
            Self::Allowed => Ok(()),
            Self::UnknownToken => Err(unauthorized("the API server does not accept the token")),
            Self::Forbidden { user } => Err(Page::text(
                403,
                format!(
                    "{user:?} may not get {path}; bind it to the ClusterRole {role}, or to another one with this \
                     nonResourceURL and the verb get\n"
                ),
            )),
        }
    }
}

/// Why there is no verdict.
#[derive(Debug, PartialEq, Eq)]
enum Undecided {
    /// There are too many clients that are not known.
    Busy,
    /// The API server cannot be asked.
    Unavailable,
}

impl Undecided {
    fn page(&self) -> Page {
        match self {
            Self::Busy => too_many_clients(),
            Self::Unavailable => Page::text(
                503,
                "the API server cannot be asked who may read this now; the log of this program says why\n",
            ),
        }
    }
}

/// The answer when a review would be one too many.
pub fn too_many_clients() -> Page {
    let text =
        "too many clients with tokens that were not admitted before; try again in a second\n";
    let mut page = Page::text(429, text);
    page.headers.push(("retry-after", "1".to_owned()));
    page
}

fn unauthorized(why: &str) -> Page {
    let text =
        format!("{why}; send `Authorization: Bearer TOKEN` with a service account's token\n");
    let mut page = Page::text(401, text);
    page.headers.push(("www-authenticate", "Bearer".to_owned()));
    page
}

/// A digest of a token, because tokens are not kept.
pub type Digest = Vec<u8>;

/// The digest of a token.
pub fn digest_of(token: &str) -> Digest {
    digest(&SHA256, token.as_bytes()).as_ref().to_vec()
}

/// The last answers, a bounded number of them.
#[derive(Debug, Default)]
struct Memory(BTreeMap<Digest, (Instant, TokenReview)>);

impl Memory {
    /// The last answer, as long as it may be used.
    fn get(&self, token: &Digest, admitted_for: Duration, now: Instant) -> Option<TokenReview> {
        let (since, verdict) = self.0.get(token)?;
        let limit = if *verdict == TokenReview::Allowed { admitted_for } else { MEMORY };
        (now < *since + limit).then(|| verdict.clone())
    }

    /// Whether the token was admitted when it was last reviewed, and that is not too long ago.
    fn was_admitted(&self, token: &Digest, now: Instant) -> bool {
        let admitted = |(since, verdict): &(Instant, TokenReview)| {
            *verdict == TokenReview::Allowed && now < *since + KNOWN_FOR
        };
        self.0.get(token).is_some_and(admitted)
    }

    fn put(&mut self, token: Digest, verdict: TokenReview, now: Instant) {
        self.0.retain(|_, (since, verdict)| {
            now < *since + if *verdict == TokenReview::Allowed { KNOWN_FOR } else { MEMORY }
        });
        if self.0.len() >= MOST_REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, (since, _))| *since);
            let oldest = oldest.map(|(token, _)| token.clone());
            oldest.map(|token| self.0.remove(&token));
        }
        self.0.insert(token, (now, verdict));
    }
}

/// Limits how often tokens are reviewed that were not admitted before: a token bucket, kept as the time at which it is
/// full.
#[derive(Debug)]
pub struct ReviewRate {
    full: Instant,
}

impl ReviewRate {
    /// A full bucket.
    pub fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Whether a review may happen now; counts it then.
    pub fn allows(&mut self, now: Instant) -> bool {
        let full = self.full.max(now) + INTERVAL;
        let allowed = full <= now + INTERVAL * BURST;
        if allowed {
            self.full = full;
        }
        allowed
    }
}

/// Asks the API server.
pub struct Reviewer {
    client: Client,
    page: Protected,
    memory: Mutex<Memory>,
    rate: Mutex<ReviewRate>,
    permits: Semaphore,
    /// Whether the log says already that the API server cannot be asked.
    logged: Mutex<bool>,
}

impl Reviewer {
    /// A reviewer that has admitted no client yet.
    pub fn new(client: Client, page: Protected) -> Self {
        Self {
            client,
            page,
            memory: Mutex::default(),
            rate: Mutex::new(ReviewRate::new(Instant::now())),
            permits: Semaphore::new(AT_ONCE),
            logged: Mutex::new(false),
        }
    }

    async fn verdict(&self, token: &str) -> Result<TokenReview, Undecided> {
        let (digest, now) = (digest_of(token), Instant::now());
        let (known, admitted_before) = {
            let memory = self.memory.lock();
            (memory.get(&digest, self.page.admitted_for, now), memory.was_admitted(&digest, now))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        if !admitted_before && !self.rate.lock().allows(now) {
            return Err(Undecided::Busy);
        }
        // A client that waits in vain says nothing about the API server: the clients before it find out.
        let Ok(Ok(_permit)) = timeout(TURN, self.permits.acquire()).await else {
            return Err(Undecided::Busy);
        };
        let late = format!("no answer within {} s", LIMIT.as_secs());
        let verdict = timeout(LIMIT, self.review(token)).await.unwrap_or(Err(late));
        self.log_change(verdict.as_ref().err().map(String::as_str));
        let verdict = verdict.map_err(|_| Undecided::Unavailable)?;
        self.memory.lock().put(digest, verdict.clone(), Instant::now());
        Ok(verdict)
    }

    async fn review(&self, token: &str) -> Result<TokenReview, String> {
        let user = review::authenticate(&self.client, token, self.page.audience).await;
        let Some(user) = user.map_err(|error| format!("TokenReview: {error}"))? else {
            return Ok(TokenReview::UnknownToken);
        };
        let name = user.username.clone().unwrap_or_default();
        let allowed = review::may_get(&self.client, user, self.page.path).await;
        let allowed = allowed.map_err(|error| format!("SubjectAccessReview: {error}"))?;
        Ok(if allowed { TokenReview::Allowed } else { TokenReview::Forbidden { user: name } })
    }

    /// Logs once that the API server cannot be asked, and once that it can again.
    fn log_change(&self, failure: Option<&str>) {
        let logged = std::mem::replace(&mut *self.logged.lock(), failure.is_some());
        let what = self.page.what;
        match failure {
            Some(error) if !logged => tracing::warn!(
                error,
                "no client gets {what}: the API server cannot be asked who may read them"
            ),
            None if logged => {
                tracing::info!("the API server answers reviews of tokens again; {what} are served");
            }
            _ => {}
        }
    }
}

impl AccessControl for Reviewer {
    fn admit<'a>(
        &'a self,
        request: PageRequest<'a>,
        token: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        Box::pin(async move {
            if request.path != self.page.path {
                return Err(Page::not_found());
            }
            let token = token.ok_or_else(|| unauthorized("a bearer token is needed"))?;
            self.verdict(token).await.map_err(|undecided| undecided.page())?.page(self.page)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const PATH: &str = "/metrics";
    const METRICS: Protected = Protected {
        path: PATH,
        what: "the metrics",
        role: "zonewise-metrics-reader",
        audience: None,
        admitted_for: MEMORY,
    };

    #[tokio::test(start_paused = true)]
    async fn answers_are_remembered_for_a_while_and_not_too_many() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let token = |n: usize| digest_of(&format!("token {n}"));
        memory.put(token(0), TokenReview::Allowed, start);
        assert_eq!(memory.get(&token(0), MEMORY, start), Some(TokenReview::Allowed));
        assert_eq!(memory.get(&token(1), MEMORY, start), None);
        let old = start + MEMORY;
        assert_eq!(memory.get(&token(0), MEMORY, old), None, "it is old");
        assert_eq!(
            memory.get(&token(0), 2 * MEMORY, old),
            Some(TokenReview::Allowed),
            "not for this page"
        );
        assert!(memory.was_admitted(&token(0), old), "but it was admitted");
        assert!(!memory.was_admitted(&token(0), start + KNOWN_FOR));

        for n in 1..=MOST_REMEMBERED {
            memory.put(token(n), TokenReview::UnknownToken, old);
        }
        assert_eq!(memory.0.len(), MOST_REMEMBERED);
        assert!(!memory.was_admitted(&token(0), old), "the oldest makes room");
        assert_eq!(
            memory.get(&token(MOST_REMEMBERED), MEMORY, old),
            Some(TokenReview::UnknownToken)
        );
        assert!(!memory.was_admitted(&token(MOST_REMEMBERED), old));
        let older = old + MEMORY;
        assert_eq!(memory.get(&token(MOST_REMEMBERED), 2 * MEMORY, older), None, "not admitted");
        memory.put(token(0), TokenReview::Allowed, old + MEMORY);
        assert_eq!(memory.0.len(), 1, "old ones are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_has_a_burst_and_an_average() {
        let start = Instant::now();
        let mut rate = ReviewRate::new(start);
        let mut allowed =
            |after: Duration| (0..1000).filter(|_| rate.allows(start + after)).count();
        let burst = usize::try_from(BURST).unwrap();
        assert_eq!(allowed(Duration::ZERO), burst);
        assert_eq!(allowed(INTERVAL - Duration::from_millis(1)), 0);
        assert_eq!(allowed(INTERVAL), 1);
        assert_eq!(allowed(INTERVAL * 6), 5);
        assert_eq!(allowed(Duration::from_secs(3600)), burst, "a long rest gives no more");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = |verdict: TokenReview| verdict.page(METRICS).unwrap_err();
        let page = refused(TokenReview::UnknownToken);
        assert_eq!((page.status, page.headers[0].0), (401, "www-authenticate"));
        assert!(page.body.contains("Authorization: Bearer"), "{}", page.body);
        let page = refused(TokenReview::Forbidden { user: "a\nb".to_owned() });
        assert_eq!(page.status, 403);
        assert!(
            page.body.starts_with(
                "\"a\\nb\" may not get /metrics; bind it to the ClusterRole zonewise-metrics-reader"
            ),
            "{}",
            page.body
        );
        assert_eq!(TokenReview::Allowed.page(METRICS), Ok(()));
    }

    /// A reviewer whose API server accepts the token `good` alone and hangs when it sees the token `hang`, with the
    /// number of requests that it gets.
    fn reviewer() -> (Reviewer, Arc<AtomicUsize>) {
        reviewer_of(METRICS)
    }

    fn reviewer_of(page: Protected) -> (Reviewer, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let answer = move |request: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let token = review["spec"]["token"].clone();
                if token == "hang" {
                    std::future::pending::<()>().await;
                }
                review["status"] = if token.is_null() {
                    json!({"allowed": true})
                } else {
                    let user = json!({"username": "prometheus"});
                    json!({"authenticated": token == "good", "user": user, "audiences": ["us"]})
                };
                Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        (Reviewer::new(client, page), requests)
    }

    async fn status(reviewer: &Reviewer, path: &str, token: Option<&str>) -> u16 {
        let request = PageRequest { method: "GET", path, query: "" };
        reviewer.admit(request, token).await.map_or_else(|page| page.status, |()| 200)
    }

    /// Time stands still while the strangers come, however slow the machine is.
    #[tokio::test(start_paused = true)]
    async fn tokens_that_nobody_knows_cost_few_requests_and_keep_no_scraper_out() {
        let (reviewer, requests) = reviewer();
        assert_eq!(status(&reviewer, PATH, Some("good")).await, 200);
        assert_eq!(requests.load(Ordering::SeqCst), 2, "one of each kind");
        tokio::time::advance(KNOWN_FOR / 2).await;
        let mut seen = BTreeMap::<u16, u32>::new();
        for n in 0..1000 {
            *seen.entry(status(&reviewer, PATH, Some(&format!("{n}"))).await).or_default() += 1;
        }
        assert_eq!(seen, BTreeMap::from([(401, BURST), (429, 1000 - BURST)]));
        assert_eq!(requests.load(Ordering::SeqCst), 2 + usize::try_from(BURST).unwrap());
        assert_eq!(status(&reviewer, PATH, Some("good")).await, 200);
        let page = reviewer.verdict("another").await.unwrap_err().page();
        assert_eq!(page.headers, [("retry-after", "1".to_owned())]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(status(&reviewer, PATH, Some("another")).await, 401, "after the pause");
    }

    /// An API server that does not know audiences leaves them out of its answer: such a token may be meant for anybody.
    #[tokio::test(start_paused = true)]
    async fn a_token_for_somebody_else_is_not_accepted() {
        for (audience, expected) in [(None, 200), (Some("us"), 200), (Some("them"), 401)] {
            let (reviewer, _) = reviewer_of(Protected { audience, ..METRICS });
            assert_eq!(status(&reviewer, PATH, Some("good")).await, expected, "{audience:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_that_do_not_exist_need_no_review() {
        let (reviewer, requests) = reviewer();
        for token in [None, Some("good"), Some("bad")] {
            for path in ["/", "/other", "/metrics/", "/METRICS", "//metrics"] {
                assert_eq!(status(&reviewer, path, token).await, 404, "{path}");
            }
        }
        assert_eq!(requests.load(Ordering::SeqCst), 0);
    }

    /// A client that waits in vain for its turn is asked to come again; that the API server does not answer is said, and logged,
    /// by those that have asked it.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_in_vain_says_nothing_about_the_api_server() {
        let (reviewer, requests) = reviewer();
        let reviewer = Arc::new(reviewer);
        let asking: Vec<_> = (0..AT_ONCE)
            .map(|_| Arc::clone(&reviewer))
            .map(|reviewer| tokio::spawn(async move { reviewer.verdict("hang").await }))
            .collect();
        while requests.load(Ordering::SeqCst) < AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert_eq!(reviewer.verdict("good").await, Err(Undecided::Busy));
        for asking in asking {
            assert_eq!(asking.await.unwrap(), Err(Undecided::Unavailable));
        }
        assert!(*reviewer.logged.lock());
        assert_eq!(reviewer.verdict("good").await, Ok(TokenReview::Allowed));
        assert!(!*reviewer.logged.lock());
    }
}
