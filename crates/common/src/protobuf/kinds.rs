//! The fields of Kubernetes objects that any of our readers uses: numbers, JSON names and types.
//!
//! They are those of the `generated.proto` files of Kubernetes 1.36, and numbers never change their
//! meaning:
//! <https://github.com/kubernetes/api/blob/v0.36.4/core/v1/generated.proto>,
//! <https://github.com/kubernetes/api/blob/v0.36.4/discovery/v1/generated.proto>,
//! <https://github.com/kubernetes/api/blob/v0.36.4/coordination/v1/generated.proto>,
//! <https://github.com/kubernetes/api/blob/v0.36.4/networking/v1/generated.proto>,
//! <https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/apis/meta/v1/generated.proto>.
//! Whether a field is a pointer is in the `types.go` beside them. A table has at most 64 fields, in the
//! order of their numbers.

use super::decode::FieldType::{
    Bool, IntOrString, Integer, Message, MicroTime, Quantity, Text, Time,
};
use super::decode::Presence::{Explicit, List, Map, Plain};
use super::decode::{Field, FieldType, Kind, Presence};

const fn field(
    number: u32,
    name: &'static str,
    presence: Presence,
    field_type: FieldType,
) -> Field {
    Field { number, name, presence, field_type }
}

/// Pods.
pub const POD: Kind = Kind {
    name: "Pod",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "spec", Plain, Message(POD_SPEC)),
        field(3, "status", Plain, Message(POD_STATUS)),
    ],
};

/// Nodes.
pub const NODE: Kind = Kind {
    name: "Node",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "spec", Plain, Message(NODE_SPEC)),
        field(3, "status", Plain, Message(NODE_STATUS)),
    ],
};

/// Services.
pub const SERVICE: Kind = Kind {
    name: "Service",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "spec", Plain, Message(SERVICE_SPEC)),
        field(3, "status", Plain, Message(SERVICE_STATUS)),
    ],
};

/// EndpointSlices.
pub const ENDPOINT_SLICE: Kind = Kind {
    name: "EndpointSlice",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "endpoints", List, Message(ENDPOINT)),
        field(3, "ports", List, Message(ENDPOINT_PORT)),
        field(4, "addressType", Explicit, Text),
    ],
};

/// Leases.
pub const LEASE: Kind = Kind {
    name: "Lease",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "spec", Plain, Message(LEASE_SPEC)),
    ],
};

/// ServiceCIDRs.
pub const SERVICE_CIDR: Kind = Kind {
    name: "ServiceCIDR",
    fields: &[
        field(1, "metadata", Plain, Message(METADATA)),
        field(2, "spec", Plain, Message(&[field(1, "cidrs", List, Text)])),
    ],
};

/// Statuses, which say why a request or a watch has failed.
pub const STATUS: Kind = Kind {
    name: "Status",
    fields: &[
        field(2, "status", Plain, Text),
        field(3, "message", Plain, Text),
        field(4, "reason", Plain, Text),
        field(5, "details", Explicit, Message(STATUS_DETAILS)),
        field(6, "code", Plain, Integer),
    ],
};

/// The metadata of every object, which is always its field 1.
pub const METADATA: &[Field] = &[
    field(1, "name", Plain, Text),
    field(2, "generateName", Plain, Text),
    field(3, "namespace", Plain, Text),
    field(5, "uid", Plain, Text),
    field(6, "resourceVersion", Plain, Text),
    field(7, "generation", Plain, Integer),
    field(8, "creationTimestamp", Plain, Time),
    field(9, "deletionTimestamp", Explicit, Time),
    field(11, "labels", Map, Text),
    field(12, "annotations", Map, Text),
    field(13, "ownerReferences", List, Message(OWNER)),
    field(14, "finalizers", List, Text),
];

const OWNER: &[Field] = &[
    field(1, "kind", Plain, Text),
    field(3, "name", Plain, Text),
    field(4, "uid", Plain, Text),
    field(5, "apiVersion", Plain, Text),
    field(6, "controller", Explicit, Bool),
    field(7, "blockOwnerDeletion", Explicit, Bool),
];

const STATUS_DETAILS: &[Field] =
    &[field(4, "causes", List, Message(&[field(1, "reason", Plain, Text)]))];

const POD_SPEC: &[Field] = &[
    field(2, "containers", List, Message(CONTAINER)),
    field(10, "nodeName", Plain, Text),
    field(16, "hostname", Plain, Text),
    field(17, "subdomain", Plain, Text),
    field(20, "initContainers", List, Message(CONTAINER)),
    field(40, "resources", Explicit, Message(RESOURCES)),
];

const CONTAINER: &[Field] = &[
    field(6, "ports", List, Message(CONTAINER_PORT)),
    field(8, "resources", Plain, Message(RESOURCES)),
    field(24, "restartPolicy", Explicit, Text),
];

const RESOURCES: &[Field] = &[field(2, "requests", Map, Quantity)];

const CONTAINER_PORT: &[Field] = &[
    field(1, "name", Plain, Text),
    field(3, "containerPort", Plain, Integer),
    field(4, "protocol", Plain, Text),
];

