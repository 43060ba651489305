//! nftables and conntrack over netlink: everything that knows a byte of the wire.
//!
//! ```text
//!   Rule, SetSpec, Element ──► Batch (one Vec<u8>) ──► Socket::commit ──► kernel: all or nothing
//!        │                                                    │
//!        └─► Rule::text (what `nft list` prints)              └─► CommitError: which message, why
//!
//!   Socket::dump, rules, sets, counters, generation ◄── kernel
//!   conntrack::Conntrack::flows, delete             ◄─► kernel
//! ```
//!
//! The `nft` program is never run. What is written is made to be listed by it all the same: keys
//! and data carry their types, names their comments.
//!
//! A batch is a transaction: the kernel applies all of its messages or none. To replace what a map
//! says for a key, delete the element and add it again in one batch; adding what is there already,
//! unchanged, is no error.

mod batch;
mod error;
mod expression;
mod link;
mod parse;
mod rule;
mod set;
mod socket;
mod value;
mod wire;

pub mod conntrack;

pub use batch::{BaseChain, Batch, ChainKind, Elements, Hook, TableFlags, Verb};
pub use error::{CommitError, Refusal};
pub use parse::{Attribute, Attributes};
pub use rule::{Field, Rule, Statement};
pub use set::{SetFlags, SetSpec, Type};
pub use socket::{ChainInfo, RuleInfo, Seen, SeenData, SetInfo, Socket, TableInfo};
pub use value::{Bytes, Data, Element, Family, Parts};
