//! The one directory of a running lab, and what is left of labs that were killed.
//!
//! ```text
//!  /run/zonewise-lab/4711/kubeconfig     for kubectl
//!                         lab.json       whose it is: process and its start; the API server, if it lives on
//!                         lab.log        what controller and proxies say
//! ```

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

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

/// What was found of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It runs; nothing was touched.
    Running(Owner),
    /// It is gone; its directory was removed.
    Removed(Option<Owner>),
}

/// Where labs live.
pub fn place() -> PathBuf {
    let run = Path::new("/run");
    if run.is_dir() { run.join("zonewise-lab") } else { std::env::temp_dir().join("zonewise-lab") }
}

impl Home {
    /// A directory for this process, below `place`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(place: &Path, api: Option<PathBuf>) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let path = place.join(pid.to_string());
        let wrong = || format!("cannot make {}", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o755).create(place).with_context(wrong)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).with_context(wrong)?;
        let home = Self { path };
        let owner = Owner { pid, started: started(pid).unwrap_or(0), api };
        home.write("lab.json", &serde_json::to_string_pretty(&owner)?)?;
        home.hand_over(&home.path)?;
        Ok(home)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that only its owner reads.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        self.open(name)?
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Opens an empty file that only its owner reads.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(&self, name: &str) -> anyhow::Result<fs::File> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        self.hand_over(&path)?;
        Ok(file)
    }

    /// Whoever used sudo may use kubectl without it.
    fn hand_over(&self, path: &Path) -> anyhow::Result<()> {
        let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        match (number("SUDO_UID"), number("SUDO_GID")) {
            (Some(user), Some(group)) => chown(path, Some(user), Some(group))
                .with_context(|| format!("cannot give {} to you", path.display())),
            _ => Ok(()),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the lab's directory stays");
        }
    }
}

/// Removes what labs have left that are gone.
///
/// # Errors
/// If the place cannot be read, or something in it not be removed.
pub fn clean(place: &Path) -> anyhow::Result<Vec<Found>> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", place.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let owner = read(&path);
        match owner {
            Some(owner) if started(owner.pid) == Some(owner.started) => {
                found.push(Found::Running(owner));
            }
            owner => {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                found.push(Found::Removed(owner));
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Option<Owner> {
    serde_json::from_str(&fs::read_to_string(path.join("lab.json")).ok()?).ok()
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
    fn what_runs_is_left_alone_and_what_is_gone_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::create(place.path(), None).unwrap();
        home.write("kubeconfig", "x").unwrap();
        let own = read(home.path()).unwrap();
        let dead = Owner { pid: own.pid, started: own.started + 1, api: Some("/k".into()) };
        let left = place.path().join("1");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("lab.json"), serde_json::to_string(&dead).unwrap()).unwrap();
        // A file that was cut off half-way.
        let half = place.path().join("2");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("lab.json"), "{\"pid\": ").unwrap();

        let mut found = clean(place.path()).unwrap();
        found.sort_by_key(|found| format!("{found:?}"));
        let expected = [Found::Removed(None), Found::Removed(Some(dead)), Found::Running(own)];
        assert_eq!(found, expected);
        assert!(home.path().join("kubeconfig").exists() && !left.exists() && !half.exists());
        drop(home);
        assert_eq!(clean(place.path()).unwrap(), []);
        assert_eq!(clean(Path::new("/nowhere/at/all")).unwrap(), []);
    }
}
