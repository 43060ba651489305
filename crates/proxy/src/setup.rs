//! Kernel settings that the proxy needs and that take privileges to change.
//!
//! ```text
//!  Conntrack, CPUs ─► wanted() ─► file by file: read ─ as wanted ─► nothing to do
//!                                                    └ different ─► write ─► done, or an error
//! ```
//!
//! `zonewise proxy --init-only` makes the settings and ends, in an init container that may write to
//! `/proc/sys`. The proxy itself finds them made and needs no such privilege. It warns about a setting
//! that is wrong and that it must not change: Services work without it.
//!
//! The size of the conntrack table belongs to the whole machine. Where a node is itself a container, as
//! with kind, the kernel lets nobody on it change that size. A table that is large enough is then as
//! good, and a smaller one is a warning, for `--init-only` too.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use thiserror::Error;

use crate::config::{Config, Conntrack};

/// The file system of the machine; another one in tests.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::at("/")
    }
}

/// A setting: a value that a file of the kernel should have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// Its path below the root of the file system.
    file: &'static str,
    value: i64,
    /// Whether a larger value is as good.
    at_least: bool,
}

impl Wanted {
    fn exactly(file: &'static str, value: i64) -> Self {
        Self { file, value, at_least: false }
    }

    fn holds(&self, now: i64) -> bool {
        now == self.value || (self.at_least && now > self.value)
    }
}

/// A setting that could not be made.
#[derive(Debug, Error)]
#[error("cannot set /{file} to {value}: {source}; {remedy}")]
pub struct SetupError {
    /// Its path below the root of the file system.
    pub file: &'static str,
    /// The value.
    pub value: i64,
    /// Why not.
    pub source: io::Error,
    /// What to do about it.
    pub remedy: &'static str,
}

impl SetupError {
    /// Whether a warning is enough: the setting does not exist, or this process must not change it.
    pub fn is_warning(&self) -> bool {
        self.source.kind() == ErrorKind::NotFound
            || is_refused(&self.source)
            || self.is_beyond_the_node()
    }

    /// Whether nobody on this node may change the setting, whatever the privileges.
    fn is_beyond_the_node(&self) -> bool {
        is_beyond_the_node(self.file, &self.source)
    }
}

/// Whether this process must not write.
fn is_refused(error: &io::Error) -> bool {
    [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem].contains(&error.kind())
}

/// Whether this is a setting of the whole machine, refused to a node that is a part of it. The kernel
/// shows the size of the table read-only to all network namespaces but the first, and answers a write
/// of the buckets there with `EOPNOTSUPP`.
fn is_beyond_the_node(file: &str, error: &io::Error) -> bool {
    [MAX, BUCKETS].contains(&file) && (is_refused(error) || error.kind() == ErrorKind::Unsupported)
}

/// The settings that `--init-only` could not make.
#[derive(Debug)]
pub struct Incomplete(pub Vec<SetupError>);

impl fmt::Display for Incomplete {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        out.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Incomplete {}

/// The largest conntrack table that is asked for, whatever is configured: `maxLimit` of kube-proxy
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/proxy/conntrack/sysctls.go>).
const MOST_CONNECTIONS: u64 = 1 << 20;

const MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "sys/module/nf_conntrack/parameters/hashsize";
const ESTABLISHED: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait";
const LIBERAL: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
const UDP: &str = "proc/sys/net/netfilter/nf_conntrack_udp_timeout";
const ACCOUNTING: &str = "proc/sys/net/netfilter/nf_conntrack_acct";
const EVENTS: &str = "proc/sys/net/netfilter/nf_conntrack_events";
const UDP_STREAM: &str = "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream";
const ROUTE_LOCALNET: &str = "proc/sys/net/ipv4/conf/all/route_localnet";
const OOM_SCORE: &str = "proc/self/oom_score_adj";
const CPUS: &str = "sys/devices/system/cpu/online";
const DISABLE_IPV6: &str = "proc/sys/net/ipv6/conf/all/disable_ipv6";
const INET6: &str = "proc/net/if_inet6";

