//! One run: a seed from start to end, on a thread of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Once;
use std::{fmt, panic, thread};

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Builder;
use tokio::time::Instant;
use tracing::Level;
use zonewise_common::clock;

use crate::driver::Driver;
use crate::history::History;

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// How many things the driver does.
    pub steps: u32,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self { steps: 30 }
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What happened, line by line.
    pub history: Vec<String>,
    /// What did not hold.
    pub violation: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.history {
            writeln!(f, "{line}")?;
        }
        match &self.violation {
            None => writeln!(f, "seed {}: everything held", self.seed),
            Some(violation) => writeln!(f, "seed {}: {violation}", self.seed),
        }
    }
}

thread_local! {
    /// The first panic of this thread. A panic in a task ends the task alone; a release build would abort.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Lets [`PANIC`] know of panics, once per process.
fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANIC.with_borrow_mut(|first| {
                first.get_or_insert_with(|| info.to_string());
            });
            usual(info);
        }));
    });
}

/// The memory for the stack of a run: tasks of a debug build need more than usual.
const STACK: usize = 16 << 20;

/// Runs one seed.
///
/// # Panics
/// If no thread can be started.
#[must_use]
pub fn run(seed: u64, plan: RunPlan) -> Outcome {
    run_beside(seed, plan, Vec::new())
}

/// Calls a function where a real kernel is: in a network namespace of its own.
pub type RealKernel = Box<dyn Fn(&mut (dyn FnMut() + Send)) + Send>;

/// Like [`run`], with a real kernel beside that of each node: it gets the same batches, and has to answer the same. It
/// needs tables with an owner, which Linux has since 6.9.
///
/// # Panics
/// If no thread can be started.
#[must_use]
pub fn run_beside(seed: u64, plan: RunPlan, kernels: Vec<RealKernel>) -> Outcome {
    notice_panics();
    // What the product seeds per thread, it seeds anew.
    let thread = thread::Builder::new().name(format!("seed {seed}")).stack_size(STACK);
    let running =
        thread.spawn(move || run_here(seed, plan, kernels)).expect("a thread can be started");
    running.join().expect("a run ends in order")
}

fn run_here(seed: u64, plan: RunPlan, kernels: Vec<RealKernel>) -> Outcome {
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let start = Instant::now();
        let ahead = Rc::new(Cell::new(SignedDuration::ZERO));
        let jumps = Rc::clone(&ahead);
        clock::simulate(move || {
            let passed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
            FIRST_DAY + passed + jumps.get()
        });
        let history = History::new();
        let log = tracing_subscriber::fmt()
            .with_writer(history.clone())
            .with_max_level(Level::INFO)
            .without_time()
            .with_ansi(false)
            .finish();
        let _logging = tracing::subscriber::set_default(log);
        let violation = Driver::new(seed, history.clone(), kernels, ahead).drive(plan).await;
        let panic = PANIC.take().map(|panic| format!("a task panicked: {panic}"));
        Outcome { seed, history: history.lines(), violation: panic.or(violation) }
    })
}

/// When every run begins.
const FIRST_DAY: Timestamp = Timestamp::constant(1_767_225_600, 0);
