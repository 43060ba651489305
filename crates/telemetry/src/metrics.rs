//! Metrics in the Prometheus text format, version 0.0.4.
//!
//! ```text
//!  registry.counter(name, help, ["zone"]) ─► Family ─ with(["a"]) ─► Counter   one atomic each
//!  registry.collect(name, help, kind, labels, closure)              values computed on each scrape
//!  registry.text()                                                  all of it, sorted, as text
//! ```
//!
//! This is our own implementation because dashboards and alerts for kube-controller-manager and kube-proxy
//! must keep working: some of their counters have names without `_total`, which the `prometheus-client`
//! crate appends to every counter. Numbers are written as Go writes them, so that even the `le` label of a
//! bucket names the same series.
//!
//! Get a handle once and keep it: `with` takes a lock, `inc` does not.

mod process;
mod reference;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
pub use process::process;
use text::Page;
pub use value::{Counter, Gauge, Histogram};

/// The `Content-Type` of [`Registry::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// Why a metric cannot be registered: a bug, found when the program starts.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// The name is in use with another type, help, labels or buckets, or with a closure.
    #[error("metric {name} is already registered with another type, help, labels or buckets")]
    Taken {
        /// The metric.
        name: String,
    },
    /// A metric name that Prometheus does not accept.
    #[error("invalid metric name {name:?}: use letters, digits, _ and :, and no digit first")]
    Name {
        /// The metric.
        name: String,
    },
    /// A label that Prometheus does not accept, or a duplicate.
    #[error(
        "invalid label {label:?} of metric {name}: use letters, digits and _, no digit and no __ first, \
         each once, and no le on a histogram"
    )]
    Label {
        /// The metric.
        name: String,
        /// The label.
        label: String,
    },
    /// Bounds that are not finite or not ascending.
    #[error(
        "invalid buckets {buckets:?} of metric {name}: use finite bounds, each above the one before"
    )]
    Buckets {
        /// The metric.
        name: String,
        /// The bounds.
        buckets: Vec<f64>,
    },
    /// A histogram has no single value that a closure could return.
    #[error("metric {name}: a histogram cannot be computed by a closure; use Registry::histogram")]
    Computed {
        /// The metric.
        name: String,
    },
}

/// All metrics of a process. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Arc<Mutex<BTreeMap<String, Arc<Entry>>>>,
}

struct Entry {
    help: String,
    kind: Kind,
    labels: Vec<String>,
    source: Source,
}

type Compute = dyn Fn(&mut Vec<(Vec<String>, f64)>) + Send + Sync;

enum Source {
    Counters(Arc<Series<Counter>>),
    Gauges(Arc<Series<Gauge>>),
    Histograms(Arc<Series<Histogram>>, Vec<f64>),
    Computed(Box<Compute>),
}

impl Registry {
    /// A family of counters, one for each set of label values.
    ///
    /// Registering the same metric again returns the same family.
    ///
    /// # Errors
    /// If a name is invalid, or the metric's name is in use for another metric.
    pub fn counter<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Family<Counter, N>, MetricError> {
        let source = Source::Counters(Series::new(labels, Counter::default));
        match &self.register(name, Entry::new(help, Kind::Counter, &labels, source))?.source {
            Source::Counters(series) => Ok(Family::of(series)),
            _ => Err(MetricError::Taken { name: name.to_owned() }),
        }
    }

    /// A family of gauges, one for each set of label values.
    ///
    /// # Errors
    /// As [`counter`](Self::counter).
    pub fn gauge<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Family<Gauge, N>, MetricError> {
        let source = Source::Gauges(Series::new(labels, Gauge::default));
        match &self.register(name, Entry::new(help, Kind::Gauge, &labels, source))?.source {
            Source::Gauges(series) => Ok(Family::of(series)),
            _ => Err(MetricError::Taken { name: name.to_owned() }),
        }
    }

    /// A family of histograms with these upper bounds; the bucket `+Inf` is added.
    ///
    /// # Errors
    /// As [`counter`](Self::counter), or if the bounds are not finite and growing.
    pub fn histogram<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        buckets: &[f64],
    ) -> Result<Family<Histogram, N>, MetricError> {
        let finite = buckets.iter().all(|bound| bound.is_finite());
        if !finite || !buckets.is_sorted_by(|a, b| a < b) {
            return Err(MetricError::Buckets { name: name.to_owned(), buckets: buckets.to_vec() });
        }
        let bounds: Arc<[f64]> = buckets.into();
        let series = Series::new(labels, move || Histogram::new(Arc::clone(&bounds)));
        let source = Source::Histograms(series, buckets.to_vec());
        match &self.register(name, Entry::new(help, Kind::Histogram, &labels, source))?.source {
            Source::Histograms(series, _) => Ok(Family::of(series)),
            _ => Err(MetricError::Taken { name: name.to_owned() }),
        }
    }

    /// Values that are computed on each scrape.
    ///
    /// # Errors
    /// As [`counter`](Self::counter); also if the name already has a closure, or for a histogram.
    pub fn collect<const N: usize>(
        &self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: [&str; N],
        compute: impl Fn(&mut Samples<'_, N>) + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        if kind == Kind::Histogram {
            return Err(MetricError::Computed { name: name.to_owned() });
        }
        let compute = move |list: &mut Vec<(Vec<String>, f64)>| compute(&mut Samples::<N> { list });
        let source = Source::Computed(Box::new(compute));
        self.register(name, Entry::new(help, kind, &labels, source)).map(|_| ())
    }

    fn register(&self, name: &str, entry: Entry) -> Result<Arc<Entry>, MetricError> {
        check_names(name, &entry)?;
        let mut entries = self.entries.lock();
        if let Some(known) = entries.get(name) {
            return if known.same(&entry) {
                Ok(Arc::clone(known))
            } else {
                Err(MetricError::Taken { name: name.to_owned() })
            };
        }
        let entry = Arc::new(entry);
        entries.insert(name.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }

    /// All metrics, sorted by name and label values: the same values give the same bytes.
    pub fn text(&self) -> String {
        // Closures may use the registry themselves: they run without the lock.
        let entries: Vec<_> = self
            .entries
            .lock()
            .iter()
            .map(|(name, entry)| (name.clone(), Arc::clone(entry)))
            .collect();
        let mut page = Page::default();
        for (name, entry) in &entries {
            entry.write(name, &mut page);
        }
        page.into_text()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.entries.lock().keys()).finish()
    }
}

