//! Where the programs of Kubernetes and etcd come from.
//!
//! ```text
//!  ZONEWISE_REFERENCE=/dir ─ set ────────► that directory
//!                          └ not set ────► scripts/reference tests   (builds once, prints a directory)
//! ```

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const NAMES: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl", "objects"];

/// A directory that contains all programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    pub(crate) fn find() -> Result<Self> {
        let directory = match env::var_os("ZONEWISE_REFERENCE") {
            Some(directory) => PathBuf::from(directory),
            None => build()?,
        };
        for name in NAMES {
            ensure!(
                directory.join(name).is_file(),
                "no {name} in {}: put it there, or unset ZONEWISE_REFERENCE, \
                 so that scripts/reference builds it",
                directory.display()
            );
        }
        Ok(Self(directory))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// The path of a reference program, such as `kubectl`.
///
/// # Errors
/// If a program is missing and cannot be built.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(Programs::find()?.path(name))
}

/// The minor version of the API server among the reference programs: 36 for those that are pinned here, less where
/// `ZONEWISE_REFERENCE` has older ones.
///
/// # Errors
/// If it is missing and cannot be built, or does not say its version.
pub fn minor_version() -> Result<u32> {
    let program = program("kube-apiserver")?;
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let minor = said.split('.').nth(1).and_then(|minor| minor.parse().ok());
    minor.with_context(|| format!("{} has no version in `{said}`", program.display()))
}

/// The path of a program that `scripts/setup tests` installs, such as `promtool`: on the path, or among
/// the tools that the scripts keep in their cache.
///
/// # Errors
/// If it is in neither place.
pub fn installed(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(cache().map(|cache| cache.join("tools/bin")));
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    found.with_context(|| format!("{name} is needed: run scripts/setup tests, which installs it"))
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

fn build() -> Result<PathBuf> {
    let script = repository().join("scripts/reference");
    // Shows its progress on standard error: a first build takes minutes.
    let output = Command::new(&script)
        .arg("tests")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}: bash is needed", script.display()))?;
    if !output.status.success() {
        bail!(
            "scripts/reference tests failed ({}), see its messages above; or let \
             ZONEWISE_REFERENCE name a directory with {}",
            output.status,
            NAMES.join(", ")
        );
    }
    let text = String::from_utf8(output.stdout).context("scripts/reference printed no text")?;
    let line = text.lines().last().context("scripts/reference printed no directory")?;
    Ok(PathBuf::from(line))
}
