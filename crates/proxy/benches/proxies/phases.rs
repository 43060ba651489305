//! The work of one program at one scale, and what is measured of it.
//!
//! ```text
//!  start ─► marker answers ─► rest ─► memory ─► changes ─► burst ─► 50 changes per second ─► stop
//! ```
//!
//! A change counts from the moment the API server is asked to make it until the first connection that ends where
//! it should. The API server's own part is thus in the figures of both programs; it has a line of its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cluster::BenchCluster;
use crate::proxy::{Cpu, ProxyUnderTest, Subject};
use crate::table::{Figure, Measure};

/// Nothing is waited for any longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// Where a sync of the reference takes so long that a few rounds must do.
const HUGE: u32 = 20_000;
/// Services that change at once, and from which scale on.
const BURST: u32 = 1000;
/// Changes per second, for so many seconds; shown for ten minutes.
const RATE: u32 = 50;
const SECONDS: u32 = 12;
const SHOWN: f64 = 600.0 / SECONDS as f64;
/// Every Service here is IPv4. Ours writes both families at once and reports the same time for each: their sum
/// would count it twice.
const FULL: &str = "kubeproxy_sync_full_proxy_rules_duration_seconds_sum";
const SYNCS: &str = "kubeproxy_sync_full_proxy_rules_duration_seconds_count";

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    First,
    Memory,
    Change,
    Burst,
    Cpu,
    Path,
    Counters,
}

impl Part {
    /// What is measured if nothing else is said.
    pub(crate) const USUAL: [Self; 6] =
        [Self::First, Self::Memory, Self::Change, Self::Burst, Self::Cpu, Self::Path];

    pub(crate) fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "first" => Self::First,
            "memory" => Self::Memory,
            "change" => Self::Change,
            "burst" => Self::Burst,
            "cpu" => Self::Cpu,
            "path" => Self::Path,
            "counters" => Self::Counters,
            other => {
                bail!("--only {other}: use first, memory, change, burst, cpu, path or counters")
            }
        })
    }
}

/// What is wanted at one scale.
pub(crate) struct Plan {
    pub(crate) scale: u32,
    pub(crate) parts: BTreeSet<Part>,
    pub(crate) rounds: Option<usize>,
}

impl Plan {
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// How often one endpoint changes.
    fn rounds(&self, subject: Subject) -> usize {
        let usual = match subject {
            Subject::Ours => 20,
            _ if self.scale >= HUGE => 3,
            _ => 10,
        };
        self.rounds.unwrap_or(usual)
    }

    /// How often a thousand Services change.
    fn bursts(&self, subject: Subject) -> usize {
        if subject != Subject::Ours && self.scale >= HUGE { 1 } else { 3 }
    }
}

/// One program at one scale.
pub(crate) struct Trial<'a> {
    cluster: &'a mut BenchCluster,
    plan: &'a Plan,
    subject: Subject,
    proxy: ProxyUnderTest,
    measures: Vec<Measure>,
}

impl<'a> Trial<'a> {
    /// Measures a program, and stops it; returns its network with the rules that it has left.
    pub(crate) async fn run(
        cluster: &'a mut BenchCluster,
        subject: Subject,
        plan: &'a Plan,
    ) -> Result<(Vec<Measure>, ProxyUnderTest)> {
        let proxy = ProxyUnderTest::new(&cluster.api_server)?;
        let mut trial = Self { cluster, plan, subject, proxy, measures: Vec::new() };
        if trial.first().await? {
            trial.rest().await?;
        }
        trial.proxy.stop().await?;
        Ok((trial.measures, trial.proxy))
    }

    /// The start; whether the program ever came so far.
    async fn first(&mut self) -> Result<bool> {
        let watcher = self.proxy.watch(self.cluster.marker, self.cluster.side(), LIMIT);
        let begin = self.proxy.start(self.subject, &self.cluster.api_server)?;
        let seen = self.proxy.seen(watcher).await?;
        if self.wants(Part::First) || seen.is_none() {
            self.note("first sync: start to first connection", took(begin, seen), "s");
        }
        if seen.is_none() {
            self.say(&format!("never came so far; its log ends with\n{}", self.proxy.log()));
        }
        Ok(seen.is_some())
    }

    async fn rest(&mut self) -> Result<()> {
        self.proxy.rest().await?;
        if self.wants(Part::First)
            && let Some(reported) = self.proxy.metric(FULL)
        {
            let syncs = self.proxy.metric(SYNCS).unwrap_or_default();
            self.say(&format!("full syncs so far: {syncs}"));
            self.note("first sync: as the proxy reports it", Figure::Known(reported), "s");
        }
        if self.wants(Part::Memory) {
            self.memory("settled after the first sync", "VmRSS")?;
            self.memory("peak of the first sync", "VmHWM")?;
        }
        if self.plan.has(Part::Change) {
            self.changes().await?;
        }
        if self.wants(Part::Burst) && self.plan.scale >= BURST {
            self.bursts().await?;
        }
        if self.wants(Part::Cpu) {
            self.stream().await?;
        }
        let changed = [Part::Change, Part::Burst, Part::Cpu].map(|part| self.plan.has(part));
        if self.wants(Part::Memory) && changed.contains(&true) {
            self.memory("peak after all changes", "VmHWM")?;
        }
        Ok(())
    }

