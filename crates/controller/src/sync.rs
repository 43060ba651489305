//! One Service: look, plan, write, tell.
//!
//! ```text
//!  index ─► plan (pure) ─► creates, updates, deletes ─► index, at once
//!                      └─► conditions, events, metrics
//! ```
//!
//! What the server returns to a write goes into the index before the next sync can look, so that
//! no sync ever works on slices older than its own.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::events::{Recorder, Subject};
use zonewise_cluster::lease::Leadership;
use zonewise_cluster::watch::number;
use zonewise_common::event::Event;
use zonewise_common::keys::MANAGED_BY;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Followed, Listener};
use zonewise_inventory::write;
use zonewise_slices::asked::{self, Asked, asked};
use zonewise_slices::node::Nodes;
use zonewise_slices::plan::{FamilyPlan, Input, MissingNode, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::service::{Condition, Service};
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;

use crate::memory::{Memories, retry_delay};
use crate::metrics::{Labels, Metrics};
use crate::proxies::Reports;
use crate::queue::Causes;
use crate::tell;

/// What every sync needs.
pub(crate) struct Syncer<L> {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) followed: Arc<Followed<L>>,
    pub(crate) nodes: watch::Receiver<Arc<Nodes>>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Recorder,
    pub(crate) leadership: Leadership,
}

/// How a sync ended.
pub(crate) enum Ended {
    /// As planned.
    Well,
    /// Something failed that concerns this Service: again after this time.
    Again(Duration),
    /// Nothing would work now.
    Unavailable(String),
    /// Somebody else leads.
    NotLeading,
}

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{doing} for Service {service}: {source}")]
    Write { doing: String, service: String, source: ApiError },
    #[error("{0}")]
    MissingNodes(String),
    #[error("somebody else leads")]
    NotLeading,
}

/// What a sync looks at.
struct Seen {
    service: Arc<Service>,
    pods: Vec<Arc<Pod>>,
    slices: Vec<Arc<Slice>>,
}

impl<L: Listener> Syncer<L> {
    /// Makes the slices of a Service right.
    pub(crate) async fn sync(&self, key: &Key, causes: Causes) -> Ended {
        let start = Instant::now();
        let Some(seen) = self.look(key) else {
            self.memories.forget(key);
            self.reports.forget(key);
            return Ended::Well;
        };
        if !seen.service.is_ours() {
            self.reports.forget(key);
            return Ended::Well;
        }
        let asked = asked(&seen.service, &self.settings);
        let plan = self.plan(key, &seen, &asked);
        let result = self.carry_out(&seen.service, &plan).await;
        self.metrics.ours.duration.observe(start.elapsed().as_secs_f64());
        self.remember(key, &seen.service, &asked, &plan);
        let told = match &result {
            Ok(()) => self.tell(key, &seen.service, &asked, (&plan, causes)).await,
            Err(_) => Ok(()),
        };
        self.emit(&seen.service, plan.events);
        self.end(key, &seen.service, result.and(told))
    }

    fn look(&self, key: &Key) -> Option<Seen> {
        let index = self.followed.index();
        let service = index.service(key)?;
        let slices = index.slices_of(key).into_iter().filter(|slice| self.is_ours(slice)).collect();
        Some(Seen { pods: index.pods_of(&service), slices, service })
    }

    fn is_ours(&self, slice: &Slice) -> bool {
        !slice.deleting && self.settings.manages(slice.labels.get(MANAGED_BY))
    }

    fn plan(&self, key: &Key, seen: &Seen, asked: &Asked) -> Plan {
        let (trigger, populated) = self
            .memories
            .with(key, |memory| (memory.trigger.next(&seen.service, &seen.pods), memory.populated));
        let nodes = Arc::clone(&self.nodes.borrow());
        let input = Input {
            service: &seen.service,
            pods: &seen.pods,
            slices: &seen.slices,
            nodes: &nodes,
            trigger,
            populated,
        };
        plan(&input, asked, &self.settings)
    }

