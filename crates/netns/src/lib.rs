//! Nodes, pods and clients as network namespaces on one machine.
//!
//! ```text
//!   a ClusterNetwork                                      every box is a network namespace
//!
//!            client                    client
//!        203.0.113.1               203.0.113.2            outside the cluster
//!        2001:db8::1               2001:db8::2
//!             │                         │
//!      ┌──────┴─────────────────────────┴──────┐
//!      │ fabric       192.168.0.254            │          has routes to every pod
//!      │  br0         fd00:192:168::fe         │          drops what it has no route for
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
//! * [`Namespace`]: one network stack. It is anonymous, held by a file descriptor, and the kernel
//!   removes it with the last copy, even if the process is killed.
//! * [`ClusterNetwork`]: the picture above, dual stack. The real kernel forwards every packet.
//! * [`traffic`]: servers that answer with their name and the source address they see, and probes
//!   that call them.
//!
//! ```no_run
//! use std::time::Duration;
//! use zonewise_netns::ClusterNetwork;
//! use zonewise_netns::traffic::{ProbeResult, Server, probe_tcp};
//!
//! let mut network = ClusterNetwork::new()?;
//! let one = network.add_node("one", "a")?;
//! let two = network.add_node("two", "b")?;
//! let web = network.add_pod(&one, "web")?;
//! let cat = network.add_pod(&two, "cat")?;
//!
//! let _server = Server::tcp(&web.namespace, "web", (web.v4, 80).into())?;
//! let answer = probe_tcp(&cat.namespace, (web.v4, 80).into(), Duration::from_secs(1));
//! assert_eq!(answer, ProbeResult::Answered { name: "web".into(), source: cat.v4.into() });
//! # Ok::<(), zonewise_netns::Error>(())
//! ```
//!
//! All changes are made over netlink and `/proc/sys` inside the namespaces: the host's links,
//! addresses, routes and sysctls stay as they are. This needs root: `CAP_SYS_ADMIN` to create and
//! enter a namespace, `CAP_NET_ADMIN` to configure it. [`enter_user_namespace`] gets both for a process without root.

mod delay;
mod error;
mod exec;
mod links;
mod namespace;
mod netlink;
pub mod network;
mod rootless;
mod routes;
pub mod traffic;

pub use error::Error;
pub use exec::exec;
pub use links::{Address, Link, add_bridge_port, bridge, veth};
pub use namespace::Namespace;
pub use network::{ClusterNetwork, NetnsClient, NetnsNode, NetnsPod};
pub use rootless::{RootlessError, enter_user_namespace};
pub use routes::Route;
