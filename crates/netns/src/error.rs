//! Errors of this crate.

use std::io;

use thiserror::Error;

/// A namespace or network could not be set up.
#[derive(Debug, Error)]
pub enum Error {
    /// The process lacks the capabilities to create, enter or change network namespaces.
    #[error(
        "{namespace}: {doing}: run as root: creating a network namespace needs CAP_SYS_ADMIN, \
         changing it needs CAP_NET_ADMIN ({source})"
    )]
    NeedsRoot {
        /// Which namespace.
        namespace: String,
        /// What was tried.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel rejected the operation.
    #[error("{namespace}: {doing}: {source}")]
    Kernel {
        /// Which namespace.
        namespace: String,
        /// What was tried.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// All addresses of a network are in use.
    #[error("{network}: no free address left")]
    Full {
        /// Which network.
        network: String,
    },
    /// An address is in use, or is not a host address.
    #[error("{address} is in use or is not a host address")]
    AddressUnavailable {
        /// Which address.
        address: std::net::IpAddr,
    },
}

impl Error {
    /// Wraps an error of the kernel. Missing permissions get their own variant because their
    /// remedy differs.
    pub(crate) fn kernel(namespace: &str, doing: impl Into<String>, source: io::Error) -> Self {
        let (namespace, doing) = (namespace.to_owned(), doing.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NeedsRoot { namespace, doing, source }
        } else {
            Self::Kernel { namespace, doing, source }
        }
    }
}
