//! Syncs one Service in guard mode: its allocation, its floor, and the slices that the policy has not seen since.
//!
//! ```text
//!  Service asks for hints     binding ─► floor ─► allocation ─► touch the slices that lack its hints ─► conditions
//!  Service does not any more  allocation without effect ─► a moment ─► floor, slices given back ─► allocation deleted
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use zonewise_cluster::api::ApiError;
use zonewise_common::clock;
use zonewise_common::name::Key;
use zonewise_inventory::follow::{Cause, IndexListener};
use zonewise_inventory::guard as requests;
use zonewise_slices::guard::{Floor, FloorStep, Guarded, ZoneAllocation, floor_step, guarded};
use zonewise_slices::plan::Plan;
use zonewise_slices::requested::{RequestedRouting, is_auto, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;
use zonewise_topology::reason::Code;

use super::keeper::Reservation;
use super::{Allocations, IN_FORCE_AFTER, Policy, QuotaHolder};
use crate::progress::Progress;
use crate::queue::Causes;
use crate::status::{self, Figure, Standing};
use crate::sync::{ServiceObjects, SyncError, Syncer, labels, write_error};

/// So many touches in a row may leave slices without their hints before an event says so: the API server learns of an
/// allocation a moment after it was written.
const MAX_FRUITLESS_TOUCHES: u32 = 4;
/// The delay before slices without their hints are touched again; it doubles up to …
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// … this. One Service at a time is touched sooner, …
const LAST_DELAY: Duration = Duration::from_secs(30);
/// … after so long at most: as soon as one has its hints, the others are touched, too. They take turns, because what keeps
/// hints from one Service may be its own fault.
const PROBE_DELAY: Duration = Duration::from_secs(4);

/// What guard mode keeps in memory. Losing it does no harm.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) allocations: Arc<Allocations>,
    policy: Arc<Policy>,
    states: Mutex<States>,
}

#[derive(Debug, Default)]
struct States {
    by_service: BTreeMap<Key, State>,
    probe: Option<Probe>,
}

/// The Service that is touched more often than the others that lack their hints, to see whether hints are written again.
#[derive(Debug)]
struct Probe {
    service: Key,
    /// Whether it was touched since it is its turn. Its turn ends when it is touched once more.
    was_touched: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Touches in a row after which slices still had no hints.
    fruitless_touches: u32,
    /// When the allocation was put out of effect.
    released: Option<Instant>,
}

impl Guard {
    pub(crate) fn new(allocations: Arc<Allocations>, policy: Arc<Policy>) -> Self {
        Self { allocations, policy, states: Mutex::default() }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn forget(&self, service: &Key) {
        self.forget_state(service);
        self.policy.leave(service);
    }

    fn forget_state(&self, service: &Key) {
        self.states.lock().by_service.remove(service);
    }

    /// Notes how many slices lack their hints although they were touched. Returns when to touch them again, and the
    /// Services that should be touched now: those that lack hints, too, once one of them has got its own, or the one whose
    /// turn it is to look out for them.
    fn touched(&self, service: &Key, lacking: usize) -> (Option<Duration>, Vec<Key>) {
        let mut states = self.states.lock();
        let state = states.by_service.entry(service.clone()).or_default();
        let had_fruitless = state.fruitless_touches > 0;
        state.released = None;
        state.fruitless_touches = if lacking == 0 { 0 } else { state.fruitless_touches + 1 };
        let fruitless_touches = state.fruitless_touches;
        if fruitless_touches == 0 {
            let waiting =
                if had_fruitless { states.lacking().cloned().collect() } else { Vec::new() };
            return (None, waiting);
        }
        let (last, next) = states.turn(service);
        (Some(delay(fruitless_touches).min(last)), next.into_iter().collect())
    }

    fn with<T>(&self, service: &Key, work: impl FnOnce(&mut State) -> T) -> T {
        work(self.states.lock().by_service.entry(service.clone()).or_default())
    }
}

impl States {
    /// The Services that were touched in vain.
    fn lacking(&self) -> impl Iterator<Item = &Key> {
        self.by_service.iter().filter(|(_, state)| state.fruitless_touches > 0).map(|(key, _)| key)
    }

