//! What the proxies have applied, and which Services wait for it (D12).
//!
//! ```text
//!  Lease of each proxy ─► Proxies ─► heard: nobody, or everybody up to a version
//!  (how far, alive)                    │ at most once a second
//!                                      ▼
//!  sync ─► judge: Service, version ─► Board ─► Services whose condition is to change ─► queue
//! ```
//!
//! The condition `Ready` belongs to what `Accepted` and `Programmed` say. When one of them says
//! something new, it is open again: every proxy has to apply the newest of the Service's slices.
//! While they say the same, it goes one way only:
//!
//! | was     | nobody reports | somebody is behind | everybody has it |
//! |---------|----------------|--------------------|------------------|
//! | Unknown | Unknown        | False              | True             |
//! | False   | Unknown        | False              | True             |
//! | True    | Unknown        | True               | True             |
//!
//! Whatever was: where somebody's kernel refuses the Service, it is False.
//!
//! So Pods that come and go, and proxies that start, cost no write. What was is read from the
//! Service itself. Only the version that a Service waits for is in memory, so that one whose slices
//! change faster than proxies report is not for ever behind; after a restart it waits for the newest.
//!
//! Who is silent for longer than its Lease lasts is not waited for. Silence while nobody could be
//! heard does not count: not while the Leases cannot be read, and not before we began to listen. An
//! API server that was away for minutes would otherwise cost two writes for each Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, Resource, Sink};
use zonewise_common::name::Key;
use zonewise_common::proxy_report::{self, LEASES, ProxyReport};

use crate::metrics::Metrics;

/// Milliseconds since 1970.
type Millis = i64;

// === one proxy ===

#[derive(Clone, Debug)]
struct Proxy {
    applied: u64,
    refused: BTreeSet<Key>,
    /// As it says.
    renewed: Option<Timestamp>,
    /// When we noticed, by our clock: nobody's clock is compared with another's, except once.
    heard: Millis,
    /// 0: never alive.
    life: Millis,
    readable: bool,
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

impl Proxy {
    fn is_alive(&self, now: Millis) -> bool {
        now < self.heard.saturating_add(self.life)
    }
}

// === all proxies ===

/// How far the proxies are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is too early to say.
    #[default]
    NotYet,
    /// None reports.
    Nobody,
    /// Everybody who reports has applied everything up to this version.
    UpTo(u64),
}

/// Who reports, and how far they are.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    known: BTreeMap<Key, Proxy>,
    /// When we began to listen.
    since: Option<Millis>,
    /// Since when nothing can be heard.
    deaf: Option<Millis>,
}

/// Deaf for longer, nothing that was known can be relied on.
const DEAF: Millis = 600_000;

impl Proxies {
    /// A proxy has reported. Returns whether it is the first report of this one that cannot be read.
    pub(crate) fn apply(&mut self, report: &ProxyReport, now: Millis) -> bool {
        let known = self.known.get(&report.lease);
        let heard = match known {
            Some(known) if known.renewed == report.renewed => known.heard,
            Some(_) => now,
            // It may be an old one: its own clock has to do.
            None => report.renewed.map_or(now, |renewed| renewed.as_millisecond().min(now)),
        };
        let readable =
            report.applied.is_some() && report.renewed.is_some() && report.duration.is_some();
        let news = !readable && known.is_none_or(|known| known.readable);
        let proxy = Proxy {
            applied: report.applied.unwrap_or(0),
            refused: report.refused.clone(),
            renewed: report.renewed,
            heard,
            life: report.renewed.and(report.duration).map_or(0, millis),
            readable,
        };
        self.known.insert(report.lease.clone(), proxy);
        news
    }

    /// The Lease of a proxy is gone, and so is the proxy.
    pub(crate) fn delete(&mut self, key: &Key) {
        self.known.remove(key);
    }

    /// Only these are there.
    fn retain(&mut self, keys: &BTreeSet<Key>) {
        self.known.retain(|key, _| keys.contains(key));
    }

    /// The Leases can be seen.
    pub(crate) fn listening(&mut self, now: Millis) {
        self.since.get_or_insert(now);
        if let Some(deaf) = self.deaf.take() {
            let lived = |proxy: &&mut Proxy| proxy.is_alive(deaf);
            self.known.values_mut().filter(lived).for_each(|proxy| proxy.heard = now);
        }
    }

    /// They cannot.
    pub(crate) fn deaf(&mut self, now: Millis) {
        self.deaf.get_or_insert(now);
    }

