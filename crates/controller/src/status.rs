//! The conditions and events that show how the routing of a Service stands. They are written
//! when something changes, not on every sync. Everything here is pure.

use zonewise_common::event::{Event, EventType};
use zonewise_common::keys::CONDITION_PREFIX;
use zonewise_common::time::timestamp;
use zonewise_routing::{Frontend, Refusal};
use zonewise_slices::plan::Plan;
use zonewise_slices::requested::{RequestNote, RequestedRouting, TRAFFIC_DISTRIBUTION};
use zonewise_slices::routing_keys::is_routing_key;
use zonewise_slices::service::{Condition, Service};
use zonewise_slices::settings::{Gate, Settings};
use zonewise_topology::reason::{Code, NOTHING_TO_DO, Outcome};

use crate::proxies::ServiceReadiness;

/// The type of the condition of guard mode, without [`CONDITION_PREFIX`].
const ENFORCED: &str = "Enforced";
/// The type of the condition of measured demand, without [`CONDITION_PREFIX`].
const MEASURED: &str = "Measured";
/// The type of the condition of endpoints that count by use, without [`CONDITION_PREFIX`].
const WEIGHTED: &str = "Weighted";
/// Characters of a value that a message shows: an annotation may have 256 KiB.
const SHOWN_VALUE: usize = 63;
/// Keys without effect that a message names.
const SHOWN_NOTES: usize = 8;

/// Whether a Service gets conditions and events about its routing. With `--compat upstream`, and with
/// every feature gate off, none does: nothing of this controller's own is left on any object then.
/// Services with nothing but `spec.trafficDistribution` get none either: the reference writes no conditions
/// for it, and a first start would otherwise write the status of thousands of Services.
pub(crate) fn has_conditions(service: &Service, settings: &Settings) -> bool {
    let features = Gate::ALL.into_iter().any(|gate| settings.gates.is_on(gate));
    let asked = service.topology_keys
        || !service.annotations.is_empty()
        || service.labels.iter().any(|(key, _)| is_routing_key(key));
    asked && features && !settings.upstream && service.is_ours()
}

/// The code to show. Whether hints or subsets are new or were kept makes no difference to people.
pub(crate) fn shown_code(code: Code) -> Code {
    match code {
        Code::HintsKept => Code::HintsAssigned,
        Code::SubsetsKept => Code::SubsetsAssigned,
        other => other,
    }
}

/// The conditions `Accepted` and `Programmed` of a Service that [has conditions](has_conditions). Their
/// messages contain no numbers of endpoints: every change of a number would be a status write, which
/// every watcher of Services receives.
pub(crate) fn conditions(
    requested: &RequestedRouting,
    plan: &Plan,
    before: &[Condition],
    now: i64,
) -> Vec<Condition> {
    let code = shown_code(plan.reason().code());
    let programmed = code.entry().outcome == Outcome::InForce;
    let programmed = if programmed { "True" } else { "False" };
    let programmed = ConditionContent {
        suffix: "Programmed",
        status: programmed,
        code,
        message: sentence(code),
    };
    [accepted(requested), programmed]
        .into_iter()
        .map(|content| condition(before, content, now))
        .collect()
}

/// The stored status of `Ready`, if the other conditions have not changed. `None` means that `Ready`
/// starts anew.
pub(crate) fn previous_ready_status<'a>(
    now: &[Condition],
    before: &'a [Condition],
) -> Option<&'a str> {
    let kind = format!("{CONDITION_PREFIX}Ready");
    let ready = before.iter().find(|condition| *condition.r#type == *kind);
    ready.filter(|_| contains_all(now, before)).map(|condition| &*condition.status)
}

/// The condition `Ready`, which says whether the proxies have applied the slices.
pub(crate) fn ready_condition(
    readiness: ServiceReadiness,
    before: &[Condition],
    now: i64,
) -> Condition {
    let (status, code) = match readiness {
        ServiceReadiness::Unknown => ("Unknown", Code::NoProxyReports),
        ServiceReadiness::Behind(_) => ("False", Code::ProxiesBehind),
        ServiceReadiness::Refused => ("False", Code::RefusedByKernel),
        ServiceReadiness::Ready => ("True", Code::ProxiesReady),
    };
    condition(
        before,
        ConditionContent { suffix: "Ready", status, code, message: sentence(code) },
        now,
    )
}

