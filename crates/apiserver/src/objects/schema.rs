//! How lists and maps of the served kinds are merged: the table that strategic merge patches and
//! server-side apply share. It follows the markers `patchStrategy`, `listType` and `mapType` in the
//! types of k8s.io/api.
//!
//! Paths are written `spec.containers[].ports`. Lists that are not in the table are replaced as a
//! whole; maps that are not in it are merged.

use crate::objects::kind::Kind;

/// How a list is merged by a strategic patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// The patch replaces the list.
    Replace,
    /// Items with the same value of this key are merged.
    MergeBy(&'static str),
    /// Values are added.
    MergeSet,
}

/// How a list is merged by server-side apply, and what in it has managers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One field.
    Atomic,
    /// Each item, identified by these keys, is a field.
    Map(&'static [&'static str]),
    /// Each value is a field.
    Set,
}

type Rule = (&'static str, &'static str, PatchStrategy, ListType);

const fn keyed(kind: &'static str, path: &'static str, keys: &'static [&'static str]) -> Rule {
    (kind, path, PatchStrategy::MergeBy(keys[0]), ListType::Map(keys))
}

/// Kind (empty: all kinds), path, and the two rules. A strategic merge patch identifies items by
/// the first key alone.
const LISTS: [Rule; 27] = [
    ("", "metadata.finalizers", PatchStrategy::MergeSet, ListType::Set),
    keyed("", "metadata.ownerReferences", &["uid"]),
    keyed("", "status.conditions", &["type"]),
    keyed("Service", "spec.ports", &["port", "protocol"]),
    ("Node", "spec.podCIDRs", PatchStrategy::MergeSet, ListType::Set),
    keyed("Node", "status.addresses", &["type"]),
    keyed("Pod", "spec.containers", &["name"]),
    keyed("Pod", "spec.initContainers", &["name"]),
    keyed("Pod", "spec.ephemeralContainers", &["name"]),
    keyed("Pod", "spec.containers[].ports", &["containerPort", "protocol"]),
    keyed("Pod", "spec.initContainers[].ports", &["containerPort", "protocol"]),
    keyed("Pod", "spec.containers[].env", &["name"]),
    keyed("Pod", "spec.initContainers[].env", &["name"]),
    keyed("Pod", "spec.containers[].volumeMounts", &["mountPath"]),
    keyed("Pod", "spec.initContainers[].volumeMounts", &["mountPath"]),
    keyed("Pod", "spec.containers[].volumeDevices", &["devicePath"]),
    keyed("Pod", "spec.initContainers[].volumeDevices", &["devicePath"]),
    ("Pod", "spec.containers[].resources.claims", PatchStrategy::Replace, ListType::Map(&["name"])),
    keyed("Pod", "spec.volumes", &["name"]),
    keyed("Pod", "spec.imagePullSecrets", &["name"]),
    keyed("Pod", "spec.hostAliases", &["ip"]),
    keyed("Pod", "spec.schedulingGates", &["name"]),
    keyed("Pod", "spec.resourceClaims", &["name"]),
    keyed("Pod", "spec.topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    keyed("Pod", "status.podIPs", &["ip"]),
    ("Pod", "status.hostIPs", PatchStrategy::MergeBy("ip"), ListType::Atomic),
    keyed("Pod", "status.resourceClaimStatuses", &["name"]),
];

/// Maps that are one field for server-side apply.
const ATOMIC_MAPS: [(&str, &str); 13] = [
    ("", "metadata.ownerReferences[]"),
    ("Deployment", "spec.selector"),
    ("ReplicaSet", "spec.selector"),
    ("Service", "spec.selector"),
    ("Event", "involvedObject"),
    ("Event", "regarding"),
    ("Event", "related"),
    ("Pod", "spec.nodeSelector"),
    ("Pod", "spec.imagePullSecrets[]"),
    ("Pod", "spec.topologySpreadConstraints[].labelSelector"),
    ("Pod", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
    ("Pod", "spec.containers[].env[].valueFrom"),
    ("Pod", "spec.initContainers[].env[].valueFrom"),
];

fn rule(kind: &Kind, path: &str) -> Option<&'static Rule> {
    let (kind, path) = of_template(kind, path);
    LISTS.iter().find(|(of, at, ..)| *at == path && (of.is_empty() || *of == kind))
}

/// The template of a Deployment or a ReplicaSet is merged as a Pod.
fn of_template<'p>(kind: &Kind, path: &'p str) -> (&'static str, &'p str) {
    let inside = path.strip_prefix("spec.template.").filter(|_| kind.has_scale);
    inside.map_or((kind.kind, path), |inside| ("Pod", inside))
}

pub(crate) fn patch_strategy(kind: &Kind, path: &str) -> PatchStrategy {
    rule(kind, path).map_or(PatchStrategy::Replace, |(_, _, strategy, _)| *strategy)
}

pub(crate) fn list_type(kind: &Kind, path: &str) -> ListType {
    rule(kind, path).map_or(ListType::Atomic, |(.., list_type)| *list_type)
}

/// Whether a map is one field. In the table `valueFrom` stands for each of its entries.
pub(crate) fn is_atomic_map(kind: &Kind, path: &str) -> bool {
    let at = |path: &str| {
        let (kind, path) = of_template(kind, path);
        ATOMIC_MAPS.iter().any(|(of, at)| *at == path && (of.is_empty() || *of == kind))
    };
    match path.rsplit_once('.') {
        _ if path.ends_with(".valueFrom") => false,
        Some((parent, _)) if parent.ends_with(".valueFrom") => at(parent),
        _ => at(path),
    }
}

/// The value of a list key that an item leaves out.
pub(crate) fn default_of(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}

/// The path of a key below another path.
pub(crate) fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