    /// Writes everything; a family that fails does not stop the others.
    async fn carry_out(&self, service: &Service, plan: &Plan) -> Result<(), Failure> {
        let mut failure = None;
        for family in &plan.families {
            if let Err(error) = self.write_family(service, family).await {
                failure.get_or_insert(error);
            }
        }
        for slice in &plan.leftovers {
            if let Err(error) = self.delete(service, slice).await {
                failure.get_or_insert(error);
            }
        }
        let missing = plan.families.iter().flat_map(|family| &family.missing_nodes);
        match (failure, missing_nodes(service, missing)) {
            (Some(failure), _) => Err(failure),
            (None, Some(text)) => Err(Failure::MissingNodes(text)),
            (None, None) => Ok(()),
        }
    }

    async fn write_family(&self, service: &Service, plan: &FamilyPlan) -> Result<(), Failure> {
        let written = |operation, slice: Slice| {
            self.metrics.changes.with([operation]).inc();
            self.followed.index().wrote_slice(slice);
        };
        for slice in &plan.creates {
            self.may_write()?;
            match write::create(&self.client, slice).await {
                Ok(stored) => written("create", stored),
                // Its end is near: nothing to do, and nothing to complain about.
                Err(ApiError::NamespaceTerminating(_)) => return Ok(()),
                Err(source) => {
                    return Err(failure("failed to create EndpointSlice", service, source));
                }
            }
        }
        for slice in &plan.updates {
            self.may_write()?;
            let stored = write::replace(&self.client, slice).await.map_err(|source| {
                let doing = format!("failed to update {} EndpointSlice", slice.name());
                failure(&doing, service, source)
            })?;
            written("update", stored);
        }
        for slice in &plan.deletes {
            self.delete(service, slice).await?;
        }
        Ok(())
    }

    async fn delete(
        &self,
        service: &Service,
        slice: &zonewise_slices::plan::SliceName,
    ) -> Result<(), Failure> {
        self.may_write()?;
        write::delete(&self.client, &service.namespace, slice).await.map_err(|source| {
            let doing = format!("failed to delete {} EndpointSlice", slice.name);
            failure(&doing, service, source)
        })?;
        self.metrics.changes.with(["delete"]).inc();
        let key = (Name::clone(&service.namespace), Name::from(&*slice.name));
        self.followed.index().deleted_slice(&key, &slice.uid);
        Ok(())
    }

    fn may_write(&self) -> Result<(), Failure> {
        if self.leadership.may_write() { Ok(()) } else { Err(Failure::NotLeading) }
    }

    fn remember(&self, key: &Key, service: &Service, asked: &Asked, plan: &Plan) {
        let labels = labels(service, asked);
        for family in &plan.families {
            self.metrics.family(family, &labels);
        }
        self.memories.with(key, |memory| {
            if plan.writes() > 0 {
                memory.written = Some(Instant::now());
            }
            memory.populated = plan.populated;
            memory.allocated =
                plan.families.iter().map(|family| family.allocated.clone()).collect();
            memory.approach = labels.approach.to_owned();
            memory.near = labels.traffic_distribution.to_owned();
            // As the reference: the last family stands for the Service.
            memory.counts = plan.families.last().map(|family| family.counts).unwrap_or_default();
        });
    }

    /// Conditions and events, where something changed.
    async fn tell(
        &self,
        key: &Key,
        service: &Service,
        asked: &Asked,
        (plan, causes): (&Plan, Causes),
    ) -> Result<(), Failure> {
        if causes.only_slices() && plan.writes() > 0 {
            self.rival(key, service);
        }
        if self.settings.upstream {
            return Ok(());
        }
        self.transition(key, service, plan);
        let stored = self.memories.with(key, |memory| memory.conditions.clone());
        let current = stored.as_deref().unwrap_or(&service.conditions);
        let conditions = self.conditions(key, (service, asked, plan), current);
        if tell::same(&conditions, current) {
            return Ok(());
        }
        self.may_write()?;
        let written = write::conditions(&self.client, service, &conditions).await;
        match written {
            Err(ApiError::NotFound(_)) => Ok(()),
            Err(source) => Err(failure("failed to write conditions", service, source)),
            Ok(()) => {
                self.metrics.ours.condition_writes.inc();
                self.memories.with(key, |memory| memory.conditions = Some(conditions));
                Ok(())
            }
        }
    }

