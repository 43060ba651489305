//! What the proxy does between the start of its process and the first rules in the kernel, and how long each part takes.
//!
//! ```text
//!  main, client, watches, kernel ──► phases ──► rules are in place ──► one line of the log for each (debug)
//! ```
//!
//! Phases overlap, because lists are read at the same time. The lines are in the order in which phases begin.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many characters the whole start is drawn with.
const WIDTH: usize = 40;

/// The phases of a start. Clones share them.
#[derive(Clone, Debug)]
pub struct Timeline {
    began: Instant,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Debug, Default)]
struct Noted {
    phases: Vec<Phase>,
    /// The start is over.
    finished: bool,
}

/// A part of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Phase {
    /// What was done, and figures about it.
    what: Cow<'static, str>,
    /// When it began, since the start of the process.
    from: Duration,
    /// When it ended.
    to: Duration,
}

impl Default for Timeline {
    /// Begins now.
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Timeline {
    /// The process has begun then.
    pub fn since(began: Instant) -> Self {
        Self { began, noted: Arc::default() }
    }

    /// A phase that began then ends now.
    pub fn ended(&self, from: Instant, what: impl Into<Cow<'static, str>>) {
        let since = |at: Instant| at.saturating_duration_since(self.began);
        let phase = Phase { what: what.into(), from: since(from), to: since(Instant::now()) };
        let mut noted = self.noted.lock();
        if !noted.finished {
            noted.phases.push(phase);
        }
    }

    /// Does some work as a phase.
    pub fn phase<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = work();
        self.ended(from, what);
        result
    }

    /// The start is over: logs its phases. Those that end later are not noted any more.
    pub(crate) fn finish(&self) {
        let mut noted = self.noted.lock();
        if std::mem::replace(&mut noted.finished, true) {
            return;
        }
        for (phase, drawing) in draw(noted.phases.clone()) {
            let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
            tracing::debug!(
                from_ms = ms(phase.from),
                to_ms = ms(phase.to),
                "start |{drawing}| {}",
                phase.what
            );
        }
    }

    /// What was done, in the order in which it began; empty before the start is over.
    pub fn phases(&self) -> Vec<String> {
        let noted = self.noted.lock();
        let phases = if noted.finished { noted.phases.clone() } else { Vec::new() };
        draw(phases).into_iter().map(|(phase, _)| phase.what.into_owned()).collect()
    }
}

/// The phases in the order in which they began, each with its place in the whole.
fn draw(mut phases: Vec<Phase>) -> Vec<(Phase, String)> {
    phases.sort_by_key(|phase| (phase.from, phase.to));
    let whole = phases.iter().map(|phase| phase.to.as_nanos()).max().unwrap_or_default().max(1);
    let column = |time: Duration| (time.as_nanos() * WIDTH as u128 / whole) as usize;
    let bar = |phase: &Phase| {
        let from = column(phase.from).min(WIDTH - 1);
        // However short, it is seen.
        let to = column(phase.to).clamp(from + 1, WIDTH);
        format!("{}{}{}", " ".repeat(from), "=".repeat(to - from), " ".repeat(WIDTH - to))
    };
    phases.into_iter().map(|phase| (phase.clone(), bar(&phase))).collect()
}

/// The phase in which a watch reads its first list.
#[derive(Debug)]
pub(crate) struct Listing {
    timeline: Timeline,
    of: &'static str,
    from: Instant,
    first: Option<Instant>,
    objects: usize,
}

impl Listing {
    /// A list of these objects is asked for now.
    pub(crate) fn new(timeline: &Timeline, of: &'static str) -> Self {
        Self { timeline: timeline.clone(), of, from: Instant::now(), first: None, objects: 0 }
    }

    /// An object has come.
    pub(crate) fn object(&mut self) {
        self.first.get_or_insert_with(Instant::now);
        self.objects += 1;
    }

    /// All have come.
    pub(crate) fn ended(&mut self) {
        let first = self.first.unwrap_or_else(Instant::now) - self.from;
        let text = listing(self.of, self.objects, first);
        self.timeline.ended(self.from, text);
    }
}

fn listing(of: &str, objects: usize, first: Duration) -> String {
    format!("list {of}: {objects} objects, the first after {:.1} ms", first.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(what: &'static str, from: u64, to: u64) -> Phase {
        let ms = Duration::from_millis;
        Phase { what: what.into(), from: ms(from), to: ms(to) }
    }

    #[test]
    fn phases_are_drawn_in_their_order_and_in_proportion() {
        let all = vec![
            phase("rules", 300, 400),
            phase("slices", 100, 300),
            phase("read", 0, 1),
            phase("services", 100, 200),
            phase("last", 400, 400),
        ];
        let drawn: Vec<_> =
            draw(all).into_iter().map(|(phase, drawing)| (phase.what, drawing)).collect();
        let expected = [
            ("read", "=                                       "),
            ("services", "          ==========                    "),
            ("slices", "          ====================          "),
            ("rules", "                              =========="),
            ("last", "                                       ="),
        ];
        let expected = expected.map(|(what, drawing)| (Cow::Borrowed(what), drawing.to_owned()));
        assert_eq!(drawn, expected);
        assert_eq!(draw(Vec::new()), []);
        let nothing = draw(vec![phase("at once", 0, 0)]);
        assert_eq!(nothing[0].1.trim_end(), "=");
    }

    #[test]
    fn what_ends_after_the_start_is_not_noted() {
        let timeline = Timeline::default();
        timeline.phase("one", || {});
        assert_eq!(timeline.phases(), [""; 0]);
        timeline.finish();
        timeline.phase("two", || {});
        timeline.finish();
        assert_eq!(timeline.phases(), ["one"]);
    }

    #[test]
    fn a_list_says_how_much_came_and_when_the_first() {
        let text = listing("services", 12, Duration::from_micros(1_500));
        assert_eq!(text, "list services: 12 objects, the first after 1.5 ms");
    }
}
