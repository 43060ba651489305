//! Decides on which kernel a lab plays, and with which rights. Pure, but for [`Facts::read`].
//!
//! | this process | `--kernel auto` | `--kernel real` | `--kernel memory` |
//! |---|---|---|---|
//! | may make network namespaces | the machine's kernel | the machine's kernel | in memory |
//! | may make a user namespace | the machine's kernel, in a user namespace | the same | in memory |
//! | may make neither | in memory, and the output says why | asks for root, and says why | in memory |

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};
use zonewise_netns::RootlessError;

use crate::preflight::Missing;
use crate::view::Kernel;

/// The kernel that is asked for, as with `--kernel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// The machine's where that is possible, else one in memory.
    #[default]
    Auto,
    /// The machine's.
    Real,
    /// One in memory.
    Memory,
}

/// Facts about this process and its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `CAP_SYS_ADMIN` and `CAP_NET_ADMIN` are in effect.
    pub privileged: bool,
    /// The effective user is 0.
    pub root: bool,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a setting of Debian and others.
    pub unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, a setting of Ubuntu.
    pub apparmor_restriction: Option<u64>,
    /// The AppArmor profile of this process; empty without AppArmor.
    pub apparmor_profile: String,
    /// A seccomp filter checks the system calls of this process.
    pub seccomp: bool,
}

impl Facts {
    /// Reads them below `/proc`.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let setting = |name: &str| text(&format!("/proc/sys/{name}")).trim().parse().ok();
        Self {
            max_user_namespaces: setting("user/max_user_namespaces"),
            unprivileged_userns_clone: setting("kernel/unprivileged_userns_clone"),
            apparmor_restriction: setting("kernel/apparmor_restrict_unprivileged_userns"),
            apparmor_profile: text("/proc/self/attr/apparmor/current").trim().to_owned(),
            ..Self::of_status(&text("/proc/self/status"))
        }
    }

    /// The facts that are in `/proc/self/status`.
    fn of_status(status: &str) -> Self {
        /// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` (linux/capability.h).
        const NEEDED: u64 = 1 << 12 | 1 << 21;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let effective = field("CapEff:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        let user = field("Uid:").and_then(|ids| ids.split_whitespace().nth(1));
        Self {
            privileged: effective.is_some_and(|effective| effective & NEEDED == NEEDED),
            root: user == Some("0"),
            seccomp: field("Seccomp:").is_some_and(|mode| mode.trim() != "0"),
            ..Self::default()
        }
    }

    /// The setting that forbids user namespaces; `None` if none is known to.
    fn forbidding(&self) -> Option<Obstacle> {
        if self.max_user_namespaces == Some(0) {
            Some(Obstacle::MaxUserNamespaces)
        } else if self.unprivileged_userns_clone == Some(0) {
            Some(Obstacle::UnprivilegedClone)
        } else if self.apparmor_restriction == Some(1) && self.apparmor_profile == "unconfined" {
            Some(Obstacle::AppArmor)
        } else {
            None
        }
    }

    /// The reason why a user namespace was refused.
    fn reason(&self, refused: &RootlessError) -> Obstacle {
        let (RootlessError::Unshare(error) | RootlessError::Map(error)) = refused;
        let mapping = matches!(refused, RootlessError::Map(_));
        match self.forbidding() {
            Some(known) => known,
            None if mapping && self.apparmor_restriction == Some(1) => Obstacle::AppArmor,
            None if self.seccomp && !mapping => Obstacle::Seccomp(error.to_string()),
            None => Obstacle::Refused(refused.to_string()),
        }
    }
}

/// The reason why a lab cannot play on the machine's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `user.max_user_namespaces` is 0.
    MaxUserNamespaces,
    /// `kernel.unprivileged_userns_clone` is 0.
    UnprivilegedClone,
    /// AppArmor's restriction of unprivileged user namespaces is on.
    AppArmor,
    /// The kernel's error, in a process with a seccomp filter.
    Seccomp(String),
    /// The kernel's error, if no setting explains it.
    Refused(String),
    /// A part of the kernel that a lab needs.
    Missing(Missing),
}

impl Obstacle {
    /// The part of the kernel that is missing. In a user namespace, AppArmor may take the rights that the namespace gives.
    pub fn of_missing(missing: &Missing, facts: &Facts) -> Self {
        match facts.apparmor_restriction {
            Some(1) if !facts.privileged && missing.forbidden => Self::AppArmor,
            _ => Self::Missing(missing.clone()),
        }
    }
}

