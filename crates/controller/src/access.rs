//! Who may read the metrics when they are served beyond loopback.
//!
//! ```text
//!  bearer token ─► TokenReview ─► user ─► SubjectAccessReview: get /metrics ─► the page
//!       │                │                        │
//!      none: 401     unknown: 401              no: 403        the API server does not answer: 503
//! ```
//!
//! Clients without rights cost the API server little: answers are remembered for a few seconds, and few reviews run at
//! once. What cannot be decided is refused.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use zonewise_cluster::review;
use zonewise_telemetry::server::{Guard, Page, PageRequest};

/// For how long an answer of the API server is used. A token that is withdrawn works for so long.
const MEMORY: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const MOST_REMEMBERED: usize = 256;
/// How many clients are reviewed at once; others wait.
const AT_ONCE: usize = 4;
/// How long a client waits for its review.
const LIMIT: Duration = Duration::from_secs(5);

/// What the API server says about a token and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    UnknownToken,
    Forbidden { user: String },
}

impl Verdict {
    fn page(&self, path: &str) -> Result<(), Page> {
        match self {
            Self::Allowed => Ok(()),
            Self::UnknownToken => Err(unauthorized("the API server does not accept the token")),
            Self::Forbidden { user } => Err(Page::text(
                403,
                format!(
                    "{user:?} may not get {path}; bind it to the ClusterRole zonewise-metrics-reader, or to another \
                     one with this nonResourceURL and the verb get\n"
                ),
            )),
        }
    }
}

fn unauthorized(why: &str) -> Page {
    let text =
        format!("{why}; send `Authorization: Bearer TOKEN` with a service account's token\n");
    let mut page = Page::text(401, text);
    page.headers.push(("www-authenticate", "Bearer".to_owned()));
    page
}

fn undecided() -> Page {
    let text = "the API server cannot be asked who may read this now; the log of the controller says why\n";
    Page::text(503, text)
}

/// A digest of a token, because tokens are not kept, and the path.
type Question = (Vec<u8>, String);

fn question(token: &str, path: &str) -> Question {
    (digest(&SHA256, token.as_bytes()).as_ref().to_vec(), path.to_owned())
}

/// Answers of the last seconds, a bounded number of them.
#[derive(Debug, Default)]
struct Memory(BTreeMap<Question, (Instant, Verdict)>);

impl Memory {
    fn get(&self, question: &Question, now: Instant) -> Option<Verdict> {
        let (until, verdict) = self.0.get(question)?;
        (now < *until).then(|| verdict.clone())
    }

    fn put(&mut self, question: Question, verdict: Verdict, now: Instant) {
        self.0.retain(|_, (until, _)| now < *until);
        if self.0.len() >= MOST_REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, (until, _))| *until);
            let oldest = oldest.map(|(question, _)| question.clone());
            oldest.map(|question| self.0.remove(&question));
        }
        self.0.insert(question, (now + MEMORY, verdict));
    }
}

/// Asks the API server.
pub(crate) struct Reviewer {
    client: Client,
    memory: Mutex<Memory>,
    permits: Semaphore,
    /// Whether the log has told that the API server cannot be asked.
    told: Mutex<bool>,
}

impl Reviewer {
    pub(crate) fn new(client: Client) -> Self {
        let permits = Semaphore::new(AT_ONCE);
        Self { client, memory: Mutex::default(), permits, told: Mutex::new(false) }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, String> {
        let question = question(token, path);
        let known = self.memory.lock().get(&question, Instant::now());
        if let Some(known) = known {
            return Ok(known);
        }
        let review = async {
            let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
            self.review(token, path).await
        };
        let late = format!("no answer within {} s", LIMIT.as_secs());
        let verdict = timeout(LIMIT, review).await.unwrap_or(Err(late));
        self.tell(verdict.as_ref().err().map(String::as_str));
        let verdict = verdict?;
        self.memory.lock().put(question, verdict.clone(), Instant::now());
        Ok(verdict)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Verdict, String> {
        let user = review::authenticate(&self.client, token).await;
        let Some(user) = user.map_err(|error| format!("TokenReview: {error}"))? else {
            return Ok(Verdict::UnknownToken);
        };
        let name = user.username.clone().unwrap_or_default();
        let allowed = review::may_get(&self.client, user, path).await;
        let allowed = allowed.map_err(|error| format!("SubjectAccessReview: {error}"))?;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden { user: name } })
    }

    /// Logs once that the API server cannot be asked, and once that it can again.
    fn tell(&self, failure: Option<&str>) {
        let told = std::mem::replace(&mut *self.told.lock(), failure.is_some());
        match failure {
            Some(error) if !told => tracing::warn!(
                error,
                "nobody gets the metrics, because the API server cannot be asked who may read them"
            ),
            None if told => tracing::info!("the API server says again who may read the metrics"),
            _ => {}
        }
    }
}

impl Guard for Reviewer {
    fn admit<'a>(
        &'a self,
        request: PageRequest<'a>,
        token: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        Box::pin(async move {
            let token = token.ok_or_else(|| unauthorized("a bearer token is needed"))?;
            let verdict = self.verdict(token, request.path).await;
            verdict.map_err(|_| undecided())?.page(request.path)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_remembered_for_a_while_and_not_too_many() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let asked = |n: usize| question(&format!("token {n}"), "/metrics");
        memory.put(asked(0), Verdict::Allowed, start);
        assert_eq!(memory.get(&asked(0), start), Some(Verdict::Allowed));
        assert_eq!(memory.get(&question("token 0", "/other"), start), None);
        assert_eq!(memory.get(&asked(1), start), None);
        assert_eq!(memory.get(&asked(0), start + MEMORY), None, "it is old");

        let later = start + Duration::from_secs(1);
        for n in 1..=MOST_REMEMBERED {
            memory.put(asked(n), Verdict::UnknownToken, later);
        }
        assert_eq!(memory.0.len(), MOST_REMEMBERED);
        assert_eq!(memory.get(&asked(0), later), None, "the oldest makes room");
        assert_eq!(memory.get(&asked(MOST_REMEMBERED), later), Some(Verdict::UnknownToken));
        memory.put(asked(0), Verdict::Allowed, later + MEMORY);
        assert_eq!(memory.0.len(), 1, "old ones are forgotten");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = |verdict: Verdict| verdict.page("/metrics").unwrap_err();
        let page = refused(Verdict::UnknownToken);
        assert_eq!((page.status, page.headers[0].0), (401, "www-authenticate"));
        assert!(page.body.contains("Authorization: Bearer"), "{}", page.body);
        let page = refused(Verdict::Forbidden { user: "a\nb".to_owned() });
        assert_eq!(page.status, 403);
        assert!(
            page.body.starts_with("\"a\\nb\" may not get /metrics; bind it to"),
            "{}",
            page.body
        );
        assert_eq!(Verdict::Allowed.page("/metrics"), Ok(()));
    }
}