/// The settings, in the order of writing: hash buckets before the size of the conntrack table.
fn wanted(config: &Config, cpus: u32) -> Vec<Wanted> {
    let conntrack = &config.conntrack;
    let time = |file, time: Option<Duration>| {
        time.map(|time| Wanted::exactly(file, i64::try_from(time.as_secs()).unwrap_or(i64::MAX)))
    };
    let table = most_connections(conntrack, cpus).into_iter().flat_map(|most| {
        // One bucket for four connections, as in kube-proxy.
        let buckets = Wanted { file: BUCKETS, value: most / 4, at_least: true };
        [buckets, Wanted::exactly(MAX, most)]
    });
    let rest = [
        time(ESTABLISHED, conntrack.tcp_established),
        time(CLOSE_WAIT, conntrack.tcp_close_wait),
        conntrack.tcp_be_liberal.then(|| Wanted::exactly(LIBERAL, 1)),
        time(UDP, conntrack.udp),
        time(UDP_STREAM, conntrack.udp_stream),
        config.localhost_nodeports.then(|| Wanted::exactly(ROUTE_LOCALNET, 1)),
        config.count_bytes.then(|| Wanted::exactly(ACCOUNTING, 1)),
        // With 2, which is what most machines have, the kernel tells only about flows that began while somebody listened:
        // not about those that began while the proxy was restarted.
        config.count_bytes.then(|| Wanted::exactly(EVENTS, 1)),
    ];
    table.chain(rest.into_iter().flatten()).collect()
}

fn most_connections(conntrack: &Conntrack, cpus: u32) -> Option<i64> {
    let scaled = u64::from(conntrack.max_per_core?) * u64::from(cpus);
    let most = scaled.max(u64::from(conntrack.min)).min(MOST_CONNECTIONS);
    i64::try_from(most).ok()
}

/// Loads the module of conntrack, whose settings do not exist before, by asking for its flows. Where the
/// kernel has no such module, the missing settings are reported.
fn load_conntrack() {
    let asked = zonewise_nft::conntrack::Conntrack::open().and_then(|mut conntrack| {
        conntrack.flows(zonewise_nft::Family::Ip, Some(u8::MAX), &mut |_| {})
    });
    if let Err(error) = asked {
        tracing::debug!(%error, "cannot load conntrack");
    }
}

impl Machine {
    /// A machine whose file system begins here.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `--init-only`: makes all settings, and warns about those that nobody on this node may change.
    ///
    /// # Errors
    /// With the settings that could not be made although a node can; all others are.
    pub fn init(&self, config: &Config) -> Result<(), Incomplete> {
        load_conntrack();
        let (beyond, errors): (Vec<_>, Vec<_>) =
            self.set_up(config).into_iter().partition(SetupError::is_beyond_the_node);
        for error in beyond {
            tracing::warn!("{error}");
        }
        if errors.is_empty() { Ok(()) } else { Err(Incomplete(errors)) }
    }

    /// For the proxy itself: makes the settings as far as it may, and warns about the others.
    ///
    /// # Errors
    /// With the first setting that the kernel rejects although this process may change it.
    pub fn prepare(&self, config: &Config) -> Result<(), SetupError> {
        for error in self.set_up(config) {
            if !error.is_warning() {
                return Err(error);
            }
            tracing::warn!("{error}");
        }
        if let Err(error) = self.set_oom_score(config.oom_score_adj) {
            tracing::warn!("{error}");
        }
        Ok(())
    }

    /// Makes all settings; returns those that could not be made.
    fn set_up(&self, config: &Config) -> Vec<SetupError> {
        let all = wanted(config, self.cpus());
        all.iter().filter_map(|wanted| self.apply(wanted).err()).collect()
    }

    /// Sets how unlikely the kernel kills this process when memory is short. It belongs to the process
    /// and so has no use in `--init-only`.
    fn set_oom_score(&self, score: i32) -> Result<(), SetupError> {
        self.apply(&Wanted::exactly(OOM_SCORE, score.into()))
    }

    /// Whether the kernel has IPv6.
    pub fn has_ipv6(&self) -> bool {
        let disabled = fs::read_to_string(self.path(DISABLE_IPV6));
        self.path(INET6).exists() && disabled.is_ok_and(|text| text.trim() != "1")
    }

    /// The CPUs of the machine, not only those that this process may use.
    fn cpus(&self) -> u32 {
        let listed = fs::read_to_string(self.path(CPUS)).ok().and_then(|text| count(text.trim()));
        let usable = || std::thread::available_parallelism().map_or(1, |n| n.get());
        listed.unwrap_or_else(|| u32::try_from(usable()).unwrap_or(u32::MAX))
    }