/// What is known about the hints of a Service in guard mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It gets none.
    NoHints,
    /// Nothing yet: the API server may not have learnt of the last change.
    Unknown,
    /// Whether they are in force, and what keeps the floor from being as it should.
    Known(Code),
}

/// The condition `Enforced` of guard mode, which says whether slices carry the planned hints. While that is not known,
/// the one before stays.
pub(crate) fn enforced_condition(
    standing: Standing,
    before: &[Condition],
    now: i64,
) -> Option<Condition> {
    let code = match standing {
        Standing::NoHints => return None,
        Standing::Unknown => return enforced(before).cloned(),
        Standing::Known(code) => code,
    };
    let is_lacking = matches!(code, Code::HintsNotEnforced | Code::GuardLimitReached);
    let status = if is_lacking { "False" } else { "True" };
    let content = ConditionContent { suffix: ENFORCED, status, code, message: sentence(code) };
    Some(condition(before, content, now))
}

/// Whether a Service has the condition of guard mode.
pub(crate) fn is_guarded(service: &Service) -> bool {
    enforced(&service.conditions).is_some()
}

/// The reason in the condition of guard mode that a Service has.
pub(crate) fn enforced_reason(service: &Service) -> Option<Box<str>> {
    enforced(&service.conditions).map(|condition| condition.reason.clone())
}

fn enforced(conditions: &[Condition]) -> Option<&Condition> {
    of_type(conditions, ENFORCED)
}

fn of_type<'a>(conditions: &'a [Condition], suffix: &str) -> Option<&'a Condition> {
    let kind = format!("{CONDITION_PREFIX}{suffix}");
    conditions.iter().find(|condition| *condition.r#type == *kind)
}

/// What is known about something that is measured for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// It does not ask for any.
    NotAsked,
    /// Nothing yet, or nothing that lasts.
    Unknown,
    /// Whether it is in force, and what keeps it from that.
    Known(Code),
}

/// What is measured for Services, each with a condition of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Demand, from which shares of zones follow.
    Demand,
    /// The CPU that endpoints use, by which they count for more or less.
    Use,
}

impl Figure {
    /// The type of its condition, without [`CONDITION_PREFIX`].
    fn suffix(self) -> &'static str {
        match self {
            Self::Demand => MEASURED,
            Self::Use => WEIGHTED,
        }
    }
}

/// The condition that says whether what is measured is in force. While that is not known, the one before stays.
pub(crate) fn measured_condition(
    figure: Figure,
    measured: Measured,
    before: &[Condition],
    now: i64,
) -> Option<Condition> {
    let suffix = figure.suffix();
    let code = match measured {
        Measured::NotAsked => return None,
        Measured::Unknown => return of_type(before, suffix).cloned(),
        Measured::Known(code) => code,
    };
    let status = if code.entry().outcome == Outcome::InForce { "True" } else { "False" };
    let content = ConditionContent { suffix, status, code, message: sentence(code) };
    Some(condition(before, content, now))
}

/// Reasons that somebody has to do something about.
const ASKS_FOR_ACTION: [Code; 9] = [
    Code::DemandTableFull,
    Code::DemandNotCollected,
    Code::DemandOfOneNode,
    Code::UseNotCollected,
    Code::PodMetricsMissing,
    Code::PodMetricsForbidden,
    Code::PodMetricsUnavailable,
    Code::PodMetricsTooLarge,
    Code::PodMetricsNonsense,
];

/// The events for changes of [`measured_condition`].
pub(crate) fn measured_events(now: &[Condition], before: &[Condition]) -> Vec<Event> {
    let event = |figure: Figure| {
        let measured = of_type(now, figure.suffix())?;
        if of_type(before, figure.suffix()).is_some_and(|known| known.reason == measured.reason) {
            return None;
        }
        let asks = ASKS_FOR_ACTION.iter().any(|code| *measured.reason == *code.to_string());
        Some(Event {
            kind: if asks { EventType::Warning } else { EventType::Normal },
            reason: measured.reason.to_string(),
            message: measured.message.to_string(),
        })
    };
    [Figure::Demand, Figure::Use].into_iter().filter_map(event).collect()
}

