//! Syncs one Service: reads its objects from the index, plans, writes, and reports.
//!
//! ```text
//!  index ─► plan (pure) ─► creates, updates, deletes ─► index, at once
//!                      └─► conditions, events, metrics
//! ```
//!
//! The server's answer to a write goes into the index before the next sync of the Service can start, so
//! that no sync ever works on slices that are older than this controller's own writes.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::events::{EventRecorder, InvolvedObject};
use zonewise_cluster::lease::Leadership;
use zonewise_cluster::watch::version_number;
use zonewise_common::clock;
use zonewise_common::event::Event;
use zonewise_common::keys::{MANAGED_BY, TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE};
use zonewise_common::name::{Key, Name};
use zonewise_demand::window::MAX_SERVICES;
use zonewise_inventory::follow::{IndexListener, WatchedIndex};
use zonewise_inventory::write::{self, SliceWriter};
use zonewise_slices::node::Nodes;
use zonewise_slices::plan::{FamilyPlan, Input, MissingNode, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{self, RequestedRouting, requested_routing};
use zonewise_slices::service::{Condition, Service};
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;

use crate::because::Blame;
use crate::demand::Demand;
use crate::guard::Guard;
use crate::metrics::{Metrics, SyncLabels};
use crate::progress::Progress;
use crate::proxies::ProxyReadiness;
use crate::queue::Causes;
use crate::state::{ServiceStates, retry_delay, server_retry_delay};
use crate::status::{self, Figure};

/// What every worker needs for a sync.
pub(crate) struct Syncer<L> {
    pub(crate) client: Client,
    pub(crate) writer: SliceWriter,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) watched: Arc<WatchedIndex<L>>,
    pub(crate) nodes: watch::Receiver<Arc<Nodes>>,
    pub(crate) states: Arc<ServiceStates>,
    pub(crate) readiness: Arc<ProxyReadiness>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: EventRecorder,
    pub(crate) leadership: Leadership,
    pub(crate) role: Role,
}

/// How a sync ended.
pub(crate) enum SyncOutcome {
    /// Everything was written. If there is something to gain once the Service is quiet, it is synced
    /// again after this delay.
    Done(Option<Duration>),
    /// Something failed that concerns only this Service. It is synced again after this delay.
    Retry(Duration),
    /// The write of an object failed on the server's side, or took too long. The Service is synced again after the
    /// delay.
    Failed(Duration, String),
    /// The API server is not available. All workers should wait.
    Unavailable(String),
    /// This replica does not lead any more.
    NotLeading,
}

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("{action} for Service {service}: {source}")]
    Write { action: String, service: String, source: ApiError },
    #[error("{0}")]
    MissingNodes(String),
    #[error("this replica does not lead any more")]
    NotLeading,
}

/// The objects that a sync is based on.
pub(crate) struct ServiceObjects {
    pub(crate) service: Arc<Service>,
    pods: Vec<Arc<Pod>>,
    pub(crate) slices: Vec<Arc<Slice>>,
}

impl ServiceObjects {
    /// The same with these slices.
    pub(crate) fn with_slices(&self, slices: Vec<Arc<Slice>>) -> Self {
        Self { service: Arc::clone(&self.service), pods: self.pods.clone(), slices }
    }
}

/// What a sync writes.
pub(crate) enum Role {
    /// The slices and conditions of Services.
    Controller,
    /// The hints in the slices of the built-in controller.
    Guard(Guard),
    /// Nothing.
    Observer,
}

