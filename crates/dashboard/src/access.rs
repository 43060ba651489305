//! Who sees which namespaces.
//!
//! ```text
//!  token ─► known? ─► not too often? ─► TokenReview ─► user ─► SubjectAccessReview: list Services and EndpointSlices, of
//!    │        │            │                │                  all namespaces, or of each ─► what this person sees
//!   none: 401 │         no: 429         unknown: 401                                               │ none: 403
//!             └─ the answer of the last minute           the API server does not answer: 503,
//!                                                        or the answer of the last ten minutes
//! ```
//!
//! What cannot be decided is refused, but for people that the API server has admitted shortly before it failed: an
//! incident is when they need the page. Tokens are not kept, only digests of them, and nothing is stored in the browser.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use zonewise_cluster::access::{Digest, ReviewRate, digest_of, too_many_clients};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::review::{self, UserInfo};
use zonewise_common::api_group::DISCOVERY;
use zonewise_common::name::Name;
use zonewise_telemetry::server::Page;

use crate::hub::Hub;
use crate::memory::{Memory, PersonReview};

/// The namespaces that somebody may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All of them.
    All,
    /// These alone.
    Namespaces(BTreeSet<String>),
}

impl Allowed {
    /// Whether a namespace may be seen.
    pub(crate) fn namespace(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(allowed) => allowed.contains(name),
        }
    }

    /// Whether a Service may be seen, by its namespace.
    pub(crate) fn service(&self, name: &str) -> bool {
        name.split_once('/').is_some_and(|(namespace, _)| self.namespace(namespace))
    }
}

/// How it is decided who sees what.
pub enum Access {
    /// Every client that reaches the address sees everything: it is one of this machine.
    Open,
    /// The API server is asked.
    Reviewed(Box<Reviewer>),
}

impl Access {
    /// Asks an API server.
    pub fn reviewed(client: Client) -> Self {
        Self::Reviewed(Box::new(Reviewer::new(client)))
    }

    /// What the bearer of a token may see.
    ///
    /// # Errors
    /// The page that says why nothing.
    pub(crate) async fn allowed(&self, token: Option<&str>, hub: &Hub) -> Result<Allowed, Page> {
        match self {
            Self::Open => Ok(Allowed::All),
            Self::Reviewed(reviewer) => reviewer.allowed(token, hub.namespaces().as_deref()).await,
        }
    }
}

/// How many clients are reviewed at once; others wait.
const AT_ONCE: usize = 4;
/// How many questions about one client are asked at once.
const QUESTIONS: usize = 8;
/// How long a client waits for its turn, and for its review.
const TURN: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

/// What a person must be able to list in a namespace in order to see it: what the page is made of.
const RESOURCES: [(&str, &str); 2] = [("", "services"), (DISCOVERY, "endpointslices")];

pub(crate) fn unauthorized(why: &str) -> Page {
    let text = format!("{why}; a token of the cluster is needed (kubectl create token NAME)\n");
    let mut page = Page::text(401, text);
    page.headers.push(("www-authenticate", "Bearer".to_owned()));
    page
}

/// Asks the API server who somebody is and what they may see.
pub struct Reviewer {
    client: Client,
    memory: Mutex<Memory>,
    rate: Mutex<ReviewRate>,
    permits: Semaphore,
}

impl Reviewer {
    fn new(client: Client) -> Self {
        let rate = Mutex::new(ReviewRate::new(Instant::now()));
        Self { client, memory: Mutex::default(), rate, permits: Semaphore::new(AT_ONCE) }
    }

