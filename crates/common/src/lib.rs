//! What several crates must agree on, written once.
//!
//! ```text
//!  keys          labels, annotations and conditions of Kubernetes objects
//!  api_group     API groups and versions of Kubernetes and of our own resources
//!  media_type    the media types of requests to the API server
//!  name          names, namespace and name together, unique ids
//!  event         what is reported about a Service, as an event
//!  proxy_report  what each proxy reports to the controller, as a Lease
//!  proxy_pages   ports, paths and metrics of proxies that other programs read
//!  json_list     lists of objects, cut into items while they are read
//!  protobuf      objects in protobuf: lists and watches cut, messages read as serde reads JSON
//!  encoded       an object in JSON or protobuf, decoded by the same structs
//!  lenient       reading Kubernetes JSON: absent, null and empty are the same
//!  ip            IP addresses, with the leading zeros that old clusters hold
//!  cidr          blocks of IP addresses
//!  service_cidr  the blocks that ClusterIPs come from
//!  clock         the wall clock, or that of a simulation
//!  time          timestamps in Kubernetes objects
//!  document      the head of documents that programs read
//!  duration      durations in configuration files and on command lines
//!  fnv           hashes that never change
//!  similar       what a misspelt word was probably meant to be
//!  xml           text inside XML and HTML
//! ```
//!
//! This crate uses none of the others, and every other crate may use it. Something belongs here when
//! two crates would otherwise each hold a copy that has to stay equal.

pub mod api_group;
pub mod cidr;
pub mod clock;
pub mod document;
pub mod duration;
pub mod encoded;
pub mod event;
pub mod fnv;
pub mod ip;
pub mod json_list;
pub mod keys;
pub mod lenient;
pub mod media_type;
pub mod name;
pub mod protobuf;
pub mod proxy_pages;
pub mod proxy_report;
pub mod service_cidr;
pub mod similar;
#[doc(hidden)]
pub mod testing;
pub mod time;
pub mod xml;