    /// The lowest version of those that are alive.
    pub(crate) fn lowest(&self, now: Millis) -> Heard {
        let Some(since) = self.since else { return Heard::NotYet };
        if self.deaf.is_some_and(|deaf| now.saturating_sub(deaf) > DEAF) {
            return Heard::Nobody;
        }
        let now = self.deaf.unwrap_or(now);
        let lowest = self.waited_for(since, now).map(|proxy| proxy.applied).min();
        let anybody = self.known.values().any(|proxy| proxy.is_alive(now));
        match lowest {
            None => Heard::Nobody,
            Some(_) if !anybody => Heard::NotYet,
            Some(lowest) => Heard::UpTo(lowest),
        }
    }

    /// Services that somebody's kernel refuses.
    fn refused(&self, now: Millis) -> BTreeSet<Key> {
        let now = self.deaf.unwrap_or(now);
        let waited_for = self.since.into_iter().flat_map(|since| self.waited_for(since, now));
        waited_for.flat_map(|proxy| proxy.refused.iter().cloned()).collect()
    }

    /// Who lives. An old Lease may be of one that could not renew it before we began to listen.
    fn waited_for(&self, since: Millis, now: Millis) -> impl Iterator<Item = &Proxy> {
        let counts =
            move |proxy: &&Proxy| proxy.is_alive(now) || now < since.saturating_add(proxy.life);
        self.known.values().filter(counts)
    }
}

// === Services ===

/// How a Service stands with the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody reports.
    Unknown,
    /// Somebody has yet to apply this version.
    Behind(u64),
    /// Somebody's kernel does not take it.
    Refused,
    /// Everybody has it.
    Ready,
}

impl Standing {
    /// The table of the module. `last`: what it was judged, if ever; `was`: the status of the
    /// condition, unless it is open again; `newest`: the highest version of the Service's slices;
    /// `refused`: somebody's kernel does not take it.
    fn next(
        last: Option<Self>,
        was: Option<&str>,
        newest: u64,
        (heard, refused): (Heard, bool),
    ) -> Self {
        let target = match (last, was) {
            (Some(Self::Behind(target)), Some("False")) => target.min(newest),
            _ => newest,
        };
        match (heard, was) {
            (Heard::Nobody, _) => Self::Unknown,
            (Heard::UpTo(_), _) if refused => Self::Refused,
            (_, Some("True")) => Self::Ready,
            (Heard::NotYet, Some("False")) => Self::Behind(target),
            (Heard::NotYet, _) => Self::Unknown,
            (Heard::UpTo(lowest), _) if lowest >= target => Self::Ready,
            (Heard::UpTo(_), _) => Self::Behind(target),
        }
    }

    /// Whether it is another one by what is heard now.
    fn is_outdated(self, heard: Heard, refused: bool) -> bool {
        match (heard, self) {
            (Heard::NotYet, _) | (Heard::Nobody, Self::Unknown) => false,
            (Heard::Nobody, _) | (Heard::UpTo(_), Self::Unknown) => true,
            (Heard::UpTo(_), Self::Refused) => !refused,
            (Heard::UpTo(lowest), Self::Behind(target)) => refused || lowest >= target,
            (Heard::UpTo(_), Self::Ready) => refused,
        }
    }
}

/// The proxies, and the Services that are told about them.
#[derive(Debug, Default)]
struct Board {
    proxies: Proxies,
    heard: Heard,
    refused: BTreeSet<Key>,
    /// Services that are told, by what they were told.
    waiting: BTreeMap<Key, Standing>,
    ready: BTreeSet<Key>,
}

impl Board {
    fn judge(&mut self, key: &Key, was: Option<&str>, newest: u64) -> Standing {
        let last = self.waiting.get(key).copied();
        let heard = (self.heard, self.refused.contains(key));
        let standing = Standing::next(last, was, newest, heard);
        self.forget(key);
        match standing {
            Standing::Ready => drop(self.ready.insert(key.clone())),
            waiting => drop(self.waiting.insert(key.clone(), waiting)),
        }
        standing
    }

    fn forget(&mut self, key: &Key) {
        self.waiting.remove(key);
        self.ready.remove(key);
    }

