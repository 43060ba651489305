//! The command-line arguments. Values are checked here, so that wrong usage ends with exit code 2 and
//! a message that says what is allowed.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// An error in the arguments. The exit code is 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Zone-aware routing for Kubernetes: keeps traffic to Services in the zone where it starts, without
/// overloading endpoints, and explains every decision.
#[derive(Parser)]
#[command(name = "zonewise", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Score heuristics over a data set
    ///
    /// Every heuristic is run on every input (nodes and endpoints per zone). The score is the
    /// published one of KEP-2004: 45 % in-zone traffic, 40 % overload, 15 % number of slices.
    /// Beside it stands the limit: the best any router could score on the same inputs.
    #[cfg(feature = "simulator")]
    Simulate(Box<crate::simulate::args::Simulate>),
    /// Run the EndpointSlice controller
    ///
    /// Replaces the EndpointSlice controller of kube-controller-manager. It writes the same slices,
    /// with stable hints, subsets and zone shares, and explains each decision in the Service's
    /// conditions. Stop the built-in controller first
    /// (kube-controller-manager --controllers=*,-endpointslice-controller). Where that is not possible,
    /// --mode guard puts hints into the slices of the built-in controller.
    Controller(Box<crate::controller::Flags>),
    /// Take guard mode out of a cluster
    ///
    /// `zonewise controller --mode guard` runs it. This removes what it has written.
    #[command(subcommand)]
    Guard(crate::guard::Guard),
    /// Run the proxy of a node
    ///
    /// Replaces kube-proxy, with the same flags and configuration file. It loads nftables rules for
    /// every Service into the kernel and keeps traffic in its zone where EndpointSlices ask for it.
    /// The rules stay in the kernel when it stops.
    Proxy(Box<crate::proxy::ProxyArgs>),
    /// Show what the controller would write, without writing
    ///
    /// Reads Nodes, Pods, Services and EndpointSlices from manifests, from the output of `kubectl get
    /// -o yaml|json` or from a cluster, and prints the slices that the controller would create, update
    /// and delete. It runs the functions of the controller.
    Plan(Box<crate::observe::plan::Plan>),
    /// Show which endpoints a node uses for each Service port, and why
    ///
    /// Runs the functions of the proxy on files or a cluster, for an existing node or for an imaginary
    /// node in a zone.
    Route(Box<crate::observe::route::Route>),
    /// Explain why a Service has zone routing or not, and what would change that
    ///
    /// For one Service: what it asks for, the capacity of each zone, the arithmetic, the outcome, what
    /// each kind of proxy does, and the smallest changes that turn zone routing on, or which losses
    /// turn it off. Without a Service: a table of all Services, and what crossing zones costs.
    Explain(Box<crate::observe::explain::Explain>),
    /// Show what flows now: Services by what crosses zones, zone by zone, and what could be saved
    ///
    /// Reads what the proxies of zonewise have counted by Service, by way of the API server, or a
    /// Prometheus that scrapes them.
    Top(Box<crate::observe::top::TopArgs>),
    /// Serve a page that shows where traffic goes, why, and what if
    ///
    /// For a cluster, as it changes, or for files. Every figure on it is one of explain, route and plan. It is
    /// served on this machine alone, unless another address is given: then people need a token of the cluster, and see
    /// the namespaces whose Services they may list.
    Dashboard(Box<crate::dashboard::Dashboard>),
    /// Find settings in manifests that will have no effect
    ///
    /// Misspelt keys and values, keys that another key overrides, keys set as labels or on other kinds
    /// than Services. Reads manifests before they are applied, or the Services of a cluster.
    Lint(Box<crate::observe::lint::Lint>),
    /// Check whether a cluster is as zonewise needs it, before and after an installation
    ///
    /// Nodes' zones, CPU and kernels, the proxy of each node, the network plugin, who writes
    /// EndpointSlices, zonewise's own programs, clocks, and your rights. What is wrong is said with its
    /// cause, and how to fix it.
    Check(crate::observe::check::Check),
    /// Empty a zone: move new connections to other zones, step by step
    ///
    /// Says first what that would mean, and changes nothing without --yes. Checks that the other zones
    /// can take the traffic, moves it in steps, goes back by itself if an endpoint would get too much
    /// or other zones fail, and ends at a deadline. Connections that are open go on.
    Evacuate(Box<crate::observe::evacuate::Evacuate>),
    /// Give a zone its traffic back, step by step, after `evacuate`
    Restore(crate::observe::evacuate::Restore),
    /// Explain reason codes: what happened, and what to do
    ///
    /// Conditions, events, metrics and all screens carry these codes.
    Reasons(crate::observe::reasons::Reasons),
    /// Run a multi-zone cluster on this machine, with real traffic, and watch it
    ///
    /// Network namespaces as nodes and Pods, an embedded API server (or yours), the controller, a
    /// proxy on every node, clients in every zone. Plays a story: no topology, hints, balance, a
    /// zone that loses its endpoints, a zone that goes away and comes back, a rolling update. Needs
    /// root; nothing is left behind.
    #[cfg(feature = "lab")]
    Lab(Box<crate::lab::Lab>),
    /// Serve an embedded, in-memory Kubernetes API
    ///
    /// For labs, demonstrations and tests: Nodes, Pods, Deployments, ReplicaSets, Services, ServiceCIDRs,
    /// EndpointSlices, Leases, Events, ConfigMaps and Namespaces, with watches, patches, server-side apply and tables, so that kubectl,
    /// the controller and the proxy work with it; and with trouble on purpose.
    #[cfg(feature = "lab")]
    Apiserver(Box<crate::apiserver::Flags>),
    /// Print a completion script for a shell
    ///
    /// For example: zonewise completions bash > /etc/bash_completion.d/zonewise. Names of Services are completed too.
    /// For `kubectl zonewise`, put a link to this program into the PATH: kubectl_complete-zonewise.
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write man pages into a folder
    ///
    /// For example: zonewise man /usr/local/share/man/man1
    Man {
        /// The folder; it must exist
        folder: PathBuf,
    },
}
