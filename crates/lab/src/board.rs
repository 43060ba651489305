//! The state of a run: what has been counted and observed so far, and the [`View`] made from it. Pure.
//!
//! ```text
//!  each tick: connections since the last ─► the last seconds ────────► matrix, loads, rates
//!                                        ─► this act's window ──────► what the act measured
//!                                        ─► everything ─────────────► totals
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::ops::Add;
use std::time::Duration;

use crate::kubelet::PodView;
use crate::measure::{Counts, Matrix};
use crate::prediction::Prediction;
use crate::rights::Place;
use crate::scenario::{Expect, Percent, Range};
use crate::view::{
    ActResult, ActView, Endpoint, Expectation, Phase, Programming, STANDARD_DEVIATIONS,
    ServiceView, View, ZoneView,
};
use crate::watcher::{Routed, ServiceStatus};

/// How often connections are counted and the cluster is observed.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// The matrix shows the connections of this many ticks: one second, so that it follows a change at once.
const MATRIX_TICKS: usize = 4;
/// The load of each endpoint is measured over this many ticks: over a shorter time, chance would hide it.
const LOAD_TICKS: usize = 16;
/// One value of the history covers this many ticks.
const TICKS_PER_VALUE: usize = 2;
/// This many values of the history are kept.
const HISTORY_LENGTH: usize = 240;

/// The cluster as it was observed at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Zones and how many nodes each has.
    pub(crate) zones: Vec<ZoneView>,
    /// Pods that run.
    pub(crate) pods: Vec<PodView>,
    /// Services that users have created, in the order of their appearance. A name stays when its Service goes.
    pub(crate) user_services: Vec<String>,
    /// What each Service asks for, and the controller's reason.
    pub(crate) statuses: BTreeMap<String, ServiceStatus>,
    /// How the proxies route each Service.
    pub(crate) routed: BTreeMap<String, Routed>,
    /// How long proxies take to write a change to the kernel.
    pub(crate) programming: Option<Programming>,
}

/// The state of a run.
#[derive(Debug, Default)]
pub(crate) struct Board {
    title: String,
    place: Place,
    /// The Services of the scenario, then those that users have created.
    services: Vec<String>,
    /// How many of them are the scenario's.
    own: usize,
    zones: Vec<String>,
    kubectl: String,
    observation: Observation,
    /// Zone index of every Pod that was ever observed, by name: connections to a deleted Pod still count.
    endpoint_zones: BTreeMap<String, usize>,
    lately: VecDeque<Vec<Counts>>,
    history: Vec<Vec<Option<f64>>>,
    ticks: usize,
    /// Connections since this act began to measure, by Service; `None` while it does not.
    window: Option<Vec<Counts>>,
    /// Connections of this act, over all Services.
    act_connections: u64,
    act_failed: u64,
    /// Connections of the whole run.
    connections: u64,
    failed: u64,
    failed_by_service: Vec<u64>,
    act: Option<ActView>,
    ended: Vec<ActResult>,
    played: usize,
    /// Index of the Service whose matrix and endpoints are shown.
    pub(crate) selected: usize,
    /// The address of the page, if there is one.
    pub(crate) page: Option<String>,
    /// The user has paused the scenario.
    pub(crate) paused: bool,
    /// The last error of the API server, until a request succeeds again.
    pub(crate) trouble: Option<String>,
}

impl Board {
    /// The state before the first tick.
    pub(crate) fn new(
        title: &str,
        place: Place,
        services: Vec<String>,
        zones: Vec<String>,
        kubectl: String,
    ) -> Self {
        let count = services.len();
        Self {
            title: title.to_owned(),
            place,
            services,
            own: count,
            zones,
            kubectl,
            history: vec![Vec::new(); count],
            failed_by_service: vec![0; count],
            ..Self::default()
        }
    }

