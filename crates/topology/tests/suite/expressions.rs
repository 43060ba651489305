//! D17: heuristics that users write. What an expression says, what is refused and where, and what
//! no expression can do.

use crate::common::zones;
use proptest::prelude::*;
use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::expression::Kind::{self, EndpointZones, ZoneShares};
use zonewise_topology::expression::{Definition, Expression, ExpressionError, Library};
use zonewise_topology::heuristic::{Case, Heuristic};
use zonewise_topology::reason::{Code, Fault, Outcome, Reason};
use zonewise_topology::region::Region;

fn hints(text: &str) -> Expression {
    Expression::compile("example.com/test", Kind::EndpointZones, text).unwrap()
}

fn shares(text: &str) -> Expression {
    Expression::compile("example.com/test", Kind::ZoneShares, text).unwrap()
}

/// `a`, `b`, `c`, …
fn letters(count: usize) -> Vec<Box<str>> {
    ('a'..='z').take(count).map(|letter| letter.to_string().into()).collect()
}

fn ask(expression: &Expression, cells: &[(u64, u64)]) -> (Reason, Allocation) {
    ask_about(expression, &Region::of(&zones(cells)))
}

fn ask_about(expression: &Expression, region: &Region<'_>) -> (Reason, Allocation) {
    let mut out = Allocation::new();
    let names = letters(region.zones.len());
    let reason = expression.allocate_named(&Case::fresh(*region), &names, &mut out);
    (reason, out)
}

/// The whole allocation as text: a line for each group with its label, its endpoints per source and
/// its weights per consuming zone.
fn drawn(allocation: &Allocation) -> Vec<String> {
    let names = letters(allocation.consumers());
    let line = |(index, group)| {
        let label = allocation.label_text(group, &names);
        let contents = allocation.contents_of(index);
        let weights = allocation.weights_of(index);
        format!("{label} {contents:?} {weights:?}")
    };
    allocation.groups().iter().enumerate().map(line).collect()
}

struct Good {
    expression: Expression,
    cells: &'static [(u64, u64)],
    carrier: Carrier,
    groups: &'static [&'static str],
}

/// Each line is an expression, nodes and endpoints per zone, and all that comes of it.
fn good() -> Vec<Good> {
    let line = |expression, cells, carrier, groups| Good { expression, cells, carrier, groups };
    vec![
        // Its own zone; a zone without endpoints uses all.
        line(
            hints("[endpoint.zone]"),
            &[(1, 4), (1, 2), (1, 0)],
            Carrier::Hints,
            &["a [4, 0, 0] [1.0, 0.0, 1.0]", "b [0, 2, 0] [0.0, 1.0, 1.0]"],
        ),
        // Its own zone and those without endpoints.
        line(
            hints("[endpoint.zone] + zones.filter(z, z.endpoints == 0).map(z, z.name)"),
            &[(1, 4), (1, 2), (1, 0)],
            Carrier::Hints,
            &["shared-a-c [4, 0, 0] [1.0, 0.0, 1.0]", "shared-b-c [0, 2, 0] [0.0, 1.0, 1.0]"],
        ),
        // Its own zone and the next.
        line(
            hints(
                "zones.filter(z, z.name == endpoint.zone)\n\
                 .map(z, [z.name, zones[(z.index + 1) % size(zones)].name])[0]",
            ),
            &[(1, 1), (1, 2), (1, 3)],
            Carrier::Hints,
            &[
                "shared-a-b [1, 0, 0] [1.0, 1.0, 0.0]",
                "shared-b-c [0, 2, 0] [0.0, 1.0, 1.0]",
                "shared-a-c [0, 0, 3] [1.0, 0.0, 1.0]",
            ],
        ),
        // By number: every second endpoint helps the first zone. The order of a list means nothing.
        line(
            hints("endpoint.index % 2 == 0 ? [endpoint.zone] : ['b', 'a', 'b']"),
            &[(1, 3), (1, 2)],
            Carrier::Hints,
            &["a [2, 0] [1.0, 0.0]", "shared-a-b [1, 1] [1.0, 1.0]", "b [0, 1] [0.0, 1.0]"],
        ),
        // Shares in proportion to endpoints, as a list with a number for each zone.
        line(
            shares("zones.map(z, z.endpoints)"),
            &[(1, 6), (1, 2)],
            Carrier::Shares,
            &["a [6, 0] [0.125, 0.125]", "b [0, 2] [0.125, 0.125]"],
        ),
        // Three quarters at home, as a map; a number need not be a double.
        line(
            shares("zone.name == 'a' ? {'a': 3, 'b': 1} : {zone.name: 1.0}"),
            &[(1, 3), (1, 1)],
            Carrier::Shares,
            &["a [3, 0] [0.25, 0.0]", "b [0, 1] [0.25, 1.0]"],
        ),
        // What is meant for a zone without endpoints goes to the others; no share at all means all.
        line(
            shares("zone.name == 'a' ? {'b': 1, 'c': 1} : {}"),
            &[(1, 2), (1, 2), (1, 0)],
            Carrier::Shares,
            &[
                "a [2, 0, 0] [0.0, 1.0, 1.0]",
                "b [0, 2, 0] [0.5, 1.0, 1.0]",
                "c [0, 0, 0] [0.0, 1.0, 1.0]",
            ],
        ),
    ]
}

