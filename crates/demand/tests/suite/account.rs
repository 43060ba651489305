//! What is stored of a Service, as people are told it: the leader's own words, read back.

use zonewise_common::name::Name;
use zonewise_demand::account::{Account, Stored, account};
use zonewise_demand::notes::{self, Notes};
use zonewise_demand::shares::{Decision, Held};
use zonewise_demand::state::State;
use zonewise_topology::reason::{Code, Reason};

use crate::fleet::{Fleet, INTERVAL, WEB};

/// Nine nodes in three equal zones.
fn fleet() -> Fleet {
    let mut fleet = Fleet::three_zones(3);
    fleet.deliver_all();
    fleet
}

/// Decides a few times with so many connections from the nodes of each zone; one decision at least.
fn decide(fleet: &mut Fleet, by_zone: [u64; 3], times: usize) -> (Decision, Notes) {
    let connections: Vec<u64> = by_zone.iter().flat_map(|zone| [zone / 3; 3]).collect();
    let mut notes = Notes::default();
    let mut last = None;
    for _ in 0..times {
        let decision = fleet.interval(&connections);
        notes.decided(&[(WEB.into(), decision.clone())], &[], fleet.now);
        last = Some(decision);
    }
    (last.unwrap(), notes)
}

/// As another program reads it.
fn told(fleet: &Fleet, notes: &Notes, later: u64) -> Account {
    let (text, _) = fleet.state.encode_counting();
    let state = State::decode(&text).unwrap();
    let notes = Notes::decode(&notes.encode(fleet.now));
    let stored = Stored { state: &state, notes: &notes };
    account(&fleet.model(), Some(stored), WEB, Some(fleet.now + later))
}

#[test]
fn the_account_says_what_the_leader_has_decided() {
    let rows: [(&str, [u64; 3], usize, Code); 5] = [
        ("nothing counted", [0, 0, 0], 1, Code::TooFewConnections),
        ("a few", [9, 3, 3], 2, Code::TooFewConnections),
        ("on the way", [6300, 1800, 900], 2, Code::DemandChangeLimited),
        ("arrived", [6300, 1800, 900], 40, Code::DemandMeasured),
        ("as the model says", [3000, 3000, 3000], 40, Code::DemandMeasured),
    ];
    for (name, by_zone, times, code) in rows {
        let mut fleet = fleet();
        let (decision, notes) = decide(&mut fleet, by_zone, times);
        let account = told(&fleet, &notes, 4_000);
        assert_eq!((decision.reason.code(), account.reason.code()), (code, code), "{name}");
        // Of the first decision nothing is in force yet, and chance alone explains the difference of a few connections.
        if account.reason.code() != Code::TooFewConnections {
            assert_eq!(account.held, decision.held, "{name}");
        }
        let near = |one: f64, other: f64| (one - other).abs() < 0.01;
        assert!(near(account.weight, decision.weight), "{name}: {account:?} {decision:?}");
        for (told, decided) in account.zones.iter().zip(&decision.zones) {
            assert_eq!((&told.zone, told.model), (&decided.zone, decided.model), "{name}");
            // The model is in force as it is; a decision has it in millionths.
            assert!(
                (told.in_force - decided.in_force).abs() < 2e-6,
                "{name}: {told:?} {decided:?}"
            );
            assert!(near(told.target, decided.target), "{name}: {told:?} {decided:?}");
            assert_eq!(told.measured.is_some(), decided.measured.is_some(), "{name}");
        }
        let counted = decision.age.map(|age| age + 4.0);
        assert_eq!(account.age, counted, "{name}");
        assert_eq!(account.decided, counted.map(|_| 4.0), "{name}");
    }
}

#[test]
fn figures_that_get_old_are_told_with_their_age() {
    let mut fleet = fleet();
    let (_, notes) = decide(&mut fleet, [120, 30, 30], 8);
    let fresh = told(&fleet, &notes, 0);
    assert_eq!(fresh.reason.code(), Code::DemandMeasured);
    // No connection for twenty-five minutes: the memory is all but gone.
    let (decision, notes) = decide(&mut fleet, [0, 0, 0], 100);
    assert_eq!(decision.reason.code(), Code::DemandTooOld);
    let faded = told(&fleet, &notes, 60_000);
    assert_eq!(faded.reason, decision.reason);
    assert_eq!((faded.age, faded.decided), (Some(1560.0), Some(60.0)));
    // The clock of who reads may be behind.
    let early = account(
        &fleet.model(),
        Some(Stored { state: &fleet.state, notes: &notes }),
        WEB,
        Some(fleet.now - 30_000),
    );
    assert_eq!(early.decided, Some(0.0));
}