    /// What the Service is to be told, as of what was just written.
    fn conditions(
        &self,
        key: &Key,
        (service, asked, plan): (&Service, &Asked, &Plan),
        before: &[Condition],
    ) -> Vec<Condition> {
        let now = jiff::Timestamp::now().as_second();
        let mut conditions = tell::conditions(service, asked, plan, before, now);
        if conditions.is_empty() {
            self.reports.forget(key);
            return conditions;
        }
        let was = tell::ready_before(&conditions, before);
        let standing = self.reports.judge(key, was, self.newest(key));
        conditions.push(tell::ready(standing, before, now));
        conditions
    }

    /// The highest version of a Service's slices; a slice that is gone has none to wait for.
    fn newest(&self, key: &Key) -> u64 {
        let slices = self.followed.index().slices_of(key);
        let ours = slices.iter().filter(|slice| self.is_ours(slice));
        ours.map(|slice| number(&slice.resource_version)).max().unwrap_or(0)
    }

    fn transition(&self, key: &Key, service: &Service, plan: &Plan) {
        let code = tell::settled(plan.reason().code()).to_string();
        let told = tell::is_told(service);
        let before = self.memories.with(key, |memory| {
            let before =
                memory.code.replace(code.as_str().into()).or_else(|| tell::code_before(service));
            let changed = before.as_deref().is_some_and(|before| before != code);
            memory.transitions += u64::from(changed && told);
            before
        });
        // A Service seen for the first time whose traffic goes everywhere is no news.
        let news = before.as_deref().map_or(code != "ClusterWide", |before| before != code);
        if told && news {
            self.emit(service, vec![tell::transition(plan)]);
        }
    }

    fn rival(&self, key: &Key, service: &Service) {
        let say = self.memories.with(key, |memory| memory.rival.corrected(Instant::now()));
        if say {
            tracing::warn!(
                service = service.key(),
                "somebody else writes the slices of this Service too"
            );
            self.metrics.ours.second_writers.inc();
            self.emit(service, vec![tell::second_writer()]);
        }
    }

    fn emit(&self, service: &Service, events: Vec<Event>) {
        for event in events {
            let subject = Subject::service(&service.namespace, &service.name, service.uid.clone());
            if !self.events.record(subject, event) {
                self.metrics.ours.events_dropped.inc();
            }
        }
    }

    fn end(&self, key: &Key, service: &Service, result: Result<(), Failure>) -> Ended {
        let Err(failure) = result else {
            self.metrics.syncs.with(["success"]).inc();
            self.memories.with(key, |memory| memory.retries = 0);
            return Ended::Well;
        };
        match failure {
            Failure::NotLeading => return Ended::NotLeading,
            Failure::Write { source, .. } if source.is_general() => {
                self.metrics.syncs.with(["error"]).inc();
                return Ended::Unavailable(source.to_string());
            }
            _ => {}
        }
        // A conflict means that what we saw was old: the watch will bring what is new.
        let stale = matches!(
            &failure,
            Failure::Write { source: ApiError::Conflict(_) | ApiError::NotFound(_), .. }
        );
        self.metrics.syncs.with([if stale { "stale" } else { "error" }]).inc();
        self.metrics.ours.retries.inc();
        let retries = self.memories.with(key, |memory| {
            memory.retries += 1;
            memory.retries
        });
        if !stale || retries > 1 {
            self.emit(service, vec![tell::failed(service, &failure.to_string())]);
            tracing::warn!(service = service.key(), error = %failure, retries, "sync failed");
        }
        Ended::Again(retry_delay(retries - 1))
    }
}

fn failure(doing: &str, service: &Service, source: ApiError) -> Failure {
    Failure::Write { doing: doing.to_owned(), service: service.key(), source }
}

/// The reference's words for Pods whose node is not known.
fn missing_nodes<'a>(
    service: &Service,
    missing: impl Iterator<Item = &'a MissingNode>,
) -> Option<String> {
    let text = |missing: &MissingNode| {
        format!(
            "skipping Pod {} for Service {}: Node {} Not Found",
            missing.pod,
            service.key(),
            missing.node
        )
    };
    let mut texts: Vec<String> = Vec::new();
    for text in missing.map(text) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn labels<'a>(service: &'a Service, asked: &'a Asked) -> Labels<'a> {
    let auto = asked::is_auto(service);
    let near = asked::traffic_distribution(service).filter(|_| !auto);
    Labels {
        topology: if auto { "Auto" } else { "Disabled" },
        traffic_distribution: near.and(service.traffic_distribution.as_deref()).unwrap_or(""),
        approach: asked.choice.name(),
    }
}