    /// Notes a touch after which the slices of a Service still had no hints. Returns the longest delay before it is touched
    /// again, and whose turn it is from now on, if that changes.
    fn turn(&mut self, service: &Key) -> (Duration, Option<Key>) {
        let probe = self.probe.take();
        let is_lacking = |probe: &Probe| self.lacking().any(|key| *key == probe.service);
        let Some(probe) = probe.filter(is_lacking) else {
            self.probe = Some(Probe { service: service.clone(), was_touched: true });
            return (PROBE_DELAY, None);
        };
        if probe.service != *service {
            self.probe = Some(probe);
            return (LAST_DELAY, None);
        }
        let next = self.lacking().find(|key| *key > service).or_else(|| self.lacking().next());
        match next.filter(|next| probe.was_touched && *next != service).cloned() {
            Some(next) => {
                self.probe = Some(Probe { service: next.clone(), was_touched: false });
                (LAST_DELAY, Some(next))
            }
            None => {
                self.probe = Some(Probe { was_touched: true, ..probe });
                (PROBE_DELAY, None)
            }
        }
    }
}

/// One Service during its sync.
struct Subject<'a> {
    guard: &'a Guard,
    key: &'a Key,
    service: &'a Service,
    /// Its slices as they are stored.
    slices: &'a [Arc<Slice>],
    progress: &'a Progress,
}

/// What became of the floor in this sync.
#[derive(Clone, Copy)]
struct FloorState {
    /// To be noted in the allocation.
    noted: Option<Floor>,
    refused: bool,
}

/// What became of the slices in this sync.
struct Enforced {
    /// When to look again, if some lack their hints.
    again: Option<Duration>,
    /// Slices that have got their hints.
    written: usize,
}

impl<L: IndexListener> Syncer<L> {
    /// Brings everything that guard mode writes for a Service into its desired state. Returns when to sync it again.
    pub(crate) async fn sync_guarded(
        &self,
        guard: &Guard,
        key: &Key,
        objects: &ServiceObjects,
        causes: Causes,
        progress: &Progress,
    ) -> Result<Option<Duration>, SyncError> {
        let blame = self.blame(key, causes);
        let (service, slices, settings) = (&*objects.service, &*objects.slices, self.settings());
        let subject = Subject { guard, key, service, slices, progress };
        let requested = requested_routing(service, &settings);
        let before = guard.allocations.get(service);
        // What is in force is what the allocation says, also while a slice does not show it.
        let in_force = objects.with_slices(match &before {
            Some(allocation) => allocation.admitted_all(slices),
            None => slices.to_vec(),
        });
        let plan = self.plan(key, &in_force, &requested, &settings);
        let again = self.remember(key, &plan, &labels(&requested), &settings);
        let is_possible = service.is_ours() && !service.deleting;
        let asked = if is_possible { guarded(&requested) } else { Guarded::Nothing };
        let reservation = self.reserve(&subject, asked);
        if reservation.is_some() {
            self.bind(&subject).await?;
        }
        let (allocation, floor) = match asked {
            Guarded::Nothing => (None, None),
            Guarded::Hints(_) if reservation.is_none() => (None, None),
            Guarded::FloorOnly(floor) => {
                let FloorState { noted, .. } = self.floor(&subject, floor, before.as_ref()).await?;
                let allocation = ZoneAllocation { floor: noted, ..ZoneAllocation::default() };
                (noted.is_some().then_some(allocation), None)
            }
            Guarded::Hints(floor) => {
                let state = self.floor(&subject, floor, before.as_ref()).await?;
                let planned = ZoneAllocation::of(&plan, &in_force.slices);
                (Some(ZoneAllocation { floor: state.noted, ..planned }), Some(state))
            }
        };
        let retry = match &allocation {
            Some(allocation) => {
                let Enforced { again, written } =
                    self.enforce(&subject, before.as_ref(), allocation).await?;
                self.count_measured(blame, written);
                again
            }
            None => self.give_back(&subject, before).await?,
        };
        self.leave(key, blame, retry.is_some() || plan.improvement().is_some());
        let standing = match (asked, floor) {
            (Guarded::Hints(_), None) => Standing::Known(Code::GuardLimitReached),
            (_, None) => Standing::NoHints,
            (_, Some(floor)) => standing(guard.with(key, |state| state.fruitless_touches), floor),
        };
        self.report_guarded(&subject, &requested, &plan, standing).await?;
        Ok(retry.or(again))
    }

