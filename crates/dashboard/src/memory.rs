//! What the API server has said about tokens: for a moment it need not be asked again, and while it does not answer, what
//! it has said before still counts. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use zonewise_cluster::access::{Digest, KNOWN_FOR};
use zonewise_common::name::Name;
use zonewise_telemetry::server::Page;

use crate::access::{Allowed, unauthorized};

/// For how long an answer of the API server is used. A right that is withdrawn works for so long.
const USED_FOR: Duration = Duration::from_secs(60);
/// The same for tokens that were not accepted, and for answers that are used because there is no newer one.
const SHORTLY: Duration = Duration::from_secs(10);
/// For how long the last answer is used while the API server does not answer.
const WITHOUT_ANSWER: Duration = Duration::from_secs(600);
/// How many answers are remembered.
const MOST: usize = 256;

/// What the API server says about a token.
#[derive(Clone, Debug)]
pub(crate) enum PersonReview {
    Unknown,
    /// The user's name, whether it sees all namespaces, and what it sees of those that were asked about.
    Person {
        name: String,
        all: bool,
        namespaces: BTreeMap<Name, bool>,
    },
}

impl PersonReview {
    /// The same as an answer; `None` if not all of these namespaces were asked about.
    pub(crate) fn answer(&self, wanted: &BTreeSet<Name>) -> Option<Result<Allowed, Page>> {
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

    fn is_somebody(&self) -> bool {
        matches!(self, Self::Person { .. })
    }
}

struct Known {
    /// When the API server said it.
    since: Instant,
    /// Until when it is not asked again.
    until: Instant,
    verdict: PersonReview,
}

impl Known {
    /// Whether it is still of use for anything.
    fn is_kept(&self, now: Instant) -> bool {
        let kept = if self.verdict.is_somebody() { KNOWN_FOR.max(WITHOUT_ANSWER) } else { SHORTLY };
        now < self.since + kept
    }
}

/// The newest answers, by digests of tokens.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<Digest, Known>);

impl Memory {
    fn newest(&self, key: &Digest, now: Instant) -> Option<&Known> {
        self.0.get(key).filter(|known| now < known.until)
    }

    /// What the bearer of a token may see of these namespaces; `None` if the API server has to be asked.
    pub(crate) fn answer(
        &self,
        key: &Digest,
        namespaces: &BTreeSet<Name>,
        now: Instant,
    ) -> Option<Result<Allowed, Page>> {
        self.newest(key, now)?.verdict.answer(namespaces)
    }

    /// The namespaces about which the API server need not be asked again.
    pub(crate) fn namespaces(&self, key: &Digest, now: Instant) -> BTreeMap<Name, bool> {
        match self.newest(key, now).map(|known| &known.verdict) {
            Some(PersonReview::Person { namespaces, .. }) => namespaces.clone(),
            Some(PersonReview::Unknown) | None => BTreeMap::new(),
        }
    }

    /// Whether the API server has accepted the token not long ago.
    pub(crate) fn is_somebodys(&self, key: &Digest, now: Instant) -> bool {
        self.0.get(key).is_some_and(|known| known.is_kept(now) && known.verdict.is_somebody())
    }

    /// Takes an answer. One that is about more namespaces than the newest is not used for longer than that.
    pub(crate) fn remember(&mut self, key: Digest, verdict: PersonReview, now: Instant) {
        self.0.retain(|_, known| known.is_kept(now));
        while self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.since);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.0.remove(&oldest);
        }
        let used = if verdict.is_somebody() { USED_FOR } else { SHORTLY };
        let newest = self.newest(&key, now).filter(|known| known.verdict.is_somebody());
        let (since, until) = newest.map_or((now, now + used), |known| (known.since, known.until));
        self.0.insert(key, Known { since, until, verdict });
    }

    /// What somebody could see when the API server answered for the last time, if that is not long ago. It is not
    /// asked again for a moment.
    pub(crate) fn last(&mut self, key: &Digest, now: Instant) -> Option<Allowed> {
        let known = self.0.get_mut(key).filter(|known| now < known.since + WITHOUT_ANSWER)?;
        let allowed = known.verdict.answer(&BTreeSet::new())?.ok()?;
        known.until = now + SHORTLY;
        Some(allowed)
    }
}

