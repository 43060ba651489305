//! The kinds that are served.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// `EndpointSlice`.
    pub kind: &'static str,
    /// `endpointslices`, as in paths.
    pub plural: &'static str,
    /// `endpointslice`.
    pub singular: &'static str,
    /// `svc` for `services`.
    pub short: &'static [&'static str],
    /// In a namespace, or for the whole cluster.
    pub namespaced: bool,
    /// Has a `status` of its own, written by `/status` alone.
    pub has_status: bool,
    /// Whether the spec's changes are counted in `metadata.generation`.
    pub has_generation: bool,
    /// Objects of this kind are stored as those of another: events have two doors.
    pub stored_as: Option<(&'static str, &'static str)>,
}

const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short: &[],
    namespaced: true,
    has_status: false,
    has_generation: false,
    stored_as: None,
};

/// All of them, in the order of discovery.
pub static KINDS: [Kind; 10] = [
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short: &["cm"],
        ..PLAIN
    },
    Kind { kind: "Event", plural: "events", singular: "event", short: &["ev"], ..PLAIN },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short: &["ns"],
        namespaced: false,
        has_status: true,
        ..PLAIN
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short: &["no"],
        namespaced: false,
        has_status: true,
        ..PLAIN
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short: &["po"],
        has_status: true,
        has_generation: true,
        ..PLAIN
    },
    Kind {
        kind: "Service",
        plural: "services",
        singular: "service",
        short: &["svc"],
        has_status: true,
        ..PLAIN
    },
    Kind {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short: &["ev"],
        stored_as: Some(("", "events")),
        ..PLAIN
    },
    Kind {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        namespaced: false,
        has_status: true,
        ..PLAIN
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        ..PLAIN
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        has_generation: true,
        ..PLAIN
    },
];

impl Kind {
    /// The kind behind a path.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    /// `apps/v1`, or `v1` for the core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.into();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// `endpointslices.discovery.k8s.io`, as in messages.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            return self.plural.into();
        }
        format!("{}.{}", self.plural, self.group)
    }
}