    /// A place in the quota of names for a Service that asks for hints, if there is one. The Service keeps it at least as
    /// long as the reservation exists.
    fn reserve<'a>(&self, subject: &Subject<'a>, asked: Guarded) -> Option<Reservation<'a>> {
        let Guard { allocations, policy, .. } = subject.guard;
        match asked {
            Guarded::Nothing | Guarded::FloorOnly(_) => {
                policy.leave(subject.key);
                None
            }
            Guarded::Hints(_) => policy.reserve(subject.key, || self.in_force(allocations)),
        }
    }

    /// The Services whose hints are in force.
    fn in_force(&self, allocations: &Allocations) -> Vec<QuotaHolder> {
        allocations.in_force(|key| self.watched.index().service(key).is_some())
    }

    /// Binds the policy or the webhook to the Service, unless that is done: before the allocation is written that says that
    /// it is needed.
    async fn bind(&self, subject: &Subject<'_>) -> Result<(), SyncError> {
        let Guard { allocations, policy, .. } = subject.guard;
        if policy.is_bound(subject.key) {
            return Ok(());
        }
        let in_force = || self.in_force(allocations);
        let request = policy.put_in_place(&self.client, subject.key, in_force);
        let answer = self.send(request, subject.progress).await?;
        answer.map_err(|error| {
            failed("install the policy binding or webhook for its hints", subject, error)
        })
    }

    /// Brings the floor into its desired state.
    async fn floor(
        &self,
        subject: &Subject<'_>,
        wanted: Floor,
        before: Option<&ZoneAllocation>,
    ) -> Result<FloorState, SyncError> {
        let before = before.and_then(|allocation| allocation.floor);
        let step = |service: &Service| {
            floor_step(wanted, before, service.traffic_distribution.as_deref(), is_auto(service))
        };
        let stored = async {
            let request = requests::stored_service(&self.client, subject.key);
            let answer = self.send(request, subject.progress).await?;
            answer.map_err(|error| failed("read the Service", subject, error))
        };
        let kept = |noted| Ok(FloorState { noted, refused: false });
        let refused = Ok(FloorState { noted: None, refused: true });
        match confirmed(step, before, subject.service, stored).await? {
            FloorStep::Keep(noted) => kept(noted),
            FloorStep::Withdraw => kept(Some(Floor::Withdrawn)),
            FloorStep::Refuse => refused,
            FloorStep::Set(floor) => match self.set_floor(subject, floor).await? {
                Ok(set) => kept(Some(set)),
                Err(ApiError::Conflict(_)) => refused,
                Err(error) => Err(failed("set spec.trafficDistribution", subject, error)),
            },
        }
    }

    /// Sets the floor, by its older name if the API server rejects the newer one. Returns what was set.
    async fn set_floor(
        &self,
        subject: &Subject<'_>,
        floor: Floor,
    ) -> Result<Result<Floor, ApiError>, SyncError> {
        let set = |floor: Floor| async move {
            let request = requests::set_floor(&self.client, subject.key, floor.value());
            let answer = self.send(request, subject.progress).await?;
            Ok::<_, SyncError>(answer.map(|_| floor))
        };
        match (set(floor).await?, floor.older_name()) {
            (Err(ApiError::Refused(_)), Some(older)) => set(older).await,
            (answer, _) => Ok(answer),
        }
    }

    /// Writes the allocation, and touches the slices that lack its hints.
    async fn enforce(
        &self,
        subject: &Subject<'_>,
        before: Option<&ZoneAllocation>,
        allocation: &ZoneAllocation,
    ) -> Result<Enforced, SyncError> {
        if before != Some(allocation) {
            self.allocate(subject, allocation).await?;
        }
        let (mut lacking, mut written) = (0, 0);
        for slice in subject.slices.iter().filter(|slice| !allocation.is_applied_to(slice)) {
            let touched = self.send(requests::touch(&self.client, slice), subject.progress).await?;
            match touched {
                Err(ApiError::NotFound(_)) => continue,
                Err(error) => return Err(failed("touch an EndpointSlice", subject, error)),
                Ok(stored) => {
                    let is_applied = allocation.is_applied_to(&stored);
                    lacking += usize::from(!is_applied);
                    written += usize::from(is_applied);
                    self.watched.index().record_written_slice(stored);
                }
            }
            self.metrics.changes.with(["touch"]).inc();
        }
        let (again, waiting) = subject.guard.touched(subject.key, lacking);
        self.watched.listener.changed(Cause::Service, waiting);
        Ok(Enforced { again, written })
    }

    async fn allocate(
        &self,
        subject: &Subject<'_>,
        allocation: &ZoneAllocation,
    ) -> Result<(), SyncError> {
        let request = requests::allocate(&self.client, subject.service, allocation);
        match self.send(request, subject.progress).await? {
            Ok(stored) => {
                subject.guard.allocations.note(stored);
                Ok(())
            }
            Err(ApiError::NamespaceTerminating(_)) => Ok(()),
            Err(error) => Err(failed("write the ZoneAllocation", subject, error)),
        }
    }

    /// Takes back what guard mode has written, in steps that can be repeated. The allocation goes last, because it is
    /// what shows that there is something to take back.
    async fn give_back(
        &self,
        subject: &Subject<'_>,
        before: Option<ZoneAllocation>,
    ) -> Result<Option<Duration>, SyncError> {
        let Some(before) = before else {
            subject.guard.forget_state(subject.key);
            return Ok(None);
        };
        if before.has_effect() {
            let idle = ZoneAllocation { floor: before.floor, ..ZoneAllocation::default() };
            self.allocate(subject, &idle).await?;
            let now = Instant::now();
            subject.guard.with(subject.key, |state| state.released = Some(now));
            return Ok(Some(IN_FORCE_AFTER));
        }
        let released = subject.guard.with(subject.key, |state| state.released);
        let left = released.map(|at| IN_FORCE_AFTER.saturating_sub(at.elapsed()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Ok(Some(left));
        }
        let request = requests::set_floor(&self.client, subject.key, None);
        match self.send(request, subject.progress).await? {
            Ok(_) | Err(ApiError::NotFound(_)) => {}
            Err(error) => return Err(failed("give back spec.trafficDistribution", subject, error)),
        }
        for slice in subject.slices {
            let request = requests::release(&self.client, subject.service, slice);
            match self.send(request, subject.progress).await? {
                Ok(Some(stored)) => self.watched.index().record_written_slice(stored),
                Ok(None) | Err(ApiError::NotFound(_)) => {}
                Err(error) => return Err(failed("give back an EndpointSlice", subject, error)),
            }
        }
        let request = requests::delete_allocation(&self.client, subject.key);
        let answer = self.send(request, subject.progress).await?;
        answer.map_err(|error| failed("delete the ZoneAllocation", subject, error))?;
        subject.guard.allocations.forget(subject.key);
        subject.guard.forget_state(subject.key);
        Ok(None)
    }

    /// Writes the conditions and emits the events that have changed.
    async fn report_guarded(
        &self,
        subject: &Subject<'_>,
        requested: &RequestedRouting,
        plan: &Plan,
        standing: Standing,
    ) -> Result<(), SyncError> {
        let Subject { key, service, progress, .. } = *subject;
        if !status::has_conditions(service, &self.settings()) {
            return self.write_conditions(key, service, Vec::new(), progress).await;
        }
        self.report_transition(key, service, plan);
        let (now, before) = (clock::now().as_second(), self.stored_conditions(key, service));
        let mut conditions = status::conditions(requested, plan, &before, now);
        conditions.extend(status::enforced_condition(standing, &before, now));
        let measured = self.demand.told(key, requested.demand);
        conditions.extend(status::measured_condition(Figure::Demand, measured, &before, now));
        let ignored = status::ignored_event(&conditions, &before);
        let enforced = status::enforced_event(&conditions, &before);
        let measured = status::measured_events(&conditions, &before);
        self.write_conditions(key, service, conditions, progress).await?;
        self.emit(service, ignored.into_iter().chain(enforced).chain(measured).collect());
        Ok(())
    }
}

