//! `docs/requirements.md` names, for each requirement, the tests that prove it: read from the names of
//! the test functions in the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{cells, read, root, rust_files};

const PAGE: &str = "docs/requirements.md";
/// Ids below this heading have no test yet; their last column says what is missing.
const OPEN: &str = "## Not proven yet";

/// Whether this is the id of a requirement: a letter from A to E and a number.
fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| (b'A'..=b'E').contains(&first))
        && text.len() > 1
        && bytes.all(|byte| byte.is_ascii_digit())
}

/// The ids at the beginning of a test's name: `a8_b4_hints_stay` proves A8 and B4.
fn ids(name: &str) -> Vec<String> {
    name.split('_').map(str::to_ascii_uppercase).take_while(|part| is_id(part)).collect()
}

/// The names of the test functions in a source file.
fn tests(source: &str) -> Vec<&str> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in source.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(function) = function {
            if is_test {
                found.push(function.split(['(', '<']).next().unwrap());
            }
            is_test = false;
        }
    }
    found
}

/// Every id that a test's name begins with, and those tests by file.
fn proofs() -> BTreeMap<String, BTreeMap<PathBuf, Vec<String>>> {
    let mut proofs: BTreeMap<String, BTreeMap<PathBuf, Vec<String>>> = BTreeMap::new();
    for path in rust_files(Path::new("crates")) {
        for name in tests(&read(&path)) {
            for id in ids(name) {
                let files = proofs.entry(id).or_default();
                files.entry(path.clone()).or_default().push(name.to_owned());
            }
        }
    }
    proofs
}

/// The last cell of a row: each file with its tests.
fn column(files: &BTreeMap<PathBuf, Vec<String>>) -> String {
    let file = |(path, names): (&PathBuf, &Vec<String>)| {
        let short = path.strip_prefix("crates").unwrap_or(path).display();
        format!("[{short}](../{}): `{}`", path.display(), names.join("`, `"))
    };
    files.iter().map(file).collect::<Vec<_>>().join("<br>")
}

/// The ids of a part of the page.
fn listed(part: &str) -> Vec<String> {
    let rows = part.lines().filter_map(cells);
    rows.map(|row| row[0].to_owned()).filter(|id| is_id(id)).collect()
}

/// The page with its last column written anew from the sources.
fn renewed(page: &str, proofs: &BTreeMap<String, BTreeMap<PathBuf, Vec<String>>>) -> String {
    let line = |line: &str| match cells(line).as_deref() {
        Some([id, sentence, ..]) if is_id(id) => {
            let tests = proofs.get(*id).map(column).unwrap_or_default();
            format!("| {id} | {sentence} | {tests} |\n")
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

#[test]
fn every_requirement_has_a_test_and_every_id_is_a_requirement() {
    let page = read(PAGE);
    let (proven, open) = page.split_once(OPEN).unwrap();
    let proofs = proofs();
    let (listed_proven, listed_open) = (listed(proven), listed(open));
    let all: BTreeSet<&String> = listed_proven.iter().chain(&listed_open).collect();
    assert_eq!(all.len(), listed_proven.len() + listed_open.len(), "{PAGE} has an id twice");
    for id in &listed_proven {
        assert!(
            proofs.contains_key(id),
            "{id} has no test: begin the name of the test that proves it with `{}_`",
            id.to_lowercase()
        );
    }
    for (id, files) in &proofs {
        assert!(all.contains(id), "{id} is not in {PAGE}; it is named by {files:?}");
        assert!(
            !listed_open.contains(id),
            "{id} has a test now: move its row in {PAGE} above \"{OPEN}\"; {files:?}"
        );
    }
    let now = format!("{}{OPEN}{open}", renewed(proven, &proofs));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(PAGE), &now).unwrap();
    } else {
        assert!(page == now, "{PAGE} does not name the tests that there are: run `make docs`");
    }
}

/// The pages about Kubernetes' conformance tests and about faults name tests as well.
#[test]
fn every_test_that_a_page_names_exists() {
    let sources: Vec<String> = rust_files(Path::new("crates")).iter().map(read).collect();
    let known: BTreeSet<&str> = sources.iter().flat_map(|source| tests(source)).collect();
    let is_name = |word: &&str| {
        word.matches('_').count() > 1
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    for page in ["docs/conformance.md", "docs/reliability.md"] {
        for name in read(page).split('`').skip(1).step_by(2).filter(is_name) {
            assert!(known.contains(name), "{page} names `{name}`, which is no test");
        }
    }
}

#[test]
fn ids_stand_at_the_beginning_of_a_name() {
    for path in rust_files(Path::new("crates")) {
        for name in tests(&read(&path)) {
            let parts: Vec<String> = name.split('_').map(str::to_ascii_uppercase).collect();
            let later = parts.iter().skip(ids(name).len()).find(|part| is_id(part));
            assert_eq!(later, None, "{}: {name}", path.display());
        }
    }
}
