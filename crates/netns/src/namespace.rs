//! A network namespace without a name.
//!
//! ```text
//!   helper thread: unshare ──► settings, netlink socket, descriptor ──► ends
//!                                                   │
//!   Namespace (and its copies) ─────────────────────┘
//!        │ enter                │ spawn             │ add_address, add_route, …
//!        ▼                      ▼                   ▼
//!   a thread inside       a child inside      over the netlink socket, from anywhere
//! ```
//!
//! Only threads change their namespace, never the process: tests run side by side.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use netlink_packet_route::RouteNetlinkMessage;
use nix::sched::{CloneFlags, setns, unshare};

use crate::Error;
use crate::netlink::Netlink;

/// What a new namespace is told, before it has a link.
///
/// Some defaults are copied from the host: they are said again, so that every box behaves alike.
const SETTINGS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    // A node that sends a packet back out where it came in must not teach others a short cut.
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    // No address is doubted: nobody else can have it.
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    // Who sends a rejected packet is always told: with a limit, rejected soon looks like dropped.
    // The masks name the types that are limited. 255 is nobody's, and a list cannot be empty.
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratemask", "255"),
];

/// A network namespace. Copies share it; it is gone with the last one.
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
    /// A new namespace: `lo` is up, IPv6 works without waiting, nothing is forwarded.
    ///
    /// The name is for messages only; two namespaces may have the same.
    pub fn new(name: &str) -> Result<Self, Error> {
        let made = thread::scope(|scope| scope.spawn(|| make(name)).join());
        let (file, netlink) = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
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
    /// For threads that live there, like the workers of an async runtime. What the thread starts
    /// afterwards is inside as well. Everybody else wants [`Self::enter`].
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

    /// A path to the namespace for as long as this process holds it, for `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.raw_fd()).into()
    }

    /// Writes a setting, named as under `/proc/sys`: `net/ipv4/ip_forward`.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), Error> {
        self.enter(|| write(self.name(), path, value))
    }

    /// Reads a setting, without the white space around it.
    pub fn read_sysctl(&self, path: &str) -> Result<String, Error> {
        self.enter(|| std::fs::read_to_string(format!("/proc/sys/{path}")))
            .map(|text| text.trim().to_owned())
            .map_err(|e| self.error(format!("read /proc/sys/{path}"), e))
    }

    /// Lets the namespace pass on packets of both families that are meant for others.
    pub fn forward(&self) -> Result<(), Error> {
        self.enter(|| {
            write(self.name(), "net/ipv4/ip_forward", "1")?;
            write(self.name(), "net/ipv6/conf/all/forwarding", "1")
        })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.inner.file.as_raw_fd()
    }

    pub(crate) fn error(&self, doing: impl Into<String>, source: io::Error) -> Error {
        Error::kernel(self.name(), doing, source)
    }

    /// One netlink request. `doing` says in an error what was tried.
    pub(crate) fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        doing: impl FnOnce() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let mut netlink = self.inner.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.request(message, flags).map_err(|e| self.error(doing(), e))
    }
}

/// The command that opens a shell inside.
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

/// Leaves the host's namespace: called on a thread that ends afterwards.
fn make(name: &str) -> Result<(File, Netlink), Error> {
    let failed = |doing: &'static str| move |e| Error::kernel(name, doing, e);
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed("make it")(e.into()))?;
    let file = File::open("/proc/thread-self/ns/net").map_err(failed("open it"))?;
    for (path, value) in SETTINGS {
        write(name, path, value)?;
    }
    let netlink = Netlink::open().map_err(failed("open a netlink socket"))?;
    Ok((file, netlink))
}

/// Writes a setting of the calling thread's namespace.
fn write(name: &str, path: &str, value: &str) -> Result<(), Error> {
    std::fs::write(format!("/proc/sys/{path}"), value)
        .map_err(|e| Error::kernel(name, format!("write {value} to /proc/sys/{path}"), e))
}
