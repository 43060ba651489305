//! Keeps the admission policy as it should be, and a binding for each name of a Service whose hints it keeps; or the
//! configuration of the webhook, which has all these names and their namespaces.
//!
//! ```text
//!  sync ─────────► put in place, before the first allocation of a name ───┐
//!                    │ known: what was written                            ▼
//!  Keeper, every 3 s ┴► stored ≠ known, or not needed ────────► API server: policy and bindings, or webhook
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;
use tokio::time::sleep;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::lease::Leadership;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::policy::{self as requests, Version};
use zonewise_inventory::webhook::{self, Selection};

use super::IN_FORCE_AFTER;
use super::name_quota::{NameQuota, QuotaHolder};
use super::webhook::Webhook;

/// The policy.
const DOCUMENT: &str = include_str!("policy.yaml");
/// How often they are looked at: routing is back within 10 s after somebody has removed them.
const PERIOD: Duration = Duration::from_secs(3);

/// The policy and its bindings, as this process has written them, and which Services have a place in the quota of names.
#[derive(Debug)]
pub(crate) struct Policy {
    /// The most names of Services that it is bound to.
    limit: usize,
    admission: AdmissionKind,
    written: Mutex<Written>,
    /// Held while the configuration of the webhook is written, because each write has all Services.
    writing: tokio::sync::Mutex<()>,
}

/// What puts hints into slices.
#[derive(Clone, Debug)]
pub(crate) enum AdmissionKind {
    /// The admission policy, with its bindings.
    Policy,
    /// The webhook.
    Webhook(Webhook),
}

#[derive(Debug, Default)]
struct Written {
    /// The policy, or the configuration of the webhook; `None` before the first write, and when it seems to be gone.
    policy: Option<Version>,
    /// The bindings, by the name of their Service.
    bindings: BTreeMap<Name, Version>,
    /// What the configuration of the webhook has.
    configuration: Option<Configuration>,
    /// The Services that syncs under way have a place for, and how many syncs.
    needed: BTreeMap<Key, usize>,
    /// The Services that asked for a place when there was none.
    waiting: BTreeSet<Key>,
}

/// What changes about the configuration of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Configuration {
    selection: Selection,
    /// The certificates that the API server accepts.
    bundle: String,
}

impl Written {
    /// The quota with the places that are taken: by Services whose hints are in force, and by those that are about to be.
    fn quota(&self, limit: usize, in_force: Vec<QuotaHolder>) -> NameQuota {
        let mut quota = NameQuota::of(limit, in_force);
        self.needed.keys().for_each(|service| quota.add(service));
        quota
    }
}

/// While this exists, the Service has a place, and the binding of its name stays.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    policy: &'a Policy,
    service: Key,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let needed = &mut self.policy.written.lock().needed;
        if let Some(count) = needed.get_mut(&self.service) {
            *count -= 1;
            if *count == 0 {
                needed.remove(&self.service);
            }
        }
    }
}

impl Policy {
    /// With a quota of so many names.
    pub(crate) fn new(limit: usize, admission: AdmissionKind) -> Self {
        let (written, writing) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { limit, admission, written, writing }
    }

