//! What an error of the kernel means for what to do next.

use nix::errno::Errno;

use super::KernelError;

/// The kinds of errors that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The kernel rejects an element or rule: find the Service that it belongs to.
    Invalid,
    /// The tables are not as we left them: another program has changed them, or the answer to a batch
    /// was lost. Read them and repair them.
    OutOfSync,
    /// The kernel does not know a feature.
    Unsupported,
    /// Missing rights, no memory and the like: try again later.
    Other,
}

impl ErrorKind {
    pub(super) fn of(error: &KernelError) -> Self {
        let KernelError::Refused(error) = error else { return Self::Other };
        if error.is_unknown() {
            return Self::OutOfSync;
        }
        match error.errno().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) => Self::OutOfSync,
            Some(
                Errno::EINVAL | Errno::ERANGE | Errno::ENFILE | Errno::ENOTEMPTY | Errno::E2BIG,
            ) => Self::Invalid,
            Some(Errno::EOPNOTSUPP) => Self::Unsupported,
            _ => Self::Other,
        }
    }
}