/// The event for a change of [`enforced_condition`].
pub(crate) fn enforced_event(now: &[Condition], before: &[Condition]) -> Option<Event> {
    let enforced = enforced(now)?;
    let is_good = *enforced.reason == *Code::HintsEnforced.to_string();
    (!contains_all(std::slice::from_ref(enforced), before)).then(|| Event {
        kind: if is_good { EventType::Normal } else { EventType::Warning },
        reason: enforced.reason.to_string(),
        message: enforced.message.to_string(),
    })
}

/// A condition without its time of transition.
struct ConditionContent {
    /// The condition's type without [`CONDITION_PREFIX`].
    suffix: &'static str,
    /// `True`, `False` or `Unknown`.
    status: &'static str,
    code: Code,
    message: String,
}

/// Completes a condition. If its status is the same as before, the time of transition is kept.
fn condition(before: &[Condition], content: ConditionContent, now: i64) -> Condition {
    let ConditionContent { suffix, status, code, message } = content;
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

/// The sentence of a code, with its remedy if there is one.
fn sentence(code: Code) -> String {
    let entry = code.entry();
    match entry.remedy {
        NOTHING_TO_DO => entry.sentence.to_owned(),
        remedy => format!("{}; {remedy}", entry.sentence),
    }
}

/// The condition `Accepted`: whether all that the Service requests was understood and takes effect. Its
/// message names the key in effect, and the keys without effect with the reason.
fn accepted(requested: &RequestedRouting) -> ConditionContent {
    // `spec.trafficDistribution` beside an annotation is what proxies fall back to where this controller does
    // not run. It is named, and is not a mistake.
    let is_fallback = |note: &&RequestNote| {
        note.source == TRAFFIC_DISTRIBUTION && note.reason.code() == Code::ChoiceOverridden
    };
    let ignored = requested.notes.iter().find(|note| !is_fallback(note));
    let code = ignored.map_or(Code::Accepted, |note| note.reason.code());
    let status = if ignored.is_some() { "False" } else { "True" };
    let active = format!("active: {} `{}`", requested.source, shortened(&requested.value));
    let notes =
        requested.notes.iter().take(SHOWN_NOTES).map(|note| without_effect(requested, note));
    let lines: Vec<String> = std::iter::once(active).chain(notes).collect();
    ConditionContent { suffix: "Accepted", status, code, message: lines.join("; ") }
}

/// A key without effect and the reason.
fn without_effect(requested: &RequestedRouting, note: &RequestNote) -> String {
    format!("{} `{}`: {}", note.source, shortened(&note.value), requested.sentence(note))
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(SHOWN_VALUE) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// The event for keys without effect, when they are not those that the stored conditions name.
pub(crate) fn ignored_event(now: &[Condition], before: &[Condition]) -> Option<Event> {
    let kind = format!("{CONDITION_PREFIX}Accepted");
    let accepted = now.iter().find(|condition| *condition.r#type == *kind)?;
    let is_new = !contains_all(std::slice::from_ref(accepted), before);
    (is_new && &*accepted.status == "False").then(|| Event {
        kind: EventType::Warning,
        reason: accepted.reason.to_string(),
        message: accepted.message.to_string(),
    })
}

/// Whether two sets of conditions are the same, apart from their times of transition.
pub(crate) fn same_conditions(a: &[Condition], b: &[Condition]) -> bool {
    a.len() == b.len() && contains_all(a, b)
}

fn contains_all(some: &[Condition], all: &[Condition]) -> bool {
    let says = |one: &Condition, other: &Condition| {
        one.r#type == other.r#type
            && one.status == other.status
            && one.reason == other.reason
            && one.message == other.message
    };
    some.iter().all(|one| all.iter().any(|other| says(one, other)))
}

/// The reason code of the stored condition `Programmed`.
pub(crate) fn previous_code(service: &Service) -> Option<Box<str>> {
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let before = service.conditions.iter().find(|condition| *condition.r#type == *kind);
    before.map(|condition| condition.reason.clone())
}

/// The event for a change of the reason code, with the numbers that led to it.
pub(crate) fn transition_event(plan: &Plan) -> Event {
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
    Event { kind, reason: shown_code(reason.code()).to_string(), message }
}

/// The event for a Service whose slices another program writes too.
pub(crate) fn second_writer_event() -> Event {
    let entry = Code::SecondWriter.entry();
    let message = format!("{}; {}", entry.sentence, entry.remedy);
    Event { kind: EventType::Warning, reason: Code::SecondWriter.to_string(), message }
}

/// The most refused addresses that an event lists.
const LISTED_ADDRESSES: usize = 5;

/// The event for a Service that asks for addresses and ports that it does not get.
pub(crate) fn address_refused_event(refused: &[(Frontend, Refusal)]) -> Event {
    let entry = Code::AddressRefused.entry();
    let listed = refused.iter().take(LISTED_ADDRESSES);
    let listed: Vec<String> = listed.map(|(at, why)| format!("{at}: {why}")).collect();
    let more = match refused.len().saturating_sub(LISTED_ADDRESSES) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!("{} ({}{more}); {}", entry.sentence, listed.join(", "), entry.remedy);
    Event { kind: EventType::Warning, reason: Code::AddressRefused.to_string(), message }
}

/// The event for a failed sync, with the reference's reason and message.
pub(crate) fn sync_failed_event(service: &Service, error: &str) -> Event {
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
    use zonewise_common::keys::{ROUTING_PREFERENCE, TOPOLOGY_MODE};
    use zonewise_common::name::Name;
    use zonewise_slices::node::{Node, Nodes};
    use zonewise_slices::plan::{Input, plan};
    use zonewise_slices::pod::Pod;
    use zonewise_slices::requested::requested_routing;
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
    fn planned(service: &Service, pods: usize) -> (RequestedRouting, Plan) {
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
        let requested = requested_routing(service, &settings);
        let input = Input {
            service,
            pods: &pods,
            slices: &[],
            nodes: &nodes,
            measured: None,
            trigger: None,
            populated: false,
            quiet: false,
        };
        let plan = plan(&input, &requested, &settings);
        (requested, plan)
    }

    fn says(service: &Service, pods: usize) -> Vec<(String, String, String)> {
        let (requested, plan) = planned(service, pods);
        conditions(&requested, &plan, &service.conditions, 0)
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
    fn enforced_is_told_when_it_is_known_and_stays_meanwhile() {
        let told = |standing, before: &[Condition]| {
            let condition = enforced_condition(standing, before, 0);
            condition.map(|one| (one.status.to_string(), one.reason.to_string()))
        };
        let of = |code| enforced_condition(Standing::Known(code), &[], 0).unwrap();
        let says = |status: &str, code: Code| Some((status.to_owned(), code.to_string()));
        let failed = [of(Code::HintsNotEnforced)];
        let rows = [
            (Standing::NoHints, &failed[..], None),
            (Standing::Unknown, &[], None),
            (Standing::Unknown, &failed, says("False", Code::HintsNotEnforced)),
            (Standing::Known(Code::HintsEnforced), &failed, says("True", Code::HintsEnforced)),
            (Standing::Known(Code::FloorRefused), &[], says("True", Code::FloorRefused)),
            (Standing::Known(Code::GuardLimitReached), &[], says("False", Code::GuardLimitReached)),
        ];
        for (standing, before, expected) in rows {
            assert_eq!(told(standing, before), expected, "{standing:?}");
        }
        let kept: Vec<_> = enforced_condition(Standing::Unknown, &failed, 9).into_iter().collect();
        assert!(enforced_event(&kept, &failed).is_none());
    }

    #[test]
    fn measured_demand_is_told_when_it_is_known_and_an_event_tells_each_change_once() {
        let demand = Figure::Demand;
        let of = |code| measured_condition(demand, Measured::Known(code), &[], 0).unwrap();
        let full = [of(Code::DemandTableFull)];
        let says = |status: &str, code: Code| Some((status.to_owned(), code.to_string()));
        let warning = Some(EventType::Warning);
        let rows = [
            (Measured::NotAsked, &full[..], None, None),
            (Measured::Unknown, &[], None, None),
            (Measured::Unknown, &full, says("False", Code::DemandTableFull), None),
            (
                Measured::Known(Code::DemandTableFull),
                &full,
                says("False", Code::DemandTableFull),
                None,
            ),
            (
                Measured::Known(Code::DemandTableFull),
                &[],
                says("False", Code::DemandTableFull),
                warning,
            ),
            (
                Measured::Known(Code::DemandOfOneNode),
                &full,
                says("True", Code::DemandOfOneNode),
                warning,
            ),
            (
                Measured::Known(Code::DemandMeasured),
                &full,
                says("True", Code::DemandMeasured),
                Some(EventType::Normal),
            ),
            (
                Measured::Known(Code::TooFewConnections),
                &[],
                says("False", Code::TooFewConnections),
                Some(EventType::Normal),
            ),
        ];
        for (measured, before, expected, event) in rows {
            let now: Vec<Condition> =
                measured_condition(demand, measured, before, 9).into_iter().collect();
            let told = now.first().map(|one| (one.status.to_string(), one.reason.to_string()));
            assert_eq!(told, expected, "{measured:?}");
            let told = measured_events(&now, before);
            assert_eq!(told.first().map(|event| event.kind), event, "{measured:?}");
            assert!(
                now.iter().all(|one| !one.message.contains(|c: char| c.is_ascii_digit())),
                "{now:?}"
            );
        }
    }

    #[test]
    fn endpoints_that_count_by_use_have_a_condition_of_their_own() {
        let full =
            measured_condition(Figure::Demand, Measured::Known(Code::DemandTableFull), &[], 0);
        let before: Vec<Condition> = full.into_iter().collect();
        let rows = [
            (Code::UseNotCollected, "False", EventType::Warning),
            (Code::PodMetricsMissing, "False", EventType::Warning),
            (Code::UseTooOld, "False", EventType::Normal),
            (Code::UseWeighted, "True", EventType::Normal),
        ];
        for (code, status, kind) in rows {
            let mut now = before.clone();
            now.extend(measured_condition(Figure::Use, Measured::Known(code), &before, 9));
            assert_eq!(&*now[1].r#type, "zonewise.dev/RoutingPreferenceWeighted");
            assert_eq!((&*now[1].status, &*now[1].reason), (status, &*code.to_string()));
            let told = measured_events(&now, &before);
            let kinds: Vec<_> = told.iter().map(|event| (&*event.reason, event.kind)).collect();
            assert_eq!(kinds, [(&*code.to_string(), kind)]);
            assert_eq!(measured_events(&now, &now), []);
        }
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
    }

    #[test]
    fn d12_d16_only_who_asks_gets_conditions_and_nobody_when_all_is_off() {
        let ours = Settings::default();
        let upstream = Settings { upstream: true, ..Settings::default() };
        let mut hints_off = Settings::default();
        hints_off.gates.set(Gate::Hints, false);
        let mut all_off = Settings::default();
        Gate::ALL.into_iter().for_each(|gate| all_off.gates.set(gate, false));
        let auto = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let selectorless = Service { selector: None, ..auto.clone() };
        let table = [
            (&auto, &ours, true, "asks"),
            (&auto, &hints_off, true, "its condition says that the gate is off"),
            (&auto, &all_off, false, "no feature is on"),
            (&auto, &upstream, false, "the reference writes none"),
            (&service(&json!({}), &[]), &ours, false, "has nothing but trafficDistribution"),
            (&selectorless, &ours, false, "its slices are somebody else's"),
        ];
        for (service, settings, expected, why) in table {
            assert_eq!(has_conditions(service, settings), expected, "{why}");
        }
    }

    #[test]
    fn d16_the_gate_that_is_off_is_named() {
        let subsets = service(&json!({ROUTING_PREFERENCE: "zonewise.dev/local-subset"}), &[]);
        let mut settings = Settings::default();
        settings.gates.set(Gate::Subsetting, false);
        let accepted = accepted(&requested_routing(&subsets, &settings));
        assert_eq!((accepted.status, accepted.code), ("False", Code::GateOff));
        assert!(accepted.message.contains("(TopologyAwareSubsetting)"), "{}", accepted.message);
    }

    #[test]
    fn a23_the_key_that_loses_is_named() {
        let both = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (requested, plan) = planned(&both, 2);
        let accepted = &conditions(&requested, &plan, &[], 0)[0];
        assert!(
            accepted.message.contains("spec.trafficDistribution `PreferClose`"),
            "{}",
            accepted.message
        );
    }

    #[test]
    fn d10_d12_what_was_not_understood_is_said_once_as_an_event() {
        let misspelt = json!({"zonewise.dev/routing-prefrence": "zonewise.dev/balanced"});
        let wrong = json!({ROUTING_PREFERENCE: "zonewise.dev/balancd"});
        let long = json!({ROUTING_PREFERENCE: format!("zonewise.dev/{}", "x".repeat(200_000))});
        let rows = [
            (misspelt, "KeyUnknown", "did you mean `zonewise.dev/routing-preference`?"),
            (wrong, "PreferenceUnknown", "did you mean `zonewise.dev/balanced`?"),
            (long, "PreferenceUnknown", "xxx…`: this routing preference"),
        ];
        for (annotations, reason, text) in rows {
            let service = service(&annotations, &[]);
            assert!(has_conditions(&service, &Settings::default()), "{annotations}");
            let (requested, plan) = planned(&service, 2);
            let now = conditions(&requested, &plan, &[], 0);
            let event = ignored_event(&now, &[]).unwrap();
            assert_eq!((event.kind, &*event.reason), (EventType::Warning, reason));
            assert_eq!((&*now[0].status, &*now[0].reason), ("False", reason));
            assert!(
                event.message.contains(text) && event.message.len() < 1024,
                "{}",
                event.message
            );
            assert_eq!(ignored_event(&now, &now), None, "the next sync says nothing new");
        }
    }

    #[test]
    fn conditions_keep_the_time_of_the_last_transition() {
        let first = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (requested, plan) = planned(&first, 2);
        let before = conditions(&requested, &plan, &[], 1000);
        let second = service(&json!({TOPOLOGY_MODE: "Auto"}), &before);
        let (requested, plan) = planned(&second, 3);
        let after = conditions(&requested, &plan, &before, 2000);
        assert_eq!(after, before, "other numbers, the same messages");
        let (requested, plan) = planned(&second, 0);
        let gone = conditions(&requested, &plan, &before, 3000);
        assert!(!same_conditions(&gone, &before));
        assert_eq!(
            (&*gone[1].since, &*gone[0].since),
            ("1970-01-01T00:50:00Z", "1970-01-01T00:16:40Z")
        );
        assert_eq!(previous_code(&second).as_deref(), Some("HintsAssigned"));
    }

    #[test]
    fn d12_ready_says_how_far_proxies_are_without_figures() {
        use ServiceReadiness::{Behind, Ready, Refused, Unknown};
        let said = [Unknown, Behind(1234), Refused, Ready].map(|readiness| {
            let ready = ready_condition(readiness, &[], 0);
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
            let (requested, plan) = planned(service, pods);
            conditions(&requested, &plan, before, 0)
        };
        let auto = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let mut before = all(&auto, 2, &[]);
        assert_eq!(previous_ready_status(&before, &before), None, "there was no condition");
        before.push(ready_condition(ServiceReadiness::Ready, &[], 0));
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
            assert_eq!(
                previous_ready_status(&all(service, pods, &before), &before),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn b12_a_transition_is_an_event_with_figures_and_a_remedy() {
        let few = service(&json!({TOPOLOGY_MODE: "Auto"}), &[]);
        let (_, plan) = planned(&few, 0);
        let event = transition_event(&plan);
        assert_eq!((event.kind, event.reason.as_str()), (EventType::Warning, "NoEndpoints"));
        assert!(event.message.contains("selector"), "{}", event.message);
        assert_eq!(second_writer_event().reason, "SecondWriter");
    }
}
