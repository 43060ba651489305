//! Guard mode: whether the API server has what puts the hints in.

use zonewise_inventory::guard::POLICY;

use super::controllers::{Mode, RESTART, mode};
use super::{Check, GuardSight, Part, Sights, Subject, listed};
use crate::environment::Sight;
use crate::screens::counted;

const GUARD: Subject = Subject(Part::Controllers, "guard-policy");

/// `None` where guard mode is neither installed nor left over.
pub(super) fn check(sights: &Sights) -> Option<Check> {
    match (mode(sights), &sights.guard) {
        (Mode::Guard, Sight::Hidden(why)) => Some(GUARD.unknown(why)),
        (Mode::Guard, Sight::Seen(found)) => Some(in_force(found)),
        (_, Sight::Hidden(_)) => None,
        (_, Sight::Seen(found)) => left_over(found),
    }
}

fn in_force(found: &GuardSight) -> Check {
    let Some(allocations) = &found.allocations else {
        return GUARD
            .failed(
                "the API server does not know ZoneAllocations: nothing can be decided in guard mode",
                "apply the definition; it is part of the chart with controller.mode=guard",
            )
            .with(["kubectl apply -f deploy/guard/crd.yaml"]);
    };
    let Some(failure_policy) = &found.failure_policy else {
        return GUARD
            .failed(
                format!(
                    "there is no MutatingAdmissionPolicy {POLICY}, and no webhook in its place: slices are written with the \
                     hints of the floor"
                ),
                "the controller writes the policy (from Kubernetes 1.36 on) or the webhook within seconds while it leads; \
                 its log says why it does not",
            )
            .with(["kubectl -n zonewise-system logs -l app.kubernetes.io/name=zonewise-controller --tail=20", RESTART]);
    };
    if failure_policy != "Ignore" {
        return refusing(found.by_webhook, failure_policy);
    }
    let unbound: Vec<String> = allocations
        .iter()
        .filter(|(_, service)| !found.bound.contains(service))
        .map(|(namespace, service)| format!("{namespace}/{service}"))
        .collect();
    if !unbound.is_empty() {
        return GUARD
            .failed(
                format!(
                    "the {} is not bound for {}: their slices are written with the hints of the floor: {}",
                    if found.by_webhook { "webhook" } else { "policy" },
                    counted(unbound.len(), "Service"),
                    listed(unbound.iter().map(String::as_str))
                ),
                "the controller writes the bindings within seconds while it leads; its log says why it does not",
            )
            .with([RESTART]);
    }
    GUARD.passed(format!(
        "the {} is in place, never keeps a slice from being written, and is bound for {}",
        if found.by_webhook { "webhook" } else { "admission policy" },
        counted(allocations.len(), "guarded Service")
    ))
}

/// What puts the hints in keeps slices from being written when it fails.
fn refusing(by_webhook: bool, failure_policy: &str) -> Check {
    let (kind, patch) = if by_webhook {
        let patch = r#"--type=json -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]'"#;
        ("MutatingWebhookConfiguration", patch)
    } else {
        ("MutatingAdmissionPolicy", r#"--type=merge -p '{"spec":{"failurePolicy":"Ignore"}}'"#)
    };
    GUARD
        .failed(
            format!(
                "the {kind} {POLICY} has failurePolicy {failure_policy}: a write of a slice that it fails on is refused, \
                 and endpoints are not followed"
            ),
            "set it to Ignore; a controller that runs does that within seconds",
        )
        .with([format!("kubectl patch {} {POLICY} {patch}", kind.to_lowercase())])
}

/// What is in the API server although the controller does not guard.
fn left_over(found: &GuardSight) -> Option<Check> {
    let allocations = found.allocations.as_ref().map_or(0, Vec::len);
    if found.failure_policy.is_none() && found.bound.is_empty() && allocations == 0 {
        return None;
    }
    Some(
        GUARD
            .warning(
                "guard mode is not installed, but its admission policy, its webhook or its ZoneAllocations are left: they go on putting \
                 hints into slices",
                "take guard mode out of the cluster, or install it again (controller.mode=guard)",
            )
            .with(["zonewise guard remove"]),
    )
}