    /// A place for a Service during its sync: its binding is written before the allocation from which the keeper would know it.
    /// `None` if there is none. `in_force` has those of others; it is asked while no other sync is given a place.
    pub(crate) fn reserve(
        &self,
        service: &Key,
        in_force: impl FnOnce() -> Vec<QuotaHolder>,
    ) -> Option<Reservation<'_>> {
        let mut written = self.written.lock();
        if !written.quota(self.limit, in_force()).take(service) {
            written.waiting.insert(service.clone());
            return None;
        }
        written.waiting.remove(service);
        *written.needed.entry(service.clone()).or_default() += 1;
        Some(Reservation { policy: self, service: service.clone() })
    }

    /// Notes that a Service does not ask for a place any more.
    pub(crate) fn leave(&self, service: &Key) {
        self.written.lock().waiting.remove(service);
    }

    /// The Services that waited for a place and can have one now. They do not wait any more.
    pub(crate) fn admissible(&self, in_force: impl FnOnce() -> Vec<QuotaHolder>) -> Vec<Key> {
        let mut written = self.written.lock();
        if written.waiting.is_empty() {
            return Vec::new();
        }
        let mut quota = written.quota(self.limit, in_force());
        let waiting = std::mem::take(&mut written.waiting);
        let (admissible, waiting): (Vec<Key>, Vec<Key>) =
            waiting.into_iter().partition(|service| quota.take(service));
        written.waiting = waiting.into_iter().collect();
        admissible
    }

    /// The names that are to be bound.
    pub(crate) fn names(&self, in_force: Vec<QuotaHolder>) -> BTreeSet<Name> {
        NameQuota::of(self.limit, in_force).into_names()
    }

    /// The Services that the webhook is to be sent slices of.
    fn selection(&self, in_force: &[QuotaHolder]) -> Selection {
        let names = self.names(in_force.to_vec());
        let has_place = |holder: &QuotaHolder| names.contains(&holder.service.1);
        let mut selection = Selection::default();
        for holder in in_force.iter().filter(|holder| has_place(holder)) {
            selection.add(&holder.service);
        }
        selection
    }

    /// The most names that are bound.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How many Services wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.written.lock().waiting.len()
    }

    fn is_installed(&self) -> bool {
        self.written.lock().policy.is_some()
    }

    /// Whether hints are put into the slices of a Service, as far as this process knows.
    pub(crate) fn is_bound(&self, service: &Key) -> bool {
        let written = self.written.lock();
        match &self.admission {
            AdmissionKind::Policy => written.bindings.contains_key(&service.1),
            AdmissionKind::Webhook(_) => {
                written.configuration.as_ref().is_some_and(|one| one.selection.has(service))
            }
        }
    }

    /// Sees to it that hints are put into the slices of a Service that has a place. `in_force` has those of others.
    pub(crate) async fn put_in_place(
        &self,
        client: &Client,
        service: &Key,
        in_force: impl FnOnce() -> Vec<QuotaHolder>,
    ) -> Result<(), ApiError> {
        match &self.admission {
            AdmissionKind::Policy => {
                // Without the policy the API server refuses its bindings.
                if !self.is_installed() {
                    self.install(client).await?;
                }
                self.bind(client, &service.1).await
            }
            AdmissionKind::Webhook(webhook) => {
                let _writing = self.writing.lock().await;
                // The sync before has written it for all that waited.
                if self.is_bound(service) {
                    return Ok(());
                }
                let selection = self.with_needed(self.selection(&in_force()));
                let bundle = webhook.bundle().await?;
                self.configure(webhook, client, Configuration { selection, bundle }).await
            }
        }
    }

    /// Writes the configuration of the webhook if it is not as it should be. Returns whether another program had changed
    /// it, or it had never been written by this process.
    async fn keep_configuration(
        &self,
        webhook: &Webhook,
        client: &Client,
        in_force: impl FnOnce() -> Vec<QuotaHolder>,
    ) -> Result<bool, ApiError> {
        let _writing = self.writing.lock().await;
        let bundle = webhook.bundle().await?;
        let stored = webhook::installed(client).await?;
        let selection = self.with_needed(self.selection(&in_force()));
        let wanted = Configuration { selection, bundle };
        let (is_as_written, is_as_wanted) = {
            let written = self.written.lock();
            let is_as_written = stored.is_some() && stored == written.policy;
            (is_as_written, written.configuration.as_ref() == Some(&wanted))
        };
        if !(is_as_written && is_as_wanted) {
            self.configure(webhook, client, wanted).await?;
        }
        Ok(!is_as_written)
    }

    /// With the Services that syncs under way need.
    fn with_needed(&self, mut selection: Selection) -> Selection {
        self.written.lock().needed.keys().for_each(|service| selection.add(service));
        selection
    }

    async fn configure(
        &self,
        webhook: &Webhook,
        client: &Client,
        configuration: Configuration,
    ) -> Result<(), ApiError> {
        let Configuration { selection, bundle } = &configuration;
        let stored = webhook.install(client, bundle, selection).await?;
        let mut written = self.written.lock();
        written.configuration = Some(configuration);
        written.policy = Some(stored);
        Ok(())
    }

    /// Writes the policy. Returns whether it was not as this process had written it.
    async fn install(&self, client: &Client) -> Result<bool, ApiError> {
        let stored = requests::install(client, &document()).await?;
        let before = self.written.lock().policy.replace(stored.clone());
        Ok(before != Some(stored))
    }

    /// Writes the binding of a Service's name.
    async fn bind(&self, client: &Client, service: &Name) -> Result<(), ApiError> {
        let answer = requests::bind(client, service).await;
        let mut written = self.written.lock();
        match answer {
            Ok(stored) => {
                written.bindings.insert(Name::clone(service), stored);
                Ok(())
            }
            // Perhaps because there is no policy any more.
            Err(error) => {
                written.policy = None;
                Err(error)
            }
        }
    }

    /// Whether the binding of a name is not stored as it was written.
    fn differs(&self, service: &Name, stored: Option<&Version>) -> bool {
        let written = self.written.lock();
        let known = written.bindings.get(service);
        known.is_none() || known != stored
    }

    /// Forgets a binding that is to be deleted, unless a sync needs it.
    fn forget(&self, service: &Name) -> bool {
        let mut written = self.written.lock();
        let is_needed = written.needed.keys().any(|(_, name)| name == service);
        if !is_needed {
            written.bindings.remove(service);
        }
        !is_needed
    }
}

