//! `zonewise dashboard`, looked at with a real browser: what it shows is what the commands print, keys, and who sees what.

mod access;
mod files;
pub(crate) mod page;
