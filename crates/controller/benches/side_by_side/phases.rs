//! The phases of a run, and what is measured in each.
//!
//! ```text
//!  fill ─► cold start ─► stop ─► restart ─► rolling update ─► Node changes
//! ```
//!
//! Each phase ends when the program is quiet, so that its CPU time and its writes are complete.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use zonewise_testbed::{Cluster, Objects, Options, Process, objects};

use crate::observer::{Observer, View};
use crate::scenario::Scenario;
use crate::subject::Subject;
use crate::table::Measure;

/// A program is idle when it used less than this share of one CPU for [`IDLE_TIME`].
const IDLE_SHARE: f64 = 0.03;
const IDLE_TIME: Duration = Duration::from_secs(3);
/// A phase that takes longer than this has failed.
const PHASE_TIMEOUT: Duration = Duration::from_secs(1800);
/// How many Pods are created by one call. It bounds the memory of this process.
const BATCH: usize = 2000;
/// The address of a Pod that shows that a restarted program works; outside the range of the scenario.
const CANARY: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const NODE_CHANGES_PER_SECOND: u64 = 5;

/// When something happened to an address.
type Times = BTreeMap<Ipv4Addr, Instant>;

/// One program on one cluster.
struct Run<'a> {
    subject: Subject,
    scenario: &'a Scenario,
    cluster: Cluster,
    objects: Objects,
    observer: Observer,
    begin: Instant,
    measures: Vec<Measure>,
}

/// The start of a phase, from which CPU time and writes are counted.
struct Mark {
    at: Instant,
    cpu: f64,
    /// CPU time of the API server.
    server_cpu: f64,
    writes: f64,
}

pub(crate) async fn measure(subject: Subject, scenario: &Scenario) -> Result<Vec<Measure>> {
    let cluster = Cluster::start_with(Options::default().production_memory()).await?;
    let objects = cluster.objects()?;
    let observer = Observer::start(&cluster).await?;
    let begin = Instant::now();
    let mut run =
        Run { subject, scenario, cluster, objects, observer, begin, measures: Vec::new() };
    let pods = run.fill().await?;
    run.cold_start(pods).await?;
    let mut process = run.restart(pods).await?;
    run.rolling_update(&mut process).await?;
    run.node_changes(&mut process).await?;
    run.note("in all: peak memory after the restart", mebibytes(&process)?, "MiB");
    run.note("in all: slice writes refused", run.writes_of("endpointslices", false).await?, "");
    run.note("in all: Events written", run.writes_of("events", true).await?, "");
    process.stop().await?;
    Ok(run.measures)
}