    /// Takes the connections since the last tick, by Service, and the observation of now.
    pub(crate) fn tick(&mut self, counts: Vec<Counts>, observation: Observation) {
        for pod in &observation.pods {
            if let Some(zone) = self.zones.iter().position(|zone| *zone == pod.zone) {
                self.endpoint_zones.insert(pod.name.clone(), zone);
            }
        }
        self.add_user_services(&observation.user_services);
        self.observation = observation;
        // What users try with Services of their own is not the scenario's failure.
        let own = counts.iter().take(self.own);
        let (made, failed) =
            (own.clone().map(Counts::total).sum::<u64>(), own.map(Counts::failures).sum::<u64>());
        self.connections += made;
        self.failed += failed;
        self.act_connections += made;
        self.act_failed += failed;
        for (known, counts) in self.failed_by_service.iter_mut().zip(&counts) {
            *known += counts.failures();
        }
        if let Some(window) = &mut self.window {
            window.iter_mut().zip(&counts).for_each(|(sum, counts)| sum.add(counts));
        }
        self.lately.push_back(counts);
        if self.lately.len() > LOAD_TICKS {
            self.lately.pop_front();
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_VALUE) {
            self.remember();
        }
    }

    /// Makes room for Services that users have created.
    fn add_user_services(&mut self, user_services: &[String]) {
        let known = self.services.len() - self.own;
        for name in user_services.iter().skip(known) {
            self.services.push(name.clone());
            self.history.push(Vec::new());
            self.failed_by_service.push(0);
        }
    }

    /// The Services that exist, by index: those of the scenario are always shown.
    fn shown(&self) -> Vec<usize> {
        let exists = |index: &usize| {
            *index < self.own || self.observation.statuses.contains_key(&self.services[*index])
        };
        (0..self.services.len()).filter(exists).collect()
    }

    /// Selects the Service that is so many lines further down the list, or up.
    pub(crate) fn select(&mut self, by: isize) {
        let shown = self.shown();
        let now = shown.iter().position(|index| *index == self.selected).unwrap_or(0);
        let last = shown.len().saturating_sub(1);
        if let Some(index) = shown.get(now.saturating_add_signed(by).min(last)) {
            self.selected = *index;
        }
    }

    /// Whether a Pod belongs to a Service.
    fn selects(&self, service: usize, pod: &PodView) -> bool {
        let name = &self.services[service];
        match self.observation.statuses.get(name) {
            _ if service < self.own => pod.is_of(name),
            status => status.is_some_and(|status| status.selects(pod)),
        }
    }

    fn remember(&mut self) {
        for service in 0..self.services.len() {
            let counts = self.recent(service, TICKS_PER_VALUE);
            let value = counts.matrix(&self.zones, &self.endpoint_zones).in_zone();
            let history = &mut self.history[service];
            history.push(value);
            if history.len() > HISTORY_LENGTH {
                history.remove(0);
            }
        }
    }

    /// Starts an act that is measured on a Service.
    pub(crate) fn begin(&mut self, act: ActView, service: usize) {
        self.act = Some(act);
        self.selected = service;
        self.act_connections = 0;
        self.act_failed = 0;
        self.window = None;
    }

    /// Adds a step of the current act to the screen.
    pub(crate) fn step(&mut self, text: String) {
        if let Some(act) = &mut self.act {
            act.steps.push(text);
        }
    }

    /// Sets how far the current act is. Its counting starts with the first measuring phase.
    pub(crate) fn phase(&mut self, phase: Phase) {
        if let Some(act) = &mut self.act {
            act.phase = phase;
        }
        if matches!(phase, Phase::Measuring { .. }) && self.window.is_none() {
            self.window = Some(vec![Counts::default(); self.services.len()]);
        }
    }

    /// The current act's figures, before they are compared with its expectations.
    pub(crate) fn figures(&self, service: usize, settled: Option<f64>) -> ActResult {
        let counts = self.window.as_ref().map(|window| window[service].clone()).unwrap_or_default();
        let matrix = counts.matrix(&self.zones, &self.endpoint_zones);
        ActResult {
            title: self.act.as_ref().map(|act| act.title.clone()).unwrap_or_default(),
            service: self.services[service].clone(),
            reason: self.reason(&self.services[service]),
            in_zone: matrix.in_zone(),
            endpoints: self.ready(service).len(),
            overload: counts.overload(&self.ready(service)),
            matrix,
            connections: self.act_connections,
            failed: self.act_failed,
            settled,
            expectations: Vec::new(),
        }
    }