    /// Of kube-proxy without its pause only the changes are of interest.
    fn wants(&self, part: Part) -> bool {
        self.subject != Subject::Eager && self.plan.has(part)
    }

    fn memory(&mut self, what: &str, field: &str) -> Result<()> {
        let held = self.proxy.memory(field)?;
        self.note(&format!("memory: {what}"), Figure::Known(held), "MiB");
        Ok(())
    }

    /// One endpoint changed, at moments that have nothing to do with the program's own rhythm.
    async fn changes(&mut self) -> Result<()> {
        let (mut reached, mut answered) = (Vec::new(), Vec::new());
        for round in 0..self.plan.rounds(self.subject) {
            tokio::time::sleep(pause(round as u64)).await;
            let (figure, answer) = self.swap().await?;
            reached.push(figure);
            answered.push(Figure::Known(answer));
            if matches!(figure, Figure::Above(_)) {
                break;
            }
        }
        for percent in [50, 99] {
            let figure = percentile(&mut reached, percent);
            self.note(&format!("one endpoint changed: p{percent}"), figure, "ms");
        }
        let answer = percentile(&mut answered, 50);
        self.note("one endpoint changed: of it the API server's answer, p50", answer, "ms");
        Ok(())
    }

    /// Many Services changed at once, the marker last.
    async fn bursts(&mut self) -> Result<()> {
        let mut reached = Vec::new();
        for _ in 0..self.plan.bursts(self.subject) {
            let begin = Instant::now();
            self.cluster.change(BURST, None).await?;
            let wrote = begin.elapsed().as_secs_f64();
            let (figure, _) = self.swap().await?;
            self.say(&format!("{BURST} slices written in {wrote:.2} s; the marker in {figure} ms"));
            reached.push(figure);
            self.proxy.rest().await?;
        }
        let median = percentile(&mut reached, 50);
        self.note(&format!("{BURST} Services changed: last write to connection"), median, "ms");
        Ok(())
    }

    /// Changes at a steady rate; counted until the last is in place and the program rests.
    async fn stream(&mut self) -> Result<()> {
        self.proxy.rest().await?;
        let (before, begin) = (self.proxy.cpu()?, Instant::now());
        let every = Duration::from_secs(1) / RATE;
        self.cluster.change(RATE * SECONDS, Some(every)).await?;
        let wrote = begin.elapsed().as_secs_f64();
        self.swap().await?;
        let caught_up = begin.elapsed().as_secs_f64();
        self.proxy.rest().await?;
        let after = self.proxy.cpu()?;
        let used = Cpu { user: after.user - before.user, kernel: after.kernel - before.kernel };
        self.say(&format!(
            "{} changes in {wrote:.1} s, in place after {caught_up:.1} s, for {:.2} s of CPU time",
            RATE * SECONDS,
            used.sum()
        ));
        let name = format!("{RATE} changes/s for 10 min ({SECONDS} s measured)");
        self.note(&format!("{name}: CPU time"), Figure::Known(used.sum() * SHOWN), "s");
        self.note(&format!("{name}: of it in the kernel"), Figure::Known(used.kernel * SHOWN), "s");
        self.note(&format!("{name}: clock time"), Figure::Known(wrote * SHOWN), "s");
        Ok(())
    }

    /// Leads the marker elsewhere; milliseconds until a connection follows, and until the API server answers.
    async fn swap(&mut self) -> Result<(Figure, f64)> {
        let wanted = if self.cluster.side() == "left" { "right" } else { "left" };
        let watcher = self.proxy.watch(self.cluster.marker, wanted, LIMIT);
        let sent = self.cluster.swap().await?;
        let answered = sent.elapsed().as_secs_f64() * 1000.0;
        let seen = self.proxy.seen(watcher).await?;
        Ok((took(sent, seen).times(1000.0), answered))
    }

    fn note(&mut self, name: &str, figure: Figure, unit: &'static str) {
        self.say(&format!("{name}: {figure} {unit}"));
        self.measures.push(Measure { name: name.to_owned(), figure, unit });
    }

    fn say(&self, text: &str) {
        self.cluster.say(&format!("{} Services, {}: {text}", self.plan.scale, self.subject));
    }
}

fn took(begin: Instant, seen: Option<Instant>) -> Figure {
    match seen {
        Some(seen) => Figure::Known(seen.saturating_duration_since(begin).as_secs_f64()),
        None => Figure::Above(LIMIT.as_secs_f64()),
    }
}

/// Up to a second: the reference syncs at most once in that time.
fn pause(round: u64) -> Duration {
    // Multiples of the golden ratio are spread evenly, however many there are.
    Duration::from_secs_f64((round as f64 * 0.618_033_988_749_895).fract())
}

/// The nearest rank: of less than a hundred figures the 99th percentile is the largest.
fn percentile(figures: &mut [Figure], percent: usize) -> Figure {
    figures.sort_by(Figure::order);
    let rank = (figures.len() * percent).div_ceil(100).max(1);
    figures.get(rank - 1).copied().unwrap_or(Figure::Above(0.0))
}
