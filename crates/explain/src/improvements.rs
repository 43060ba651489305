//! What makes zone routing better that is on already: endpoints where a zone has none, more of them where some are
//! overloaded, or another request. Only what was tried, and what is better by the figures that it gives.

use serde::Serialize;
use zonewise_common::keys::{DOMAIN, ROUTING_PREFERENCE};
use zonewise_topology::reason::Code;

use crate::change::{Change, ControllerView};
use crate::environment::ProxyKind;
use crate::explanation::zonal_best;
use crate::matrix::matrices;
use crate::service_snapshot::Decision;
use crate::suggestions::{annotate, needs, remove_stronger, spread};

/// The limit of KEP-2433 for the overload of an endpoint.
const LIMIT: f64 = 0.2;

/// Whether an endpoint gets so much more than its share that something should be done.
pub(crate) fn is_overloaded(overload: f64) -> bool {
    // Figures carry six digits.
    overload > LIMIT + 1e-6
}

/// Changes that together make zone routing better.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Improvement {
    /// The changes. All of them are needed.
    pub steps: Vec<Change>,
    /// The changes as sentences or commands.
    pub sentences: Vec<String>,
    /// The reason after the changes.
    pub then: Code,
    /// The part of the traffic that stays in its zone after the changes.
    pub in_zone: f64,
    /// The overload of the most loaded endpoint after the changes.
    pub max_overload: f64,
}

/// What proxies do with what is planned.
#[derive(Clone, Copy)]
struct Figures {
    in_zone: f64,
    max_overload: f64,
}

/// A difference that is worth a change.
const WORTH: f64 = 0.05;
/// More endpoints than this are not suggested.
const MAX_ADDED: u64 = 20;
/// Bounds the work of one search to a fraction of a second: the number of tries times zones times Pods. Nothing is
/// searched for Services that are larger.
const MAX_EFFORT: usize = 200_000;

/// What makes zone routing better, the change that keeps what the Service asks for first. None if it is off, or
/// good already.
pub(crate) fn improvements(
    view: &ControllerView,
    decision: &Decision,
    proxy_kind: ProxyKind,
) -> Vec<Improvement> {
    let regional = decision.asked.choice.consumers().is_some();
    let zones = view.objects.nodes.zones_counted.zones.len();
    let tries = MAX_EFFORT / ((view.objects.pods.len() + 10) * (zones + 1));
    if !view.is_on() || regional || tries == 0 {
        return Vec::new();
    }
    let Some(now) = figures(view, proxy_kind) else { return Vec::new() };
    let least = zonal_best(view, decision).unwrap_or(now.in_zone).min(now.in_zone);
    let better = |after: &Figures| {
        let relieved =
            now.max_overload - after.max_overload >= WORTH && after.in_zone >= least - 0.01;
        let nearer = after.in_zone - now.in_zone >= WORTH
            && after.max_overload <= now.max_overload.max(LIMIT);
        relieved || nearer
    };
    let mut candidates: Vec<Vec<Change>> = Vec::new();
    let needs = needs(view, decision);
    if is_overloaded(now.max_overload) || needs.iter().any(|need| need.endpoints == 0.0) {
        let good = |steps: &Vec<Change>| {
            let after = figures(&view.with_all(steps), proxy_kind);
            after.is_some_and(|after| better(&after) && !is_overloaded(after.max_overload))
        };
        let mut more = (1..=MAX_ADDED.min(tries as u64)).map(|count| spread(&needs, count));
        candidates.extend(more.find(good));
        candidates.extend(balanced(view, decision));
    }
    let tried = candidates.into_iter().filter_map(|steps| {
        let after = view.with_all(&steps);
        let figures = figures(&after, proxy_kind).filter(better)?;
        Some(improvement(view, &after, steps, figures))
    });
    tried.collect()
}

/// The request that balances load, if the controller knows it.
fn balanced(view: &ControllerView, decision: &Decision) -> Option<Vec<Change>> {
    let mut steps = remove_stronger(&decision.asked);
    steps.push(annotate(ROUTING_PREFERENCE, &format!("{DOMAIN}balanced")));
    (!view.settings.upstream).then_some(steps)
}

fn improvement(
    view: &ControllerView,
    after: &ControllerView,
    steps: Vec<Change>,
    figures: Figures,
) -> Improvement {
    Improvement {
        sentences: steps.iter().map(|step| step.sentence(&view.objects.service)).collect(),
        steps,
        then: after.reason().code(),
        in_zone: figures.in_zone,
        max_overload: figures.max_overload,
    }
}

/// What proxies of one kind do with what is planned; `None` if no proxy routes the Service or a zone reaches no
/// endpoint.
fn figures(view: &ControllerView, proxy_kind: ProxyKind) -> Option<Figures> {
    let decision = view.decide();
    let service = &view.objects.service;
    // Everything that is read here was read before, or is written by ourselves.
    let planned = view.planned(&decision).ok()?;
    let all = matrices(&planned, &view.objects.senders(), &proxy_kind.gates(service)).ok()?;
    let family = decision.family(service).to_string();
    let matrix = all.into_iter().find(|matrix| matrix.family == family)?;
    Some(Figures { in_zone: matrix.in_zone?, max_overload: matrix.max_overload()? })
}