#[test]
fn d17_an_expression_is_a_heuristic() {
    for Good { expression, cells, carrier, groups } in good() {
        let (reason, allocation) = ask(&expression, cells);
        assert_eq!(reason, Reason::ExpressionApplied, "{expression:?}");
        assert_eq!(allocation.carrier(), carrier, "{expression:?}");
        assert_eq!(drawn(&allocation), groups, "{expression:?}");
    }
}

/// No zones for any endpoint is an answer, not a failure.
#[test]
fn d17_no_zones_for_any_endpoint_means_everywhere_as_asked() {
    for expression in
        [hints("total < 6 ? [] : [endpoint.zone]"), shares("{}"), shares("zones.map(z, 0)")]
    {
        let (reason, allocation) = ask(&expression, &[(1, 3), (1, 2)]);
        assert_eq!(reason, Reason::ClusterWide, "{expression:?}");
        assert_eq!(allocation.carrier(), Carrier::Plain);
        assert_eq!(drawn(&allocation), ["global [3, 2] [1.0, 1.0]"]);
    }
}

/// Without names zones are called by their numbers, so that what needs no names still works.
#[test]
fn d17_names_are_optional() {
    let cells = zones(&[(1, 1), (1, 1)]);
    let case = Case::fresh(Region::of(&cells));
    let mut out = Allocation::new();
    assert_eq!(hints("[endpoint.zone]").allocate(&case, &mut out), Reason::ExpressionApplied);
    assert_eq!(drawn(&out), ["a [1, 0] [1.0, 0.0]", "b [0, 1] [0.0, 1.0]"]);
    let boxed: Box<dyn Heuristic> = Box::new(hints("[endpoint.zone]"));
    assert_eq!(boxed.name(), "example.com/test");
}

/// Every zone sends endpoints without a zone their fair part.
#[test]
fn d17_endpoints_without_a_zone() {
    let cells = zones(&[(1, 2), (1, 1)]);
    let region = Region { zones: &cells, total: 4, unplaced: 1, unknown_nodes: 0 };
    let (reason, allocation) = ask_about(&shares("{zone.name: 1}"), &region);
    assert_eq!(reason, Reason::ExpressionApplied);
    assert_eq!(
        drawn(&allocation),
        ["a [2, 0, 0] [0.375, 0.0]", "b [0, 1, 0] [0.0, 0.75]", "no-zone [0, 0, 1] [0.25, 0.25]"]
    );
    // With hints it depends on whether the expression finds a zone for them.
    let (reason, _) = ask_about(&hints("[endpoint.zone]"), &region);
    assert_eq!(reason, Reason::EndpointsWithoutZone { endpoints: 1 });
    let shared = hints("endpoint.zone == '' ? zones.map(z, z.name) : [endpoint.zone]");
    let (_, allocation) = ask_about(&shared, &region);
    assert_eq!(
        drawn(&allocation),
        ["a [2, 0, 0] [1.0, 0.0]", "b [0, 1, 0] [0.0, 1.0]", "shared-a-b [0, 0, 1] [1.0, 1.0]"]
    );
}

