//! A real kube-apiserver with etcd on loopback, for tests and benchmarks.
//!
//! ```text
//!   test ──► Cluster ──► kube-apiserver ──► etcd          programs    where they come from
//!    │          │              ▲                          process     one child: signals, CPU, memory
//!    │          └─ Objects ────┤  create, list, watch     keys        CA, certificate, tokens
//!    │                         │                          ports       free ones
//!    └─► program under test ─ Gate   cut, heal, reset     metrics     requests counted by the server
//!                                                         objects     Nodes, Pods, Services, slices to edit
//!                                                         eventually  waiting for a state
//!                                                         pool        clusters that tests use one after the other
//!                                                         traffic     where traffic goes with stored slices
//!                                                         browser     Chromium, for the page of the dashboard
//!                                                         page        parts of pages that the code writes
//! ```
//!
//! All files are in one temporary directory, which is removed after the test; all processes end with the
//! test, also when it is killed (see [`process`]). `ZONEWISE_TESTBED_KEEP=1` keeps the directory with its data, logs and
//! kubeconfigs.
//!
//! No controller and no kubelet runs. Pods stay as written, Nodes stay ready, and a Pod that was asked to
//! terminate stays terminating until it is deleted for good.

mod access;
mod browser;
mod cluster;
mod content_type;
mod eventually;
mod gate;
mod keys;
mod manifests;
mod metrics;
pub mod objects;
pub mod page;
mod pool;
mod ports;
pub mod process;
mod programs;
mod prometheus;
mod requests;
pub mod table;
pub mod traffic;

pub use access::User;
pub use browser::{Keystroke, Tab};
pub use cluster::{Cluster, Options};
pub use content_type::{content_type, content_type_flag};
pub use eventually::{eventually, eventually_equals};
pub use gate::Gate;
pub use manifests::manifests;
pub use pool::{Lent, Pool};
pub use process::Process;
pub use programs::{installed, minor_version, program};
pub use prometheus::{Job, Prometheus, PrometheusOptions};
pub use requests::{Change, Objects, Watch};
