//! The kinds that are served.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The API group; empty for the core.
    pub(crate) group: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
    /// `EndpointSlice`.
    pub(crate) kind: &'static str,
    /// `endpointslices`, as in paths.
    pub(crate) plural: &'static str,
    /// `endpointslice`.
    pub(crate) singular: &'static str,
    /// `svc` for `services`.
    pub(crate) short: &'static [&'static str],
    /// In a namespace, or for the whole cluster.
    pub(crate) namespaced: bool,
    /// Has a `status` of its own, written by `/status` alone.
    pub(crate) has_status: bool,
    /// Whether the spec's changes are counted in `metadata.generation`.
    pub(crate) has_generation: bool,
    /// Objects of this kind are stored as those of another: events have two doors.
    pub(crate) stored_as: Option<(&'static str, &'static str)>,
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
pub(crate) static KINDS: [Kind; 10] = [
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
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    /// `apps/v1`, or `v1` for the core.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.into();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// `endpointslices.discovery.k8s.io`, as in messages.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            return self.plural.into();
        }
        format!("{}.{}", self.plural, self.group)
    }
}
