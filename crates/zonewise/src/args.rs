//! The command line as typed. What users write is checked here, so that wrong usage ends with exit
//! code 2 and a message that says what would have been right.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Arguments that do not fit together: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Keeps Kubernetes Service traffic in the zone it started in, without overloading any endpoint,
/// and says why.
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
    /// Keep the EndpointSlices of every Service right
    ///
    /// Replaces the EndpointSlice controller of kube-controller-manager: the same slices, with
    /// hints, subsets and zone shares that do not flap, come back by themselves and say why they
    /// are as they are. Stop the built-in one first (--controllers=*,-endpointslice-controller).
    Controller(Box<crate::controller::Flags>),
    /// Program the kernel of this node with the rules for every Service
    ///
    /// Replaces kube-proxy: the same flags and configuration file, the same fate for every packet,
    /// rules that are kernel data, and traffic that stays in its zone where the EndpointSlices ask
    /// for that. Rules stay in place when it stops.
    Proxy(Box<crate::proxy::ProxyArgs>),
    /// Say what the controller would write, without writing
    ///
    /// Nodes, Pods, Services and EndpointSlices in, as manifests, as `kubectl get -o yaml|json`
    /// dumps or from a live cluster; the slices that the controller would create, update and
    /// delete out. The same functions as the controller's.
    Plan(Box<crate::observe::plan::Plan>),
    /// Say which endpoints a node uses for each Service port, and why
    ///
    /// The same functions as the proxy's, on files or a live cluster, for a node that exists or
    /// one that might.
    Route(Box<crate::observe::route::Route>),
    /// Say why a Service has (no) zone routing, and what would change that
    ///
    /// For one Service: what was asked, capacity per zone, the arithmetic, the outcome, what each
    /// kind of proxy does with it, the smallest changes that turn it on, or how much loss it
    /// survives. Without a Service: a table of all, with what crossing zones costs.
    Explain(Box<crate::observe::explain::Explain>),
    /// Run a multi-zone cluster on this box, with real traffic, and watch it
    ///
    /// Network namespaces as nodes and Pods, an embedded API server (or yours), the controller, a
    /// proxy on every node, clients in every zone. Plays a story: no topology, hints, balance, a
    /// zone that loses its endpoints, a zone that goes away and comes back, a rolling update. Needs
    /// root; nothing is left behind.
    #[cfg(feature = "lab")]
    Lab(Box<crate::lab::Lab>),
    /// Serve an embedded, in-memory Kubernetes API
    ///
    /// For labs, demonstrations and tests: Nodes, Pods, Services, EndpointSlices, Leases, Events,
    /// ConfigMaps and Namespaces, with watches, patches, server-side apply and tables, so that kubectl,
    /// the controller and the proxy work with it; and with trouble on purpose.
    #[cfg(feature = "lab")]
    Apiserver(Box<crate::apiserver::Flags>),
    /// Print a completion script for a shell
    ///
    /// For example: zonewise completions bash > /etc/bash_completion.d/zonewise
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
