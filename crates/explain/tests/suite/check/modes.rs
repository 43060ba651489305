//! Guard mode and observe mode, which leave the slices to the built-in controller.

use super::*;

fn in_mode(sights: &mut Sights, mode: &str) {
    seen(&mut sights.deployments)[0].arguments =
        vec!["controller".into(), format!("--mode={mode}")];
    // The built-in controller writes the slices in these modes.
    seen(&mut sights.system_pods)[0] = manager(&["kube-controller-manager"]);
}

/// Guard mode with one Service in it.
pub(super) fn guarded(sights: &mut Sights) {
    in_mode(sights, "guard");
    *seen(&mut sights.guard) = GuardSight {
        allocations: Some(vec![("shop".into(), "web".into())]),
        policy: Some("Ignore".into()),
        bound: vec!["web".into()],
        webhook: None,
    };
}

/// The same with the webhook, for Services of this name in the namespace `shop`.
fn guarded_by_webhook(sights: &mut Sights, name: &str, failure_policy: &str) {
    guarded(sights);
    let found = seen(&mut sights.guard);
    (found.policy, found.bound) = (None, Vec::new());
    found.webhook = Some(WebhookSight {
        failure_policy: failure_policy.into(),
        names: vec![name.into()],
        namespaces: Some(vec!["shop".into()]),
    });
}

/// The controller observes: it has no Lease, and nothing asks for what it does not do.
pub(super) fn observing(sights: &mut Sights) {
    in_mode(sights, "observe");
    seen(&mut sights.facts.own_leases).remove(0);
    sights.asking = Sight::Seen(Vec::new());
}

/// kube-controller-manager runs where nobody can see how.
pub(super) fn managed(sights: &mut Sights) {
    seen(&mut sights.system_pods).clear();
    let lease = json!({
        "metadata": {"namespace": "kube-system", "name": "kube-controller-manager"},
        "spec": {"holderIdentity": "ip-10", "leaseDurationSeconds": 15, "renewTime": NOW},
    });
    sights.facts.manager_lease = Sight::Seen(read_leases(&[lease]).pop());
}

#[test]
fn guard_and_observe_mode_leave_the_slices_to_the_built_in_controller() {
    let in_order: [Change; 5] = [
        guarded,
        |s| guarded_by_webhook(s, "web", "Ignore"),
        observing,
        |s| {
            guarded(s);
            managed(s);
        },
        |s| {
            observing(s);
            managed(s);
        },
    ];
    for change in in_order {
        let found = judged(Stage::After, change);
        assert_eq!(fault(&found), []);
        let writer = found.checks.iter().find(|check| check.name == "second-writer").unwrap();
        assert_eq!(writer.finding, "kube-controller-manager alone writes EndpointSlices");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_fault_of_guard_mode_is_found_with_its_fix() {
    let cases: Vec<Case> = vec![
        (
            |s| {
                guarded(s);
                seen(&mut s.guard).allocations = None;
            },
            "guard-policy",
            FAILED,
            &["ZoneAllocations is not installed", "kubectl apply -f deploy/guard/crd.yaml"],
        ),
        (
            |s| {
                guarded(s);
                seen(&mut s.guard).policy = None;
            },
            "guard-policy",
            FAILED,
            &["no MutatingAdmissionPolicy zonewise-guard", "spec.trafficDistribution", "1.36"],
        ),
        (
            |s| {
                guarded(s);
                seen(&mut s.guard).policy = Some("Fail".into());
            },
            "guard-policy",
            FAILED,
            &["failurePolicy Fail", "refused", "kubectl patch mutatingadmissionpolicy"],
        ),
        (
            |s| {
                guarded(s);
                seen(&mut s.guard).bound = vec!["other".into()];
            },
            "guard-policy",
            FAILED,
            &["the policy is not bound for 1 Service", "shop/web", "rollout restart"],
        ),
        (
            |s| guarded_by_webhook(s, "other", "Ignore"),
            "guard-policy",
            FAILED,
            &["the webhook is not bound for 1 Service", "shop/web", "rollout restart"],
        ),
        (
            |s| guarded_by_webhook(s, "web", "Fail"),
            "guard-policy",
            FAILED,
            &["failurePolicy Fail", "kubectl patch mutatingwebhookconfiguration zonewise-guard"],
        ),
        (
            // A webhook that is left beside the policy is looked at, too.
            |s| {
                guarded_by_webhook(s, "web", "Fail");
                seen(&mut s.guard).policy = Some("Ignore".into());
            },
            "guard-policy",
            FAILED,
            &["failurePolicy Fail", "kubectl patch mutatingwebhookconfiguration zonewise-guard"],
        ),
        (
            |s| {
                guarded_by_webhook(s, "web", "Ignore");
                seen(&mut s.guard).policy = Some("Ignore".into());
            },
            "guard-policy",
            WARNING,
            &[
                "both the admission policy",
                "kubectl delete mutatingwebhookconfiguration zonewise-guard",
            ],
        ),
        (
            |s| {
                guarded(s);
                seen(&mut s.system_pods)[0] = manager(&["kube-controller-manager", OFF]);
            },
            "second-writer",
            FAILED,
            &["no controller writes EndpointSlices", "turn the built-in one on again"],
        ),
    ];
    each_is_found(cases);
}

#[test]
fn every_fault_of_observe_mode_is_found_with_its_fix() {
    let cases: Vec<Case> = vec![
        (
            |s| {
                observing(s);
                seen(&mut s.system_pods)[0] = manager(&["kube-controller-manager", OFF]);
            },
            "second-writer",
            FAILED,
            &["no controller writes EndpointSlices", "controller.mode=controller"],
        ),
        (
            |s| {
                observing(s);
                s.asking = Sight::Seen(vec!["shop/web".into()]);
            },
            "services-that-ask",
            WARNING,
            &["only observes", "shop/web", "controller.mode=controller, or guard"],
        ),
        (
            |s| {
                guarded(s);
                observing(s);
            },
            "guard-policy",
            WARNING,
            &["left", "zonewise guard remove"],
        ),
    ];
    each_is_found(cases);
}
