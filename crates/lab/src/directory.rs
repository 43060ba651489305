//! The directory of a running lab, and those that killed labs have left.
//!
//! ```text
//!  PARENT/4711/kubeconfig     for kubectl
//!              lab.json       its process and when that started; the kubeconfig given with --api
//!              lab.log        the logs of controller and proxies
//!              zones.json     a network namespace of a client in each zone
//!              hosts          the addresses of all Services
//!              demand-token   with which the controller asks the proxies what they have counted
//! ```
//!
//! PARENT is `/run/zonewise-lab` for root, `zonewise-lab` in `$XDG_RUNTIME_DIR` for others, and `zonewise-lab-USER` in the
//! directory for temporary files where that one does not exist.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::rights::Place;

/// The parent of the directories of root's labs.
const LABS_DIRECTORY: &str = "/run/zonewise-lab";

/// The parents of the directories of this user's labs: the first that can be made is used. To be read before the process
/// enters a user namespace, in which it is another user.
pub fn parents() -> Vec<PathBuf> {
    let user = own_user().unwrap_or_default();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    parents_of(user, runtime.filter(|path| path.is_absolute()), &std::env::temp_dir())
}

fn parents_of(user: u32, runtime: Option<PathBuf>, temporary: &Path) -> Vec<PathBuf> {
    let usual = match user {
        0 => Some(PathBuf::from(LABS_DIRECTORY)),
        _ => runtime.map(|runtime| runtime.join("zonewise-lab")),
    };
    usual.into_iter().chain([temporary.join(format!("zonewise-lab-{user}"))]).collect()
}

/// The user of this process, as files show their owners.
fn own_user() -> Option<u32> {
    Some(fs::metadata("/proc/self").ok()?.uid())
}

/// Makes the parent of directories of labs. Nobody else may write there, so that nobody can put a symbolic link where a lab is
/// about to write, which may run as root.
fn make_parent(parent: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    let found = fs::symlink_metadata(parent)?;
    let own = found.is_dir() && Some(found.uid()) == own_user() && found.mode() & 0o022 == 0;
    anyhow::ensure!(own, "another user made it, or others may write there: remove it");
    Ok(())
}

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
    /// The place where the lab plays.
    #[serde(default)]
    pub place: Place,
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
    /// The directory is one of this user's.
    pub own: bool,
}

impl LabDirectory {
    /// Makes a directory for this process below the first of `parents` that can be made.
    ///
    /// # Errors
    /// If none can be written.
    pub fn create(parents: &[PathBuf], api: Option<PathBuf>, place: Place) -> anyhow::Result<Self> {
        let mut wrong = None;
        for parent in parents {
            match make_parent(parent) {
                Ok(()) => return Self::create_in(parent, api, place),
                Err(error) => {
                    let text = format!("cannot make {}, for its kubeconfig", parent.display());
                    wrong = Some(error.context(text));
                }
            }
        }
        Err(wrong.unwrap_or_else(|| anyhow::anyhow!("a lab has no place for its kubeconfig")))
    }

    fn create_in(parent: &Path, api: Option<PathBuf>, place: Place) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let path = parent.join(pid.to_string());
        let wrong = || format!("cannot make {}: a lab keeps its kubeconfig there", path.display());
        if path.exists() {
            // Left by a killed lab that had the same process id.
            fs::remove_dir_all(&path).with_context(wrong)?;
        }
        // Others may reach a file by its name but not list the directory: each file has its own permissions.
        fs::DirBuilder::new().mode(0o711).create(&path).with_context(wrong)?;
        let directory = Self { path };
        let owner = Owner { pid, started: started(pid).unwrap_or(0), api, place };
        directory.write("lab.json", &serde_json::to_string_pretty(&owner)?)?;
        Ok(directory)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file that only the user of this process may read.
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
        if !self.path.starts_with(LABS_DIRECTORY) {
            return Ok(());
        }
        match (number("SUDO_UID"), number("SUDO_GID")) {
            (Some(user), Some(group)) => fchown(&file, Some(user), Some(group))
                .with_context(|| format!("cannot give {name} to you")),
            _ => Ok(()),
        }
    }

    /// Creates a file that only the user of this process may read. Fails if there is one, also if it is a symbolic link.
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