/// Nodes that are unknown matter only to who looks at them.
#[test]
fn d17_capacity_matters_to_who_looks_at_it() {
    let cells = zones(&[(1, 2), (1, 1)]);
    let region = Region { zones: &cells, total: 3, unplaced: 0, unknown_nodes: 2 };
    let code = |expression: &Expression| ask_about(expression, &region).0;
    assert_eq!(code(&shares("zones.map(z, z.endpoints)")), Reason::ExpressionApplied);
    assert_eq!(code(&shares("zones.map(z, z.share)")), Reason::NodeInformationMissing { nodes: 2 });
}

/// A refused text: the message with its position, and the line with a caret.
fn refused(kind: Kind, text: &str) -> String {
    let error = Expression::compile("example.com/test", kind, text).unwrap_err().to_string();
    let begin = format!("heuristic `example.com/test`, {kind}, ");
    error.strip_prefix(&begin).unwrap_or_else(|| panic!("{error}")).to_owned()
}

/// Kind, text, and what its author is told.
const REFUSED: [(Kind, &str, &str); 28] = [
    // Grammar.
    (EndpointZones, "", "line 1, column 1: the expression ends too early\n  | \n  | ^"),
    (
        EndpointZones,
        "[endpoint.zone",
        "line 1, column 15: the expression ends too early\n  | [endpoint.zone\n  |               ^",
    ),
    (
        EndpointZones,
        "[endpoint.zone,\n  'b' 'c']",
        "line 2, column 7: unexpected ''c''\n  |   'b' 'c']\n  |       ^",
    ),
    (EndpointZones, "['é', ☃]", "line 1, column 7: cannot read '☃'\n  | ['é', ☃]\n  |       ^"),
    (EndpointZones, "['a", "line 1, column 2: cannot read ''a'\n  | ['a\n  |  ^"),
    (
        EndpointZones,
        "[endpoint.?zone]",
        "line 1, column 10: unsupported syntax '.?'\n  | [endpoint.?zone]\n  |          ^",
    ),
    // Names.
    (
        EndpointZones,
        "[zone.name]",
        "line 1, column 2: unknown variable `zone`; known are endpoint, zones, total\n  | [zone.name]\n  |  ^",
    ),
    (
        ZoneShares,
        "zones.map(z, z.endpoint)",
        "line 1, column 16: unknown field `endpoint`; a zone has name, index, share, nodes, endpoints, expected\n  \
             | zones.map(z, z.endpoint)\n  |                ^",
    ),
    (
        EndpointZones,
        "zones.mapp(z, z.name)",
        "line 1, column 7: unknown function `mapp`; known are size, int, double, string, startsWith, \
             endsWith, contains, math.least, math.greatest, math.ceil, math.floor, math.round, math.abs\n  \
             | zones.mapp(z, z.name)\n  |       ^",
    ),
    (
        EndpointZones,
        "zones.map(z.name)",
        "line 1, column 7: `map` is written as list.map(name, expression)\n  | zones.map(z.name)\n  |       ^",
    ),
    (
        EndpointZones,
        "zones.map(total, total.name)",
        "line 1, column 7: `total` has a meaning already; choose another name\n  \
             | zones.map(total, total.name)\n  |       ^",
    ),
    // Types.
    (
        EndpointZones,
        " endpoint.zone",
        "line 1, column 2: this gives string; expected a list of zone names, such as [endpoint.zone]\n  \
             |  endpoint.zone\n  |  ^",
    ),
    (
        EndpointZones,
        "[endpoint.index]",
        "line 1, column 1: this gives list of int; expected a list of zone names, such as [endpoint.zone]\n  \
             | [endpoint.index]\n  | ^",
    ),
    (
        ZoneShares,
        "zone.share",
        "line 1, column 1: this gives double; expected a map from zone names to numbers, such as \
             {zone.name: 1.0}, or a list with a number for each zone\n  | zone.share\n  | ^",
    ),
    (
        ZoneShares,
        "{zone.name: zone.endpoints / zone.expected}",
        "line 1, column 28: `/` cannot be applied to int and double; write double(…) around the int\n  \
             | {zone.name: zone.endpoints / zone.expected}\n  |                            ^",
    ),
    (
        ZoneShares,
        "zone.endpoints > 'x' ? {} : {}",
        "line 1, column 16: `>` cannot be applied to int and string\n  \
             | zone.endpoints > 'x' ? {} : {}\n  |                ^",
    ),
    (
        EndpointZones,
        "total > 5 ? [endpoint.zone] : endpoint.zone",
        "line 1, column 11: the two answers of `? :` differ: list of string and string\n  \
             | total > 5 ? [endpoint.zone] : endpoint.zone\n  |           ^",
    ),
    (
        EndpointZones,
        "total ? [] : []",
        "line 1, column 7: the condition before `?` must be a bool, not int\n  | total ? [] : []\n  |       ^",
    ),
    (
        ZoneShares,
        "{1: 1.0}",
        "line 1, column 2: the key of a map must be a string, not int\n  | {1: 1.0}\n  |  ^",
    ),
    (
        EndpointZones,
        "[endpoint.zone, 1]",
        "line 1, column 17: int beside string\n  | [endpoint.zone, 1]\n  |                 ^",
    ),
    (
        EndpointZones,
        "{'a': 1}.map(key, key)",
        "line 1, column 10: only lists can be iterated, not map to int\n  \
             | {'a': 1}.map(key, key)\n  |          ^",
    ),
    (
        EndpointZones,
        "zones.filter(z, z == zones[0]).map(z, z.name)",
        "line 1, column 19: `==` cannot be applied to zone and zone\n  \
             | zones.filter(z, z == zones[0]).map(z, z.name)\n  |                   ^",
    ),
    (
        EndpointZones,
        "[null]",
        "line 1, column 2: bytes, null and unsigned numbers cannot be used here\n  | [null]\n  |  ^",
    ),
    (
        EndpointZones,
        "[endpoint.zone.matches('a+') ? 'a' : 'b']",
        "line 1, column 16: unknown function `matches`; known are size, int, double, string, startsWith, \
             endsWith, contains, math.least, math.greatest, math.ceil, math.floor, math.round, math.abs\n  \
             | [endpoint.zone.matches('a+') ? 'a' : 'b']\n  |                ^",
    ),
    // What fits and still never works.
    (
        EndpointZones,
        "[zones[99].name]",
        "line 1, column 7: never works: there is no such element\n  | [zones[99].name]\n  |       ^",
    ),
    (
        ZoneShares,
        "{zone.name: 1 / (total - total)}",
        "line 1, column 15: never works: it divides by zero\n  | {zone.name: 1 / (total - total)}\n  |               ^",
    ),
    (
        ZoneShares,
        "{zone.name: -1}",
        "line 1, column 1: never works: a share is negative or not a number, or the number of shares is not the number of zones\n  \
             | {zone.name: -1}\n  | ^",
    ),
    (
        EndpointZones,
        "endpoint.index == 0 ? [] : [endpoint.zone]",
        "line 1, column 1: never works: it gives an endpoint no zone, so proxies would ignore all hints\n  \
             | endpoint.index == 0 ? [] : [endpoint.zone]\n  | ^",
    ),
];

