//! An independent model of what happens, against everything that the documents say, on random clusters.
//!
//! The seeds are new ones in every run, 100 of them, or as many as `PROPTEST_CASES` says. A failure
//! names its seed; `TRUTH_SEED` runs that one alone, and prints its objects.

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::documents::Cluster;
use super::fields::Report;
use super::figures::World;
use super::{claims, draw, screens, trials, unmanaged, widths};

fn check(seed: u64) -> Report {
    let mut report = Report::new(seed);
    let cluster = draw::cluster(seed);
    widths::check(&mut report, &cluster);
    if ["externalName", "withoutSelector"].contains(&World::of(&cluster).kind()) {
        unmanaged::check(&mut report, &cluster);
        return report;
    }
    let (explanation, screen) = cluster.explanation();
    claims::check(&mut report, &cluster, &explanation);
    screens::explanation(&mut report, &explanation, &screen);
    trials::advice(&mut report, &cluster, &explanation);
    trials::improvements(&mut report, &cluster, &explanation);
    trials::ignored(&mut report, &cluster, &explanation);
    trials::losses(&mut report, &cluster, &explanation);
    report
}

/// The most failures after which no further cluster is tried.
const ENOUGH: usize = 20;

/// What was seen in all clusters, and what was wrong.
#[derive(Default)]
struct Findings {
    seen: Report,
    wrong: Vec<String>,
}

/// Checks clusters until all have been taken.
fn work(first: u64, cases: u64, next: &AtomicU64, findings: &Mutex<Findings>) {
    loop {
        let case = next.fetch_add(1, Ordering::Relaxed);
        if case >= cases || findings.lock().unwrap().wrong.len() >= ENOUGH {
            return;
        }
        let seed = first.wrapping_add(case);
        let outcome = catch_unwind(|| check(seed));
        let mut findings = findings.lock().unwrap();
        match outcome {
            Ok(report) => findings.seen.merge(report),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map_or("see above", String::as_str);
                findings.wrong.push(format!("TRUTH_SEED={seed}: {text}"));
            }
        }
    }
}

#[test]
fn every_statement_of_the_documents_is_true() {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    if let Some(seed) = number("TRUTH_SEED") {
        let cluster = draw::cluster(seed);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": cluster.objects});
        let settings = Cluster { objects: Vec::new(), ..cluster };
        println!("{list}\n{settings:?}");
        check(seed);
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (first, cases) = (now.as_nanos() as u64, number("PROPTEST_CASES").unwrap_or(100));
    let (next, findings) = (AtomicU64::new(0), Mutex::new(Findings::default()));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(first, cases, &next, &findings));
        }
    });
    let findings = findings.into_inner().unwrap();
    assert!(findings.wrong.is_empty(), "{:#?}", findings.wrong);
    let forgotten = findings.seen.forgotten();
    assert!(forgotten.is_empty(), "neither checked nor listed as unchecked: {forgotten:#?}");
}
