//! What people are told: conditions and events, on transitions only. Pure.

use zonewise_common::event::{Event, EventType};
use zonewise_common::keys::{
    CONDITION_PREFIX, ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE,
};
use zonewise_common::time::timestamp;
use zonewise_slices::asked::{Asked, Note};
use zonewise_slices::plan::Plan;
use zonewise_slices::service::{Condition, Service};
use zonewise_topology::reason::{Code, NOTHING_TO_DO, Outcome};

use crate::proxies::Standing;

/// Keys whose users expect an answer. `trafficDistribution` alone is the API's own: its users get
/// what they know, and no status is written for thousands of Services on the first day.
const ANSWERED: [&str; 4] = [ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_MODE, TOPOLOGY_AWARE_HINTS];

/// Whether a Service is told how its routing stands.
pub(crate) fn is_told(service: &Service) -> bool {
    service.topology_keys || ANSWERED.iter().any(|key| service.annotations.get(key).is_some())
}

/// The code that people see: one for hints, whether new or kept.
pub(crate) fn settled(code: Code) -> Code {
    match code {
        Code::HintsKept => Code::HintsAssigned,
        Code::SubsetsKept => Code::SubsetsAssigned,
        other => other,
    }
}

/// Conditions as they should be, but for [`ready`]. Without figures: a number that changes by itself
/// would be a write that wakes everybody who watches Services.
pub(crate) fn conditions(
    service: &Service,
    asked: &Asked,
    plan: &Plan,
    before: &[Condition],
    now: i64,
) -> Vec<Condition> {
    if !is_told(service) {
        return Vec::new();
    }
    let code = settled(plan.reason().code());
    let programmed = code.entry().outcome == Outcome::InForce;
    let programmed = if programmed { "True" } else { "False" };
    [accepted(asked), ("Programmed", programmed, code, sentence(code))]
        .into_iter()
        .map(|parts| condition(before, parts, now))
        .collect()
}

/// The status of [`ready`] before, if the other conditions still say the same.
pub(crate) fn ready_before<'a>(now: &[Condition], before: &'a [Condition]) -> Option<&'a str> {
    let kind = format!("{CONDITION_PREFIX}Ready");
    let ready = before.iter().find(|condition| *condition.r#type == *kind);
    ready.filter(|_| within(now, before)).map(|condition| &*condition.status)
}

/// The condition that says how far the proxies are.
pub(crate) fn ready(standing: Standing, before: &[Condition], now: i64) -> Condition {
    let (status, code) = match standing {
        Standing::Unknown => ("Unknown", Code::NoProxyReports),
        Standing::Behind(_) => ("False", Code::ProxiesBehind),
        Standing::Refused => ("False", Code::RefusedByKernel),
        Standing::Ready => ("True", Code::ProxiesReady),
    };
    condition(before, ("Ready", status, code, sentence(code)), now)
}

type Parts = (&'static str, &'static str, Code, String);

