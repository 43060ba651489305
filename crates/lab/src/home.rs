//! The one directory of a running lab, and what is left of labs that were killed.
//!
//! ```text
//!  /run/zonewise-lab/4711/kubeconfig     for kubectl
//!                         lab.json       whose it is: process and its start; the API server, if it lives on
//!                         lab.log        what controller and proxies say
//! ```

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Where labs live. Only root writes there: nobody can put a link where root is about to write.
pub const PLACE: &str = "/run/zonewise-lab";

/// A running lab's directory; removed on drop.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
}

/// Whose directory it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// When it started, as the kernel counts: another process may have the same number later.
    pub started: u64,
    /// The kubeconfig of an API server that lives on without the lab.
    pub api: Option<PathBuf>,
}

/// A directory, and what is known of its lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The directory.
    pub path: PathBuf,
    /// Whose it is, if that can be read.
    pub owner: Option<Owner>,
    /// Its process is there.
    pub runs: bool,
}

impl Home {
    /// A directory for this process, below `place`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(place: &Path, api: Option<PathBuf>) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let path = place.join(pid.to_string());
        let wrong = || format!("cannot make {}: a lab keeps its kubeconfig there", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o755).create(place).with_context(wrong)?;
        if path.exists() {
            // A lab had this number before, and was killed.
            fs::remove_dir_all(&path).with_context(wrong)?;
        }
        // Everybody may pass, and nobody may look: the files say who may read them.
        fs::DirBuilder::new().mode(0o711).create(&path).with_context(wrong)?;
        let home = Self { path };
        let owner = Owner { pid, started: started(pid).unwrap_or(0), api };
        home.write("lab.json", &serde_json::to_string_pretty(&owner)?)?;
        Ok(home)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file that only root reads.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<fs::File> {
        let mut file = self.open(name)?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.join(name).display()))?;
        Ok(file)
    }

    /// Writes a new file for whoever used sudo: they may use kubectl without it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_for_user(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let file = self.write(name, text)?;
        let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        match (number("SUDO_UID"), number("SUDO_GID")) {
            (Some(user), Some(group)) => fchown(&file, Some(user), Some(group))
                .with_context(|| format!("cannot give {name} to you")),
            _ => Ok(()),
        }
    }

    /// Opens a new file that only root reads.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(&self, name: &str) -> anyhow::Result<fs::File> {
        let path = self.path.join(name);
        let file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        file.with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the lab's directory stays");
        }
    }
}

/// Directories of labs, those that run and those that were killed.
///
/// # Errors
/// If the place cannot be read.
pub fn find(place: &Path) -> anyhow::Result<Vec<Found>> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", place.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let owner = read(&path);
        let runs = match &owner {
            Some(owner) => started(owner.pid) == Some(owner.started),
            // It may be about to write its name.
            None => named(&path).and_then(started).is_some(),
        };
        found.push(Found { path, owner, runs });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Removes the directory of a lab that is gone.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(found: &Found) -> anyhow::Result<()> {
    let path = &found.path;
    fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))
}

fn read(path: &Path) -> Option<Owner> {
    serde_json::from_str(&fs::read_to_string(path.join("lab.json")).ok()?).ok()
}

/// The process that a directory is named after.
fn named(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// When a process started, in ticks since boot; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the 20th field after it is the start.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_told_from_what_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::create(place.path(), None).unwrap();
        home.write_for_user("kubeconfig", "x").unwrap();
        let own = read(home.path()).unwrap();
        let dead = Owner { pid: own.pid, started: own.started + 1, api: Some("/k".into()) };
        let left = place.path().join("4000001");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("lab.json"), serde_json::to_string(&dead).unwrap()).unwrap();
        // A file that was cut off half-way.
        let half = place.path().join("4000002");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("lab.json"), "{\"pid\": ").unwrap();

        let found = find(place.path()).unwrap();
        let mut expected = [
            Found { path: home.path().into(), owner: Some(own), runs: true },
            Found { path: left.clone(), owner: Some(dead), runs: false },
            Found { path: half.clone(), owner: None, runs: false },
        ];
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(found, expected);
        for gone in found.iter().filter(|found| !found.runs) {
            remove(gone).unwrap();
        }
        assert!(home.path().join("kubeconfig").exists() && !left.exists() && !half.exists());
        drop(home);
        assert_eq!(find(place.path()).unwrap(), []);
        assert_eq!(find(Path::new("/nowhere/at/all")).unwrap(), []);
    }

    /// Somebody put a link where a file is about to be written.
    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::create(place.path(), None).unwrap();
        let precious = place.path().join("precious");
        fs::write(&precious, "as it was").unwrap();
        std::os::unix::fs::symlink(&precious, home.path().join("kubeconfig")).unwrap();
        assert!(home.write_for_user("kubeconfig", "overwritten").is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "as it was");
    }
}
