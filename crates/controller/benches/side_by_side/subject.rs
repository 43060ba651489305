//! The two programs that are measured.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use zonewise_testbed::{Cluster, Process, User};

/// Rate limits high enough that the program is measured and not its limits.
const REFERENCE: [&str; 3] =
    ["--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-service-endpoint-syncs=5"];
const OURS: [&str; 8] = [
    "controller",
    "--compat",
    "upstream",
    "--leader-elect=false",
    "--metrics-address",
    "127.0.0.1:0",
    "--health-address",
    "127.0.0.1:0",
];

/// A program under test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// kube-controller-manager with only the EndpointSlice controller.
    Reference,
    /// `zonewise controller`.
    Ours,
}

impl Subject {
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name {
            "reference" => Ok(Self::Reference),
            "ours" => Ok(Self::Ours),
            other => bail!("--only {other}: use reference or ours"),
        }
    }

    /// The command as the output shows it; fails when the program is missing.
    pub(crate) fn command(self) -> Result<String> {
        Ok(match self {
            Self::Reference => format!(
                "kube-controller-manager --controllers=endpointslice-controller {}",
                REFERENCE.join(" ")
            ),
            Self::Ours => {
                let program = binary();
                ensure!(
                    program.is_file(),
                    "no program at {}: build it with cargo build --release --package zonewise, or set \
                     ZONEWISE_BINARY",
                    program.display()
                );
                format!("zonewise {}", OURS.join(" "))
            }
        })
    }

    pub(crate) fn start(self, cluster: &Cluster) -> Result<Process> {
        match self {
            Self::Reference => cluster.controller_manager(&REFERENCE),
            Self::Ours => {
                let kubeconfig = cluster.kubeconfig(User::Admin)?.display().to_string();
                let args = [&OURS[..], &["--kubeconfig", &kubeconfig]].concat();
                Process::spawn(&binary(), &args, &[], &cluster.log("zonewise"))
            }
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Reference => "reference",
            Self::Ours => "ours",
        })
    }
}

fn binary() -> PathBuf {
    match std::env::var_os("ZONEWISE_BINARY") {
        Some(path) => PathBuf::from(path),
        None => {
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/zonewise"))
        }
    }
}