#[cfg(test)]
mod tests {
    use zonewise_cluster::access::digest_of;

    use super::*;

    fn names(all: &[&str]) -> BTreeSet<Name> {
        all.iter().map(|name| Name::from(*name)).collect()
    }

    fn person(namespaces: &[(&str, bool)]) -> PersonReview {
        let namespaces = namespaces.iter().map(|(name, seen)| (Name::from(*name), *seen)).collect();
        PersonReview::Person { name: "alice".into(), all: false, namespaces }
    }

    fn sees(namespaces: &[&str]) -> Allowed {
        Allowed::Namespaces(namespaces.iter().map(|name| (*name).to_owned()).collect())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_the_api_server_the_last_answer_counts_for_ten_minutes() {
        let (mut memory, alice, begin) = (Memory::default(), digest_of("alice"), Instant::now());
        let wanted = names(&["shop", "secret"]);
        memory.remember(alice.clone(), person(&[("shop", true), ("secret", false)]), begin);
        let answer = memory.answer(&alice, &wanted, begin + USED_FOR - SECOND);
        assert_eq!(answer.unwrap().unwrap(), sees(&["shop"]));
        let later = begin + USED_FOR;
        assert!(memory.answer(&alice, &wanted, later).is_none(), "the API server is asked");
        assert_eq!(memory.last(&alice, later), Some(sees(&["shop"])), "and does not answer");
        let answer = memory.answer(&alice, &wanted, later + SHORTLY - SECOND);
        assert_eq!(answer.unwrap().unwrap(), sees(&["shop"]), "it is not asked at once again");
        assert!(memory.answer(&alice, &wanted, later + SHORTLY).is_none());
        assert_eq!(memory.last(&alice, begin + WITHOUT_ANSWER), None, "it has an end");
        assert_eq!(memory.last(&digest_of("mallory"), later), None, "nobody new");
    }

    #[test]
    fn an_unknown_token_sees_nothing_without_the_api_server() {
        let (mut memory, token, begin) = (Memory::default(), digest_of("x"), Instant::now());
        memory.remember(token.clone(), PersonReview::Unknown, begin);
        assert_eq!(memory.last(&token, begin + SECOND), None);
        assert!(!memory.is_somebodys(&token, begin + SECOND));
    }

    #[test]
    fn a_new_namespace_is_asked_about_alone_and_prolongs_nothing() {
        let (mut memory, alice, begin) = (Memory::default(), digest_of("alice"), Instant::now());
        memory.remember(alice.clone(), person(&[("shop", true)]), begin);
        let wanted = names(&["new", "shop"]);
        let later = begin + USED_FOR - SECOND;
        assert!(memory.answer(&alice, &wanted, later).is_none());
        assert_eq!(memory.namespaces(&alice, later).len(), 1, "of shop it is known");
        memory.remember(alice.clone(), person(&[("new", true), ("shop", true)]), later);
        assert_eq!(memory.answer(&alice, &wanted, later).unwrap().unwrap(), sees(&["new", "shop"]));
        assert!(memory.answer(&alice, &wanted, begin + USED_FOR).is_none());
        assert!(memory.namespaces(&alice, begin + USED_FOR).is_empty(), "all are asked about");
    }

    #[test]
    fn so_many_tokens_are_remembered_and_the_oldest_are_forgotten() {
        let (mut memory, begin) = (Memory::default(), Instant::now());
        for number in 0..=MOST as u32 {
            let key = digest_of(&number.to_string());
            memory.remember(key, person(&[("shop", true)]), begin + SECOND * number / 100);
        }
        assert_eq!(memory.0.len(), MOST);
        assert!(!memory.is_somebodys(&digest_of("0"), begin));
        assert!(memory.is_somebodys(&digest_of("1"), begin));
    }
}
