//! The table of served kinds. Everything that lists or looks up kinds reads it.

use zonewise_common::api_group::{COORDINATION, DISCOVERY, NETWORKING};

/// An API group and the plural name of a resource in it, such as `("discovery.k8s.io",
/// "endpointslices")`.
pub(crate) type GroupResource = (&'static str, &'static str);

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The API group; empty for the core group.
    pub(crate) group: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
    /// Such as `EndpointSlice`.
    pub(crate) kind: &'static str,
    /// Such as `endpointslices`, as in paths.
    pub(crate) plural: &'static str,
    /// Such as `endpointslice`.
    pub(crate) singular: &'static str,
    /// Short names for kubectl, such as `svc`.
    pub(crate) short: &'static [&'static str],
    /// Whether objects belong to a namespace.
    pub(crate) namespaced: bool,
    /// Whether there is a `/status` subresource, which alone writes the object's status.
    pub(crate) has_status: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) has_generation: bool,
    /// Whether there is a `/scale` subresource, which reads and writes the number of replicas.
    pub(crate) has_scale: bool,
    /// The resource that objects of this kind are stored as, if it is another one:
    /// `events.k8s.io/v1` and `v1` serve the same events.
    pub(crate) stored_as: Option<GroupResource>,
}

/// All served kinds, in the order of discovery.
pub(crate) static KINDS: [Kind; 12] = [
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short: &["cm"],
        ..Kind::DEFAULTS
    },
    Kind { kind: "Event", plural: "events", singular: "event", short: &["ev"], ..Kind::DEFAULTS },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short: &["ns"],
        namespaced: false,
        has_status: true,
        ..Kind::DEFAULTS
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short: &["no"],
        namespaced: false,
        has_status: true,
        ..Kind::DEFAULTS
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short: &["po"],
        has_status: true,
        has_generation: true,
        ..Kind::DEFAULTS
    },
    Kind {
        kind: "Service",
        plural: "services",
        singular: "service",
        short: &["svc"],
        has_status: true,
        ..Kind::DEFAULTS
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short: &["deploy"],
        has_status: true,
        has_generation: true,
        has_scale: true,
        ..Kind::DEFAULTS
    },
    Kind {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short: &["rs"],
        has_status: true,
        has_generation: true,
        has_scale: true,
        ..Kind::DEFAULTS
    },
    Kind {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short: &["ev"],
        stored_as: Some(("", "events")),
        ..Kind::DEFAULTS
    },
    Kind {
        group: NETWORKING,
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        namespaced: false,
        has_status: true,
        ..Kind::DEFAULTS
    },
    Kind {
        group: COORDINATION,
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        ..Kind::DEFAULTS
    },
    Kind {
        group: DISCOVERY,
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        has_generation: true,
        ..Kind::DEFAULTS
    },
];

impl Kind {
    /// What most kinds have in common.
    pub(crate) const DEFAULTS: Self = Self {
        group: "",
        version: "v1",
        kind: "",
        plural: "",
        singular: "",
        short: &[],
        namespaced: true,
        has_status: false,
        has_generation: false,
        has_scale: false,
        stored_as: None,
    };

    /// The kind that a path names.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    /// The resource in which objects of this kind are stored.
    pub(crate) fn storage_resource(&self) -> GroupResource {
        self.stored_as.unwrap_or((self.group, self.plural))
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