/// A clause, without a full stop: `AppArmor forbids user namespaces to programs without a profile (…)`.
impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxUserNamespaces => {
                out.write_str("the setting user.max_user_namespaces=0 forbids user namespaces")
            }
            Self::UnprivilegedClone => out.write_str(
                "the setting kernel.unprivileged_userns_clone=0 forbids user namespaces without root",
            ),
            Self::AppArmor => out.write_str(
                "AppArmor forbids user namespaces to programs without a profile \
                 (the setting kernel.apparmor_restrict_unprivileged_userns=1)",
            ),
            Self::Seccomp(error) => write!(
                out,
                "a seccomp filter, as container runtimes install, forbids user namespaces ({error})"
            ),
            Self::Refused(error) => out.write_str(error),
            Self::Missing(missing) => {
                write!(out, "this machine lacks {}: {}", missing.what, missing.why)
            }
        }
    }
}

/// The place where a lab plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// On the machine's kernel, with the rights that the process has.
    #[default]
    Machine,
    /// On the machine's kernel, in a user namespace of its own.
    UserNamespace,
    /// On a kernel in memory.
    Memory,
}

impl Place {
    /// The kernel there.
    pub fn kernel(self) -> Kernel {
        match self {
            Self::Machine | Self::UserNamespace => Kernel::Real,
            Self::Memory => Kernel::Memory,
        }
    }
}

/// A way to play a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// On the machine's kernel, with the rights that the process has.
    AsIs,
    /// On the machine's kernel, in a user namespace of its own.
    UserNamespace,
    /// On a kernel in memory; because of this, unless it was asked for.
    Memory(Option<Obstacle>),
    /// Not as it was asked for, because of this.
    NotWithoutRoot(Obstacle),
}

/// Decides on a way. `refused` is the kernel's answer if a user namespace was tried.
pub fn way(choice: KernelChoice, facts: &Facts, refused: Option<&RootlessError>) -> Way {
    let obstacle = match (choice, facts.privileged, refused) {
        (KernelChoice::Memory, _, _) => return Way::Memory(None),
        (_, true, _) => return Way::AsIs,
        (_, _, Some(refused)) => Some(facts.reason(refused)),
        (_, _, None) => facts.forbidding(),
    };
    match (obstacle, choice) {
        (None, _) => Way::UserNamespace,
        (Some(obstacle), KernelChoice::Auto) => Way::Memory(Some(obstacle)),
        (Some(obstacle), _) => Way::NotWithoutRoot(obstacle),
    }
}

/// The line about a lab that plays in a user namespace.
pub const IN_USER_NAMESPACE: &str =
    "not root: playing on this machine's kernel in a user namespace of its own";

/// The line about a lab that plays in memory because of `obstacle`. `sudo` is the command that runs it as root.
pub fn in_memory_because(obstacle: &Obstacle, facts: &Facts, sudo: &str) -> String {
    format!(
        "playing on a kernel in memory (simulated), because {obstacle}; for this machine's kernel: {}",
        remedy(obstacle, facts, sudo)
    )
}

