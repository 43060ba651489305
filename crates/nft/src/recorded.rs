//! The bytes of a table with one of everything, as `testdata/nft/messages.txt` has them. The tests in `tests/suite/listing.rs`
//! send the same table to the kernel, and compare it with what `nft` lists.

use std::fmt::Write as _;
use std::path::Path;

use crate::abi;
use crate::batch::{Batch, TableFlags, Verb, describe};
use crate::everything::{CHAINS, address, fill, rules, table};
use crate::value::{Bytes, Data, Element, Family};

/// Each message in words, and its bytes: one word of four bytes in each column, as `nft --debug=mnl` shows them.
fn lines(out: &mut String, batch: &Batch) {
    let (mut bytes, _) = batch.parts();
    for (number, message) in batch.numbered() {
        let (one, rest) = bytes.split_at(abi::NLMSG_HDRLEN + message.payload.len());
        bytes = rest;
        let _ = writeln!(out, "{number} {}", describe(&message));
        for line in one.chunks(48) {
            let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect();
            let words: Vec<String> = line.chunks(4).map(word).collect();
            let _ = writeln!(out, "  {}", words.join(" "));
        }
    }
}

/// Everything that can be deleted or changed.
fn undone(family: Family) -> Batch {
    let mut batch = Batch::new("zw");
    batch.flush_chain(family, "rules");
    batch.delete_rule(family, "rules", 0x0102_0304_0506_0708);
    batch.delete_chain(family, "rules");
    batch.flush_set(family, "ips");
    let key = Bytes::new().address(address(family, 1));
    batch
        .elements(Verb::Delete, family, "zones")
        .push(&Element::pair(key.as_slice(), Data::Object("zone-a")));
    batch.delete_set(family, "ips");
    batch.delete_counter(family, "zone-a");
    batch.in_table("owned").add_table(family, TableFlags { owner: true, persist: true }, "");
    batch.delete_table(family);
    batch
}

#[test]
fn messages_are_those_that_the_kernel_took() {
    let mut text = String::new();
    for family in Family::ALL {
        let _ = writeln!(text, "=== {family} ===");
        let mut batch = table(family);
        fill(&mut batch, family);
        for (name, base, _) in &CHAINS {
            batch.add_chain(family, name, Some(base), "");
        }
        lines(&mut text, &batch);
        for rule in rules(family) {
            let mut batch = Batch::new("zw");
            batch.add_rule(family, "rules", &rule);
            let _ = writeln!(text, "{}", rule.text(family));
            lines(&mut text, &batch);
        }
        lines(&mut text, &undone(family));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nft/messages.txt");
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    for (ours, recorded) in text.lines().zip(recorded.lines()) {
        assert_eq!(
            ours, recorded,
            "run the tests of `listing`, then UPDATE_MESSAGES=1 writes them anew"
        );
    }
    assert_eq!(text.len(), recorded.len());
}
