//! Nodes, pods and clients as network namespaces on one box.
//!
//! ```text
//!   the world                                             every box is a network namespace
//!
//!            client                    client
//!        203.0.113.1               203.0.113.2            outside the cluster
//!        2001:db8::1               2001:db8::2
//!             │                         │
//!      ┌──────┴─────────────────────────┴──────┐
//!      │ fabric       192.168.0.254            │          knows the way to every pod
//!      │  br0         fd00:192:168::fe         │          eats what it does not know
//!      └──────┬─────────────────────────┬──────┘
//!             │ eth0                    │ eth0
//!      ┌──────┴─────────┐        ┌──────┴─────────┐
//!      │ node 1, zone a │        │ node 2, zone b │       192.168.0.N   10.244.N.0/24
//!      │                │        │                │       fd00:192:168::N   fd00:10:244:N::/64
//!      └─┬────────────┬─┘        └─┬────────────┬─┘
//!        │ veth-x     │ veth-y     │ veth-z     │
//!       pod          pod          pod          pod        10.244.N.2, .3, …
//!       eth0         eth0         eth0         eth0       fd00:10:244:N::2, ::3, …
//! ```
//!
//! * [`Namespace`]: one network stack. It has no name the system knows: it is a file descriptor,
//!   and it is gone with the last copy of it, even if the process is killed.
//! * [`World`]: the picture above, dual stack. The real kernel forwards every packet.
//! * [`traffic`]: servers that say who they are and whom they see, and probes that ask them.
//!
//! ```no_run
//! use std::time::Duration;
//! use zonewise_netns::traffic::{Answer, Server, ask_tcp};
//! use zonewise_netns::World;
//!
//! let mut world = World::new()?;
//! let one = world.node("one", "a")?;
//! let two = world.node("two", "b")?;
//! let web = world.pod(&one, "web")?;
//! let cat = world.pod(&two, "cat")?;
//!
//! let _server = Server::tcp(&web.namespace, "web", (web.v4, 80).into())?;
//! let answer = ask_tcp(&cat.namespace, (web.v4, 80).into(), Duration::from_secs(1));
//! assert_eq!(answer, Answer::From { name: "web".into(), source: cat.v4.into() });
//! # Ok::<(), zonewise_netns::Error>(())
//! ```
//!
//! Everything goes over netlink and `/proc/sys`, inside the namespaces only: the host's links,
//! addresses, routes and settings stay as they are. It takes root: `CAP_SYS_ADMIN` to make a
//! namespace and to enter it, `CAP_NET_ADMIN` to furnish it.

mod delay;
mod error;
mod links;
mod namespace;
mod netlink;
mod routes;
pub mod traffic;
pub mod world;

pub use error::Error;
pub use links::{Address, Link, bridge, enslave, release, veth};
pub use namespace::Namespace;
pub use routes::{Cidr, Route};
pub use world::{Client, Node, Pod, World};
