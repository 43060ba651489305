//! The directory of a running lab, and those that killed labs have left.
//!
//! ```text
//!  /run/zonewise-lab/4711/kubeconfig     for kubectl
//!                         lab.json       its process and when that started; the kubeconfig given with --api
//!                         lab.log        the logs of controller and proxies
//!                         zones.json     a network namespace of a client in each zone
//!                         hosts          the addresses of all Services
//!                         demand-token   with which the controller asks the proxies what they have counted
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// The parent of all labs' directories. Only root may write here, so that no other user can parent a symbolic
/// link where root is about to write.
pub const LABS_DIRECTORY: &str = "/run/zonewise-lab";

/// The file with a network namespace of a client in each zone.
pub(crate) const ZONES: &str = "zones.json";
/// The file with the addresses of all Services.
pub(crate) const HOSTS: &str = "hosts";
/// The file with the token with which the controller asks the proxies what they have counted.
pub(crate) const DEMAND_TOKEN: &str = "demand-token";

/// Creates or empties a file that a user has named. The lab runs as root, so a symbolic link that another user has put
/// there would lead it to any file of the machine: it is refused.
///
/// # Errors
/// If the file cannot be opened, or is a symbolic link.
pub fn create_file(path: &Path) -> anyhow::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(nix::libc::O_NOFOLLOW);
    options.open(path).map_err(|error| {
        if error.raw_os_error() == Some(nix::libc::ELOOP) {
            anyhow::anyhow!(
                "{} is a symbolic link, and the lab, which runs as root, follows none: name the file itself",
                path.display()
            )
        } else {
            anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
        }
    })
}

/// A running lab's directory; removed on drop.
#[derive(Debug)]
pub struct LabDirectory {
    path: PathBuf,
}

/// The process that a directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot: process ids are used again, this pair is not.
    pub started: u64,
    /// The kubeconfig given with `--api`: that server keeps the lab's objects if the lab is killed.
    pub api: Option<PathBuf>,
}

/// A directory that was found, and what is known of its lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLab {
    /// The directory.
    pub path: PathBuf,
    /// Its process, if `lab.json` can be read.
    pub owner: Option<Owner>,
    /// Whether that process still runs.
    pub runs: bool,
}

impl LabDirectory {
    /// Makes a directory for this process below `parent`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(parent: &Path, api: Option<PathBuf>) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let path = parent.join(pid.to_string());
        let wrong = || format!("cannot make {}: a lab keeps its kubeconfig there", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).with_context(wrong)?;
        if path.exists() {
            // Left by a killed lab that had the same process id.
            fs::remove_dir_all(&path).with_context(wrong)?;
        }
        // Others may reach a file by its name but not list the directory: each file has its own permissions.
        fs::DirBuilder::new().mode(0o711).create(&path).with_context(wrong)?;
        let directory = Self { path };
        let owner = Owner { pid, started: started(pid).unwrap_or(0), api };
        directory.write("lab.json", &serde_json::to_string_pretty(&owner)?)?;
        Ok(directory)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file that only root may read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<fs::File> {
        let mut file = self.open(name)?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.join(name).display()))?;
        Ok(file)
    }

    /// Writes a new file and gives it to the user who ran sudo, so that kubectl works without sudo.
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

    /// Creates a file that only root may read. Fails if there is one, also if it is a symbolic link.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(&self, name: &str) -> anyhow::Result<fs::File> {
        let path = self.path.join(name);
        let file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        file.with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for LabDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the lab's directory cannot be removed");
        }
    }
}

/// Directories of labs, those that run and those that were killed.
///
/// # Errors
/// If the parent cannot be read.
pub fn find(parent: &Path) -> anyhow::Result<Vec<FoundLab>> {
    let entries = match fs::read_dir(parent) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", parent.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let owner = read(&path);
        let runs = match &owner {
            Some(owner) => started(owner.pid) == Some(owner.started),
            // The file is missing or cut off: a lab that is just starting has not written it yet.
            None => named(&path).and_then(started).is_some(),
        };
        found.push(FoundLab { path, owner, runs });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Where a command of `zonewise lab exec` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The network namespace of a client.
    pub namespace: PathBuf,
    /// A hosts file with all Services.
    pub hosts: PathBuf,
}

/// The client of a zone, in the only lab that runs or in that of a process.
///
/// # Errors
/// If there is no such lab or zone, or if several labs run.
pub fn caller(labs: &[FoundLab], process: Option<u32>, zone: &str) -> anyhow::Result<Caller> {
    let lab = running(labs, process)?;
    let text = fs::read_to_string(lab.path.join(ZONES))
        .context("the lab is still starting: try again when its cluster is up")?;
    let zones: BTreeMap<String, PathBuf> = serde_json::from_str(&text)?;
    let namespace = zones.get(zone).cloned().with_context(|| {
        let known: Vec<&str> = zones.keys().map(String::as_str).collect();
        format!("the lab has no zone {zone:?} (zones: {})", known.join(", "))
    })?;
    Ok(Caller { namespace, hosts: lab.path.join(HOSTS) })
}

