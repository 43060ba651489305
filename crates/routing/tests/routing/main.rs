//! What a node routes where: the recorded vectors of the reference, the tables of the documents, and
//! what we add.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod common;
mod order;
mod policies;
mod reader;
mod reasons;
mod recorded;
mod services;
mod shares;
mod skew;
mod slots;
mod subsets;
