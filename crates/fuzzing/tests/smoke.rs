//! Every target over its corpus and over mutated inputs, on stable Rust. `PROPTEST_CASES` says how many of them;
//! `make fuzz` searches with the help of coverage.
#![allow(clippy::expect_used, reason = "a failed expectation is the failure report")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use zonewise_fuzzing::TARGETS;

/// The mutated inputs of each target, if `PROPTEST_CASES` does not say.
const INPUTS: u64 = 256;

fn inputs() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(INPUTS)
}

/// Bytes that parsers look at.
const SPECIAL: &[u8] = b"{}[]\",:\\-0129eE.\n\0\xff\x80 nulltrue";

fn mutated(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..=random.usize(..4) {
        let from = random.usize(..=bytes.len());
        let to = (from + random.usize(..=16)).min(bytes.len());
        match random.u8(..6) {
            0 if from < to => bytes[from] = random.u8(..),
            1 if from < to => bytes[from] = SPECIAL[random.usize(..SPECIAL.len())],
            2 => drop(bytes.drain(from..to)),
            3 => drop(bytes.splice(from..from, bytes[from..to].to_vec())),
            4 => {
                let other = &corpus[random.usize(..corpus.len())];
                let part = random.usize(..=other.len());
                drop(bytes.splice(from..to, other[part..(part + 64).min(other.len())].to_vec()));
            }
            _ => bytes.truncate(bytes.len() - random.usize(..=bytes.len().min(8))),
        }
    }
    bytes
}

fn survives(name: &str, run: fn(&[u8]), bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| run(bytes))).is_err() {
        panic!("{name} does not survive this input: {}", bytes.escape_ascii());
    }
}

#[test]
fn no_input_makes_a_reader_panic() {
    let seed = std::env::var("FUZZ_SEED")
        .ok()
        .map_or_else(|| fastrand::u64(..), |text| text.parse().expect("FUZZ_SEED is a number"));
    println!("FUZZ_SEED={seed}");
    for target in &TARGETS {
        let corpus = (target.corpus)();
        assert!(corpus.len() > 2, "{} has next to no corpus", target.name);
        corpus.iter().for_each(|bytes| survives(target.name, target.run, bytes));
        let mut random = Rng::with_seed(seed);
        for _ in 0..inputs() {
            survives(target.name, target.run, &mutated(&corpus, &mut random));
        }
    }
}

/// Every target has a program for cargo-fuzz.
#[test]
fn cargo_fuzz_knows_every_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
    let entries = std::fs::read_dir(folder).expect("fuzz/fuzz_targets can be read");
    let files = entries.map(|entry| entry.expect("an entry can be read").file_name());
    let mut programs: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    programs.sort();
    let expected: Vec<String> =
        TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
    assert_eq!(programs, expected);
}
