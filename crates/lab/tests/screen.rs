//! The faces of the lab: every screen word for word, at every size without a panic, as a picture that
//! is well-formed; and the report. To renew the screens: `UPDATE_SCREENS=1 cargo test --workspace
//! --test screen`, then read the change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use serde_json::json;
use zonewise_lab::report;
use zonewise_lab::rights::Place;
use zonewise_lab::testing::{self, Matrix};
use zonewise_lab::view::{
    ActResult, ActView, ClusterSize, Endpoint, Expectation, Kernel, Phase, Programming,
    ServiceView, Summary, View, ZoneView,
};

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

fn drawn(view: &View, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| testing::draw(frame, view)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width).max(1)).map(|row| {
        let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

/// Builds the moments of a story.
struct Story(View);

impl Story {
    /// Three zones with two nodes each; nobody has asked anybody.
    fn new() -> Self {
        let zone = |name: &str| ZoneView { name: name.into(), nodes: 2, ready: 2, cores: 8.0 };
        let zones: Vec<ZoneView> = ["a", "b", "c"].map(zone).into();
        let names: Vec<String> = zones.iter().map(|zone| zone.name.clone()).collect();
        Self(View {
            title: "Three zones, one Service".into(),
            clock: Duration::from_secs(73),
            matrix: Matrix::new(&names),
            zones,
            kubectl: "kubectl --kubeconfig=/tmp/zonewise-lab/kubeconfig".into(),
            ..View::default()
        })
    }

    fn service(mut self, name: &str, reason: &str, in_zone: f64, overload: f64) -> Self {
        self.0.services.push(ServiceView {
            name: name.into(),
            asked: "topology-mode=Auto".into(),
            mode: if reason == "ClusterWide" { "any" } else { "same-zone" }.into(),
            reason: reason.into(),
            endpoints: 9,
            in_zone: Some(in_zone),
            overload: Some(overload),
            rate: 200.0,
            failed: 0,
        });
        self.0.rate += 200.0;
        self.0.connections += 14_600;
        self
    }

    fn act(mut self, number: usize, title: &str, phase: Phase) -> Self {
        self.0.act = Some(ActView {
            number,
            of: 6,
            title: title.into(),
            look: "The diagonal turns green: connections stay in the zone they start in.".into(),
            steps: vec!["annotate web service.kubernetes.io/topology-mode=Auto".into()],
            phase,
        });
        self
    }

    fn asked(mut self, connections: [[u64; 3]; 3]) -> Self {
        self.0.matrix.connections = connections.map(Vec::from).into();
        self
    }

    fn loads(mut self, loads: &[(&str, &[f64])]) -> Self {
        self.0.endpoints = loads
            .iter()
            .flat_map(|(zone, loads)| {
                loads.iter().enumerate().map(move |(index, &load)| Endpoint {
                    name: format!("web-{zone}-{index}"),
                    zone: (*zone).into(),
                    load,
                    ready: true,
                })
            })
            .collect();
        self
    }

    fn history(mut self, shares: impl IntoIterator<Item = Option<f64>>) -> Self {
        self.0.history = shares.into_iter().collect();
        self
    }

    fn ended(mut self, title: &str, reason: &str, in_zone: f64, expectation: Expectation) -> Self {
        self.0.ended.push(result(title, reason, in_zone, expectation));
        self
    }

    fn dead(mut self, zone: usize) -> Self {
        self.0.zones[zone].ready = 0;
        self
    }
}

fn result(title: &str, reason: &str, in_zone: f64, expectation: Expectation) -> ActResult {
    ActResult {
        title: title.into(),
        service: "web".into(),
        reason: reason.into(),
        endpoints: 1,
        matrix: Matrix { zones: vec!["a".into()], connections: vec![vec![7]] },
        in_zone: Some(in_zone),
        overload: Some(0.04),
        connections: 4_021,
        failed: 0,
        settled: Some(0.412),
        expectations: vec![expectation],
    }
}

fn held() -> Expectation {
    Expectation {
        expected: "in zone at most 50 %".into(),
        tolerance: Some("1.2 %".into()),
        found: "33.1 %".into(),
        held: true,
    }
}

fn not_held() -> Expectation {
    Expectation {
        expected: "in zone at least 90 %".into(),
        tolerance: Some("1.2 %".into()),
        found: "33.1 %".into(),
        held: false,
    }
}

fn before_the_first_act() -> View {
    let mut view = Story::new().service("web", "ClusterWide", 0.0, 0.0).0;
    view.zones[2].ready = 1;
    view.services[0] = ServiceView { name: "web".into(), endpoints: 4, ..ServiceView::default() };
    view.rate = 0.0;
    view
}

fn settling() -> View {
    Story::new()
        .service("web", "ClusterWide", 0.33, 0.05)
        .act(1, "No topology", Phase::Settling)
        .asked([[340, 330, 330], [330, 340, 330], [335, 335, 330]])
        .loads(&[("a", &[1.0, 0.97, 1.02]), ("b", &[1.04, 0.99, 1.0]), ("c", &[1.0, 0.98, 1.05])])
        .history([None, None, Some(0.31), Some(0.35), Some(0.33), Some(0.33)])
        .0
}

fn measuring() -> View {
    let rising = (0..40).map(|step| Some(if step < 12 { 0.33 } else { 0.97 }));
    let mut view = Story::new()
        .service("web", "HintsAssigned", 0.97, 0.62)
        .service("cart", "SharesBalanced", 0.83, 0.02)
        .act(2, "Hints from the controller", Phase::Measuring { done: 0.6 })
        .asked([[1_940, 60, 0], [0, 1_000, 0], [0, 20, 980]])
        .loads(&[("a", &[1.62, 1.31]), ("b", &[0.7, 0.71, 0.69]), ("c", &[0.95])])
        .history(rising)
        .ended("No topology", "ClusterWide", 0.331, held())
        .0;
    view.programming = Some(Programming { mean: 0.0042, count: 84 });
    view
}

fn a_failed_expectation() -> View {
    let mut view = measuring();
    view.ended.push(result("A zone loses its endpoints", "TooFewEndpoints", 0.331, not_held()));
    view.act = None;
    view.failed = 12;
    view.services[0].failed = 12;
    view.paused = true;
    view
}

fn a_dead_zone() -> View {
    let mut view = Story::new()
        .service("web", "HintsAssigned", 0.99, 0.05)
        .act(5, "A zone goes away", Phase::Measuring { done: 0.25 })
        .asked([[990, 10, 0], [10, 990, 0], [0, 0, 0]])
        .loads(&[("a", &[1.0, 0.97, 1.02]), ("b", &[1.04, 0.99, 1.0]), ("c", &[0.0])])
        .history((0..200).map(|_| Some(0.99)))
        .dead(2)
        .0;
    view.endpoints[6].ready = false;
    view.trouble = Some("node c-1 does not answer".into());
    view
}

fn fifty_services() -> View {
    let story = (0..50).fold(Story::new(), |story, index| {
        story.service(
            &format!("service-{index}"),
            "HintsAssigned",
            0.5 + 0.01 * f64::from(index),
            0.1,
        )
    });
    let mut view = story.act(1, "Fifty Services", Phase::Measuring { done: 1.0 }).0;
    view.selected = 30;
    view.endpoints = (0..150)
        .map(|index| Endpoint {
            name: format!("pod-{index}"),
            zone: ["a", "b", "c"][index / 50].into(),
            load: 0.5 + index as f64 / 100.0,
            ready: true,
        })
        .collect();
    view
}

fn hostile_names() -> View {
    let hostile = "<b>\u{1b}[31m\u{7}&\"地図\n";
    let mut view = measuring();
    view.title = hostile.repeat(20);
    view.zones[0].name = hostile.into();
    view.matrix.zones[0] = hostile.into();
    view.services[0].name = hostile.repeat(3);
    view.services[0].reason = hostile.repeat(3);
    view.endpoints[0].name = hostile.into();
    view.endpoints[0].zone = hostile.into();
    view.ended[0].title = hostile.into();
    view.kubectl = hostile.into();
    view.trouble = Some(hostile.into());
    if let Some(act) = &mut view.act {
        act.title = hostile.into();
        act.look = hostile.repeat(4);
        act.steps = vec![hostile.into(); 30];
    }
    view
}

fn help() -> View {
    let mut view = measuring();
    view.help = true;
    // Longer than the column at 80 characters.
    view.services[1].asked = "preference=zonewise.dev/balanced".into();
    view
}

/// The first line says it, and no command is offered that does not exist there.
fn in_memory() -> View {
    View { place: Place::Memory, ..measuring() }
}

fn help_in_memory() -> View {
    View { place: Place::Memory, ..help() }
}

fn help_without_root() -> View {
    View { place: Place::UserNamespace, ..help() }
}

fn a_long_request() -> View {
    View { help: false, ..help() }
}

type Moment = (&'static str, fn() -> View);

const MOMENTS: [Moment; 12] = [
    ("before", before_the_first_act),
    ("settling", settling),
    ("measuring", measuring),
    ("failed", a_failed_expectation),
    ("dead-zone", a_dead_zone),
    ("fifty-services", fifty_services),
    ("hostile", hostile_names),
    ("help", help),
    ("long-request", a_long_request),
    ("memory", in_memory),
    ("help-memory", help_in_memory),
    ("help-rootless", help_without_root),
];

#[test]
fn every_screen_is_as_it_was() {
    let mut changed = Vec::new();
    for (name, view) in MOMENTS {
        for (width, height) in SIZES {
            let shown = text(&drawn(&view(), (width, height)));
            changed.extend(differs(&format!("{name}-{width}x{height}"), &shown));
        }
    }
    assert!(changed.is_empty(), "UPDATE_SCREENS=1 renews these:\n{}", changed.join("\n"));
}

/// The text, if it is not the one in the file of that name.
fn differs(name: &str, shown: &str) -> Option<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    (kept != shown).then(|| format!("{name}:\n{shown}"))
}

#[test]
fn colours_are_those_of_every_terminal() {
    let ours = |colour: Color| !matches!(colour, Color::Rgb(..) | Color::Indexed(_));
    for (name, view) in MOMENTS {
        let buffer = drawn(&view(), (120, 40));
        assert!(buffer.content.iter().all(|cell| ours(cell.fg) && ours(cell.bg)), "{name}");
    }
}

#[test]
fn the_matrix_is_hot_where_traffic_leaves_its_zone() {
    let at = |buffer: &Buffer, what: &str| -> Vec<(Color, Color)> {
        let cells = buffer.content.windows(what.len());
        let is = |cells: &&[ratatui::buffer::Cell]| {
            cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() == what
        };
        cells.filter(is).map(|cells| (cells[0].fg, cells[0].bg)).collect()
    };
    let buffer = drawn(&settling(), (80, 24));
    let third = [at(&buffer, "34 %"), at(&buffer, "33 %")].concat();
    assert!(third.contains(&(Color::Green, Color::Reset)), "home: {third:?}");
    assert!(third.contains(&(Color::Black, Color::Yellow)), "elsewhere: {third:?}");
    let buffer = drawn(&a_dead_zone(), (80, 24));
    assert!(at(&buffer, "99 %").contains(&(Color::Black, Color::Green)));
}

#[test]
fn a_bar_is_not_dim_where_it_crosses_the_line_of_the_fair_share() {
    let buffer = drawn(&measuring(), (80, 24));
    let full = buffer.content.iter().filter(|cell| cell.symbol() == "█");
    assert!(full.clone().count() > 0);
    assert!(full.clone().all(|cell| !cell.modifier.contains(Modifier::DIM)));
}

#[test]
fn without_colours_marks_stay() {
    let mut buffer = drawn(&measuring(), (120, 40));
    let before = text(&buffer);
    testing::monochrome(&mut buffer);
    assert_eq!(text(&buffer), before);
    let plain = |colour: Color| colour == Color::Reset;
    assert!(buffer.content.iter().all(|cell| plain(cell.fg) && plain(cell.bg)));
    let reversed = buffer.content.iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED));
    assert_eq!(reversed.count(), 14 + 25, "the title and the selected Service are still marked");
}

