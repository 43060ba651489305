//! nftables and connection tracking over netlink.
//!
//! ```text
//!   Rule, SetSpec, Element ──► Batch (one Vec<u8>) ──► Socket::commit ──► kernel: all or nothing
//!        │                                                    │
//!        └─► Rule::text (as `nft list` prints it)             └─► CommitError: which message, why
//!
//!   Socket::dump, rules, sets, counters, generation ◄── kernel
//!   conntrack::Conntrack::flows, delete             ◄─► kernel
//! ```
//!
//! [`Network`] says which kernel answers: that of the machine, or [`simulated`], one in memory that tests
//! can make fail.
//!
//! The `nft` program is never run, but it can list everything that is written: sets carry the types of
//! their keys and data, objects their comments. `abi` has the kernel's numbers.
//!
//! A batch is a transaction: the kernel applies all of its messages or none. To replace the data of a
//! map's element, delete the element and add it again in one batch. Adding an element that exists
//! unchanged is not an error.

#[cfg(test)]
extern crate self as zonewise_nft;

mod abi;
mod batch;
mod error;
mod expression;
mod filter;
mod link;
mod network;
mod parse;
mod rule;
mod set;
pub mod simulated;
mod socket;
mod value;
mod wire;

pub mod conntrack;

#[cfg(test)]
#[path = "../tests/suite/everything.rs"]
mod everything;
#[cfg(all(test, target_endian = "little"))]
mod recorded;

pub use batch::{BaseChain, Batch, ChainKind, Elements, Hook, TableFlags, Verb};
pub use error::{CommitError, Refusal, errno};
pub use network::Network;
pub use rule::{FibAddress, Field, Rule, Statement};
pub use set::{SetFlags, SetSpec, Type};
pub use socket::{
    ChainInfo, CounterInfo, DumpedElement, Listing, RuleInfo, SetInfo, Socket, TableInfo,
};
pub use value::{Bytes, Data, Element, Family, Parts};
