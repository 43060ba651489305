//! Data sets, scores, reports and timelines.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod common;
mod golden;
mod published;
mod reports;
mod reproducible;
mod timeline;
