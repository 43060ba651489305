//! What is active here and now, for one Service: the answer that comes first. Pure.
//!
//! What nodes do with the stored slices is one thing, what zonewise's controller decides is another. The
//! first is the verdict. The second is the reason for it only where that controller runs; elsewhere it is
//! told as what would be.

use serde::Serialize;
use zonewise_topology::reason::Code;
use zonewise_topology::words::percent;

use crate::environment::{Component, Decider, Environment, FactSource, ProxyKind};
use crate::matrix::{Matrix, Row};
use crate::now::{Now, modes};
use crate::screens::counted;
use crate::service_kind::ServiceKind;

/// What is active here and now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// What is active.
    pub state: State,
    /// The same in one line, with figures.
    pub sentence: String,
    /// Why, in one line.
    pub why: String,
    /// What zonewise needs to run for the decision to have effect.
    pub needs: Vec<Component>,
    /// What of that does not run here, or is not known to.
    pub missing: Vec<Component>,
}

/// What is active here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Every node keeps traffic closer than without zone routing.
    Active,
    /// Some nodes do.
    PartlyActive,
    /// No node does.
    NotActive,
    /// Traffic stays on its node, because `internalTrafficPolicy` is Local.
    Local,
    /// No proxy routes the Service.
    NotApplicable,
    /// It cannot be found out.
    Unknown,
}

impl State {
    /// The state in a word or two.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::PartlyActive => "partly active",
            Self::NotActive => "not active",
            Self::Local => "local",
            Self::NotApplicable => "not applicable",
            Self::Unknown => "unknown",
        }
    }
}

/// What zonewise's controller decides for the Service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decided<'a> {
    /// The reason.
    pub(crate) reason: Code,
    /// The reason as a sentence, with figures.
    pub(crate) sentence: &'a str,
    /// The part of the traffic that stays in its zone once that is carried out, if that is known.
    pub(crate) in_zone: Option<f64>,
    /// What of zonewise it needs.
    pub(crate) needs: &'a [Component],
    /// Whether the built-in controller decides the same.
    pub(crate) built_in_agrees: bool,
}

/// The verdict about a Service. `decided` is absent for Services whose slices the controller does not write.
pub(crate) fn verdict(
    kind: ServiceKind,
    environment: &Environment,
    now: &Now,
    decided: Option<Decided<'_>>,
) -> Verdict {
    let state = state(kind, environment, now);
    let applied = decided.filter(|_| kind == ServiceKind::Routed);
    let needs = applied.map_or_else(Vec::new, |decided| decided.needs.to_vec());
    let missing = needs.iter().copied().filter(|component| is_missing(*component, environment));
    Verdict {
        sentence: format!("{}: {}", state.word(), sentence(kind, state, environment, now)),
        why: match applied {
            Some(decided) => why(&decided, environment),
            None => why_not(kind).to_owned(),
        },
        missing: missing.collect(),
        needs,
        state,
    }
}

/// What is active, by what nodes do.
pub(crate) fn state(kind: ServiceKind, environment: &Environment, now: &Now) -> State {
    match (kind, now) {
        (kind, _) if !kind.has_proxy() => State::NotApplicable,
        (ServiceKind::LocalPolicy, _) => State::Local,
        // A cluster shows all its slices.
        (_, Now::Nowhere) if environment.source == FactSource::Cluster => State::NotActive,
        (_, Now::Nowhere | Now::NoSender | Now::ByProxy(_)) => State::Unknown,
        (_, Now::Known(matrix)) if matrix.is_local() => State::Local,
        (_, Now::Known(matrix)) => state_of(matrix),
    }
}

fn state_of(matrix: &Matrix) -> State {
    if matrix.from.iter().all(Row::is_near_everywhere) {
        State::Active
    } else if matrix.from.iter().any(Row::is_near) {
        State::PartlyActive
    } else {
        State::NotActive
    }
}

fn is_missing(component: Component, environment: &Environment) -> bool {
    match component {
        Component::Controller => !environment.has_controller(),
        Component::Proxy => environment.nodes_with(ProxyKind::Zonewise) < environment.nodes,
    }
}