    /// Ends the current act, with a result for each Service that it is about.
    pub(crate) fn end(&mut self, results: Vec<ActResult>) {
        self.ended.extend(results);
        self.played += 1;
        self.act = None;
        self.window = None;
    }

    /// How many acts have ended.
    pub(crate) fn played(&self) -> usize {
        self.played
    }

    /// The results of all acts that have ended.
    pub(crate) fn ended(&self) -> &[ActResult] {
        &self.ended
    }

    /// Connections of the whole run, and those that failed.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.connections, self.failed)
    }

    /// How long proxies take to write a change to the kernel.
    pub(crate) fn programming(&self) -> Option<Programming> {
        self.observation.programming
    }

    /// Names of the endpoints of a Service that take new connections.
    fn ready(&self, service: usize) -> Vec<String> {
        let of = |pod: &&PodView| self.selects(service, pod) && pod.ready && !pod.ending;
        self.observation.pods.iter().filter(of).map(|pod| pod.name.clone()).collect()
    }

    /// Why a Service is routed as it is: the controller's reason if there is one, else the proxies'.
    fn reason(&self, service: &str) -> String {
        let service_status = self.observation.statuses.get(service).cloned().unwrap_or_default();
        let routed = || {
            let routed = self.observation.routed.get(service);
            routed.map(|routed| join(&routed.reasons)).unwrap_or_default()
        };
        match service_status.reason {
            Some(reason) => reason,
            None if service_status.asked.is_empty() => "ClusterWide".into(),
            None => routed(),
        }
    }

    /// Connections of a Service in the last ticks.
    fn recent(&self, service: usize, ticks: usize) -> Counts {
        let mut counts = Counts::default();
        // A Service that a user has created was not there in earlier ticks.
        let ticks = self.lately.iter().rev().take(ticks);
        ticks.filter_map(|tick| tick.get(service)).for_each(|tick| counts.add(tick));
        counts
    }

    fn service(&self, index: usize) -> ServiceView {
        let name = &self.services[index];
        let counts = self.recent(index, MATRIX_TICKS);
        let ready = self.ready(index);
        let routed = self.observation.routed.get(name);
        ServiceView {
            name: name.clone(),
            asked: self
                .observation
                .statuses
                .get(name)
                .map(|one| one.asked.clone())
                .unwrap_or_default(),
            mode: routed.map(|routed| join(&routed.modes)).unwrap_or_default(),
            reason: self.reason(name),
            endpoints: ready.len(),
            in_zone: counts.matrix(&self.zones, &self.endpoint_zones).in_zone(),
            overload: self.recent(index, LOAD_TICKS).overload(&ready),
            rate: counts.total() as f64 / self.span(),
            failed: self.failed_by_service[index],
        }
    }

    /// The time that the matrix covers, in seconds.
    fn span(&self) -> f64 {
        self.lately.len().clamp(1, MATRIX_TICKS) as f64 * TICK.as_secs_f64()
    }

    /// Everything that the screen shows.
    pub(crate) fn view(&self, clock: Duration) -> View {
        let shown = self.shown();
        let position = shown.iter().position(|index| *index == self.selected).unwrap_or(0);
        let selected = shown.get(position).copied().unwrap_or(0);
        let counts = self.recent(selected, MATRIX_TICKS);
        let matrix = if self.lately.is_empty() {
            Matrix::new(&self.zones)
        } else {
            counts.matrix(&self.zones, &self.endpoint_zones)
        };
        let services: Vec<ServiceView> = shown.iter().map(|one| self.service(*one)).collect();
        View {
            title: self.title.clone(),
            place: self.place,
            clock,
            act: self.act.clone(),
            ended: self.ended.clone(),
            zones: self.observation.zones.clone(),
            rate: services.iter().map(|service| service.rate).sum(),
            services,
            selected: position,
            matrix,
            endpoints: self.endpoints(selected),
            history: self.history[selected].clone(),
            connections: self.connections,
            failed: self.failed,
            programming: self.observation.programming,
            kubectl: self.kubectl.clone(),
            page: self.page.clone(),
            paused: self.paused,
            help: false,
            trouble: self.trouble.clone(),
        }
    }

    fn endpoints(&self, service: usize) -> Vec<Endpoint> {
        let (ready, counts) = (self.ready(service), self.recent(service, LOAD_TICKS));
        let loads: BTreeMap<&String, f64> = ready.iter().zip(counts.loads(&ready)).collect();
        let of = |pod: &&PodView| self.selects(service, pod);
        let mut all: Vec<Endpoint> = self
            .observation
            .pods
            .iter()
            .filter(of)
            .map(|pod| Endpoint {
                name: pod.name.clone(),
                zone: pod.zone.clone(),
                load: loads.get(&pod.name).copied().unwrap_or(0.0),
                ready: pod.ready && !pod.ending,
            })
            .collect();
        all.sort_by(|a, b| (&a.zone, &a.name).cmp(&(&b.zone, &b.name)));
        all
    }
}