/// Writes the policy and the bindings, and again when they are gone or changed.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) policy: Arc<Policy>,
}

/// Why not everything was put in place.
#[derive(Debug, Error)]
enum KeepError {
    #[error("this replica does not lead any more")]
    NotLeading,
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// Logs what came of a look: whether something was written.
fn log_outcome(looked: Result<bool, KeepError>) {
    match looked {
        Ok(true) => tracing::info!(
            "the admission policy or webhook that puts hints into slices is installed"
        ),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "the admission policy or webhook cannot be written; it is tried again");
        }
    }
}

impl Keeper {
    /// Keeps everything in place for the Services that are in force. After something was written that another program had
    /// removed or changed, and the API server acts by it, `changed` is called: slices may have been written without it. What
    /// syncs have put in place is no such change, because they touch the slices themselves. Services that waited and can
    /// have a place now are `admitted`. Never ends.
    pub(crate) async fn keep(
        self,
        in_force: impl Fn() -> Vec<QuotaHolder>,
        changed: impl Fn(),
        admitted: impl Fn(Vec<Key>),
    ) {
        let (mut is_placed, mut is_tidy) = (false, false);
        loop {
            admitted(self.policy.admissible(&in_force));
            let looked = self.look(&in_force).await;
            is_placed |= looked.is_ok();
            if matches!(looked, Ok(true)) {
                sleep(IN_FORCE_AFTER).await;
                changed();
            }
            log_outcome(looked);
            if is_placed && !is_tidy {
                is_tidy = self.remove_other_admission().await;
            }
            sleep(PERIOD).await;
        }
    }

    /// Removes the webhook where the policy is used, and the policy where the webhook is, which an earlier start may have
    /// left: both come to the same, and cost twice. Returns whether that is done.
    async fn remove_other_admission(&self) -> bool {
        let removed = match (&self.policy.admission, self.may_write()) {
            (_, Err(_)) => return false,
            (AdmissionKind::Policy, _) => webhook::uninstall(&self.client).await,
            (AdmissionKind::Webhook(_), _) => remove_policy(&self.client).await,
        };
        match removed {
            Ok(()) => true,
            Err(ApiError::Forbidden(cause)) => {
                tracing::debug!(
                    cause,
                    "guard.admission leaves no right to remove what the other kind would have left"
                );
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the admission policy or webhook that guard.admission does not select cannot be removed; it is tried again");
                false
            }
        }
    }

