//! Everything about one Service: what was asked, the arithmetic, the outcome, who will do what with
//! it, what would turn it on and what would turn it off.

use std::borrow::Cow;

use serde::Serialize;
use zonewise_routing::FeatureGates;
use zonewise_slices::requested::Consumers;
use zonewise_slices::service::Service;
use zonewise_topology::allocation::Allocation;
use zonewise_topology::explanation as numbers;
use zonewise_topology::heuristic::Case;
use zonewise_topology::heuristics;
use zonewise_topology::reason::{Code, Outcome, Reason};
use zonewise_topology::traffic::TrafficModel;

use crate::change::Stage;
use crate::margin::{Margin, margin};
use crate::matrix::{Matrix, matrices};
use crate::scene::Verdict;
use crate::view::View;
use crate::ways::{Way, ways};

/// The document `explanation`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The Service.
    pub service: String,
    /// The address family it speaks of: the first that is not as asked, else the first.
    pub family: String,
    /// What `zones` are: zones, or regions where those have slices of their own.
    pub grouped_by: &'static str,
    /// What was asked, the arithmetic, the outcome.
    #[serde(flatten)]
    pub numbers: numbers::Explanation,
    /// Where the documentation explains the reason.
    pub docs: String,
    /// Keys that were not understood or lost.
    pub notes: Vec<Note>,
    /// The reason in every address family.
    pub families: Vec<FamilyReason>,
    /// The Pods behind it.
    pub pods: Pods,
    /// The slices that are there, and what the controller would write.
    pub slices: Slices,
    /// In-zone part of the traffic under each heuristic.
    pub in_zone_by_heuristic: Vec<Score>,
    /// What each kind of consumer will do.
    pub consumers: Vec<Consumer>,
    /// The smallest changes that turn it on.
    pub changes: Vec<Way>,
    /// What it survives, where it is on.
    pub margin: Option<Margin>,
}

/// A key that is not in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// The key.
    pub source: String,
    /// Its value.
    pub value: String,
    /// Why it is not in force.
    pub reason: Code,
    /// The same for people.
    pub sentence: String,
}

/// The reason in one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyReason {
    /// The family.
    pub family: String,
    /// The reason.
    pub reason: Code,
    /// What it means for routing.
    pub outcome: Outcome,
}

/// Pods that the selector matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// All.
    pub selected: usize,
    /// Those that are ready and stay.
    pub ready: usize,
    /// Those on nodes that are not known.
    pub on_unknown_nodes: usize,
}

/// Slices there are, and what the controller would do to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slices {
    /// Slices of the Service.
    pub stored: usize,
    /// Of these, written by others than this controller.
    pub of_others: usize,
    /// To create.
    pub creates: usize,
    /// To update.
    pub updates: usize,
    /// To delete.
    pub deletes: usize,
}

/// A heuristic and what it would keep in the zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// The heuristic.
    pub heuristic: String,
    /// The reason it would give.
    pub reason: Code,
    /// Part of the traffic that stays in its zone; absent when some zone reaches no endpoint.
    pub in_zone: Option<f64>,
    /// Load above its fair share of the most loaded endpoint.
    pub max_overload: Option<f64>,
}

/// A kind of consumer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    /// Its name.
    pub consumer: &'static str,
    /// What it needs, or does differently.
    pub remark: &'static str,
    /// The address family.
    pub family: String,
    /// What it does in each zone; empty where it does nothing by itself.
    pub from: Vec<ConsumerZone>,
    /// Part of the traffic that stays in its zone.
    pub in_zone: Option<f64>,
}

/// A consumer in a zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerZone {
    /// The zone.
    pub zone: String,
    /// How far traffic goes.
    pub mode: String,
    /// Why.
    pub reason: Code,
    /// Part of the zone's traffic that stays.
    pub in_zone: f64,
}

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The arithmetic alone.
    Arithmetic,
    /// Also consumers, changes and margin.
    Full,
}

/// Explains a Service. `view` is what consumers see of it now, `kind` which of them the nodes run.
///
/// # Errors
/// If an object is not what consumers expect.
pub fn explain(
    stage: &Stage,
    verdict: &Verdict,
    view: &View<'_>,
    (depth, kind): (Depth, Kind),
) -> Result<Explanation, serde_json::Error> {
    let numbers = numbers(stage, verdict);
    let family = verdict.family(&stage.scene.service).to_string();
    let mut explanation = Explanation {
        service: stage.scene.service.key(),
        docs: numbers.reason.docs(),
        grouped_by: grouped_by(verdict),
        numbers,
        notes: verdict.asked.notes.iter().map(Note::from).collect(),
        families: families(verdict),
        pods: pods(stage, verdict),
        slices: slices(stage, verdict),
        in_zone_by_heuristic: Vec::new(),
        consumers: Vec::new(),
        changes: Vec::new(),
        margin: None,
        family,
    };
    if depth == Depth::Full {
        explanation.look_around(stage, verdict, (view, kind))?;
    }
    Ok(explanation)
}