const POD_STATUS: &[Field] = &[
    field(1, "phase", Plain, Text),
    field(2, "conditions", List, Message(CONDITION)),
    field(6, "podIP", Plain, Text),
    field(12, "podIPs", List, Message(&[field(1, "ip", Plain, Text)])),
];

/// The conditions of Pods, of Nodes and of `metav1` have these fields under the same numbers.
const CONDITION: &[Field] = &[
    field(1, "type", Plain, Text),
    field(2, "status", Plain, Text),
    field(4, "lastTransitionTime", Plain, Time),
    field(5, "reason", Plain, Text),
    field(6, "message", Plain, Text),
];

const NODE_SPEC: &[Field] = &[
    field(1, "podCIDR", Plain, Text),
    field(5, "taints", List, Message(&[field(1, "key", Plain, Text)])),
    field(7, "podCIDRs", List, Text),
];

const NODE_STATUS: &[Field] = &[
    field(2, "allocatable", Map, Quantity),
    field(4, "conditions", List, Message(CONDITION)),
    field(5, "addresses", List, Message(NODE_ADDRESS)),
];

const NODE_ADDRESS: &[Field] = &[field(1, "type", Plain, Text), field(2, "address", Plain, Text)];

const SERVICE_SPEC: &[Field] = &[
    field(1, "ports", List, Message(SERVICE_PORT)),
    field(2, "selector", Map, Text),
    field(3, "clusterIP", Plain, Text),
    field(4, "type", Plain, Text),
    field(5, "externalIPs", List, Text),
    field(7, "sessionAffinity", Plain, Text),
    field(9, "loadBalancerSourceRanges", List, Text),
    field(11, "externalTrafficPolicy", Plain, Text),
    field(12, "healthCheckNodePort", Plain, Integer),
    field(13, "publishNotReadyAddresses", Plain, Bool),
    field(14, "sessionAffinityConfig", Explicit, Message(AFFINITY_CONFIG)),
    field(18, "clusterIPs", List, Text),
    field(19, "ipFamilies", List, Text),
    field(22, "internalTrafficPolicy", Explicit, Text),
    field(23, "trafficDistribution", Explicit, Text),
];

const AFFINITY_CONFIG: &[Field] =
    &[field(1, "clientIP", Explicit, Message(&[field(1, "timeoutSeconds", Explicit, Integer)]))];

const SERVICE_PORT: &[Field] = &[
    field(1, "name", Plain, Text),
    field(2, "protocol", Plain, Text),
    field(3, "port", Explicit, Integer),
    field(4, "targetPort", Explicit, IntOrString),
    field(5, "nodePort", Plain, Integer),
    field(6, "appProtocol", Explicit, Text),
];

const SERVICE_STATUS: &[Field] = &[
    field(1, "loadBalancer", Plain, Message(&[field(1, "ingress", List, Message(INGRESS))])),
    field(2, "conditions", List, Message(CONDITION)),
];

const INGRESS: &[Field] = &[field(1, "ip", Plain, Text), field(3, "ipMode", Explicit, Text)];

const ENDPOINT: &[Field] = &[
    field(1, "addresses", List, Text),
    field(2, "conditions", Plain, Message(ENDPOINT_CONDITIONS)),
    field(3, "hostname", Explicit, Text),
    field(4, "targetRef", Explicit, Message(REFERENCE)),
    field(6, "nodeName", Explicit, Text),
    field(7, "zone", Explicit, Text),
    field(8, "hints", Explicit, Message(HINTS)),
];

const ENDPOINT_CONDITIONS: &[Field] = &[
    field(1, "ready", Explicit, Bool),
    field(2, "serving", Explicit, Bool),
    field(3, "terminating", Explicit, Bool),
];

const REFERENCE: &[Field] = &[
    field(1, "kind", Plain, Text),
    field(2, "namespace", Plain, Text),
    field(3, "name", Plain, Text),
    field(4, "uid", Plain, Text),
    field(5, "apiVersion", Plain, Text),
    field(7, "fieldPath", Plain, Text),
];

const HINTS: &[Field] =
    &[field(1, "forZones", List, Message(NAMED)), field(2, "forNodes", List, Message(NAMED))];

const NAMED: &[Field] = &[field(1, "name", Explicit, Text)];

const ENDPOINT_PORT: &[Field] = &[
    field(1, "name", Explicit, Text),
    field(2, "protocol", Explicit, Text),
    field(3, "port", Explicit, Integer),
    field(4, "appProtocol", Explicit, Text),
];

const LEASE_SPEC: &[Field] = &[
    field(1, "holderIdentity", Explicit, Text),
    field(2, "leaseDurationSeconds", Explicit, Integer),
    field(4, "renewTime", Explicit, MicroTime),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(fields: &[Field]) {
        let numbers: Vec<u32> = fields.iter().map(|field| field.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.len() <= 64, "{numbers:?}");
        let names: BTreeSet<&str> = fields.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), fields.len(), "{names:?}");
        for field in fields {
            if let Message(fields) = field.field_type {
                check(fields);
            }
        }
    }

    #[test]
    fn tables_are_in_order_and_short_enough_for_one_bit_per_field() {
        for kind in [POD, NODE, SERVICE, ENDPOINT_SLICE, LEASE, SERVICE_CIDR, STATUS] {
            check(kind.fields);
        }
    }
}