#[test]
fn no_control_character_reaches_the_terminal() {
    for size in SIZES {
        let shown = text(&drawn(&hostile_names(), size));
        assert!(shown.chars().all(|char| char == '\n' || !char.is_control()), "{shown}");
    }
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_owned()), "\\PC{0,30}", any::<String>()]
}

fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..3.0, any::<f64>(), Just(f64::NAN), Just(f64::INFINITY)]
}

prop_compose! {
    fn services()(
        name in names(), reason in names(), endpoints in any::<usize>(),
        in_zone in prop::option::of(numbers()), overload in prop::option::of(numbers()),
        rate in numbers(), failed in any::<u64>(),
    ) -> ServiceView {
        let (asked, mode) = (reason.clone(), name.clone());
        // Sums over Services are sums of things that exist.
        let endpoints = endpoints % 100_000;
        ServiceView { name, asked, mode, reason, endpoints, in_zone, overload, rate, failed }
    }
}

prop_compose! {
    fn endpoints()(
        name in names(), zone in names(), load in numbers(), ready in any::<bool>(),
    ) -> Endpoint {
        Endpoint { name, zone, load, ready }
    }
}

prop_compose! {
    fn acts()(
        number in 0..9_usize, of in any::<usize>(), title in names(), look in names(),
        steps in prop::collection::vec(names(), 0..20), done in prop::option::of(numbers()),
    ) -> ActView {
        let phase = done.map_or(Phase::Settling, |done| Phase::Measuring { done });
        ActView { number, of, title, look, steps, phase }
    }
}

