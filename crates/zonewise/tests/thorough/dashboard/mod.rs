//! `zonewise dashboard` with a real browser, in more sizes: what axe-core finds, pictures, hostile names, what is saved, five
//! thousand Services, the page of a lab, and a cluster that changes or cannot be reached.

mod access;
mod accessibility;
mod cluster;
mod export;
mod files;
mod hostile;
mod lab;
mod large;
mod live;
#[path = "../../suite/dashboard/page.rs"]
pub(crate) mod page;
mod pictures;
