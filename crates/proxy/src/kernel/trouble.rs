//! What kind of trouble an error is.

use nix::errno::Errno;

use super::KernelError;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// An element or rule is not acceptable: find whose it is.
    Content,
    /// The tables are not what we left: somebody changed them, or an answer was lost.
    Surprise,
    /// The kernel does not know what was asked for.
    Unsupported,
    /// No rights, no memory, no kernel: wait.
    Other,
}

impl Trouble {
    pub(super) fn of(error: &KernelError) -> Self {
        let KernelError::Refused(error) = error else { return Self::Other };
        if error.is_unknown() {
            return Self::Surprise;
        }
        match error.errno().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) => Self::Surprise,
            Some(
                Errno::EINVAL | Errno::ERANGE | Errno::ENFILE | Errno::ENOTEMPTY | Errno::E2BIG,
            ) => Self::Content,
            Some(Errno::EOPNOTSUPP) => Self::Unsupported,
            _ => Self::Other,
        }
    }
}
