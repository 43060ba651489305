//! What people install: the chart, the manifests that are rendered from it, and the image.
//!
//! ```text
//!  chart      values in, objects out; what is refused; the objects on a real API server, and gone again
//!  kube_proxy the commands that keep kube-proxy away from nodes, and bring it back
//!  image      the archive that scripts/image packs, and the list of what the program is made of
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod chart;
mod image;
mod install;
mod kube_proxy;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use crate::observe::run::{Ran, root};

/// Helm, which `scripts/helm` builds once per machine.
static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
    let ran: Ran = Command::new(root().join("scripts/helm")).output().unwrap().into();
    assert_eq!(
        ran.code, 0,
        "scripts/helm builds Helm, which the tests of the chart need: {}",
        ran.err
    );
    PathBuf::from(ran.out.trim())
});

/// Runs Helm from the root of the repository.
fn helm(arguments: &[&str]) -> Command {
    let mut command = Command::new(&*HELM);
    command.current_dir(root()).args(arguments).env_remove("KUBECONFIG");
    command
}
