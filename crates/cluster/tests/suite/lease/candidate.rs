//! The running candidate, over a store in memory, on a paused clock.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, timeout};
use zonewise_cluster::lease::{self, Claim, Leadership, LeaseStore};

use super::*;

/// What happens to the requests of a candidate.
#[derive(Clone, Debug, Default)]
enum Network {
    #[default]
    Up,
    /// Requests are lost.
    Down,
    /// Requests arrive, answers are lost.
    AnswersLost,
    /// Every request is answered with this error.
    Refused(StoreError),
}

/// The connection of one candidate to the store.
#[derive(Clone, Default)]
struct Link {
    stored: Arc<Mutex<Stored>>,
    network: Arc<Mutex<Network>>,
}

impl Link {
    fn another(&self) -> Self {
        Self { stored: Arc::clone(&self.stored), network: Arc::default() }
    }

    fn set_network(&self, network: Network) {
        *self.network.lock().unwrap() = network;
    }

    fn spec(&self) -> LeaseSpec {
        self.stored.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    fn holder(&self) -> String {
        self.spec().holder_identity.unwrap()
    }

    async fn carry<T>(
        &self,
        request: impl FnOnce(&mut Stored) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        sleep(Duration::from_millis(3)).await;
        let network = self.network.lock().unwrap().clone();
        match network {
            Network::Up => request(&mut self.stored.lock().unwrap()),
            Network::Down => pending().await,
            Network::AnswersLost => {
                let _ = request(&mut self.stored.lock().unwrap());
                pending().await
            }
            Network::Refused(error) => Err(error),
        }
    }
}

impl LeaseStore for Link {
    async fn get(&self, _name: &str) -> Result<Option<Lease>, StoreError> {
        self.carry(|stored| Ok(stored.lease.clone())).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        self.carry(|stored| stored.create(lease)).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
        self.carry(|stored| stored.replace(lease)).await
    }
}

struct Running {
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn start(link: &Link, identity: &str) -> Running {
    start_while(link, identity, || true)
}

/// Takes the Lease only while it is fit.
fn start_while(
    link: &Link,
    identity: &str,
    fit: impl Fn() -> bool + Send + Sync + 'static,
) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let (leadership, campaign) = lease::run(link.clone(), config(identity), fit, shutdown).unwrap();
    Running { leadership, stop, task: tokio::spawn(campaign) }
}

impl Running {
    async fn becomes(&self, wanted: impl FnMut(&Claim) -> bool) -> Claim {
        let mut claims = self.leadership.claims();
        let claim = timeout(Duration::from_secs(60), claims.wait_for(wanted)).await;
        claim.unwrap().unwrap().clone()
    }

    async fn leads(&self) -> Claim {
        self.becomes(|claim| matches!(claim, Claim::Leader { .. })).await
    }

    async fn follows(&self, leader: Option<&str>) {
        let wanted = Claim::Follower { leader: leader.map(str::to_owned) };
        self.becomes(|claim| *claim == wanted).await;
    }

    fn may_write(&self) -> bool {
        self.leadership.may_write()
    }
}

fn within(start: Instant, from: f64, to: f64) {
    let seconds = start.elapsed().as_secs_f64();
    assert!(from <= seconds && seconds <= to, "{seconds} is not from {from} to {to}");
}

/// A candidate that would be a bad leader leaves a free Lease alone, and keeps one that it has.
#[tokio::test(start_paused = true)]
async fn who_is_not_fit_does_not_become_the_leader() {
    let link = Link::default();
    let a = start(&link, "a");
    a.leads().await;
    let fit = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&fit);
    let b = start_while(&link.another(), "b", move || state.load(Ordering::SeqCst));
    b.follows(Some("a")).await;
    drop(a.stop);
    a.task.await.unwrap();
    sleep(Duration::from_secs(60)).await;
    b.follows(None).await;
    fit.store(true, Ordering::SeqCst);
    b.leads().await;
    fit.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(60)).await;
    assert!(b.may_write());
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_knows_which() {
    let link = Link::default();
    let a = start(&link, "a");
    assert!(!a.may_write());
    a.leads().await;
    assert!(a.may_write());
    let b = start(&link.another(), "b");
    b.follows(Some("a")).await;
    sleep(Duration::from_secs(600)).await;
    assert!(a.may_write() && !b.may_write());
    assert_eq!((link.holder().as_str(), link.spec().lease_transitions), ("a", Some(0)));
    assert_eq!(link.spec().lease_duration_seconds, Some(15));
}

