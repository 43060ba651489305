//! A user namespace of one's own: in it a process without root may make network namespaces and configure them.
//!
//! ```text
//!   unshare(CLONE_NEWUSER) ──► setgroups: deny ──► uid_map: 0 is this user ──► gid_map: 0 is this group
//! ```
//!
//! The process stays in the network and the mounts in which it was started: what it listens on there, and what it writes,
//! others reach as before. Only the network namespaces that it makes belong to the new user namespace.

use std::fs;
use std::io::{self, ErrorKind};

use nix::sched::{CloneFlags, unshare};

/// Moves this process into a new user namespace, in which its user is root. The process must have only one thread.
///
/// # Errors
/// If the kernel refuses it. After [`RootlessError::Map`] the process is in a user namespace without rights.
pub fn enter_user_namespace() -> Result<(), RootlessError> {
    let status = fs::read_to_string("/proc/self/status").map_err(RootlessError::Map)?;
    let effective = |field| effective(&status, field).ok_or(ErrorKind::InvalidData.into());
    let user = effective("Uid:").map_err(RootlessError::Map)?;
    let group = effective("Gid:").map_err(RootlessError::Map)?;
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|errno| RootlessError::Unshare(errno.into()))?;
    // A group may be mapped only after its process has given up changing its groups.
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ];
    for (file, text) in maps {
        fs::write(format!("/proc/self/{file}"), text).map_err(RootlessError::Map)?;
    }
    Ok(())
}

/// A user namespace was refused.
#[derive(Debug, thiserror::Error)]
pub enum RootlessError {
    /// The kernel makes none.
    #[error("cannot make a user namespace: {0}")]
    Unshare(io::Error),
    /// It was made, and the user of this process may not become root in it.
    #[error("cannot become root of a new user namespace: {0}")]
    Map(io::Error),
}

/// The effective id, the second of the four in the line `Uid:` or `Gid:` of `/proc/self/status`.
fn effective(status: &str, field: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::effective;

    #[test]
    fn effective_ids_are_read() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t8\t9\t10\n";
        assert_eq!(effective(status, "Uid:"), Some(1001));
        assert_eq!(effective(status, "Gid:"), Some(8));
        assert_eq!(effective(status, "Groups:"), None);
    }
}