    /// Asks the proxies again. Returns the Services that are to be told something else.
    fn look(&mut self, now: Millis) -> Vec<Key> {
        let (heard, refused) = (self.proxies.lowest(now), self.proxies.refused(now));
        if (self.heard, &self.refused) == (heard, &refused) {
            return Vec::new();
        }
        (self.heard, self.refused) = (heard, refused);
        let outdated =
            |standing: Standing, key: &Key| standing.is_outdated(heard, self.refused.contains(key));
        let waiting = self.waiting.iter().filter(|(key, standing)| outdated(**standing, key));
        let ready = self.ready.iter().filter(|key| outdated(Standing::Ready, key));
        waiting.map(|(key, _)| key).chain(ready).cloned().collect()
    }
}

// === the shell ===

/// What is known of the proxies, for everybody who needs it.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    board: Mutex<Board>,
    changed: Notify,
}

/// Reports within this time are one.
const SETTLE: Duration = Duration::from_secs(1);
/// That somebody falls silent is noticed after this time.
const SILENCE: Duration = Duration::from_secs(5);

impl Reports {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a Service stands. `was`: the status of its condition, unless it is open again; `newest`:
    /// the highest version of its slices.
    pub(crate) fn judge(&self, key: &Key, was: Option<&str>, newest: u64) -> Standing {
        self.board().judge(key, was, newest)
    }

    /// A Service is gone, or is told nothing.
    pub(crate) fn forget(&self, key: &Key) {
        self.board().forget(key);
    }

    /// Asks the proxies again. Returns the Services that are to be told something else.
    pub(crate) fn look(&self) -> Vec<Key> {
        self.board().look(now())
    }

    /// Waits until it may be worth to look.
    pub(crate) async fn settled(&self) {
        let _ = timeout(SILENCE, self.changed.notified()).await;
        sleep(SETTLE).await;
    }

    /// Follows the Leases until dropped.
    pub(crate) async fn follow(self: Arc<Self>, client: Client, metrics: Arc<Metrics>) {
        let selector = watch::parameter("labelSelector", &proxy_report::selector());
        let resource = Resource { selector: selector.into(), ..Resource::all("leases", LEASES) };
        watch::follow(client, resource, Door { reports: self, metrics }).await;
    }
}

fn now() -> Millis {
    Timestamp::now().as_millisecond()
}

struct Door {
    reports: Arc<Reports>,
    metrics: Arc<Metrics>,
}

impl Door {
    fn change<T>(&self, work: impl FnOnce(&mut Proxies, Millis) -> T) -> T {
        let result = work(&mut self.reports.board().proxies, now());
        self.reports.changed.notify_one();
        result
    }
}

impl Sink for Door {
    type Object = ProxyReport;

    fn read(&self, json: &str) -> Result<ProxyReport, serde_json::Error> {
        serde_json::from_str(json)
    }

    fn apply(&mut self, report: ProxyReport) {
        if self.change(|proxies, now| proxies.apply(&report, now)) {
            tracing::warn!(
                lease = %report.lease.1, ?report.applied, renewed = report.renewed.is_some(),
                "the report of a proxy cannot be read; without a version it counts as behind, without a time as silent"
            );
        }
    }

    fn unreadable(&mut self, (_, lease): &Key, error: &str) {
        self.metrics.ours.unreadable.with(["leases"]).inc();
        tracing::warn!(%lease, error, "the report of a proxy cannot be read; what was known of it stays");
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.change(|proxies, _| proxies.delete(key));
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        self.change(|proxies, _| proxies.retain(keys));
    }