fn condition(before: &[Condition], (suffix, status, code, message): Parts, now: i64) -> Condition {
    let kind = format!("{CONDITION_PREFIX}{suffix}");
    let before = before.iter().find(|known| *known.r#type == *kind);
    let since = before.filter(|known| &*known.status == status).map(|known| known.since.clone());
    Condition {
        r#type: kind.into(),
        status: status.into(),
        reason: code.to_string().into(),
        message: message.into(),
        since: since.filter(|since| !since.is_empty()).unwrap_or_else(|| timestamp(now).into()),
    }
}

fn sentence(code: Code) -> String {
    let entry = code.entry();
    match entry.remedy {
        NOTHING_TO_DO => entry.sentence.to_owned(),
        remedy => format!("{}; {remedy}", entry.sentence),
    }
}

/// Whether what was asked was understood; keys that are not in force are named either way.
fn accepted(asked: &Asked) -> Parts {
    let told = |note: &&Note| note.source == ROUTING_PREFERENCE || note.source == SUBSETTING;
    let refused = asked.notes.iter().find(told);
    let code = refused.map_or(Code::Accepted, |note| note.reason.code());
    let status = if refused.is_some() { "False" } else { "True" };
    let in_force = format!("in force: {} `{}`", asked.source, asked.value);
    let notes = asked.notes.iter().map(|note| {
        format!("{} `{}`: {}", note.source, note.value, note.reason.code().entry().sentence)
    });
    let lines: Vec<String> = std::iter::once(in_force).chain(notes).collect();
    ("Accepted", status, code, lines.join("; "))
}

/// Whether two sets of conditions say the same.
pub(crate) fn same(a: &[Condition], b: &[Condition]) -> bool {
    a.len() == b.len() && within(a, b)
}

fn within(some: &[Condition], all: &[Condition]) -> bool {
    let says = |one: &Condition, other: &Condition| {
        one.r#type == other.r#type
            && one.status == other.status
            && one.reason == other.reason
            && one.message == other.message
    };
    some.iter().all(|one| all.iter().any(|other| says(one, other)))
}

/// The code that was in force before, as the Service itself remembers it.
pub(crate) fn code_before(service: &Service) -> Option<Box<str>> {
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let before = service.conditions.iter().find(|condition| *condition.r#type == *kind);
    before.map(|condition| condition.reason.clone())
}

/// The event for a transition.
pub(crate) fn transition(plan: &Plan) -> Event {
    let reason = plan.reason();
    let entry = reason.code().entry();
    let kind = match entry.outcome {
        Outcome::InForce => EventType::Normal,
        Outcome::Fallback | Outcome::Failed | Outcome::Setting => EventType::Warning,
    };
    let message = match entry.remedy {
        NOTHING_TO_DO => reason.to_string(),
        remedy => format!("{reason}; {remedy}"),
    };
    Event { kind, reason: settled(reason.code()).to_string(), message }
}

/// The event for a Service that somebody else writes too.
pub(crate) fn second_writer() -> Event {
    let entry = Code::SecondWriter.entry();
    let message = format!("{}; {}", entry.sentence, entry.remedy);
    Event { kind: EventType::Warning, reason: Code::SecondWriter.to_string(), message }
}

/// The event for a Service whose slices could not be written, in the reference's words.
pub(crate) fn failed(service: &Service, error: &str) -> Event {
    Event {
        kind: EventType::Warning,
        reason: "FailedToUpdateEndpointSlices".into(),
        message: format!("Error updating Endpoint Slices for Service {}: {error}", service.key()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;
    use zonewise_common::name::Name;
    use zonewise_slices::asked::asked;
    use zonewise_slices::node::{Node, Nodes};
    use zonewise_slices::plan::{Input, plan};
    use zonewise_slices::pod::Pod;
    use zonewise_slices::settings::Settings;
    use zonewise_topology::capacity::MissingCpu;

    fn service(annotations: &serde_json::Value, conditions: &[Condition]) -> Service {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|one| json!({"type": one.r#type, "status": one.status, "reason": one.reason, "message": one.message, "lastTransitionTime": one.since}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "trafficDistribution": "PreferClose"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// A plan with so many ready Pods in each of two zones.
    fn planned(service: &Service, pods: usize) -> (Asked, Plan) {
        let node = |zone: &str| -> Node {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            serde_json::from_value(json!({
                "metadata": {"name": zone, "labels": labels},
                "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap()
        };
        let pod = |n: usize| -> Arc<Pod> {
            let (ip, node) = (format!("10.1.0.{n}"), ["a", "b"][n % 2]);
            Arc::new(serde_json::from_value(json!({
                "metadata": {"name": format!("web-{n}"), "namespace": "shop"},
                "spec": {"nodeName": node},
                "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap())
        };
        let nodes: BTreeMap<Name, Node> = ["a", "b"].map(|zone| (zone.into(), node(zone))).into();
        let nodes = Nodes::new(nodes, MissingCpu::Refuse);
        let pods: Vec<Arc<Pod>> = (0..2 * pods).map(pod).collect();
        let settings = Settings::default();
        let asked = asked(service, &settings);
        let input = Input {
            service,
            pods: &pods,
            slices: &[],
            nodes: &nodes,
            trigger: None,
            populated: false,
        };
        let plan = plan(&input, &asked, &settings);
        (asked, plan)
    }

    fn says(service: &Service, pods: usize) -> Vec<(String, String, String)> {
        let (asked, plan) = planned(service, pods);
        conditions(service, &asked, &plan, &service.conditions, 0)
            .into_iter()
            .map(|one| {
                (
                    one.r#type[CONDITION_PREFIX.len()..].to_owned(),
                    one.status.into(),
                    one.reason.into(),
                )
            })
            .collect()
    }

    fn row(kind: &str, status: &str, reason: &str) -> (String, String, String) {
        (kind.into(), status.into(), reason.into())
    }

    #[test]
    fn d12_d18_conditions_say_what_was_understood_and_what_is_in_force() {
        let balanced = service(&json!({ROUTING_PREFERENCE: "zonewise.dev/balanced"}), &[]);
        assert_eq!(
            says(&balanced, 2),
            [row("Accepted", "True", "Accepted"), row("Programmed", "True", "SharesBalanced"),]
        );
        assert_eq!(says(&balanced, 0)[1], row("Programmed", "False", "NoEndpoints"));
        let reserved = service(&json!({ROUTING_PREFERENCE: "Nearest"}), &[]);
        assert_eq!(
            says(&reserved, 2),
            [row("Accepted", "False", "PreferenceReserved"), row("Programmed", "True", "OwnZone"),]
        );
        assert_eq!(
            says(&service(&json!({}), &[]), 2),
            [],
            "who asks for nothing of ours is told nothing"
        );
    }

    #[test]
    fn a23_the_key_that_loses_is_named() {
        let both = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (asked, plan) = planned(&both, 2);
        let accepted = &conditions(&both, &asked, &plan, &[], 0)[0];
        assert!(
            accepted.message.contains("spec.trafficDistribution `PreferClose`"),
            "{}",
            accepted.message
        );
    }

    #[test]
    fn conditions_keep_the_time_of_the_last_transition() {
        let first = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (asked, plan) = planned(&first, 2);
        let before = conditions(&first, &asked, &plan, &[], 1000);
        let second = service(&json!({TOPOLOGY_MODE: "Auto"}), &before);
        let (asked, plan) = planned(&second, 3);
        let after = conditions(&second, &asked, &plan, &before, 2000);
        assert_eq!(after, before, "other figures, the same words");
        let (asked, plan) = planned(&second, 0);
        let gone = conditions(&second, &asked, &plan, &before, 3000);
        assert!(!same(&gone, &before));
        assert_eq!(
            (&*gone[1].since, &*gone[0].since),
            ("1970-01-01T00:50:00Z", "1970-01-01T00:16:40Z")
        );
        assert_eq!(code_before(&second).as_deref(), Some("HintsAssigned"));
    }

    #[test]
    fn d12_ready_says_how_far_proxies_are_without_figures() {
        use Standing::{Behind, Ready, Refused, Unknown};
        let said = [Unknown, Behind(1234), Refused, Ready].map(|standing| {
            let ready = ready(standing, &[], 0);
            assert!(!ready.message.contains(|c: char| c.is_ascii_digit()), "{}", ready.message);
            row(&ready.r#type[CONDITION_PREFIX.len()..], &ready.status, &ready.reason)
        });
        let expected = [
            row("Ready", "Unknown", "NoProxyReports"),
            row("Ready", "False", "ProxiesBehind"),
            row("Ready", "False", "RefusedByKernel"),
            row("Ready", "True", "ProxiesReady"),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn d12_a_transition_opens_ready_again_and_other_pods_do_not() {
        let all = |service: &Service, pods: usize, before: &[Condition]| {
            let (asked, plan) = planned(service, pods);
            conditions(service, &asked, &plan, before, 0)
        };
        let auto = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let mut before = all(&auto, 2, &[]);
        assert_eq!(ready_before(&before, &before), None, "never told");
        before.push(ready(Standing::Ready, &[], 0));
        let table = [
            (&auto, 3, Some("True"), "more Pods"),
            (&auto, 0, None, "Programmed says something else"),
            (
                &service(&json!({ROUTING_PREFERENCE: "zonewise.dev/auto"}), &[]),
                2,
                None,
                "so does Accepted",
            ),
        ];
        for (service, pods, expected, why) in table {
            assert_eq!(ready_before(&all(service, pods, &before), &before), expected, "{why}");
        }
    }

    #[test]
    fn b12_a_transition_is_an_event_with_figures_and_a_remedy() {
        let few = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (_, plan) = planned(&few, 0);
        let event = transition(&plan);
        assert_eq!((event.kind, event.reason.as_str()), (EventType::Warning, "NoEndpoints"));
        assert!(event.message.contains("selector"), "{}", event.message);
        assert_eq!(second_writer().reason, "SecondWriter");
    }
}
