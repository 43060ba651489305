//! An anonymous network namespace, held by a file descriptor.
//!
//! ```text
//!   helper thread: unshare ──► sysctls, netlink socket, descriptor ──► ends
//!                                                   │
//!   Namespace (and its copies) ─────────────────────┘
//!        │ enter                │ spawn             │ add_address, add_route, …
//!        ▼                      ▼                   ▼
//!   a thread inside       a child inside      over the netlink socket, from anywhere
//! ```
//!
//! Only single threads change their namespace, never the whole process, so tests can run in
//! parallel.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;

use netlink_packet_route::RouteNetlinkMessage;
use nix::sched::{CloneFlags, setns, unshare};
use parking_lot::Mutex;

use crate::Error;
use crate::netlink::Netlink;

/// Sysctls of a new namespace, written before it has an interface.
///
/// A new namespace copies some defaults from the host. Writing them here makes every machine behave
/// alike.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    // A node that forwards a packet out of the interface it came in by would send ICMP redirects,
    // and later packets would bypass it.
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    // Duplicate address detection would delay addresses, and no address is used twice.
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    // No rate limit for ICMP errors: with one, rejected packets would soon look like dropped ones.
    // These sysctls list the ICMP types that are limited. The IPv6 list cannot be empty; type 255
    // is not assigned.
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratemask", "255"),
];

/// A network namespace. Copies refer to the same one; the kernel removes it with the last copy.
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    file: File,
    netlink: Mutex<Netlink>,
}

impl Namespace {
    /// Creates a namespace: `lo` is up, IPv6 addresses are usable at once, nothing is forwarded.
    ///
    /// The name appears in messages only and need not be unique.
    pub fn new(name: &str) -> Result<Self, Error> {
        let created = thread::scope(|scope| scope.spawn(|| create(name)).join());
        let (file, netlink) = created.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let inner = Inner { name: name.to_owned(), file, netlink: Mutex::new(netlink) };
        let namespace = Self { inner: Arc::new(inner) };
        namespace.set_up("lo")?;
        Ok(namespace)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Runs `f` on a thread inside the namespace and waits for it.
    ///
    /// Sockets made inside stay inside, wherever they are used later.
    ///
    /// # Panics
    ///
    /// If `f` panics, or if the process may no longer enter namespaces.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let result = thread::scope(|scope| {
            let inside = || match self.join() {
                Ok(()) => f(),
                Err(error) => panic!("{error}"),
            };
            scope.spawn(inside).join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into the namespace for good.
    ///
    /// For long-lived threads, like the workers of an async runtime. Threads and processes that the
    /// thread starts afterwards are inside as well. For a single piece of work use [`Self::enter`].
    pub fn join(&self) -> Result<(), Error> {
        setns(&self.inner.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| self.error("enter it", e.into()))
    }

    /// Starts a child process inside the namespace.
    ///
    /// The caller ends it and waits for it, as for any child.
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.enter(move || command.spawn())
    }

    /// A path for `nsenter --net=PATH`, valid as long as this process holds the namespace.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.raw_fd()).into()
    }

    /// Writes a sysctl, named by its path below `/proc/sys`: `net/ipv4/ip_forward`.
    pub fn write_sysctl(&self, path: &str, value: &str) -> Result<(), Error> {
        self.enter(|| write_sysctl(self.name(), path, value))
    }

    /// Reads a sysctl, without surrounding white space.
    pub fn read_sysctl(&self, path: &str) -> Result<String, Error> {
        self.enter(|| std::fs::read_to_string(format!("/proc/sys/{path}")))
            .map(|text| text.trim().to_owned())
            .map_err(|e| self.error(format!("read /proc/sys/{path}"), e))
    }

    /// Lets the namespace forward packets of both families.
    pub fn enable_forwarding(&self) -> Result<(), Error> {
        self.enter(|| {
            write_sysctl(self.name(), "net/ipv4/ip_forward", "1")?;
            write_sysctl(self.name(), "net/ipv6/conf/all/forwarding", "1")
        })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.inner.file.as_raw_fd()
    }

    pub(crate) fn error(&self, doing: impl Into<String>, source: io::Error) -> Error {
        Error::kernel(self.name(), doing, source)
    }

    /// Sends one netlink request. `doing` describes it in errors.
    pub(crate) fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        doing: impl FnOnce() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let mut netlink = self.inner.netlink.lock();
        netlink.request(message, flags).map_err(|e| self.error(doing(), e))
    }
}

/// The command that opens a shell in the namespace.
impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nsenter --net={}", self.path().display())
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.name())
    }
}

/// Moves the calling thread into a new namespace and opens it; the thread has to end afterwards.
fn create(name: &str) -> Result<(File, Netlink), Error> {
    let failed = |doing: &'static str| move |e| Error::kernel(name, doing, e);
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed("create it")(e.into()))?;
    let file = File::open("/proc/thread-self/ns/net").map_err(failed("open it"))?;
    for (path, value) in SYSCTLS {
        write_sysctl(name, path, value)?;
    }
    let netlink = Netlink::open().map_err(failed("open a netlink socket"))?;
    Ok((file, netlink))
}

/// Writes a sysctl of the calling thread's namespace.
fn write_sysctl(name: &str, path: &str, value: &str) -> Result<(), Error> {
    std::fs::write(format!("/proc/sys/{path}"), value)
        .map_err(|e| Error::kernel(name, format!("write {value} to /proc/sys/{path}"), e))
}