    fn apply(&self, wanted: &Wanted) -> Result<(), SetupError> {
        let path = self.path(wanted.file);
        let now = read(&path).map_err(|source| wanted.failed(source))?;
        if wanted.holds(now) {
            return Ok(());
        }
        match fs::write(&path, wanted.value.to_string()) {
            Ok(()) => {
                tracing::info!(file = %path.display(), was = now, now = wanted.value, "kernel setting changed");
                Ok(())
            }
            Err(error) if now > wanted.value && is_beyond_the_node(wanted.file, &error) => Ok(()),
            Err(error) => Err(wanted.failed(error)),
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }
}

impl Wanted {
    fn failed(&self, source: io::Error) -> SetupError {
        let remedy = match (self.file, source.kind()) {
            (OOM_SCORE, _) => {
                "set --oom-score-adj to its current value, or give the container the capability SYS_RESOURCE"
            }
            (_, ErrorKind::NotFound) => "load the kernel module nf_conntrack first",
            (file, _) if is_beyond_the_node(file, &source) => {
                "run `zonewise proxy --init-only` once with privileges; where the node is itself a \
                 container, set it on the machine that runs this container, or set \
                 conntrack.maxPerCore to 0 to keep the machine's value"
            }
            (_, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                "run `zonewise proxy --init-only` once with privileges, for example as an init \
                 container"
            }
            _ => "choose a value that the kernel accepts, or 0 to keep the kernel's",
        };
        SetupError { file: self.file, value: self.value, source, remedy }
    }
}

fn read(path: &Path) -> io::Result<i64> {
    let text = fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file does not contain a number"))
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> Option<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(range).try_fold(0_u32, |sum, size| sum.checked_add(size?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (file, value) in [
            (MAX, "65536\n"),
            (BUCKETS, "16384\n"),
            (ESTABLISHED, "432000\n"),
            (CLOSE_WAIT, "3600\n"),
            (LIBERAL, "0\n"),
            (UDP, "30\n"),
            (UDP_STREAM, "120\n"),
            (ROUTE_LOCALNET, "0\n"),
            (OOM_SCORE, "0\n"),
            (CPUS, "0-7\n"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let machine = Machine::at(root.path());
        (root, machine)
    }

    fn text(machine: &Machine, file: &str) -> String {
        fs::read_to_string(machine.path(file)).unwrap()
    }

    fn config(conntrack: Conntrack) -> Config {
        Config { conntrack, ..Config::new("n") }
    }

    /// A size per CPU, at least the minimum, and never more than 1,048,576, even if the minimum is
    /// larger: as in kube-proxy.
    #[test]
    fn how_many_connections_are_tracked() {
        let rows = [
            (Some(32_768), 131_072, 1, Some(131_072)),
            (Some(32_768), 131_072, 8, Some(262_144)),
            (Some(32_768), 131_072, 64, Some(1_048_576)),
            (Some(32_768), 2_000_000, 2, Some(1_048_576)),
            (Some(1), 0, 4, Some(4)),
            (Some(u32::MAX), u32::MAX, u32::MAX, Some(1_048_576)),
            (None, 131_072, 8, None),
        ];
        for (max_per_core, min, cpus, expected) in rows {
            let conntrack = Conntrack { max_per_core, min, ..Conntrack::default() };
            assert_eq!(most_connections(&conntrack, cpus), expected, "{conntrack:?} {cpus}");
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_wanted() {
        let nothing = Conntrack {
            max_per_core: None,
            tcp_established: None,
            tcp_close_wait: None,
            ..Conntrack::default()
        };
        assert_eq!(wanted(&config(nothing.clone()), 4), []);
        let times = Conntrack {
            tcp_be_liberal: true,
            udp: Some(Duration::from_secs(5)),
            udp_stream: Some(Duration::from_mins(2)),
            ..nothing
        };
        let all = Config { localhost_nodeports: true, count_bytes: true, ..config(times) };
        let expected = [
            Wanted::exactly(LIBERAL, 1),
            Wanted::exactly(UDP, 5),
            Wanted::exactly(UDP_STREAM, 120),
            Wanted::exactly(ROUTE_LOCALNET, 1),
            Wanted::exactly(ACCOUNTING, 1),
            Wanted::exactly(EVENTS, 1),
        ];
        assert_eq!(wanted(&all, 4), expected);
    }

    #[test]
    fn only_what_differs_is_written() {
        let (_root, machine) = machine();
        let errors = machine.set_up(&Config::new("n"));
        assert!(errors.is_empty(), "{errors:?}");
        let found =
            [MAX, BUCKETS, ESTABLISHED, CLOSE_WAIT, LIBERAL].map(|file| text(&machine, file));
        // A line break at the end: the value was right and has not been written.
        assert_eq!(found, ["262144", "65536", "86400", "3600\n", "0\n"]);

        fs::write(machine.path(BUCKETS), "500000\n").unwrap();
        assert!(machine.set_up(&Config::new("n")).is_empty());
        assert_eq!(text(&machine, BUCKETS), "500000\n", "more buckets are as good");

        machine.set_oom_score(-999).unwrap();
        assert_eq!(text(&machine, OOM_SCORE), "-999");
    }

    #[test]
    fn what_cannot_be_set_is_named_and_the_rest_is_set() {
        let (_root, machine) = machine();
        fs::remove_file(machine.path(ESTABLISHED)).unwrap();
        fs::write(machine.path(CLOSE_WAIT), "soon").unwrap();
        let errors = machine.set_up(&Config::new("n"));
        let said: Vec<_> = errors.iter().map(|e| (e.to_string(), e.is_warning())).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        let (missing, odd) = (&said[0], &said[1]);
        assert!(
            missing.0.starts_with(&format!("cannot set /{ESTABLISHED} to 86400: ")),
            "{said:?}"
        );
        assert!(missing.0.ends_with("load the kernel module nf_conntrack first"), "{said:?}");
        assert!(odd.0.contains("the file does not contain a number"), "{said:?}");
        assert_eq!((missing.1, odd.1), (true, false));
        assert_eq!(text(&machine, MAX), "262144");
    }

    #[test]
    fn init_only_insists_and_the_process_that_stays_does_not() {
        let (_root, machine) = machine();
        fs::remove_file(machine.path(ESTABLISHED)).unwrap();
        fs::remove_file(machine.path(UDP)).unwrap();
        let conntrack = Conntrack { udp: Some(Duration::from_secs(5)), ..Conntrack::default() };
        let config = config(conntrack);
        let error = machine.init(&config).unwrap_err().to_string();
        let files: Vec<_> = error.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(files, [format!("/{ESTABLISHED}"), format!("/{UDP}")]);
        assert_eq!(text(&machine, OOM_SCORE), "0\n", "not set for a process that ends");
        machine.prepare(&config).unwrap();
        assert_eq!(text(&machine, OOM_SCORE), "-999");
        fs::write(machine.path(CLOSE_WAIT), "soon").unwrap();
        let error = machine.prepare(&config).unwrap_err();
        assert_eq!(error.file, CLOSE_WAIT);
    }

    #[test]
    fn without_the_privilege_the_remedy_is_init_only() {
        use ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
        let rows = [
            (ESTABLISHED, PermissionDenied, (true, false)),
            (ESTABLISHED, ReadOnlyFilesystem, (true, false)),
            (ESTABLISHED, Unsupported, (false, false)),
            (MAX, PermissionDenied, (true, true)),
            (MAX, ReadOnlyFilesystem, (true, true)),
            (BUCKETS, Unsupported, (true, true)),
            (MAX, InvalidInput, (false, false)),
        ];
        for (file, kind, expected) in rows {
            let error = Wanted::exactly(file, 7).failed(kind.into());
            assert_eq!((error.is_warning(), error.is_beyond_the_node()), expected, "{error}");
            let named = error.to_string().contains("zonewise proxy --init-only");
            assert_eq!(named, error.is_warning(), "{error}");
        }
    }

    #[test]
    fn cpus_are_counted_from_the_kernels_list() {
        let rows = [("0", Some(1)), ("0-7", Some(8)), ("0-3,8,10-11", Some(7))];
        for (list, expected) in rows.into_iter().chain([("", None), ("3-1", None), ("x", None)]) {
            assert_eq!(count(list), expected, "{list}");
        }
        let (_root, machine) = machine();
        assert_eq!(machine.cpus(), 8);
    }

    #[test]
    fn ipv6_is_there_unless_it_is_off() {
        let (_root, machine) = machine();
        assert!(!machine.has_ipv6());
        for file in [INET6, DISABLE_IPV6] {
            let path = machine.path(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "0\n").unwrap();
        }
        assert!(machine.has_ipv6());
        fs::write(machine.path(DISABLE_IPV6), "1\n").unwrap();
        assert!(!machine.has_ipv6());
    }
}