impl<L: IndexListener> Syncer<L> {
    /// Brings the slices and conditions of a Service into their desired state, and notes the progress.
    pub(crate) async fn sync(&self, key: &Key, causes: Causes, progress: &Progress) -> SyncOutcome {
        let start = Instant::now();
        let Some(objects) = self.read(key) else {
            self.states.forget(key);
            self.readiness.forget(key);
            if let Role::Guard(guard) = &self.role {
                guard.forget(key);
            }
            return SyncOutcome::Done(None);
        };
        match &self.role {
            Role::Controller => {}
            Role::Guard(guard) => {
                let result = self.sync_guarded(guard, key, &objects, causes, progress).await;
                self.metrics.own.duration.observe(start.elapsed().as_secs_f64());
                return self.end(key, &objects.service, result);
            }
            Role::Observer => {
                let again = self.observe(key, &objects);
                self.metrics.own.duration.observe(start.elapsed().as_secs_f64());
                return self.end(key, &objects.service, Ok(again));
            }
        }
        self.report_refused_addresses(key, &objects.service);
        if !objects.service.is_ours() {
            self.readiness.forget(key);
            let cleared = self.write_conditions(key, &objects.service, Vec::new(), progress).await;
            return self.end(key, &objects.service, cleared.map(|()| None));
        }
        let settings = self.settings();
        let mut requested = requested_routing(&objects.service, &settings);
        if self.demand.is_unwatched(key) {
            requested.note_unwatched_failures(&objects.service, MAX_SERVICES as u64);
        }
        let labels = labels(&requested);
        let plan = self.plan(key, &objects, &requested, &settings);
        let blame = self.blame(key, causes);
        let result = self.write(&objects.service, &plan, &labels, progress).await;
        if result.is_ok() {
            self.count_measured(blame, plan.writes());
        }
        self.leave(key, blame, plan.improvement().is_some());
        self.metrics.own.duration.observe(start.elapsed().as_secs_f64());
        let again = self.remember(key, &plan, &labels, &settings);
        let reported = match &result {
            // Pods without a node are left out; the slices of all others are as planned.
            Ok(()) | Err(SyncError::MissingNodes(_)) => {
                self.report(key, &objects.service, &requested, &plan, causes, progress).await
            }
            Err(_) => Ok(()),
        };
        self.emit(&objects.service, plan.events);
        self.end(key, &objects.service, result.and(reported).map(|()| again))
    }

    /// What led to a sync for these causes.
    pub(crate) fn blame(&self, key: &Key, causes: Causes) -> Blame {
        Blame::of(causes, self.states.with(key, |state| state.unfinished))
    }

    /// Counts writes of slices that are the doing of what was measured.
    pub(crate) fn count_measured(&self, blame: Blame, writes: usize) {
        if let Some(because) = blame.because() {
            self.metrics.own.demand_writes.with([because.label()]).add(writes as u64);
        }
    }

    /// Notes what led to slices that are not yet as they might be.
    pub(crate) fn leave(&self, key: &Key, blame: Blame, unfinished: bool) {
        self.states.with(key, |state| state.unfinished = unfinished.then_some(blame));
    }

    /// Plans, and keeps the result for metrics alone. Returns when to plan again.
    fn observe(&self, key: &Key, objects: &ServiceObjects) -> Option<Duration> {
        if !objects.service.is_ours() {
            return None;
        }
        let settings = self.settings();
        let requested = requested_routing(&objects.service, &settings);
        let plan = self.plan(key, objects, &requested, &settings);
        let code = status::shown_code(plan.reason().code()).to_string();
        self.states.with(key, |state| state.code = Some(code.into()));
        self.remember(key, &plan, &labels(&requested), &settings)
    }

    /// Reads the objects of a Service from the index; `None` if it does not exist.
    fn read(&self, key: &Key) -> Option<ServiceObjects> {
        let index = self.watched.index();
        let service = index.service(key)?;
        let slices = index.slices_of(key).into_iter().filter(|slice| self.is_ours(slice)).collect();
        Some(ServiceObjects { pods: index.pods_of(&service), slices, service })
    }