    async fn allowed(
        &self,
        token: Option<&str>,
        namespaces: Option<&BTreeSet<Name>>,
    ) -> Result<Allowed, Page> {
        let token = token.ok_or_else(|| unauthorized("this page shows a cluster"))?;
        let namespaces = namespaces.ok_or_else(not_listed)?;
        let key = digest_of(token);
        let remembered = || self.memory.lock().answer(&key, namespaces, Instant::now());
        if let Some(answer) = remembered() {
            return answer;
        }
        let known = self.memory.lock().is_somebodys(&key, Instant::now());
        if !known && !self.rate.lock().allows(Instant::now()) {
            return Err(too_many_clients());
        }
        let Ok(Ok(_permit)) = timeout(TURN, self.permits.acquire()).await else {
            return Err(too_many_clients());
        };
        // Another question of the same person may have been answered meanwhile.
        if let Some(answer) = remembered() {
            return answer;
        }
        let asked = self.memory.lock().namespaces(&key, Instant::now());
        let review = timeout(LIMIT, self.review(token, namespaces, asked)).await;
        let late = || ApiError::Unavailable(format!("no answer within {} s", LIMIT.as_secs()));
        match review.unwrap_or_else(|_| Err(late())) {
            Ok(verdict) => {
                let answer = verdict.answer(namespaces);
                self.memory.lock().remember(key, verdict, Instant::now());
                answer.unwrap_or_else(|| Err(unavailable("a namespace was not asked about")))
            }
            Err(error) => self.without_answer(&key, &error),
        }
    }

    /// What somebody may see while the API server cannot be asked.
    fn without_answer(&self, key: &Digest, error: &ApiError) -> Result<Allowed, Page> {
        let gone = matches!(error, ApiError::Unavailable(_));
        let last = gone.then(|| self.memory.lock().last(key, Instant::now())).flatten();
        last.ok_or_else(|| {
            tracing::warn!(%error, "nobody new gets the page: the API server cannot be asked who may see it");
            unavailable(&error.to_string())
        })
    }

    /// Asks who a token belongs to, and about the namespaces that are not among those `known`.
    async fn review(
        &self,
        token: &str,
        namespaces: &BTreeSet<Name>,
        known: BTreeMap<Name, bool>,
    ) -> Result<PersonReview, ApiError> {
        let Some(user) = review::authenticate(&self.client, token, None).await? else {
            return Ok(PersonReview::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        let user = Arc::new(user);
        if may_see(&self.client, &user, "").await? {
            return Ok(PersonReview::Person { name, all: true, namespaces: BTreeMap::new() });
        }
        let unknown = namespaces.iter().filter(|namespace| !known.contains_key(*namespace));
        let mut waiting: Vec<Name> = unknown.map(Name::clone).collect();
        let mut answers = known;
        let mut asked: JoinSet<Result<(Name, bool), ApiError>> = JoinSet::new();
        while !waiting.is_empty() || !asked.is_empty() {
            while asked.len() < QUESTIONS {
                let Some(namespace) = waiting.pop() else { break };
                let (client, user) = (self.client.clone(), Arc::clone(&user));
                asked.spawn(async move {
                    let allowed = may_see(&client, &user, &namespace).await?;
                    Ok((namespace, allowed))
                });
            }
            if let Some(Ok(answer)) = asked.join_next().await {
                let (namespace, allowed) = answer?;
                answers.insert(namespace, allowed);
            }
        }
        Ok(PersonReview::Person { name, all: false, namespaces: answers })
    }
}

fn unavailable(why: &str) -> Page {
    later(&format!("the API server cannot be asked who may see this now: {why}"))
}

/// Which namespaces there are is not known yet, so it is not known either who may see something.
fn not_listed() -> Page {
    later("the Services of the cluster are being read; try again in a moment")
}

fn later(why: &str) -> Page {
    let mut page = Page::text(503, format!("{why}\n"));
    page.headers.push(("retry-after", "1".to_owned()));
    page
}

/// Whether a user may list all that the page shows of a namespace; an empty one stands for all.
async fn may_see(client: &Client, user: &UserInfo, namespace: &str) -> Result<bool, ApiError> {
    for (group, resource) in RESOURCES {
        if !review::may_list(client, user, group, resource, namespace).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