prop_compose! {
    /// Rows of the matrix need not be as many as its zones.
    fn matrices()(
        zones in prop::collection::vec(names(), 0..40),
        connections in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..9), 0..9),
    ) -> Matrix {
        Matrix { zones, connections }
    }
}

prop_compose! {
    fn views()(
        (title, kubectl, trouble) in (names(), names(), prop::option::of(names())),
        (clock, selected, paused) in (any::<u32>(), any::<usize>(), any::<bool>()),
        act in prop::option::of(acts()),
        matrix in matrices(),
        services in prop::collection::vec(services(), 0..60),
        endpoints in prop::collection::vec(endpoints(), 0..80),
        history in prop::collection::vec(prop::option::of(numbers()), 0..400),
        (rate, share, held) in (numbers(), numbers(), any::<bool>()),
        ended in 0..12_usize,
        ready in 0..2_usize,
    ) -> View {
        let zone = |name: &String| ZoneView { name: name.clone(), nodes: 2, ready, cores: rate };
        let expectation = Expectation {
            expected: title.clone(), tolerance: trouble.clone(), found: kubectl.clone(), held,
        };
        View {
            clock: Duration::from_secs(clock.into()),
            ended: vec![result(&title, &kubectl, share, expectation); ended],
            zones: matrix.zones.iter().map(zone).collect(),
            connections: clock.into(),
            failed: ready as u64,
            programming: paused.then_some(Programming { mean: rate, count: 1 }),
            help: share > 2.0,
            title, act, services, selected, matrix, endpoints, history, rate, kubectl, paused, trouble,
            page: None,
            place: if held { Place::Memory } else { Place::Machine },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_view_is_drawn_at_every_size(view in views(), width in 1..300_u16, height in 1..100_u16) {
        let buffer = drawn(&view, (width, height));
        well_formed(&testing::svg(&buffer));
    }
}

/// How many columns and rows lie between two sizes that are drawn: 2 and 1 where `PROPTEST_CASES` asks for 1,000 cases or
/// more, as `make test-all` does, and three times as many otherwise.
fn steps() -> (usize, usize) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u32>().ok());
    if cases.is_some_and(|cases| cases >= 1_000) { (2, 1) } else { (6, 3) }
}