impl Explanation {
    /// Adds what takes trying: consumers, changes, margin.
    fn look_around(
        &mut self,
        stage: &Stage,
        verdict: &Verdict,
        (view, kind): (&View<'_>, Kind),
    ) -> Result<(), serde_json::Error> {
        self.in_zone_by_heuristic = scores(stage, verdict);
        self.consumers = consumers(stage, verdict, view)?;
        if view.is_local()? {
            // Hints mean nothing to this traffic, so nothing is to be turned on or off.
            self.notes.push(Note::local_policy());
        } else {
            self.changes = ways(stage);
            self.margin = margin(stage);
        }
        if self.grouped_by == "region" {
            return Ok(());
        }
        self.numbers.in_zone.now = now(stage, view, (kind, &self.family))?.in_zone();
        let same = |consumer: &&Consumer| {
            consumer.consumer == kind.name() && consumer.family == self.family
        };
        if let Some(consumer) = self.consumers.iter().find(same) {
            self.numbers.in_zone.planned = consumer.in_zone;
            let near = consumer.from.iter().any(|zone| zone.mode != "any");
            if verdict.is_on() && !near && self.slices.of_others > 0 && !consumer.from.is_empty() {
                self.notes.push(Note::foreign_slices(stage));
            }
        }
        Ok(())
    }
}

/// What the stored slices do to traffic.
pub struct Now(Option<Matrix>);

impl Now {
    /// Part of the traffic that stays in its zone; `None` where nothing is stored or no proxy routes it.
    pub fn in_zone(&self) -> Option<f64> {
        self.0.as_ref().and_then(|matrix| matrix.in_zone)
    }

    /// How far traffic goes, each way once.
    pub fn modes(&self) -> Vec<String> {
        let rows = self.0.iter().flat_map(|matrix| &matrix.from);
        let mut modes: Vec<String> = rows.map(|row| row.mode.clone()).collect();
        modes.sort();
        modes.dedup();
        modes
    }
}

/// What the slices that are stored do to the traffic of a family, with a kind of consumer.
///
/// # Errors
/// If an object is not what consumers expect.
pub fn now(
    stage: &Stage,
    view: &View<'_>,
    (kind, family): (Kind, &str),
) -> Result<Now, serde_json::Error> {
    if stage.scene.slices.is_empty() {
        return Ok(Now(None));
    }
    let settings = kind.settings(&stage.scene.service);
    let mut all = matrices(view, &stage.scene.nodes, &settings)?.into_iter();
    Ok(Now(all.find(|matrix| matrix.family == family)))
}

fn grouped_by(verdict: &Verdict) -> &'static str {
    match verdict.asked.choice.consumers() {
        Some(Consumers::Regions) => "region",
        Some(Consumers::Zones) | None => "zone",
    }
}

/// The arithmetic; the reason is the plan's own.
fn numbers(stage: &Stage, verdict: &Verdict) -> numbers::Explanation {
    let asked = &verdict.asked;
    let slices = stage.scene.own_slices(&stage.settings);
    let input = stage.scene.input(&slices);
    let grounds = input.grounds(&asked.choice, verdict.family(&stage.scene.service));
    let heuristic = asked.choice.heuristic();
    let said = numbers::Asked { value: asked.value.clone(), source: asked.source.into() };
    let previous = grounds.previous.as_ref();
    let explained =
        numbers::explain(said, grounds.capacity, &grounds.situation, &*heuristic, previous);
    explained.because(verdict.reason())
}

fn families(verdict: &Verdict) -> Vec<FamilyReason> {
    let line = |family: &zonewise_slices::plan::FamilyPlan| FamilyReason {
        family: family.family.to_string(),
        reason: family.reason.code(),
        outcome: family.reason.outcome(),
    };
    verdict.plan.families.iter().map(line).collect()
}

impl From<&zonewise_slices::requested::RequestNote> for Note {
    fn from(note: &zonewise_slices::requested::RequestNote) -> Self {
        Self {
            source: note.source.into(),
            value: note.value.clone(),
            reason: note.reason.code(),
            sentence: note.reason.to_string(),
        }
    }
}

impl Note {
    fn local_policy() -> Self {
        let entry = Code::LocalOnly.entry();
        Self {
            source: "spec.internalTrafficPolicy".into(),
            value: "Local".into(),
            reason: entry.code,
            sentence: entry.sentence.into(),
        }
    }

    /// Slices of other writers without hints make consumers ignore all hints.
    fn foreign_slices(stage: &Stage) -> Self {
        let own = stage.scene.own_slices(&stage.settings);
        let foreign = stage.scene.slices.iter().filter(|slice| !own.contains(slice));
        let names: Vec<&str> = foreign.map(|slice| slice.name()).collect();
        let entry = Code::HintMissing.entry();
        Self {
            source: "slices of other writers".into(),
            value: names.join(", "),
            reason: entry.code,
            sentence: format!("{}; {}", entry.sentence, entry.remedy),
        }
    }
}

fn pods(stage: &Stage, verdict: &Verdict) -> Pods {
    let ready = |pod: &&std::sync::Arc<zonewise_slices::pod::Pod>| {
        pod.is_considered() && pod.ready && !pod.terminating
    };
    let missing = verdict.plan.families.iter().map(|family| family.missing_nodes.len()).max();
    Pods {
        selected: stage.scene.pods.len(),
        ready: stage.scene.pods.iter().filter(ready).count(),
        on_unknown_nodes: missing.unwrap_or(0),
    }
}