fn join(texts: &BTreeSet<String>) -> String {
    texts.iter().cloned().collect::<Vec<_>>().join(",")
}

/// What objects lead to, computed before and after a measurement.
#[derive(Debug, Default)]
pub(crate) struct Computed {
    pub(crate) predictions: Vec<Prediction>,
    /// Zones do not call by their cores, so that the computed loads say nothing.
    pub(crate) calls_unevenly: bool,
}

/// Compares what was measured with what the act expects, and stores the outcome in `result`. In another size than the
/// scenario's, what was computed before and after the measurement takes the place of the act's shares and loads, and
/// reasons are not compared.
pub(crate) fn judge(result: &mut ActResult, expect: &Expect, computed: Option<&Computed>) {
    let expect = match computed {
        Some(computed) => &computed_expectations(result, expect, computed),
        None => expect,
    };
    let mut all = Vec::new();
    let percent = |value: Option<f64>| value.map(Percent);
    let counted = result.matrix.total() as f64;
    bounds("in zone", expect.in_zone, percent(result.in_zone), share_noise(counted), &mut all);
    let load_noise = Percent(result.load_tolerance());
    bounds("overload", expect.overload, percent(result.overload), |_| load_noise, &mut all);
    let failed = match expect.failed {
        Range { at_least: None, at_most: None } => Range { at_least: None, at_most: Some(0) },
        given => given,
    };
    bounds("failed connections", failed, Some(result.failed), |_| 0, &mut all);
    if !expect.reason.is_empty() {
        all.push(Expectation {
            expected: format!("reason {}", expect.reason.join(" or ")),
            tolerance: None,
            found: result.reason.clone(),
            held: expect.reason.contains(&result.reason),
        });
    }
    result.expectations = all;
}

/// What an act expects in this size. Routing may have changed while it was measured, so every prediction counts.
fn computed_expectations(result: &ActResult, expect: &Expect, computed: &Computed) -> Expect {
    let in_zone = || computed.predictions.iter().map(|one| Percent(one.in_zone(&result.matrix)));
    let lowest = in_zone().reduce(|a, b| if a < b { a } else { b });
    let highest = in_zone().reduce(|a, b| if a > b { a } else { b });
    let overload = computed.predictions.iter().map(|one| Percent(one.overload));
    let overload = overload.reduce(|a, b| if a > b { a } else { b });
    let given = |range: &Range<Percent>| range.at_least.is_some() || range.at_most.is_some();
    let mut expected =
        Expect { service: expect.service.clone(), failed: expect.failed, ..Expect::default() };
    if given(&expect.in_zone) {
        expected.in_zone = Range { at_least: lowest, at_most: highest };
    }
    if given(&expect.overload) && !computed.calls_unevenly {
        expected.overload = Range { at_least: None, at_most: overload };
    }
    expected
}

/// How far a counted share may be from the true one.
fn share_noise(counted: f64) -> impl Fn(&Percent) -> Percent {
    move |bound| {
        let p = bound.0.clamp(0.0, 1.0);
        Percent(STANDARD_DEVIATIONS * (p * (1.0 - p) / counted.max(1.0)).sqrt())
    }
}