/// The way around `obstacle`. `sudo` is the command that runs the lab as root.
pub fn remedy(obstacle: &Obstacle, facts: &Facts, sudo: &str) -> String {
    match obstacle {
        Obstacle::Missing(missing) => missing.remedy.to_owned(),
        // A container whose root has few rights: more of root does not help.
        _ if facts.root => "run the container with --privileged".to_owned(),
        _ => sudo.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    fn facts() -> Facts {
        Facts { max_user_namespaces: Some(15_000), ..Facts::default() }
    }

    fn eperm() -> Error {
        Error::from_raw_os_error(nix::libc::EPERM)
    }

    #[test]
    fn rights_lead_to_a_way() {
        use KernelChoice::{Auto, Memory, Real};
        let root = Facts { privileged: true, root: true, ..facts() };
        let forbidden = Facts { max_user_namespaces: Some(0), ..facts() };
        let root_without_rights = Facts { root: true, ..forbidden.clone() };
        let why = Obstacle::MaxUserNamespaces;
        let rows = [
            (&root, Auto, Way::AsIs),
            (&root, Real, Way::AsIs),
            (&root, Memory, Way::Memory(None)),
            (&facts(), Auto, Way::UserNamespace),
            (&facts(), Real, Way::UserNamespace),
            (&facts(), Memory, Way::Memory(None)),
            (&forbidden, Auto, Way::Memory(Some(why.clone()))),
            (&forbidden, Real, Way::NotWithoutRoot(why.clone())),
            (&forbidden, Memory, Way::Memory(None)),
            (&root_without_rights, Auto, Way::Memory(Some(why))),
        ];
        for (facts, choice, expected) in rows {
            assert_eq!(way(choice, facts, None), expected, "{choice:?} {facts:?}");
        }
    }

    /// Each setting by its name, before the attempt where it is known to forbid, and after it otherwise.
    #[test]
    fn the_policy_that_forbids_is_named() {
        let unshare = || Some(RootlessError::Unshare(eperm()));
        let map = || Some(RootlessError::Map(eperm()));
        let ubuntu = Facts {
            apparmor_restriction: Some(1),
            apparmor_profile: "unconfined".into(),
            ..facts()
        };
        let rows = [
            (Facts { max_user_namespaces: Some(0), ..facts() }, None, "user.max_user_namespaces=0"),
            (
                Facts { unprivileged_userns_clone: Some(0), ..facts() },
                None,
                "kernel.unprivileged_userns_clone=0",
            ),
            (ubuntu.clone(), None, "kernel.apparmor_restrict_unprivileged_userns=1"),
            (
                Facts { apparmor_profile: "docker-default (enforce)".into(), ..ubuntu.clone() },
                map(),
                "AppArmor",
            ),
            (Facts { seccomp: true, ..facts() }, unshare(), "a seccomp filter"),
            (facts(), unshare(), "cannot make a user namespace: Operation not permitted"),
            (facts(), map(), "cannot become root of a new user namespace: Operation not permitted"),
        ];
        for (facts, refused, expected) in rows {
            let Way::Memory(Some(obstacle)) = way(KernelChoice::Auto, &facts, refused.as_ref())
            else {
                panic!("{facts:?} leads to another way");
            };
            let line = in_memory_because(&obstacle, &facts, "sudo zonewise lab");
            assert!(line.contains(expected), "{line}");
            assert!(line.ends_with("for this machine's kernel: sudo zonewise lab"), "{line}");
        }
        // A profile that allows it is tried, and so is a setting that is on.
        let allowed = [
            Facts { apparmor_profile: "zonewise (unconfined)".into(), ..ubuntu },
            Facts { unprivileged_userns_clone: Some(1), ..facts() },
        ];
        for facts in allowed {
            assert_eq!(way(KernelChoice::Auto, &facts, None), Way::UserNamespace, "{facts:?}");
        }
    }

    #[test]
    fn a_remedy_is_one_that_helps() {
        let missing = Missing {
            what: "bridges",
            why: "x".into(),
            remedy: "modprobe bridge",
            forbidden: false,
        };
        let sudo = "sudo zonewise lab";
        let of = |obstacle, facts| remedy(&obstacle, &facts, sudo);
        assert_eq!(of(Obstacle::AppArmor, facts()), sudo);
        assert_eq!(of(Obstacle::Missing(missing), facts()), "modprobe bridge");
        let container = Facts { root: true, seccomp: true, ..facts() };
        assert_eq!(
            of(Obstacle::Seccomp("x".into()), container),
            "run the container with --privileged"
        );
    }

    /// In a user namespace AppArmor lets a program make one, and takes the rights of it.
    #[test]
    fn rights_that_were_taken_are_not_a_missing_part_of_the_kernel() {
        let missing =
            Missing { what: "network namespaces", why: "x".into(), remedy: "y", forbidden: true };
        let ubuntu = Facts { apparmor_restriction: Some(1), ..facts() };
        assert_eq!(Obstacle::of_missing(&missing, &ubuntu), Obstacle::AppArmor);
        let shown = Obstacle::of_missing(&missing, &facts()).to_string();
        assert_eq!(shown, "this machine lacks network namespaces: x");
    }

    #[test]
    fn a_status_tells_rights() {
        let status = |user: u32, effective: &str, seccomp: u8| {
            Facts::of_status(&format!(
                "Name:\tx\nUid:\t1\t{user}\t1\t1\nCapEff:\t{effective}\nSeccomp:\t{seccomp}\n"
            ))
        };
        let told = |facts: Facts| (facts.root, facts.privileged, facts.seccomp);
        assert_eq!(told(status(0, "000001ffffffffff", 0)), (true, true, false));
        // The rights of root in a container.
        assert_eq!(told(status(0, "00000000a80425fb", 2)), (true, false, true));
        assert_eq!(told(status(1000, "0000000000000000", 0)), (false, false, false));
        assert_eq!(told(Facts::of_status("")), (false, false, false));
    }
}
