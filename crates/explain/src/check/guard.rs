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
                "the CustomResourceDefinition of ZoneAllocations is not installed: nothing can be decided in guard mode",
                "apply it; it is part of the chart with controller.mode=guard",
            )
            .with(["kubectl apply -f deploy/guard/crd.yaml"]);
    };
    if found.policy.is_none() && found.webhook.is_none() {
        return GUARD
            .failed(
                format!(
                    "there is no MutatingAdmissionPolicy {POLICY}, and no webhook in its place: slices are written \
                     with the built-in controller's own hints (spec.trafficDistribution)"
                ),
                "the controller writes the policy (from Kubernetes 1.36 on) or the webhook within seconds while it leads; \
                 its log says why it does not",
            )
            .with(["kubectl -n zonewise-system logs -l app.kubernetes.io/name=zonewise-controller --tail=20", RESTART]);
    }
    refusing(found).or_else(|| unbound(found, allocations)).or_else(|| twice(found)).unwrap_or_else(
        || {
            GUARD.passed(format!(
                "the {} is in place, never keeps a slice from being written, and is bound for {}",
                if found.policy.is_some() { "admission policy" } else { "webhook" },
                counted(allocations.len(), "guarded Service")
            ))
        },
    )
}

/// What puts the hints in keeps slices from being written when it fails.
fn refusing(found: &GuardSight) -> Option<Check> {
    let by_policy = found.policy.as_deref().map(|failure_policy| {
        let patch = r#"--type=merge -p '{"spec":{"failurePolicy":"Ignore"}}'"#;
        ("MutatingAdmissionPolicy", failure_policy, patch)
    });
    let by_webhook = found.webhook.as_ref().map(|webhook| {
        let patch = r#"--type=json -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]'"#;
        ("MutatingWebhookConfiguration", webhook.failure_policy.as_str(), patch)
    });
    let mut ways = by_policy.into_iter().chain(by_webhook);
    let (kind, failure_policy, patch) = ways.find(|(_, policy, _)| *policy != "Ignore")?;
    let check = GUARD.failed(
        format!(
            "the {kind} {POLICY} has failurePolicy {failure_policy}: a write of a slice that it fails on is refused, \
             and endpoints are not followed"
        ),
        "set it to Ignore; a controller that runs does that within seconds",
    );
    Some(check.with([format!("kubectl patch {} {POLICY} {patch}", kind.to_lowercase())]))
}

/// Services whose slices get no hints, although they are allocated.
fn unbound(found: &GuardSight, allocations: &[(String, String)]) -> Option<Check> {
    let unbound: Vec<String> = allocations
        .iter()
        .filter(|(namespace, service)| !found.has(namespace, service))
        .map(|(namespace, service)| format!("{namespace}/{service}"))
        .collect();
    let check = || {
        GUARD
            .failed(
                format!(
                    "the {} is not bound for {}: their slices are written with the built-in controller's own hints (spec.trafficDistribution): {}",
                    if found.policy.is_some() { "policy" } else { "webhook" },
                    counted(unbound.len(), "Service"),
                    listed(unbound.iter().map(String::as_str))
                ),
                "the controller writes the bindings within seconds while it leads; its log says why it does not",
            )
            .with([RESTART])
    };
    (!unbound.is_empty()).then(check)
}

/// Both ways are there, of which guard mode needs one.
fn twice(found: &GuardSight) -> Option<Check> {
    let webhook = found.webhook.as_ref().filter(|webhook| !webhook.names.is_empty())?;
    found.policy.as_ref()?;
    let check = GUARD.warning(
        format!(
            "there are both the admission policy {POLICY} and the webhook {POLICY}, for {} of Services: they give the \
             same hints, and every write of a slice waits for both, a second longer if nobody answers the webhook",
            counted(webhook.names.len(), "name")
        ),
        "the controller removes what guard.admission does not want when it begins to lead, if its rights allow that; if \
         you delete the wrong one, it is back within seconds",
    );
    Some(check.with([format!("kubectl delete mutatingwebhookconfiguration {POLICY}")]))
}

/// What is in the API server although the controller does not guard.
fn left_over(found: &GuardSight) -> Option<Check> {
    let allocations = found.allocations.as_ref().map_or(0, Vec::len);
    let is_gone = found.policy.is_none() && found.webhook.is_none() && found.bound.is_empty();
    if is_gone && allocations == 0 {
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