fn bounds<T: PartialOrd + Default + Display + Copy + Add<Output = T>>(
    what: &str,
    range: Range<T>,
    found: Option<T>,
    noise: impl Fn(&T) -> T,
    all: &mut Vec<Expectation>,
) {
    let text = found.as_ref().map_or_else(|| "nothing measured".into(), ToString::to_string);
    let mut expect = |words: &str, bound: &T, held: bool| {
        let expected = format!("{what} {words} {bound}");
        let tolerance = Some(noise(bound)).filter(|noise| *noise > T::default());
        let tolerance = tolerance.map(|noise| noise.to_string());
        all.push(Expectation { expected, tolerance, found: text.clone(), held });
    };
    if let Some(bound) = &range.at_least {
        expect("at least", bound, found.is_some_and(|found| found + noise(bound) >= *bound));
    }
    if let Some(bound) = &range.at_most {
        expect("at most", bound, found.is_some_and(|found| found <= *bound + noise(bound)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, zone: &str, ready: bool) -> PodView {
        PodView {
            name: name.into(),
            namespace: "default".into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ours: true,
            node: format!("{zone}-1"),
            zone: zone.into(),
            ready,
            ending: false,
        }
    }

    fn observation() -> Observation {
        Observation {
            pods: vec![pod("one", "a", true), pod("two", "b", true)],
            ..Observation::default()
        }
    }

    /// Connections to endpoint `one`: this many from its own zone, and this many from zone b.
    fn counts(home: u64, away: u64) -> Vec<Counts> {
        let answered = [((0, "one".into()), home), ((1, "one".into()), away)];
        vec![Counts { answered: answered.into(), ..Counts::default() }]
    }

    fn board() -> Board {
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let (services, zones) = (vec!["web".into()], names(["a", "b"]));
        Board::new("Test", Place::Machine, services, zones, "kubectl".into())
    }

    #[test]
    fn only_what_was_counted_while_measuring_is_the_act_s() {
        let mut board = board();
        board.begin(ActView { title: "Act".into(), ..ActView::default() }, 0);
        board.tick(counts(100, 100), observation());
        board.phase(Phase::Measuring { done: 0.0 });
        board.tick(counts(30, 10), observation());
        board.phase(Phase::Measuring { done: 0.5 });
        board.tick(counts(30, 10), observation());
        let figures = board.figures(0, Some(0.5));
        let matrix = Matrix {
            zones: vec!["a".into(), "b".into()],
            connections: vec![vec![60, 0], vec![20, 0]],
        };
        let expected = ActResult {
            title: "Act".into(),
            service: "web".into(),
            reason: "ClusterWide".into(),
            endpoints: 2,
            matrix,
            in_zone: Some(0.75),
            overload: Some(1.0),
            connections: 280,
            failed: 0,
            settled: Some(0.5),
            expectations: Vec::new(),
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn the_matrix_follows_within_a_second() {
        let mut board = board();
        (0..20).for_each(|_| board.tick(counts(0, 10), observation()));
        assert_eq!(board.view(Duration::ZERO).matrix.in_zone(), Some(0.0));
        (0..MATRIX_TICKS).for_each(|_| board.tick(counts(10, 0), observation()));
        let view = board.view(Duration::ZERO);
        assert_eq!((view.matrix.in_zone(), view.rate), (Some(1.0), 40.0));
        assert!(TICK * MATRIX_TICKS as u32 <= Duration::from_secs(1));
    }

    /// A bound tolerates four standard deviations and nothing more.
    #[test]
    fn a_bound_holds_unless_chance_cannot_explain_it() {
        let held = |in_zone: f64, counted: u64| {
            let mut matrix = Matrix::new(&["a".into()]);
            matrix.connections[0][0] = counted;
            let mut result =
                ActResult { in_zone: Some(in_zone), matrix, endpoints: 1, ..ActResult::default() };
            let in_zone = Range { at_least: Some(Percent(0.9)), at_most: None };
            judge(&mut result, &Expect { in_zone, ..Expect::default() }, None);
            result.held()
        };
        // One deviation of 100 draws at 0.9 is 0.03, of 10,000 it is 0.003.
        let table =
            [(0.9, 100, true), (0.79, 100, true), (0.77, 100, false), (0.79, 10_000, false)];
        for (in_zone, counted, expected) in table {
            assert_eq!(held(in_zone, counted), expected, "{in_zone} of {counted}");
        }
    }

    #[test]
    fn a_failed_connection_fails_an_act_that_says_nothing_about_it() {
        let mut result = ActResult { failed: 1, ..ActResult::default() };
        judge(&mut result, &Expect::default(), None);
        let expected = Expectation {
            expected: "failed connections at most 0".into(),
            tolerance: None,
            found: "1".into(),
            held: false,
        };
        assert_eq!(result.expectations, [expected]);
    }

    /// The tolerance is a part of the result: without it, `at most 34 %` and `found 40 %` contradict each other.
    #[test]
    fn an_expectation_says_what_chance_may_add() {
        let mut matrix = Matrix::new(&["a".into()]);
        matrix.connections[0][0] = 100;
        let mut result = ActResult { in_zone: Some(0.95), matrix, ..ActResult::default() };
        let in_zone = Range { at_least: Some(Percent(0.9)), at_most: None };
        judge(&mut result, &Expect { in_zone, ..Expect::default() }, None);
        let expected = Expectation {
            expected: "in zone at least 90.0 %".into(),
            tolerance: Some("12.0 %".into()),
            found: "95.0 %".into(),
            held: true,
        };
        assert_eq!(result.expectations[0], expected);
    }

    #[test]
    fn in_another_size_what_was_computed_is_expected() {
        let mut matrix = Matrix::new(&["a".into()]);
        matrix.connections[0][0] = 1_000_000;
        let mut result = ActResult {
            in_zone: Some(0.5),
            overload: Some(0.0),
            endpoints: 1,
            matrix,
            ..ActResult::default()
        };
        let bound = Range { at_least: Some(Percent(0.9)), at_most: None };
        let reason = vec!["SharesBalanced".into()];
        let expect = Expect { in_zone: bound, overload: bound, reason, ..Expect::default() };
        let in_zone = [("in zone at least 0.0 %", true), ("in zone at most 0.0 %", false)];
        let (overload, failed) =
            (("overload at most 0.0 %", true), ("failed connections at most 0", true));
        let even = [in_zone[0], in_zone[1], overload, failed];
        // Loads are computed for zones that call by their cores.
        let uneven = [in_zone[0], in_zone[1], failed];
        for (calls_unevenly, expected) in [(false, &even[..]), (true, &uneven)] {
            let predictions = vec![Prediction::default()];
            judge(&mut result, &expect, Some(&Computed { predictions, calls_unevenly }));
            let told: Vec<(&str, bool)> =
                result.expectations.iter().map(|one| (&*one.expected, one.held)).collect();
            assert_eq!(told, expected);
        }
    }

    /// A Service that a user creates is shown as long as it exists; its failures are not the scenario's.
    #[test]
    fn services_of_users_come_and_go() {
        let mut board = board();
        let status = ServiceStatus {
            namespace: "default".into(),
            selector: [("app".to_owned(), "web".to_owned())].into(),
            ..ServiceStatus::default()
        };
        let seen = |there: bool| Observation {
            user_services: vec!["mine".into()],
            statuses: there.then(|| ("mine".to_owned(), status.clone())).into_iter().collect(),
            ..observation()
        };
        let failures = Counts { failed: [("refused".into(), 3)].into(), ..Counts::default() };
        let counted = || [counts(10, 0), vec![failures.clone()]].concat();
        board.tick(counts(10, 0), observation());
        board.tick(counted(), seen(true));
        board.select(1);
        let view = board.view(Duration::ZERO);
        let shown = |view: &View| -> Vec<(String, usize, u64)> {
            let services = view.services.iter();
            services.map(|one| (one.name.clone(), one.endpoints, one.failed)).collect()
        };
        assert_eq!(shown(&view), [("web".into(), 2, 0), ("mine".into(), 2, 3)]);
        assert_eq!((view.selected, view.failed), (1, 0));
        board.tick(counted(), seen(false));
        let view = board.view(Duration::ZERO);
        assert_eq!((shown(&view), view.selected), (vec![("web".into(), 2, 0)], 0));
    }
}
