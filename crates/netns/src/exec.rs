//! A command inside a network namespace that another process holds.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Replaces this process by a command inside the network namespace at a path such as
/// [`Namespace::path`](crate::Namespace::path) gives. `user` is the user namespace that the network namespace belongs to, if
/// it is not that of this process, which then must have only one thread. For that command alone, `hosts` takes the place of
/// `/etc/hosts`. Returns only if that failed.
pub fn exec(
    user: Option<&Path>,
    namespace: &Path,
    hosts: &Path,
    command: &mut Command,
) -> io::Error {
    match enter(user, namespace, hosts) {
        Ok(()) => command.exec(),
        Err(error) => error,
    }
}

fn enter(user: Option<&Path>, namespace: &Path, hosts: &Path) -> io::Result<()> {
    let namespace = File::open(namespace)?;
    if let Some(user) = user {
        setns(File::open(user)?, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    // In a mount namespace of its own, which passes nothing on to others.
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some(hosts), "/etc/hosts", none, MsFlags::MS_BIND, none)?;
    Ok(())
}