#[tokio::test(start_paused = true)]
async fn renewals_do_not_change_the_claim() {
    let a = start(&Link::default(), "a");
    a.leads().await;
    let mut claims = a.leadership.claims();
    claims.mark_unchanged();
    assert!(timeout(Duration::from_secs(600), claims.changed()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_before_another_starts() {
    let link = Link::default();
    let a = start(&link, "a");
    a.leads().await;
    let b = start(&link.another(), "b");
    b.follows(Some("a")).await;
    sleep(Duration::from_secs(60)).await;

    link.set_network(Network::Down);
    let start = Instant::now();
    a.follows(None).await;
    assert!(!a.may_write() && !b.may_write());
    within(start, 7.5, 10.1);
    b.leads().await;
    within(start, 12.0, 18.0);
    assert_eq!(link.spec().lease_transitions, Some(1));

    link.set_network(Network::Up);
    a.follows(Some("b")).await;
    assert!(b.may_write() && !a.may_write());
}

#[tokio::test(start_paused = true)]
async fn one_request_that_hangs_is_no_loss() {
    let link = Link::default();
    let a = start(&link, "a");
    let claim = a.leads().await;
    for network in [Network::Down, Network::AnswersLost] {
        sleep(Duration::from_secs(10)).await;
        link.set_network(network);
        sleep(Duration::from_secs(4)).await;
        link.set_network(Network::Up);
        for _ in 0..100 {
            assert!(a.may_write());
            sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(*a.leadership.claims().borrow(), claim, "the same term");
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_lets_the_next_start_at_once() {
    let link = Link::default();
    let a = start(&link, "a");
    a.leads().await;
    let b = start(&link.another(), "b");
    b.follows(Some("a")).await;

    let start = Instant::now();
    a.stop.send(()).unwrap();
    a.task.await.unwrap();
    assert!(!a.leadership.may_write());
    assert_eq!(link.spec().lease_duration_seconds, Some(1));
    assert_eq!(link.holder(), "");
    b.leads().await;
    within(start, 0.0, 2.5);
    assert_eq!(link.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_server_that_is_gone() {
    let link = Link::default();
    let a = start(&link, "a");
    a.leads().await;
    link.set_network(Network::Down);
    let start = Instant::now();
    a.stop.send(()).unwrap();
    tokio::task::yield_now().await;
    assert!(!a.leadership.may_write());
    a.task.await.unwrap();
    within(start, 0.0, 10.0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_hangs_cannot_keep_the_claim() {
    let link = Link::default();
    let (leadership, campaign) = lease::run(link, config("a"), || true, pending()).unwrap();
    let mut campaign = Box::pin(campaign);
    let mut claims = leadership.claims();
    tokio::select! {
        () = &mut campaign => unreachable!("it has no end"),
        claim = claims.wait_for(|claim| matches!(claim, Claim::Leader { .. })) => drop(claim),
    }
    // From here on the candidate is not polled: its claim stays, but the right to write expires.
    assert!(leadership.may_write());
    advance(Duration::from_secs(9)).await;
    assert!(leadership.may_write());
    advance(Duration::from_secs(1)).await;
    assert!(!leadership.may_write());
    assert!(matches!(*leadership.claims().borrow(), Claim::Leader { .. }));

    drop(campaign);
    assert_eq!(*leadership.claims().borrow(), Claim::Follower { leader: None });
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_aborted_gives_up_the_claim() {
    let a = start(&Link::default(), "a");
    a.leads().await;
    a.task.abort();
    a.follows(None).await;
    assert!(!a.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_permission_keeps_trying() {
    let link = Link::default();
    link.set_network(Network::Refused(StoreError::Denied("leases is forbidden".to_owned())));
    let a = start(&link, "a");
    sleep(Duration::from_secs(300)).await;
    assert!(!a.may_write());
    link.set_network(Network::Up);
    a.leads().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_away_by_hand_is_obeyed_at_the_next_renewal() {
    let link = Link::default();
    let a = start(&link, "a");
    a.leads().await;
    sleep(Duration::from_secs(10)).await;
    let start = Instant::now();
    link.stored.lock().unwrap().put(&lease("", spec("other", 15, (0, 0), 7)));
    a.follows(Some("other")).await;
    assert!(!a.may_write());
    within(start, 0.0, 2.5);
    // The other one never renews.
    a.leads().await;
    within(start, 15.0, 18.0);
    assert_eq!(link.spec().lease_transitions, Some(8));
}

#[tokio::test(start_paused = true)]
async fn without_election_one_may_always_write() {
    let leadership = Leadership::always();
    advance(Duration::from_secs(1_000_000)).await;
    assert!(leadership.may_write());
    let mut claims = leadership.claims();
    assert!(matches!(*claims.borrow_and_update(), Claim::Leader { .. }));
    assert!(timeout(Duration::from_secs(60), claims.changed()).await.is_err());
}

#[test]
fn an_unsafe_configuration_does_not_run() {
    let config = ElectionConfig { renew_deadline: Duration::from_secs(15), ..config("a") };
    assert!(lease::run(Link::default(), config, || true, pending()).is_err());
}
