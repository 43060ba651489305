//! What an error of the kernel means for what to do next.

use nix::errno::Errno;

use super::KernelError;

/// The kinds of errors that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The kernel rejects an element or rule, or the batch is too much for it: find the Service that it belongs to.
    Invalid,
    /// The tables are not as we left them: another program has changed them, or the answer to a batch
    /// was lost. Read them and repair them.
    OutOfSync,
    /// The kernel does not know a feature.
    Unsupported,
    /// Missing rights and the like: try again later.
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
            // One Service with a huge number of elements must not keep the others from being updated.
            Some(Errno::ENOMEM | Errno::ENOBUFS | Errno::EMSGSIZE) => Self::Invalid,
            Some(Errno::EOPNOTSUPP) => Self::Unsupported,
            _ => Self::Other,
        }
    }
}

/// Whether the kernel rejects what it was given, and not only the moment.
pub(super) fn is_about_content(error: &KernelError) -> bool {
    matches!(ErrorKind::of(error), ErrorKind::Invalid | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use zonewise_nft::{CommitError, Refusal};

    use super::*;

    #[test]
    fn a_batch_that_is_too_much_is_halved_like_an_invalid_one() {
        let of = |errno: Errno| {
            let refusal = Refusal {
                message: 1,
                what: String::new(),
                errno: errno as i32,
                text: String::new(),
                offset: None,
            };
            ErrorKind::of(&CommitError { refused: vec![refusal], source: None }.into())
        };
        let too_much = [Errno::EINVAL, Errno::ENOMEM, Errno::ENOBUFS, Errno::EMSGSIZE];
        assert_eq!(too_much.map(of), [ErrorKind::Invalid; 4]);
        assert_eq!([Errno::EPERM, Errno::EINTR].map(of), [ErrorKind::Other; 2]);
        assert_eq!([Errno::ENOENT, Errno::EBUSY].map(of), [ErrorKind::OutOfSync; 2]);
    }
}
