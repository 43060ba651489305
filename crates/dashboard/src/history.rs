//! What became of a Service since this program started, as far as memory allows. Pure.

use std::collections::VecDeque;

use serde::Serialize;
use zonewise_explain::ServiceOverview;

/// The most samples of one Service, and the most events.
pub(crate) const MOST: usize = 240;
/// The most characters of an event, and of any text about one Service among all.
pub(crate) const LONGEST: usize = 300;

/// The figures of a Service from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Milliseconds since 1970.
    at: i64,
    /// The part of the traffic that stays in its zone.
    in_zone: Option<f64>,
    /// The largest part that could.
    best: Option<f64>,
    /// How much more than its fair share the most loaded endpoint gets.
    max_overload: Option<f64>,
    /// Ready endpoints.
    endpoints: u64,
    /// Writes of its slices since this program started.
    writes: u64,
}

impl Sample {
    fn of(at: i64, line: &ServiceOverview, writes: u64) -> Self {
        let ServiceOverview { in_zone, best, max_overload, endpoints, .. } = *line;
        Self { at, in_zone, best, max_overload, endpoints, writes }
    }

    fn same_figures(&self, other: &Self) -> bool {
        Self { at: other.at, ..*self } == *other
    }
}

/// Something that happened to a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Milliseconds since 1970.
    at: i64,
    /// What, in words.
    text: String,
}

/// The history of one Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    events: VecDeque<Event>,
    /// Samples and events that made room for later ones.
    forgotten: u64,
}

impl History {
    /// Notes how a Service is now, and what differs from before.
    pub(crate) fn record(
        &mut self,
        at: i64,
        before: Option<&ServiceOverview>,
        now: &ServiceOverview,
        writes: u64,
    ) {
        let sample = Sample::of(at, now, writes);
        let last = self.samples.back();
        if last.is_none_or(|last| !last.same_figures(&sample)) {
            let written = writes - last.map_or(writes, |last| last.writes);
            self.samples.push_back(sample);
            if written > 0 {
                let noun = if written == 1 { "slice" } else { "slices" };
                self.events.push_back(Event { at, text: format!("{written} {noun} written") });
            }
        }
        for text in before.map(|before| differences(before, now)).unwrap_or_default() {
            self.events.push_back(Event { at, text });
        }
        while self.samples.len() > MOST {
            self.samples.pop_front();
            self.forgotten += 1;
        }
        while self.events.len() > MOST {
            self.events.pop_front();
            self.forgotten += 1;
        }
    }
}

/// What differs between two states of a Service, in words.
fn differences(before: &ServiceOverview, now: &ServiceOverview) -> Vec<String> {
    let mut texts = Vec::new();
    if (&before.asked, &before.source) != (&now.asked, &now.source) {
        texts.push(format!(
            "asks for {} ({}), before {} ({})",
            now.asked, now.source, before.asked, before.source
        ));
    }
    if before.endpoints != now.endpoints {
        texts.push(format!("{} ready endpoints, before {}", now.endpoints, before.endpoints));
    }
    if before.reason != now.reason {
        let sentence =
            |line: &ServiceOverview| line.reason.map_or("none", |code| code.entry().sentence);
        texts.push(format!("the reason is: {}; before: {}", sentence(now), sentence(before)));
    }
    if before.state != now.state {
        texts.push(format!("zone routing {}, before {}", now.state.word(), before.state.word()));
    }
    texts.into_iter().map(cut).collect()
}

/// A text of bounded length: what a Service asks for can be long.
pub(crate) fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