/// What to do about the floor (`step`), by what the watch says of the Service. Where that is to note that another program
/// has changed the floor, the Service decides as it is `stored`: the watch may be behind what this replica, or the leader
/// before it, has written. A Service that is gone or was replaced will be reported.
async fn confirmed<E>(
    step: impl Fn(&Service) -> FloorStep,
    before: Option<Floor>,
    watched: &Service,
    stored: impl Future<Output = Result<Option<Service>, E>>,
) -> Result<FloorStep, E> {
    match step(watched) {
        FloorStep::Withdraw => {
            let stored = stored.await?.filter(|stored| stored.uid == watched.uid);
            Ok(stored.map_or(FloorStep::Keep(before), |stored| step(&stored)))
        }
        known => Ok(known),
    }
}

/// What is known about the hints of a Service, after so many fruitless touches in a row.
fn standing(fruitless_touches: u32, floor: FloorState) -> Standing {
    match floor.noted {
        _ if fruitless_touches >= MAX_FRUITLESS_TOUCHES => Standing::Known(Code::HintsNotEnforced),
        _ if fruitless_touches > 0 => Standing::Unknown,
        Some(Floor::Withdrawn) => Standing::Known(Code::FloorWithdrawn),
        _ if floor.refused => Standing::Known(Code::FloorRefused),
        _ => Standing::Known(Code::HintsEnforced),
    }
}

