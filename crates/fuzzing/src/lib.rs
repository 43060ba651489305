//! Everything that reads what others write, as functions of bytes that must not panic.
//!
//! ```text
//!   corpus ─► mutated bytes ─► target: reads them, and checks what must hold of the result
//!     │                          ▲
//!     │   tests/smoke.rs ────────┤  `make test`: stable Rust, a few thousand inputs
//!     └─► fuzz/ (cargo-fuzz) ────┘  `make fuzz`: nightly Rust, guided by coverage, for as long as one likes
//! ```

use std::fs;

mod corpus;
mod targets;

/// A function that reads what others write.
#[derive(Debug)]
pub struct Target {
    /// Its name: that of the program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Reads these bytes. A panic is a fault that was found.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub corpus: fn() -> Vec<Vec<u8>>,
}

/// All targets, by name.
pub const TARGETS: [Target; 14] = [
    Target { name: "api_requests", run: targets::api_requests, corpus: corpus::api_requests },
    Target { name: "configuration", run: targets::configuration, corpus: corpus::configuration },
    Target {
        name: "controller_objects",
        run: targets::controller_objects,
        corpus: corpus::objects,
    },
    Target { name: "data_sets", run: targets::data_sets, corpus: corpus::data_sets },
    Target { name: "demand", run: targets::demand, corpus: corpus::demand },
    Target { name: "list_cutter", run: targets::list_cutter, corpus: corpus::lists },
    Target { name: "manifests", run: targets::manifests, corpus: corpus::manifests },
    Target { name: "metrics_pages", run: targets::metrics_pages, corpus: corpus::metrics_pages },
    Target {
        name: "netlink_answers",
        run: targets::netlink_answers,
        corpus: corpus::netlink_answers,
    },
    Target { name: "protobuf", run: targets::protobuf, corpus: corpus::protobuf },
    Target { name: "proxy_objects", run: targets::proxy_objects, corpus: corpus::objects },
    Target { name: "reviews", run: targets::reviews, corpus: corpus::reviews },
    Target { name: "what_if", run: targets::what_if, corpus: corpus::what_if },
    Target { name: "zone_shares", run: targets::zone_shares, corpus: corpus::zone_shares },
];

/// Writes the corpus of a target to where cargo-fuzz looks for it, one file per input. What cannot be written is told:
/// the search works without it, only slower.
#[expect(
    clippy::print_stderr,
    reason = "it is called by programs of cargo-fuzz, before they search"
)]
pub fn write_corpus(name: &str) {
    let folder = corpus::root().join("fuzz/corpus").join(name);
    let corpus = TARGETS.iter().find(|target| target.name == name).map(|target| (target.corpus)());
    for (number, bytes) in corpus.unwrap_or_default().iter().enumerate() {
        let file = folder.join(format!("seed-{number}"));
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, bytes));
        if let Err(error) = written {
            eprintln!("{} cannot be written: {error}", file.display());
        }
    }
}

/// Runs a target by its name. Unknown names do nothing.
pub fn run(name: &str, bytes: &[u8]) {
    if let Some(target) = TARGETS.iter().find(|target| target.name == name) {
        (target.run)(bytes);
    }
}
