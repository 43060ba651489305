//! What can go wrong, in words that say what to do.

use std::io;

use thiserror::Error;

/// Something could not be set up.
#[derive(Debug, Error)]
pub enum Error {
    /// The process may not make, enter or change network namespaces.
    #[error(
        "{namespace}: {doing}: needs root: CAP_SYS_ADMIN to make a network namespace, \
         CAP_NET_ADMIN to change it ({source})"
    )]
    NeedsRoot {
        /// Which namespace.
        namespace: String,
        /// What was tried.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel said no.
    #[error("{namespace}: {doing}: {source}")]
    Kernel {
        /// Which namespace.
        namespace: String,
        /// What was tried.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A network of the world has no address left.
    #[error("{network}: no address left")]
    Full {
        /// Which network.
        network: String,
    },
    /// An address of the world is in use, or cannot be given to anybody.
    #[error("{address} is taken")]
    Taken {
        /// Which address.
        address: std::net::IpAddr,
    },
}

impl Error {
    /// Sorts an error of the kernel: missing rights need another cure than everything else.
    pub(crate) fn kernel(namespace: &str, doing: impl Into<String>, source: io::Error) -> Self {
        let (namespace, doing) = (namespace.to_owned(), doing.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NeedsRoot { namespace, doing, source }
        } else {
            Self::Kernel { namespace, doing, source }
        }
    }
}