    /// The settings that are in force now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    fn is_ours(&self, slice: &Slice) -> bool {
        !slice.deleting && self.settings.borrow().manages(slice.labels.get(MANAGED_BY))
    }

    pub(crate) fn plan(
        &self,
        key: &Key,
        objects: &ServiceObjects,
        requested: &RequestedRouting,
        settings: &Settings,
    ) -> Plan {
        let period = settings.settles_after();
        let (trigger, populated, quiet) = self.states.with(key, |state| {
            let trigger = state.trigger.next(&objects.service, &objects.pods);
            (trigger, state.populated, state.quiet.is_over(period, Instant::now()))
        });
        let nodes = Arc::clone(&self.nodes.borrow());
        // While a zone is being emptied nothing may be kept that is only good enough: the limit was computed for what a
        // fresh decision gives.
        let quiet = quiet || !nodes.evacuations.is_empty();
        let measured = self.demand.zones_of(key, requested, &nodes);
        let input = Input {
            service: &objects.service,
            pods: &objects.pods,
            slices: &objects.slices,
            nodes: &nodes,
            measured: measured.as_ref(),
            trigger,
            populated,
            quiet,
        };
        plan(&input, requested, settings)
    }

    /// Writes the slices. If one address family fails, the others are written all the same.
    async fn write(
        &self,
        service: &Service,
        plan: &Plan,
        labels: &SyncLabels<'_>,
        progress: &Progress,
    ) -> Result<(), SyncError> {
        let mut failure = None;
        for family in &plan.families {
            match self.write_family(service, family, progress).await {
                Ok(()) => self.metrics.written(family, labels),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        for slice in &plan.leftovers {
            if let Err(error) = self.delete(service, slice, progress).await {
                failure.get_or_insert(error);
            }
        }
        let missing = plan.families.iter().flat_map(|family| &family.missing_nodes);
        match (failure, missing_nodes(service, missing)) {
            (Some(failure), _) => Err(failure),
            (None, Some(text)) => Err(SyncError::MissingNodes(text)),
            (None, None) => Ok(()),
        }
    }

    async fn write_family(
        &self,
        service: &Service,
        plan: &FamilyPlan,
        progress: &Progress,
    ) -> Result<(), SyncError> {
        let written = |operation, slice: Slice| {
            self.metrics.changes.with([operation]).inc();
            self.watched.index().record_written_slice(slice);
        };
        for slice in &plan.creates {
            match self.send(self.writer.create(slice), progress).await? {
                Ok(stored) => written("create", stored),
                // The Service will be deleted with its namespace, so this is not an error.
                Err(ApiError::NamespaceTerminating(_)) => return Ok(()),
                Err(source) => {
                    return Err(write_error("failed to create EndpointSlice", service, source));
                }
            }
        }
        for slice in &plan.updates {
            let stored = self.send(self.writer.replace(slice), progress).await?;
            let stored = stored.map_err(|source| {
                let action = format!("failed to update {} EndpointSlice", slice.name());
                write_error(&action, service, source)
            })?;
            written("update", stored);
        }
        for slice in &plan.deletes {
            self.delete(service, slice, progress).await?;
        }
        Ok(())
    }

    async fn delete(
        &self,
        service: &Service,
        slice: &zonewise_slices::plan::SliceName,
        progress: &Progress,
    ) -> Result<(), SyncError> {
        let request = write::delete(&self.client, &service.namespace, slice);
        self.send(request, progress).await?.map_err(|source| {
            let action = format!("failed to delete {} EndpointSlice", slice.name);
            write_error(&action, service, source)
        })?;
        self.metrics.changes.with(["delete"]).inc();
        let key = (Name::clone(&service.namespace), Name::from(&*slice.name));
        self.watched.index().record_deleted_slice(&key, &slice.uid);
        Ok(())
    }

    /// Sends a write, if this replica may write, and notes that it was answered.
    pub(crate) async fn send<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
        progress: &Progress,
    ) -> Result<Result<T, ApiError>, SyncError> {
        if !self.leadership.may_write() {
            return Err(SyncError::NotLeading);
        }
        let answer = request.await;
        progress.answered();
        Ok(answer)
    }

    /// Notes what was planned. Returns when to sync the Service again, if it is to be quiet until then.
    pub(crate) fn remember(
        &self,
        key: &Key,
        plan: &Plan,
        labels: &SyncLabels<'_>,
        settings: &Settings,
    ) -> Option<Duration> {
        for family in &plan.families {
            self.metrics.planned(family, labels);
        }
        let (now, wrote) = (Instant::now(), plan.writes() > 0);
        self.states.with(key, |state| {
            if wrote {
                state.written = Some(now);
            }
            state.populated = plan.populated;
            state.hints_per_zone =
                plan.families.iter().map(|family| family.hints_per_zone.clone()).collect();
            state.approach = labels.approach.to_owned();
            state.traffic_distribution = labels.traffic_distribution.to_owned();
            // As in the reference, the last address family counts for the whole Service.
            state.counts = plan.families.last().map(|family| family.counts).unwrap_or_default();
            state.quiet.synced(plan.improvement(), wrote, settings.settles_after(), now)
        })
    }

    /// Writes the conditions and emits the events that have changed.
    async fn report(
        &self,
        key: &Key,
        service: &Service,
        requested: &RequestedRouting,
        plan: &Plan,
        causes: Causes,
        progress: &Progress,
    ) -> Result<(), SyncError> {
        if causes.only_slices() && plan.writes() > 0 {
            self.report_second_writer(key, service);
        }
        self.report_transition(key, service, plan);
        let conditions = self.conditions(key, service, requested, plan);
        let before = self.stored_conditions(key, service);
        let ignored = status::ignored_event(&conditions, &before);
        let measured = status::measured_events(&conditions, &before);
        self.write_conditions(key, service, conditions, progress).await?;
        // After the write, so that an attempt that fails does not lead to two events.
        self.emit(service, ignored.into_iter().chain(measured).collect());
        Ok(())
    }

    /// The conditions that the Service has: those that this process wrote last, because the watch may be
    /// behind.
    pub(crate) fn stored_conditions(&self, key: &Key, service: &Service) -> Vec<Condition> {
        let written = self.states.with(key, |state| state.conditions.clone());
        written.unwrap_or_else(|| service.conditions.to_vec())
    }

    /// Writes the conditions of a Service, unless it has them already.
    pub(crate) async fn write_conditions(
        &self,
        key: &Key,
        service: &Service,
        conditions: Vec<Condition>,
        progress: &Progress,
    ) -> Result<(), SyncError> {
        if status::same_conditions(&conditions, &self.stored_conditions(key, service)) {
            return Ok(());
        }
        match self.send(write::conditions(&self.client, service, &conditions), progress).await? {
            Err(ApiError::NotFound(_)) => Ok(()),
            Err(source) => Err(write_error("failed to write conditions", service, source)),
            Ok(()) => {
                self.metrics.own.condition_writes.inc();
                self.states.with(key, |state| state.conditions = Some(conditions));
                Ok(())
            }
        }
    }

    /// The conditions of a Service after its slices were written.
    fn conditions(
        &self,
        key: &Key,
        service: &Service,
        requested: &RequestedRouting,
        plan: &Plan,
    ) -> Vec<Condition> {
        if !status::has_conditions(service, &self.settings()) {
            self.readiness.forget(key);
            return Vec::new();
        }
        let now = clock::now().as_second();
        let before = self.stored_conditions(key, service);
        let mut conditions = status::conditions(requested, plan, &before, now);
        let was = status::previous_ready_status(&conditions, &before);
        let standing = self.readiness.evaluate(key, was, self.newest(key));
        conditions.push(status::ready_condition(standing, &before, now));
        let demand = self.demand.told(key, requested.demand);
        let by_use = self.demand.told_of_use(key, requested.endpoint_weight);
        for (figure, measured) in [(Figure::Demand, demand), (Figure::Use, by_use)] {
            conditions.extend(status::measured_condition(figure, measured, &before, now));
        }
        conditions
    }

    /// The highest resource version among the slices of a Service.
    fn newest(&self, key: &Key) -> u64 {
        let slices = self.watched.index().slices_of(key);
        let ours = slices.iter().filter(|slice| self.is_ours(slice));
        ours.map(|slice| version_number(&slice.resource_version)).max().unwrap_or(0)
    }

    /// Emits an event and counts a transition when the reason code has changed.
    pub(crate) fn report_transition(&self, key: &Key, service: &Service, plan: &Plan) {
        let code = status::shown_code(plan.reason().code()).to_string();
        let reported = status::has_conditions(service, &self.settings());
        let before = self.states.with(key, |state| {
            let before =
                state.code.replace(code.as_str().into()).or_else(|| status::previous_code(service));
            let changed = before.as_deref().is_some_and(|before| before != code);
            state.transitions += u64::from(changed && reported);
            before
        });
        // A Service that is seen for the first time and uses all endpoints needs no event.
        let changed = before.as_deref().map_or(code != "ClusterWide", |before| before != code);
        if reported && changed {
            self.emit(service, vec![status::transition_event(plan)]);
        }
    }

    /// Reports the addresses that proxies do not give to the Service, when they have changed.
    fn report_refused_addresses(&self, key: &Key, service: &Service) {
        if self.settings.borrow().upstream {
            return;
        }
        let refused = self.watched.refused_frontends(key);
        let changed = self.states.with(key, |state| {
            let changed = state.refused != refused;
            state.refused.clone_from(&refused);
            changed
        });
        if changed && !refused.is_empty() {
            self.emit(service, vec![status::address_refused_event(&refused)]);
        }
    }

    /// Counts a correction of another program's write, and reports that program when it keeps writing.
    fn report_second_writer(&self, key: &Key, service: &Service) {
        let noticed = self.states.with(key, |state| state.second_writer.corrected(Instant::now()));
        if noticed {
            tracing::warn!(
                service = service.key(),
                "another program writes the slices of this Service too"
            );
            self.metrics.own.second_writers.inc();
            self.emit(service, vec![status::second_writer_event()]);
        }
    }

    pub(crate) fn emit(&self, service: &Service, events: Vec<Event>) {
        for event in events {
            let subject =
                InvolvedObject::service(&service.namespace, &service.name, service.uid.clone());
            if !self.events.record(subject, event) {
                self.metrics.own.events_dropped.inc();
            }
        }
    }

    /// Counts the result of a sync and decides what happens next.
    fn end(
        &self,
        key: &Key,
        service: &Service,
        result: Result<Option<Duration>, SyncError>,
    ) -> SyncOutcome {
        let failure = match result {
            Ok(again) => {
                self.metrics.syncs.with(["success"]).inc();
                self.states.with(key, |state| state.retries = 0);
                return SyncOutcome::Done(again);
            }
            Err(failure) => failure,
        };
        match failure {
            SyncError::NotLeading => return SyncOutcome::NotLeading,
            SyncError::Write { source, .. } if source.is_general() => {
                self.metrics.syncs.with(["error"]).inc();
                return SyncOutcome::Unavailable(source.to_string());
            }
            _ => {}
        }
        // A conflict means that the index is behind the API server; the watch will catch up.
        let stale = matches!(
            &failure,
            SyncError::Write { source: ApiError::Conflict(_) | ApiError::NotFound(_), .. }
        );
        self.metrics.syncs.with([if stale { "stale" } else { "error" }]).inc();
        let retries = self.states.with(key, |state| {
            state.retries += 1;
            state.retries
        });
        if !stale || retries > 1 {
            self.emit(service, vec![status::sync_failed_event(service, &failure.to_string())]);
            tracing::warn!(service = service.key(), error = %failure, failures = retries, "a sync failed");
        }
        match (self.retry(key, service, retries), failure) {
            (
                SyncOutcome::Retry(delay),
                SyncError::Write { source: ApiError::Failed(error), .. },
            ) => {
                let upstream = self.settings.borrow().upstream;
                SyncOutcome::Failed(server_retry_delay(delay, upstream), error)
            }
            (outcome, _) => outcome,
        }
    }

    /// Tries again later, or gives the Service up until something about it changes.
    fn retry(&self, key: &Key, service: &Service, failures: u32) -> SyncOutcome {
        if let Some(delay) = retry_delay(failures, self.settings.borrow().upstream) {
            self.metrics.own.retries.inc();
            return SyncOutcome::Retry(delay);
        }
        tracing::warn!(
            service = service.key(),
            failures,
            "no more retries for this Service until it changes: with compat=upstream, as kube-controller-manager does"
        );
        self.states.with(key, |state| state.retries = 0);
        SyncOutcome::Done(None)
    }
}

pub(crate) fn write_error(action: &str, service: &Service, source: ApiError) -> SyncError {
    SyncError::Write { action: action.to_owned(), service: service.key(), source }
}

/// The reference's message for Pods whose node does not exist.
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

/// The labels under which metrics of a Service are counted. As in the reference, those of a key are set
/// while that key is in force.
pub(crate) fn labels(requested: &RequestedRouting) -> SyncLabels<'_> {
    let auto = [TOPOLOGY_MODE, TOPOLOGY_AWARE_HINTS].contains(&requested.source);
    let by_field = requested.source == requested::TRAFFIC_DISTRIBUTION;
    SyncLabels {
        topology: if auto { "Auto" } else { "Disabled" },
        traffic_distribution: if by_field { &requested.value } else { "" },
        approach: requested.choice.name(),
    }
}
