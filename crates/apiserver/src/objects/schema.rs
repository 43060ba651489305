//! How lists and maps of these kinds are merged: the one table that patches and server-side apply share.
//!
//! Paths are written `spec.containers[].ports`. What is not in the table: lists are replaced as a whole, maps are merged.

use crate::objects::kind::Kind;

/// How a list is merged by a strategic patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patched {
    /// As a whole.
    Replaced,
    /// Items with the same value of this key are merged.
    By(&'static str),
    /// Values are added.
    Set,
}

/// How a list is merged by server-side apply, and who owns what in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Owned as a whole.
    Atomic,
    /// Each item, known by these keys, has owners of its own.
    By(&'static [&'static str]),
    /// Each value has owners of its own.
    Set,
}

type Rule = (&'static str, &'static str, Patched, Applied);

const fn by(kind: &'static str, path: &'static str, keys: &'static [&'static str]) -> Rule {
    (kind, path, Patched::By(keys[0]), Applied::By(keys))
}

/// Kind (empty: all), path, and the two ways. A strategic patch knows items by the first key alone.
const LISTS: [Rule; 27] = [
    ("", "metadata.finalizers", Patched::Set, Applied::Set),
    by("", "metadata.ownerReferences", &["uid"]),
    by("", "status.conditions", &["type"]),
    by("Service", "spec.ports", &["port", "protocol"]),
    ("Node", "spec.podCIDRs", Patched::Set, Applied::Set),
    by("Node", "status.addresses", &["type"]),
    by("Pod", "spec.containers", &["name"]),
    by("Pod", "spec.initContainers", &["name"]),
    by("Pod", "spec.ephemeralContainers", &["name"]),
    by("Pod", "spec.containers[].ports", &["containerPort", "protocol"]),
    by("Pod", "spec.initContainers[].ports", &["containerPort", "protocol"]),
    by("Pod", "spec.containers[].env", &["name"]),
    by("Pod", "spec.initContainers[].env", &["name"]),
    by("Pod", "spec.containers[].volumeMounts", &["mountPath"]),
    by("Pod", "spec.initContainers[].volumeMounts", &["mountPath"]),
    by("Pod", "spec.containers[].volumeDevices", &["devicePath"]),
    by("Pod", "spec.initContainers[].volumeDevices", &["devicePath"]),
    ("Pod", "spec.containers[].resources.claims", Patched::Replaced, Applied::By(&["name"])),
    by("Pod", "spec.volumes", &["name"]),
    by("Pod", "spec.imagePullSecrets", &["name"]),
    by("Pod", "spec.hostAliases", &["ip"]),
    by("Pod", "spec.schedulingGates", &["name"]),
    by("Pod", "spec.resourceClaims", &["name"]),
    by("Pod", "spec.topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    by("Pod", "status.podIPs", &["ip"]),
    ("Pod", "status.hostIPs", Patched::By("ip"), Applied::Atomic),
    by("Pod", "status.resourceClaimStatuses", &["name"]),
];

/// Maps with one owner for all of it.
const ATOMIC_MAPS: [(&str, &str); 11] = [
    ("", "metadata.ownerReferences[]"),
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
    LISTS.iter().find(|(of, at, ..)| *at == path && (of.is_empty() || *of == kind.kind))
}

pub(crate) fn patched(kind: &Kind, path: &str) -> Patched {
    rule(kind, path).map_or(Patched::Replaced, |(_, _, patched, _)| *patched)
}

pub(crate) fn applied(kind: &Kind, path: &str) -> Applied {
    rule(kind, path).map_or(Applied::Atomic, |(.., applied)| *applied)
}

/// `valueFrom` has one entry, which is atomic: its entries are, not it.
pub(crate) fn is_atomic_map(kind: &Kind, path: &str) -> bool {
    let at = |path: &str| {
        ATOMIC_MAPS.iter().any(|(of, at)| *at == path && (of.is_empty() || *of == kind.kind))
    };
    match path.rsplit_once('.') {
        _ if path.ends_with(".valueFrom") => false,
        Some((parent, _)) if parent.ends_with(".valueFrom") => at(parent),
        _ => at(path),
    }
}

/// What a key is if it is left out.
pub(crate) fn default_of(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}

/// The path of an entry.
pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