fn slices(stage: &Stage, verdict: &Verdict) -> Slices {
    let (stored, plan) = (stage.scene.slices.len(), &verdict.plan);
    let sum = |of: fn(&zonewise_slices::plan::FamilyPlan) -> usize| {
        plan.families.iter().map(of).sum::<usize>()
    };
    Slices {
        stored,
        of_others: stored - stage.scene.own_slices(&stage.settings).len(),
        creates: sum(|family| family.creates.len()),
        updates: sum(|family| family.updates.len()),
        deletes: sum(|family| family.deletes.len()) + plan.leftovers.len(),
    }
}

/// Every heuristic on the same numbers, as if it were asked for now.
pub fn scores(stage: &Stage, verdict: &Verdict) -> Vec<Score> {
    let slices = stage.scene.own_slices(&stage.settings);
    let input = stage.scene.input(&slices);
    let grounds = input.grounds(&verdict.asked.choice, verdict.family(&stage.scene.service));
    let region = grounds.situation.region();
    let (mut allocation, mut model) = (Allocation::new(), TrafficModel::new());
    let names = heuristics::names().into_iter();
    let parsed = names.filter_map(|name| Some((name, stage.settings.heuristic(name).ok()?)));
    parsed
        .map(|(name, heuristic)| {
            let case = Case::fresh(region);
            let names = &grounds.situation.names;
            let reason: Reason = heuristic.allocate_named(&case, names, &mut allocation);
            let usable = reason.outcome() != Outcome::Failed;
            let traffic = if usable { model.run(&region, &allocation) } else { None };
            Score {
                heuristic: name.into(),
                reason: reason.code(),
                in_zone: traffic.map(|traffic| traffic.in_zone),
                max_overload: traffic.map(|traffic| traffic.max_overload),
            }
        })
        .collect()
}

/// What consumers do once the plan is carried out, family by family. The first port stands for all.
fn consumers(
    stage: &Stage,
    verdict: &Verdict,
    view: &View<'_>,
) -> Result<Vec<Consumer>, serde_json::Error> {
    let service = &stage.scene.service;
    if service.headless {
        return Ok(vec![Consumer {
            consumer: "clients",
            remark: "the Service is headless: clients get every address by DNS and choose \
                     themselves; no proxy and no hint is involved",
            family: String::new(),
            from: Vec::new(),
            in_zone: None,
        }]);
    }
    let slices = stage.scene.slices_after(&verdict.plan);
    let texts = slices.iter().map(|slice| serde_json::to_string(slice).map(Cow::Owned));
    let planned = View { service: view.service.clone(), slices: texts.collect::<Result<_, _>>()? };
    let mut consumers = Vec::new();
    for kind in Kind::ALL {
        let all = matrices(&planned, &stage.scene.nodes, &kind.settings(service))?;
        for family in &verdict.plan.families {
            let family = family.family.to_string();
            let matrix = all.iter().find(|matrix| matrix.family == family).cloned();
            consumers.push(Consumer {
                consumer: kind.name(),
                remark: kind.remark(),
                in_zone: matrix.as_ref().and_then(|matrix| matrix.in_zone),
                from: matrix.map(zones).unwrap_or_default(),
                family,
            });
        }
    }
    Ok(consumers)
}

fn zones(matrix: Matrix) -> Vec<ConsumerZone> {
    let zone = |row: crate::matrix::Row| ConsumerZone {
        in_zone: row.to.get(&row.zone).copied().unwrap_or(0.0),
        zone: row.zone,
        mode: row.mode,
        reason: row.reason,
    };
    matrix.from.into_iter().map(zone).collect()
}

/// A kind of consumer: what runs on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Our proxy.
    #[default]
    Zonewise,
    /// kube-proxy.
    KubeProxy,
    /// Cilium.
    Cilium,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Zonewise, Self::KubeProxy, Self::Cilium];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zonewise => "zonewise proxy",
            Self::KubeProxy => "kube-proxy",
            Self::Cilium => "Cilium",
        }
    }

    fn remark(self) -> &'static str {
        match self {
            Self::Zonewise => "uses node hints, zone shares, zone hints and subsets",
            Self::KubeProxy => {
                "uses node and zone hints; zone shares and subset labels mean nothing to it"
            }
            Self::Cilium => {
                "uses hints with loadBalancer.serviceTopology=true, and then only where the Service \
                 has trafficDistribution or the topology annotation"
            }
        }
    }

    /// What it looks at.
    fn settings(self, service: &Service) -> FeatureGates {
        let all = FeatureGates::default();
        let hints_only = FeatureGates { shares: false, subsetting: false, ..all };
        match self {
            Self::Zonewise => all,
            Self::KubeProxy => hints_only,
            Self::Cilium => {
                let routing_preference = service.traffic_distribution.is_some();
                FeatureGates { routing_preference, ..hints_only }
            }
        }
    }
}
