//! Every reason is documented, and every reason this crate can give is reached.

use std::collections::BTreeSet;
use std::ops::RangeFrom;

use crate::common::{allocate, decide, zones};
use zonewise_topology::heuristic::Assignment;
use zonewise_topology::reason::{self, Code, Reason, TABLE};
use zonewise_topology::region::{Region, Situation};
use zonewise_topology::threshold::Start;
use zonewise_topology::zone_shares::{DecodeError, ZoneShares};

#[test]
fn every_code_has_a_sentence_and_a_remedy() {
    for entry in &TABLE {
        assert!(std::ptr::eq(entry.code.entry(), entry));
        assert!(!entry.sentence.is_empty() && !entry.remedy.is_empty());
    }
}

/// `docs/reasons.md` is the table. To renew it: `UPDATE_DOCS=1 cargo test -p zonewise-topology --test suite reasons`.
#[test]
fn the_documentation_lists_every_code() {
    let page = reason::page();
    for entry in &TABLE {
        let anchor = entry.code.to_string().to_lowercase();
        let line = format!("| <a id=\"{anchor}\"></a>`{}` | ", entry.code);
        assert!(page.contains(&line), "{line}");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reasons.md is out of date: run UPDATE_DOCS=1 cargo test -p zonewise-topology --test suite reasons"
    );
}

/// Codes about what people ask for, about running, about demand and about the routes of nodes: tests of `slices`,
/// `controller`, `proxy`, `demand` and `routing` reach them.
const OF_OTHER_CRATES: RangeFrom<Code> = Code::ChoiceOverridden..;

#[test]
fn every_code_is_reached() {
    let three = |endpoints| [(1, endpoints), (1, endpoints), (1, endpoints)];
    let code = |name: &str, cells: &[(u64, u64)]| allocate(name, cells).0.code();
    let mut reached = BTreeSet::from([
        code("random", &three(4)),
        code("same-zone", &three(4)),
        code("same-node", &three(4)),
        code("require-zone", &three(4)),
        code("local", &three(4)),
        code("auto", &three(4)),
        code("auto", &[(0, 1), (0, 1)]),
        code("auto", &three(0)),
        code("auto", &[(1, 5)]),
        code("auto", &[(1, 1), (1, 0)]),
        code("auto", &[(1, 2), (1, 1)]),
        code("local-subset", &three(4)),
        code("local-subset", &three(3)),
        code("local-subset:threshold=1,padding=0", &[(1, 2), (1, 2), (1, 1)]),
        code("balanced", &three(4)),
        code("balanced-hints", &three(4)),
        code("balanced-hints", &[(1, 6), (1, 0), (1, 0)]),
        code("local-shared", &[(0, 5), (0, 1)]),
        code("local", &[(1, 200_000_000)]),
    ]);
    let zones = zones(&three(4));
    let unplaced = Region { zones: &zones, total: 13, unplaced: 1, unknown_nodes: 0 };
    reached.insert(decide("same-zone", &unplaced, None).0.code());
    let previous = Assignment::from(&allocate("auto", &three(4)).1);
    for name in ["auto", "local-subset"] {
        reached.insert(decide(name, &Region::of(&zones), Some(&previous)).0.code());
    }
    reached.extend(Start::resolve(3, Some("x"), Some("x")).1.iter().map(|reason| reason.code()));
    let malformed = ZoneShares::decode("{").unwrap_err();
    reached.insert(Reason::from(&malformed).code());
    reached.insert(too_large().code());
    reached.extend(of_expressions());
    let own = TABLE.iter().map(|entry| entry.code).filter(|code| !OF_OTHER_CRATES.contains(code));
    assert_eq!(reached, own.collect());
}

#[cfg(feature = "expressions")]
fn of_expressions() -> [Code; 2] {
    use zonewise_topology::allocation::Allocation;
    use zonewise_topology::expression::{Expression, Kind};
    use zonewise_topology::heuristic::{Case, Heuristic};

    ["[endpoint.zone]", "['nowhere']"].map(|text| {
        let written = Expression::compile("example.com/test", Kind::EndpointZones, text).unwrap();
        let zones = zones(&[(1, 4), (1, 4)]);
        written.allocate(&Case::fresh(Region::of(&zones)), &mut Allocation::new()).code()
    })
}

/// This build cannot run expressions, so nothing gives their codes.
#[cfg(not(feature = "expressions"))]
fn of_expressions() -> [Code; 2] {
    [Code::ExpressionApplied, Code::ExpressionFailed]
}

/// A thousand zones that all send everywhere: a million shares.
fn too_large() -> Reason {
    let cells: Vec<(u64, u64)> = (0..1000).map(|zone| (1, u64::from(zone % 2 == 0) * 4)).collect();
    let situation = Situation {
        names: (0..1000).map(|zone| format!("a-rather-long-zone-name-{zone:04}").into()).collect(),
        zones: zones(&cells),
        unplaced: 0,
        unknown_nodes: 0,
    };
    let (_, allocation) = decide("random", &situation.region(), None);
    let shares = ZoneShares::of(&situation, &allocation).unwrap();
    let reason = shares.encode().unwrap_err();
    let text = " ".repeat(300 * 1024);
    assert_eq!(ZoneShares::decode(&text), Err(DecodeError::TooLarge(text.len())));
    reason
}