#[test]
fn the_smallest_terminals_are_drawn_too() {
    let (columns, rows) = steps();
    for (_, view) in MOMENTS {
        for width in (1..60).step_by(columns) {
            for height in (1..30).step_by(rows) {
                drawn(&view(), (width, height));
            }
        }
    }
}

/// Tags are closed in order, and what stands between them is escaped.
fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some((text, tail)) = rest.split_once('<') {
        escaped(text);
        let (tag, tail) = tail.split_once('>').expect("a tag ends");
        rest = tail;
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert_eq!((open.as_slice(), rest.trim()), (&[][..], ""));
}

fn escaped(text: &str) {
    assert!(!text.contains('>'), "{text}");
    assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
    for after in text.split('&').skip(1) {
        let known =
            ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| after.starts_with(name));
        assert!(known, "{text}");
    }
}

#[test]
fn pictures_are_well_formed() {
    for (name, view) in MOMENTS {
        let buffer = drawn(&view(), (120, 40));
        let svg = testing::svg(&buffer);
        well_formed(&svg);
        assert_eq!(svg.matches("<svg").count(), 1, "{name}");
    }
}

#[test]
fn a_picture_is_what_the_terminal_shows() {
    let mut buffer = Buffer::with_lines(["a<b  地c"]);
    buffer[(0, 0)].set_bg(Color::Green).set_fg(Color::Black);
    buffer[(1, 0)].modifier = Modifier::BOLD | Modifier::DIM;
    let svg = testing::svg(&buffer);
    let shown: Vec<&str> = svg.lines().filter(|line| line.starts_with("<text")).collect();
    let text = |x: &str, length: &str, rest: &str| {
        format!(
            "<text x=\"{x}\" y=\"12.5\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"{rest}</text>"
        )
    };
    assert_eq!(
        shown,
        [
            text("0.0", "8.4", " fill=\"#12161d\">a"),
            text("8.4", "8.4", " font-weight=\"bold\" fill-opacity=\"0.55\">&lt;"),
            text("16.8", "8.4", ">b"),
            text("42.0", "25.2", ">地c"),
        ]
    );
    let ground = "<rect x=\"0.0\" y=\"0\" width=\"8.4\" height=\"16\" fill=\"#4cc26a\"";
    assert!(svg.contains(ground), "{svg}");
}

