//! Checks that this machine can run a lab, before anything is created.

use std::time::Duration;

use zonewise_netns::{Namespace, bridge, veth};
use zonewise_proxy::testing::{FAMILIES, Kernel, Network, NodeSettings, Options};

/// A feature that is missing, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The feature.
    pub what: &'static str,
    /// The kernel's error.
    pub why: String,
    /// How to get it.
    pub remedy: &'static str,
    /// The kernel has it, and this process may not use it.
    pub forbidden: bool,
}

/// What a lab does to the machine, shown to users who are asked to run it as root.
pub const TOUCHES: &str = "\
It makes network namespaces of its own and joins them with virtual cables; in them it writes nftables rules and makes
connections. It listens on a port of 127.0.0.1 and writes one small directory below /run. The network of this machine,
its rules and its settings stay as they are. Nothing is left when the lab ends; of one that was killed, the directory
(`zonewise lab clean` removes it).";

/// Tries each feature that a lab needs, and returns those that are missing.
pub fn missing(delay: bool) -> Vec<Missing> {
    let scratch = match Namespace::new("preflight") {
        Ok(namespace) => namespace,
        Err(error) => {
            return vec![Missing {
                what: "network namespaces",
                forbidden: matches!(error, zonewise_netns::Error::NeedsRoot { .. }),
                why: error.to_string(),
                remedy: "a kernel with CONFIG_NET_NS, and CAP_SYS_ADMIN; in a container, run it with --privileged",
            }];
        }
    };
    let other = Namespace::new("preflight-other");
    let cable = other.and_then(|other| veth(&scratch, "try0", &other, "try1"));
    let mut missing = Vec::new();
    let mut note = |what, result: Result<(), String>, remedy| {
        if let Err(why) = result {
            missing.push(Missing { what, why, remedy, forbidden: false });
        }
    };
    note("virtual cables (veth)", text(cable), "modprobe veth, or a kernel with CONFIG_VETH");
    note(
        "bridges",
        text(bridge(&scratch, "try-bridge")),
        "modprobe bridge, or a kernel with CONFIG_BRIDGE",
    );
    note(
        "nftables with NAT and connection tracking",
        scratch.enter(rules),
        "modprobe nf_tables nft_chain_nat nft_numgen nf_conntrack, or a kernel with CONFIG_NF_TABLES and CONFIG_NFT_NAT",
    );
    if delay {
        note(
            "delays (netem)",
            text(scratch.delay("lo", Duration::from_millis(1))),
            "modprobe sch_netem, or a kernel with CONFIG_NET_SCH_NETEM; or leave --delay out",
        );
    }
    missing
}

fn text(result: Result<(), zonewise_netns::Error>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

/// Writes the proxy's tables into the namespace of this thread.
fn rules() -> Result<(), String> {
    let names = Box::new(|_| String::new());
    let kernel = Kernel::open(
        &Network::default(),
        Options::default(),
        FAMILIES.to_vec(),
        NodeSettings::default(),
        names,
    );
    let started = kernel.and_then(|mut kernel| kernel.start(Vec::new(), Vec::new()));
    started.map(drop).map_err(|error| error.to_string())
}
