//! Dependencies: between our crates as the table of ARCHITECTURE.md allows, and none that is not used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::files::{cells, read, root, rust_files};

/// The names of the folders in `crates/`, sorted.
fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The dependencies of a kind (`dependencies`, `dev-dependencies`), as Cargo.toml names them.
fn dependencies(manifest: &str, kind: &str) -> BTreeSet<String> {
    keys(manifest, |table| {
        table == kind || (table.starts_with("target.") && table.ends_with(&format!(".{kind}")))
    })
}

/// The keys of the tables whose names are wanted.
fn keys(manifest: &str, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            inside = wanted(header.trim_matches(['[', ']']));
        } else if inside && !line.starts_with('#') && line.contains('=') {
            keys.insert(line.split(['.', ' ', '=']).next().unwrap().to_owned());
        }
    }
    keys
}

fn manifest(name: &str) -> String {
    read(format!("crates/{name}/Cargo.toml"))
}

/// The table of crates in ARCHITECTURE.md: each crate and what it may use.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("ARCHITECTURE.md");
    let rows = page.lines().filter_map(cells).filter(|row| row.len() == 3);
    let named = rows.filter_map(|row| {
        let name = row[0].strip_prefix('`')?.strip_suffix('`')?;
        let used = row[2].split(", ").filter(|used| *used != "nothing of ours");
        Some((name.to_owned(), used.map(str::to_owned).collect()))
    });
    named.collect()
}

/// Tests may use any crate, so only `[dependencies]` count.
#[test]
fn crates_use_what_the_architecture_allows() {
    let allowed = allowed();
    let crates = crates();
    assert!(
        allowed.keys().eq(&crates),
        "the table in ARCHITECTURE.md lists {:?}; the crates are {crates:?}",
        allowed.keys()
    );
    let mut problems = Vec::new();
    for (name, allowed) in &allowed {
        let used: BTreeSet<String> = dependencies(&manifest(name), "dependencies")
            .iter()
            .filter_map(|dependency| dependency.strip_prefix("zonewise-"))
            .map(str::to_owned)
            .collect();
        for other in used.difference(allowed) {
            problems.push(format!(
                "`{name}` may not use `{other}`: remove it from crates/{name}/Cargo.toml, or allow it \
                 in the table of ARCHITECTURE.md if the design has changed"
            ));
        }
        for other in allowed.difference(&used) {
            problems.push(format!(
                "`{name}` does not use `{other}`: remove it from the table of ARCHITECTURE.md"
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The code of a file without comments and, unless wanted, without its unit tests.
fn code(path: &Path, with_tests: bool) -> String {
    if !with_tests && path.ends_with("tests.rs") {
        return String::new();
    }
    let text = read(path);
    let end = if with_tests { None } else { text.find("#[cfg(test)]\nmod tests {") };
    let lines = text[..end.unwrap_or(text.len())].lines();
    lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether code uses a crate of this name: `name::…`, `use name;`, `use name as …`.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        !before.ends_with(|last| is_word(last) || last == ':')
            && (after.starts_with("::")
                || (before.ends_with("use ") && !after.starts_with(is_word)))
    })
}

/// A dependency that is needed and not named in code stands in the table
/// `[package.metadata.not-named-in-code]` of its crate, with the reason.
#[test]
fn every_dependency_is_used() {
    let problems: Vec<String> = crates().iter().flat_map(|name| unused(name)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with the dependencies of a crate, one line each.
fn unused(name: &str) -> Vec<String> {
    let manifest = manifest(name);
    let excepted = keys(&manifest, |table| table == "package.metadata.not-named-in-code");
    let code = |folders: &[&str], with_tests: bool| -> String {
        let folder = |folder: &&str| rust_files(&Path::new("crates").join(name).join(folder));
        folders.iter().flat_map(folder).map(|path| code(&path, with_tests)).collect()
    };
    let (program, all) = (code(&["src"], false), code(&["src", "tests", "benches"], true));
    let mut problems = Vec::new();
    for (table, code, remedy) in [
        ("dependencies", &program, "remove it, or move it to [dev-dependencies]"),
        ("dev-dependencies", &all, "remove it"),
    ] {
        for dependency in dependencies(&manifest, table) {
            let problem = match (
                names(code, &dependency.replace('-', "_")),
                excepted.contains(&dependency),
            ) {
                (true, false) | (false, true) => continue,
                (false, false) => format!("is not used: {remedy}"),
                (true, true) => {
                    "is used: remove it from [package.metadata.not-named-in-code]".to_owned()
                }
            };
            problems.push(format!("crates/{name}/Cargo.toml [{table}]: {dependency} {problem}"));
        }
    }
    problems
}
