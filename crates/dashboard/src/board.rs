//! The state of all Services as the page shows them, with versions, so that a page that has seen one version gets what has
//! changed since. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use zonewise_explain::ServiceOverview;

use crate::access::Allowed;
use crate::history::{History, LONGEST, cut};

/// Removed Services that are remembered by name. A page that is behind those gets all lines anew.
const MOST_REMOVED: usize = 4096;
/// Names of Services that were looked at again without a change, in one message; beyond that all are meant.
const MOST_TOUCHED: usize = 256;

/// The lines of all Services.
#[derive(Default)]
pub(crate) struct Board {
    version: u64,
    lines: BTreeMap<String, Line>,
    removed: VecDeque<(u64, String)>,
    /// Removals up to this version are forgotten.
    forgotten: u64,
}

struct Line {
    overview: Arc<ServiceOverview>,
    /// The version in which it has changed.
    changed: u64,
    /// The version in which its objects have changed, with or without a change of the line.
    touched: u64,
    /// Writes of its slices since this program started.
    writes: u64,
    history: History,
}

impl Line {
    fn new(at: i64, version: u64, overview: ServiceOverview) -> Self {
        let mut history = History::default();
        history.record(at, None, &overview, 0);
        let overview = Arc::new(overview);
        Self { overview, changed: version, touched: version, writes: 0, history }
    }

    fn update(&mut self, at: i64, version: u64, overview: ServiceOverview, writes: u64) {
        self.touched = version;
        self.writes += writes;
        self.history.record(at, Some(&self.overview), &overview, self.writes);
        if *self.overview != overview {
            self.changed = version;
            self.overview = Arc::new(overview);
        }
    }
}

/// A line of bounded length. What people write on a Service can have 256 KB; the page of the Service has all of it. A
/// command that is too long is left out: one that is cut does something else.
fn shortened(mut line: ServiceOverview) -> ServiceOverview {
    line.asked = cut(line.asked);
    for note in &mut line.ignored {
        note.value = cut(std::mem::take(&mut note.value));
        note.sentence = cut(std::mem::take(&mut note.sentence));
        note.commands.retain(|command| command.len() <= LONGEST);
    }
    line
}

/// What has changed since a version.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Update {
    kind: &'static str,
    /// The version that this leads to.
    pub(crate) version: u64,
    /// Whether these are all lines: what the client has besides does not exist.
    complete: bool,
    /// New and changed lines.
    services: Vec<Arc<ServiceOverview>>,
    /// Services that are gone.
    removed: Vec<String>,
    /// Services whose objects have changed.
    touched: Vec<String>,
    /// Too many to name them.
    touched_all: bool,
}

impl Update {
    /// Whether nothing has changed.
    pub(crate) fn is_empty(&self) -> bool {
        let named = self.services.len() + self.removed.len() + self.touched.len();
        !self.complete && !self.touched_all && named == 0
    }
}

impl Board {
    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Takes lines that were computed anew, with the number of writes of their slices since the last time.
    pub(crate) fn put(&mut self, at: i64, lines: Vec<(ServiceOverview, u64)>) {
        self.version += 1;
        for (overview, writes) in lines {
            let overview = shortened(overview);
            match self.lines.get_mut(&overview.service) {
                Some(line) => line.update(at, self.version, overview, writes),
                None => {
                    let name = overview.service.clone();
                    self.lines.insert(name, Line::new(at, self.version, overview));
                }
            }
        }
    }