#[test]
fn a_node_that_claims_too_much_and_rewrites_are_known_from_the_notes() {
    let mut fleet = fleet();
    let mut notes = Notes::default();
    for _ in 0..40 {
        let mut connections = [30; 9];
        connections[0] = 30_000;
        let decision = fleet.interval(&connections);
        notes.decided(&[(WEB.into(), decision)], &[], fleet.now);
    }
    let account = told(&fleet, &notes, 0);
    assert!(
        matches!(account.reason, Reason::DemandOfOneNode { part } if part > 0.9),
        "{account:?}"
    );
    let rewrites = account.rewrites_in_hour;
    assert!((1..=12).contains(&rewrites), "{rewrites}");
    let later = told(&fleet, &notes, 3_600_000);
    assert_eq!(later.rewrites_in_hour, 0, "an hour later, none is of the last hour");
    assert!(told(&fleet, &Notes::default(), 0).reason.code() == Code::DemandMeasured);
}

/// Where nothing is stored of a Service, it is said why.
#[test]
fn a_service_without_figures_gets_a_reason() {
    let fleet = fleet();
    let (model, state) = (fleet.model(), State::default());
    let with = |not_measured, not_stored, left_out: &[Name]| {
        let mut notes = Notes::default();
        notes.decided(&[], left_out, fleet.now);
        notes.not_measured = not_measured;
        notes.not_stored = not_stored;
        let notes = Notes::decode(&notes.encode(fleet.now));
        account(&model, Some(Stored { state: &state, notes: &notes }), WEB, None).reason
    };
    let full = Reason::DemandTableFull { most: 10_000 };
    let web = [Name::from(WEB)];
    let rows = [
        (with(0, 0, &[]), Reason::TooFewConnections { connections: 0, enough: 50 }),
        (with(1, 0, &web), full),
        (with(1, 7, &web), full),
        (
            with(1, 0, &["shop/other".into()]),
            Reason::TooFewConnections { connections: 0, enough: 50 },
        ),
        // Its name may be one of those that did not fit.
        (with(9, 0, &["shop/other".into()]), full),
        (with(0, 7, &[]), Reason::DemandNotStored { services: 7 }),
        (account(&model, None, WEB, None).reason, Reason::DemandNotCollected),
    ];
    for (found, expected) in rows {
        assert_eq!(found, expected);
        assert!(found.to_string().len() > 20, "{found}");
    }
}

#[test]
fn shares_that_wait_for_rewrites_say_so() {
    let mut fleet = fleet();
    // Demand jumps to and fro until no rewrite is left.
    let mut waited = false;
    for step in 0..200 {
        let (many, few) = if step / 4 % 2 == 0 { (9000, 300) } else { (300, 9000) };
        let decision = fleet.interval(&[many, many, many, few, few, few, 300, 300, 300]);
        if decision.held == Some(Held::RewriteLimit) {
            waited = true;
            let account = told(&fleet, &Notes::default(), 0);
            assert_eq!(account.reason.code(), Code::DemandChangeLimited);
            assert_eq!(account.held, Some(Held::RewriteLimit));
        }
    }
    assert!(waited, "the rewrites were never spent");
}

#[test]
fn notes_stay_below_their_limit_and_keep_what_matters_most() {
    let name =
        |number: usize| -> Name { format!("{:n<30}/{:s<30}{number:05}", "", "").as_str().into() };
    let mut fleet = fleet();
    let rewritten = Decision { rewritten: true, ..fleet.interval(&[500; 9]) };
    let bounded = Decision { reason: Reason::DemandOfOneNode { part: 0.9 }, ..rewritten.clone() };
    let mut decisions: Vec<(Name, Decision)> =
        (0..5000).map(|number| (name(number), rewritten.clone())).collect();
    decisions[0].1 = bounded;
    let mut notes = Notes::default();
    notes.decided(&decisions, &[name(5000), name(5001)], fleet.now);
    let text = notes.encode(fleet.now);
    assert!(text.len() <= notes::MAX_BYTES, "{}", text.len());
    let read = Notes::decode(&text);
    assert_eq!(read.of(&name(0)).and_then(|note| note.of_one_node), Some(0.9));
    assert!(read.of(&name(5001)).is_some_and(|note| note.left_out));
    assert!(!read.may_have_left_out());

    let all: Vec<Name> = (0..5000).map(name).collect();
    notes.decided(&[], &all, fleet.now + INTERVAL);
    let text = notes.encode(fleet.now);
    assert!(text.len() <= notes::MAX_BYTES && text.len() > notes::MAX_BYTES / 2, "{}", text.len());
    let read = Notes::decode(&text);
    assert!(read.not_measured == 5000 && read.may_have_left_out());
    assert_eq!(Notes::decode("nonsense"), Notes::default());
    let later = text.replacen("\"v\":1", "\"v\":2,\"new\":true", 1);
    assert_eq!(Notes::decode(&later), read, "what a later version has besides is left alone");
}