fn running(labs: &[FoundLab], process: Option<u32>) -> anyhow::Result<&FoundLab> {
    let all: Vec<(u32, &FoundLab)> = labs
        .iter()
        .filter(|lab| lab.runs)
        .filter_map(|lab| Some((lab.owner.as_ref()?.pid, lab)))
        .filter(|(pid, _)| process.is_none_or(|wanted| wanted == *pid))
        .collect();
    match (&all[..], process) {
        ([(_, lab)], _) => Ok(lab),
        ([], Some(process)) => bail!("no lab runs in process {process}"),
        ([], None) => bail!("no lab runs: start one in another terminal with `sudo zonewise lab`"),
        (several, _) => {
            let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            bail!("several labs run (processes {}): choose one with --lab PID", pids.join(", "))
        }
    }
}

/// Removes the directory of a lab that no longer runs.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(found: &FoundLab) -> anyhow::Result<()> {
    let path = &found.path;
    fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))
}

fn read(path: &Path) -> Option<Owner> {
    serde_json::from_str(&fs::read_to_string(path.join("lab.json")).ok()?).ok()
}

/// The process id that a directory is named after.
fn named(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// When a process started, in clock ticks since boot; `None` if there is no such process.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // See proc_pid_stat(5). The name in parentheses may contain spaces and parentheses; the 20th field after
    // it is `starttime`.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_a_link_is_refused_and_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        create_file(&file).unwrap().write_all(b"precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let refused = create_file(&link).unwrap_err().to_string();
        let told = format!(
            "{} is a symbolic link, and the lab, which runs as root, follows none: name the file itself",
            link.display()
        );
        assert_eq!((refused, fs::read_to_string(&file).unwrap()), (told, "precious".into()));
        drop(create_file(&file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "", "an ordinary file is written anew");
    }

    #[test]
    fn what_runs_is_told_from_what_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = LabDirectory::create(parent.path(), None).unwrap();
        directory.write_for_user("kubeconfig", "x").unwrap();
        let own = read(directory.path()).unwrap();
        let dead = Owner { pid: own.pid, started: own.started + 1, api: Some("/k".into()) };
        let left = parent.path().join("4000001");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("lab.json"), serde_json::to_string(&dead).unwrap()).unwrap();
        // A file that was cut off half-way.
        let half = parent.path().join("4000002");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("lab.json"), "{\"pid\": ").unwrap();

        let found = find(parent.path()).unwrap();
        let mut expected = [
            FoundLab { path: directory.path().into(), owner: Some(own), runs: true },
            FoundLab { path: left.clone(), owner: Some(dead), runs: false },
            FoundLab { path: half.clone(), owner: None, runs: false },
        ];
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(found, expected);
        for gone in found.iter().filter(|found| !found.runs) {
            remove(gone).unwrap();
        }
        assert!(directory.path().join("kubeconfig").exists() && !left.exists() && !half.exists());
        drop(directory);
        assert_eq!(find(parent.path()).unwrap(), []);
        assert_eq!(find(Path::new("/nowhere/at/all")).unwrap(), []);
    }

    #[test]
    fn a_command_runs_in_the_only_lab_or_in_the_one_that_was_named() {
        let parent = tempfile::tempdir().unwrap();
        let lab = |pid: u32, runs: bool| {
            let path = parent.path().join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(ZONES), r#"{"a": "/proc/1/fd/3"}"#).unwrap();
            FoundLab { path, owner: Some(Owner { pid, started: 1, api: None }), runs }
        };
        let (one, two, gone) = (lab(1, true), lab(2, true), lab(3, false));
        let wrong = |labs: &[FoundLab], process, zone: &str| {
            caller(labs, process, zone).unwrap_err().to_string()
        };
        let found =
            Caller { namespace: "/proc/1/fd/3".into(), hosts: parent.path().join("2").join(HOSTS) };
        assert_eq!(caller(&[two.clone(), gone.clone()], None, "a").unwrap(), found);
        assert_eq!(caller(&[one.clone(), two.clone()], Some(2), "a").unwrap(), found);
        assert!(wrong(std::slice::from_ref(&gone), None, "a").contains("no lab runs: start one"));
        assert!(wrong(&[gone], Some(3), "a").contains("no lab runs in process 3"));
        assert!(wrong(&[one.clone(), two], None, "a").contains("(processes 1, 2)"));
        assert!(wrong(&[one], None, "x").contains("has no zone \"x\" (zones: a)"));
    }

    /// A symbolic link was placed where a file is about to be written.
    #[test]
    fn links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = LabDirectory::create(parent.path(), None).unwrap();
        let precious = parent.path().join("precious");
        fs::write(&precious, "as it was").unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join("kubeconfig")).unwrap();
        assert!(directory.write_for_user("kubeconfig", "overwritten").is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "as it was");
    }
}
