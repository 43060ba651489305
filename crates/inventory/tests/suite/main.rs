//! The index as the controller and `explain` use it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod forms;
mod index;
mod write;
