//! Errors of a commit, with the remedy for known error numbers.

use std::fmt;
use std::io;

/// One message that the kernel refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Its number in the batch, from 1; 0 stands for the batch as a whole.
    pub message: u32,
    /// A description of what it does: `add chain ip zonewise services`.
    pub what: String,
    /// The kernel's error number.
    pub errno: i32,
    /// The kernel's explanation; often empty.
    pub text: String,
    /// The offset of the attribute that caused the error, if the kernel names it.
    pub offset: Option<u32>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        write!(f, "{} (message {}): {cause}", self.what, self.message)?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

/// A batch that was not applied. If [`CommitError::is_unknown`], it may have been.
#[derive(Debug)]
pub struct CommitError {
    /// The messages that the kernel refused, in the order of the batch. Empty if the socket failed.
    pub refused: Vec<Refusal>,
    /// The error of the socket.
    pub source: Option<io::Error>,
}

impl CommitError {
    pub(crate) const fn io(source: io::Error) -> Self {
        Self { refused: Vec::new(), source: Some(source) }
    }

    /// The first error number.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let refused = self.refused.first().map(|refusal| refusal.errno);
        refused.or_else(|| self.source.as_ref().and_then(io::Error::raw_os_error))
    }

    /// Whether the kernel's response was lost. The batch may have been applied: read the tables and
    /// compare.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        use io::ErrorKind::{TimedOut, UnexpectedEof};
        let lost = |source: &io::Error| matches!(source.kind(), TimedOut | UnexpectedEof);
        self.refused.is_empty() && self.source.as_ref().is_some_and(lost)
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not commit the nftables batch")?;
        if let Some(first) = self.refused.first() {
            write!(f, ": {first}")?;
        }
        if self.refused.len() > 1 {
            write!(f, " and {} more", self.refused.len() - 1)?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        match self.errno().and_then(remedy) {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Error numbers of Linux.
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: i32 = 1;
    /// No such file or directory: something is not there.
    pub const ENOENT: i32 = 2;
    /// Cannot allocate memory.
    pub const ENOMEM: i32 = 12;
    /// Device or resource busy: something is in use.
    pub const EBUSY: i32 = 16;
    /// File exists.
    pub const EEXIST: i32 = 17;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// Too many open files in this process.
    pub const EMFILE: i32 = 24;
    /// Too many open files in the system.
    pub const ENFILE: i32 = 23;
    /// Interrupted system call should be restarted: the ruleset has changed.
    pub const ERESTART: i32 = 85;
    /// Message too long.
    pub const EMSGSIZE: i32 = 90;
    /// Protocol not supported.
    pub const EPROTONOSUPPORT: i32 = 93;
    /// Operation not supported.
    pub const EOPNOTSUPP: i32 = 95;
    /// No buffer space available.
    pub const ENOBUFS: i32 = 105;
}

fn remedy(errno: i32) -> Option<&'static str> {
    Some(match errno {
        errno::EPERM => {
            "the process needs CAP_NET_ADMIN in this network namespace, and no other program may \
             own the table (`nft list tables` shows who does)"
        }
        errno::ENOENT => {
            "something it refers to does not exist: another program may have changed the table, or the \
             kernel lacks a module (nf_tables, nft_numgen, nft_fib, nft_masq, nft_reject); write \
             the whole table again"
        }
        errno::EEXIST => {
            "it already exists with other contents: delete it first, in the same batch; or another \
             program has changed the table"
        }
        errno::EBUSY => "it is still in use: delete what refers to it first, in the same batch",
        errno::EINVAL | errno::EOPNOTSUPP => {
            "the kernel may be too old for it: 5.13 is needed, 6.9 to keep an owned table beyond \
             the process"
        }
        errno::EPROTONOSUPPORT => "the kernel lacks netfilter netlink: load nf_tables",
        errno::EMSGSIZE | errno::ENOBUFS | errno::ENOMEM => {
            "the batch is larger than the kernel accepts, or memory is short: commit smaller \
             batches"
        }
        errno::EMFILE | errno::ENFILE => {
            "a set has reached its size, or the process its limit of open files"
        }
        errno::ERESTART => {
            "another program has changed the tables meanwhile: read them and try again"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn refusal(message: u32, errno: i32) -> Refusal {
        Refusal {
            message,
            what: "add chain ip zw a".into(),
            errno,
            text: String::new(),
            offset: None,
        }
    }

    fn refused(refused: Vec<Refusal>) -> CommitError {
        CommitError { refused, source: None }
    }

    #[test]
    fn an_error_names_message_cause_and_remedy() {
        let full =
            Refusal { text: "no module".into(), offset: Some(24), ..refusal(3, errno::ENOENT) };
        let rows = [
            (
                refused(vec![refusal(2, errno::EBUSY)]),
                "could not commit the nftables batch: add chain ip zw a (message 2): Device or resource busy \
                 (os error 16); it is still in use: delete what refers to it first, in the same batch",
            ),
            (
                refused(vec![full.clone()]),
                "could not commit the nftables batch: add chain ip zw a (message 3): No such file or directory \
                 (os error 2): no module (at byte 24); something it refers to does not exist: another program may \
                 have changed the table, or the kernel lacks a module (nf_tables, nft_numgen, nft_fib, nft_masq, \
                 nft_reject); write the whole table again",
            ),
            (
                refused(vec![refusal(2, 5), full.clone(), full]),
                "could not commit the nftables batch: add chain ip zw a (message 2): Input/output error \
                 (os error 5) and 2 more",
            ),
            (
                CommitError::io(io::Error::from_raw_os_error(errno::EPERM)),
                "could not commit the nftables batch: Operation not permitted (os error 1); the process needs \
                 CAP_NET_ADMIN in this network namespace, and no other program may own the table (`nft list \
                 tables` shows who does)",
            ),
        ];
        for (error, expected) in rows {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn every_known_number_has_a_remedy_of_its_own() {
        let remedies = [
            (&[errno::EPERM][..], "CAP_NET_ADMIN"),
            (&[errno::ENOENT], "does not exist"),
            (&[errno::EEXIST], "already exists"),
            (&[errno::EBUSY], "in use"),
            (&[errno::EINVAL, errno::EOPNOTSUPP], "too old"),
            (&[errno::EPROTONOSUPPORT], "load nf_tables"),
            (&[errno::EMSGSIZE, errno::ENOBUFS, errno::ENOMEM], "smaller batches"),
            (&[errno::EMFILE, errno::ENFILE], "its limit of open files"),
            (&[errno::ERESTART], "try again"),
        ];
        for (numbers, expected) in remedies {
            for number in numbers {
                let text = remedy(*number).unwrap_or_else(|| panic!("{number} has no remedy"));
                assert!(text.contains(expected), "{number}: {text}");
            }
        }
        assert_eq!(remedy(5), None);
    }

    #[test]
    fn only_a_lost_answer_is_unknown() {
        let source = |kind: io::ErrorKind| CommitError::io(kind.into());
        assert!(source(io::ErrorKind::TimedOut).is_unknown());
        assert!(source(io::ErrorKind::UnexpectedEof).is_unknown());
        assert!(!source(io::ErrorKind::PermissionDenied).is_unknown());
        let both = CommitError { refused: vec![refusal(1, 16)], ..source(io::ErrorKind::TimedOut) };
        assert!(!both.is_unknown(), "the kernel has answered");
        assert!(!refused(vec![]).is_unknown());
        assert_eq!((both.errno(), source(io::ErrorKind::TimedOut).errno()), (Some(16), None));
        assert_eq!(CommitError::io(io::Error::from_raw_os_error(1)).errno(), Some(1));
        assert!(both.source().is_some() && refused(vec![]).source().is_none());
    }
}
