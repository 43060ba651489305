//! What people are told: conditions and events, on transitions only. Pure.

use zonewise_slices::asked::{Asked, Note};
use zonewise_slices::plan::{Event, EventType, Plan};
use zonewise_slices::service::{
    CONDITION_PREFIX, Condition, ROUTING_PREFERENCE, SUBSETTING, Service, TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
};
use zonewise_slices::wire::timestamp;
use zonewise_topology::reason::{Code, Outcome, Reason};

/// Keys whose users expect an answer. `trafficDistribution` alone is the API's own: its users get
/// what they know, and no status is written for thousands of Services on the first day.
const ANSWERED: [&str; 4] = [ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_MODE, TOPOLOGY_AWARE_HINTS];

/// Whether a Service is told how its routing stands.
pub(crate) fn is_told(service: &Service) -> bool {
    service.topology_keys || ANSWERED.iter().any(|key| service.annotations.get(key).is_some())
}

/// The one reason that stands for all address families: the first that is not as asked.
pub(crate) fn reason(plan: &Plan) -> Reason {
    let reasons = || plan.families.iter().map(|family| family.reason);
    let fallback = reasons().find(|reason| reason.outcome() != Outcome::InForce);
    fallback.or_else(|| reasons().next()).unwrap_or(Reason::ClusterWide)
}

/// The code that people see: one for hints, whether new or kept.
pub(crate) fn settled(code: Code) -> Code {
    match code {
        Code::HintsKept => Code::HintsAssigned,
        Code::SubsetsKept => Code::SubsetsAssigned,
        other => other,
    }
}

/// Conditions as they should be. Without figures: a number that changes by itself would be a
/// write that wakes everybody who watches Services.
pub(crate) fn conditions(service: &Service, asked: &Asked, plan: &Plan, now: i64) -> Vec<Condition> {
    if !is_told(service) {
        return Vec::new();
    }
    let code = settled(reason(plan).code());
    let programmed = code.entry().outcome == Outcome::InForce;
    let proxies = Code::NoProxyReports;
    [
        accepted(asked),
        ("Programmed", if programmed { "True" } else { "False" }, code, sentence(code)),
        ("Ready", "Unknown", proxies, sentence(proxies)),
    ]
    .into_iter()
    .map(|parts| condition(service, parts, now))
    .collect()
}

type Parts = (&'static str, &'static str, Code, String);

fn condition(service: &Service, (suffix, status, code, message): Parts, now: i64) -> Condition {
    let kind = format!("{CONDITION_PREFIX}{suffix}");
    let before = service.conditions.iter().find(|known| *known.r#type == *kind);
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
        "nothing to do" => entry.sentence.to_owned(),
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
    let says = |one: &Condition, other: &Condition| {
        one.r#type == other.r#type
            && one.status == other.status
            && one.reason == other.reason
            && one.message == other.message
    };
    let within = |some: &[Condition], all: &[Condition]| {
        some.iter().all(|one| all.iter().any(|other| says(one, other)))
    };
    a.len() == b.len() && within(a, b)
}

/// The code that was in force before, as the Service itself remembers it.
pub(crate) fn code_before(service: &Service) -> Option<Box<str>> {
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let before = service.conditions.iter().find(|condition| *condition.r#type == *kind);
    before.map(|condition| condition.reason.clone())
}

/// The event for a transition.
pub(crate) fn transition(plan: &Plan) -> Event {
    let reason = reason(plan);
    let entry = reason.code().entry();
    let kind = match entry.outcome {
        Outcome::InForce => EventType::Normal,
        Outcome::Fallback | Outcome::Failed | Outcome::Setting => EventType::Warning,
    };
    let message = match entry.remedy {
        "nothing to do" => reason.to_string(),
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