fn sentence(kind: ServiceKind, state: State, environment: &Environment, now: &Now) -> String {
    match (kind, now) {
        (ServiceKind::ExternalName, _) => "an alias in DNS, which no proxy routes".into(),
        (ServiceKind::Headless, _) => {
            "headless, so clients get every address by DNS and choose themselves".into()
        }
        (_, Now::Nowhere) => nowhere(environment).into(),
        (_, Now::NoSender) => "no node that counts has a zone label".into(),
        (_, Now::ByProxy(all)) => by_proxy(all),
        (_, Now::Known(matrix)) if matrix.is_local() => local(matrix),
        (_, Now::Known(matrix)) => known(state, matrix),
    }
}

fn nowhere(environment: &Environment) -> &'static str {
    match environment.source {
        FactSource::Files => "the input has no EndpointSlice of it",
        FactSource::Cluster => "no EndpointSlice of it is stored, so connections fail",
    }
}

fn known(state: State, matrix: &Matrix) -> String {
    if matrix.endpoints.is_empty() {
        return "there is no endpoint, so connections fail".into();
    }
    let stays = stays(matrix);
    match state {
        State::NotActive => format!("every node uses all endpoints; {stays}"),
        State::PartlyActive => {
            let far = matrix.from.iter().filter(|row| !row.is_near_everywhere());
            let zones: Vec<&str> = far.map(|row| row.zone.as_str()).take(NAMED).collect();
            format!("not for all nodes of {}; {stays}", zones.join(", "))
        }
        _ => format!("{}; {stays}", modes(matrix).join(", ")),
    }
}

/// The number of zones or nodes that are named.
const NAMED: usize = 5;

fn stays(matrix: &Matrix) -> String {
    match matrix.in_zone {
        Some(part) => format!("{} of the traffic stays in its zone", percent(part)),
        None => format!("{} of the traffic is dropped", percent(matrix.dropped)),
    }
}

fn local(matrix: &Matrix) -> String {
    if matrix.dropping_nodes.is_empty() {
        return "traffic stays on its node; every node that counts has an endpoint, and none is dropped"
            .into();
    }
    let (nodes, dropped) = (&matrix.dropping_nodes, percent(matrix.dropped));
    let named: Vec<&str> = nodes.iter().take(NAMED).map(String::as_str).collect();
    let more = match nodes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "traffic stays on its node; {dropped} of it is dropped, that of {} without an endpoint: {}{more}",
        counted(nodes.len(), "node"),
        named.join(", ")
    )
}

/// What the proxies would do, where it is not known which ones run.
fn by_proxy(all: &[(ProxyKind, Matrix)]) -> String {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (kind, matrix) in all {
        let does = format!("{} ({})", stays(matrix), modes(matrix).join(", "));
        match groups.iter_mut().find(|(_, known)| *known == does) {
            Some((kinds, _)) => kinds.push(kind.name()),
            None => groups.push((vec![kind.name()], does)),
        }
    }
    let texts = groups.iter().map(|(kinds, does)| format!("with {} {does}", kinds.join(" or ")));
    format!(
        "it depends on the proxy of nodes, which is not known: {}",
        texts.collect::<Vec<_>>().join("; ")
    )
}

/// The reason, if whoever decides so runs here; otherwise what would be, and what does not run.
fn why(decided: &Decided<'_>, environment: &Environment) -> String {
    let Decided { reason, sentence, in_zone, needs, built_in_agrees } = *decided;
    let built_in = environment.built_in_controller.state;
    if environment.decider == Decider::BuiltIn && !built_in.is_running() {
        let state = built_in.word();
        return format!("if the built-in controller runs here ({state}): {reason}: {sentence}");
    }
    let mut absent = Vec::new();
    let is_decided = environment.has_decider() || built_in_agrees && built_in.is_running();
    if !is_decided {
        absent.push(format!("its controller: {}", environment.controller.state.word()));
    }
    if needs.contains(&Component::Proxy) && is_missing(Component::Proxy, environment) {
        let nodes = environment.nodes_with(ProxyKind::Zonewise);
        absent.push(format!("its proxy: on {nodes} of {} nodes", environment.nodes));
    }
    if absent.is_empty() {
        return format!("{reason}: {sentence}");
    }
    let stays = in_zone.map_or_else(String::new, |part| {
        format!("; {} of the traffic would stay in its zone", percent(part))
    });
    format!("if zonewise ran here ({}): {reason}: {sentence}{stays}", absent.join(", "))
}