/// Directories of labs below `parents` and of root's labs, those that run and those that were killed.
///
/// # Errors
/// If a parent cannot be read.
pub fn find(parents: &[PathBuf]) -> anyhow::Result<Vec<FoundLab>> {
    let of_root = PathBuf::from(LABS_DIRECTORY);
    let mut all = Vec::new();
    for parent in parents.iter().chain((!parents.contains(&of_root)).then_some(&of_root)) {
        all.extend(find_in(parent)?);
    }
    Ok(all)
}

fn find_in(parent: &Path) -> anyhow::Result<Vec<FoundLab>> {
    let user = own_user();
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
        let own = fs::symlink_metadata(&path).ok().map(|found| found.uid()) == user;
        found.push(FoundLab { path, owner, runs, own });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Where a command of `zonewise lab exec` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user namespace that it belongs to, if that is the lab's own.
    pub user: Option<PathBuf>,
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
    let in_memory = lab.owner.as_ref().is_some_and(|owner| owner.place == Place::Memory);
    anyhow::ensure!(
        !in_memory,
        "the lab plays on a kernel in memory, which has no network for a command; start one with `--kernel real`"
    );
    let text = fs::read_to_string(lab.path.join(ZONES))
        .context("the lab is still starting: try again when its cluster is up")?;
    let zones: BTreeMap<String, PathBuf> = serde_json::from_str(&text)?;
    let namespace = zones.get(zone).cloned().with_context(|| {
        let known: Vec<&str> = zones.keys().map(String::as_str).collect();
        format!("the lab has no zone {zone:?} (zones: {})", known.join(", "))
    })?;
    let owner = lab.owner.as_ref().filter(|owner| owner.place == Place::UserNamespace);
    let user = owner.map(|owner| format!("/proc/{}/ns/user", owner.pid).into());
    Ok(Caller { user, namespace, hosts: lab.path.join(HOSTS) })
}