    /// Nothing depends on it but one condition, so it does not make the controller unready.
    fn health(&mut self, health: Result<(), &ApiError>) {
        if health.is_err() {
            self.metrics.ours.watch_failures.with(["leases"]).inc();
        }
        self.change(|proxies, now| match health {
            Ok(()) => proxies.listening(now),
            Err(_) => proxies.deaf(now),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use zonewise_common::name::SYSTEM_NAMESPACE;

    const LIFE: Millis = 60_000;

    fn key(name: &str) -> Key {
        (SYSTEM_NAMESPACE.into(), name.into())
    }

    fn report(node: &str, applied: u64, renewed: Millis) -> ProxyReport {
        ProxyReport {
            lease: key(node),
            applied: Some(applied),
            refused: BTreeSet::new(),
            renewed: Timestamp::from_millisecond(renewed).ok(),
            duration: Some(Duration::from_millis(LIFE.unsigned_abs())),
        }
    }

    /// Somebody who has listened for long, at a time when these reports are new.
    fn proxies(reports: &[(&str, u64)], now: Millis) -> Proxies {
        let mut proxies = Proxies { since: Some(i64::MIN / 2), ..Proxies::default() };
        for (node, applied) in reports {
            assert!(!proxies.apply(&report(node, *applied, now), now), "it can be read");
        }
        proxies
    }

    #[test]
    fn d12_everybody_who_is_alive_counts_and_the_slowest_decides() {
        let heard = |reports: &[(&str, u64)], later: Millis| proxies(reports, 0).lowest(later);
        assert_eq!(heard(&[], 0), Heard::Nobody);
        assert_eq!(heard(&[("a", 7)], LIFE - 1), Heard::UpTo(7));
        assert_eq!(heard(&[("a", 7)], LIFE), Heard::Nobody);
        assert_eq!(heard(&[("a", 7), ("b", 5)], 0), Heard::UpTo(5));

        let mut two = proxies(&[("a", 7), ("b", 5)], 0);
        two.apply(&report("a", 9, LIFE), LIFE);
        assert_eq!(two.lowest(LIFE), Heard::UpTo(9), "who is silent is not waited for");
        two.apply(&report("a", 9, LIFE), 2 * LIFE);
        assert_eq!(
            two.lowest(2 * LIFE),
            Heard::Nobody,
            "an old report once more is no sign of life"
        );
        two.apply(&report("b", 5, 3), 2 * LIFE);
        assert_eq!(two.lowest(2 * LIFE), Heard::UpTo(5), "another clock, but it goes");
        two.delete(&key("b"));
        assert_eq!(two.lowest(2 * LIFE), Heard::Nobody);
    }

    #[test]
    fn d12_a_report_that_cannot_be_read_counts_as_behind_or_silent_and_is_named_once() {
        let mut one = proxies(&[("a", 7), ("b", 7)], 0);
        let no_version = ProxyReport { applied: None, ..report("a", 0, 1) };
        assert_eq!([one.apply(&no_version, 1), one.apply(&no_version, 2)], [true, false]);
        assert_eq!(one.lowest(2), Heard::UpTo(0));
        let no_time = ProxyReport { renewed: None, ..report("a", 3, 0) };
        assert!(!one.apply(&no_time, 3));
        assert_eq!(one.lowest(3), Heard::UpTo(7));
        one.apply(&report("a", 6, 4), 4);
        assert_eq!(one.lowest(4), Heard::UpTo(6), "it has recovered");
        assert!(
            one.apply(&ProxyReport { duration: None, ..report("a", 6, 5) }, 5),
            "and not for good"
        );
    }

    #[test]
    fn d12_silence_while_nobody_could_be_heard_does_not_count() {
        let mut starting = Proxies::default();
        assert_eq!(starting.lowest(0), Heard::NotYet, "nothing was listed");
        let now = 10 * LIFE;
        starting.apply(&report("old", 3, 0), now);
        starting.listening(now);
        assert_eq!(starting.lowest(now), Heard::NotYet, "it may not have been able to");
        starting.apply(&report("new", 8, now), now);
        assert_eq!(starting.lowest(now), Heard::UpTo(3), "both are waited for");
        assert_eq!(starting.lowest(now + LIFE - 1), Heard::UpTo(3));
        starting.apply(&report("new", 8, now + LIFE), now + LIFE);
        assert_eq!(starting.lowest(now + LIFE), Heard::UpTo(8));

        let mut deaf = proxies(&[("a", 7)], 0);
        deaf.deaf(LIFE - 1);
        deaf.deaf(LIFE);
        assert_eq!(deaf.lowest(5 * LIFE), Heard::UpTo(7), "time stands still");
        assert_eq!(deaf.lowest(LIFE + DEAF), Heard::Nobody, "but not for ever");
        deaf.listening(5 * LIFE);
        assert_eq!(deaf.lowest(6 * LIFE - 1), Heard::UpTo(7), "time to report");
        assert_eq!(deaf.lowest(6 * LIFE), Heard::Nobody);
    }

    #[test]
    fn d12_ready_goes_one_way_while_the_other_conditions_say_the_same() {
        use Standing::{Behind, Ready, Unknown};
        let table = [
            // was, last, nobody, not yet, behind, applied
            (None, None, [Unknown, Unknown, Behind(5), Ready]),
            (Some("Unknown"), Some(Unknown), [Unknown, Unknown, Behind(5), Ready]),
            (Some("False"), None, [Unknown, Behind(5), Behind(5), Ready]),
            (Some("True"), None, [Unknown, Ready, Ready, Ready]),
            (None, Some(Behind(3)), [Unknown, Unknown, Behind(5), Ready]),
            (Some("False"), Some(Behind(3)), [Unknown, Behind(3), Ready, Ready]),
            (Some("False"), Some(Behind(9)), [Unknown, Behind(5), Behind(5), Ready]),
        ];
        for (was, last, expected) in table {
            let heard = [Heard::Nobody, Heard::NotYet, Heard::UpTo(4), Heard::UpTo(5)];
            let found = heard.map(|heard| Standing::next(last, was, 5, (heard, false)));
            assert_eq!(found, expected, "{was:?} {last:?}");
        }
    }

    #[test]
    fn d12_only_services_whose_condition_changes_are_looked_at() {
        let mut board = Board { proxies: proxies(&[], 0), ..Board::default() };
        let names = |keys: Vec<Key>| keys.iter().map(|key| key.1.to_string()).collect::<Vec<_>>();
        assert_eq!(names(board.look(0)), [""; 0]);
        assert_eq!(board.judge(&key("early"), None, 5), Standing::Unknown);
        assert_eq!(board.judge(&key("late"), None, 9), Standing::Unknown);

        board.proxies.apply(&report("a", 4, 0), 0);
        assert_eq!(names(board.look(0)), ["early", "late"], "somebody reports");
        assert_eq!(board.judge(&key("early"), Some("Unknown"), 5), Standing::Behind(5));
        assert_eq!(board.judge(&key("late"), Some("Unknown"), 9), Standing::Behind(9));

        board.proxies.apply(&report("a", 6, 1), 1);
        assert_eq!(names(board.look(1)), ["early"], "the other one still waits");
        assert_eq!(board.judge(&key("early"), Some("False"), 7), Standing::Ready);
        assert_eq!(names(board.look(2)), [""; 0], "nothing new was heard");

        board.proxies.apply(&report("b", 0, 2), 2);
        assert_eq!(names(board.look(2)), [""; 0], "a proxy that starts takes nothing back");
        board.proxies.delete(&key("a"));
        board.proxies.delete(&key("b"));
        assert_eq!(names(board.look(3)), ["late", "early"], "nobody reports any more");
        board.forget(&key("early"));
        board.proxies.apply(&report("a", 9, 4), 4);
        assert_eq!(board.judge(&key("late"), Some("False"), 9), Standing::Unknown, "not heard yet");
        assert_eq!(names(board.look(4)), ["late"]);
    }
    #[test]
    fn d12_what_a_kernel_refuses_is_not_ready_whatever_it_was() {
        for was in [None, Some("Unknown"), Some("False"), Some("True")] {
            let next = |heard| Standing::next(None, was, 5, (heard, true));
            assert_eq!(next(Heard::UpTo(9)), Standing::Refused, "{was:?}");
            assert_eq!(next(Heard::Nobody), Standing::Unknown, "{was:?}");
        }
        let refusing = |node: &str, at: Millis| ProxyReport {
            refused: BTreeSet::from([key("bad")]),
            ..report(node, 9, at)
        };
        let mut board = Board { proxies: proxies(&[("a", 9), ("b", 9)], 0), ..Board::default() };
        board.look(0);
        for name in ["bad", "good"] {
            assert_eq!(board.judge(&key(name), None, 5), Standing::Ready);
        }
        board.proxies.apply(&refusing("b", 1), 1);
        assert_eq!(board.look(1), [key("bad")], "ready it is no more");
        assert_eq!(board.judge(&key("bad"), Some("True"), 5), Standing::Refused);
        assert_eq!(board.judge(&key("good"), Some("True"), 5), Standing::Ready);
        board.proxies.apply(&refusing("b", 2), 2);
        assert_eq!(board.look(2), [], "nothing new");
        board.proxies.apply(&report("b", 9, 3), 3);
        assert_eq!(board.look(3), [key("bad")], "the kernel takes it");
        assert_eq!(board.judge(&key("bad"), Some("False"), 5), Standing::Ready);
        board.proxies.apply(&refusing("b", 4), 4);
        board.look(4);
        board.proxies.apply(&report("a", 9, LIFE), LIFE);
        assert_eq!(board.proxies.refused(LIFE + 4), BTreeSet::new(), "who is silent has no say");
    }
}