    /// Takes note that Services are gone.
    pub(crate) fn remove<'s>(&mut self, services: impl IntoIterator<Item = &'s str>) {
        let gone: Vec<&str> =
            services.into_iter().filter(|name| self.lines.remove(*name).is_some()).collect();
        if gone.is_empty() {
            return;
        }
        self.version += 1;
        self.removed.extend(gone.into_iter().map(|name| (self.version, name.to_owned())));
        while self.removed.len() > MOST_REMOVED {
            self.forgotten =
                self.removed.pop_front().map_or(self.forgotten, |(version, _)| version);
        }
    }

    /// The Services that are shown and not among these.
    pub(crate) fn missing_from(&self, known: &BTreeSet<String>) -> Vec<String> {
        self.lines.keys().filter(|name| !known.contains(*name)).cloned().collect()
    }

    /// All lines that somebody may see.
    pub(crate) fn all(&self, allowed: &Allowed) -> Vec<Arc<ServiceOverview>> {
        self.seen_by(allowed).map(|line| Arc::clone(&line.overview)).collect()
    }

    fn seen_by<'b>(&'b self, allowed: &'b Allowed) -> impl Iterator<Item = &'b Line> {
        self.lines.iter().filter(|(name, _)| allowed.service(name)).map(|(_, line)| line)
    }

    /// What has changed since a version; everything if there is none, or if it is too long ago.
    pub(crate) fn since(&self, seen: Option<u64>, allowed: &Allowed) -> Update {
        let seen = seen.filter(|seen| *seen >= self.forgotten && *seen <= self.version);
        let from = seen.unwrap_or(0);
        let is_new = |line: &&Line| seen.is_none() || line.changed > from;
        let services: Vec<_> =
            self.seen_by(allowed).filter(is_new).map(|line| Arc::clone(&line.overview)).collect();
        let only_touched =
            |line: &&Line| seen.is_some() && line.touched > from && line.changed <= from;
        let mut touched: Vec<String> = self
            .seen_by(allowed)
            .filter(only_touched)
            .map(|line| line.overview.service.clone())
            .collect();
        let touched_all = touched.len() > MOST_TOUCHED;
        if touched_all {
            touched.clear();
        }
        let removed = self.removed.iter().filter(|(version, name)| {
            seen.is_some()
                && *version > from
                && allowed.service(name)
                && !self.lines.contains_key(name)
        });
        Update {
            kind: "Services",
            version: self.version,
            complete: seen.is_none(),
            services,
            removed: removed.map(|(_, name)| name.clone()).collect(),
            touched,
            touched_all,
        }
    }

    /// The history of a Service.
    pub(crate) fn history(&self, service: &str) -> Option<&History> {
        self.lines.get(service).map(|line| &line.history)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zonewise_explain::{Note, ServiceKind, State};
    use zonewise_topology::reason::Code;

    use super::*;

    fn line(service: &str, endpoints: u64) -> ServiceOverview {
        ServiceOverview {
            service: service.into(),
            service_kind: ServiceKind::Routed,
            state: State::Active,
            asked: "Auto".into(),
            source: "annotation".into(),
            ignored: Vec::new(),
            modes: Vec::new(),
            reason: None,
            outcome: None,
            endpoints,
            in_zone: Some(0.5),
            cross_zone: Some(0.5),
            dropped: None,
            max_overload: None,
            zones_without_endpoints: Vec::new(),
            by_heuristic: BTreeMap::new(),
            best: None,
            cost: None,
        }
    }

    /// Names of changed, removed and touched Services, and whether it is everything.
    fn told(update: &Update) -> (Vec<&str>, Vec<&str>, Vec<&str>, bool) {
        fn names(all: &[String]) -> Vec<&str> {
            all.iter().map(String::as_str).collect()
        }
        let changed = update.services.iter().map(|line| line.service.as_str()).collect();
        (changed, names(&update.removed), names(&update.touched), update.complete)
    }

    #[test]
    fn whoever_has_a_version_gets_what_has_changed_since() {
        let mut board = Board::default();
        board.put(1, vec![(line("a/x", 1), 0), (line("b/y", 1), 0)]);
        let first = board.version();
        board.put(2, vec![(line("a/x", 2), 1), (line("b/y", 1), 0)]);
        board.remove(["b/z", "b/y"]);
        let all = Allowed::All;
        assert_eq!(
            told(&board.since(Some(first), &all)),
            (vec!["a/x"], vec!["b/y"], vec![], false)
        );
        assert_eq!(told(&board.since(None, &all)), (vec!["a/x"], vec![], vec![], true));
        assert!(board.since(Some(board.version()), &all).is_empty());
        // A version of the future is that of another run.
        assert!(board.since(Some(board.version() + 1), &all).complete);
        board.put(3, vec![(line("a/x", 2), 0)]);
        let update = board.since(Some(board.version() - 1), &all);
        assert_eq!(told(&update), (vec![], vec![], vec!["a/x"], false));
        // One that comes back is not removed.
        board.put(4, vec![(line("b/y", 1), 0)]);
        let update = board.since(Some(first), &all);
        assert_eq!(told(&update), (vec!["a/x", "b/y"], vec![], vec![], false));
    }

    #[test]
    fn nobody_gets_a_namespace_that_they_may_not_see() {
        let mut board = Board::default();
        board.put(1, vec![(line("a/x", 1), 0), (line("b/y", 1), 0)]);
        let only = Allowed::Namespaces(BTreeSet::from(["a".to_owned()]));
        let seen = Some(board.version());
        assert_eq!(told(&board.since(None, &only)), (vec!["a/x"], vec![], vec![], true));
        assert_eq!(board.all(&only).len(), 1);
        board.put(2, vec![(line("b/y", 2), 0)]);
        board.remove(["b/y"]);
        assert!(board.since(seen, &only).is_empty());
    }

    #[test]
    fn a_line_is_short_whatever_people_write() {
        let huge = "ä".repeat(128 * 1024);
        let command = |value: &str| format!("kubectl annotate service x {value}-");
        let note = |value: &str| Note {
            source: "zonewise.dev/typo".into(),
            value: value.into(),
            reason: Code::HintMissing,
            sentence: format!("{value} is not known"),
            commands: vec![command("zonewise.dev/typo"), command(value)],
        };
        let long = ServiceOverview {
            asked: huge.clone(),
            ignored: vec![note(&huge), note("short")],
            ..line("a/x", 1)
        };
        let mut board = Board::default();
        board.put(1, vec![(long, 0)]);
        let told = board.since(None, &Allowed::All);
        let text = serde_json::to_string(&told).unwrap();
        assert!(text.len() < 4000, "{}", text.len());
        let ignored = &told.services[0].ignored;
        assert_eq!(ignored[0].commands, [command("zonewise.dev/typo")], "no command is cut");
        assert_eq!(ignored[1], note("short"), "what is short is whole");
    }

    #[test]
    fn what_is_too_long_ago_leads_to_everything_anew() {
        let mut board = Board::default();
        board.put(1, vec![(line("a/stays", 1), 0)]);
        let seen = Some(board.version());
        for number in 0..=MOST_REMOVED {
            let name = format!("a/{number}");
            board.put(2, vec![(line(&name, 1), 0)]);
            board.remove([name.as_str()]);
        }
        assert!(board.since(seen, &Allowed::All).complete);
        assert_eq!(board.removed.len(), MOST_REMOVED);
    }

    #[test]
    fn the_history_has_writes_and_events_and_an_end() {
        let mut board = Board::default();
        board.put(1, vec![(line("a/x", 1), 0)]);
        board.put(2, vec![(line("a/x", 2), 2)]);
        board.put(3, vec![(line("a/x", 2), 0)]);
        let history = serde_json::to_value(board.history("a/x").unwrap()).unwrap();
        assert_eq!(history["samples"].as_array().unwrap().len(), 2, "a sample per change");
        assert_eq!(history["samples"][1]["writes"], 2);
        let events: Vec<&str> = history["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["text"].as_str().unwrap())
            .collect();
        assert_eq!(events, ["2 slices written", "2 ready endpoints, before 1"]);
        for endpoints in 0..1000 {
            board.put(4, vec![(line("a/x", endpoints), 0)]);
        }
        let history = serde_json::to_value(board.history("a/x").unwrap()).unwrap();
        let kept = crate::history::MOST;
        assert_eq!(history["samples"].as_array().unwrap().len(), kept);
        assert_eq!(history["events"].as_array().unwrap().len(), kept);
        assert!(board.history("a/none").is_none());
    }
}