#[test]
fn two_pictures_stand_beside_or_below_each_other() {
    let small = drawn(&settling(), (80, 24));
    let large = drawn(&measuring(), (120, 40));
    let size = |svg: &str| -> Vec<String> {
        let of = |name: &str| svg.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next();
        ["width", "height"].map(|name| of(name).unwrap().to_owned()).into()
    };
    let beside = testing::side_by_side(&[("before <1>".into(), &small), ("after".into(), &small)]);
    let below = testing::side_by_side(&[("before".into(), &small), ("after".into(), &large)]);
    for svg in [&beside, &below] {
        well_formed(svg);
    }
    assert!(beside.contains(">before &lt;1&gt;</text>"), "{beside}");
    assert_eq!(size(&beside), ["1410", "438"]);
    assert_eq!(size(&below), ["1034", "1146"]);
    well_formed(&testing::side_by_side(&[]));
}

fn summary() -> Summary {
    Summary {
        scenario: "Three zones, one Service".into(),
        kernel: Kernel::Real,
        cluster: ClusterSize { zones: 3, nodes: 6, services: 1, endpoints: 9 },
        first_traffic: 1.44,
        acts: vec![
            result("No topology", "ClusterWide", 0.331, held()),
            result("A zone loses its endpoints", "TooFewEndpoints", 0.331, not_held()),
        ],
        resized: true,
        played: 2,
        planned: 2,
        connections: 8_042,
        failed: 0,
        programming: Some(Programming { mean: 0.0042, count: 84 }),
        peak_memory: 190 << 20,
    }
}

#[test]
fn a_report_says_what_held_and_what_did_not() {
    let good = Summary { acts: vec![summary().acts.remove(0)], played: 1, planned: 1, ..summary() };
    let short =
        Summary { acts: vec![ActResult::default()], played: 1, planned: 3, ..Summary::default() };
    let simulated = Summary { kernel: Kernel::Memory, ..summary() };
    let reports = [
        ("report", summary()),
        ("report-held", good),
        ("report-short", short),
        ("report-memory", simulated),
    ];
    let changed: Vec<String> =
        reports.iter().filter_map(|(name, one)| differs(name, &report::table(one))).collect();
    assert!(changed.is_empty(), "UPDATE_SCREENS=1 renews these:\n{}", changed.join("\n"));
}

#[test]
fn an_act_is_one_line() {
    let lines = summary().acts.iter().map(report::act_line).collect::<Vec<_>>();
    assert_eq!(
        lines,
        [
            "✓ No topology (web): 33.1 % in zone, busiest endpoint +4 % ± 151 %, 4,021 connections, 0 failed, \
             settled in 412 ms",
            "✗ A zone loses its endpoints (web): 33.1 % in zone, busiest endpoint +4 % ± 151 %, \
             4,021 connections, 0 failed, settled in 412 ms, \
             expected in zone at least 90 % (tolerance 1.2 %), found 33.1 %",
        ]
    );
    let hostile = ActResult { title: "a\n\u{1b}[2J".into(), ..ActResult::default() };
    assert_eq!(report::act_line(&hostile), "✓ a\\n\\u{1b}[2J: - in zone, 0 connections, 0 failed");
}

#[test]
fn a_report_for_programs_is_a_document() {
    let act = |title: &str, reason: &str, held: bool, expected: &str| {
        json!({
            "title": title, "service": "web", "reason": reason, "held": held, "endpoints": 1,
            "matrix": {"zones": ["a"], "connections": [[7]]},
            "inZone": 0.331, "overload": 0.04, "connections": 4021, "failed": 0, "settled": 0.412,
            "expectations": [
                {"expected": expected, "tolerance": "1.2 %", "found": "33.1 %", "held": held},
            ],
        })
    };
    assert_eq!(
        report::json(&summary()),
        json!({
            "apiVersion": "output.zonewise.dev/v1",
            "kind": "LabSummary",
            "held": false,
            "scenario": "Three zones, one Service",
            "kernel": "real",
            "cluster": {"zones": 3, "nodes": 6, "services": 1, "endpoints": 9},
            "firstTraffic": 1.44,
            "resized": true,
            "planned": 2,
            "connections": 8042,
            "failed": 0,
            "programming": {"mean": 0.0042, "count": 84},
            "peakMemory": 190 << 20,
            "acts": [
                act("No topology", "ClusterWide", true, "in zone at most 50 %"),
                act("A zone loses its endpoints", "TooFewEndpoints", false, "in zone at least 90 %"),
            ],
        })
    );
}