impl Run<'_> {
    /// Creates everything; returns the number of Pods.
    async fn fill(&self) -> Result<usize> {
        self.objects.create(&self.scenario.namespaces()).await?;
        self.objects.create(&self.scenario.nodes()).await?;
        let apps = self.scenario.apps();
        let services: Vec<Value> = apps.iter().map(|app| app.service()).collect();
        self.objects.create(&services).await?;
        let ids: Vec<_> = apps.iter().flat_map(|app| app.pod_ids()).collect();
        for (number, batch) in ids.chunks(BATCH).enumerate() {
            self.say(&format!("created {} of {} Pods", number * BATCH, ids.len()));
            let pods: Vec<Value> = batch.iter().map(|id| self.scenario.pod(*id)).collect();
            self.objects.create(&pods).await?;
        }
        Ok(ids.len())
    }

    async fn cold_start(&mut self, pods: usize) -> Result<()> {
        self.say("cold start");
        let mark = self.mark_before_start(0.0).await?;
        let mut process = self.subject.start(&self.cluster)?;
        let converged = self.wait(&mut process, |view| view.ready() == pods).await?;
        self.note("cold start: all Pods in slices", (converged - mark.at).as_secs_f64(), "s");
        wait_until_idle(&mut process).await?;
        self.note_use("cold start", &process, &mark).await?;
        self.note("cold start: peak memory", mebibytes(&process)?, "MiB");
        let slices = self.observer.view()?.slices();
        self.note("cold start: slices there", slices as f64, "");
        process.stop().await?;
        Ok(())
    }

    /// Starts the program when nothing is left to do, except for one new Service that shows that it works.
    async fn restart(&mut self, pods: usize) -> Result<Process> {
        self.say("restart");
        self.objects.create(&canary()).await?;
        // The canary's slice is not counted.
        let mark = self.mark_before_start(1.0).await?;
        let mut process = self.subject.start(&self.cluster)?;
        let works = self.wait(&mut process, |view| view.is_ready(CANARY)).await?;
        let idle_since = wait_until_idle(&mut process).await?.max(works);
        self.note("restart: until quiet", (idle_since - mark.at).as_secs_f64(), "s");
        self.note_use("restart", &process, &mark).await?;
        self.note("restart: peak memory", mebibytes(&process)?, "MiB");
        if self.observer.view()?.ready() != pods + 1 {
            bail!("the restart changed what is ready");
        }
        Ok(process)
    }

    async fn rolling_update(&mut self, process: &mut Process) -> Result<()> {
        self.say("rolling update");
        let mark = self.mark(process).await?;
        let (ready, gone) = self.replace().await?;
        self.note("rolling update: duration", mark.at.elapsed().as_secs_f64(), "s");
        let seen = |view: &View| {
            ready.keys().all(|new| view.is_ready(*new))
                && !gone.keys().any(|old| view.is_ready(*old))
        };
        self.wait(process, seen).await?;
        wait_until_idle(process).await?;
        let (arrivals, departures) = {
            let view = self.observer.view()?;
            (latencies(&ready, &view.arrived)?, latencies(&gone, &view.left)?)
        };
        for (name, sorted) in [("Pod ready", arrivals), ("Pod deleted", departures)] {
            for percent in [50, 99] {
                let name = format!("rolling update: {name} to slice, p{percent}");
                self.note(&name, percentile(&sorted, percent), "ms");
            }
        }
        self.note_use("rolling update", process, &mark).await
    }

    async fn node_changes(&mut self, process: &mut Process) -> Result<()> {
        self.say("Node changes");
        let mark = self.mark(process).await?;
        let mut pace = interval(Duration::from_secs(1) / NODE_CHANGES_PER_SECOND as u32);
        for node in self.scenario.node_changes() {
            pace.tick().await;
            if node["status"].is_object() {
                self.objects.update_status(&[node]).await?;
            } else {
                self.objects.update(&[node]).await?;
            }
        }
        wait_until_idle(process).await?;
        self.note_use("Node changes", process, &mark).await
    }

    /// Replaces Pods at the scenario's rate; returns when each new one was ready and each old one gone.
    async fn replace(&self) -> Result<(Times, Times)> {
        let mut pace = interval(Duration::from_secs_f64(1.0 / self.scenario.rate));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let slots = Arc::new(Semaphore::new(16));
        let mut tasks = JoinSet::new();
        for (old, new) in self.scenario.replacements() {
            pace.tick().await;
            let slot = Arc::clone(&slots).acquire_owned().await?;
            let objects = self.objects.clone();
            let pods = [self.scenario.pod(old), self.scenario.pod(new)];
            tasks.spawn(async move {
                let _slot = slot;
                objects.create(&pods[1..]).await?;
                let ready = Instant::now();
                objects.delete(&pods[..1]).await?;
                Ok::<_, anyhow::Error>(((new.address(), ready), (old.address(), Instant::now())))
            });
        }
        let mut times = (Times::new(), Times::new());
        while let Some(done) = tasks.join_next().await {
            times.extend([done??]);
        }
        Ok(times)
    }

    /// Waits until the slices are as wanted; returns when that was.
    async fn wait(&self, process: &mut Process, wanted: impl Fn(&View) -> bool) -> Result<Instant> {
        let begin = Instant::now();
        let mut told = Instant::now();
        loop {
            process.check()?;
            let ready = {
                let view = self.observer.view()?;
                if wanted(&view) {
                    return Ok(Instant::now());
                }
                view.ready()
            };
            if begin.elapsed() > PHASE_TIMEOUT {
                bail!("{} stays at {ready} ready addresses\n{}", self.subject, process.log_tail());
            }
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                self.say(&format!("{ready} ready addresses"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn mark(&self, process: &Process) -> Result<Mark> {
        Ok(Mark { cpu: process.cpu_seconds()?, ..self.mark_before_start(0.0).await? })
    }

    /// A mark for a process that is about to start, of whose writes so many are not counted.
    async fn mark_before_start(&self, not_counted: f64) -> Result<Mark> {
        let writes = self.writes().await? + not_counted;
        let server_cpu = self.cluster.apiserver_cpu_seconds()?;
        Ok(Mark { at: Instant::now(), cpu: 0.0, server_cpu, writes })
    }

    async fn note_use(&mut self, phase: &str, process: &Process, mark: &Mark) -> Result<()> {
        self.note(&format!("{phase}: CPU time"), process.cpu_seconds()? - mark.cpu, "s");
        let server = self.cluster.apiserver_cpu_seconds()? - mark.server_cpu;
        self.note(&format!("{phase}: CPU time of the API server"), server, "s");
        let written = self.writes().await? - mark.writes;
        self.note(&format!("{phase}: slices written"), written, "");
        Ok(())
    }

    async fn writes(&self) -> Result<f64> {
        self.writes_of("endpointslices", true).await
    }

    /// Writes that the API server has done, or has refused.
    async fn writes_of(&self, resource: &str, done: bool) -> Result<f64> {
        const VERBS: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
        let counts = self.cluster.request_counts().await?;
        let counted = counts.iter().filter(|((verb, of, code), _)| {
            VERBS.contains(&verb.as_str()) && of == resource && code.starts_with('2') == done
        });
        Ok(counted.map(|(_, count)| count).sum::<u64>() as f64)
    }

    fn note(&mut self, name: &str, value: f64, unit: &'static str) {
        self.say(&format!("{name}: {value:.2} {unit}"));
        self.measures.push(Measure { name: name.to_owned(), value, unit });
    }

    fn say(&self, text: &str) {
        eprintln!("{:>7.1} s  {}: {text}", self.begin.elapsed().as_secs_f64(), self.subject);
    }
}

fn canary() -> [Value; 2] {
    let address = CANARY.to_string();
    [
        objects::service("bench-0", "canary", "canary"),
        objects::pod("bench-0", "canary", "canary", "node-0", &address),
    ]
}

/// Waits until the program is idle; returns since when it is.
async fn wait_until_idle(process: &mut Process) -> Result<Instant> {
    let begin = Instant::now();
    let mut samples = VecDeque::new();
    while begin.elapsed() < PHASE_TIMEOUT {
        process.check()?;
        let (now, cpu) = (Instant::now(), process.cpu_seconds()?);
        samples.push_back((now, cpu));
        while samples.get(1).is_some_and(|(at, _)| now - *at >= IDLE_TIME) {
            samples.pop_front();
        }
        if let Some((since, used)) = samples.front()
            && now - *since >= IDLE_TIME
            && cpu - used < IDLE_SHARE * IDLE_TIME.as_secs_f64()
        {
            return Ok(*since);
        }
        sleep(Duration::from_millis(50)).await;
    }
    bail!("the program never becomes idle\n{}", process.log_tail())
}

/// Milliseconds from each write to its effect, sorted.
fn latencies(written: &Times, seen: &Times) -> Result<Vec<f64>> {
    let latency = |(address, at): (&Ipv4Addr, &Instant)| {
        let seen = seen.get(address).with_context(|| format!("{address} was never seen"))?;
        Ok(seen.saturating_duration_since(*at).as_secs_f64() * 1000.0)
    };
    let mut all = written.iter().map(latency).collect::<Result<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn mebibytes(process: &Process) -> Result<f64> {
    Ok(process.peak_rss_bytes()? as f64 / f64::from(1 << 20))
}