fn why_not(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::ExternalName => "its type is ExternalName: it has no endpoints",
        ServiceKind::Headless => "it has no cluster IP: no proxy and no hint is involved",
        ServiceKind::LocalPolicy => {
            "internalTrafficPolicy is Local: hints, subsets and zone shares are not used"
        }
        ServiceKind::WithoutSelector => {
            "it has no selector: others write its EndpointSlices, zonewise and the built-in \
             controller write none"
        }
        ServiceKind::Routed => "the controller writes its EndpointSlices",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Finding, RunState};

    /// A cluster of three nodes with these controllers, and zonewise's proxy on some nodes.
    fn here(controller: RunState, built_in: RunState, proxies: usize) -> Environment {
        let finding = |state| Finding { state, evidence: String::new() };
        let mut here = Environment::assumed(ProxyKind::Zonewise);
        here.controller = finding(controller);
        here.built_in_controller = finding(built_in);
        here.nodes = 3;
        here.proxies[0].nodes = proxies;
        here
    }

    #[test]
    fn a_decision_is_the_reason_only_where_what_it_needs_runs() {
        use RunState::{NotFound, Running, Stopped, Unknown};
        let both = [Component::Controller, Component::Proxy];
        let plain = "SharesBalanced: even";
        let would = |what: &str| {
            format!(
                "if zonewise ran here ({what}): SharesBalanced: even; 71 % of the traffic would stay in its \
                 zone"
            )
        };
        for (controller, built_in, proxies, needs, agrees, expected) in [
            (Running, NotFound, 3, &both[..], false, plain.to_owned()),
            (Running, NotFound, 1, &both, false, would("its proxy: on 1 of 3 nodes")),
            (Stopped, Running, 3, &both, false, would("its controller: stopped")),
            (
                NotFound,
                Running,
                0,
                &both,
                false,
                would("its controller: not found, its proxy: on 0 of 3 nodes"),
            ),
            (Unknown, Unknown, 0, &[], true, would("its controller: unknown")),
            (NotFound, Running, 0, &[], true, plain.to_owned()),
            (NotFound, Stopped, 0, &[], true, would("its controller: not found")),
        ] {
            let environment = here(controller, built_in, proxies);
            let decided = Decided {
                reason: Code::SharesBalanced,
                sentence: "even",
                in_zone: Some(0.71),
                needs,
                built_in_agrees: agrees,
            };
            let told = verdict(ServiceKind::Routed, &environment, &Now::Nowhere, Some(decided));
            assert_eq!(told.why, expected);
            assert_eq!(told.needs, needs);
            let missing = told.missing.len();
            assert_eq!(
                missing == 0,
                !told.why.contains("proxy:") && (controller == Running || needs.is_empty())
            );
        }
    }

    #[test]
    fn the_built_in_controller_s_decision_is_told_as_its_own() {
        let mut environment = here(RunState::Running, RunState::NotFound, 3);
        environment.decider = Decider::BuiltIn;
        let decided = Decided {
            reason: Code::HintsAssigned,
            sentence: "hinted",
            in_zone: None,
            needs: &[],
            built_in_agrees: true,
        };
        let why = |environment: &Environment| {
            verdict(ServiceKind::Routed, environment, &Now::Nowhere, Some(decided)).why
        };
        let would = "if the built-in controller runs here (not found): HintsAssigned: hinted";
        assert_eq!(why(&environment), would);
        environment.built_in_controller.state = RunState::Running;
        assert_eq!(why(&environment), "HintsAssigned: hinted");
    }
}