impl Entry {
    fn new(help: &str, kind: Kind, labels: &[&str], source: Source) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Self { help: help.to_owned(), kind, labels, source }
    }

    fn same(&self, other: &Self) -> bool {
        let same_source = match (&self.source, &other.source) {
            (Source::Counters(_), Source::Counters(_)) | (Source::Gauges(_), Source::Gauges(_)) => {
                true
            }
            (Source::Histograms(_, ours), Source::Histograms(_, theirs)) => ours == theirs,
            _ => false,
        };
        same_source && self.help == other.help && self.labels == other.labels
    }

    fn write(&self, name: &str, page: &mut Page) {
        let mut family = page.family(name, &self.help, self.kind, &self.labels);
        match &self.source {
            Source::Counters(series) => {
                series.each(|values, counter| family.sample(values, counter.get() as f64));
            }
            Source::Gauges(series) => {
                series.each(|values, gauge| family.sample(values, gauge.get()));
            }
            Source::Histograms(series, _) => {
                series.each(|values, histogram| family.histogram(values, &histogram.snapshot()));
            }
            Source::Computed(compute) => {
                let mut list = Vec::new();
                compute(&mut list);
                list.sort_by(|a, b| a.0.cmp(&b.0));
                list.iter().for_each(|(values, value)| family.sample(values, *value));
            }
        }
    }
}

fn check_names(name: &str, entry: &Entry) -> Result<(), MetricError> {
    if !is_name(name, true) {
        return Err(MetricError::Name { name: name.to_owned() });
    }
    let mut seen = BTreeSet::new();
    let valid = |label: &str| {
        is_name(label, false)
            && !label.starts_with("__")
            && !(entry.kind == Kind::Histogram && label == "le")
    };
    match entry.labels.iter().find(|label| !valid(label) || !seen.insert(label.as_str())) {
        Some(label) => Err(MetricError::Label { name: name.to_owned(), label: label.clone() }),
        None => Ok(()),
    }
}

fn is_name(text: &str, colon: bool) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || (colon && byte == b':');
    text.bytes().next().is_some_and(letter)
        && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// The metrics of one name, by the values of its `N` labels.
#[derive(Clone)]
pub struct Family<M, const N: usize> {
    series: Arc<Series<M>>,
}

impl<M: Clone, const N: usize> Family<M, N> {
    fn of(series: &Arc<Series<M>>) -> Self {
        Self { series: Arc::clone(series) }
    }

    /// The metric for these label values, in the order of the label names. Keep the handle.
    pub fn with(&self, values: [&str; N]) -> M {
        self.series.get(&values)
    }

    /// Removes the metric for these label values. Its handles still work but are not shown any more.
    pub fn remove(&self, values: [&str; N]) {
        self.series.remove(&values);
    }
}

impl<M, const N: usize> fmt::Debug for Family<M, N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Family").field("labels", &N).finish_non_exhaustive()
    }
}

/// Receives the values of a closure of [`Registry::collect`].
#[derive(Debug)]
pub struct Samples<'a, const N: usize> {
    list: &'a mut Vec<(Vec<String>, f64)>,
}

impl<const N: usize> Samples<'_, N> {
    /// Adds the value for these label values; at most one for each set of label values.
    pub fn push(&mut self, values: [&str; N], value: f64) {
        self.list.push((owned(&values), value));
    }
}

struct Series<M> {
    blank: Box<dyn Fn() -> M + Send + Sync>,
    /// Sorted by label values, so that a lookup allocates nothing.
    list: Mutex<Vec<(Vec<String>, M)>>,
}

impl<M: Clone> Series<M> {
    /// A series without labels exists from the start, with value 0.
    fn new<const N: usize>(
        _labels: [&str; N],
        blank: impl Fn() -> M + Send + Sync + 'static,
    ) -> Arc<Self> {
        let list = if N == 0 { vec![(Vec::new(), blank())] } else { Vec::new() };
        Arc::new(Self { blank: Box::new(blank), list: Mutex::new(list) })
    }

    fn get(&self, values: &[&str]) -> M {
        let mut list = self.list.lock();
        match find(&list, values) {
            Ok(at) => list[at].1.clone(),
            Err(at) => {
                let metric = (self.blank)();
                list.insert(at, (owned(values), metric.clone()));
                metric
            }
        }
    }

    fn remove(&self, values: &[&str]) {
        let mut list = self.list.lock();
        if let Ok(at) = find(&list, values) {
            list.remove(at);
        }
    }

    fn each(&self, mut visit: impl FnMut(&[String], &M)) {
        self.list.lock().iter().for_each(|(values, metric)| visit(values, metric));
    }
}

fn find<M>(list: &[(Vec<String>, M)], values: &[&str]) -> Result<usize, usize> {
    list.binary_search_by(|(known, _)| known.iter().map(String::as_str).cmp(values.iter().copied()))
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}
