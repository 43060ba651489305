//! Where the programs of Kubernetes, etcd and others come from.
//!
//! ```text
//!  ZONEWISE_REFERENCE=/dir ─ set ────────► that directory
//!                          └ not set ────► scripts/reference tests, or thorough   (builds once, prints a directory)
//!  ZONEWISE_TEST_NEEDS=/file ────────────► a line for each program that a test has asked for
//! ```

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;

/// Programs that `scripts/reference tests` builds; `scripts/reference thorough` builds these and all others.
const OF_A_CLUSTER: [&str; 2] = ["etcd", "kube-apiserver"];
/// Programs that `scripts/setup tests` installs; `scripts/setup thorough` installs these and all others.
const OF_TESTS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "nft"];

/// Paths of the programs of a cluster: of etcd, and of kube-apiserver.
///
/// # Errors
/// If one of them is missing and cannot be built.
pub(crate) fn of_a_cluster() -> Result<[PathBuf; 2]> {
    let [etcd, apiserver] = OF_A_CLUSTER.map(program);
    Ok([etcd?, apiserver?])
}

/// The path of a reference program, such as `kubectl`.
///
/// # Errors
/// If the program is missing and cannot be built.
pub fn program(name: &str) -> Result<PathBuf> {
    let purpose = if OF_A_CLUSTER.contains(&name) { "tests" } else { "thorough" };
    let directory = directory(purpose)?;
    let path = directory.join(name);
    ensure!(
        path.is_file(),
        "no {name} in {}: run `scripts/reference {purpose}`, which builds it, and let ZONEWISE_REFERENCE name the \
         directory that it prints",
        directory.display()
    );
    note_need(name)?;
    Ok(path)
}

/// The directory with the reference programs for an argument of `scripts/reference`, which is run once for each.
fn directory(purpose: &'static str) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    if let Some(directory) = env::var_os("ZONEWISE_REFERENCE") {
        return Ok(directory.into());
    }
    let mut built = BUILT.lock();
    if let Some(directory) = built.get(purpose) {
        return Ok(directory.clone());
    }
    let directory = build(purpose)?;
    built.insert(purpose, directory.clone());
    Ok(directory)
}

/// Writes the name of a program into the file that `ZONEWISE_TEST_NEEDS` names, from which a page tells what each test
/// program needs.
fn note_need(name: &str) -> Result<()> {
    let Some(path) = env::var_os("ZONEWISE_TEST_NEEDS").map(PathBuf::from) else { return Ok(()) };
    let file = File::options().create(true).append(true).open(&path);
    // In one write, because other test programs write there too.
    file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()))
        .with_context(|| format!("cannot write ZONEWISE_TEST_NEEDS {}", path.display()))
}

/// The minor version of the API server among the reference programs: 36 for those that are pinned here, less where
/// `ZONEWISE_REFERENCE` has older ones.
///
/// # Errors
/// If it is missing and cannot be built, or does not say its version.
pub fn minor_version() -> Result<u32> {
    static MINOR: OnceLock<u32> = OnceLock::new();
    if let Some(minor) = MINOR.get() {
        return Ok(*minor);
    }
    let program = program("kube-apiserver")?;
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let minor = said.split('.').nth(1).and_then(|minor| minor.parse().ok());
    let minor =
        minor.with_context(|| format!("{} has no version in `{said}`", program.display()))?;
    Ok(*MINOR.get_or_init(|| minor))
}

/// The path of a program that `scripts/setup` installs, such as `promtool`: on the path, or among the tools that the scripts
/// keep in their cache.
///
/// # Errors
/// If it is in neither place.
pub fn installed(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(cache().map(|cache| cache.join("tools/bin")));
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    let purpose = if OF_TESTS.contains(&name) { "tests" } else { "thorough" };
    let found = found.with_context(|| {
        format!("{name} is needed: run `scripts/setup {purpose}`, which installs it")
    })?;
    note_need(name)?;
    Ok(found)
}

/// The directory where the scripts keep what they have built.
fn cache() -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let user = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    variable("ZONEWISE_CACHE").or_else(|| Some(user()?.join("zonewise")))
}

/// The root of this repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn build(purpose: &str) -> Result<PathBuf> {
    let script = repository().join("scripts/reference");
    // Shows its progress on standard error: a first build takes minutes.
    let output = Command::new(&script)
        .arg(purpose)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}: bash is needed", script.display()))?;
    if !output.status.success() {
        bail!(
            "`scripts/reference {purpose}` failed ({}), see its messages above; or let ZONEWISE_REFERENCE name a \
             directory with the programs",
            output.status
        );
    }
    let text = String::from_utf8(output.stdout).context("scripts/reference printed no text")?;
    let line = text.lines().last().context("scripts/reference printed no directory")?;
    Ok(PathBuf::from(line))
}