    /// Puts everything in place. Returns whether something was not as this process had written it.
    async fn look(&self, in_force: impl Fn() -> Vec<QuotaHolder>) -> Result<bool, KeepError> {
        self.may_write()?;
        match &self.policy.admission {
            AdmissionKind::Policy => {
                let is_new = self.policy.install(&self.client).await?;
                Ok(self.look_at_bindings(|| self.policy.names(in_force())).await? || is_new)
            }
            AdmissionKind::Webhook(webhook) => {
                Ok(self.policy.keep_configuration(webhook, &self.client, in_force).await?)
            }
        }
    }

    /// Writes the bindings that are not as they should be, and deletes those whose name no Service under guard mode has.
    /// Returns whether one was written.
    async fn look_at_bindings(
        &self,
        names: impl Fn() -> BTreeSet<Name>,
    ) -> Result<bool, KeepError> {
        let stored = requests::bindings(&self.client).await?;
        // Asked after the list, so that a binding in the list is not deleted because its allocation was written meanwhile.
        let wanted = names();
        let mut is_written = false;
        for service in wanted.iter().filter(|name| self.policy.differs(name, stored.get(*name))) {
            self.may_write()?;
            is_written |=
                is_done("written", service, self.policy.bind(&self.client, service).await)?;
        }
        for service in stored.keys().filter(|service| !wanted.contains(*service)) {
            self.may_write()?;
            if self.policy.forget(service) {
                is_done("deleted", service, requests::unbind(&self.client, service).await)?;
            }
        }
        Ok(is_written)
    }

    fn may_write(&self) -> Result<(), KeepError> {
        if self.leadership.may_write() { Ok(()) } else { Err(KeepError::NotLeading) }
    }
}

/// Whether a write about one binding was carried out. What fails for this one alone is logged, and the others go on.
fn is_done(action: &str, service: &Name, answer: Result<(), ApiError>) -> Result<bool, ApiError> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.is_general() => Err(error),
        Err(error) => {
            tracing::warn!(%service, %error, "the MutatingAdmissionPolicyBinding for the name of a Service cannot be {action}; it is tried again");
            Ok(false)
        }
    }
}

/// Removes what puts hints into slices; that it is gone is no error.
pub(super) async fn remove(client: &Client) -> Result<(), ApiError> {
    webhook::uninstall(client).await?;
    remove_policy(client).await
}

/// Removes the policy, and then the bindings. Where the webhook is used there is no right to these, and without the policy
/// they do nothing.
async fn remove_policy(client: &Client) -> Result<(), ApiError> {
    requests::uninstall(client).await?;
    for service in requests::bindings(client).await?.keys() {
        requests::unbind(client, service).await?;
    }
    Ok(())
}

