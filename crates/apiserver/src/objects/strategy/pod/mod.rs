//! Defaults and validation of Pods.

mod check;
mod defaults;

pub(super) use check::{check, check_status};
pub(super) use defaults::{defaults, template_defaults};

const CONTAINERS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];
