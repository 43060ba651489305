//! Who sees which namespaces.
//!
//! ```text
//!  token ─► known? ─► not too often? ─► TokenReview ─► user ─► SubjectAccessReview: list Services and EndpointSlices, of
//!    │        │            │                │                  all namespaces, or of each ─► what this person sees
//!   none: 401 │         no: 429         unknown: 401                                               │ none: 403
//!             └─ the answer of the last minute           the API server does not answer: 503
//! ```
//!
//! What cannot be decided is refused. Tokens are not kept, only digests of them, and nothing is stored in the browser.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use zonewise_cluster::access::{Digest, KNOWN_FOR, ReviewRate, digest_of, too_many_clients};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::review::{self, UserInfo};
use zonewise_common::name::Name;
use zonewise_telemetry::server::Page;

use crate::hub::Hub;

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
    /// Whoever reaches the address sees everything: it is one of this machine.
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
            Self::Reviewed(reviewer) => reviewer.allowed(token, &hub.namespaces()).await,
        }
    }
}

/// For how long an answer of the API server is used. A right that is withdrawn works for so long.
const MEMORY: Duration = Duration::from_secs(60);
/// The same for tokens that were not accepted.
const SHORT_MEMORY: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const MOST_REMEMBERED: usize = 256;
/// How many clients are reviewed at once; others wait.
const AT_ONCE: usize = 4;
/// How many questions about one client are asked at once.
const QUESTIONS: usize = 8;
/// How long a client waits for its turn, and for its review.
const TURN: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

/// What a person must be able to list in a namespace in order to see it: what the page is made of.
const RESOURCES: [(&str, &str); 2] = [("", "services"), ("discovery.k8s.io", "endpointslices")];

/// What the API server says about a token.
#[derive(Clone, Debug)]
enum Verdict {
    Unknown,
    /// The user's name, whether it sees all namespaces, and what it sees of those that were asked about.
    Person {
        name: String,
        all: bool,
        namespaces: BTreeMap<Name, bool>,
    },
}

impl Verdict {
    /// The same as an answer; `None` if not all of these namespaces were asked about.
    fn answer(&self, wanted: &BTreeSet<Name>) -> Option<Result<Allowed, Page>> {
        let (name, namespaces) = match self {
            Self::Unknown => {
                return Some(Err(unauthorized("the API server does not accept the token")));
            }
            Self::Person { all: true, .. } => return Some(Ok(Allowed::All)),
            Self::Person { name, namespaces, .. } => (name, namespaces),
        };
        if !wanted.iter().all(|namespace| namespaces.contains_key(namespace)) {
            return None;
        }
        let seen = namespaces.iter().filter(|(_, allowed)| **allowed);
        let seen: BTreeSet<String> = seen.map(|(namespace, _)| namespace.to_string()).collect();
        if seen.is_empty() {
            return Some(Err(Page::text(
                403,
                format!(
                    "{name:?} may list the Services and EndpointSlices of no namespace here; a RoleBinding to the \
                     ClusterRole view of a namespace allows it\n"
                ),
            )));
        }
        Some(Ok(Allowed::Namespaces(seen)))
    }

    /// For how long this may be the answer.
    fn memory(&self) -> Duration {
        match self {
            Self::Unknown => SHORT_MEMORY,
            Self::Person { .. } => MEMORY,
        }
    }

    /// For how long it is remembered that the token is somebody's.
    fn kept(&self) -> Duration {
        match self {
            Self::Unknown => SHORT_MEMORY,
            Self::Person { .. } => KNOWN_FOR,
        }
    }
}

fn unauthorized(why: &str) -> Page {
    let text = format!("{why}; a token of the cluster is needed (kubectl create token NAME)\n");
    let mut page = Page::text(401, text);
    page.headers.push(("www-authenticate", "Bearer".to_owned()));
    page
}

/// Asks the API server who somebody is and what they may see.
pub struct Reviewer {
    client: Client,
    memory: Mutex<BTreeMap<Digest, (Instant, Verdict)>>,
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
        namespaces: &BTreeSet<Name>,
    ) -> Result<Allowed, Page> {
        let token = token.ok_or_else(|| unauthorized("this page shows a cluster"))?;
        let key = digest_of(token);
        if let Some(answer) = self.remembered(&key, namespaces) {
            return answer;
        }
        if !self.is_somebodys(&key) && !self.rate.lock().allows(Instant::now()) {
            return Err(too_many_clients());
        }
        let Ok(Ok(_permit)) = timeout(TURN, self.permits.acquire()).await else {
            return Err(too_many_clients());
        };
        // Another question of the same person may have been answered meanwhile.
        if let Some(answer) = self.remembered(&key, namespaces) {
            return answer;
        }
        let review = timeout(LIMIT, self.review(token, namespaces)).await;
        let late = || ApiError::Unavailable(format!("no answer within {} s", LIMIT.as_secs()));
        match review.unwrap_or_else(|_| Err(late())) {
            Ok(verdict) => {
                let answer = verdict.answer(namespaces);
                self.remember(key, verdict);
                answer.unwrap_or_else(|| Err(unavailable("a namespace was not asked about")))
            }
            Err(error) => {
                tracing::warn!(%error, "nobody new gets the page: the API server cannot be asked who may see it");
                Err(unavailable(&error.to_string()))
            }
        }
    }

    fn remembered(&self, key: &[u8], namespaces: &BTreeSet<Name>) -> Option<Result<Allowed, Page>> {
        let memory = self.memory.lock();
        let (since, verdict) = memory.get(key)?;
        if since.elapsed() >= verdict.memory() {
            return None;
        }
        verdict.answer(namespaces)
    }

    /// Whether the API server has accepted the token not long ago.
    fn is_somebodys(&self, key: &[u8]) -> bool {
        let memory = self.memory.lock();
        let verdict = memory.get(key).filter(|(since, verdict)| since.elapsed() < verdict.kept());
        matches!(verdict, Some((_, Verdict::Person { .. })))
    }

    fn remember(&self, key: Digest, verdict: Verdict) {
        let mut memory = self.memory.lock();
        memory.retain(|_, (since, verdict)| since.elapsed() < verdict.kept());
        while memory.len() >= MOST_REMEMBERED {
            let oldest = memory.iter().min_by_key(|(_, (since, _))| *since);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            memory.remove(&oldest);
        }
        memory.insert(key, (Instant::now(), verdict));
    }

    async fn review(&self, token: &str, namespaces: &BTreeSet<Name>) -> Result<Verdict, ApiError> {
        let Some(user) = review::authenticate(&self.client, token, None).await? else {
            return Ok(Verdict::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        let user = Arc::new(user);
        if may_see(&self.client, &user, "").await? {
            return Ok(Verdict::Person { name, all: true, namespaces: BTreeMap::new() });
        }
        let mut answers = BTreeMap::new();
        let mut waiting: Vec<Name> = namespaces.iter().map(Name::clone).collect();
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
        Ok(Verdict::Person { name, all: false, namespaces: answers })
    }
}

fn unavailable(why: &str) -> Page {
    Page::text(503, format!("the API server cannot be asked who may see this now: {why}\n"))
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