fn document() -> Value {
    serde_saphyr::from_str(DOCUMENT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::watch;
    use zonewise_cluster::lease::{self, ElectionConfig};
    use zonewise_inventory::webhook::WebhookTarget;

    use crate::guard::certificate::Served;

    const REFUSED: &str = "refused";

    /// An API server that has these bindings, and refuses one: it answers all requests, and notes the writes.
    fn server(stored: &'static [&'static str]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&writes);
        let answer = move |request: Request<Body>| {
            let noted = Arc::clone(&noted);
            async move {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let meta =
                    |name: &str| json!({ "name": name, "uid": name, "resourceVersion": "1" });
                let (status, body) = if *request.method() == Method::GET {
                    // A labelled binding of somebody else, and one without a name of parameters.
                    let names = stored.iter().copied().chain(["somebodys"]);
                    let item = |name| json!({ "metadata": meta(name), "spec": { "paramRef": {} } });
                    (StatusCode::OK, json!({ "items": names.map(item).collect::<Vec<_>>() }))
                } else if name.ends_with(REFUSED) {
                    let body = json!({ "kind": "Status", "code": 422, "reason": "Invalid", "message": "no" });
                    (StatusCode::UNPROCESSABLE_ENTITY, body)
                } else {
                    noted.lock().push(format!("{} {name}", request.method()));
                    (StatusCode::OK, json!({ "metadata": meta(&name) }))
                };
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        };
        (Client::new(tower::service_fn(answer), "default"), writes)
    }

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.into(), name.into())
    }

    fn holders(names: &[&str]) -> Vec<QuotaHolder> {
        let holder = |name: &&str| QuotaHolder { since: "1".into(), service: key("shop", name) };
        names.iter().map(holder).collect()
    }

    fn keeper(client: Client, leadership: Leadership) -> Keeper {
        Keeper { client, leadership, policy: Arc::new(Policy::new(9, AdmissionKind::Policy)) }
    }

    #[test]
    fn the_policy_never_keeps_a_slice_from_being_written() {
        let policy = document();
        assert_eq!(policy["spec"]["failurePolicy"], "Ignore");
        assert_eq!(policy["metadata"]["name"], zonewise_inventory::guard::POLICY);
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_writes_and_deletes_nothing() {
        let (client, writes) = server(&["zonewise-guard-old"]);
        let election = ElectionConfig {
            namespace: "zonewise-system".into(),
            create_namespace: false,
            name: "zonewise-controller".into(),
            identity: "test".into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        let store = lease::api_store(client.clone(), &election);
        let (follower, _campaign) =
            lease::run(store, election, || true, std::future::pending()).unwrap();
        let answer = keeper(client, follower).look(|| holders(&["web"])).await;
        assert!(matches!(answer, Err(KeepError::NotLeading)), "{answer:?}");
        assert_eq!(*writes.lock(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_binding_that_is_refused_does_not_keep_the_others_from_being_written() {
        let (client, writes) = server(&["zonewise-guard-old", "zonewise-guard-refused"]);
        let keeper = keeper(client, Leadership::always());
        let written = keeper.look(|| holders(&["a", "not/a/name", REFUSED, "web"])).await;
        assert!(written.unwrap());
        let expected = [
            "PATCH zonewise-guard",
            "PATCH zonewise-guard-a",
            "PATCH zonewise-guard-web",
            "DELETE zonewise-guard-old",
        ];
        assert_eq!(*writes.lock(), expected);
    }

    #[test]
    fn places_are_given_once_and_who_waits_gets_those_that_become_free() {
        let policy = Policy::new(2, AdmissionKind::Policy);
        let (web, api, db) = (key("shop", "web"), key("shop", "api"), key("bank", "db"));
        let holder = |service: &Key| QuotaHolder { since: "1".into(), service: service.clone() };
        let reserve =
            |service: &Key, in_force: &[QuotaHolder]| policy.reserve(service, || in_force.to_vec());
        let first = reserve(&web, &[]).unwrap();
        assert!(reserve(&api, &[]).is_none(), "a sync under way has the namespace's share");
        let in_force = [holder(&web)];
        drop(first);
        assert!(reserve(&web, &in_force).is_some(), "it is in force");
        let second = reserve(&db, &in_force).unwrap();
        assert!(reserve(&api, &in_force).is_none());
        assert_eq!((policy.waiting(), policy.admissible(|| in_force.to_vec())), (1, Vec::new()));
        drop(second);
        let in_force = [holder(&db)];
        assert_eq!(policy.admissible(|| in_force.to_vec()), [api], "web has left");
        assert_eq!(policy.waiting(), 0);
    }

    /// A sync writes the binding first and the allocation last; the keeper looks in between.
    #[tokio::test]
    async fn a_binding_that_a_sync_needs_is_not_deleted() {
        let (client, writes) = server(&["zonewise-guard-web"]);
        let keeper = keeper(client.clone(), Leadership::always());
        let (policy, web) = (Arc::clone(&keeper.policy), key("shop", "web"));
        let reserve = || policy.reserve(&web, Vec::new).unwrap();
        let (first, second) = (reserve(), reserve());
        policy.bind(&client, &web.1).await.unwrap();
        for needed in [first, second] {
            keeper.look(Vec::new).await.unwrap();
            assert!(!writes.lock().iter().any(|write| write.starts_with("DELETE")));
            assert!(policy.is_bound(&web));
            drop(needed);
        }
        keeper.look(Vec::new).await.unwrap();
        assert!(writes.lock().contains(&"DELETE zonewise-guard-web".to_owned()));
        assert!(!policy.is_bound(&web));
    }

    /// An API server that stores the configuration of the webhook: its version, which each write raises.
    #[derive(Clone, Default)]
    struct Configured(Arc<Mutex<Option<u64>>>);

    impl Configured {
        fn client(&self) -> Client {
            let stored = self.clone();
            let answer = move |request: Request<Body>| {
                let mut version = stored.0.lock();
                if *request.method() == Method::PATCH {
                    *version = Some(version.unwrap_or(0) + 1);
                }
                let (status, body) = match *version {
                    Some(version) => {
                        let version = version.to_string();
                        (
                            StatusCode::OK,
                            json!({ "metadata": { "uid": "1", "resourceVersion": version } }),
                        )
                    }
                    None => (
                        StatusCode::NOT_FOUND,
                        json!({ "kind": "Status", "code": 404, "reason": "NotFound" }),
                    ),
                };
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = status;
                std::future::ready(Ok::<_, Infallible>(response))
            };
            Client::new(tower::service_fn(answer), "default")
        }

        fn writes(&self) -> u64 {
            self.0.lock().unwrap_or(0)
        }
    }

    fn webhook_keeper(server: &Configured) -> Keeper {
        let served = Arc::new(Served::first("a.svc", 1_768_003_200).unwrap());
        // The last value stays when the sender is gone.
        let (served, installed) = (watch::channel(Some(served)).1, watch::channel(None).0);
        let admission =
            AdmissionKind::Webhook(Webhook { target: WebhookTarget::Service, served, installed });
        let policy = Arc::new(Policy::new(9, admission));
        Keeper { client: server.client(), leadership: Leadership::always(), policy }
    }

    /// A write of the configuration has all Services, and takes longer the more there are.
    #[tokio::test]
    async fn one_write_selects_all_services_that_wait_for_it() {
        let server = Configured::default();
        let keeper = webhook_keeper(&server);
        let (policy, client) = (&keeper.policy, &keeper.client);
        let services = ["a", "b", "c"].map(|name| key(name, name));
        let reservations =
            services.each_ref().map(|service| policy.reserve(service, Vec::new).unwrap());
        let [a, b, c] =
            services.each_ref().map(|service| policy.put_in_place(client, service, Vec::new));
        let (a, b, c) = tokio::join!(a, b, c);
        assert!(a.is_ok() && b.is_ok() && c.is_ok(), "{a:?} {b:?} {c:?}");
        assert_eq!(server.writes(), 1);
        assert!(services.iter().all(|service| policy.is_bound(service)));
        assert!(!policy.is_bound(&key("d", "a")), "another namespace");
        drop(reservations);
    }

    /// After `changed` every Service is synced.
    #[tokio::test]
    async fn what_a_sync_puts_in_place_is_not_taken_for_a_change_by_others() {
        let server = Configured::default();
        let keeper = webhook_keeper(&server);
        let (web, api) = (key("shop", "web"), key("bank", "api"));
        let holder = |service: &Key| QuotaHolder { since: "1".into(), service: service.clone() };
        let in_force = || vec![holder(&web), holder(&api)];
        assert!(keeper.look(|| vec![holder(&web)]).await.unwrap(), "it was not there");
        let reservation = keeper.policy.reserve(&api, || vec![holder(&web)]).unwrap();
        keeper.policy.put_in_place(&keeper.client, &api, || vec![holder(&web)]).await.unwrap();
        assert!(keeper.policy.is_bound(&web) && keeper.policy.is_bound(&api));
        drop(reservation);
        assert_eq!((keeper.look(in_force).await.unwrap(), server.writes()), (false, 2));
        assert_eq!((keeper.look(in_force).await.unwrap(), server.writes()), (false, 2), "at rest");
        // A Service leaves, and nobody else is concerned.
        let left = keeper.look(|| vec![holder(&api)]).await.unwrap();
        assert_eq!((left, server.writes()), (false, 3));
        assert!(!keeper.policy.is_bound(&web));
        *server.0.lock() = Some(20);
        assert!(keeper.look(in_force).await.unwrap(), "another program has changed it");
        *server.0.lock() = None;
        assert!(keeper.look(in_force).await.unwrap(), "another program has removed it");
    }
}