fn failed(action: &str, subject: &Subject<'_>, error: ApiError) -> SyncError {
    write_error(&format!("failed to {action}"), subject.service, error)
}

/// The delay after so many fruitless touches in a row.
fn delay(fruitless_touches: u32) -> Duration {
    let doublings = fruitless_touches.saturating_sub(1).min(10);
    FIRST_DELAY.saturating_mul(1 << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use serde_json::json;

    use crate::guard::AdmissionKind;

    fn service(uid: &str, field: Option<&str>) -> Service {
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": uid },
            "spec": { "selector": { "app": "web" }, "trafficDistribution": field },
        }))
        .unwrap()
    }

    /// The watch of a new leader may be behind what the leader before it has written.
    #[tokio::test]
    async fn a_floor_is_withdrawn_by_what_is_stored_and_not_by_a_watch_that_is_behind() {
        let ours = Some(Floor::PreferSameZone);
        let set = Some("PreferSameZone");
        let rows = [
            ("the watch is behind", None, Some(service("1", set)), FloorStep::Keep(ours)),
            ("it was removed", None, Some(service("1", None)), FloorStep::Withdraw),
            (
                "it was replaced",
                None,
                Some(service("1", Some("PreferSameNode"))),
                FloorStep::Withdraw,
            ),
            ("the Service was replaced", None, Some(service("2", None)), FloorStep::Keep(ours)),
            ("the Service is gone", None, None, FloorStep::Keep(ours)),
            ("nothing was changed", set, None, FloorStep::Keep(ours)),
        ];
        for (what, watched, stored, expected) in rows {
            let step = |service: &Service| {
                let field = service.traffic_distribution.as_deref();
                floor_step(Floor::PreferSameZone, ours, field, false)
            };
            let stored = async { Ok::<_, Infallible>(stored) };
            let found = confirmed(step, ours, &service("1", watched), stored).await;
            assert_eq!(found, Ok(expected), "{what}");
        }
    }

    fn guard() -> Guard {
        Guard::new(Arc::default(), Arc::new(Policy::new(9, AdmissionKind::Policy)))
    }

    fn key(name: &str) -> Key {
        ("shop".into(), name.into())
    }

    #[test]
    fn one_service_looks_out_for_all_that_lack_their_hints() {
        let (guard, api, web) = (guard(), key("api"), key("web"));
        for round in 0..9 {
            let expected = |last: Duration| (Some(delay(round + 1).min(last)), Vec::new());
            assert_eq!(guard.touched(&api, 1), expected(PROBE_DELAY), "alone: {round}");
        }
        assert_eq!(guard.touched(&web, 2), (Some(delay(1)), Vec::new()));
        assert_eq!(guard.touched(&key("db"), 0), (None, Vec::new()), "it never lacked any");
        assert_eq!(guard.touched(&api, 0), (None, vec![web.clone()]));
        assert_eq!(guard.touched(&api, 0), (None, Vec::new()), "told once");
        assert_eq!(guard.touched(&web, 0), (None, Vec::new()));
    }

    /// One Service that never gets its hints must not decide for all others when they are touched again.
    #[test]
    fn services_that_lack_their_hints_take_turns_to_look_out() {
        let (guard, names) = (guard(), ["a", "b", "c"]);
        for name in names {
            // Long enough that every delay is the longest.
            guard.with(&key(name), |state| state.fruitless_touches = 20);
        }
        let mut turn = key("a");
        assert_eq!(guard.touched(&turn, 1), (Some(PROBE_DELAY), Vec::new()));
        for expected in ["b", "c", "a", "b"] {
            let other = key(names.iter().find(|name| key(name) != turn).unwrap());
            assert_eq!(guard.touched(&other, 1), (Some(LAST_DELAY), Vec::new()), "not its turn");
            let next = key(expected);
            assert_eq!(guard.touched(&turn, 1), (Some(LAST_DELAY), vec![next.clone()]));
            assert_eq!(guard.touched(&next, 1), (Some(PROBE_DELAY), Vec::new()), "its turn");
            turn = next;
        }
        // The turn of one that is gone is taken by the next that is touched.
        guard.forget_state(&turn);
        assert_eq!(guard.touched(&key("a"), 1), (Some(PROBE_DELAY), Vec::new()));
    }

    #[test]
    fn hints_are_enforced_once_slices_carry_them_and_not_before() {
        let floor = |noted, refused| FloorState { noted, refused };
        let (set, gone) = (Some(Floor::PreferSameZone), Some(Floor::Withdrawn));
        let rows = [
            (0, floor(set, false), Standing::Known(Code::HintsEnforced)),
            (0, floor(gone, false), Standing::Known(Code::FloorWithdrawn)),
            (0, floor(None, true), Standing::Known(Code::FloorRefused)),
            (1, floor(set, false), Standing::Unknown),
            (MAX_FRUITLESS_TOUCHES - 1, floor(gone, false), Standing::Unknown),
            (MAX_FRUITLESS_TOUCHES, floor(set, false), Standing::Known(Code::HintsNotEnforced)),
        ];
        for (fruitless_touches, floor, expected) in rows {
            assert_eq!(standing(fruitless_touches, floor), expected, "{fruitless_touches}");
        }
    }
}