/// True if no lab of this user is meant, in the only process or in this one, but one of another user, such as root.
pub fn is_of_another_user(labs: &[FoundLab], process: Option<u32>) -> bool {
    let meant = |lab: &&FoundLab| {
        lab.runs && process.is_none_or(|process| named(&lab.path) == Some(process))
    };
    let mut meant = labs.iter().filter(meant).peekable();
    meant.peek().is_some() && meant.all(|lab| !lab.own)
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
        ([], None) => bail!(
            "no lab of yours runs: start one in another terminal with `zonewise lab`; a lab of another user is reached by that user"
        ),
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

    fn create(parent: &Path) -> LabDirectory {
        LabDirectory::create(&[parent.to_owned()], None, Place::Machine).unwrap()
    }

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
        let directory = create(parent.path());
        directory.write_for_user("kubeconfig", "x").unwrap();
        let own = read(directory.path()).unwrap();
        let dead = Owner { started: own.started + 1, api: Some("/k".into()), ..own.clone() };
        let left = parent.path().join("4000001");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("lab.json"), serde_json::to_string(&dead).unwrap()).unwrap();
        // A file that was cut off half-way.
        let half = parent.path().join("4000002");
        fs::create_dir(&half).unwrap();
        fs::write(half.join("lab.json"), "{\"pid\": ").unwrap();

        let found = find_in(parent.path()).unwrap();
        let mut expected = [
            FoundLab { path: directory.path().into(), owner: Some(own), runs: true, own: true },
            FoundLab { path: left.clone(), owner: Some(dead), runs: false, own: true },
            FoundLab { path: half.clone(), owner: None, runs: false, own: true },
        ];
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(found, expected);
        for gone in found.iter().filter(|found| !found.runs) {
            remove(gone).unwrap();
        }
        assert!(directory.path().join("kubeconfig").exists() && !left.exists() && !half.exists());
        drop(directory);
        assert_eq!(find_in(parent.path()).unwrap(), []);
        assert_eq!(find_in(Path::new("/nowhere/at/all")).unwrap(), []);
    }

    #[test]
    fn a_command_runs_in_the_only_lab_or_in_the_one_that_was_named() {
        let parent = tempfile::tempdir().unwrap();
        let lab = |pid: u32, runs: bool| {
            let path = parent.path().join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(ZONES), r#"{"a": "/proc/1/fd/3"}"#).unwrap();
            let place = match pid {
                2 => Place::UserNamespace,
                4 => Place::Memory,
                _ => Place::Machine,
            };
            let owner = Owner { pid, started: 1, api: None, place };
            FoundLab { path, owner: Some(owner), runs, own: true }
        };
        let (one, two, gone) = (lab(1, true), lab(2, true), lab(3, false));
        let wrong = |labs: &[FoundLab], process, zone: &str| {
            caller(labs, process, zone).unwrap_err().to_string()
        };
        let found = Caller {
            user: Some("/proc/2/ns/user".into()),
            namespace: "/proc/1/fd/3".into(),
            hosts: parent.path().join("2").join(HOSTS),
        };
        assert_eq!(caller(&[two.clone(), gone.clone()], None, "a").unwrap(), found);
        assert_eq!(caller(&[one.clone(), two.clone()], Some(2), "a").unwrap(), found);
        assert!(
            wrong(std::slice::from_ref(&gone), None, "a")
                .contains("no lab of yours runs: start one")
        );
        assert!(wrong(&[gone], Some(3), "a").contains("no lab runs in process 3"));
        assert!(wrong(&[one.clone(), two], None, "a").contains("(processes 1, 2)"));
        assert!(
            wrong(std::slice::from_ref(&one), None, "x").contains("has no zone \"x\" (zones: a)")
        );
        assert_eq!(caller(&[one], None, "a").unwrap().user, None);
        assert!(wrong(&[lab(4, true)], None, "a").contains("start one with `--kernel real`"));
    }

    #[test]
    fn a_lab_of_root_is_told_from_ones_own() {
        let lab = |pid: u32, runs: bool, own: bool| FoundLab {
            path: format!("/run/zonewise-lab/{pid}").into(),
            owner: None,
            runs,
            own,
        };
        let (own, of_root, gone) = (lab(1, true, true), lab(2, true, false), lab(3, false, false));
        let rows = [
            (vec![], None, false),
            (vec![of_root.clone()], None, true),
            (vec![own.clone(), of_root.clone()], None, false),
            (vec![own.clone(), of_root.clone()], Some(2), true),
            (vec![own, of_root], Some(1), false),
            (vec![gone], None, false),
        ];
        for (labs, process, expected) in rows {
            assert_eq!(is_of_another_user(&labs, process), expected, "{labs:?} {process:?}");
        }
    }

    #[test]
    fn each_user_has_a_place_for_labs() {
        let of = |user, runtime: Option<&str>| {
            parents_of(user, runtime.map(PathBuf::from), Path::new("/tmp"))
        };
        let path = PathBuf::from;
        assert_eq!(of(0, Some("/run/user/0")), [path(LABS_DIRECTORY), path("/tmp/zonewise-lab-0")]);
        assert_eq!(
            of(7, Some("/run/user/7")),
            [path("/run/user/7/zonewise-lab"), path("/tmp/zonewise-lab-7")]
        );
        assert_eq!(of(7, None), [path("/tmp/zonewise-lab-7")]);
    }

    /// In a directory for everybody, another user may have been there first.
    #[test]
    fn a_place_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (open, link) = (folder.path().join("open"), folder.path().join("link"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        for place in [open, link] {
            let refused = LabDirectory::create(std::slice::from_ref(&place), None, Place::Machine);
            let told = format!("{:#}", refused.unwrap_err());
            assert!(told.contains("another user made it, or others may write there"), "{told}");
            // The next place is taken.
            let next = folder.path().join("next");
            let made = LabDirectory::create(&[place, next.clone()], None, Place::Machine).unwrap();
            assert!(made.path().starts_with(next));
        }
    }

    /// A symbolic link was placed where a file is about to be written.
    #[test]
    fn links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = create(parent.path());
        let precious = parent.path().join("precious");
        fs::write(&precious, "as it was").unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join("kubeconfig")).unwrap();
        assert!(directory.write_for_user("kubeconfig", "overwritten").is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "as it was");
    }
}