#[test]
fn d17_what_is_wrong_is_refused_with_its_position() {
    for (kind, text, expected) in REFUSED {
        assert_eq!(refused(kind, text), expected, "{text}");
    }
}

/// Evaluation cannot be interrupted: what may take long is refused before.
#[test]
fn d17_what_is_too_expensive_is_refused() {
    let doubled = format!("[endpoint.zone]{}", ".map(x, x + x)".repeat(12));
    let copied = format!("[[endpoint.zone]]{}[0]", ".map(x, x + x)".repeat(12));
    let squares =
        format!("[{}].map(x, endpoint.zone)", "zones.map(a, zones.map(b, 1)), ".repeat(30));
    let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let counted =
        format!("{digits}.map(a, {digits}.map(b, {digits}.map(c, a + b + c))).map(x, 'a')");
    let rows: [(&str, &str); 6] = [
        (
            "zones.filter(a, zones.exists(b, zones.exists(c, c.nodes > a.nodes))).map(a, a.name)",
            "line 1, column 7: loops over zones are nested more than two deep",
        ),
        (
            "zones.map(a, zones.map(b, zones)).map(x, endpoint.zone)",
            "line 1, column 7: loops over zones are nested more than two deep",
        ),
        (
            &doubled,
            "line 1, column 171: too expensive: up to 180490 steps with 12 zones, at most 10000 are allowed",
        ),
        (&copied, "line 1, column 173: too expensive: up to "),
        (&squares, "line 1, column 934: too expensive: up to "),
        (&counted, "line 1, column 32: too expensive: up to "),
    ];
    for (text, expected) in rows {
        let error = refused(Kind::EndpointZones, text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    // Two deep is what comparing zones with each other takes.
    hints("zones.filter(a, zones.all(b, b.endpoints <= a.endpoints)).map(a, a.name)");
}

/// Nested, long and strange texts end in a message, on a stack smaller than any thread has.
#[test]
fn d17_hostile_texts_are_refused() {
    let nested = |open: &str, close: &str, times| open.repeat(times) + "1" + &close.repeat(times);
    let rows = [
        ("x".repeat(1 << 20), "1048576 bytes of text; at most 4096 are allowed"),
        ("[".repeat(4096), "more than 500 tokens"),
        ("1 in ".repeat(800), "more than 500 tokens"),
        (nested("(", ")", 200), "nested more than 24 deep"),
        (nested("[", "]", 200), "nested more than 24 deep"),
        (nested("!(", ")", 100), "nested more than 24 deep"),
        (nested("zones.map(z, ", ")", 60), "nested more than 24 deep"),
        ("total > 1 ? [] : ".repeat(60) + "[]", "nested more than 24 deep"),
        ("1+".repeat(249) + "1", "this gives int; expected a list of zone names"),
        ("total".to_owned() + &".a".repeat(240), "a value of type int has no fields"),
        ("-".repeat(499) + "1", "this gives int; expected a list of zone names"),
        ("\u{feff}[endpoint.zone]".to_owned(), "cannot read"),
        ("\u{1b}[31m".to_owned(), "cannot read '\\u{1b}'"),
        ("[\"\u{202e}\u{0}\"]\u{0}".to_owned(), "cannot read '\\u{0}'"),
        ("['\\ud800']".to_owned(), "invalid string literal"),
        ("{'a': 1, 'a': 2}.map(x, x)".to_owned(), "only lists can be iterated"),
        ("9223372036854775808".to_owned(), "invalid int literal"),
        ("// nothing".to_owned(), "the expression ends too early"),
    ];
    let deep = "1+".repeat(240) + "1 > 0 ? [endpoint.zone] : []";
    let all = move || {
        assert_eq!(ask(&hints(&deep), &[(1, 1)]).0, Reason::ExpressionApplied);
        for (text, expected) in rows {
            let error = refused(Kind::EndpointZones, &text);
            assert!(error.contains(expected), "{error}");
            assert!(error.len() < 700 && !error.replace('\n', "").contains(char::is_control));
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(all).unwrap().join().unwrap();
}

/// What only shows on a Service takes no endpoint away: every zone uses every endpoint.
#[test]
fn d17_a_failure_means_everywhere_with_a_reason() {
    let own = "endpoint.index < 0 ? [] : [endpoint.zone]";
    type Row = (Expression, &'static [(u64, u64)], Fault);
    let rows: [Row; 8] = [
        (hints("['eu-1', endpoint.zone]"), &[(1, 2), (1, 1)], Fault::UnknownZone),
        (hints("zones.map(z, z.name)"), &[(1, 1); 9], Fault::TooManyZones),
        (hints("[zones[1].name]"), &[(1, 2)], Fault::Evaluation),
        (
            hints("zones[0].endpoints == 2 && endpoint.zone == 'a' ? [] : ['a']"),
            &[(1, 2), (1, 1)],
            Fault::EndpointLeftOut,
        ),
        (hints(own), &[(1, 9_000), (1, 1_001)], Fault::TooExpensive),
        (shares("{'eu-1': 1}"), &[(1, 2), (1, 1)], Fault::UnknownZone),
        (shares("[1]"), &[(1, 2), (1, 1)], Fault::WrongShares),
        (
            shares("{zone.name: 1.0 / double(zone.endpoints)}"),
            &[(1, 2), (1, 0)],
            Fault::WrongShares,
        ),
    ];
    for (expression, cells, fault) in rows {
        let (reason, allocation) = ask(&expression, cells);
        assert_eq!(reason, Reason::ExpressionFailed { fault }, "{expression:?}");
        assert_eq!(reason.outcome(), Outcome::Fallback);
        let (_, everywhere) = crate::common::allocate("random", cells);
        assert_eq!(allocation.carrier(), Carrier::Plain);
        assert_eq!(drawn(&allocation), drawn(&everywhere));
    }
    assert_eq!(ask(&hints(own), &[(1, 9_000), (1, 1_000)]).0, Reason::ExpressionApplied);
    // Without `endpoint.index` there is one evaluation for each zone, not for each endpoint.
    assert_eq!(ask(&hints("[endpoint.zone]"), &[(1, 1_000_000)]).0, Reason::ExpressionApplied);
}

#[test]
fn d17_the_reason_says_what_is_wrong() {
    let reason = ask(&hints("['eu-1']"), &[(1, 2)]).0;
    assert_eq!(
        reason.to_string(),
        "the custom expression cannot be applied to this Service (it names a zone that does not exist)"
    );
    assert_eq!(
        serde_json::to_string(&reason).unwrap(),
        r#"{"code":"ExpressionFailed","fault":"unknown-zone"}"#
    );
}

#[test]
fn d17_names_have_a_domain_that_is_not_ours() {
    let name = |name: &str| Expression::compile(name, Kind::EndpointZones, "[]").err();
    for good in ["example.com/mine", "a/b", "x-1.example.com/0-z", "notzonewise.dev/mine"] {
        assert_eq!(name(good), None, "{good}");
    }
    let rows = [
        ("mine", "expected <domain>/<name>, such as example.com/mine"),
        ("", "expected <domain>/<name>, such as example.com/mine"),
        ("zonewise.dev/mine", "the domain zonewise.dev is taken; use a domain of your own"),
        ("a.zonewise.dev/mine", "the domain zonewise.dev is taken; use a domain of your own"),
        ("Example.com/mine", "the part before `/` must be a DNS name in lower case"),
        ("/mine", "the part before `/` must be a DNS name in lower case"),
        ("a..b/mine", "the part before `/` must be a DNS name in lower case"),
        ("a/", "the part after `/` must be letters a to z, digits and `-`, at most 63"),
        ("a/b/c", "the part after `/` must be letters a to z, digits and `-`, at most 63"),
        ("a/b:c=1", "the part after `/` must be letters a to z, digits and `-`, at most 63"),
    ];
    for (wrong, why) in rows {
        let expected = ExpressionError::Name { name: wrong.to_owned(), why };
        assert_eq!(name(wrong), Some(expected), "{wrong}");
    }
    let evil = name("\u{1b}[31m").unwrap().to_string();
    assert!(evil.starts_with("heuristic `\\u{1b}[31m`: "), "{evil}");
}

fn definition(name: &str, endpoint_zones: Option<&str>, zone_shares: Option<&str>) -> Definition {
    let text = |text: Option<&str>| text.map(String::from);
    Definition {
        name: name.to_owned(),
        endpoint_zones: text(endpoint_zones),
        zone_shares: text(zone_shares),
    }
}

#[test]
fn d17_a_library_knows_custom_names_beside_the_built_in() {
    let library = Library::new(&[
        definition("example.com/own", Some("[endpoint.zone]"), None),
        definition("example.com/even", None, Some("zones.map(z, z.endpoints)")),
    ])
    .unwrap();
    assert_eq!(library.custom_names().collect::<Vec<_>>(), ["example.com/own", "example.com/even"]);
    let name = |text: &str| library.parse(text).map(|found| found.name().to_owned());
    assert_eq!(name("example.com/own").unwrap(), "example.com/own");
    assert_eq!(name("balanced:max-overload=0.1").unwrap(), "balanced");
    let unknown = name("example.com/odd").unwrap_err().to_string();
    assert!(unknown.starts_with("unknown heuristic `example.com/odd`; known are random, local,"));
    assert!(
        unknown.ends_with(", balanced, balanced-hints, example.com/own, example.com/even"),
        "{unknown}"
    );
    let empty = Library::default().parse("lokal").err().unwrap().to_string();
    assert!(empty.ends_with(", balanced, balanced-hints"), "{empty}");
    // Bound to names, it serves callers that know none.
    let cells = zones(&[(1, 1), (1, 1)]);
    let mut out = Allocation::new();
    let to_b = Library::new(&[definition("example.com/b", Some("['b']"), None)]).unwrap();
    let bound = to_b.parse_for("example.com/b", &letters(2)).unwrap();
    let reason = bound.allocate(&Case::fresh(Region::of(&cells)), &mut out);
    assert_eq!(
        (reason.code(), drawn(&out)),
        (Code::ExpressionApplied, vec!["b [1, 1] [1.0, 1.0]".to_owned()])
    );
}

#[test]
fn d17_definitions_are_complete_and_unique() {
    let good = || definition("example.com/own", Some("[endpoint.zone]"), None);
    let error = |second: Definition| {
        let error = Library::new(&[good(), second]).unwrap_err();
        assert_eq!(error.index, 1);
        error.to_string()
    };
    assert_eq!(error(good()), "heuristic `example.com/own` is defined twice");
    let one = "heuristic `example.com/x`: set exactly one of endpointZones and zoneShares";
    assert_eq!(error(definition("example.com/x", None, None)), one);
    assert_eq!(error(definition("example.com/x", Some("[]"), Some("{}"))), one);
    let read = |json: &str| serde_json::from_str::<Definition>(json);
    assert_eq!(
        read(r#"{"name": "a/b", "zoneShares": "{}"}"#).unwrap(),
        definition("a/b", None, Some("{}"))
    );
    assert!(read(r#"{"name": "a/b", "zoneshares": "{}"}"#).is_err());
}

/// Expressions that fit, of every type, over the variables of a kind.
#[derive(Clone, Copy)]
struct Words {
    kind: Kind,
    /// Loops around this place: `z0`, `z1`.
    loops: usize,
    depth: u32,
}

impl Words {
    fn deeper(self) -> Self {
        Self { depth: self.depth.saturating_sub(1), ..self }
    }

    fn in_loop(self) -> Self {
        Self { loops: self.loops + 1, ..self.deeper() }
    }

    fn leaves(self, ours: &[&str], zone_fields: &[&str]) -> BoxedStrategy<String> {
        let mut known: Vec<String> = ours.iter().map(|text| (*text).to_owned()).collect();
        for field in zone_fields {
            known.extend((0..self.loops).map(|number| format!("z{number}.{field}")));
            known.push(format!("zones[0].{field}"));
            if self.kind == Kind::ZoneShares {
                known.push(format!("zone.{field}"));
            }
        }
        if self.kind == Kind::EndpointZones && zone_fields.contains(&"name") {
            known.push("endpoint.zone".to_owned());
        }
        if self.kind == Kind::EndpointZones && zone_fields.contains(&"index") {
            known.push("endpoint.index".to_owned());
        }
        prop::sample::select(known).boxed()
    }

    fn number(self, double: bool) -> BoxedStrategy<String> {
        let leaf = if double {
            self.leaves(&["0.0", "0.5", "3.0", "1e300"], &["share", "expected"])
        } else {
            self.leaves(
                &["0", "1", "7", "total", "9223372036854775807"],
                &["index", "nodes", "endpoints"],
            )
        };
        if self.depth == 0 {
            return leaf;
        }
        let below = self.deeper();
        let part = move || below.number(double);
        let signs = if double { &["+", "-", "*", "/"][..] } else { &["+", "-", "*", "/", "%"][..] };
        let turned = if double {
            below.number(false).prop_map(|int| format!("double({int})")).boxed()
        } else {
            below.texts().prop_map(|list| format!("size({list})")).boxed()
        };
        prop_oneof![
            3 => leaf,
            2 => (part(), prop::sample::select(signs), part()).prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            1 => (below.condition(), part(), part()).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
            1 => (part(), part()).prop_map(|(a, b)| format!("math.least({a}, {b})")),
            1 => turned,
        ]
        .boxed()
    }

    fn condition(self) -> BoxedStrategy<String> {
        let below = self.deeper();
        let compared =
            (below.number(false), prop::sample::select(&["<", "==", ">="][..]), below.number(true))
                .prop_map(|(a, sign, b)| format!("{a} {sign} {b}"));
        if self.depth == 0 {
            return Just("true".to_owned()).boxed();
        }
        let name = below.loops;
        prop_oneof![
            3 => compared,
            1 => (below.condition(), below.condition()).prop_map(|(a, b)| format!("(!({a}) || {b})")),
            1 => (below.text(), below.texts()).prop_map(|(a, b)| format!("{a} in {b}")),
            1 => below.in_loop().condition().prop_map(move |c| format!("zones.exists(z{name}, {c})")),
        ]
        .boxed()
    }

    fn text(self) -> BoxedStrategy<String> {
        let leaf = self.leaves(&["'a'", "'b'", "'é'", "''"], &["name"]);
        if self.depth == 0 {
            return leaf;
        }
        let below = self.deeper();
        prop_oneof![
            4 => leaf,
            1 => (below.text(), below.text()).prop_map(|(a, b)| format!("({a} + {b})")),
            1 => below.number(false).prop_map(|int| format!("string({int})")),
        ]
        .boxed()
    }

    fn texts(self) -> BoxedStrategy<String> {
        let leaf =
            prop_oneof![Just("[]".to_owned()), self.text().prop_map(|text| format!("[{text}]"))];
        if self.depth == 0 {
            return leaf.boxed();
        }
        let (below, name) = (self.deeper(), self.loops);
        prop_oneof![
            2 => leaf,
            2 => (below.in_loop().condition(), below.in_loop().text())
                .prop_map(move |(c, text)| format!("zones.map(z{name}, {c}, {text})")),
            1 => (below.texts(), below.texts()).prop_map(|(a, b)| format!("({a} + {b})")),
            1 => (below.condition(), below.texts(), below.texts()).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        ]
        .boxed()
    }

    fn whole(self) -> BoxedStrategy<String> {
        if self.kind == Kind::EndpointZones {
            return self.texts();
        }
        let name = self.loops;
        prop_oneof![
            (self.text(), self.number(true)).prop_map(|(key, value)| format!("{{{key}: {value}}}")),
            self.in_loop()
                .number(true)
                .prop_map(move |value| format!("zones.map(z{name}, {value})")),
            (self.condition(), self.number(false))
                .prop_map(|(c, value)| format!("{c} ? {{}} : {{zone.name: {value}}}")),
        ]
        .boxed()
    }
}

fn written() -> impl Strategy<Value = (Kind, String)> {
    let kind = prop_oneof![Just(Kind::EndpointZones), Just(Kind::ZoneShares)];
    kind.prop_flat_map(|kind| (Just(kind), Words { kind, loops: 0, depth: 3 }.whole()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3))]

    /// Whatever an expression says: it is refused or it answers, every endpoint is in exactly one
    /// group, and every zone reaches one.
    #[test]
    fn d17_no_expression_loses_endpoints(
        (kind, text) in written(),
        cells in prop::collection::vec((0u64..4, 0u64..7), 1..11),
        unplaced in 0u64..2,
    ) {
        let compiled = Expression::compile("example.com/test", kind, &text);
        if let Err(error) = &compiled {
            let refused_for_a_reason = ["never works", "too expensive", "more than two deep", "more than 500 tokens"];
            prop_assert!(refused_for_a_reason.iter().any(|why| error.to_string().contains(why)), "{}", error);
        }
        let Ok(expression) = compiled else { return Ok(()) };
        let zones = zones(&cells);
        let total = unplaced + cells.iter().map(|cell| cell.1).sum::<u64>();
        let region = Region { zones: &zones, total, unplaced, unknown_nodes: 0 };
        let (reason, allocation) = ask_about(&expression, &region);
        prop_assert!(reason.outcome() != Outcome::Failed, "{}", reason);
        for source in 0..region.sources() {
            let placed: u64 = (0..allocation.groups().len()).map(|group| allocation.content(group, source)).sum();
            prop_assert_eq!(placed, region.endpoints_at(source), "{}", text);
        }
        for zone in (0..cells.len()).filter(|_| total > 0) {
            let reached = allocation.groups().iter().enumerate().any(|(index, group)| {
                group.size > 0 && allocation.weight(index, zone) > 0.0
            });
            prop_assert!(reached, "zone {} reaches no endpoint: {}", zone, text);
        }
    }

    /// No text makes the reader panic.
    #[test]
    fn d17_no_text_panics(text in "[a-z .,()\\[\\]{}?:+*/%=<>!&|'\"0-9é\n-]{0,60}") {
        let _ = Expression::compile("example.com/test", Kind::EndpointZones, &text);
        let _ = Expression::compile("example.com/test", Kind::ZoneShares, &text);
    }
}
